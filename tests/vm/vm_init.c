// PID 1 of the test VM: one static program, because every exec costs tens of milliseconds under
// emulation. Loads the modules of the initrd, makes the disk the root, mounts what a machine has
// (cgroup v2 with nsdelegate, as systemd does, and every controller enabled), runs /command with
// its output on the virtio port `out`, writes `rc=N` to the port `rc`, and stops the machine.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char kCgroup[] = "/sys/fs/cgroup";

// Leaves at once by QEMU's isa-debug-exit device; by the kernel where that is missing.
static void stop_machine(void) {
  sync();
  if (iopl(3) == 0) {
    outb(0, 0xf4);
  }
  reboot(RB_AUTOBOOT);
  for (;;) {
    pause();
  }
}

static void give_up(const char* what) {
  fprintf(stderr, "vm_init: %s: %s\n", what, strerror(errno));
  stop_machine();
}

static void mount_or_stop(const char* type, const char* at, unsigned long flags,
                          const char* options) {
  mkdir(at, 0755);
  if (mount(type, at, type, flags, options) != 0) {
    give_up(at);
  }
}

static bool read_text(const char* path, char* text, size_t size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
  if (fd >= 0) {
    close(fd);
  }
  text[n > 0 ? n : 0] = '\0';
  return n >= 0;
}

static void write_text(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) {
    give_up(path);
  }
  close(fd);
}

static void load_modules(void) {
  FILE* order = fopen("/modules/order", "re");
  if (order == NULL) {
    give_up("/modules/order");
  }
  char name[128];
  while (fscanf(order, "%127s", name) == 1) {
    char path[160];
    snprintf(path, sizeof path, "/modules/%s", name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST)) {
      give_up(path);
    }
    close(fd);
  }
  fclose(order);
}

static void enter_root(void) {
  // The disk appears a moment after its driver; nothing tells without udev.
  const struct timespec wait = {0, 5 * 1000 * 1000};
  int tries = 1000;
  while (mount("/dev/vda", "/newroot", "ext4", MS_NOATIME, "prjquota") != 0) {
    if (--tries == 0) {
      give_up("/dev/vda");
    }
    nanosleep(&wait, NULL);
  }
  for (const char* const* name = (const char* const[]){"/proc", "/sys", "/dev", NULL};
       *name != NULL; ++name) {
    char target[32];
    snprintf(target, sizeof target, "/newroot%s", *name);
    if (mount(*name, target, NULL, MS_MOVE, NULL) != 0) {
      give_up(target);
    }
  }
  if (chdir("/newroot") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 ||
      chdir("/") != 0) {
    give_up("/newroot");
  }
}

static void prepare_machine(void) {
  mount_or_stop("tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755");
  mount_or_stop("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, NULL);
  mount_or_stop("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
  if (symlink("/proc/self/fd", "/dev/fd") != 0 || symlink("fd/0", "/dev/stdin") != 0 ||
      symlink("fd/1", "/dev/stdout") != 0 || symlink("fd/2", "/dev/stderr") != 0) {
    give_up("/dev/fd");
  }
  mount_or_stop("cgroup2", kCgroup, MS_NOSUID | MS_NODEV | MS_NOEXEC,
                "nsdelegate,memory_recursiveprot");
  char names[512];
  read_text("/sys/fs/cgroup/cgroup.controllers", names, sizeof names);
  for (char* name = strtok(names, " \n"); name != NULL; name = strtok(NULL, " \n")) {
    char text[64];
    snprintf(text, sizeof text, "+%s", name);
    write_text("/sys/fs/cgroup/cgroup.subtree_control", text);
  }
  if (mkdir("/sys/fs/cgroup/payload", 0755) != 0 || sethostname("vm", 2) != 0) {
    give_up("payload group");
  }
  const int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
  if (sock < 0 || ioctl(sock, SIOCSIFFLAGS, &lo) != 0) {
    give_up("lo");
  }
  close(sock);
}

static int open_port(const char* wanted) {
  DIR* ports = opendir("/sys/class/virtio-ports");
  struct dirent* entry;
  while (ports != NULL && (entry = readdir(ports)) != NULL) {
    char path[300];
    char name[64];
    snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
    if (entry->d_name[0] == '.' || !read_text(path, name, sizeof name)) {
      continue;
    }
    name[strcspn(name, "\n")] = '\0';
    if (strcmp(name, wanted) == 0) {
      snprintf(path, sizeof path, "/dev/%s", entry->d_name);
      closedir(ports);
      return open(path, O_WRONLY | O_CLOEXEC);
    }
  }
  if (ports != NULL) {
    closedir(ports);
  }
  errno = ENODEV;
  return -1;
}

// The initrd is out of reach once the disk is the root.
static char* keep_command(void) {
  const int fd = open("/command", O_RDONLY | O_CLOEXEC);
  struct stat facts;
  if (fd < 0 || fstat(fd, &facts) != 0) {
    give_up("/command");
  }
  char* text = calloc(1, (size_t)facts.st_size + 1);
  if (text == NULL || read(fd, text, (size_t)facts.st_size) != facts.st_size) {
    give_up("/command");
  }
  close(fd);
  return text;
}

static pid_t start(const char* command, int out) {
  const pid_t child = fork();
  if (child != 0) {
    return child;
  }
  char pid[16];
  snprintf(pid, sizeof pid, "%d", (int)getpid());
  write_text("/sys/fs/cgroup/payload/cgroup.procs", pid);
  setsid();
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || dup2(null, 0) != 0 || dup2(out, 1) != 1 || dup2(out, 2) != 2) {
    _exit(126);
  }
  char* const argv[] = {(char*)"sh", (char*)"-c", (char*)(size_t)command, NULL};
  char* const env[] = {(char*)"PATH=/bin:/vm",
                       (char*)"HOME=/root",
                       (char*)"LANG=C.UTF-8",
                       (char*)"TERM=dumb",
                       (char*)"TALON_TEST_REQUIRE=memory,cpu,pids,io",
                       NULL};
  execve("/bin/sh", argv, env);
  _exit(127);
}

static void report(int port, const char* line) {
  if (write(port, line, strlen(line)) != (ssize_t)strlen(line)) {
    give_up("the port rc");
  }
}

int main(void) {
  mount_or_stop("proc", "/proc", 0, NULL);
  mount_or_stop("sysfs", "/sys", 0, NULL);
  mount_or_stop("devtmpfs", "/dev", 0, NULL);
  const int console = open("/dev/console", O_WRONLY);
  dup2(console, 1);
  dup2(console, 2);
  char* command = keep_command();
  load_modules();
  enter_root();
  prepare_machine();
  const int rc = open_port("rc");
  const int out = open_port("out");
  if (rc < 0 || out < 0) {
    give_up("virtio ports");
  }
  struct timespec up;
  clock_gettime(CLOCK_BOOTTIME, &up);
  char line[64];
  snprintf(line, sizeof line, "started=%ld.%03ld\n", (long)up.tv_sec, up.tv_nsec / 1000000);
  report(rc, line);
  const pid_t child = start(command, out);
  int status = 0;
  for (pid_t ended = 0; ended != child && (ended >= 0 || errno == EINTR);) {
    ended = wait(&status);  // orphans too
  }
  snprintf(line, sizeof line, "rc=%d\n",
           WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  report(rc, line);
  stop_machine();
}

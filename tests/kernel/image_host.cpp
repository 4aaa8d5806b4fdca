// The image `host`: what of a host gets in and, above all, what does not. Most cases use a small
// made-up host root full of secrets; one makes the real thing and prints how long that took.
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <thread>

#include "image_support.h"
#include "isolate/image/host.h"
#include "isolate/image/image.h"

using namespace talon;
using namespace talon::isolate;
using namespace talon::test;

namespace {

constexpr const char* kSecret = "canary-7f3a";

bool root_here() {
  if (geteuid() != 0) {
    WARN("SKIP: needs root (owners and devices)");
    return false;
  }
  return true;
}

void secret_file(const std::string& path, mode_t mode = 0644) { put(path, kSecret, mode); }

// A host root with the usual places and a secret in each that must stay out.
void make_host(const std::string& h) {
  for (const char* d : {"",
                        "/usr",
                        "/usr/bin",
                        "/usr/lib",
                        "/usr/local",
                        "/usr/closed",
                        "/etc",
                        "/etc/ssl",
                        "/etc/ssl/certs",
                        "/etc/ssh",
                        "/etc/sudoers.d",
                        "/etc/apt",
                        "/etc/apt/auth.conf.d",
                        "/etc/apt/apt.conf.d",
                        "/etc/apt/sources.list.d",
                        "/etc/profile.d",
                        "/etc/alternatives",
                        "/etc/skel",
                        "/etc/docker",
                        "/home",
                        "/home/me",
                        "/root",
                        "/opt",
                        "/srv",
                        "/var",
                        "/var/lib",
                        "/var/lib/dpkg",
                        "/var/lib/mysql",
                        "/var/log"}) {
    make_dir(h + d);
  }
  make_dir(h + "/etc/ssl/private", 0710);
  put(h + "/usr/bin/tool", "tool", 04755);
  put(h + "/usr/bin/bash", "", 0755);
  secret_file(h + "/usr/bin/mine", 0750);
  symlink("tool", (h + "/usr/bin/alias").c_str());
  secret_file(h + "/usr/closed/open-file");
  chmod((h + "/usr/closed").c_str(), 0751);
  mkfifo((h + "/usr/lib/fifo").c_str(), 0666);
  mknod((h + "/usr/lib/null").c_str(), S_IFCHR | 0666, makedev(1, 3));
  const int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string sock_path = h + "/usr/lib/socket";
  std::memcpy(address.sun_path, sock_path.c_str(), sock_path.size() + 1);
  (void)!bind(sock, reinterpret_cast<sockaddr*>(&address), sizeof address);
  close(sock);
  symlink("usr/bin", (h + "/bin").c_str());
  symlink("/home/me", (h + "/lib").c_str());  // not into /usr: stays out
  for (const char* f : {"/etc/shadow",
                        "/etc/gshadow",
                        "/etc/shadow-",
                        "/etc/sudoers",
                        "/etc/sudoers.d/me",
                        "/etc/ssh/ssh_host_rsa_key",
                        "/etc/machine-id",
                        "/etc/ssl/certs/server.key",
                        "/etc/ssl/private/x.pem",
                        "/etc/docker/key.json",
                        "/etc/pip.conf",
                        "/etc/npmrc",
                        "/etc/gitconfig",
                        "/etc/apt/auth.conf",
                        "/etc/apt/auth.conf.d/a.conf",
                        "/etc/environment",
                        "/home/me/file",
                        "/root/file",
                        "/opt/file",
                        "/srv/file",
                        "/var/lib/mysql/db",
                        "/var/log/syslog",
                        "/rootfile",
                        "/etc/crypttab",
                        "/etc/skel/.netrc",
                        "/etc/passwd",
                        "/etc/group",
                        "/etc/hosts",
                        "/etc/hostname",
                        "/etc/resolv.conf",
                        "/etc/profile~"}) {
    secret_file(h + f);
  }
  secret_file(h + "/etc/mime.types", 0640);
  put(h + "/etc/ssl/certs/bundle.pem", std::string{"-----BEGIN PRIVATE "} + "KEY-----\n" + kSecret);
  put(h + "/etc/ssl/certs/ca.pem", "-----BEGIN CERTIFICATE-----\n");
  put(h + "/etc/profile.d/proxy.sh",
      std::string{"export https_proxy=http://u:"} + kSecret + "@p/\n");
  put(h + "/etc/profile.d/aws.sh", std::string{"export AWS_SECRET_ACCESS_KEY="} + kSecret + "\n");
  put(h + "/etc/profile.d/lang.sh", "export LANG=C.UTF-8\n");
  put(h + "/etc/apt/apt.conf.d/proxy",
      std::string{"Acquire::http::Proxy \"http://u:"} + kSecret + "@proxy:3128\";\n");
  put(h + "/etc/apt/apt.conf.d/keep", "APT::Install-Recommends \"0\";\n");
  put(h + "/etc/apt/sources.list", std::string{"deb http://deb.example.org/debian a main\n"
                                               "deb https://me:"} +
                                       kSecret + "@repo/x a main\n");
  put(h + "/etc/apt/sources.list.d/two.sources",
      std::string{"Types: deb\nURIs: https://me:"} + kSecret +
          "@repo/x\n\n"
          "Types: deb\nURIs: http://deb.example.org/debian\n");
  put(h + "/etc/services", "http 80/tcp\n");
  symlink("/usr/bin/tool", (h + "/etc/alternatives/t").c_str());
  put(h + "/var/lib/dpkg/status", "Package: x\n");
  put(h + "/var/lib/dpkg/lock", "", 0640);
  put(h + "/var/lib/dpkg/statoverride",
      "root messagebus 4754 /usr/lib/helper\nroot mail 2755 /usr/bin/m\n");
}

struct Made {
  TempDir tmp;
  UniqueFd host;
  UniqueFd root;
  Result<image::HostTree> tree;
};

void make(Made& m, const std::string& root_path) {
  make_host(m.tmp / "host");
  make_dir(root_path);
  m.host = UniqueFd{open((m.tmp / "host").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  m.root = UniqueFd{open(root_path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  m.tree = image::make_host_tree(m.host.get(), m.root.get(), {});
}

// Every file beneath `dir` that holds the secret; and what is no file, directory or link.
void search(int dir, const std::string& rel, std::string& found) {
  for (const auto& e : image::list_dir(dir).value()) {
    const std::string path = rel + "/" + e.name;
    struct stat st = look(dir, e.name);
    if (S_ISDIR(st.st_mode)) {
      const UniqueFd sub{openat(dir, e.name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
      search(sub.get(), path, found);
    } else if (S_ISREG(st.st_mode)) {
      if (slurp(dir, e.name).find(kSecret) != std::string::npos) {
        found += path + "\n";
      }
    } else if (!S_ISLNK(st.st_mode)) {
      found += "special " + path + "\n";
    }
  }
}

// `work` in a thread with a mount namespace of its own; the machine's mounts stay as they are.
bool with_mounts(const std::function<void()>& work) {
  bool ran = false;
  std::thread{[&] {
    if (unshare(CLONE_NEWNS | CLONE_FS) == 0 &&
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) {
      ran = true;
      work();
    }
  }}.join();
  return ran;
}

}  // namespace

TEST_CASE("image host: nothing secret, special or unreadable gets in", "[image]") {
  if (!root_here()) {
    return;
  }
  Made m;
  make(m, m.tmp / "root");
  REQUIRE(m.tree);
  const int root = m.root.get();
  std::string found;
  search(root, "", found);
  CHECK(found == "");
  CHECK(m.tree->usr.unreadable == 2);  // usr/bin/mine and usr/closed
  CHECK(m.tree->usr.special == 3);
  CHECK_FALSE(exists(root, "usr/closed"));
  CHECK_FALSE(exists(root, "lib"));
  CHECK(link_target(root, "bin") == "usr/bin");
}

TEST_CASE("image host: /usr shares inodes and keeps modes", "[image]") {
  if (!root_here()) {
    return;
  }
  Made m;
  make(m, m.tmp / "root");
  REQUIRE(m.tree);
  const int root = m.root.get();
  CHECK(look(root, "usr/bin/tool").st_ino == look(m.host.get(), "usr/bin/tool").st_ino);
  CHECK((look(root, "usr/bin/tool").st_mode & 07777) == 04755);
  CHECK(link_target(root, "usr/bin/alias") == "tool");
  CHECK(look(root, "usr/bin").st_mtime == look(m.host.get(), "usr/bin").st_mtime);
  CHECK(m.tree->usr.linked == 2);
  CHECK(m.tree->usr.copied == 0);
  // /etc is never linked: a sandbox's image must not change with the host's files
  CHECK(look(root, "etc/services").st_nlink == 1);
  CHECK(slurp(root, "etc/services") == "http 80/tcp\n");
}

TEST_CASE("image host: /etc holds what programs need and our own accounts", "[image]") {
  if (!root_here()) {
    return;
  }
  Made m;
  make(m, m.tmp / "root");
  REQUIRE(m.tree);
  const int root = m.root.get();
  CHECK(slurp(root, "etc/apt/sources.list") == "deb http://deb.example.org/debian a main\n");
  CHECK(slurp(root, "etc/apt/sources.list.d/two.sources") ==
        "Types: deb\nURIs: http://deb.example.org/debian\n");
  CHECK(exists(root, "etc/apt/apt.conf.d/keep"));
  CHECK_FALSE(exists(root, "etc/apt/apt.conf.d/proxy"));
  CHECK(exists(root, "etc/profile.d/lang.sh"));
  CHECK(exists(root, "etc/ssl/certs/ca.pem"));
  CHECK(link_target(root, "etc/alternatives/t") == "/usr/bin/tool");
  CHECK_THAT(slurp(root, "etc/passwd"),
             Catch::StartsWith("root:*:0:0:root:/root:/bin/bash\n") &&
                 Catch::Contains("\n_apt:*:42:65534:") && Catch::Contains("\nnobody:*:65534:") &&
                 Catch::EndsWith("\nuser:*:1000:1000:user:/home/user:/bin/bash\n"));
  CHECK_THAT(slurp(root, "etc/group"), Catch::Contains("\nuser:*:1000:\n"));
  CHECK_THAT(slurp(root, "etc/machine-id"), Catch::Matches("[0-9a-f]{32}\n"));
  CHECK_FALSE(exists(root, "etc/shadow"));
  CHECK(slurp(root, "var/lib/dpkg/status") == "Package: x\n");
  CHECK(slurp(root, "var/lib/dpkg/statoverride") == "root mail 2755 /usr/bin/m\n");
  CHECK_FALSE(exists(root, "var/lib/dpkg/lock"));
  CHECK((look(root, "root").st_mode & 07777) == 0700);
  CHECK(look(root, "home/user").st_uid == 1000);
  CHECK((look(root, "tmp").st_mode & 07777) == 01777);
  CHECK(look(root, "var/lib/apt/lists/partial").st_uid == 42);
  for (const char* point : {"dev", "proc", "sys", "workspace", "run", "opt", "srv"}) {
    CHECK(S_ISDIR(look(root, point).st_mode));
  }
}

TEST_CASE("image host: a link in the host's /etc carries no write out of the image", "[image]") {
  if (!root_here()) {
    return;
  }
  TempDir tmp;
  make_host(tmp / "host");
  make_dir(tmp / "canary");
  put(tmp / "canary/common-auth", "tweet");
  REQUIRE(symlink((tmp / "canary").c_str(), (tmp / "host/etc/pam.d").c_str()) == 0);
  make_dir(tmp / "root");
  const UniqueFd host{open((tmp / "host").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  const UniqueFd root{open((tmp / "root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  REQUIRE(image::make_host_tree(host.get(), root.get(), {}));
  CHECK(slurp(tmp / "canary/common-auth") == "tweet");
  CHECK(names(tmp / "canary").size() == 1);
}

TEST_CASE("image host: on another file system it is a copy, and says so", "[image]") {
  if (!root_here()) {
    return;
  }
  Made m;
  make_dir(m.tmp / "disk");
  bool mounted = false;
  std::string tool;
  std::string found;
  nlink_t links = 0;
  const bool ran = with_mounts([&] {
    mounted = mount("tmpfs", (m.tmp / "disk").c_str(), "tmpfs", 0, "size=16m") == 0;
    make(m, m.tmp / "disk/root");
    if (mounted && m.tree) {
      tool = slurp(m.root.get(), "usr/bin/tool");
      links = look(m.root.get(), "usr/bin/tool").st_nlink;
      search(m.root.get(), "", found);
      m.tree->usr.files += (look(m.root.get(), "usr/bin/tool").st_mode & 07777) == 04755 ? 0 : 99;
    }
    m.root.reset();
  });
  if (!ran) {
    WARN("SKIP: no private mount namespace");
    return;
  }
  REQUIRE(mounted);
  REQUIRE(m.tree);
  CHECK(tool == "tool");
  CHECK(links == 1);
  CHECK(found == "");
  CHECK(m.tree->usr.linked == 0);
  CHECK(m.tree->usr.copied == 2);
  CHECK(m.tree->usr.files == 2);
  CHECK(m.tree->usr.unreadable == 2);
}

TEST_CASE("image host: mounts beneath /usr are not crossed", "[image]") {
  if (!root_here()) {
    return;
  }
  TempDir tmp;
  make_host(tmp / "host");
  make_dir(tmp / "other");
  secret_file(tmp / "other/file");
  make_dir(tmp / "host/usr/local/mnt");
  put(tmp / "host/usr/local/plain", "beneath");
  make_dir(tmp / "root");
  Result<image::HostTree> tree;
  bool mounted = false;
  std::string found;
  const bool ran = with_mounts([&] {
    mounted = mount((tmp / "other").c_str(), (tmp / "host/usr/local/mnt").c_str(), nullptr, MS_BIND,
                    nullptr) == 0 &&
              mount((tmp / "other/file").c_str(), (tmp / "host/usr/local/plain").c_str(), nullptr,
                    MS_BIND, nullptr) == 0;
    const UniqueFd host{open((tmp / "host").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    const UniqueFd root{open((tmp / "root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    tree = image::make_host_tree(host.get(), root.get(), {});
    search(root.get(), "", found);
  });
  if (!ran) {
    WARN("SKIP: no private mount namespace");
    return;
  }
  REQUIRE(mounted);
  REQUIRE(tree);
  CHECK(found == "");
  CHECK(tree->usr.mounts == 2);
  CHECK(exists(tmp / "root/usr/local/mnt"));  // the empty mount point
  CHECK_FALSE(exists(tmp / "root/usr/local/plain"));
}

TEST_CASE("image host: the real one, made once by two makers at the same time", "[image]") {
  if (!root_here()) {
    return;
  }
  TempDir tmp;
  const auto begin = std::chrono::steady_clock::now();
  Result<ImageInfo> infos[2];
  std::uint64_t last_progress = 0;
  std::thread other{[&] {
    if (auto store = ImageStore::open(tmp / "data")) {
      infos[1] = store->ensure_host(false);
    }
  }};
  auto store = ImageStore::open(tmp / "data");
  if (store) {
    infos[0] =
        store->ensure_host(false, [&](std::uint64_t n, std::string_view) { last_progress = n; });
  }
  other.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  REQUIRE(infos[0]);
  REQUIRE(infos[1]);
  CHECK(infos[0]->generation == 1);
  CHECK(infos[1]->generation == 1);
  std::printf("image host: %llu files, %llu MiB in %.1f s\n",
              static_cast<unsigned long long>(infos[0]->files),
              static_cast<unsigned long long>(infos[0]->bytes >> 20), took.count());
  auto image = store->get("host");
  REQUIRE(image);
  const int root = image->root.get();
  for (const char* gone :
       {"etc/shadow", "etc/gshadow", "etc/sudoers", "etc/ssh", "etc/ssl/private",
        "etc/apt/auth.conf", "etc/pip.conf", "etc/npmrc", "root/.ssh", "var/lib/postgresql"}) {
    CHECK_FALSE(exists(root, gone));
  }
  CHECK(names(tmp / "data/images/host-1/root/home") == std::vector<std::string>{"user"});
  const struct stat python = look(AT_FDCWD, "/usr/bin/env");
  const struct stat data = look(AT_FDCWD, tmp / "data");
  const std::string manifest = slurp(tmp / "data/images/host-1/manifest.json");
  if (python.st_dev == data.st_dev) {
    CHECK(look(root, "usr/bin/env").st_ino == python.st_ino);
    CHECK_THAT(manifest, Catch::Contains("\"method\": \"hardlink\""));
  }
  CHECK(took.count() < 60);
}

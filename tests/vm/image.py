"""What the guest sees: an initrd (init, modules, the command) and a root disk (static busybox, the
test binaries with their libraries, the probe). Both are made as files by tools that need no root
and mount nothing."""

import os
import shutil
import stat
import subprocess

BUSYBOX = "/bin/busybox"
# Programs of a Debian host that tests of init name; ash ignores SIGQUIT, dash does not.
SHELL = "/bin/dash"
MKFS = "/usr/sbin/mkfs.ext4"  # talond's own: images of a size
DIRECTORIES = ["bin", "dev", "etc", "lib64", "proc", "root", "run", "sys", "tmp",
               "usr", "var", "vm"]


class Cpio:
    """An uncompressed "newc" archive (buffer-format.rst of the kernel's early-userspace)."""

    def __init__(self):
        self.parts = []
        self.number = 0

    def _add(self, name, mode, data=b""):
        self.number += 1
        encoded = name.encode() + b"\0"
        fields = [self.number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        self.parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]

    def directory(self, name):
        self._add(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o755):
        self._add(name, stat.S_IFREG | mode, data)

    def bytes(self):
        self._add("TRAILER!!!", 0)
        return b"".join(self.parts)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def make_initrd(path, init, kernel, command):
    cpio = Cpio()
    for name in ["proc", "sys", "dev", "newroot", "modules"]:
        cpio.directory(name)
    cpio.file("init", read(init))
    cpio.file("command", command.encode())
    for name in os.listdir(f"{kernel}/modules"):
        cpio.file(f"modules/{name}", read(f"{kernel}/modules/{name}"))
    with open(path, "wb") as file:
        file.write(cpio.bytes())


def libraries(binary):
    """Absolute paths of what the loader would load, and the loader itself."""
    shown = subprocess.run(["ldd", binary], text=True, capture_output=True)
    if shown.returncode != 0:  # "not a dynamic executable"
        return []
    words = [word for line in shown.stdout.splitlines() for word in line.split()]
    return [word for word in words if word.startswith("/")]


def place(root, source, target, strip=False):
    """A copy of `source` as the guest's `target` (absolute)."""
    to = root + target
    os.makedirs(os.path.dirname(to), exist_ok=True)
    if strip:
        subprocess.run(["strip", "--strip-debug", "-o", to, source], check=True)
    else:
        shutil.copy(source, to)


def fill(root, binaries, probe, suite, files):
    for name in DIRECTORIES:
        os.makedirs(f"{root}/{name}", exist_ok=True)
    os.chmod(f"{root}/tmp", 0o1777)
    place(root, BUSYBOX, BUSYBOX)
    shown = subprocess.run([BUSYBOX, "--list"], text=True, capture_output=True, check=True)
    for name in shown.stdout.split():
        if name not in ("busybox", "sh"):
            os.symlink("busybox", f"{root}/bin/{name}")
    with open(f"{root}/etc/passwd", "w") as file:
        file.write("root:x:0:0:root:/root:/bin/sh\n"
                   "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n")
    with open(f"{root}/etc/group", "w") as file:
        file.write("root:x:0:\ndaemon:x:1:\n")
    place(root, suite, "/vm/suite.sh")
    place(root, probe, probe)  # tests know it by the path of the build
    for file in files:
        place(root, file, "/vm/" + os.path.basename(file))
    programs = [(SHELL, "/bin/sh"), (MKFS, MKFS)]
    programs += [(binary, "/vm/" + os.path.basename(binary)) for binary in binaries]
    for binary, target in programs:
        place(root, binary, target, strip=True)
        for library in libraries(binary):
            if not os.path.exists(root + library):
                place(root, os.path.realpath(library), library)


def make_disk(path, root, size_mib):
    with open(path, "wb") as file:
        file.truncate(size_mib << 20)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal,^resize_inode,quota,project", "-m0",
                    "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0,quotatype=prjquota", "-d", root, path],
                   check=True, stdin=subprocess.DEVNULL,
                   env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})

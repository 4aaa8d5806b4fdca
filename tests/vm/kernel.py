"""Debian's kernel for the VM tier: downloaded as a package, unpacked, never installed.

prepare() leaves in <cache>/<package>/: `kernel` (an ELF that QEMU boots by its PVH note, which
saves the slow unpacking under emulation, or the bzImage where the payload's packing is unknown)
and `modules/`, uncompressed, with `order` naming them as they must be loaded."""

import lzma
import os
import shutil
import subprocess
import tempfile
import zlib

# Meta packages, so that an old point release that has left the archive is not asked for.
META = {"6.12": "linux-image-6.12-cloud-amd64", "6.1": "linux-image-cloud-amd64"}
# What the guest needs before its disk is there, and what nothing loads on demand without udev.
MODULES = ["virtio_pci", "virtio_console", "virtio_rng", "virtio_blk", "ext4", "overlay", "tun",
           "nfnetlink", "loop", "quota_v2"]


def run(argv, **options):
    return subprocess.run(argv, check=True, text=True, stdin=subprocess.DEVNULL, **options)


def package_of(version):
    """The package behind the meta package, e.g. linux-image-6.12.117+deb12-cloud-amd64."""
    for attempt in range(2):
        shown = subprocess.run(["apt-cache", "depends", META[version]], text=True,
                               capture_output=True, stdin=subprocess.DEVNULL)
        for line in shown.stdout.splitlines():
            words = line.split()
            if len(words) == 2 and words[0] == "Depends:" and words[1].startswith("linux-image-"):
                return words[1]
        if attempt == 0:
            run(["apt-get", "update", "-qq"])
    raise RuntimeError(f"no package source has {META[version]}")


def download(package, directory):
    argv = ["apt-get", "download", "-qq", package]
    # As root apt wants to drop to its own user, which may not enter the directory.
    if os.geteuid() == 0:
        argv[1:1] = ["-o", "APT::Sandbox::User=root"]
    try:
        run(argv, cwd=directory)
    except subprocess.CalledProcessError:
        run(["apt-get", "update", "-qq"])  # the lists were older than the archive
        run(argv, cwd=directory)
    found = [name for name in os.listdir(directory) if name.endswith(".deb")]
    return os.path.join(directory, found[0])


def payload(image):
    """The kernel ELF inside a bzImage (Documentation/arch/x86/boot.rst: setup_sects,
    payload_offset, payload_length), or None when it is packed in a way we do not know."""
    setup_sects = image[0x1F1] or 4
    start = (setup_sects + 1) * 512 + int.from_bytes(image[0x248:0x24C], "little")
    packed = image[start:start + int.from_bytes(image[0x24C:0x250], "little")]
    if packed.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(packed)
    if packed.startswith(b"\x28\xb5\x2f\xfd"):
        # The last four bytes are the length, not zstd's.
        return subprocess.run(["zstd", "-dcq"], input=packed[:-4], capture_output=True,
                              check=True).stdout
    return None


def copy_modules(tree, release, out):
    os.makedirs(out)
    if not os.path.isdir(f"{tree}/lib/modules"):
        raise RuntimeError("the kernel package holds no modules")
    run(["depmod", "-b", tree, release])
    shown = run(["modprobe", "-d", tree, "-S", release, "--show-depends", "-a", *MODULES],
                capture_output=True).stdout
    order = []
    for line in shown.splitlines():
        kind, _, path = line.partition(" ")
        path = path.split(" ")[0]
        if kind != "insmod" or not path:
            continue
        name = os.path.basename(path).removesuffix(".xz")
        if name not in order:
            with (lzma.open if path.endswith(".xz") else open)(path, "rb") as module:
                with open(f"{out}/{name}", "wb") as plain:
                    shutil.copyfileobj(module, plain)
            order.append(name)
    with open(f"{out}/order", "w") as file:
        file.write("".join(f"{name}\n" for name in order))


def prepare(version, cache):
    """Returns the directory. Made once per package; works offline when it is there."""
    package = package_of(version)
    # Another list of modules is another directory.
    done = os.path.join(cache, f"{package}-{zlib.crc32(' '.join(MODULES).encode()):08x}")
    if os.path.isdir(done):
        return done
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kernel.", dir=cache) as work:
        tree = f"{work}/tree"
        run(["dpkg-deb", "-x", download(package, work), tree])
        release = package.removeprefix("linux-image-")
        # Where /lib is a link to /usr/lib a package may use either name.
        if not os.path.isdir(f"{tree}/lib") and os.path.isdir(f"{tree}/usr/lib"):
            os.symlink("usr/lib", f"{tree}/lib")
        made = f"{work}/made"
        copy_modules(tree, release, f"{made}/modules")
        with open(f"{tree}/boot/vmlinuz-{release}", "rb") as file:
            image = file.read()
        with open(f"{made}/kernel", "wb") as file:
            file.write(payload(image) or image)
        os.rename(made, done)
    return done

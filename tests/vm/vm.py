#!/usr/bin/env python3
"""Runs a command on a kernel with all cgroup v2 controllers: Debian's, in QEMU, without KVM (one
virtual processor, because more than one can crash the guest under emulation). Called by `./dev vm`.

Exit status: the command's (128+N when signal N ended it); 124 when the time is over, 125 when the
machine itself failed, with the end of its console. Leaves no process, mount or file."""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # nothing is left in the tree
import image
import kernel

BINARIES = ["vm", "kernel", "security"]
CMDLINE = ("console=ttyS0 quiet loglevel=4 panic=-1 oops=panic reboot=t mitigations=off nokaslr "
           "cgroup_no_v1=all psi=1 random.trust_cpu=on rcupdate.rcu_expedited=1 tsc=reliable "
           "no_timer_check nowatchdog audit=0 cryptomgr.notests 8250.nr_uarts=1")


def say(text):
    print(f"\033[1m== {text}\033[0m", file=sys.stderr, flush=True)


def qemu_argv(options, work, kernel_file, out_fd):
    return [
        "setpriv", "--pdeathsig", "KILL",  # nothing outlives us, however we end
        "qemu-system-x86_64", "-M", "q35,vmport=off,hpet=off,usb=off,smbus=off,sata=off",
        "-accel", "tcg,thread=single,tb-size=512", "-cpu", "max", "-smp", "1",
        "-m", str(options.memory), "-nodefaults", "-no-user-config", "-display", "none",
        "-no-reboot", "-kernel", kernel_file, "-initrd", f"{work}/initrd", "-append", CMDLINE,
        "-chardev", f"file,id=con,path={work}/console", "-serial", "chardev:con",
        "-device", "virtio-serial-pci",
        # Not stdio: its port closes when stdin is at its end, and the guest's write blocks for
        # ever. append: QEMU cannot truncate a pipe.
        "-add-fd", f"fd={out_fd},set=9", "-chardev", "file,id=out,path=/dev/fdset/9,append=on",
        "-device", "virtserialport,chardev=out,name=out",
        "-chardev", f"file,id=rc,path={work}/rc", "-device", "virtserialport,chardev=rc,name=rc",
        "-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
        "-drive", f"file={work}/disk,format=raw,if=none,id=d0,cache=unsafe,discard=unmap",
        "-device", "virtio-blk-pci,drive=d0", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04",
    ]


def copy_out(fd):
    """The guest's output as it comes; ends when QEMU has ended."""
    with os.fdopen(fd, "rb", buffering=0) as source:
        while chunk := source.read(65536):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()


def facts_of(path):
    """`started=…` and `rc=…` as the guest's init wrote them."""
    try:
        with open(path) as file:
            return dict(line.strip().split("=", 1) for line in file if "=" in line)
    except OSError:
        return {}


def boot(options, work, kernel_file, deadline):
    """One life of the machine: (facts, whether the time was over)."""
    ours, theirs = os.pipe()
    late = False
    # A session of its own: an interrupt at the terminal is ours to pass on, once.
    qemu = subprocess.Popen(qemu_argv(options, work, kernel_file, theirs), pass_fds=[theirs],
                            stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)
    os.close(theirs)
    reader = threading.Thread(target=copy_out, args=[ours])
    reader.start()
    try:
        qemu.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        late = True
    finally:
        if qemu.poll() is None:
            qemu.kill()
            qemu.wait()
        reader.join()
    return facts_of(f"{work}/rc"), late


def run(options, work):
    begin = time.monotonic()
    kernel_dir = kernel.prepare(options.kernel, options.cache)
    tests = f"{options.build}/tests"
    root = f"{work}/root"
    here = os.path.dirname(os.path.abspath(__file__))
    image.fill(root, [f"{tests}/{name}/{name}_tests" for name in BINARIES],
               f"{tests}/probe/probe", f"{here}/suite.sh", options.file)
    image.make_disk(f"{work}/disk", root, 4096)
    shutil.rmtree(root)
    command = shlex.join(options.command) if options.command else "exec /vm/suite.sh"
    image.make_initrd(f"{work}/initrd", f"{tests}/vm/vm_init", kernel_dir, command)
    say(f"vm: {os.path.basename(kernel_dir)}, prepared in {time.monotonic() - begin:.1f} s")

    deadline = time.monotonic() + options.timeout
    facts, late = {}, False
    for _ in range(2):  # what never came up is tried once more; what started is not
        booted = time.monotonic()
        facts, late = boot(options, work, f"{kernel_dir}/kernel", deadline)
        if late or "started" in facts:
            break
    took = time.monotonic() - booted
    say(f"vm: boot {facts.get('started', '?')} s (guest), {took:.1f} s until it was off, "
        f"{time.monotonic() - begin:.1f} s in all")
    if late:
        print(f"vm: stopped after {options.timeout} s", file=sys.stderr)
    if "rc" not in facts or late:
        with open(f"{work}/console", errors="replace") as file:
            sys.stderr.write("".join(file.readlines()[-40:]))
    return 124 if late else int(facts.get("rc", 125))


def sweep(cache):
    """Directories of runs that were killed before they could remove them."""
    for name in os.listdir(cache):
        words = name.split(".")
        if words[0] == "run" and words[1].isdigit() and not os.path.exists("/proc/" + words[1]):
            shutil.rmtree(f"{cache}/{name}", ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(prog="./dev vm", description=__doc__.split("\n\n")[0])
    parser.add_argument("--kernel", choices=sorted(kernel.META), default="6.12")
    parser.add_argument("--memory", type=int, default=1536, metavar="MIB")
    parser.add_argument("--timeout", type=float, default=1800, metavar="SECONDS")
    parser.add_argument("--file", action="append", default=[], metavar="PATH",
                        help="also put into the guest's /vm (static programs, data)")
    parser.add_argument("--build", default="build/dev", help="where the test binaries are")
    parser.add_argument("--cache", default="build/vm", help="where kernels are kept")
    parser.add_argument("command", nargs=argparse.REMAINDER,
                        help="run by the guest's busybox sh (default: /vm/suite.sh, all labels)")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.cache = os.path.abspath(options.cache)
    if options.command[:1] == ["--"]:
        del options.command[0]
    # A SIGTERM must clean up as an interrupt does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.makedirs(options.cache, exist_ok=True)
    sweep(options.cache)
    try:
        with tempfile.TemporaryDirectory(prefix=f"run.{os.getpid()}.", dir=options.cache) as work:
            return run(options, work)
    except (RuntimeError, subprocess.CalledProcessError, OSError) as error:
        print(f"vm: {error}", file=sys.stderr)
        return 125
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

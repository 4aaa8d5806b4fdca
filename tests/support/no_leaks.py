#!/usr/bin/env python3
"""Runs a command and checks that the machine is as it was before.

    no_leaks.py -- COMMAND...

Compared: processes that the command left (this process is made their subreaper, so an orphan
cannot hide by double-forking), mounts, cgroups and network namespaces whose name has "talon",
entries of /run, /run/lock/talon, /run/netns and /tmp that begin with "talon". What goes away
within ten seconds counts as gone: a reaper may be at work. Exit code: the command's, or 1.
"""
import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 10.0


def names(path, prefix):
    try:
        return {f"{path}/{n}" for n in os.listdir(path) if n.startswith(prefix)}
    except OSError:
        return set()


def mounts():
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
        return {line.split(" - ")[0].split()[4] for line in f if "talon" in line}


def cgroup2_mount():
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            left, right = line.split(" - ", 1)
            if right.split()[0] == "cgroup2":
                return left.split()[4]
    return None


def cgroups():
    root = cgroup2_mount()
    found = set()
    for path, dirs, _ in os.walk(root) if root else ():
        found |= {os.path.join(path, d) for d in dirs if d.startswith("talon")}
    return found


def children():
    """pids whose ancestry leads to this process, with their command names."""
    parent, comm = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as f:
                stat = f.read()
        except OSError:
            continue
        head, tail = stat.rsplit(")", 1)
        comm[int(entry)] = head.split("(", 1)[1]
        parent[int(entry)] = int(tail.split()[1])
    me, mine = os.getpid(), set()
    for pid in parent:
        p = pid
        while p in parent and p not in (0, me):
            p = parent[p]
        if p == me and pid != me:
            mine.add(f"{pid} ({comm[pid]})")
    return mine


def snapshot():
    return {
        "mount": mounts(),
        "cgroup": cgroups(),
        "netns": names("/run/netns", "talon"),
        "file": names("/run", "talon") | names("/tmp", "talon-"),
        "process": set(),
    }


def reap():
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def leaked(before):
    reap()
    after = snapshot()
    after["process"] = children()
    return [f"{kind}: {x}" for kind in after for x in sorted(after[kind] - before[kind])]


def main():
    if len(sys.argv) < 3 or sys.argv[1] != "--":
        sys.exit(__doc__)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("no_leaks: prctl(PR_SET_CHILD_SUBREAPER) failed")
    before = snapshot()
    child = subprocess.Popen(sys.argv[2:])
    signal.signal(signal.SIGINT, lambda *_: child.send_signal(signal.SIGINT))
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    code = child.wait()
    until = time.monotonic() + GRACE_S
    left = leaked(before)
    while left and time.monotonic() < until:
        time.sleep(0.2)
        left = leaked(before)
    if left:
        print(f"no_leaks: {len(left)} left behind:", file=sys.stderr)
        for x in left:
            print(f"  {x}", file=sys.stderr)
        for x in left:  # ours by ancestry: end them, so that one fault does not spoil the next run
            if x.startswith("process: "):
                try:
                    os.kill(int(x.split()[1]), signal.SIGKILL)
                except OSError:
                    pass
        sys.exit(1)
    print("no_leaks: no process, mount, cgroup, network namespace or file was left", file=sys.stderr)
    sys.exit(code if code >= 0 else 128 - code)


main()

#!/usr/bin/env python3
"""Words that must not stand in lib/ and cmd/, each with its reason.

Usage: banned.py ROOT | --self-test
"""
import fnmatch
import os
import re
import sys

# (pattern, reason, files that may use it)
BANNED = [
    (r"\bdetached\b(?=\s*\))|asio::detached|asio/detached", "a detached coroutine drops its error: "
     "use TaskGroup", []),
    (r"\b(getaddrinfo|gethostbyname\w*|getpw(nam|uid)\w*|getgr(nam|gid)\w*|initgroups|getgrouplist)"
     r"\s*\(", "glibc's NSS may dlopen the host's libraries into a static binary (docs/adr/0003)",
     []),
    (r"\b(ip::tcp|tcp)::resolver\b|\basync_resolve\b", "names are resolved by our own client", []),
    (r"\bsetlocale\s*\(|std::locale\s*\(\s*\"\"\s*\)", "locale data comes from the host", []),
    (r"\b(system|popen)\s*\(", "no shell on the host", []),
    (r"\bdlopen\s*\(", "static binary", []),
    (r"\bTODO\b|\bFIXME\b|\bXXX\b", "what is not done is refused or left out", []),
    (r"\bthrow\b(?!\s*\(\s*\))", "errors are values", []),
    (r"(?<![\w.>])(::)?syscall\s*\(", "raw syscalls live in lib/isolate/kernel and init",
     ["lib/isolate/*"]),
    (r"\b(fork|vfork)\s*\(\s*\)", "only the spawner makes processes", ["lib/isolate/*", "cmd/*"]),
]

STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def code_of(line):
    """The line without string contents and without its // comment (TODO is looked for in both)."""
    line = STRING.sub('""', line)
    return line.split("//", 1)[0]


def faults_of(path, text):
    found, in_block = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if in_block:
            if "*/" in line:
                in_block = False
            continue
        if line.lstrip().startswith("/*") and "*/" not in line:
            in_block = True
            continue
        code = code_of(line)
        for pattern, reason, files in BANNED:
            subject = line if "TODO" in pattern or "detached" in pattern and "#include" in line else code
            if re.search(pattern, subject) and not any(fnmatch.fnmatch(path, f) for f in files):
                found.append(f"{path}:{number}: {line.strip()[:80]}  <- {reason}")
    return found


def check(root):
    faults = []
    for top in ("lib", "cmd"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for file in sorted(files):
                if file.endswith((".h", ".cpp")):
                    path = os.path.relpath(os.path.join(folder, file), root)
                    with open(os.path.join(root, path), encoding="utf-8") as f:
                        faults += faults_of(path, f.read())
    return faults


def self_test():
    bad = [
        ("lib/server/x.cpp", "  asio::co_spawn(ex, work(), asio::detached);"),
        ("lib/server/x.cpp", "  co_spawn(ex, work(), detached);"),
        ("lib/server/x.cpp", "#include <boost/asio/detached.hpp>"),
        ("lib/isolate/x.cpp", "  getpwnam(name);"),
        ("lib/server/x.cpp", "  if (::getaddrinfo(a, b, c, d)) {"),
        ("lib/server/x.cpp", "  syscall(SYS_clone3, 0);"),
        ("lib/store/x.cpp", "  // TODO later"),
        ("lib/base/x.cpp", "  throw std::runtime_error(x);"),
    ]
    good = [
        ("lib/isolate/kernel/x.cpp", "  syscall(SYS_clone3, 0);"),
        ("lib/server/x.cpp", "  // `detached` is banned"),
        ("lib/isolate/x.cpp", "  log(\"getpwnam(x)\");"),
        ("lib/isolate/x.h", "  bool detached_tree = false;"),
    ]
    return ([f"not found: {b}" for b in bad if not faults_of(*b)]
            + [f"wrongly found: {g}" for g in good if faults_of(*g)])


def main():
    faults = self_test() if sys.argv[1] == "--self-test" else check(sys.argv[1])
    print("\n".join(faults) if faults else "banned: clean")
    return 1 if faults else 0


sys.exit(main())

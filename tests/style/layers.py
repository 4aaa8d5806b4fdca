#!/usr/bin/env python3
"""Include rules of docs/ARCHITECTURE.md, "Layers": who may include whom, and which outside
library is known to which files. Usage: layers.py ROOT | --self-test
"""
import fnmatch
import os
import re
import sys

# Layer (longest matching prefix wins) -> layers it may include.
BASE = ["lib/base"]
ASYNC = BASE + ["lib/server/async"]
HTTP = ASYNC + ["lib/server/http"]
NODE = ASYNC + ["lib/server/node", "lib/isolate", "lib/store"]
EDGE = NODE + HTTP + ["lib/server/egress", "lib/server/preview", "lib/server/browser"]
ALLOWED = {
    "lib/base": BASE,
    # talon-init is freestanding: its own files, the wire formats, and named limits.
    "lib/isolate/init": ["lib/isolate/init", "lib/isolate/wire", "lib/base/limits.h"],
    "lib/isolate/wire": ["lib/isolate/wire"],
    "lib/isolate": BASE + ["lib/isolate"],
    "lib/store": BASE + ["lib/store"],
    "lib/server/async": ASYNC,
    "lib/server/http": HTTP,
    "lib/server/node": NODE,
    "lib/server/egress": EDGE,
    "lib/server/preview": EDGE,
    "lib/server/browser": EDGE,
    "lib/server/api": ["lib"],
    "cmd": ["lib", "cmd"],
}

# Outside library -> files that may include it. Compile time and replaceability depend on these.
OUTSIDE = {
    r"boost/beast": ["lib/server/http/*.cpp", "lib/server/http/*_impl.h",
                     "cmd/talond/client/http.cpp"],
    r"boost/asio/ssl": ["lib/server/http/*.cpp", "lib/server/http/*_impl.h",
                        "cmd/talond/client/http.cpp"],
    r"boost/asio": ["lib/server/*", "cmd/talond/*"],
    r"boost/json": ["lib/server/*", "cmd/talond/*"],
    r"boost/url": ["lib/server/http/*.cpp", "lib/server/api/*.cpp", "cmd/talond/*"],
    r"openssl": ["lib/server/*.cpp", "cmd/talond/*.cpp"],
    r"sqlite3\.h": ["lib/store/*"],
    r"seccomp\.h": ["lib/isolate/kernel/*", "lib/isolate/*.cpp"],
    r"archive(_entry)?\.h": ["lib/isolate/image/*.cpp"],
    r"CLI/": ["cmd/talond/*.cpp"],
    r"toml\+\+": ["cmd/talond/*.cpp"],
    r"fmt/format": ["*.cpp"],
}
# How many files may include what is dear to compile.
AT_MOST = {r"boost/beast": 3, r"CLI/": 1, r"toml\+\+": 1}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    best = ""
    for layer in ALLOWED:
        if path.startswith(layer + "/") and len(layer) > len(best):
            best = layer
    return best


def resolve(root, path, name):
    """The file in the tree that an include with quotes names, or None."""
    for base in ("lib", os.path.dirname(path), "cmd/talond", "cmd"):
        candidate = os.path.normpath(os.path.join(base, name))
        if os.path.exists(os.path.join(root, candidate)):
            return candidate
    return None


def within(target, places):
    return any(target == p or target.startswith(p + "/") for p in places)


def check_include(path, name, target):
    """The fault of one include, or None. `target`: the file in our tree, or None."""
    if target:
        layer = layer_of(path)
        if layer and not within(target, ALLOWED[layer]):
            return f"{path}: {layer} must not include {target}"
        return None
    for pattern, files in OUTSIDE.items():
        if re.match(pattern, name):
            if not any(fnmatch.fnmatch(path, f) for f in files):
                return f"{path}: <{name}> belongs to {', '.join(files)}"
            return None  # the first pattern that matches decides
    return None


def check(root):
    faults, users = [], {p: set() for p in AT_MOST}
    for top in ("lib", "cmd"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for file in files:
                if not file.endswith((".h", ".cpp")):
                    continue
                path = os.path.relpath(os.path.join(folder, file), root)
                with open(os.path.join(root, path), encoding="utf-8") as f:
                    for number, line in enumerate(f, 1):
                        m = INCLUDE.match(line)
                        if not m:
                            continue
                        name = m.group(2)
                        target = resolve(root, path, name) if m.group(1) == '"' else None
                        if m.group(1) == '"' and not target:
                            faults.append(f"{path}:{number}: \"{name}\" is not in the tree")
                            continue
                        fault = check_include(path, name, target)
                        if fault:
                            faults.append(fault.replace(path, f"{path}:{number}", 1))
                        if not target:
                            for pattern in AT_MOST:
                                if re.match(pattern, name):
                                    users[pattern].add(path)
    for pattern, limit in AT_MOST.items():
        if len(users[pattern]) > limit:
            faults.append(f"{pattern}: {len(users[pattern])} files include it, at most {limit}: "
                          + ", ".join(sorted(users[pattern])))
    return faults


def self_test():
    bad = [
        ("lib/base/log.cpp", "isolate/spec.h", "lib/isolate/spec.h"),
        ("lib/isolate/plan.cpp", "server/http/http.h", "lib/server/http/http.h"),
        ("lib/isolate/init/main.cpp", "base/error.h", "lib/base/error.h"),
        ("lib/isolate/wire/frames.h", "isolate/spec.h", "lib/isolate/spec.h"),
        ("lib/store/store.cpp", "isolate/spec.h", "lib/isolate/spec.h"),
        ("lib/server/http/server.cpp", "server/node/isolator.h", "lib/server/node/isolator.h"),
        ("lib/server/node/exec.cpp", "server/http/http.h", "lib/server/http/http.h"),
        ("lib/server/api/runs.cpp", "boost/beast/core.hpp", None),
        ("lib/server/node/exec.cpp", "sqlite3.h", None),
        ("lib/base/log.h", "fmt/format.h", None),
    ]
    good = [
        ("lib/isolate/plan.cpp", "base/error.h", "lib/base/error.h"),
        ("lib/server/api/runs.cpp", "server/http/http.h", "lib/server/http/http.h"),
        ("lib/server/http/any_http.cpp", "boost/beast/http.hpp", None),
        ("lib/isolate/init/main.cpp", "isolate/wire/frames.h", "lib/isolate/wire/frames.h"),
    ]
    return ([f"not found: {b}" for b in bad if not check_include(*b)]
            + [f"wrongly found: {g}" for g in good if check_include(*g)])


def main():
    faults = self_test() if sys.argv[1] == "--self-test" else check(sys.argv[1])
    print("\n".join(faults) if faults else "layers: clean")
    return 1 if faults else 0


sys.exit(main())

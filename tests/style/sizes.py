#!/usr/bin/env python3
"""No source file above 600 lines, main.cpp below 80. (Line length is clang-format's: ./dev lint.)"""
import os
import sys

LIMIT = 600
LIMITS = {"cmd/talond/main.cpp": 80}
SUFFIXES = (".h", ".cpp", ".S", ".py", ".sh", ".sql")


def main(root):
    faults = []
    for top in ("lib", "cmd", "tests", "third_party"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for file in files:
                if not file.endswith(SUFFIXES):
                    continue
                path = os.path.relpath(os.path.join(folder, file), root)
                with open(os.path.join(root, path), encoding="utf-8") as f:
                    lines = len(f.read().splitlines())
                limit = LIMITS.get(path, LIMIT)
                if lines > limit:
                    faults.append(f"{path}: {lines} lines, at most {limit}: probably two things")
    print("\n".join(faults) if faults else "sizes: clean")
    return 1 if faults else 0


sys.exit(main(sys.argv[1]))

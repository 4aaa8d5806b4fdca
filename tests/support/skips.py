#!/usr/bin/env python3
"""Prints what a ctest run skipped, with the reason each test gave.

    skips.py JUNIT_FILE LABEL[,LABEL...]

Fails when a test of a named label skipped: those labels depend on nothing that a host may lack.
The label of a test is the part of its name before the first dot.
"""
import re
import sys
import xml.etree.ElementTree as tree


def main():
    path, must_run = sys.argv[1], set(sys.argv[2].split(","))
    skipped = []
    for case in tree.parse(path).getroot().iter("testcase"):
        if case.get("status") != "notrun" and case.find("skipped") is None:
            continue
        text = case.findtext("system-out") or ""
        reason = re.search(r"SKIP:\s*(.*)", text)
        why = case.find("skipped")
        given = reason.group(1).strip() if reason else (why.get("message") if why is not None else "?")
        skipped.append((case.get("name"), given))
    print(f"skipped tests: {len(skipped)}")
    for name, reason in skipped:
        print(f"  {name}: {reason}")
    bad = [name for name, _ in skipped if name.split(".")[0] in must_run]
    if bad:
        print(f"these must run on every machine: {', '.join(bad)}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())

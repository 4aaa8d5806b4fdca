#!/usr/bin/env python3
"""Adds up what the cases of the security label printed: attacks and the columns they ran in.

    attacks.py JUNIT_FILE

Prints nothing when no such case ran.
"""
import re
import sys
import xml.etree.ElementTree as tree


def main():
    cases = runs = alone = 0
    left_out = []
    for case in tree.parse(sys.argv[1]).getroot().iter("testcase"):
        text = case.findtext("system-out") or ""
        columns = re.search(r"^  columns:(.*)$", text, re.M)
        if not columns:
            continue
        cases += 1
        names = columns.group(1).split()
        alone += names[:1] == ["none,"]
        runs += 0 if names[:1] == ["none,"] else len(names)
        left_out += [f"{case.get('name')}: without {line}" for line in re.findall(r"^  without (.*)$", text, re.M)]
    if cases:
        print(f"attacks on a sandbox: {cases}, {alone} of them without columns; attacks x columns: {runs}")
        for line in left_out:
            print(f"  {line}")
    return 0


sys.exit(main())

#!/usr/bin/env python3
"""Every row of the security checklist is an attack or is accounted for.

    security_rows.py ROOT | --self-test

A row is an id of the list below. Each must open a row of a table in docs/threat-model.md, and that
table row must name an attack of tests/security whose file begins with the id, or say why there is
none and what stands in. Every file of tests/security is named there, every file that is named
exists, and every attack on a sandbox runs in the columns of attack.h or says why it has none.
"""
import re
import sys
from pathlib import Path

ROWS = (
    [f"I{n}" for n in range(1, 11)]
    + [f"F{n}" for n in range(1, 11)]
    + [f"R{n}" for n in range(1, 16)]
    + [f"N{n}" for n in range(1, 11)]
    + [f"S{n}" for n in range(1, 14)]
    + [f"race {letter}" for letter in "abcdefg"]
    + ["FS", "D1", "D2"]
)
SUPPORT = {"attack", "tally"}


def table_rows(text):
    """(ids, rest of the line) of every table row whose first cell is a list of row ids."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        ids = [part.strip() for part in cells[0].split(",")]
        if line.startswith("|") and len(cells) > 1 and all(one in ROWS for one in ids):
            yield ids, " ".join(cells[1:])


def prefix(row):
    return row.lower().replace(" ", "_") + "_"


def problems(text, attacks, exists):
    """`attacks`: name -> source of each file of tests/security; `exists`: path -> bool."""
    found = []
    named = set()
    accounted = {row: False for row in ROWS}
    for ids, rest in table_rows(text):
        names = set(re.findall(r"`([a-z0-9_]+)`", rest))
        named |= names
        for name in names - set(attacks):
            found.append(f"{', '.join(ids)}: there is no attack {name}")
        for path in re.findall(r"`(tests/[^`]+)`", rest):
            if not exists(path):
                found.append(f"{', '.join(ids)}: there is no {path}")
        for row in ids:
            own = any(name.startswith(prefix(row)) for name in names)
            accounted[row] |= own or ("why:" in rest)
    found += [f"{row}: neither an attack nor a reason (`why:`)" for row, ok in accounted.items() if not ok]
    found += [f"tests/security/{name}: not in docs/threat-model.md" for name in sorted(set(attacks) - named)]
    for name, source in sorted(attacks.items()):
        if not re.search(r"\b(from_every_side|in_every_column|no_column|Daemon)\b", source):
            found.append(f"tests/security/{name}: runs in no column and does not say why")
    return found


def self_test():
    doc = "\n".join(f"| {row} | why: luck |" for row in ROWS if row not in ("I1", "F1"))
    doc += "\n| I1 | `i1_gone` |\n"
    attacks = {"f1_unlisted": "from_every_side(", "s1_silent": "lab.create()"}
    said = "\n".join(problems(doc, attacks, lambda path: False))
    for want in ("no attack i1_gone", "F1: neither", "f1_unlisted: not in", "s1_silent: runs in no"):
        assert want in said, (want, said)
    assert not problems(
        "\n".join(f"| {row} | why: luck |" for row in ROWS) + "\n| S1 | `s1_x` |",
        {"s1_x": "in_every_column("}, lambda path: True)
    print("security_rows: finds what is missing")


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return 0
    root = Path(sys.argv[1])
    attacks = {path.stem: path.read_text() for path in (root / "tests/security").rglob("*.cpp")
               if path.stem not in SUPPORT}
    found = problems((root / "docs/threat-model.md").read_text(), attacks,
                     lambda path: any(root.glob(path)) or any(root.glob(path + ".*")))
    for line in found:
        print(line)
    print(f"security_rows: {len(ROWS)} rows, {len(attacks)} files, {len(found)} problems")
    return 1 if found else 0


sys.exit(main())

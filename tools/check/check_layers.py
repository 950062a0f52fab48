#!/usr/bin/env python3
"""Holds every #include of the tree to the layer table in layers.txt.

Fails on an include of a folder that the table does not allow, on two folders that include each
other, on a third-party header outside its home, and on a source folder the table does not know.
"""

import argparse
import pathlib
import re
import sys
from dataclasses import dataclass, field

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
SOURCES = {".cpp", ".hpp", ".h", ".cu", ".cuh", ".cc"}


@dataclass
class Table:
    """The parsed layer table: allowed folders by folder, and homes by header prefix."""

    allowed: dict = field(default_factory=dict)
    homes: dict = field(default_factory=dict)


def read_table(path):
    table = Table()
    ranks = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] == "third-party":
            table.homes[words[1]] = words[2:]
            continue
        if len(words) < 3 or not words[0].isdigit():
            sys.exit(f"{path}:{number}: expected 'rank folder allowed...'")
        ranks[words[1]] = int(words[0])
        table.allowed[words[1]] = set() if words[2] == "-" else set(words[2:])
    for folder, allowed in table.allowed.items():
        if allowed == {"*"}:
            table.allowed[folder] = set(table.allowed)
        for other in allowed - {"*"}:
            if other not in ranks:
                sys.exit(f"{path}: {folder} may include unknown folder {other}")
            if ranks[other] >= ranks[folder]:
                sys.exit(f"{path}: {folder} (rank {ranks[folder]}) may not include {other}")
    return table


def includes_of(path):
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def at_home(where, homes):
    return any(where == home or where.startswith((home + "/", home + ".")) for home in homes)


def check(root, table):
    """Returns the list of problems, each 'file:line: sentence'."""
    problems = []
    edges = {}
    for path in sorted(p for p in root.rglob("*") if p.suffix in SOURCES):
        where = path.relative_to(root).as_posix()
        folder = where.split("/")[0]
        if folder in ("build", "models", "data") or folder.startswith("."):
            continue
        if folder not in table.allowed:
            problems.append(f"{where}:1: folder '{folder}' is not in the layer table")
            continue
        for number, header in includes_of(path):
            target = header.split("/")[0]
            if "/" in header and target in table.allowed:
                if target != folder:
                    edges.setdefault((folder, target), f"{where}:{number}")
                    if target not in table.allowed[folder]:
                        problems.append(f"{where}:{number}: {folder} may not include {header}")
                continue
            for prefix, homes in table.homes.items():
                if header.startswith(prefix) and not at_home(where, homes):
                    problems.append(
                        f"{where}:{number}: {header} belongs only in {' '.join(homes)}")
    for (folder, target), place in sorted(edges.items()):
        if folder < target and (target, folder) in edges:
            problems.append(f"{place}: {folder} and {target} include each other "
                            f"(see {edges[(target, folder)]})")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--root", type=pathlib.Path, default=here.parent.parent)
    parser.add_argument("--table", type=pathlib.Path, default=here / "layers.txt")
    options = parser.parse_args()
    problems = check(options.root, read_table(options.table))
    for problem in problems:
        print(problem)
    print(f"layer check: {len(problems)} problem{'' if len(problems) == 1 else 's'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

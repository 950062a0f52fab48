#!/usr/bin/env python3
"""Repository lint: length limits, leftover words, disabled tests, sleeps, absolute paths, README sizes.

What a reviewer would otherwise repeat. Prints 'file:line: sentence' for each finding; exits 1 if any.
"""

import pathlib
import re
import subprocess
import sys

FILE_LINES_MAX = 600
LINE_WIDTH_MAX = 120
README_LINES_MAX = 60
ARCHITECTURE_LINES_MAX = 250
FILE_BYTES_MAX = 1 << 20
CODE = (".cpp", ".hpp", ".h", ".cu", ".cuh", ".py", ".sh", ".capnp", ".cmake")

RULES = [
    (re.compile(r"\b(FIXME|XXX|HACK)\b|\bTODO\b(?!\((now|soon|perf|security|cleanup|test)\))"),
     "leftover mark", CODE),
    (re.compile(r"\bDISABLED_|GTEST_SKIP\("), "disabled test", (".cpp",)),
    (re.compile(r"sleep_for|\busleep\(|\bsleep\(\d"), "a sleep hides a race", (".cpp", ".hpp")),
    (re.compile(r"[\"'\s=(](/home|/root|/work|/Users)/"), "absolute path", CODE + (".md", ".json")),
    (re.compile(r"\[=\]"), "capture by name, not [=]", (".cpp", ".hpp")),
    (re.compile(r"using namespace (?!std::literals)"), "using namespace", (".hpp",)),
]


def tracked_files(root):
    names = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True,
                           capture_output=True).stdout.decode().split("\0")
    return [name for name in names if name and (root / name).is_file()]


def check_text(name, text):
    lines = text.splitlines()
    limit = README_LINES_MAX if name.endswith("/README.md") else None
    if name == "docs/ARCHITECTURE.md":
        limit = ARCHITECTURE_LINES_MAX
    if name.endswith(CODE):
        limit = FILE_LINES_MAX
    if limit and len(lines) > limit:
        yield f"{name}:{len(lines)}: {len(lines)} lines, at most {limit}"
    for number, line in enumerate(lines, 1):
        if name.endswith(CODE) and len(line) > LINE_WIDTH_MAX:
            yield f"{name}:{number}: {len(line)} columns, at most {LINE_WIDTH_MAX}"
        for pattern, sentence, suffixes in RULES:
            if name.endswith(suffixes) and pattern.search(line):
                yield f"{name}:{number}: {sentence}"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    problems = []
    for name in tracked_files(root):
        path = root / name
        if path.stat().st_size > FILE_BYTES_MAX:
            problems.append(f"{name}:1: {path.stat().st_size} bytes, at most {FILE_BYTES_MAX}")
        if name.startswith("tools/check/") or not name.endswith(CODE + (".md", ".json")):
            continue
        problems.extend(check_text(name, path.read_text(errors="replace")))
    for problem in problems:
        print(problem)
    print(f"tree check: {len(problems)} problem{'' if len(problems) == 1 else 's'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Fails if an object of one instruction set defines a symbol that the linker may share.

A weak copy of an inline function, compiled for AVX-512, could be the one that the whole program
calls. Usage: check_isa_symbols.py NM LIBRARY
"""
import re
import subprocess
import sys

nm, library = sys.argv[1:]
listing = subprocess.run([nm, "-C", library], capture_output=True, text=True, check=True).stdout
member, seen, shared = "", set(), []
for line in listing.splitlines():
    if line.endswith(".o:"):
        member = line[:-1]
    elif member.startswith("isa_"):
        seen.add(member)
        if re.match(r"^[0-9a-f]+ [WVu] ", line):
            shared.append(f"{member}: {line}")
print("\n".join(shared) or f"no shared symbols in {', '.join(sorted(seen))}")
sys.exit(bool(shared) or not seen)

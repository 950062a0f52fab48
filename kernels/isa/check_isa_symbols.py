#!/usr/bin/env python3
"""Fails if an object of one instruction set defines a symbol that the linker may share.

A weak copy of an inline function, compiled for AVX-512, could be the one that the whole program
calls. Usage: check_isa_symbols.py NM OBJECTS...
"""
import re
import subprocess
import sys

nm, *objects = sys.argv[1:]
shared = []
for path in objects:
    listing = subprocess.run([nm, "-C", path], capture_output=True, text=True, check=True).stdout
    shared += [f"{path}: {line}" for line in listing.splitlines() if re.match(r"^[0-9a-f]+ [WVu] ", line)]
print("\n".join(shared) or f"no shared symbols in {len(objects)} objects")
sys.exit(bool(shared) or not objects)

#!/usr/bin/env python3
"""Writes unicode_{classes,case}.cpp from Python's own Unicode data: templates see text as Python does.

Run it with Python 3.11 (Unicode 14) and clang-format the result."""

import pathlib


def ranges(holds):
    out, start = [], None
    for code in range(0x110001):
        surrogate = 0xD800 <= code <= 0xDFFF
        now = code < 0x110000 and not surrogate and holds(chr(code))
        if now and start is None:
            start = code
        if not now and start is not None:
            out.append(f"{{{start:#x}, {code - 1:#x}}}")
            start = None
    return out


def shifts(convert):
    """Runs {first, last, stride, shift} of characters that map to one, and the others."""
    single, several = {}, []
    for code in range(0x110000):
        if 0xD800 <= code <= 0xDFFF:
            continue
        to = convert(chr(code))
        if len(to) > 1:
            padded = [ord(c) for c in to] + [0] * (3 - len(to))
            several.append("{%#x, {%s}}" % (code, ", ".join(f"{c:#x}" for c in padded)))
        elif to != chr(code):
            single[code] = ord(to) - code
    codes, out, i = sorted(single), [], 0
    while i < len(codes):
        last, stride = i, 1
        for step in (1, 2):
            j = i
            while (j + 1 < len(codes) and codes[j + 1] == codes[j] + step
                   and single[codes[j + 1]] == single[codes[i]]):
                j += 1
            if j > last:
                last, stride = j, step
        out.append(f"{{{codes[i]:#x}, {codes[last]:#x}, {stride}, {single[codes[i]]}}}")
        i = last + 1
    return out, several


def table(kind, name, rows):
    return (f"constexpr {kind} {name}_rows[] = {{{', '.join(rows)}}};\n"
            f"const std::span<const {kind}> {name} = {name}_rows;\n\n")


def write(name, body):
    text = ("// Written by make_unicode.py: do not edit.\n"
            '#include "model/jinja/unicode.hpp"\n\nnamespace outrider::model::jinja {\n\n' + body
            + "}  // namespace outrider::model::jinja\n")
    pathlib.Path(__file__).with_name(name).write_text(text)


def main():
    classes = ""
    for name, holds in (("k_printable", str.isprintable), ("k_alpha", str.isalpha),
                        ("k_digit", str.isdigit),
                        ("k_cased", lambda c: c.islower() or c.isupper() or c.istitle())):
        classes += table("CodeRange", name, ranges(holds))
    write("unicode_classes.cpp", classes)
    cases = ""
    for name, convert in (("lower", str.lower), ("upper", str.upper), ("title", str.title)):
        single, several = shifts(convert)
        cases += table("CaseShift", f"k_{name}_shift", single)
        cases += table("CaseExpansion", f"k_{name}_expansion", several)
    write("unicode_case.cpp", cases)


main()

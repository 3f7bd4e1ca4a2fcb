#!/usr/bin/env python3
"""Writes src/base/text/decompositions.inc: the canonical decompositions of Unicode, from Python's unicodedata.

usage: make_decompositions.py >../../src/base/text/decompositions.inc

Each entry is a character and the one or two characters that it is made of. Hangul syllables are left out, since arithmetic
gives them, and so are the compatibility ideographs, which no file system decomposes.
"""
import unicodedata


def main():
    entries = []
    for code in range(0x110000):
        text = unicodedata.decomposition(chr(code))
        if not text or text.startswith("<") or 0xF900 <= code <= 0xFAFF or 0x2F800 <= code <= 0x2FA1F:
            continue
        parts = text.split() + ["0"]
        entries.append(f"{{0x{code:X}, 0x{int(parts[0], 16):X}, 0x{int(parts[1], 16):X}}},")
    print(f"// Written by tests/golden/make_decompositions.py, from Unicode {unicodedata.unidata_version}. No second part: 0.")
    print("// clang-format off")
    line = ""
    for entry in entries:
        if len(line) + len(entry) + 1 > 120:
            print(line)
            line = ""
        line += (" " if line else "") + entry
    print(line)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Puts the page and what it needs into one text, and that into a C source.

    embed.py OUTPUT PAGE STYLE LICENCE LIBRARY SCRIPT...

The placeholders @STYLE@, @LICENCE@, @LIBRARY@ and @SCRIPT@ of the page are replaced, the last by all
scripts one after the other; @DATA@ stays for the command.
"""
import sys

output, page, style, licence, library, *scripts = sys.argv[1:]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


text = read(page)
for word, *paths in (("@STYLE@", style), ("@LICENCE@", licence), ("@LIBRARY@", library), ("@SCRIPT@", *scripts)):
    before, found, after = text.partition(word)
    if not found or word in after:
        sys.exit("%s: expected one %s" % (page, word))
    part = "\n".join(map(read, paths))
    if "</script" in part.lower() or "</style" in part.lower() or "@DATA@" in part or (
            word == "@LICENCE@" and "*/" in part):
        sys.exit("%s: what ends a part of the page may not stand in it" % ", ".join(paths))
    text = before + part + after
if text.count("@DATA@") != 1:
    sys.exit("%s: expected one @DATA@" % page)
data = text.encode("utf-8") + b"\0"
with open(output, "w", encoding="ascii") as file:
    file.write("/* Made by tools/page/embed.py. */\n#include \"tools/page/html.h\"\n\nconst char html_template[] = {\n")
    for at in range(0, len(data), 24):
        file.write(",".join(str(b if b < 128 else b - 256) for b in data[at:at + 24]) + ",\n")
    file.write("};\n")

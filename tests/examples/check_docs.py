#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The code that README.md and docs/ show is the code of tools/examples/, line by line.

A fenced block of C or Python that follows `<!-- code: FILE -->` is the whole of FILE but its licence line; after
`<!-- code: FILE [PART] -->` it is what stands in FILE between the two comments `/* [PART] */`. A
block without a language after `<!-- file: FILE -->` is FILE but its licence line. A block after `<!-- output: EXAMPLE ARGUMENTS -->` is what that example prints; lines with a `$` in front are
not compared. Links to files of the project lead somewhere.

    check_docs.py SOURCE BUILD
    check_docs.py --write SOURCE    puts the code of the files into the documents
"""
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"<!-- code: (\S+)(?: \[(\w+)\])? -->\n+```(?:c|python)\n(.*?)```\n", re.DOTALL)
FILE = re.compile(r"<!-- file: (\S+) -->\n+```\n(.*?)```\n", re.DOTALL)
OUTPUT = re.compile(r"<!-- output: (\S+) (.*?) -->\n+```\n(.*?)```\n", re.DOTALL)
FENCED = re.compile(r"```.*?```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


def code_of(path, part):
    text = path.read_text(encoding="utf-8")
    if not part:
        return text.split("\n", 1)[1]
    pieces = text.split("/* [%s] */\n" % part)
    if len(pieces) != 3:
        sys.exit("%s: expected two comments /* [%s] */, found %d" % (path, part, len(pieces) - 1))
    return pieces[1]


def write(root):
    """Replaces the blocks of all documents by what the files hold."""
    def block(match):
        code = code_of(root / match.group(1), match.group(2)).strip("\n")
        before = match.start(3) - match.start()
        after = match.end(3) - match.start()
        return match.group(0)[:before] + code + "\n" + match.group(0)[after:]

    for document in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = document.read_text(encoding="utf-8")
        document.write_text(BLOCK.sub(block, text), encoding="utf-8")


def main():
    if sys.argv[1] == "--write":
        return write(pathlib.Path(sys.argv[2]))
    root = pathlib.Path(sys.argv[1])
    build = pathlib.Path(sys.argv[2])
    faults = []
    blocks = 0
    for document in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = document.read_text(encoding="utf-8")
        name = document.relative_to(root)
        for file, part, code in BLOCK.findall(text):
            blocks += 1
            if code.strip("\n") != code_of(root / file, part).strip("\n"):
                faults.append("%s: the block from %s [%s] is not what the file holds" %
                              (name, file, part))
        for file, shown in FILE.findall(text):
            if shown.strip("\n") != code_of(root / file, None).strip("\n"):
                faults.append("%s: the block from %s is not what the file holds" % (name, file))
        if text.count("<!-- file:") != len(FILE.findall(text)):
            faults.append("%s: a `file` comment is not followed by a block" % name)
        if text.count("<!-- code:") != len(BLOCK.findall(text)):
            faults.append("%s: a `code` comment is not followed by a block of C or Python" % name)
        for example, arguments, shown in OUTPUT.findall(text):
            program = build / "tools" / "examples" / ("example_" + example)
            printed = subprocess.run([program, *arguments.split()], check=True,
                                     stdout=subprocess.PIPE, text=True).stdout
            kept = [line for line in shown.splitlines() if not line.startswith("$")]
            if printed.splitlines() != kept:
                faults.append("%s: `%s %s` prints something else" % (name, example, arguments))
        for link in LINK.findall(FENCED.sub("", text)): # a lambda of C++ looks like a link
            if not (document.parent / link).exists():
                faults.append("%s: %s does not exist" % (name, link))
    if blocks == 0:
        faults.append("no code found in the documentation")
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What ptxas says of the kernels, and whether docs/kernels.md says the same.

    tests/gpu/registers.py BUILD [--write]

The build leaves a log for each source, in a folder that is called as the source's is. No kernel may
spill or have a stack, on any architecture. The table of the page is held to be equal where nvcc is of
the version that the page names; `--write` puts the table and that version there.
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = ["gpu/kernels", "tools/train/cuda"]
PAGE = os.path.join(ROOT, "docs", "kernels.md")
BEGIN, END = "<!-- table: tests/gpu/registers.py --write -->\n", "<!-- end of table -->\n"

ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
VERSION = re.compile(r"^nvcc V([0-9.]+)$", re.MULTILINE)

# What stands for a datatype, or for the width of one or of an index, at the end of a name.
VARIANT = re.compile(r"[iu]?(8|16|32|64)|b?f16|f32|f64")


class Kernel:
    """A kernel on one architecture."""

    def __init__(self, source, name, arch):
        self.source, self.name, self.arch = source, name, arch
        self.registers = self.shared = self.stack = None


def read(path):
    """The kernels of a log, and the version of nvcc."""
    kernels = []
    source = os.path.basename(path).removesuffix(".log")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for line in text.splitlines():
        entry, frame, used = ENTRY.search(line), FRAME.search(line), USED.search(line)
        if entry:
            kernels.append(Kernel(source, entry[1], int(entry[2])))
        elif frame and kernels:
            kernels[-1].stack = sum(map(int, frame.groups()))
        elif used and kernels:
            shared = SHARED.search(line)
            kernels[-1].registers = int(used[1])
            kernels[-1].shared = int(shared[1]) if shared else 0
    version = VERSION.search(text)
    return kernels, version[1] if version else "?"


def group(name):
    """The row of a kernel: datatypes and widths at the end are `*`; reductions keep the datatype,
    for that is what they differ by, and have `*` for the operation."""
    words = name.split("_")
    if words[1] == "reduce":
        kind = words[-1] if "f" in words[-1] else "int" + words[-1][1:]
        return "_".join(words[:2] + (["n"] if words[2] == "n" else []) + ["*", kind])
    while VARIANT.fullmatch(words[-1]):
        words.pop()
    stem = "_".join(words)
    return stem if stem == name else stem + "_*"


def table(kernels):
    archs = sorted({kernel.arch for kernel in kernels})
    rows = {}
    for kernel in kernels:
        rows.setdefault((kernel.source, group(kernel.name)), []).append(kernel)
    lines = ["| source | kernels | variants | " + " | ".join(f"sm_{arch}" for arch in archs) +
             " | shared memory | spills |", "| --- | --- |" + " ---: |" * (len(archs) + 3)]
    for (source, row), members in sorted(rows.items()):
        most = [max((k.registers for k in members if k.arch == arch), default=0) for arch in archs]
        lines.append(f"| `{source}.cu` | `{row}` | {len({k.name for k in members})} | "
                     f"{' | '.join(map(str, most))} | {max(k.shared for k in members)} | "
                     f"{sum(k.stack > 0 for k in members)} |")
    names = {kernel.name for kernel in kernels}
    lines.append(f"\n{len(names)} kernels for {len(archs)} architectures.")
    return "\n".join(lines) + "\n"


def page_parts():
    with open(PAGE, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    inside, after = rest.split(END)
    return before, inside, after


def text_of(kernels, version):
    return (f"By nvcc {version}. Registers are a thread's, the most of all variants; shared memory is a "
            f"block's, in bytes.\n\n{table(kernels)}")


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.exit(__doc__.strip())
    sources = sorted(os.path.relpath(path, ROOT)[:-3] for folder in FOLDERS
                     for path in glob.glob(os.path.join(ROOT, folder, "*.cu")))
    kernels, versions, faults = [], set(), []
    for source in sources:
        path = os.path.join(arguments[0], source + ".log")
        if not os.path.exists(path):
            faults.append(f"{source}.cu: not compiled")
            continue
        found, version = read(path)
        kernels += found
        versions.add(version)
    passed = len(sources) - len(faults)
    for kernel in kernels:
        if kernel.registers is None or kernel.stack != 0:
            faults.append(f"{kernel.name} on sm_{kernel.arch}: a stack, or spills")
    if not kernels or len(versions) != 1:
        faults.append(f"logs of nvcc {' and '.join(sorted(versions)) or '(none)'}")
    before, inside, after = page_parts()
    version = max(versions, default="?")
    if "--write" in sys.argv and not faults:
        inside = text_of(kernels, version)
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + inside + END + after)
    skipped = 0
    if not inside.startswith(f"By nvcc {version}. "):
        print(f"registers: the page is of another nvcc than {version}: only spills were looked at")
        skipped = 1
    elif inside != text_of(kernels, version):
        faults.append("docs/kernels.md: the table is not what ptxas says; registers.py --write")
    else:
        passed += 1
    for fault in faults:
        print(f"registers: {fault}", file=sys.stderr)
    print(f"{passed} passed, {len(faults)} failed, {skipped} skipped")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Plants wrong arrows, one after the other, in a copy of the sources and of a build's object files, and
looks whether check_layers.py names each. Prints TAP. The build is one of everything: tools and MPI.

    tests/test_check_layers.py BUILD
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import check_layers

# An #include is written into `file`; the fault must name `source` and `target`.
INCLUDES = [
    # file, header, source, target
    ("runtime/base/alloc.c", "runtime/graph/schedule.h", "runtime/base", "runtime/graph"),
    ("runtime/engine/engine.c", "runtime/context/context.h", "runtime/engine", "runtime/context"),
    ("runtime/trace/trace.h", "runtime/engine/engine.h", "runtime/trace", "runtime/engine"),
    ("runtime/context/run.c", "runtime/check/check.h", "runtime/context", "runtime/check"),
    ("runtime/transport/local/local.c", "runtime/transport/virtual/virtual.h",
     "runtime/transport/local", "runtime/transport/virtual"),
    ("runtime/transport/registry.c", "runtime/engine/transport.h", "runtime/transport",
     "runtime/engine"),
    ("ops/dispatch.c", "runtime/base/alloc.h", "ops", "runtime/base"),
    ("include/weft/types.h", "runtime/base/alloc.h", "include", "runtime/base"),
    ("schedules/barrier.c", "runtime/base/error.h", "schedules", "runtime/base"),
    ("schedules/common/build.c", "schedules/objects/model.h", "schedules/common",
     "schedules/objects"),
    ("schedules/objects/gossip/gossip.c", "schedules/common/template.h",
     "schedules/objects/gossip", "schedules/common"),
    ("tools/cli/table.c", "tools/commands/verify.h", "tools/cli", "tools/commands"),
    ("tools/page/html.c", "tools/train/model.h", "tools/page", "tools/train"),
    ("tools/bench/nodes.c", "runtime/plan/plan.h", "tools/bench", "runtime/plan"),
    ("gpu/kernels/scan.cuh", "runtime/base/alloc.h", "gpu/kernels", "runtime/base"),
    ("gpu/kernels/copy.cu", "schedules/merge/merge.h", "gpu/kernels", "schedules/merge"),
    ("tools/train/model.c", "tools/train/cuda/device.h", "tools/train", "tools/train/cuda"),
    ("tools/train/cuda/launch.c", "gpu/driver.h", "tools/train/cuda", "gpu"),
]

# A call of `symbol` is linked into the object file of `file`, with no header in between.
SYMBOLS = [
    # file, symbol, source, target
    ("runtime/base/error.c", "weft__op_hint", "runtime/base", "runtime/graph"),
    ("runtime/plan/fuse.c", "weft__engine_step", "runtime/plan", "runtime/engine"),
    ("runtime/engine/engine.c", "weft__drive_lock", "runtime/engine", "runtime/context"),
    # public functions are arrows among the rooms of the runtime
    ("runtime/graph/op.c", "weft_schedule_write", "runtime/graph", "runtime/format"),
    ("runtime/context/env.c", "weft_template_find", "runtime/context", "schedules/registry"),
    ("runtime/transport/registry.c", "weft__drive_lock", "runtime/transport", "runtime/context"),
    ("runtime/transport/local/local.c", "weft_transport_find", "runtime/transport/local",
     "runtime/transport"),
    ("ops/convert.c", "weft__malloc", "ops", "runtime/base"),
    # and elsewhere not, but what is our own is
    ("schedules/barrier.c", "weft__error", "schedules", "runtime/base"),
    ("schedules/common/build.c", "weft_gossip_create", "schedules/common",
     "schedules/objects/gossip"),
    ("schedules/objects/gossip/gossip.c", "weft__build_init", "schedules/objects/gossip",
     "schedules/common"),
    ("tools/cli/table.c", "weft_command_sim", "tools/cli", "tools/commands"),
    ("tools/page/plot.c", "model_create", "tools/page", "tools/train"),
    ("tools/commands/sim.c", "weft__plan_fuse", "tools/commands", "runtime/plan"),
]

# Words that do not belong into a file.
WORDS = [
    # file, line, what the fault says
    ("runtime/plan/plan.c", "void weft__allreduce_plan(void);", "no collective by name"),
    ("runtime/plan/plan.c", "void *more(void) { return malloc(1); }", "runtime/base/alloc.h"),
    ("schedules/barrier.c", "void *more(void) { return calloc(1, 1); }", "weft_memory_alloc()"),
    ("runtime/plan/plan.c", "int set(void) { return getenv(\"X\") != 0; }", "runtime/context/env.c"),
    ("schedules/common/build.c", "int go(void) { return pthread_create(0, 0, 0, 0); }",
     "start no threads"),
    ("runtime/context/env.c", "#include <mpi.h>", "<mpi.h> does not belong here"),
    ("runtime/context/env.c", "#include <hwloc.h>", "<hwloc.h> does not belong here"),
    ("tools/train/model.c", "#include <cuda.h>", "<cuda.h> does not belong here"),
    ("include/weft/types.h", "#include <stdio.h>", "must not include <stdio.h>"),
]


class Copy:
    """The sources, copied, and the object files of a build, linked to."""

    def __init__(self, root, build, folder):
        self.root = os.path.join(folder, "source")
        self.build = os.path.join(folder, "build")
        for top in ("include", "ops", "runtime", "schedules", "gpu", "tools", "tests/unit",
                    "tests/processes", "tests/mpi"):
            shutil.copytree(os.path.join(root, top), os.path.join(self.root, top),
                            ignore=shutil.ignore_patterns("data", "*.js"))
        for file in check_layers.find_objects(check_layers.Tree(root), build):
            to = os.path.join(self.build, os.path.relpath(file, build))
            os.makedirs(os.path.dirname(to), exist_ok=True)
            os.symlink(file, to)
        self.tree = check_layers.Tree(self.root)
        self.objects = check_layers.find_objects(self.tree, self.build)

    def check(self):
        return check_layers.check(self.root, self.build)

    def check_text(self):
        tree = check_layers.Tree(self.root)
        return [*check_layers.check_includes(tree), *check_layers.check_words(tree)]

    def check_symbols(self):
        return [*check_layers.check_symbols(self.tree, self.build)]

    def with_line(self, file, line):
        """The faults of the sources with a line more at the end of a file."""
        path = os.path.join(self.root, file)
        with open(path, encoding="utf-8") as stream:
            before = stream.read()
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        try:
            return self.check_text()
        finally:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(before)

    def with_call(self, file, symbol):
        """The faults of the objects with a call more in that of a file."""
        place = next(at for at, source in self.objects.items() if source == file)
        real = os.readlink(place)
        source, extra = place + ".extra.c", place + ".extra"
        with open(source, "w", encoding="utf-8") as stream:
            stream.write(f"extern char {symbol}[]; char *planted_call; "
                         f"void planted(void); void planted(void) {{ planted_call = {symbol}; }}\n")
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-c", "-o", extra, source], check=True)
        os.unlink(place)
        try:
            subprocess.run(["ld", "-r", "-o", place, real, extra], check=True)
            return self.check_symbols()
        finally:
            if os.path.exists(place):
                os.unlink(place)
            os.symlink(real, place)
            os.unlink(source)
            os.unlink(extra)


def documented(root):
    """{room of the runtime: rooms that docs/architecture.md lets it use}."""
    rows = {}
    with open(os.path.join(root, "docs/architecture.md"), encoding="utf-8") as stream:
        for line in stream:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) == 3 and re.fullmatch(r"`[a-z*/]+/`", cells[0]):
                used = {name.strip() for name in cells[2].split(",")} - {""}
                rows["runtime/" + cells[0].strip("`").rstrip("/")] = {
                    name if name == "ops" else "runtime/" + name for name in used}
    return rows


def compare_page(root):
    """None, or where the page and the table differ."""
    page = documented(root)
    table = {row[0]: set(row[1]) for row in check_layers.ROOMS if row[0].startswith("runtime/")}
    return "; ".join(f"{room}: the page says {sorted(page.get(room, ()))}, the table "
                     f"{sorted(table.get(room, ()))}"
                     for room in sorted(table)
                     if page.get(room) != table[room]) or None


def cases(copy, root):
    """(name, None or what is wrong) of each case."""
    yield "docs/architecture.md has the table", compare_page(root)
    clean = copy.check()
    yield "the tree as it is has no wrong arrow", "; ".join(clean) or None

    def named(faults, *words):
        if any(all(word in fault for word in words) for fault in faults):
            return None
        return f"expected a fault that names {', '.join(words)}; got: {'; '.join(faults) or 'none'}"

    for file, header, source, target in INCLUDES:
        faults = copy.with_line(file, f'#include "{header}"')
        yield f"include: {file} of {header}", named(
            faults, file, f"{source} must not include {target}", header)
    for file, symbol, source, target in SYMBOLS:
        faults = copy.with_call(file, symbol)
        yield f"symbol: {file} of {symbol}", named(
            faults, file, f"{source} must not call {target}", symbol)
    for file, line, what in WORDS:
        yield f"word: {file}: {line}", named(copy.with_line(file, line), file, what)

    allowed = copy.with_call("schedules/barrier.c", "weft_schedule_commit")
    yield "schedules may call what is public", "; ".join(allowed) or None
    allowed = copy.with_line("runtime/plan/plan.c", "/* malloc() of an allreduce, getenv() */")
    yield "comments may say anything", "; ".join(allowed) or None

    unlisted = os.path.join(copy.root, "runtime/base/forgotten.c")
    with open(unlisted, "w", encoding="utf-8"):
        pass
    yield "a file that meson.build does not list", named(
        copy.check(), "runtime/base/forgotten.c", "not listed in runtime/meson.build")
    os.unlink(unlisted)

    homeless = os.path.join(copy.root, "runtime/attic")
    os.mkdir(homeless)
    with open(os.path.join(homeless, "old.h"), "w", encoding="utf-8") as stream:
        stream.write("#include <stddef.h>\n")
    yield "a folder without a row", named(copy.check(), "runtime/attic/old.h", "in no room")
    shutil.rmtree(homeless)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    failed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, wrong in cases(Copy(root, os.path.abspath(sys.argv[1]), folder), root):
            count += 1
            failed += wrong is not None
            print(f"{'not ok' if wrong else 'ok'} {count} - {name}")
            if wrong:
                print(f"# {wrong}")
    print(f"1..{count}")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The arrows of the house go one way (docs/architecture.md): which room may use which, and a few rules
on what belongs where.

    tests/check_layers.py [BUILD]

Arrows are seen twice. An #include is an arrow from the file's room to the header's. A symbol that an
object file leaves undefined and another one defines is an arrow as well: without that, a declaration
written by hand would go round the table. Symbols need a build (of any features); without BUILD only
the sources are looked at.
"""
import functools
import os
import re
import subprocess
import sys

# ---- the table ----
#
# A room is a folder with all folders below it that have no row of their own; `*` stands for each
# folder at that place. A file uses its own room and those of its row, by include and by symbol.
# `calls`: rooms of which only the public functions may be called (those in include/), besides.
# A row names rooms above it only, so there are no circles.

BELOW = ["runtime/base", "runtime/graph"]
RUNTIME = ["ops", "runtime/*", "runtime/transport/*"]
TEMPLATES = ["schedules/common", "schedules", "schedules/registry"]
PLANNER = ["schedules/merge"]
LIBRARY = RUNTIME + TEMPLATES + PLANNER + ["schedules/blocking", "schedules/objects", "schedules/objects/*"]

ROOMS = [
    # room, uses, calls
    ("include", [], []),
    ("ops", [], []),
    ("runtime/base", [], []),
    ("runtime/graph", ["ops", "runtime/base"], []),
    ("runtime/sparse", ["ops"] + BELOW, []),
    ("runtime/compress/lapack", [], []),
    ("runtime/compress", ["ops"] + BELOW + ["runtime/compress/lapack"], []),
    ("runtime/format", BELOW + ["runtime/sparse", "runtime/compress"], []),
    ("runtime/cost", ["runtime/base"], []),
    ("runtime/check", BELOW, []),
    ("runtime/sim", BELOW + ["runtime/cost"], []),
    ("runtime/trace", BELOW, []),
    ("runtime/plan", BELOW, []),
    ("runtime/engine", ["ops"] + BELOW + ["runtime/plan"], []),
    ("runtime/device", BELOW + ["runtime/engine"], []),
    ("runtime/context", ["ops"] + BELOW + ["runtime/format", "runtime/cost", "runtime/trace",
                                           "runtime/plan", "runtime/engine", "runtime/device"], []),
    ("runtime/transport/shared", BELOW + ["runtime/cost", "runtime/plan", "runtime/engine",
                                          "runtime/context"], []),
    ("runtime/transport/local", BELOW + ["runtime/cost", "runtime/plan", "runtime/engine",
                                         "runtime/context", "runtime/transport/shared"], []),
    ("runtime/transport/mpi", BELOW + ["runtime/cost", "runtime/plan", "runtime/engine",
                                       "runtime/context", "runtime/transport/shared"], []),
    ("runtime/transport/*", BELOW + ["runtime/cost", "runtime/plan", "runtime/engine",
                                     "runtime/context"], []),
    ("runtime/transport", ["runtime/base", "runtime/cost", "runtime/transport/*"], []),
    ("schedules/common", [], RUNTIME),
    ("schedules", ["schedules/common"], RUNTIME),
    ("schedules/registry", ["schedules/common", "schedules"], RUNTIME),
    ("schedules/blocking", [], RUNTIME + TEMPLATES),
    ("schedules/merge", [], RUNTIME + TEMPLATES),
    ("schedules/objects", [], RUNTIME + TEMPLATES),
    ("schedules/objects/sparse_average", ["schedules/objects"], RUNTIME + TEMPLATES),
    ("schedules/objects/compressed_average", ["schedules/objects"], RUNTIME + TEMPLATES),
    ("schedules/objects/gradients", ["schedules/objects", "schedules/objects/sparse_average",
                                     "schedules/objects/compressed_average"],
     RUNTIME + TEMPLATES + PLANNER),
    ("schedules/objects/*", ["schedules/objects"], RUNTIME + TEMPLATES),
    ("tools/mpi", [], []),
    ("tools/pmpi", [], LIBRARY),
    ("tools/cli", ["tools/mpi"], LIBRARY),
    ("tools/page", ["tools/cli"], LIBRARY),
    ("tools/train", ["tools/cli", "tools/page"], LIBRARY),
    ("tools/bench", ["tools/cli", "tools/mpi", "tools/train"], LIBRARY),
    ("tools/commands", ["tools/cli", "tools/page", "tools/train", "tools/bench"], LIBRARY),
    ("tools/examples", [], LIBRARY),
    ("gpu/kernels", [], []),
    ("gpu", RUNTIME + ["gpu/kernels"], []),
    ("tools/train/cuda", ["tools/train", "gpu/kernels"], LIBRARY),
]

# Where object files lie in a build, and what their names begin from.
OBJECTS = [
    ("libweft.a.p", ""),
    ("libweft-mpi.a.p", ""),
    ("libweft-cuda.a.p", ""),
    ("libweft-lapack.so.0.p", ""),
    ("libweft-cuda*.p", ""),
    ("gpu/libweft-cuda*.p", "gpu/"),
    ("ops/libweft_ops*.a.p", "ops/"),
    ("tools/weft.p", "tools/"),
    ("tools/command-mpi.so.p", "tools/"),
    ("tools/pmpi/libweft-pmpi.so.p", "tools/pmpi/"),
    ("tools/train/cuda/libcommand-cuda.a.p", "tools/train/cuda/"),
    ("tools/libhtml_template.a.p", "tools/"),
    ("tools/examples/example_*.p", "tools/examples/"),
    ("tests/gpu/example_*.p", ""),
]
# Sources that the build makes, and where they would lie.
# A header that the build makes of NAME.h.in is looked at as that.
GENERATED = {"html_template.c": "tools/page/html_template.c"}

# ---- rules on single words: pattern, what to say, where, but not where ----

COLLECTIVES = "(allreduce|all_reduce|broadcast|bcast|reduce_scatter|allgather|all_gather|alltoall)"
ALLOCATE = r"\b(?:malloc|calloc|realloc|aligned_alloc|posix_memalign|strdup|strndup)\s*\("
WORDS = [
    (r"\b(?:weft_*)?%s[a-z_]*|\b(?:g?topk|wagma)[a-z_]*" % COLLECTIVES,
     "the runtime knows no collective by name", ["runtime/"], []),
    (ALLOCATE, "memory comes from runtime/base/alloc.h", ["ops/", "runtime/", "gpu/"],
     ["runtime/base/alloc.c"]),
    (ALLOCATE, "memory comes from weft_memory_alloc()", ["schedules/"], []),
    (r"\b(?:pthread_create|thrd_create)\s*\(", "templates and objects start no threads",
     ["ops/", "schedules/"], []),
    (r"\bgetenv\s*\(", "the environment is read in runtime/context/env.c",
     ["ops/", "runtime/", "schedules/", "gpu/"], ["runtime/context/env.c"]),
]

# Headers of the system that have their place: header, the only places in which it may be, among these.
PLACES = [
    ("mpi.h", ["include/weft/mpi.h", "runtime/transport/mpi/", "tools/mpi/", "tools/pmpi/"],
     ["include/", "ops/", "runtime/", "schedules/", "tools/"]),
    ("weft/mpi.h", ["tools/examples/", "tools/pmpi/"], ["tools/"]),
    ("cuda.h", ["include/weft/cuda.h", "gpu/", "tools/train/cuda/", "tools/examples/"],
     ["include/", "ops/", "runtime/", "schedules/", "gpu/kernels/", "tools/"]),
    ("nccl.h", ["include/weft/nccl.h", "gpu/"],
     ["include/", "ops/", "runtime/", "schedules/", "gpu/kernels/", "tools/"]),
    ("hwloc.h", ["runtime/base/topology"], ["include/", "ops/", "runtime/", "schedules/"]),
    ("pthread.h", [], ["ops/"]),
    ("threads.h", [], ["ops/"]),
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
# Comments, and texts and characters, which may look like one.
HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


@functools.cache
def matches(room, pattern):
    """Whether a row's name is this room: `*` is one folder."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]+"), room) is not None


@functools.cache
def row_of(room):
    return next((row for row in ROOMS if matches(room, row[0])), None)


def named(room, patterns):
    return any(matches(room, pattern) for pattern in patterns)


@functools.cache
def room_of(path):
    """The room of a file: the deepest of its folders that has a row. None: it is in no room."""
    folder = os.path.dirname(path)
    while folder:
        # A literal row goes before a row of any folder at its place.
        if any(folder == row[0] for row in ROOMS) or row_of(folder):
            return folder
        folder = os.path.dirname(folder)
    return None


def may_include(source, target):
    return source == target or target == "include" or named(target, row_of(source)[1])


def may_call(source, target, symbol):
    if source == target or named(target, row_of(source)[1]):
        return True
    return not symbol.startswith("weft__") and named(target, row_of(source)[2])


def circles():
    """Rows that name one which does not stand above them."""
    for at, (room, uses, calls) in enumerate(ROOMS):
        for used in uses + calls:
            if any(row[0] == used or matches(row[0], used) for row in ROOMS[at:]) or \
                    not any(row[0] == used or matches(row[0], used) for row in ROOMS[:at]):
                yield f"check_layers: the row of {room} names {used}, which is not above it"


class Tree:
    """The sources below a folder."""

    def __init__(self, root):
        self.root = root
        self.files = {}
        for top in ("include", "ops", "runtime", "schedules", "tools", "gpu"):
            for folder, _, names in os.walk(os.path.join(root, top)):
                for name in sorted(names):
                    if name.endswith((".c", ".h", ".h.in", ".cu", ".cuh")):
                        path = os.path.relpath(os.path.join(folder, name), root)
                        with open(os.path.join(root, path), encoding="utf-8") as file:
                            self.files[path] = file.read()

    def includes(self):
        """(file, line, header) of each #include, and the file that it is, if it is ours."""
        for path, text in self.files.items():
            for match in INCLUDE.finditer(text):
                header = match.group(1)
                line = text.count("\n", 0, match.start()) + 1
                yield path, line, header, self.find(path, header)

    def find(self, path, header):
        beside = os.path.normpath(os.path.join(os.path.dirname(path), header))
        for candidate in (beside, header, "include/" + header, "include/" + header + ".in"):
            if candidate in self.files:
                return candidate
        return None


def check_includes(tree):
    for path, line, header, found in tree.includes():
        place = f"{path}:{line}"
        source = room_of(path)
        if source is None:
            yield f"{path}: in no room of the table"
        elif found is not None:
            target = room_of(found)
            if target is not None and not may_include(source, target):
                yield f"{place}: {source} must not include {target} (\"{header}\")"
        elif path.startswith("include/") and header not in ("stddef.h", "stdint.h", "mpi.h", "cuda.h",
                                                                   "nccl.h"):
            yield f"{place}: a public header must not include <{header}>"
        for word, only, among in PLACES:
            if header == word and path.startswith(tuple(among)) and \
                    not path.startswith(tuple(only)):
                yield f"{place}: <{header}> does not belong here"


@functools.cache
def words_of(path, text):
    """What is wrong with the words of a file; kept, since test_check_layers.py changes one file at a time."""
    code = HIDDEN.sub(" ", text)
    faults = []
    for pattern, what, among, but in WORDS:
        if not path.startswith(tuple(among)) or path in but:
            continue
        found = sorted({match.group(0).strip() for match in re.finditer(pattern, code)})
        if found:
            faults.append(f"{path}: {what}: {' '.join(found)}")
    return faults


def check_words(tree):
    for path, text in tree.files.items():
        yield from words_of(path, text)


def check_listed(root):
    """A file that no meson.build lists would silently be left out."""
    for top in ("runtime", "schedules", "gpu", "tools", "tests/unit", "tests/processes",
                "tests/mpi"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            lists = folder
            while not os.path.exists(os.path.join(lists, "meson.build")):
                lists = os.path.dirname(lists)
            with open(os.path.join(lists, "meson.build"), encoding="utf-8") as file:
                text = file.read()
            for name in names:
                if not name.endswith((".c", ".cu")):
                    continue
                stem = name[:name.rindex(".")]
                short = stem.removeprefix("test_").removeprefix("mpi_")
                if not re.search(rf"'([a-z_/]*/)?({re.escape(stem)}|{re.escape(short)})(\.c)?'", text):
                    path = os.path.relpath(os.path.join(folder, name), root)
                    yield f"{path}: not listed in {os.path.relpath(lists, root)}/meson.build"


def find_objects(tree, build):
    """{object file: the source that it was made of}. Meson writes folders with underscores."""
    flat = {}
    for path in tree.files:
        flat.setdefault(path.replace("/", "_"), path)
    objects = {}
    for pattern, base in OBJECTS:
        head, name = os.path.split(pattern)
        folder = os.path.join(build, head)
        for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if not re.fullmatch(re.escape(name).replace(r"\*", ".*"), entry):
                continue
            for file in sorted(os.listdir(os.path.join(folder, entry))):
                if not file.endswith(".o"):
                    continue
                # A source of another folder: from the root.
                source = flat.get(base.replace("/", "_") + re.sub(r"^(\.\._)+", "", file[:-2]))
                for name_made, path in GENERATED.items():
                    if file.endswith(name_made + ".o"):
                        source = path
                if source is not None:
                    objects[os.path.join(folder, entry, file)] = source
    return objects


def read_symbols(objects):
    """What is defined where, and who needs what: {symbol: source}, {source: symbols}."""
    defined, needed = {}, {}
    if not objects:
        return defined, needed
    listing = subprocess.run(["nm", "-A", "-P", "-g", *objects], check=False, capture_output=True,
                             text=True)
    if listing.returncode != 0:
        sys.exit(f"check_layers: nm: {listing.stderr.strip()}")
    for line in listing.stdout.splitlines():
        file, rest = line.split(": ", 1)
        symbol, kind = rest.split()[:2]
        source = objects[file]
        if kind == "U":
            needed.setdefault(source, set()).add(symbol)
        elif symbol != "main" and not symbol.startswith("MPI_"):  # those stand in for MPI's
            defined.setdefault(symbol, source)
    return defined, needed


def check_symbols(tree, build):
    objects = find_objects(tree, build)
    built = set(objects.values())
    rooms = {room_of(path) for path in built}
    if "runtime/base" not in rooms:
        yield f"{build}: no object files: build first"
        return
    drivers = {path for path, _, header, _ in tree.includes() if header == "cuda.h"}
    for path in sorted(tree.files):
        # A room may be left out as a whole (no MPI, no tools), and what calls the driver, without gpu/.
        if path in drivers and "gpu" not in rooms:
            continue
        if path.endswith(".c") and room_of(path) in rooms and path not in built:
            yield f"{path}: not compiled in {build}: build first"
    defined, needed = read_symbols(objects)
    for source in sorted(needed):
        for symbol in sorted(needed[source]):
            target = defined.get(symbol)
            if target is None:
                continue
            here, there = room_of(source), room_of(target)
            if not may_call(here, there, symbol):
                yield f"{source}: {here} must not call {there}: {symbol} ({target})"


def check(root, build=None):
    """All faults of the sources below `root`, and of the object files of a build."""
    tree = Tree(root)
    faults = [*circles(), *check_includes(tree), *check_words(tree), *check_listed(root)]
    if build is not None:
        faults += check_symbols(tree, build)
    return faults


def main():
    if len(sys.argv) > 2 or (len(sys.argv) == 2 and sys.argv[1].startswith("-")):
        sys.exit(__doc__.strip())
    build = os.path.abspath(sys.argv[1]) if len(sys.argv) == 2 else None
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    faults = check(root, build)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        sys.exit(f"check_layers: {len(faults)} faults")
    seen = "includes and symbols" if build else "includes; give a build to see symbols as well"
    print(f"check_layers: all arrows go one way ({seen})")


if __name__ == "__main__":
    main()

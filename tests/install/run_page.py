#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Does what a page of the documentation says, as its reader would: in a home directory that is empty but
for a checkout of weft, `weft`, in one shell, from the first line to the last.

    run_page.py PAGE SOURCE [without mpi]

A block after `<!-- write: FILE -->` becomes FILE. Of a block after `<!-- run -->` each line that begins with
a `$` is a command, and what follows it what it prints: `...` stands for anything within a line, and alone for
any number of lines. A command about which nothing is said may print what it likes. After
`<!-- run: fails -->` the last command must fail, after `<!-- run: mpi -->` MPI must be there. Every block of
commands has one of them, or `<!-- not run: WHY -->`. Files of C are compiled with all warnings, too.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"(?:<!-- ([^>]*?) -->\n+)?```(\w*)\n(.*?)```\n", re.DOTALL)
NEEDED = ["cc", "c++", "cmake", "meson", "pkg-config"]


def pattern_of(expected):
    """What is printed must look like these lines."""
    lines = []
    for line in expected:
        if line == "...":
            lines.append(r"(?:.*\n)*")
        else:
            lines.append(".*".join(re.escape(part) for part in line.split("...")) + r"\n")
    return re.compile("".join(lines))


class Shell:
    """Commands one after the other; the folder and the variables stay."""

    def __init__(self, home):
        self.home = home
        self.state = home / ".state"
        self.state.write_text("", encoding="utf-8")
        self.folder = home
        self.environment = {
            name: value for name, value in os.environ.items()
            if name not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "DESTDIR", "CPATH", "LIBRARY_PATH") and
            (not name.startswith("WEFT_") or name == "WEFT_KERNEL_CACHE")}
        # What compilers keep, nvcc's too (gpu/kernels/compile.sh), is no part of what is tried.
        self.environment.setdefault("CCACHE_DIR", str(pathlib.Path.home() / ".cache" / "ccache"))
        self.environment.update(HOME=str(home), LC_ALL="C.UTF-8")

    def run(self, command):
        script = ('. "$1"; cd "$2"; %s\nstatus=$?; export -p >"$1"; pwd >"$1.folder"; exit $status' % command)
        done = subprocess.run(["bash", "-c", script, "bash", self.state, self.folder],
                              env=self.environment, cwd=self.home, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, timeout=900)
        self.folder = (self.home / ".state.folder").read_text(encoding="utf-8").strip()
        return done.returncode, done.stdout


def commands_of(block):
    """Pairs of a command and the lines that it prints."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
        else:
            sys.exit("a block begins with no command: %s" % line)
    return found


def run_block(shell, block, fails):
    commands = commands_of(block)
    for index, (command, expected) in enumerate(commands):
        status, printed = shell.run(command)
        must_fail = fails and index == len(commands) - 1
        if (status != 0) != must_fail:
            sys.exit("$ %s\n%s\nstatus %d, expected %s" %
                     (command, printed, status, "an error" if must_fail else "0"))
        if expected and not pattern_of(expected).fullmatch(printed):
            sys.exit("$ %s\n%s\nexpected:\n%s" % (command, printed, "\n".join(expected)))


def write(shell, path, language, text, have_mpi):
    """A file of the page; of programs the compiler has nothing to say."""
    path.write_text(text, encoding="utf-8")
    compiler = {"c": "cc -std=c11", "cpp": "c++ -std=c++17"}.get(language)
    if "<weft/mpi.h>" in text:
        compiler = "mpicc -std=c11" if have_mpi else None
    if compiler:
        status, printed = shell.run("%s -Wall -Wextra -Werror -fsyntax-only %s "
                                    "$(pkg-config --cflags weft)" % (compiler, path.name))
        if status:
            sys.exit("%s:\n%s" % (path.name, printed))


def copy_source(source, to):
    """What a checkout has; no folder that something was built in."""
    def left_out(folder, names):
        return [name for name in names
                if name == ".git" or (pathlib.Path(folder, name) / "build.ninja").exists()]
    shutil.copytree(source, to, ignore=left_out, symlinks=True)


def main():
    page, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    have_mpi = len(sys.argv) < 4
    lacking = [name for name in NEEDED if not shutil.which(name)]
    if lacking:
        print("skipped: %s is not here" % ", ".join(lacking))
        sys.exit(77)
    counts = {"run": 0, "write": 0}
    with tempfile.TemporaryDirectory() as name:
        home = pathlib.Path(name)
        copy_source(source, home / "weft")
        shell = Shell(home)
        for directive, language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            kind, _, rest = (word.strip() for word in directive.partition(":"))
            if kind == "write":
                write(shell, pathlib.Path(shell.folder, rest), language, block, have_mpi)
                counts["write"] += 1
            elif kind == "run":
                if rest != "mpi" or have_mpi:
                    run_block(shell, block, rest == "fails")
                counts["run"] += 1
            elif block.startswith("$ ") and kind != "not run":
                sys.exit("a block of commands says neither `run` nor `not run`:\n%s" % block)
    if 0 in counts.values():
        sys.exit("%s: no commands, or no files" % page)
    print("%s: %d files, %d blocks of commands" % (page.name, counts["write"], counts["run"]))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of MPI for tests in Python, and what they say: TAP."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SECONDS = 60
# MPI_Finalize of MPICH 4.0.2 may not return with TCP.
ALWAYS = {"UCX_TLS": "self,shm"}


class Job:
    """Ranks of a program under mpiexec. `parts`: (ranks, what their environment has)."""

    def __init__(self, mpiexec, parts, command, before=()):
        line = [mpiexec, *before]
        for number, (ranks, variables) in enumerate(parts):
            line += [":"] if number else []
            line += ["-n", str(ranks), "env"]
            line += [f"{name}={value}" for name, value in {**ALWAYS, **variables}.items()]
            line += [str(word) for word in command]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=subprocess.STDOUT)

    def said(self):
        """What it has written so far."""
        return os.pread(self.output.fileno(), 1 << 24, 0).decode(errors="replace")

    def end(self):
        """(exit status, output). A job that hangs is ended, and has no status."""
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            status = None
        self.output.seek(0)
        return status, self.output.read()


def wait_until(condition, seconds=SECONDS):
    """What the condition says in the end."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def pids(folder, ranks):
    """Those of `endless`, when all ranks have said them."""
    files = [pathlib.Path(folder) / f"pid.{rank}" for rank in range(ranks)]
    if not wait_until(lambda: all(file.exists() for file in files)):
        raise AssertionError("the program has not begun")
    return [int(file.read_text()) for file in files]


def run_cases(cases):
    """Each is called with a folder of its own; its docstring is its name. Exits."""
    failed = 0
    for number, case in enumerate(cases, 1):
        with tempfile.TemporaryDirectory(prefix="pmpi.") as folder:
            try:
                case(pathlib.Path(folder))
            except AssertionError as error:
                failed += 1
                print(f"not ok {number} - {case.__doc__}")
                print("# " + str(error).replace("\n", "\n# "))
            else:
                print(f"ok {number} - {case.__doc__}")
        sys.stdout.flush()
    print(f"1..{len(cases)}")
    sys.exit(failed > 0)

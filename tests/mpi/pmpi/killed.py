#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A rank is killed in the middle of collectives, and weft leaves nothing behind: killed.py MPIEXEC ENDLESS

Neither a process, nor a file, nor a segment of shared memory. What MPI leaves, and so is left with
WEFT_PMPI=never as well, does not count.
"""
import os
import pathlib
import re
import signal
import sys

sys.dont_write_bytecode = True
import jobs  # noqa: E402

mpiexec, endless = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
RANKS = 3
PLACES = ["/dev/shm", "/tmp", "/var/tmp"]


def processes(folder):
    """Those of a job, mpiexec among them: they have been told of the folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder) in words and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


def has_ended(pid):
    """Its memory has been taken from it, which comes after its command line."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def segments():
    with open("/proc/sysvipc/shm", encoding="ascii") as file:
        return {int(line.split()[1]) for line in list(file)[1:]}


def used_by(pid):
    """(files in memory or in the places above, segments) that a process has. Some have been unlinked."""
    files, shared = set(), set()
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/SYSV"):
            shared.add(int(words[4]))
        elif len(words) == 6:
            files.add(words[5])
    for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        files.add(os.readlink(path))
    return {file.removesuffix(" (deleted)") for file in files if file.startswith(tuple(PLACES))}, shared


def names():
    """What there is in these places that says whose it is."""
    return {str(path) for place in PLACES if os.path.isdir(place) for path in pathlib.Path(place).iterdir()
            if "weft" in path.name}


def kind(file):
    """Without what makes a name the only one of its kind."""
    return re.split(r"[.\-\d]|tmp", os.path.basename(file))[0]


def left(folder, victim, variables):
    """Kinds of what is left when a rank has been killed."""
    temporary = folder / "temporary"
    temporary.mkdir()
    before = names()
    job = jobs.Job(mpiexec, [(RANKS, {**variables, "TMPDIR": temporary})], [endless, folder])
    files, shared = set(), set()
    try:
        pids = jobs.pids(folder, RANKS)
        for pid in pids:
            its_files, its_segments = used_by(pid)
            files |= its_files
            shared |= its_segments
        os.kill(pids[victim], signal.SIGKILL)
    finally:
        status, output = job.end()
    assert status, f"exit status {status} (None: it hangs)\n{output}"
    assert jobs.wait_until(lambda: not processes(folder) and all(map(has_ended, pids)), 10), \
        f"processes {processes(folder)} are left"
    files = {file for file in files if os.path.exists(file) and not file.startswith(str(folder))}
    files |= names() - before
    files |= {str(path) for path in temporary.rglob("*")}
    return {kind(file) for file in files} | {"a segment" for segment in shared & segments()}


def killed(folder, **variables):
    for victim in range(RANKS):
        found = []
        for word in "never", "always":
            (folder / f"{word}.{victim}").mkdir()
            found.append(left(folder / f"{word}.{victim}", victim, {**variables, "WEFT_PMPI": word}))
        assert found[1] <= found[0], f"rank {victim} was killed: {found[1] - found[0]} is left"


def by_caller(folder):
    """a rank is killed: nothing is left"""
    killed(folder)


def by_helper(folder):
    """a rank that has a thread of weft's is killed: nothing is left"""
    killed(folder, WEFT_PROGRESS="helper")


def apart(folder):
    """a rank that sends by MPI is killed: nothing is left"""
    killed(folder, WEFT_HOSTS=",".join(map(str, range(RANKS))))


jobs.run_cases([by_caller, by_helper, apart])

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who has served a program, weft or MPI, and what the environment says of it: served.py MPIEXEC FOLDER

FOLDER has the programs of these tests. They pass as well when all that they call falls back; here it is
read what has.
"""
import collections
import json
import os
import pathlib
import signal
import sys

sys.dont_write_bytecode = True
import jobs  # noqa: E402

mpiexec, programs = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
KINDS = ["MPI_" + name for name in (
    "Allgather Allgatherv Allreduce Alltoall Alltoallv Alltoallw Barrier Bcast Exscan Gather Gatherv Reduce "
    "Reduce_scatter Reduce_scatter_block Scan Scatter Scatterv").split()]
RANKS = 3
# Sizes that ranks only know for themselves.
OWN_SIZES = ["MPI_Alltoallv", "MPI_Alltoallw", "MPI_Gatherv", "MPI_Scatterv"]
FASTER = "MPI is expected to be faster"
WORLD = "MPI_COMM_WORLD"


def program(name):
    return programs / f"test_pmpi_{name}"


def run(parts, *command):
    return jobs.Job(mpiexec, parts, command).end()


def passes(parts, *command):
    """The output of a program that has to pass."""
    status, output = run(parts, *command)
    assert status is not None, f"{command[0]} hangs\n{output}"
    assert status == 0, f"{command[0]}: exit status {status}\n{output}"
    return output


def rows_of(stats, ranks=RANKS):
    """The lines of each rank's file."""
    found = sorted(path.name for path in stats.parent.glob(stats.name + "*"))
    expected = [f"{stats.name}.{rank}" for rank in range(ranks)]
    assert found == expected, f"files of statistics: expected {expected}, found {found}"
    return [[json.loads(line) for line in open(f"{stats}.{rank}", encoding="utf-8")] for rank in range(ranks)]


def counts(rows, with_sizes):
    """(served, fallen back by reason) by communicator, call, form and size, where all ranks are in it."""
    sums = collections.defaultdict(lambda: (collections.Counter(), collections.Counter()))
    for row in rows:
        if row["ranks"] == RANKS:
            size = row["bytes"] if with_sizes and row["call"] not in OWN_SIZES else 0
            served, back = sums[row["communicator"], row["call"], row["form"], size]
            served["calls"] += row["served"]
            back.update(row["fallen_back"])
    return {key: (served["calls"], dict(back)) for key, (served, back) in sums.items()}


def same_on_all(ranks):
    first, *others = [counts(rows, True) for rows in ranks]
    for rank, other in enumerate(others, 1):
        differ = [f"{key}: rank 0 has {first.get(key)}, rank {rank} {other.get(key)}"
                  for key in sorted(first.keys() | other.keys()) if first.get(key) != other.get(key)]
        assert not differ, "\n".join(differ)


def all_served(folder, name, forms):
    stats = folder / "stats"
    passes([(RANKS, {"WEFT_PMPI": "always", "WEFT_PMPI_STATS": stats})], program(name))
    ranks = rows_of(stats)
    for rank, rows in enumerate(ranks):
        for row in rows:
            assert not row["fallen_back"], f"rank {rank}: {row}"
    same_on_all(ranks)
    found = counts(ranks[0], False)
    for form in forms:
        missing = [kind for kind in KINDS if found.get((WORLD, kind, form, 0), (0, {}))[0] == 0]
        assert not missing, f"not served, {form}: {missing}"


def blocking(folder):
    """all blocking collectives are weft's, on all ranks alike"""
    all_served(folder, "compare", ["blocking"])


def others(folder):
    """all non-blocking and persistent ones are, too"""
    all_served(folder, "nonblocking", ["non-blocking", "persistent"])


def large_counts(folder):
    """those with large counts are"""
    stats = folder / "stats"
    passes([(RANKS, {"WEFT_PMPI": "always", "WEFT_PMPI_STATS": stats})], program("large"))
    ranks = rows_of(stats)
    same_on_all(ranks)
    found = counts(ranks[0], False)
    for kind in KINDS:
        served, back = found.get((WORLD, kind, "blocking", 0), (0, {}))
        assert kind == "MPI_Barrier" or (served > 0 and not back), f"{kind}: {served} served, {back}"


# ---- WEFT_PMPI ----

def never(folder):
    """WEFT_PMPI=never: MPI's, and no statistics"""
    passes([(2, {"WEFT_PMPI": "never", "WEFT_PMPI_STATS": folder / "stats"})], program("endless"), folder, 80)
    rows_of(folder / "stats", 0)


def never_on_one(folder):
    """never on one rank: on none is it weft's"""
    stats = {"WEFT_PMPI_STATS": folder / "stats"}
    for at, parts in enumerate([
            [(1, {**stats, "WEFT_PMPI": "never"}), (RANKS - 1, {**stats, "WEFT_PMPI": "always"})],
            [(RANKS - 1, {**stats, "WEFT_PMPI": "always"}), (1, {**stats, "WEFT_PMPI": "never"})]]):
        output = passes(parts, program("endless"), folder, 40)
        assert "weft" not in output, f"part {at}: {output}"
        rows_of(folder / "stats", 0)


def wrong_word(folder):
    """a word that WEFT_PMPI does not have is said, and the rest goes on"""
    stats = folder / "stats"
    output = passes([(2, {"WEFT_PMPI": "sometimes", "WEFT_PMPI_STATS": stats})], program("endless"), folder, 40)
    assert "WEFT_PMPI is `sometimes`, expected always, auto or never" in output, output
    rows_of(stats, 2)


def silent(folder):
    """words that it has are not"""
    for word in "always", "auto", "never", "":
        output = passes([(2, {"WEFT_PMPI": word})], program("endless"), folder, 8)
        assert output == "", f"`{word}`: {output}"


# ---- tables ----

RULES = [
    {"call": "MPI_Allreduce", "form": "blocking", "ranks": 2, "from": 64, "below": 4096},
    {"call": "MPI_Scatterv", "form": "blocking", "ranks": 2, "from": 0, "below": 1},
    {"call": "MPI_Bcast", "form": "non-blocking", "ranks": 2, "from": 0, "below": -1},
    {"call": "MPI_Allgather", "form": "blocking", "ranks": RANKS + 1, "from": 0, "below": -1},
    {"call": "MPI_Gather", "form": "blocking", "ranks": 1, "from": 0, "below": -1},
]


def by_table(folder, name):
    """The rows of a program's run, each with whether a rule names it."""
    (folder / "table").write_text(json.dumps({"mpi": RULES}))
    stats = folder / "stats"
    table = {"WEFT_PMPI": "auto", "WEFT_PMPI_STATS": stats}
    # Rank 0's table is that of all ranks.
    output = passes([(1, {**table, "WEFT_PMPI_TABLE": folder / "table"}),
                     (RANKS - 1, {**table, "WEFT_PMPI_TABLE": folder / "none"})], program(name))
    assert output == "", output
    ranks = rows_of(stats)
    same_on_all(ranks)
    for row in sum(ranks, []):
        size = 0 if row["call"] == "MPI_Scatterv" else row["bytes"]
        yield row, any(rule["ranks"] == 2 and rule["call"] == row["call"] and rule["form"] == row["form"] and
                       rule["from"] <= size and (size < rule["below"] or rule["below"] == -1) for rule in RULES)


def follows(folder, name, named):
    seen = collections.Counter()
    for row, is_mpi in by_table(folder, name):
        back = row["fallen_back"]
        calls = row["served"] + sum(back.values())
        assert row["served"] == (0 if is_mpi else calls), f"a rule names it: {is_mpi}; {row}"
        assert not is_mpi or back == {FASTER: calls}, row
        seen[row["call"], row["form"], is_mpi] += calls
    for key in named:
        assert seen[key] > 0, f"{key} is not among what was called"


def table(folder):
    """what a table names is MPI's, by sizes and by numbers of ranks, and all else weft's"""
    follows(folder, "compare", [
        ("MPI_Allreduce", "blocking", True), ("MPI_Allreduce", "blocking", False),
        ("MPI_Scatterv", "blocking", True), ("MPI_Allgather", "blocking", False),
        ("MPI_Gather", "blocking", False), ("MPI_Bcast", "blocking", False)])


def table_of_others(folder):
    """so are non-blocking calls"""
    follows(folder, "nonblocking", [
        ("MPI_Bcast", "non-blocking", True), ("MPI_Bcast", "persistent", False),
        ("MPI_Allreduce", "non-blocking", False)])


BAD = {
    "none": None,
    "empty": "",
    "text": "{mpi: all}",
    "list": "[]",
    "object": '{"mpi": {}}',
    "call": '{"mpi": [{"call": "MPI_Send", "form": "blocking", "ranks": 2, "from": 0, "below": 1}]}',
    "form": '{"mpi": [{"call": "MPI_Bcast", "form": "fast", "ranks": 2, "from": 0, "below": 1}]}',
    "below": '{"mpi": [{"call": "MPI_Bcast", "form": "blocking", "ranks": 2, "from": 0, "below": -2}]}',
    "less": '{"mpi": [{"call": "MPI_Bcast", "form": "blocking", "ranks": 2}]}',
}


def bad_tables(folder):
    """a table that is none is named in one line, and the program goes on"""
    for name, text in BAD.items():
        path = folder / f"table.{name}"
        if text is not None:
            path.write_text(text)
        output = passes([(2, {"WEFT_PMPI_TABLE": path})], program("endless"), folder, 8)
        lines = output.splitlines()
        assert len(lines) == 1 and f"WEFT_PMPI_TABLE: {path}: " in lines[0], f"{name}: {output}"


def alone(folder):
    """on a communicator of one rank all calls are MPI's, unless weft is to do them"""
    for who in ("auto", "always"):
        stats = folder / who
        passes([(1, {"WEFT_PMPI": who, "WEFT_PMPI_STATS": stats})], program("endless"), folder, 40)
        rows = rows_of(stats, 1)[0]
        assert rows, "nothing was counted"
        for row in rows:
            calls = row["served"] + sum(row["fallen_back"].values())
            assert row["served"] == (0 if who == "auto" else calls), row
            assert who == "always" or row["fallen_back"] == {FASTER: calls}, row


def nobody_drives(folder):
    """what does not block is MPI's on several hosts, unless a thread may call MPI"""
    reason = "several hosts without MPI_THREAD_MULTIPLE, and it does not block"
    for helper in (False, True):
        stats = folder / f"stats.{helper}"
        more = {"WEFT_PROGRESS": "helper"} if helper else {}
        passes([(3, {"WEFT_PMPI": "always", "WEFT_PMPI_STATS": stats, "WEFT_HOSTS": "0,1,1", **more})],
               program("endless"), folder, 40)
        forms = collections.Counter()
        for row in sum(rows_of(stats, 3), []):
            calls = row["served"] + sum(row["fallen_back"].values())
            left = row["form"] != "blocking" and not helper
            assert row["served"] == (0 if left else calls), row
            assert not left or row["fallen_back"] == {reason: calls}, row
            forms[row["form"]] += calls
        assert all(forms[form] > 0 for form in ("blocking", "non-blocking", "persistent")), forms


# ---- the signal ----

def on_signal(folder):
    """SIGUSR2 has the statistics written while the program runs"""
    stats = folder / "stats"
    job = jobs.Job(mpiexec, [(2, {"WEFT_PMPI": "always", "WEFT_PMPI_STATS": stats})], [program("endless"), folder])
    written = [pathlib.Path(f"{stats}.{rank}") for rank in range(2)]
    try:
        pids = jobs.pids(folder, 2)
        assert not any(path.exists() for path in written), "written before it was asked for"
        for pid in pids:
            os.kill(pid, signal.SIGUSR2)
        assert jobs.wait_until(lambda: all(path.exists() and path.stat().st_size > 0 for path in written)), \
            "no statistics have been written"
        assert job.process.poll() is None, "the program has ended"
    finally:
        (folder / "stop").touch()
        status, output = job.end()
    assert status == 0, f"exit status {status}\n{output}"
    rows_of(stats, 2)


# ---- weft's own variables ----

def looked_at(folder):
    """WEFT_TRACE and WEFT_DUMP: traces of all ranks that weft trace reads, and graphs that it checks"""
    passes([(3, {"WEFT_PMPI": "always", "WEFT_TRACE": folder / "traces", "WEFT_DUMP": folder / "graphs"})],
           program("endless"), folder, 40)
    traces = sorted((folder / "traces").iterdir())
    assert len(traces) == 3, f"traces: {traces}"
    names = {event["name"] for path in traces for event in json.loads(path.read_text())["traceEvents"]
             if "name" in event}
    assert any("allreduce" in name for name in names), f"names in traces: {sorted(names)[:20]}"
    graphs = list((folder / "graphs").glob("allreduce*"))
    assert {path.name.split(".")[1].split("-")[0] for path in graphs} == {"0", "1", "2"}, f"graphs: {graphs}"


def stall(folder):
    """WEFT_STALL says which rank is missing when a program hangs in a collective"""
    late = folder / "late.1"
    late.touch()
    job = jobs.Job(mpiexec, [(3, {"WEFT_PMPI": "always", "WEFT_STALL": "0.2"})], [program("endless"), folder])
    try:
        said = jobs.wait_until(lambda: "from rank 1" in job.said())
        late.unlink()
        assert said, f"no report: {job.said()}"
    finally:
        (folder / "stop").touch()
        status, output = job.end()
    assert status == 0, f"exit status {status}\n{output}"


jobs.run_cases([blocking, others, large_counts, never, never_on_one, wrong_word, silent, table, table_of_others,
                bad_tables, alone, nobody_drives, on_signal, looked_at, stall])

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which collectives MPI does faster than weft, as a table for WEFT_PMPI_TABLE, by the OSU
micro-benchmarks.

    tools/scripts/pmpi_table.py OSU LIB [-n 2] [--rounds 5] [--only RE] [-o FILE]

OSU is a folder in which they have been built (tools/scripts/mpi_suites.py osu builds them), LIB is
libweft-pmpi.so. Each benchmark runs without LIB and with it (WEFT_PMPI=always), one after the other,
in several rounds; of a size the medians are compared. A call is MPI's from the first size to the last of
those in a row at which weft takes more than 5 % and 50 ns longer. Prints the ratios: bytes, the median
of MPI in microseconds, of weft, weft / MPI, and the least and the largest ratio of a round. On a
busy machine run it with a priority (chrt -r 5), and with no more ranks than processors then. With
--choice auto it shows what the tables that are built in are worth; --rewrite has the buffers written
anew, and checked, between iterations. Standard library alone.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

CALLS = ["Allgather", "Allgatherv", "Allreduce", "Alltoall", "Alltoallv", "Alltoallw", "Barrier", "Bcast",
         "Gather", "Gatherv", "Reduce", "Reduce_scatter", "Scatter", "Scatterv"]
FOLDERS = {"blocking": "c/mpi/collective/blocking/osu_", "non-blocking": "c/mpi/collective/non_blocking/osu_i"}
# Sizes that ranks only know for themselves: decided as a whole.
WHOLE = ["Alltoallv", "Alltoallw", "Barrier", "Gatherv", "Scatterv"]


def run(arguments, program, lib):
    """The latencies of a benchmark, by bytes."""
    preload = ["env", f"LD_PRELOAD={lib}", f"WEFT_PMPI={arguments.choice}"] if lib else []
    sizes = [] if program.endswith("barrier") else ["-m", f"4:{arguments.most}"]
    if arguments.rewrite and sizes:
        sizes.append("-c")
    said = subprocess.run([arguments.mpiexec, "-n", str(arguments.ranks), *preload, program, *sizes,
                           "-i", str(arguments.iterations), "-x", str(arguments.iterations // 5 + 1)],
                          capture_output=True, text=True, check=True).stdout
    times = {}
    for line in said.splitlines():
        numbers = re.findall(r"[\d.]+", line)
        if line.startswith("#") or not numbers:
            continue
        if program.endswith("barrier"):
            times[0] = float(numbers[0])
        elif len(numbers) > 1:
            times[int(numbers[0])] = float(numbers[1])
    return times


def measure(arguments, program):
    """Of each size: medians of MPI and weft, and the ratios of the rounds."""
    rounds = [(run(arguments, program, None), run(arguments, program, arguments.lib))
              for _ in range(arguments.rounds)]
    found = {}
    for size in rounds[0][0]:
        pairs = [(mpi[size], weft[size]) for mpi, weft in rounds if size in mpi and size in weft]
        ratios = sorted(weft / mpi for mpi, weft in pairs if mpi > 0)
        found[size] = (statistics.median(mpi for mpi, _ in pairs),
                       statistics.median(weft for _, weft in pairs), ratios)
    return found


def is_slower(mpi, weft):
    return weft > mpi + max(0.05 * mpi, 0.05)


def rules(arguments, call, form, found):
    """Of sizes in a row at which MPI is faster, the first, and what comes behind the last."""
    slower = [size for size, (mpi, weft, _) in found.items() if is_slower(mpi, weft)]
    base = {"call": f"MPI_{call}", "form": form, "ranks": arguments.ranks}
    if call in WHOLE:
        return [dict(base, **{"from": 0, "below": -1})] if 2 * len(slower) > len(found) else []
    made, sizes, begun = [], list(found), None
    for i, size in enumerate(sizes):
        if size in slower and begun is None:
            begun = 0 if i == 0 else size
        if begun is not None and (size not in slower or i + 1 == len(sizes)):
            made.append(dict(base, **{"from": begun, "below": -1 if size in slower else size}))
            begun = None
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("osu")
    parser.add_argument("lib")
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--most", type=int, default=4194304, metavar="BYTES")
    parser.add_argument("--only", default=".", metavar="RE", help="calls, such as Bcast")
    parser.add_argument("--choice", choices=["always", "auto"], default="always")
    parser.add_argument("--rewrite", action="store_true")
    parser.add_argument("--form", choices=FOLDERS, help="default: both")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("-o", "--output", metavar="FILE")
    arguments = parser.parse_args()
    arguments.lib = os.path.abspath(arguments.lib)
    made = []
    for form, folder in FOLDERS.items():
        for call in CALLS:
            program = os.path.join(arguments.osu, folder + call.lower())
            if arguments.form not in (None, form) or not re.search(arguments.only, call) or \
                    not os.path.exists(program):
                continue
            found = measure(arguments, program)
            made += rules(arguments, call, form, found)
            print(f"{call}, {form}")
            for size, (mpi, weft, ratios) in found.items():
                print(f"{size:10} {mpi:10.2f} {weft:10.2f} {weft / mpi:6.2f}   "
                      f"{ratios[0]:.2f} {ratios[-1]:.2f}{'   MPI' if is_slower(mpi, weft) else ''}",
                      flush=True)
    text = '{"mpi": [\n' + ",\n".join("  " + json.dumps(rule) for rule in made) + "]}\n"
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

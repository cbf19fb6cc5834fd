#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Pushes to one server over links with short queues: what incast costs, and what turns and pacing save.

    sudo tools/scripts/incast_times.py [--workers N] [--rates R,..] [--queues Q,..] [--bytes B,..] [--rounds N]

Runs `weft run server-step` with MPI over network namespaces (limited_link.sh), the ways of pushing in turns, and prints
a table of docs/servers.md: milliseconds of a step, the median of all rounds' medians, in brackets the fastest and the
slowest step; and for a step, TCP's segments that were sent again and its timeouts, on all ranks together.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WAYS = {
    "all": ["--algo", "all"],
    "turns": ["--algo", "turns"],
    "paced": ["--algo", "paced"],
}


def numbers(text):
    return [int(word) for word in text.split(",")]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=os.path.join(HERE, "../../build/tools/weft"))
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rates", default="1gbit,100mbit")
    parser.add_argument("--queues", default="2mb,64kb,32kb")
    parser.add_argument("--bytes", type=numbers, default=numbers("65536,262144,1048576,4194304"))
    parser.add_argument("--segment", default="16k", help="of all and turns")
    parser.add_argument("--paced-segment", default="4k")
    parser.add_argument("--tcp", help="congestion control, as reno or bbr (default: this machine's)")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def run(opts, rate, queue, size, way):
    """A run: its times in milliseconds, and what TCP sent again and waited for in a step."""
    segment = opts.paced_segment if way == "paced" else opts.segment
    command = [os.path.join(HERE, "limited_link.sh"), "--weft", opts.weft, "--rates", rate, "--queue", queue,
               "--ranks", str(opts.workers + 1), "--", opts.weft, "run", "server-step", *WAYS[way], "--transport",
               "mpi", "--count", str(size // 4), "--segment", segment, "--iterations", str(opts.iterations), "--json"]
    if opts.tcp:
        command[1:1] = ["--tcp", opts.tcp]
    out = subprocess.run(["bash", *command], capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(command)}\n{out.stdout}{out.stderr}")
    times = json.loads(next(line for line in out.stdout.splitlines() if line.startswith("{")))
    counters = [[int(n) for n in found] for found in
                re.findall(r"(\d+) segments again, (\d+) timeouts", out.stdout)]
    steps = opts.iterations + 1  # one before the first that is timed
    again, timeouts = (sum(column) / steps for column in zip(*counters))
    return [times[name] / 1e3 for name in ("median_us", "min_us", "max_us")], again, timeouts


def cell(runs):
    times, again, timeouts = zip(*runs)
    medians, least, most = zip(*times)
    return (f"{statistics.median(medians):.0f} ({min(least):.0f} to {max(most):.0f}); "
            f"{statistics.mean(again):.0f}, {statistics.mean(timeouts):.1f}")


def main():
    opts = options()
    ways = opts.ways.split(",")
    print("| link | queue | a push | " + " | ".join(f"`{way}`" for way in ways) + " |")
    print("| --- | ---: | ---: |" + " ---: |" * len(ways), flush=True)
    for rate in opts.rates.split(","):
        for queue in opts.queues.split(","):
            for size in opts.bytes:
                runs = {way: [] for way in ways}
                for _ in range(opts.rounds):
                    for way in ways:
                        runs[way].append(run(opts, rate, queue, size, way))
                print(f"| {rate} | {queue} | {size // 1024} KiB | " +
                      " | ".join(cell(runs[way]) for way in ways) + " |", flush=True)


if __name__ == "__main__":
    main()

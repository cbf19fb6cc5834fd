#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training through a parameter server over limited links: the comparison of OSP's section 5, measured.

    sudo tools/scripts/server_trainings.py --save ROWS.jsonl [--rates R,..] [--seeds N] [--steps N] [--plots DIR]
    sudo tools/scripts/server_trainings.py --save ROWS.jsonl --growth [--rates R,..]
    sudo tools/scripts/server_trainings.py --save ROWS.jsonl --co-located [--rates R,..]
    tools/scripts/server_trainings.py --tables ROWS.jsonl

The first trains with each algorithm over network namespaces (limited_link.sh), workers and a server, a rank each, seed
after seed, without stragglers and with them (--imbalance), all algorithms in turns. The second is the share of
communication in a step of BSP as workers become more (its figure 3), the third what a server costs the worker that it
is co-located with (its section 5.4). All append what `weft train --json` says to ROWS.jsonl, which
--tables makes the tables of docs/servers.md of: medians, in brackets the least and the largest. With --virtual all but
the third run in virtual time, on links that are as fast and cost no processor.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ALGORITHMS = "bsp,asp,ssp,r2sp,osp,merged"
GROWTH = 1, 2, 4, 8
SLACK = 0.005  # of BSP's best accuracy: that much less counts as reached


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=os.path.join(HERE, "../../build/tools/weft"))
    parser.add_argument("--rates", default="1gbit")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--algorithms", default=ALGORITHMS)
    parser.add_argument("--together", type=int, default=99, help="algorithms in one command")
    parser.add_argument("--model", default="resnet")
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--compute", type=float, default=60, help="milliseconds of a step, without communication")
    parser.add_argument("--imbalance", default="none,two-random:60", help="stragglers, a table each")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--before", default="", help="words before each command, as 'nice -n -10'")
    parser.add_argument("--plots", help="a folder for plots of the first seed")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--co-located", action="store_true")
    parser.add_argument("--save", metavar="ROWS.jsonl")
    parser.add_argument("--tables", metavar="ROWS.jsonl")
    return parser.parse_args()


# ---- measuring ----

def bits_of(rate):
    number, unit = re.fullmatch(r"([\d.]+)([gmk])bit", rate).groups()
    return float(number) * {"g": 1e9, "m": 1e6, "k": 1e3}[unit]


def train(opts, rate, workers, algorithms, imbalance, seed, steps, *more, servers=1):
    """Rows of trainings; servers: ranks on top of the workers."""
    weft = os.path.abspath(opts.weft)
    words = ["train", "--json", "--algorithm", algorithms, "--model", opts.model, "--batch", str(opts.batch), "--lr",
             str(opts.lr), "--compute", str(opts.compute), "--imbalance", imbalance, "--seed", str(seed), "--steps",
             str(steps), *more]
    if opts.model != "mlp":
        words += ["--channels", str(opts.channels)]
    if opts.virtual:
        command = [weft, *words, "-n", str(workers), "--transport", "virtual", "--net",
                   f"L=50,G={8e6 / bits_of(rate):.6g},offload=1"]
    else:
        rank = [weft, *words, "--transport", "mpi"]
        command = [os.path.join(HERE, "limited_link.sh"), "--weft", weft, "--rates", rate, "--ranks",
                   str(workers + servers), "--", *rank]
    out = subprocess.run(opts.before.split() + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(command)}\n{out.stdout[-2000:]}{out.stderr[-2000:]}")
    rows = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    return rows


def save(opts, rows, **more):
    with open(opts.save, "a", encoding="utf-8") as file:
        for row in rows:
            row.pop("consensus", None)
            file.write(json.dumps({**row, "virtual": opts.virtual, **more}) + "\n")


def compare(opts):
    algorithms = opts.algorithms.split(",")
    for rate in opts.rates.split(","):
        for seed in range(1, opts.seeds + 1):
            for imbalance in opts.imbalance.split(","):
                plot = []
                if opts.plots and seed == 1:
                    name = "stragglers" if imbalance != "none" else "even"
                    plot = ["--plot", os.path.join(os.path.abspath(opts.plots), f"{rate}-{name}.svg")]
                for first in range(0, len(algorithms), opts.together):
                    some = ",".join(algorithms[first:first + opts.together])
                    rows = train(opts, rate, opts.workers, some, imbalance, seed, opts.steps, *plot)
                    save(opts, rows, part="compare", rate=rate)
                    print(f"{rate} {imbalance} seed {seed}: " + ", ".join(
                        f"{row['algorithm']} {row['samples_per_second']:.0f}" for row in rows), flush=True)


def grow(opts):
    for rate in opts.rates.split(","):
        for seed in range(1, opts.seeds + 1):
            for workers in GROWTH:
                rows = train(opts, rate, workers, "bsp", "none", seed, opts.steps)
                save(opts, rows, part="growth", rate=rate)


def co_locate(opts):
    places = {"apart": ([], 1), "on one worker": (["--co-located"], 0),
              "on all workers": (["--co-located", "--servers", str(opts.workers)], 0)}
    for rate in opts.rates.split(","):
        for seed in range(1, opts.seeds + 1):
            for name, (words, servers) in places.items():
                rows = train(opts, rate, opts.workers, "bsp,osp", "none", seed, opts.steps, *words, servers=servers)
                save(opts, rows, part="co-located", rate=rate, place=name)


# ---- tables ----

def tell(values, digits=1, unit=1):
    """The median, with the least and the largest; values that are missing are larger than all."""
    known = sorted(value for value in values if value is not None)
    known += [None] * (len(values) - len(known))
    shown = ["never" if value is None else f"{value * unit:,.{digits}f}"
             for value in (known[(len(known) - 1) // 2], known[0], known[-1])]
    return f"{shown[0]} ({shown[1]}–{shown[2]})" if shown[1] != shown[2] else shown[0]


def best(row):
    return max(accuracy for _, accuracy in row["curve"])


def reached(row, target):
    """Steps and seconds until an accuracy was reached first; None: never."""
    found = ((steps, seconds) for steps, (seconds, accuracy) in zip(row["curve_steps"], row["curve"])
             if accuracy >= target)
    return next(found, (None, None))


def grouped(rows, *names):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def sync_ms(row):
    return row.get("batch_sync_ms")


def compare_table(rows):
    bsp = {row["seed"]: row for row in rows if row["algorithm"] == "bsp"}
    print("| | samples/s | by BSP | sync, ms | ICS | staleness | best accuracy, % | in the end, % | steps | seconds |")
    print("| --- |" + " ---: |" * 9)
    for (algorithm,), group in grouped(rows, "algorithm").items():
        ratio = statistics.median(row["samples_per_second"] / bsp[row["seed"]]["samples_per_second"] for row in group)
        times = [reached(row, best(bsp[row["seed"]]) - SLACK) for row in group]
        served = "staleness" in group[0]
        cells = [tell([row["samples_per_second"] for row in group], 0), f"{ratio:.2f}",
                 tell([sync_ms(row) for row in group]) if served else "",
                 tell([row["ics_fraction"] for row in group], 2) if algorithm == "osp" else "",
                 tell([row["staleness"] for row in group]) if served else "",
                 tell([best(row) for row in group], 2, 100), tell([row["test_accuracy"] for row in group], 2, 100),
                 tell([steps for steps, _ in times], 0), tell([seconds for _, seconds in times])]
        print(f"| `{algorithm}` | " + " | ".join(cells) + " |")


def growth_table(rows):
    print("| workers | ms/step | communication | sync, ms |\n| ---: | ---: | ---: | ---: |")
    for (workers,), group in sorted(grouped(rows, "ranks").items()):
        share = [1 - row["compute_ms"] * 1e3 / row["step_us"] for row in group]
        print(f"| {workers} | {tell([row['step_us'] / 1e3 for row in group])} | {tell(share, 0, 100)} % | "
              f"{tell([sync_ms(row) for row in group])} |")


def co_located_table(rows):
    print("| | server | gradient, ms | step, ms | sync, ms | samples/s |\n| --- | --- |" + " ---: |" * 4)
    for (algorithm, place), group in sorted(grouped(rows, "algorithm", "place").items()):
        cells = [tell([row["gradient_us"] / 1e3 for row in group], 2), tell([row["step_us"] / 1e3 for row in group]),
                 tell([sync_ms(row) for row in group]), tell([row["samples_per_second"] for row in group], 0)]
        print(f"| `{algorithm}` | {place} | " + " | ".join(cells) + " |")


def tables(path):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    shown = {"compare": compare_table, "growth": growth_table, "co-located": co_located_table}
    for (part, virtual, rate), group in grouped(rows, "part", "virtual", "rate").items():
        for (imbalance,), trainings in grouped(group, "imbalance").items():
            one = trainings[0]
            where = "virtual time" if virtual else "namespaces"
            print(f"\n{part}: {rate}, {where}, {imbalance}; {one['model']}, {one['parameters']} parameters, batches of "
                  f"{one['batch']}, {one['compute_ms']:.0f} ms, {one['steps']} steps\n")
            shown[part](trainings)


def main():
    opts = options()
    if opts.tables:
        tables(opts.tables)
    elif not opts.save:
        sys.exit("server_trainings.py: expected --save ROWS.jsonl, or --tables ROWS.jsonl")
    else:
        (grow if opts.growth else co_locate if opts.co_located else compare)(opts)


if __name__ == "__main__":
    main()

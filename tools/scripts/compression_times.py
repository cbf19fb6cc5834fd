#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How long aggregating compressed gradients takes: simulated beside GradiVeQ's paper, and measured.

    tools/scripts/compression_times.py [--weft WEFT] [--costs ROWS.jsonl]
    sudo tools/scripts/compression_times.py --links [--weft WEFT] [--ranks P] [--count N] [--rounds N]
                                            [--traces DIR]
    sudo tools/scripts/compression_times.py --trainings [--weft WEFT] [--ranks P] [--rounds N] [--steps N]
                                            [--model MODEL]

The first simulates 6 nodes that aggregate the gradients of ResNet-32's convolutions, on a network whose G is fitted
so that 500 dense steps take the paper's 850 s (Yu, Lin, Narra et al., NeurIPS 2018, section 4.2), with what
`weft bench compress --json` says that compression costs (measured now, or taken from ROWS.jsonl). The second
executes the same schedules over network namespaces of 1 Gbit/s and 100 Mbit/s (limited_link.sh), in turns, and prints
medians; with --traces it leaves a trace of each, for hidden_share.py. The third trains over such links: how the time
of a step is split, as in the paper's figure 7 (b), and when an accuracy on the test data is reached first; a seed a
round, medians.
"""
import argparse
import json
import os
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
# 3 x 3 convolutions of ResNet-32 for CIFAR (He et al., CVPR 2016, section 4.2: n = 5, shortcuts without parameters).
CONVOLUTIONS = 9 * (3 * 16 + 10 * 16 * 16 + 16 * 32 + 9 * 32 * 32 + 32 * 64 + 9 * 64 * 64)
NODES, STEPS, SAMPLES = 6, 500, 100
SLICE, COMPONENTS, BITS = 768, 96, 4
# Whole slices that 6 nodes divide, so that all messages are equally long: in a LogGOPS network, as weft sim has it,
# messages that come in without a pause keep a rank from sending on, and unequal ones run into that.
COUNT = CONVOLUTIONS // (NODES * SLICE) * NODES * SLICE
PAPER = {"dense": 850, "gradiveq": 162}
# Its figure 7 (a): 90,000 s for 45,000 steps of which 650 s in 500 are computed.
PAPER_QSGD = 90000 / 45000 * STEPS - 650
COMPUTED = 650

WAYS = {
    "dense": ["allreduce", "--algo", "ring", "--segment", "0"],
    "qsgd, ring": ["quantised-allreduce", "--algo", "ring", "--bits", str(BITS)],
    "qsgd, shards": ["quantised-allreduce", "--algo", "all-to-all", "--bits", str(BITS)],
    "gradiveq": ["projected-allreduce", "--algo", "ring", "--slice", str(SLICE), "--components", str(COMPONENTS)],
}

TRAININGS = {
    "allreduce": [],
    "qsgd": ["--bits", str(BITS)],
    "powersgd": ["--power-rank", "4"],
    "gradiveq": ["--slice", "640", "--loss-bound", "0"],
}
TARGETS = 0.9, 0.95, 0.97


def weft_json(command):
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


# ---- simulated ----

def costs_of(rows):
    """Nanoseconds an element: what `weft bench compress` has measured."""
    def cost(case):
        rate = next(row["weft"] for row in rows if row["case"].startswith(case))
        return 4 / rate

    shape = f"K={SLICE} d={COMPONENTS} S=300"
    return {"quantise": cost(f"quantise {BITS} bits"), "dequantise": cost(f"dequantise-add {BITS} bits"),
            "dequantise-add": cost(f"dequantise-add {BITS} bits"), "project": cost(f"project, centred {shape}"),
            "reconstruct": cost(f"reconstruct {shape}"), "components": next(
                (row["weft"] for row in rows if row["case"].startswith(f"components K={SLICE}")), 0)}


def compute_words(costs):
    """Of `weft sim --compute`: microseconds a byte that an operation writes."""
    wire = BITS / 8 + 4 / 512  # bytes of an element that is quantised
    by_byte = {"quantise": costs["quantise"] / wire, "dequantise": costs["dequantise"] / 4,
               "dequantise-add": costs["dequantise-add"] / 4,
               "project": costs["project"] / (4 * COMPONENTS / SLICE), "reconstruct": costs["reconstruct"] / 4}
    return ",".join(f"{name}={value / 1e3:.9g}" for name, value in by_byte.items())


def simulate(weft, way, gap, compute):
    """Seconds of a step."""
    command = [weft, "sim", *WAYS[way], "-n", str(NODES), "--count", str(COUNT), "--json", "--net",
               f"L=0,G={gap:.9g}"] + (["--compute", compute] if compute else [])
    return weft_json(command)[0]["time_us"] / 1e6


def simulated(options):
    if options.costs and os.path.exists(options.costs):
        with open(options.costs, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    else:
        rows = weft_json([options.weft, "bench", "compress", "--json"])
    costs = costs_of(rows)
    gap = 1
    gap = PAPER["dense"] / STEPS / simulate(options.weft, "dense", gap, None)
    print(f"{COUNT} elements of {CONVOLUTIONS}; G fitted: {gap:.4f} us a byte, {8 / gap:.1f} Mbit/s")
    print("costs, ns an element: " + ", ".join(f"{name} {value:.3f}" for name, value in costs.items()
                                               if name != "components")
          + f"; components of a layer {costs['components']:.0f} ms")
    # As slow as the paper's quantiser must have been: the same cost an element for its operations.
    bare = simulate(options.weft, "qsgd, ring", gap, None)
    quantising = ("quantise", "dequantise", "dequantise-add")
    with_unit = simulate(options.weft, "qsgd, ring", gap, compute_words({**costs, **{n: 1e3 for n in quantising}}))
    fitted = 1e3 * (PAPER_QSGD / STEPS - bare) / (with_unit - bare)
    slow = {**costs, **{name: fitted for name in quantising}}
    print(f"quantising fitted to the paper's QSGD: {fitted:.0f} ns an element and operation")
    head = ["network alone", "costs measured", "quantising fitted"]
    print("\n| 500 steps, s | paper | " + " | ".join(head) + " |")
    print("| --- | ---: |" + " ---: |" * len(head))
    table = {way: [STEPS * simulate(options.weft, way, gap, compute)
                   for compute in (None, compute_words(costs), compute_words(slow))] for way in WAYS}
    layers = 31  # of ResNet-32: a projection each
    for way in ("dense", "qsgd, ring", "qsgd, shards"):
        paper = {"dense": f'{PAPER["dense"]}', "qsgd, ring": f"{PAPER_QSGD:.0f}"}.get(way, "–")
        print(f"| {way} | {paper} | " + " | ".join(f"{value:.0f}" for value in table[way]) + " |")
    pca = [0, layers * costs["components"] / 1e3, layers * costs["components"] / 1e3]
    total = [SAMPLES / STEPS * q + (1 - SAMPLES / STEPS) * g + p
             for q, g, p in zip(table["qsgd, ring"], table["gradiveq"], pca)]
    print(f'| gradiveq, {SAMPLES} steps by qsgd | {PAPER["gradiveq"]} | '
          + " | ".join(f"{value:.0f}" for value in total) + " |")
    print("| dense by gradiveq | 5.25 | " + " | ".join(f"{d / g:.2f}" for d, g in zip(table["dense"], total)) + " |")
    print("| dense by qsgd, ring | " + f'{PAPER["dense"] / PAPER_QSGD:.2f} | '
          + " | ".join(f"{d / q:.2f}" for d, q in zip(table["dense"], table["qsgd, ring"])) + " |")
    print(f"\n| end to end, {COMPUTED} s computed | paper | " + " | ".join(head) + " |")
    print("| --- | ---: |" + " ---: |" * len(head))
    print(f'| dense | {COMPUTED + PAPER["dense"]} | '
          + " | ".join(f"{COMPUTED + value:.0f}" for value in table["dense"]) + " |")
    print(f"| qsgd, ring | {COMPUTED + PAPER_QSGD:.0f} | "
          + " | ".join(f"{COMPUTED + value:.0f}" for value in table["qsgd, ring"]) + " |")
    print(f'| gradiveq | {COMPUTED + PAPER["gradiveq"]} | '
          + " | ".join(f"{COMPUTED + value:.0f}" for value in total) + " |")


# ---- measured ----

def on_links(options, rate, *words):
    return [os.path.join(HERE, "limited_link.sh"), "--rates", rate, "--ranks", str(options.ranks), "--weft",
            options.weft, "--", options.weft, *words, "--transport", "mpi", "--json"]


def over_link(options, rate, way, trace):
    """Milliseconds of each rank's slowest: least, median and largest of a process' iterations."""
    command = on_links(options, rate, "run", *WAYS[way], "--count", str(options.count), "--iterations",
                       str(options.iterations))
    if trace:
        command += ["--trace", trace]
    return weft_json(command)[0]


def measured(options):
    for rate in options.rates.split(","):
        times = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way in WAYS:
                times[way].append(over_link(options, rate, way, None)["median_us"] / 1e3)
        for way in WAYS if options.traces else ():
            name = way.replace(", ", "-")
            over_link(options, rate, way, os.path.join(options.traces, f"{rate}-{options.ranks}-{name}.json"))
            subprocess.run([options.weft, "dump", *WAYS[way], "-n", str(options.ranks), "--count", str(options.count),
                            "--format", "json", "-o", os.path.join(options.traces, name + ".schedule.json")], check=True)
        dense = statistics.median(times["dense"])
        print(f"\n{rate}, {options.ranks} ranks, {options.count} elements: ms\n")
        print("| | median | min..max | dense by it |\n| --- | ---: | ---: | ---: |")
        for way, values in times.items():
            middle = statistics.median(values)
            print(f"| {way} | {middle:.1f} | {min(values):.1f}–{max(values):.1f} | {dense / middle:.2f} |", flush=True)


def first(curve, target):
    """When a training was as good for the first time; None: never."""
    return next((seconds for seconds, accuracy in curve if accuracy >= target), None)


def tell(values, digits=1, unit=1):
    """The median, with the least and the largest; values that are missing are larger than all."""
    known = sorted((value for value in values if value is not None))
    known += [None] * (len(values) - len(known))
    shown = ["–" if value is None else f"{value * unit:.{digits}f}"
             for value in (known[(len(known) - 1) // 2], known[0], known[-1])]
    return f"{shown[0]} ({shown[1]}–{shown[2]})" if len(values) > 1 else shown[0]


def trained(options):
    for rate in options.rates.split(","):
        rows = {way: [] for way in TRAININGS}
        for seed in range(1, options.rounds + 1):
            for way, words in TRAININGS.items():
                command = on_links(options, rate, "train", "--algorithm", way, "--model", options.model, "--lr", "0.02",
                                   "--steps", str(options.steps), "--seed", str(seed), *words)
                rows[way] += weft_json(command)
        print(f"\n{rate}, {options.ranks} ranks, {options.model}, {options.steps} steps, {options.rounds} seeds\n")
        print("| | kB/step | ms/step | computed | the rest | " + " | ".join(f"s to {t:.0%}" for t in TARGETS)
              + " | accuracy, % |")
        print("| --- |" + " ---: |" * (5 + len(TARGETS)))
        for way, trainings in rows.items():
            step = [row["step_us"] / 1e3 for row in trainings]
            computed = [row["gradient_us"] / 1e3 for row in trainings]
            cells = [tell([row["bytes_per_step"] / 1e3 for row in trainings][:1]), tell(step), tell(computed),
                     tell([s - c for s, c in zip(step, computed)])]
            cells += [tell([first(row["curve"], target) for row in trainings]) for target in TARGETS]
            cells += [tell([row["test_accuracy"] for row in trainings], 2, 100)]
            print(f"| {way} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=os.path.join(HERE, "..", "..", "build", "tools", "weft"))
    parser.add_argument("--costs")
    parser.add_argument("--links", action="store_true")
    parser.add_argument("--trainings", action="store_true")
    parser.add_argument("--model", default="resnet")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rates", default="1gbit,100mbit")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=7)
    parser.add_argument("--traces")
    options = parser.parse_args()
    options.weft = os.path.abspath(options.weft)
    (trained if options.trainings else measured if options.links else simulated)(options)


if __name__ == "__main__":
    main()

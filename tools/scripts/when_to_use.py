#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tables and plots of docs/when-to-use.md, from trainings in virtual time.

    tools/scripts/when_to_use.py build/tools/weft docs [RESULTS.jsonl]

Trains with `weft train` on virtual ranks: every algorithm under several divisions of the data, periods,
imbalances and numbers of ranks, each with three seeds (some 20 minutes of one processor, 7 GB; two at a
time). Prints the tables, and draws when-to-use-*.svg. With RESULTS.jsonl, trainings that are in it are
not done again, and the others are added to it. Standard library alone.
"""
import json
import math
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

RANKS, STEPS, SEEDS = 16, 300, 3
COMMON = ["--transport", "virtual", "--net", "L=20,G=0.001", "--compute", "20"]
PERIODIC = ["local", "eager-solo", "eager-majority", "wagma"]
STEADY = ["allreduce", "d-psgd", "sgp", "ad-psgd"]
ALL = ["allreduce", "local", "d-psgd", "sgp", "ad-psgd", "eager-solo", "eager-majority", "wagma"]
PERIODS = [1, 5, 10, 20, 50, 100, 0]
DIVISIONS = ["iid", "by-class:2"]
MORE_DIVISIONS = ["iid", "dirichlet:1", "dirichlet:0.1", "by-class:2", "by-class:1"]
DIVIDED = ["allreduce", "local", "ad-psgd", "wagma"]
IMBALANCES = ["none", "two-random:20", "two-random:100", "permanent:2,20", "pareto:2,1.1"]
SIZES = [4, 16, 64, 256, 1024]
SCALED = ["allreduce", "local", "d-psgd", "sgp", "ad-psgd", "eager-majority", "wagma"]
TIMED = ["two-random:20", "permanent:2,20", "pareto:2,1.1"]
GOALS = [0.9, 0.94]
# A task that takes more steps: a tenth of the learning rate, and delays of five steps.
SLOW, SLOW_STEPS, SLOW_LATE = ["--lr", "0.01"], 600, "two-random:100"

# colour (told apart by all eyes), dashes
LOOKS = {
    "allreduce": ("#4d4d4d", "6 3"), "local": ("#e69f00", ""), "d-psgd": ("#009e73", "6 3"),
    "sgp": ("#cc79a7", "6 3"), "ad-psgd": ("#56b4e9", "6 3"), "eager-solo": ("#855229", ""),
    "eager-majority": ("#8a8a00", ""), "wagma": ("#d55e00", ""),
}


# ---- trainings ----

class Bench:
    """Trainings by their words; what has been done is kept."""

    def __init__(self, weft, path):
        self.weft, self.path, self.known = weft, path, {}
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    entry = json.loads(line)
                    self.known[entry["words"]] = entry["outcome"]

    def train(self, words):
        run = subprocess.run([self.weft, "train", *words.split(), "--json"], check=True,
                             capture_output=True, text=True)
        return words, json.loads(run.stdout)

    def do(self, wanted):
        missing = [words for words in dict.fromkeys(wanted) if words not in self.known]
        with ThreadPoolExecutor(2) as pool:
            for number, (words, outcome) in enumerate(pool.map(self.train, missing), 1):
                self.known[words] = outcome
                print(f"\r{number} of {len(missing)} trainings", end="", file=sys.stderr, flush=True)
                if self.path:
                    with open(self.path, "a", encoding="utf-8") as file:
                        file.write(json.dumps({"words": words, "outcome": outcome}) + "\n")
        if missing:
            print(file=sys.stderr)

    def seeds(self, words_of_seed, count=SEEDS):
        return [self.known[words_of_seed(seed)] for seed in range(1, count + 1)]


def words_of(algorithm, seed, division, imbalance, period=None, ranks=RANKS, steps=STEPS, more=()):
    words = ["--algorithm", algorithm, "-n", ranks, "--steps", steps, *COMMON, "--shards", division,
             "--imbalance", imbalance, "--seed", seed]
    if period is not None:
        words += ["--sync-period", period]
    words += more
    return " ".join(map(str, words))


def seconds_to(outcome, goal):
    """Until the mean of the models has the accuracy for the first time; infinite: never."""
    return next((time for time, accuracy in outcome["curve"] if accuracy >= goal), math.inf)


def median_seconds(outcomes, goal):
    return statistics.median(seconds_to(outcome, goal) for outcome in outcomes)


def spread(values, digits):
    values = sorted(values)
    low, high = f"{values[0]:.{digits}f}", f"{values[-1]:.{digits}f}"
    text = f"{statistics.median(values):.{digits}f}"
    return text if low == high else f"{text} ({low}–{high})"


def accuracies(outcomes):
    return [100 * outcome["test_accuracy"] for outcome in outcomes]


def period_text(period):
    return str(period) if period else "never"


# ---- what is compared ----

def periods_of(bench, algorithm, division, period):
    steady = algorithm in STEADY
    return bench.seeds(lambda seed: words_of(algorithm, seed, division, "two-random:20",
                                             None if steady else period))


def imbalances_of(bench, algorithm, imbalance, division="by-class:2", period=20):
    steady = algorithm in STEADY
    return bench.seeds(lambda seed: words_of(algorithm, seed, division, imbalance,
                                             None if steady else period))


def slow_words(algorithm, seed):
    return words_of(algorithm, seed, "by-class:2", SLOW_LATE, None if algorithm in STEADY else 20, RANKS,
                    SLOW_STEPS, SLOW)


def sizes_of(bench, algorithm, ranks):
    return bench.seeds(lambda seed: words_of(algorithm, seed, "by-class:2", "two-random:20",
                                             None if algorithm in STEADY else 20, ranks, 60), 1)


def everything():
    seeds = range(1, SEEDS + 1)
    wanted = []
    for division in DIVISIONS:
        for seed in seeds:
            wanted += [words_of(a, seed, division, "two-random:20") for a in STEADY]
            wanted += [words_of(a, seed, division, "two-random:20", period) for a in PERIODIC
                       for period in PERIODS]
    for division in MORE_DIVISIONS:
        for seed in seeds:
            wanted += [words_of(a, seed, division, "two-random:20", None if a in STEADY else 50)
                       for a in DIVIDED]
    for imbalance in IMBALANCES:
        for seed in seeds:
            wanted += [words_of(a, seed, "by-class:2", imbalance, None if a in STEADY else 20)
                       for a in ALL]
    for seed in seeds:
        wanted += [slow_words(a, seed) for a in ALL]
    for ranks in SIZES:
        wanted += [words_of(a, 1, "by-class:2", "two-random:20", None if a in STEADY else 20, ranks, 60)
                   for a in SCALED]
    return wanted


# ---- tables ----

def table(head, rows):
    print("\n| " + " | ".join(head) + " |")
    print("| --- |" + " ---: |" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def print_periods(bench):
    for division in DIVISIONS:
        rows = []
        for algorithm in PERIODIC:
            rows.append([f"`{algorithm}`"] + [
                f"{statistics.median(accuracies(periods_of(bench, algorithm, division, period))):.1f}"
                for period in PERIODS])
        for algorithm in STEADY:
            value = statistics.median(accuracies(periods_of(bench, algorithm, division, 1)))
            rows.append([f"`{algorithm}`", f"{value:.1f}"] + [""] * (len(PERIODS) - 1))
        print(f"\n{division}: accuracy, %, by the period")
        table(["τ"] + [period_text(period) for period in PERIODS], rows)


def print_divisions(bench):
    rows = [[f"`{algorithm}`"] + [
        spread(accuracies(periods_of(bench, algorithm, division, 50)), 1)
        for division in MORE_DIVISIONS] for algorithm in DIVIDED]
    print("\naccuracy, %, by the division, τ = 50")
    table([""] + [f"`{division}`" for division in MORE_DIVISIONS], rows)


def seconds_text(seconds):
    return f"{seconds:.1f}" if seconds < math.inf else "–"


def print_outcomes(title, outcomes_of):
    rows = []
    for algorithm in ALL:
        outcomes = outcomes_of(algorithm)
        rows.append([
            f"`{algorithm}`",
            f"{statistics.median(o['samples_per_second'] for o in outcomes):,.0f}",
            *(seconds_text(median_seconds(outcomes, goal)) for goal in GOALS),
            spread(accuracies(outcomes), 1),
            f"{statistics.median(100 * o['stale_fraction'] for o in outcomes):.0f}",
            f"{statistics.median(o['consensus_distance'] for o in outcomes):.2f}"])
    print(f"\n{title}")
    table(["", "samples/s", *(f"s to {goal * 100:g} %" for goal in GOALS), "accuracy, %", "stale, %",
           "distance"], rows)


def print_imbalances(bench):
    for imbalance in IMBALANCES:
        print_outcomes(imbalance, lambda a, late=imbalance: imbalances_of(bench, a, late))
    print_outcomes(f"{SLOW_LATE}, {' '.join(SLOW)}, {SLOW_STEPS} steps",
                   lambda a: bench.seeds(lambda seed: slow_words(a, seed)))


def print_sizes(bench):
    def cell(outcome, ranks):
        return " / ".join([f"{100 * outcome['test_accuracy']:.1f}",
                           f"{outcome['samples_per_second'] / ranks:,.0f}",
                           seconds_text(seconds_to(outcome, GOALS[0])),
                           f"{outcome['consensus_distance']:.2f}"])

    print(f"\naccuracy, % / samples/s of a rank / s to {GOALS[0] * 100:g} % / distance, by the ranks")
    table(["ranks"] + [f"{ranks:,}" for ranks in SIZES],
          [[f"`{a}`"] + [cell(sizes_of(bench, a, ranks)[0], ranks) for ranks in SIZES]
           for a in SCALED])


# ---- plots ----

STYLE = """
text { font-family: "DejaVu Sans", Helvetica, Arial, sans-serif; }
.head { font-size: 16px; font-weight: bold; fill: #222; }
.sub { font-size: 12px; fill: #555; }
.title { font-size: 13px; font-weight: bold; fill: #222; }
.label { font-size: 12.5px; fill: #222; }
.tick { font-size: 11.5px; fill: #444; }
.name { font-size: 12.5px; font-weight: bold; }
.grid { stroke: #e2e2e2; stroke-width: 1; }
.axis { stroke: #444; stroke-width: 1.2; }
"""


def gap(percent):
    """Decades of what is missing to 100 %, upwards."""
    return 2 - math.log10(max(100 - percent, 1e-3))


class Panel:
    def __init__(self, x, y, width, height, x_at, y_at):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.x_at, self.y_at = x_at, y_at  # shares of the width and the height

    def at(self, x, y):
        return (self.x + self.x_at(x) * self.width,
                self.y + (1 - min(max(self.y_at(y), 0), 1)) * self.height)

    def frame(self, title, label, x_ticks, y_ticks):
        bottom, right = self.y + self.height, self.x + self.width
        out = [f'<text x="{self.x}" y="{self.y - 12}" class="title">{title}</text>']
        for value, text in y_ticks:
            _, y = self.at(x_ticks[0][0], value)
            out.append(f'<line x1="{self.x}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            out.append(f'<text x="{self.x - 8}" y="{y + 4:.1f}" class="tick" text-anchor="end">'
                       f'{text}</text>')
        for value, text in x_ticks:
            x, _ = self.at(value, y_ticks[0][0])
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" class="axis"/>')
            out.append(f'<text x="{x:.1f}" y="{bottom + 19}" class="tick" text-anchor="middle">{text}'
                       '</text>')
        out.append(f'<line x1="{self.x}" x2="{right}" y1="{bottom}" y2="{bottom}" class="axis"/>')
        out.append(f'<text x="{self.x + self.width / 2}" y="{bottom + 40}" class="label" '
                   f'text-anchor="middle">{label}</text>')
        return out

    def line(self, points, name, markers=True):
        colour, dashes = LOOKS[name]
        width = 3.2 if name == "wagma" else 2
        places = [self.at(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
               f'stroke-dasharray="{dashes or "none"}" stroke-linejoin="round"/>']
        if markers:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{colour}"/>' for x, y in places]
        return out


def legend(x, y, names):
    out = []
    for i, name in enumerate(names):
        colour, dashes = LOOKS[name]
        out.append(f'<line x1="{x}" x2="{x + 28}" y1="{y + 20 * i - 4}" y2="{y + 20 * i - 4}" '
                   f'stroke="{colour}" stroke-width="{3.2 if name == "wagma" else 2}" '
                   f'stroke-dasharray="{dashes or "none"}"/>')
        out.append(f'<text x="{x + 36}" y="{y + 20 * i}" class="name" fill="{colour}">{name}</text>')
    return out


def page(width, height, head, sub, body):
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                      f'width="{width}" height="{height}">', f"<style>{STYLE}</style>",
                      f'<rect width="{width}" height="{height}" fill="white"/>',
                      f'<text x="24" y="30" class="head">{head}</text>',
                      f'<text x="24" y="50" class="sub">{sub}</text>', *body, "</svg>", ""])


PERCENTS = [(p, f"{p}") for p in (0, 50, 70, 80, 90, 95, 97)]


def by_percent(high):
    return lambda y: gap(y) / gap(high)


def draw_periods(bench):
    body, width = [], 330
    for number, division in enumerate(DIVISIONS):
        place = {period: i / (len(PERIODS) - 1) for i, period in enumerate(PERIODS)}
        panel = Panel(74 + number * (width + 46), 94, width, 300, place.get, by_percent(98))
        body += panel.frame(division, "τ, steps between averages of all", [
            (period, period_text(period)) for period in PERIODS], PERCENTS)
        for algorithm in STEADY + PERIODIC:
            points = [(period, statistics.median(accuracies(periods_of(bench, algorithm, division,
                                                                       period))))
                      for period in PERIODS]
            body += panel.line(points, algorithm, algorithm in PERIODIC)
    body.append('<text transform="translate(26 244) rotate(-90)" class="label" text-anchor="middle">'
                'test accuracy, %</text>')
    body += legend(74 + len(DIVISIONS) * (width + 46) - 16, 110, PERIODIC + STEADY)
    return page(74 + len(DIVISIONS) * (width + 46) + 140, 450, "Accuracy by the period τ",
                f"optdigits, {RANKS} virtual ranks, {STEPS} steps of 20 ms, two ranks of each late by "
                f"20 ms; dashed: without a period; medians of {SEEDS} seeds", body)


def draw_sizes(bench):
    """Accuracy to the left, throughput of a rank to the right, by the number of ranks."""
    def place(ranks):
        return math.log(ranks / SIZES[0]) / math.log(SIZES[-1] / SIZES[0])

    most = 1600  # 32 images in 20 ms
    left = Panel(74, 94, 330, 300, place, by_percent(98))
    right = Panel(490, 94, 330, 300, place, lambda y: y / most)
    ticks = [(ranks, f"{ranks:,}") for ranks in SIZES]
    body = left.frame("test accuracy, %", "ranks", ticks, PERCENTS)
    body += right.frame("samples/s of a rank", "ranks", ticks,
                        [(y, f"{y:,}") for y in range(0, most + 1, 400)])
    for algorithm in SCALED:
        outcomes = [(ranks, sizes_of(bench, algorithm, ranks)[0]) for ranks in SIZES]
        body += left.line([(p, 100 * o["test_accuracy"]) for p, o in outcomes], algorithm)
        body += right.line([(p, o["samples_per_second"] / p) for p, o in outcomes], algorithm)
    body += legend(846, 110, SCALED)
    return page(1000, 450, "Accuracy and throughput by the number of ranks",
                "optdigits, two digits a rank, 60 steps of 32 images and 20 ms, two ranks of each late by "
                "20 ms, τ = 20; one seed", body)


def nice_step(most):
    rough = most / 5
    power = 10 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough)


def draw_times(bench, imbalances):
    """Accuracy above, consensus distance below, over time; the first seed."""
    body, width = [], 296
    for number, imbalance in enumerate(imbalances):
        curves = {a: imbalances_of(bench, a, imbalance)[0] for a in ALL}
        most = max(o["curve"][-1][0] for o in curves.values())
        ticks = [(i * nice_step(most), f"{i * nice_step(most):g}")
                 for i in range(int(most / nice_step(most)) + 1)]
        x = 74 + number * (width + 46)
        above = Panel(x, 94, width, 280, lambda t, m=most: t / m, by_percent(97.5))
        below = Panel(x, 424, width, 150, lambda t, m=most: t / m, lambda d: math.sqrt(d / 6))
        body += above.frame(imbalance, "", ticks, PERCENTS)
        body += below.frame("", "training time, s", ticks, [(d, f"{d:g}") for d in (0, 0.2, 1, 2, 5)])
        for algorithm in ALL:
            outcome = curves[algorithm]
            body += above.line([(t, 100 * a) for t, a in outcome["curve"]], algorithm, False)
            body += below.line([(t, d) for t, d in outcome["consensus"] if d is not None], algorithm,
                               False)
    for y, text in ((234, "test accuracy of the mean, %"), (499, "consensus distance")):
        body.append(f'<text transform="translate(26 {y}) rotate(-90)" class="label" '
                    f'text-anchor="middle">{text}</text>')
    body += legend(74 + len(imbalances) * (width + 46) - 16, 110, ALL)
    sub = (f"optdigits, {RANKS} virtual ranks with two digits each, {STEPS} steps of 32 images a rank and "
           "20 ms, τ = 20, seed 1; distances by their square root")
    return page(74 + len(imbalances) * (width + 46) + 140, 640, "Accuracy and consensus distance over time",
                sub, body)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    bench = Bench(sys.argv[1], sys.argv[3] if len(sys.argv) == 4 else None)
    folder = sys.argv[2]
    bench.do(everything())
    print_periods(bench)
    print_divisions(bench)
    print_imbalances(bench)
    print_sizes(bench)
    for name, text in (("periods", draw_periods(bench)),
                       ("sizes", draw_sizes(bench)),
                       ("times", draw_times(bench, TIMED))):
        with open(os.path.join(folder, f"when-to-use-{name}.svg"), "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()

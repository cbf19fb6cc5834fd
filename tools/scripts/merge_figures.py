#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fig. 6 to 9 of MG-WFBP (Shi, Chu, Li, INFOCOM 2019), from plans of `weft merge`.

    tools/scripts/merge_figures.py build/tools/weft docs/merging-figures.svg

Draws speedups of 4 to 64 nodes and what is exposed on 2 to 8, and prints the tables of docs/merging.md.
An iteration takes the forward pass and until the last allreduce of the plan has ended. What the paper does
not print is taken from its authors' repository (github.com/shyhuai/B-Caffe): scripts/gmwfbp.py has the
constants of an allreduce with which they simulated, and the throughputs that they measured. Standard
library alone.
"""
import json
import os
import subprocess
import sys
import tempfile

# An allreduce of M bytes on N nodes: a = 2 (N - 1) alpha, b = (N - 1) / N (2 beta + gamma). The paper prints a
# for 2, 4 and 8 nodes; beta and gamma are those of scripts/gmwfbp.py, in microseconds a byte.
ALPHA_US = 45.26
BETA, GAMMA = 1.2e6 / (9 * 2**30 / 8), 2.5e-3
# From its text: what 200 KB more take on 8 nodes (1.5 ms for 200 KB, 1.8 ms for 400 KB).
TEXT_B = 0.3e3 / 200e3 / (7 / 8)

METHODS = ["wfbp", "single", "greedy", "exact", "bucket:26214400"]
SHOWN = {"wfbp": "WFBP", "single": "SyncEASGD", "greedy": "MG-WFBP (greedy)", "exact": "exact",
         "bucket:26214400": "buckets of 25 MiB"}
COLOURS = {"wfbp": "#d55e00", "single": "#0072b2", "greedy": "#009e73", "exact": "#cc79a7",
           "bucket:26214400": "#666666"}

# images a second, of one machine with two GPUs, and of 2, 4 and 8 of them (scripts/gmwfbp.py,
# realdata_speedup(); that of GoogLeNet is doubled there).
MEASURED = {
    "googlenet": {"alone": 2 * 81.68, "wfbp": [2 * 74.83, 2 * 74.91, 2 * 62.9],
                  "single": [2 * 62.57, 2 * 57.67, 2 * 55.58], "greedy": [2 * 79.02, 2 * 75.03, 2 * 75.68]},
    "resnet50": {"alone": 76.85, "wfbp": [75.55, 73.679, 58.2], "single": [60.0, 55.7, 50.8],
                 "greedy": [75.59, 73.8, 70.8251]}}
BATCH = {"googlenet": 64, "resnet50": 32}
NAMES = {"googlenet": "GoogLeNet", "googlenet-bn": "torchvision's GoogLeNet", "resnet50": "ResNet-50",
         "resnet152": "ResNet-152", "vgg16": "VGG-16", "inception-v3": "Inception-v3", "bert-base": "BERT-base"}
PAPER = {"googlenet": (1.78, 1.35), "resnet50": (1.75, 1.45)}  # 64 nodes: MG-WFBP by WFBP, by SyncEASGD
FEW, MANY = [2, 4, 8], [4, 8, 16, 32, 64]


class Case:
    """A network on the paper's cluster."""

    def __init__(self, weft, network, tensors=True, slower=1.0, a=1.0, b=None):
        """`tensors`: each is sent by itself, as B-Caffe does; else weights with their biases."""
        folder = os.path.join(os.path.dirname(__file__), "..", "data", "layers")
        with open(os.path.join(folder, network + ".json"), encoding="utf-8") as file:
            table = json.load(file)
        self.weft, self.slower, self.a, self.b = weft, slower, a, b or 2 * BETA + GAMMA
        self.alone_us = slower * table["iteration_us"]
        self.forward_us = slower * table["forward_us"]
        self.rows = []
        for layer in table["layers"]:
            for elements in layer["tensors"] if tensors else [layer["elements"]]:
                self.rows.append(f"{layer['name']},{elements},{slower * layer['ready_us']:.3f}")

    def ask(self, before, after):
        """What `weft` says of the layers, a line an object."""
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("\n".join(["name,elements,ready_us"] + self.rows + [""]))
            file.flush()
            command = [self.weft, *before, file.name, *after, "--json"]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    def plans(self, nodes):
        net = f"a={self.a * 2 * (nodes - 1) * ALPHA_US:.9g},b={self.b * (nodes - 1) / nodes:.9g}"
        plans = self.ask(["merge"], ["--net", net, "--method", ",".join(METHODS)])
        return {plan["method"]: plan for plan in plans}

    def simulated_us(self, nodes, method):
        """The end of the ring's schedules that the plan stands for, message by message."""
        net = ["--net", f"L={ALPHA_US},G={BETA:.15g}", "--compute", f"reduce={GAMMA}"]
        ring = ["-n", str(nodes), "--merge", method, "--algo", "ring", "--segment", "0", *net]
        return self.ask(["sim", "merged-allreduce", "--layers"], ring)[0]["time_us"]

    def speedups(self, nodes):
        """By the throughput of a node alone."""
        return {method: nodes * self.alone_us / (self.forward_us + plan["end_us"])
                for method, plan in self.plans(nodes).items()}


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def head(*cells):
    row(*cells)
    print("| --- |" + " ---: |" * (len(cells) - 1))


def ratios(speedup):
    return [f"{speedup['greedy'] / speedup['wfbp']:.2f}", f"{speedup['greedy'] / speedup['single']:.2f}",
            f"{speedup['exact'] / speedup['greedy']:.4f}"]


# ---- tables ----

def table_headlines(weft, cases):
    print("\nHeadlines, how many times as fast:\n")
    head("", "than", "paper", "MG-WFBP (greedy)", "exact", "greedy, fitted", "exact, fitted")
    for nodes in (8, 64):
        for network, case in cases.items():
            paper = PAPER[network] if nodes == 64 else (1.2, 1.36)
            fitted = Case(weft, network, slower=fit(weft, network, 64, PAPER[network][0], "slower", 0.5, 2.0))
            found = [case.speedups(nodes), fitted.speedups(nodes)]
            for other, value in zip(("wfbp", "single"), paper):
                row(f"{NAMES[network]}, {nodes} nodes", SHOWN[other], f"{value:.2f}",
                    *(f"{speedup[m] / speedup[other]:.2f}" for speedup in found for m in ("greedy", "exact")))


def table_costs():
    print("\nCosts:\n")
    head("nodes", "2", "4", "8", "16", "32", "64")
    nodes = [2, 4, 8, 16, 32, 64]
    row("a, us", *(f"{2 * (n - 1) * ALPHA_US:.2f}" for n in nodes))
    row("b, us a byte", *(f"{(n - 1) / n * (2 * BETA + GAMMA):.6f}" for n in nodes))
    cells = []
    for n in nodes:
        if n > 8:
            cells.append("")
            continue
        measured = MEASURED["resnet50"]
        extra = 2 * 32e6 * (1 / measured["single"][FEW.index(n)] - 1 / measured["alone"])
        ours = 2 * (n - 1) * ALPHA_US + (n - 1) / n * (2 * BETA + GAMMA) * 4 * 25557032
        cells.append(f"{ours / 1e3:.0f}, {extra / 1e3:.0f}")
    row("all of ResNet-50, ms: this, measured", *cells)


def table_few(cases):
    print("\nFig. 6 and 7, speedup over one machine:\n")
    head("", "nodes", *(f"{SHOWN[m]}, measured" for m in ("wfbp", "single", "greedy")),
         *(SHOWN[m] for m in METHODS))
    for network, case in cases.items():
        for i, nodes in enumerate(FEW):
            measured, speedup = MEASURED[network], case.speedups(nodes)
            row(NAMES[network], str(nodes),
                *(f"{nodes * measured[m][i] / measured['alone']:.2f}" for m in ("wfbp", "single", "greedy")),
                *(f"{speedup[m]:.2f}" for m in METHODS))


def exposed(network, case):
    """Milliseconds after the last gradient: (measured, simulated), by method and nodes."""
    result = {}
    for i, nodes in enumerate(FEW):
        plans = case.plans(nodes)
        for method in METHODS:
            measured = MEASURED[network].get(method)
            seconds = 2 * BATCH[network] * (1 / measured[i] - 1 / MEASURED[network]["alone"]) if measured else None
            result[method, nodes] = (seconds and 1e3 * seconds,
                                     (plans[method]["end_us"] - plans[method]["ready_us"]) / 1e3)
    return result


def table_exposed(cases):
    print("\nFig. 8, milliseconds that are not hidden (measured, this):\n")
    head("", "computation", *(f"{SHOWN[m]}, {n} nodes" for m in ("wfbp", "single", "greedy") for n in FEW))
    for network, case in cases.items():
        times = exposed(network, case)
        row(NAMES[network], f"{case.alone_us / 1e3:.0f}",
            *(f"{times[m, n][0]:.0f}, {times[m, n][1]:.1f}" for m in ("wfbp", "single", "greedy") for n in FEW))


def table_many(cases):
    print("\nFig. 9, speedup over one node:\n")
    head("", "nodes", *(SHOWN[m] for m in METHODS), "MG-WFBP by WFBP", "by SyncEASGD", "exact by MG-WFBP")
    for network, case in cases.items():
        for nodes in MANY:
            speedup = case.speedups(nodes)
            row(NAMES[network], str(nodes), *(f"{speedup[m]:.2f}" for m in METHODS), *ratios(speedup))


def table_simulated(cases):
    print("\nPlanned and simulated, milliseconds:\n")
    shown = ["wfbp", "single", "greedy", "exact"]
    head("", "nodes", *(f"{SHOWN[method]}: plan, simulation" for method in shown))
    for network, case in cases.items():
        for nodes in (8, 64):
            plans = case.plans(nodes)
            row(NAMES[network], str(nodes),
                *(f"{plans[m]['end_us'] / 1e3:.2f}, {case.simulated_us(nodes, m) / 1e3:.2f}" for m in shown))


def fit(weft, network, nodes, wanted, change, low, high):
    """The value of setting `change` with which MG-WFBP by WFBP is `wanted`, which rises with it or falls."""
    def ratio(value):
        speedup = Case(weft, network, **{change: value}).speedups(nodes)
        return speedup["greedy"] / speedup["wfbp"]
    rises = ratio(high) > ratio(low)
    while high - low > 1e-4:
        middle = (low + high) / 2
        if (ratio(middle) < wanted) == rises:
            low = middle
        else:
            high = middle
    return low


def table_sensitivity(weft):
    print("\nSensitivity, 8 and 64 nodes:\n")
    head("", "changed", "by WFBP, 8", "by SyncEASGD, 8", "exact, 8", "by WFBP, 64", "by SyncEASGD, 64", "exact, 64")
    for network in ("googlenet", "resnet50"):
        measured = MEASURED[network]
        row(NAMES[network], "measured; the paper",
            *(f"{measured['greedy'][-1] / measured[m][-1]:.2f}" for m in ("wfbp", "single")), "", *(f"{x:.2f}" for x in PAPER[network]), "")
        right = fit(weft, network, 64, PAPER[network][0], "slower", 0.5, 2.0)
        late = fit(weft, network, 8, MEASURED[network]["greedy"][-1] / MEASURED[network]["wfbp"][-1], "a", 1.0, 8.0)
        changes = [("nothing", {}), ("weights with biases", {"tensors": False}),
                   (f"iteration {100 * abs(right - 1):.0f} % {'longer' if right > 1 else 'shorter'} (fitted)",
                    {"slower": right}),
                   ("iteration 25 % shorter", {"slower": 0.75}), ("iteration 25 % longer", {"slower": 1.25}),
                   ("b 25 % less", {"b": 0.75 * (2 * BETA + GAMMA)}),
                   ("b 25 % more", {"b": 1.25 * (2 * BETA + GAMMA)}), ("b of the text", {"b": TEXT_B}),
                   ("a half", {"a": 0.5}), ("a twice", {"a": 2.0}),
                   (f"a {late:.1f} times (fitted)", {"a": late})]
        for text, change in changes:
            case = Case(weft, network, **change)
            row(NAMES[network], text, *ratios(case.speedups(8)), *ratios(case.speedups(64)))
        if network == "googlenet":
            case = Case(weft, "googlenet-bn")
            row(NAMES["googlenet-bn"], "nothing", *ratios(case.speedups(8)), *ratios(case.speedups(64)))


def table_exact(weft):
    print("\n64 nodes, how much earlier an iteration ends by the exact plan than by the greedy one:\n")
    factors = [1, 2, 4, 8, 16, 32]
    head("", *(f"GPU {factor} times as fast" if factor > 1 else "K80" for factor in factors))
    for network, name in NAMES.items():
        cells = []
        for factor in factors:
            speedup = Case(weft, network, slower=1 / factor).speedups(64)
            cells.append(f"{100 * (speedup['exact'] / speedup['greedy'] - 1):.1f} %")
        row(name, *cells)


# ---- the picture ----

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
DASHES = {"greedy": "", "exact": "5 4", "wfbp": "", "single": "", "bucket:26214400": "2 3"}


class Panel:
    """Linear axes from 0."""

    def __init__(self, x, y, width, height, x_high, y_high):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.x_high, self.y_high = x_high, y_high
        self.out = []

    def at(self, x, y):
        return self.x + x / self.x_high * self.width, self.y + (1 - y / self.y_high) * self.height

    def text(self, x, y, text, style, anchor="middle", fill=None):
        colour = f' fill="{fill}"' if fill else ""
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}"{colour}>{text}</text>')

    def frame(self, title, x_ticks, y_ticks, x_label):
        self.text(self.x, self.y - 14, title, "title", "start")
        for value in y_ticks:
            _, y = self.at(0, value)
            self.out.append(f'<line x1="{self.x}" x2="{self.x + self.width}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            self.text(self.x - 8, y + 4, f"{value:g}", "tick", "end")
        foot = self.y + self.height
        for value, text in x_ticks:
            x, _ = self.at(value, 0)
            self.text(x, foot + 19, text, "tick")
        self.out.append(f'<line x1="{self.x}" x2="{self.x + self.width}" y1="{foot}" y2="{foot}" class="axis"/>')
        self.text(self.x + self.width / 2, foot + 40, x_label, "label")

    def line(self, points, colour, dashes="", width=2.2, marks=True):
        places = [self.at(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        self.out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
                        f'stroke-dasharray="{dashes or "none"}" stroke-linejoin="round"/>')
        self.out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>' for x, y in places if marks]

    def names(self, ends):
        """Names at the ends of lines, moved apart where they would touch."""
        places = sorted((self.at(*end)[1], name, colour) for end, name, colour in ends)
        ys = [place[0] for place in places]
        for i in range(1, len(ys)):
            ys[i] = max(ys[i], ys[i - 1] + 16)
        for y, (_, name, colour) in zip(ys, places):
            self.text(self.x + self.width + 8, y + 4, name, "name", "start", colour)

    def bar(self, x, wide, value, colour, hollow):
        left, top = self.at(x, value)
        right, _ = self.at(x + wide, value)
        high = self.y + self.height - top
        paint = f'fill="white" stroke="{colour}" stroke-width="1.6"' if hollow else f'fill="{colour}"'
        self.out.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left - 1:.1f}" '
                        f'height="{max(high, 0.6):.1f}" {paint}/>')


def draw_many(x, network, case):
    panel = Panel(x, 108, 300, 280, 64, 64)
    panel.frame(f"Fig. 9: {NAMES[network]}", [(n, str(n)) for n in MANY], [0, 16, 32, 48, 64], "nodes")
    panel.line([(0, 0), (64, 64)], "#bbbbbb", "2 3", 1.4, marks=False)
    found = {nodes: case.speedups(nodes) for nodes in MANY}
    ends = []
    for method in METHODS:
        points = [(nodes, found[nodes][method]) for nodes in MANY]
        panel.line(points, COLOURS[method], DASHES[method])
        ends.append((points[-1], SHOWN[method], COLOURS[method]))
    panel.names(ends)
    return panel.out


def draw_few(x, network, case):
    times = exposed(network, case)
    panel = Panel(x, 506, 300, 220, 3, 450)
    panel.frame(f"Fig. 8: {NAMES[network]}, of an iteration of {case.alone_us / 1e3:.0f} ms",
                [(i + 0.5, str(n)) for i, n in enumerate(FEW)], [0, 100, 200, 300, 400], "nodes")
    for i, nodes in enumerate(FEW):
        for j, method in enumerate(("wfbp", "single", "greedy")):
            at = i + 0.11 + 0.27 * j
            measured, simulated = times[method, nodes]
            panel.bar(at, 0.12, max(measured, 0), COLOURS[method], True)
            panel.bar(at + 0.12, 0.12, simulated, COLOURS[method], False)
    return panel.out


def draw(cases):
    width, height = 1080, 800
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}">', f"<style>{STYLE}</style>",
           f'<rect width="{width}" height="{height}" fill="white"/>',
           '<text x="24" y="30" class="head">Merged gradients on 10 Gbit/s Ethernet: Fig. 8 and 9 of MG-WFBP, '
           'planned by weft merge</text>',
           '<text x="24" y="50" class="sub">a = 2 (N - 1) 45.26 us, b = (N - 1) / N 4.487e-3 us a byte; K80, '
           'iterations of 784 ms (GoogLeNet) and 833 ms (ResNet-50), every tensor a layer</text>',
           '<text transform="translate(24 248) rotate(-90)" class="label" text-anchor="middle">speedup</text>',
           '<text transform="translate(24 616) rotate(-90)" class="label" text-anchor="middle">exposed '
           'communication, ms</text>']
    for i, (network, case) in enumerate(cases.items()):
        out += draw_many(74 + 530 * i, network, case)
        out += draw_few(74 + 530 * i, network, case)
    x = 74
    for text, hollow, colour in [("WFBP", False, COLOURS["wfbp"]), ("SyncEASGD", False, COLOURS["single"]),
                                 ("MG-WFBP (greedy)", False, COLOURS["greedy"]),
                                 ("hollow: measured by the authors; full: planned", True, "#444444")]:
        paint = f'fill="white" stroke="{colour}" stroke-width="1.6"' if hollow else f'fill="{colour}"'
        out.append(f'<rect x="{x}" y="776" width="12" height="12" {paint}/>')
        out.append(f'<text x="{x + 19}" y="786" class="tick">{text}</text>')
        x += 44 + 7 * len(text)
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: merge_figures.py WEFT FIGURE.svg")
    weft, path = sys.argv[1:]
    cases = {network: Case(weft, network) for network in MEASURED}
    with open(path, "w", encoding="utf-8") as file:
        file.write(draw(cases))
    table_headlines(weft, cases)
    table_costs()
    table_few(cases)
    table_exposed(cases)
    table_many(cases)
    table_simulated(cases)
    table_sensitivity(weft)
    table_exact(weft)


if __name__ == "__main__":
    main()

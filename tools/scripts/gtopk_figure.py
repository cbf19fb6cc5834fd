#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fig. 9 of gTop-k (Shi et al., ICDCS 2019), from simulated schedules.

    tools/scripts/gtopk_figure.py build/tools/weft docs/gtopk.svg

Draws how long aggregating gradients takes on the paper's network, by the number of ranks and by the
number of parameters, and prints the tables. Every time is what `weft sim` says of the schedule that
would run, with L = alpha, G = beta a byte, and nothing else. Standard library alone.
"""
import json
import math
import subprocess
import sys

ALPHA_MS, BETA_MS, DENSITY = 0.436, 3.6e-5, 0.001  # section IV-C; beta is of an element of 4 bytes
RANKS = [4, 8, 16, 32, 64, 128]
SIZES = [1e6, 2e6, 5e6, 10e6, 25e6, 50e6, 100e6]
SIZE, AT_RANKS = 25e6, 32

# name, words of weft sim, colour (told apart by all eyes), dashes
SERIES = [
    ("dense, ring", ["allreduce", "--algo", "ring", "--segment", "0"], "#666666", "6 3"),
    ("top-k, allgather", ["topk-allgather"], "#d55e00", ""),
    ("gTop-k, tree", ["gtopk", "--algo", "tree"], "#0072b2", ""),
    ("gTop-k, butterfly", ["gtopk", "--algo", "butterfly"], "#009e73", ""),
    ("Ok-Topk", ["oktopk"], "#aa4499", ""),
]


def simulate(weft, words, ranks, elements):
    """Milliseconds."""
    k = round(DENSITY * elements)
    net = f"L={ALPHA_MS * 1e3},G={BETA_MS * 1e3 / 4:.9g}"
    command = [weft, "sim", *words, "-n", str(ranks), "--count", f"{elements:.0f}", "--k", str(k),
               "--net", net, "--json"]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(line)["time_us"] / 1e3


def count_text(n):
    return f"{n / 1e6:g}M" if n >= 1e6 else f"{n:g}"


class Panel:
    """Axes with logarithmic scales."""

    def __init__(self, x, y, width, height, xs, low, high):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.xs, self.low, self.high = xs, low, high

    def at(self, x, y):
        a = math.log(x / self.xs[0]) / math.log(self.xs[-1] / self.xs[0])
        b = math.log(y / self.low) / math.log(self.high / self.low)
        return self.x + a * self.width, self.y + (1 - b) * self.height

    def frame(self, title, label, ticks):
        out = [f'<text x="{self.x}" y="{self.y - 16}" class="title">{title}</text>']
        power = self.low
        while power <= self.high * 1.001:
            _, y = self.at(self.xs[0], power)
            out.append(f'<line x1="{self.x}" x2="{self.x + self.width}" y1="{y:.1f}" y2="{y:.1f}" '
                       'class="grid"/>')
            out.append(f'<text x="{self.x - 8}" y="{y + 4:.1f}" class="tick" '
                       f'text-anchor="end">{power:g}</text>')
            power *= 10
        for value, text in ticks:
            x, _ = self.at(value, self.low)
            bottom = self.y + self.height
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" '
                       'class="axis"/>')
            out.append(f'<text x="{x:.1f}" y="{bottom + 19}" class="tick" '
                       f'text-anchor="middle">{text}</text>')
        out.append(f'<line x1="{self.x}" x2="{self.x + self.width}" y1="{self.y + self.height}" '
                   f'y2="{self.y + self.height}" class="axis"/>')
        out.append(f'<text x="{self.x + self.width / 2}" y="{self.y + self.height + 42}" '
                   f'class="label" text-anchor="middle">{label}</text>')
        return out

    def line(self, points, colour, dashes):
        places = [self.at(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.2" '
               f'stroke-dasharray="{dashes or "none"}" stroke-linejoin="round"/>']
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{colour}"/>' for x, y in places]
        return out

    def names(self, ends):
        """Names at the ends of lines, moved apart where they would touch."""
        places = sorted((self.at(*end)[1], name, colour) for end, name, colour in ends)
        ys = [place[0] for place in places]
        for i in range(1, len(ys)):
            ys[i] = max(ys[i], ys[i - 1] + 17)
        x = self.x + self.width + 10
        return [f'<text x="{x}" y="{y + 4:.1f}" class="name" fill="{colour}">{name}</text>'
                for y, (_, name, colour) in zip(ys, places)]


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


def draw(by_ranks, by_size):
    width, height = 1080, 434
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}">', f"<style>{STYLE}</style>",
           f'<rect width="{width}" height="{height}" fill="white"/>',
           '<text x="24" y="30" class="head">Aggregating gradients on 1 Gbit/s Ethernet, '
           'simulated</text>',
           f'<text x="24" y="50" class="sub">alpha = {ALPHA_MS} ms, beta = {BETA_MS * 1e5:g}e-5 ms an element '
           f'of 4 bytes, density {DENSITY:g}: the setting of Shi et al., ICDCS 2019, Fig. 9'
           "</text>"]
    left = Panel(74, 102, 320, 270, RANKS, 1, 10000)
    right = Panel(610, 102, 320, 270, SIZES, 1, 10000)
    out.append('<text transform="translate(22 237) rotate(-90)" class="label" '
               'text-anchor="middle">time, ms</text>')
    for panel, data, title, label, ticks in (
            (left, by_ranks, f"{count_text(SIZE)} parameters", "ranks",
             [(p, p) for p in RANKS]),
            (right, by_size, f"{AT_RANKS} ranks", "parameters",
             [(m, count_text(m)) for m in SIZES])):
        out += panel.frame(title, label, ticks)
        ends = []
        for name, _, colour, dashes in SERIES:
            out += panel.line(data[name], colour, dashes)
            ends.append((data[name][-1], name, colour))
        out += panel.names(ends)
    return "\n".join(out + ["</svg>", ""])


def table(head, keys, data):
    names = [series[0] for series in SERIES]
    print(f"\n| {head} | " + " | ".join(names) + " | top-k by gTop-k, tree |")
    print("| ---: |" + " ---: |" * (len(names) + 1))
    for i, key in enumerate(keys):
        ratio = data["top-k, allgather"][i][1] / data["gTop-k, tree"][i][1]
        print(f"| {key} | " + " | ".join(f"{data[name][i][1]:.2f}" for name in names)
              + f" | {ratio:.2f} |")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: gtopk_figure.py WEFT FIGURE.svg")
    weft, path = sys.argv[1:]
    by_ranks = {name: [(p, simulate(weft, words, p, SIZE)) for p in RANKS]
                for name, words, _, _ in SERIES}
    by_size = {name: [(m, simulate(weft, words, AT_RANKS, m)) for m in SIZES]
               for name, words, _, _ in SERIES}
    with open(path, "w", encoding="utf-8") as file:
        file.write(draw(by_ranks, by_size))
    table("ranks", RANKS, by_ranks)
    table("parameters", [count_text(m) for m in SIZES], by_size)


if __name__ == "__main__":
    main()

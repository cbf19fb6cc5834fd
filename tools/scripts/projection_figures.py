#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What projections of real gradients lose: the figures and tables of docs/compression.md.

    tools/scripts/projection_figures.py build/tools/weft docs [ROWS.jsonl]

Trains, projects and measures by `weft bench projection --json`, or takes its output from ROWS.jsonl if that
exists, and writes it there if not. Draws docs/compression-slices.svg (figure 5 of GradiVeQ, NeurIPS 2018) and
docs/compression-losses.svg (the loss by components, samples and steps), and prints the tables. Gradients differ
in their last bits from machine to machine, and so do the figures. Standard library alone.
"""
import json
import math
import os
import subprocess
import sys

FIGURE_3 = "filters fastest"  # the order of elements
RATES = {0.01: "#0072b2", 0.1: "#d55e00"}
LAYER = ("resnet", "block1.conv1")  # 3 x 3, D = 16, F = 16: the one of the paper's figure 5
SHOWN = [("resnet", "block1.conv1"), ("resnet", "block2.conv3"), ("cnn", "conv2")]

STYLE = """
text { font-family: "DejaVu Sans", Helvetica, Arial, sans-serif; }
.head { font-size: 16px; font-weight: bold; fill: #222; }
.sub { font-size: 12px; fill: #555; }
.title { font-size: 13px; font-weight: bold; fill: #222; }
.label { font-size: 12.5px; fill: #222; }
.tick { font-size: 11.5px; fill: #444; }
.name { font-size: 12px; fill: #222; }
.grid { stroke: #e2e2e2; stroke-width: 1; }
.axis { stroke: #444; stroke-width: 1.2; }
"""


def load(weft, path):
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    else:
        out = subprocess.run([weft, "bench", "projection", "--json"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        if path:
            with open(path, "w", encoding="utf-8") as file:
                file.write(out)
        lines = out.splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row["rate"] = round(row["rate"], 6)
    return rows


def pick(rows, **wanted):
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


class Panel:
    """Axes; `x` and `y` map to 0 .. 1."""

    def __init__(self, left, top, width, height, x, y):
        self.left, self.top, self.width, self.height, self.x, self.y = left, top, width, height, x, y

    def at(self, x, y):
        return (self.left + self.x(x) * self.width,
                self.top + (1 - min(1, max(0, self.y(y)))) * self.height)

    def frame(self, title, label, ticks, heights, marks=()):
        bottom, right = self.top + self.height, self.left + self.width
        out = [f'<text x="{self.left}" y="{self.top - 14}" class="title">{title}</text>']
        for value, text in heights:
            _, y = self.at(ticks[0][0], value)
            out.append(f'<line x1="{self.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            out.append(f'<text x="{self.left - 8}" y="{y + 4:.1f}" class="tick" text-anchor="end">{text}</text>')
        for value in marks:
            x, _ = self.at(value, 0)
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self.top}" y2="{bottom}" class="grid" '
                       'stroke-dasharray="4 3" style="stroke: #bbb"/>')
        for value, text in ticks:
            x, _ = self.at(value, 0)
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" class="axis"/>')
            out.append(f'<text x="{x:.1f}" y="{bottom + 19}" class="tick" text-anchor="middle">{text}</text>')
        out.append(f'<line x1="{self.left}" x2="{right}" y1="{bottom}" y2="{bottom}" class="axis"/>')
        out.append(f'<text x="{self.left + self.width / 2}" y="{bottom + 40}" class="label" '
                   f'text-anchor="middle">{label}</text>')
        return out

    def line(self, points, colour, dashes="", dots=True):
        if not points:
            return []
        places = [self.at(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
               f'stroke-dasharray="{dashes or "none"}" stroke-linejoin="round"/>']
        if dots:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>' for x, y in places]
        return out


def legend(left, top, entries):
    out = []
    for i, (text, colour, dashes) in enumerate(entries):
        y = top + 19 * i
        out.append(f'<line x1="{left}" x2="{left + 26}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.4" '
                   f'stroke-dasharray="{dashes or "none"}"/>')
        out.append(f'<text x="{left + 33}" y="{y + 4}" class="name">{text}</text>')
    return out


def page(width, height, title, lines, body):
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}">', f"<style>{STYLE}</style>",
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="24" y="30" class="head">{title}</text>']
    head += [f'<text x="24" y="{50 + 17 * i}" class="sub">{line}</text>' for i, line in enumerate(lines)]
    return "\n".join(head + body + ["</svg>", ""])


def upright(left, middle, text):
    return [f'<text transform="translate({left} {middle}) rotate(-90)" class="label" '
            f'text-anchor="middle">{text}</text>']


SHARES = [(y / 100, f"{y} %") for y in (0, 25, 50, 75, 100)]


def multiples(row):
    return row["slice"] / (row["filters"] * row["depth"])


def draw_slices(rows):
    """The loss by the slice size."""
    body, width, height = [], 272, 250
    for i, (model, layer) in enumerate(SHOWN):
        both = pick(rows, study="slice", model=model, layer=layer, remark="lambda=0.01")
        mine = pick(both, order=FIGURE_3)
        row = mine[0]
        panel = Panel(74 + i * (width + 44), 112, width, height, lambda x: x / 4.6, lambda y: y)
        body += panel.frame(f'{model} {layer}: D = {row["depth"]}, F = {row["filters"]}',
                            "slice size K, in multiples of F D", [(x, str(x)) for x in range(0, 5)], SHARES,
                            range(1, 5))
        for rate, colour in RATES.items():
            for which, dashes in (("other slices", ""), ("first slice", "2 3")):
                points = [(multiples(row), row["weft"])
                          for row in pick(mine, rate=rate, slices=which)]
                body += panel.line(points, colour, dashes, dots=which != "first slice")
        body += panel.line([(multiples(row), row["weft"]) for row in both if row["order"] != FIGURE_3
                            and row["slice"] % (9 * row["depth"]) == 0
                            and row["rate"] == 0.01 and row["slices"] == "other slices"], "#888888", "", False)
    body += upright(24, 112 + height / 2, "loss, of the gradient's square")
    entries = []
    for rate, colour in RATES.items():
        entries += [(f"rate {rate}, other slices", colour, ""), (f"rate {rate}, first slice", colour, "2 3")]
    entries += [("rate 0.01, others, whole filters", "#888888", "")]
    body += legend(74 + 3 * (width + 44) - 26, 130, entries)
    return page(74 + 3 * (width + 44) + 250, 430, "The loss of a projection by the size of slices",
                ["Principal components of the first slice (λ = 0.01, 100 samples), on the 100 steps after the "
                 "samples; medians.", "Sums over 4 ranks of 32 images, optdigits, 3 x 3 convolutions; "
                 "steps of F D / 8."], body)


def by_samples(x):
    return math.log(x / 8) / math.log(500 / 8)


def draw_losses(rows):
    """Components, samples and steps, of one layer."""
    model, layer = LAYER
    mine = pick(rows, model=model, layer=layer)
    width, height, top = 268, 250, 112
    left = [74 + i * (width + 62) for i in range(3)]
    components = Panel(left[0], top, width, height, lambda x: math.sqrt(x / 100), lambda y: y)
    samples = Panel(left[1], top, width, height, by_samples, lambda y: y)
    steps = Panel(left[2], top, width, height, lambda x: x / 400, lambda y: y)
    body = components.frame("by components, K = 768, L = 100", "components d",
                            [(x, str(x)) for x in (0, 4, 16, 32, 64, 99)], SHARES)
    body += samples.frame("by samples, λ = 0.01", "samples L (above the marks: d)",
                          [(x, str(x)) for x in (10, 25, 50, 100, 200, 400)], SHARES)
    body += steps.frame("by steps since the last sample", "steps",
                        [(x, str(x)) for x in range(0, 401, 100)], SHARES)
    for rate, colour in RATES.items():
        of_rate = pick(mine, rate=rate)
        for which, when, dashes in (("first slice", "samples", "1 4"), ("first slice", "later", "6 3"),
                                    ("other slices", "later", "")):
            body += components.line([(row["components"], row["weft"]) for row in
                                     pick(of_rate, study="components", slices=which, steps=when)],
                                    colour, dashes, which == "other slices")
        for which, dashes in (("first slice", "6 3"), ("other slices", "")):
            points = pick(of_rate, study="samples", slices=which)
            body += samples.line([(row["samples"], row["weft"]) for row in points], colour, dashes,
                                 which == "other slices")
            if which == "other slices":
                for row in points:
                    x, y = samples.at(row["samples"], row["weft"])
                    body.append(f'<text x="{x:.1f}" y="{y - 8:.1f}" class="tick" text-anchor="middle" '
                                f'fill="{colour}">{row["components"]}</text>')
            body += steps.line([(row["step"] - 10, row["weft"]) for row in
                                pick(of_rate, study="drift", slices=which, gradient="sum")], colour, dashes,
                               False)
        body += steps.line([(row["step"] - 10, row["weft"]) for row in
                            pick(of_rate, study="drift", slices="other slices", gradient="rank 0")], colour,
                           "2 3", False)
    random = pick(mine, study="components", slices="other slices", steps="later", rate=0.01)
    body += components.line([(row["components"], row["peer_value"]) for row in random if row["peer_value"]],
                            "#888888", "", False)
    body += upright(24, top + height / 2, "loss, of the gradient's square")
    entries = []
    for rate, colour in RATES.items():
        entries += [(f"rate {rate}, other slices", colour, ""), (f"rate {rate}, first slice", colour, "6 3")]
    entries += [("first slice, samples", "#444444", "1 4"), ("random directions", "#888888", ""),
                ("rank 0 alone", "#444444", "2 3")]
    body += legend(left[2] + width + 24, 130, entries)
    return page(left[2] + width + 210, 430, f"What a projection loses: {model} {layer} (3 x 3, D = 16, F = 16)",
                ["Projections are made of the first slice's samples and used for the others; on later steps "
                 "unless said; medians.",
                 "Sums over 4 ranks of 32 images, optdigits. Rate 0.01: still learning; 0.1: learnt by heart."],
                body)


# ---- tables ----

def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def one(rows, **wanted):
    found = pick(rows, **wanted)
    return found[0] if found else None


def percent(row):
    return f'{100 * row["weft"]:.0f}' if row else "–"


def table_layers(rows):
    print("\nlambda = 0.01, 100 samples; losses in % of the gradient's square:\n")
    print("| net, rate | layer | K | d | K/d | later, first slice | later, other slices | rank 0 "
          "| 400 steps later | random |")
    print("| --- | --- |" + " ---: |" * 8)
    for rate in RATES:
        for row in pick(rows, study="reached", rate=rate):
            of = {"model": row["model"], "layer": row["layer"], "rate": rate}
            drift = {"study": "drift", **of}
            others = one(rows, study="samples", samples=100, slices="other slices", **of)
            near = pick(rows, study="components", slices="other slices", steps="later", **of)
            near = [r for r in near if r["peer_value"]]
            random = min(near, key=lambda r: abs(r["components"] - row["components"])) if near else None
            which = "other slices" if others else "first slice"
            print(f'| {row["model"]}, {rate} | `{row["layer"]}` | {row["slice"]} | {row["components"]} '
                  f'| {row["weft"]:.1f} | '
                  + " | ".join([percent(one(rows, study="samples", samples=100, slices="first slice", **of)),
                                percent(others),
                                percent(one(rows, slices=which, gradient="rank 0", step=100, **drift)),
                                percent(one(rows, slices=which, gradient="sum", step=400, **drift)),
                                f'{100 * random["peer_value"]:.0f}' if random else "–"]) + " |")


def table_dips(rows):
    print("\nOther slices, loss in %: at K = m F D, and the mean of K = (m - 1/8) F D and (m + 1/8) F D:\n")
    print("| net, rate | layer | m = 1 | beside | 2 | beside | 3 | beside | 4 | beside |")
    print("| --- | --- |" + " ---: |" * 8)
    for rate in RATES:
        layers = {(r["model"], r["layer"]): r for r in pick(rows, study="slice", rate=rate, order=FIGURE_3)}
        for (model, layer) in layers:
            mine = {multiples(row): row["weft"] for row in
                    pick(rows, study="slice", rate=rate, model=model, layer=layer, remark="lambda=0.01",
                         order=FIGURE_3, slices="other slices")}
            cells = []
            for m in (1, 2, 3, 4):
                cells += [f"{100 * mine[m]:.0f}", f"{50 * (mine[m - 1 / 8] + mine[m + 1 / 8]):.0f}"]
            print(f"| {model}, {rate} | `{layer}` | " + " | ".join(cells) + " |")


def table_samples(rows):
    print("\nd at lambda = 0.01 / loss of other slices in %, by samples:\n")
    counts = sorted({row["samples"] for row in pick(rows, study="samples")})
    print("| net, rate | layer | K | " + " | ".join(f"L = {count}" for count in counts) + " |")
    print("| --- | --- | ---: |" + " ---: |" * len(counts))
    for rate in RATES:
        layers = {(r["model"], r["layer"]): r for r in pick(rows, study="samples", rate=rate)}
        for (model, layer), first in layers.items():
            mine = {row["samples"]: row for row in
                    pick(rows, study="samples", rate=rate, model=model, layer=layer, slices="other slices")}
            if mine:
                print(f'| {model}, {rate} | `{layer}` | {first["slice"]} | '
                      + " | ".join(f'{mine[c]["components"]} / {100 * mine[c]["weft"]:.0f}' for c in counts)
                      + " |")


def table_orders(rows):
    print("\nK / d = 8, loss of other slices in %: d (K) of slices in the order of figure 3, and of whole filters:\n")
    print("| net, rate | layer | K = F D | K = 3 F D | K = D H W | K = 2 D H W | K = 4 D H W |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for rate in RATES:
        both = pick(rows, study="slice", rate=rate, remark="K/d=8", slices="other slices")
        layers = {(r["model"], r["layer"]): r for r in both if r["order"] != FIGURE_3}
        for (model, layer), row in layers.items():
            cells = []
            sizes = [(FIGURE_3, m * row["filters"] * row["depth"]) for m in (1, 3)]
            sizes += [(row["order"], m * row["depth"] * 9) for m in (1, 2, 4)]
            for order, size in sizes:
                found = one(both, model=model, layer=layer, order=order, slice=size)
                cells.append(f'**{100 * found["weft"]:.0f}** (K = {size}, d = {found["components"]})' if found else "–")
            print(f"| {model}, {rate} | `{layer}` | " + " | ".join(cells) + " |")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    rows = load(sys.argv[1], sys.argv[3] if len(sys.argv) == 4 else None)
    for name, text in (("slices", draw_slices(rows)), ("losses", draw_losses(rows))):
        with open(os.path.join(sys.argv[2], f"compression-{name}.svg"), "w", encoding="utf-8") as file:
            file.write(text)
    losses = sorted({(r["rate"], r["model"], r["training_loss"]) for r in rows})
    print("Mean training loss of the steps measured: "
          + ", ".join(f"{model} at {rate}: {loss:.2g}" for rate, model, loss in losses))
    table_layers(rows)
    table_dips(rows)
    table_orders(rows)
    table_samples(rows)


if __name__ == "__main__":
    main()

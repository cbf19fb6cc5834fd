#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How much of what ranks compute has messages beside it, of traces that `weft run --trace` has written.

    tools/scripts/hidden_share.py [-o FIGURE.svg] [TITLE=]TRACE.json[,SCHEDULE.json]...

A computation is hidden while a message to its rank is under way: from the start of the send to the end of the
receive. For each trace, of the last iteration: how long it took, what ranks have computed, and the share of that
which was hidden, by operation; SCHEDULE.json, from `weft dump --format json`, says which ones they are. FIGURE.svg
draws the iterations below each other on one scale. Of `weft sim --trace`, too, where a rank that receives does not
compute (docs/simulation.md). Standard library alone.
"""
import argparse
import json

COLOURS = {"project": "#0072b2", "quantise": "#0072b2", "reconstruct": "#d55e00", "dequantise": "#d55e00",
           "dequantise-add": "#e69f00", "reduce": "#009e73", "copy": "#cc79a7"}
COMMUNICATION = ("run", "send", "recv", "event", "signal", "message")


def operation(event, schedule):
    """project of project-768; dequantise-add of dequantise-add-4-512-max."""
    name = event["args"]["kind"]
    if name == "compute":
        name = event["args"].get("label") or schedule.get((event["args"]["rank"], event["args"]["node"]), name)
    return max((known for known in COLOURS if name == known or name.startswith(known + "-")), key=len, default=name)


def operations(path):
    """By rank and node."""
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        ranks = json.load(file)["ranks"]
    return {(r["rank"], i): node.get("op") for r in ranks for i, node in enumerate(r["nodes"])
            if node["kind"] == "compute"}


def union(spans):
    out = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def overlap(start, end, spans):
    return sum(max(0, min(end, b) - max(start, a)) for a, b in spans)


class Iteration:
    """The last execution of the plan that sends most."""

    def __init__(self, title, path):
        path, _, schedule = path.partition(",")
        schedule = operations(schedule)
        with open(path, encoding="utf-8") as file:
            events = json.load(file)
        events = events.get("traceEvents") if isinstance(events, dict) else events
        if events is None:
            raise SystemExit(f"hidden_share.py: {path} has no traceEvents: it is no trace of `weft run --trace`")
        spans = [e for e in events if e["ph"] == "X"]
        runs = [e for e in spans if e["args"]["kind"] == "run"]
        mine = spans  # of a simulation, which is one iteration
        if runs:
            # Of the plan that sends most: the others are what `weft run` needs between iterations.
            sent = {}
            for e in spans:
                sent[e["args"]["plan"]] = sent.get(e["args"]["plan"], 0) + e["args"].get("bytes", 0)
            plan = max(sent, key=sent.get)
            last = max((e for e in runs if e["args"]["plan"] == plan), key=lambda e: e["ts"])["args"]
            mine = [e for e in spans if all(e["args"].get(k) == last.get(k) for k in ("plan", "version", "object"))]
            runs = [e for e in mine if e["args"]["kind"] == "run"]
        self.title = title
        self.start = min(e["ts"] for e in runs or mine)
        self.end = max(e["ts"] + e["dur"] for e in runs or mine)
        self.ranks = sorted({e["args"]["rank"] for e in mine})
        self.computed = {rank: [] for rank in self.ranks}
        for e in mine:
            if e["args"]["kind"] not in COMMUNICATION:
                self.computed[e["args"]["rank"]].append((e["ts"], e["ts"] + e["dur"], operation(e, schedule)))
        self.incoming = self.messages(mine)

    def messages(self, mine):
        """What was under way to each rank: the i-th receive from a rank with a tag is of its i-th send."""
        ends = {"send": {}, "recv": {}}
        for e in sorted(mine, key=lambda e: e["ts"]):
            if e["args"]["kind"] in ends:
                rank, peer = e["args"]["rank"], e["args"]["peer"]
                pair = (rank, peer) if e["args"]["kind"] == "send" else (peer, rank)
                ends[e["args"]["kind"]].setdefault((*pair, e["args"].get("tag")), []).append(e)
        incoming = {rank: [] for rank in self.ranks}
        for pair, receives in ends["recv"].items():
            for send, receive in zip(ends["send"].get(pair, []), receives):
                incoming[pair[1]].append((send["ts"], receive["ts"] + receive["dur"]))
        return incoming

    def shares(self):
        """By operation: microseconds computed by all ranks together, and hidden."""
        out = {}
        for rank in self.ranks:
            under_way = union(self.incoming[rank])
            for start, end, name in self.computed[rank]:
                entry = out.setdefault(name, [0, 0])
                entry[0] += end - start
                entry[1] += overlap(start, end, under_way)
        return out


def report(iteration):
    shares = iteration.shares()
    compression = [v for name, v in shares.items() if name not in ("reduce", "copy")]
    total, hidden = (sum(v[i] for v in compression) for i in (0, 1))
    parts = ", ".join(f"{name} {v[0] / len(iteration.ranks) / 1e3:.2f} ms, {100 * v[1] / max(v[0], 1e-9):.0f} % hidden"
                      for name, v in sorted(shares.items()))
    print(f"{iteration.title}: {(iteration.end - iteration.start) / 1e3:.2f} ms; a rank computes {parts}")
    if total:
        print(f"  compression hidden: {100 * hidden / total:.0f} %")


STYLE = """
text { font-family: "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #222; }
.head { font-size: 16px; font-weight: bold; }
.title { font-size: 13px; font-weight: bold; }
.tick { font-size: 11px; fill: #444; }
"""


def draw(iterations):
    left, width, row = 90, 900, 11
    most = max(i.end - i.start for i in iterations)
    out, y, used = [], 78, set()
    for iteration in iterations:
        out.append(f'<text x="{left}" y="{y}" class="title">{iteration.title}: '
                   f'{(iteration.end - iteration.start) / 1e3:.1f} ms</text>')
        y += 10
        for rank in iteration.ranks:
            out.append(f'<text x="{left - 10}" y="{y + row + 3}" class="tick" text-anchor="end">rank {rank}</text>')
            for start, end in union(iteration.incoming[rank]):
                x = left + (start - iteration.start) / most * width
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{max((end - start) / most * width, 0.3):.1f}" '
                           f'height="{row - 2}" fill="#bbbbbb"/>')
            for start, end, name in iteration.computed[rank]:
                used.add(name)
                x = left + (start - iteration.start) / most * width
                out.append(f'<rect x="{x:.1f}" y="{y + row}" width="{max((end - start) / most * width, 0.4):.1f}" '
                           f'height="{row - 2}" fill="{COLOURS.get(name, "#666666")}"/>')
            y += 2 * row + 6
        y += 24
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000) if most / 1e3 / s <= 12)
    for tick in range(0, int(most / 1e3) + 1, step):
        x = left + tick * 1e3 / most * width
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="66" y2="{y - 14}" stroke="#e6e6e6"/>')
        out.append(f'<text x="{x:.1f}" y="{y}" class="tick" text-anchor="middle">{tick} ms</text>')
    x = left
    for name, colour in [("a message is under way", "#bbbbbb")] + [(n, COLOURS.get(n, "#666666")) for n in sorted(used)]:
        out.append(f'<rect x="{x}" y="{y + 18}" width="14" height="10" fill="{colour}"/>')
        out.append(f'<text x="{x + 19}" y="{y + 27}" class="tick">{name}</text>')
        x += 36 + 7 * len(name)
    lines = [o for o in out if o.startswith("<line")]
    rest = [o for o in out if not o.startswith("<line")]
    size = f'viewBox="0 0 {left + width + 40} {y + 44}" width="{left + width + 40}" height="{y + 44}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{STYLE}</style>",
                      '<rect width="100%" height="100%" fill="white"/>',
                      '<text x="24" y="34" class="head">What ranks receive (above) and compute (below)</text>',
                      *lines, *rest, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", metavar="FIGURE.svg", dest="figure")
    parser.add_argument("traces", metavar="[TITLE=]TRACE.json[,SCHEDULE.json]", nargs="+")
    options = parser.parse_args()
    iterations = [Iteration(*(word.rsplit("=", 1) if "=" in word else (word, word))) for word in options.traces]
    for iteration in iterations:
        report(iteration)
    if options.figure:
        with open(options.figure, "w", encoding="utf-8") as file:
            file.write(draw(iterations))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each node that computes takes in a GOAL file what it takes in a trace of weft sim, to the nanosecond.

    check_goal_costs.py FILE.goal TRACE.json
"""
import json
import re
import sys


def main():
    written, rank = {}, None
    for line in open(sys.argv[1], encoding="ascii"):
        head = re.fullmatch(r"rank (\d+) {\n", line)
        node = re.fullmatch(r"n(\d+): calc (\d+)\n", line)
        if head:
            rank = int(head.group(1))
        if node:
            written[rank, int(node.group(1))] = int(node.group(2))

    with open(sys.argv[2], encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    ranks = {e["pid"]: e["args"]["rank"] for e in events if e["name"] == "weft_rank"}
    found = {(ranks[e["pid"]], e["args"]["node"]): e["dur"] * 1000 for e in events
             if e["ph"] == "X" and e["args"]["kind"] in ("reduce", "copy", "compute")}
    if not found:
        sys.exit("nothing computes in %s" % sys.argv[2])
    for place, ns in sorted(found.items()):
        if abs(written.get(place, -1) - ns) > 1:
            sys.exit("rank %d node %d: %s ns in GOAL, %.3f in the simulation" %
                     (*place, written.get(place), ns))
    print("%d nodes, %.0f us" % (len(found), sum(found.values()) / 1000))


if __name__ == "__main__":
    main()

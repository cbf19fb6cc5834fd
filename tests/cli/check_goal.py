#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""GOAL files are what LogGOPSim's reader takes, and run to their end.

Stricter than that reader, which finds neither labels given twice nor peers that do not exist: every
message has one send and one receive of the same size, and all statements can be executed.

    check_goal.py FILE...
"""
import collections
import re
import sys

MESSAGE = re.compile(r"(?:([A-Za-z]\w*): )?(send|recv) (\d+)b (to|from) (\d+)"
                     r"(?: tag (\d+))?(?: cpu (\d+))?(?: nic (\d+))?", re.ASCII)
CALC = re.compile(r"(?:([A-Za-z]\w*): )?calc (\d+)(?: cpu (\d+))?", re.ASCII)
ORDER = re.compile(r"([A-Za-z]\w*) (requires|irequires) ([A-Za-z]\w*)", re.ASCII)
RANK = re.compile(r"rank (\d+) {")


class Fault(Exception):
    pass


def require(holds, text):
    if not holds:
        raise Fault(text)


class Rank:
    def __init__(self):
        self.labels = {}
        self.kinds = []
        self.messages = []  # (peer, tag, bytes), or None
        self.after = []

    def add(self, label, kind, message):
        if label:
            require(label not in self.labels, "label %s given twice" % label)
            self.labels[label] = len(self.kinds)
        self.kinds.append(kind)
        self.messages.append(message)
        self.after.append([])

    def statement(self, line, size):
        found = MESSAGE.fullmatch(line)
        if found:
            label, kind, length, word, peer, tag, cpu, nic = found.groups()
            require((kind == "send") == (word == "to"), "send to, recv from")
            require(int(peer) < size, "peer %s of %d ranks" % (peer, size))
            require(int(tag or 0) < 2**32 - 1, "tag beyond 32 bits, or any")
            require(0 < int(length) < 2**64, "size beyond 64 bits, or none")
            require(int(cpu or 0) < 256 and int(nic or 0) < 256, "cpu or nic beyond 8 bits")
            self.add(label, kind, (int(peer), int(tag or 0), int(length)))
            return
        found = CALC.fullmatch(line)
        if found:
            require(int(found.group(2)) < 2**64, "time beyond 64 bits")
            self.add(found.group(1), "calc", None)
            return
        found = ORDER.fullmatch(line)
        require(found, "no statement of GOAL")
        for label in found.group(1, 3):
            require(label in self.labels, "label %s before its node" % label)
        self.after[self.labels[found.group(1)]].append(self.labels[found.group(3)])


def parse(lines):
    ranks, size, inside = [], None, False
    for number, line in enumerate(lines, 1):
        try:
            if line.startswith("//") or not line:
                continue
            if size is None:
                found = re.fullmatch(r"num_ranks (\d+)", line)
                require(found, "num_ranks comes first")
                size = int(found.group(1))
            elif inside:
                if line == "}":
                    require(ranks[-1].kinds, "a rank without nodes")
                    inside = False
                else:
                    ranks[-1].statement(line, size)
            else:
                found = RANK.fullmatch(line)
                require(found and int(found.group(1)) == len(ranks), "ranks ascend from 0")
                ranks.append(Rank())
                inside = True
        except Fault as fault:
            raise Fault("line %d: %s: %s" % (number, line, fault)) from None
    require(not inside and len(ranks) == size, "%d ranks of %s" % (len(ranks), size))
    return ranks


def match(ranks):
    """Sends by what they match on; every receive has one, and the other way round."""
    sends, receives = {}, {}
    for r, rank in enumerate(ranks):
        for n, message in enumerate(rank.messages):
            if message:
                peer, tag, length = message
                is_send = rank.kinds[n] == "send"
                key = (r, peer, tag) if is_send else (peer, r, tag)
                table = sends if is_send else receives
                require(key not in table, "two with from, to, tag = %s" % (key,))
                table[key] = (r, n, length)
    require(sends.keys() == receives.keys(),
            "without the other end: %s" % sorted(sends.keys() ^ receives.keys())[:4])
    for key, send in sends.items():
        require(send[2] == receives[key][2], "sizes of %s differ" % (key,))
    return {sends[key][:2]: receives[key][:2] for key in sends}


def execute(ranks, pairs):
    missing = {(r, n): len(after) + (rank.kinds[n] == "recv")
               for r, rank in enumerate(ranks) for n, after in enumerate(rank.after)}
    successors = collections.defaultdict(list)
    for r, rank in enumerate(ranks):
        for n, after in enumerate(rank.after):
            for before in after:
                successors[r, before].append((r, n))
    for send, receive in pairs.items():
        successors[send].append(receive)
    ready = [node for node, count in missing.items() if not count]
    done = 0
    while ready:
        done += 1
        for node in successors[ready.pop()]:
            missing[node] -= 1
            if not missing[node]:
                ready.append(node)
    require(done == len(missing), "%d of %d nodes cannot run" % (len(missing) - done, len(missing)))


def main():
    for path in sys.argv[1:]:
        with open(path, encoding="ascii", newline="") as file:
            text = file.read()
        try:
            require(text.endswith("}\n"), "the end is missing")
            ranks = parse(text.split("\n")[:-1])
            execute(ranks, match(ranks))
        except Fault as fault:
            sys.exit("%s: %s" % (path, fault))
    return 0


if __name__ == "__main__":
    sys.exit(main())

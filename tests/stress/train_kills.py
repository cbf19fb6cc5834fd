#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Kills one of several processes of `weft train` with SIGKILL, at moments of the training that a seed draws.

    tests/stress/train_kills.py build/tools/weft                  200 moments, 4 processes, all algorithms
    tests/stress/train_kills.py build/tools/weft --moments 1 --seed 57 -v     one of them again

Every time the others must say who has died and how, go on as a context of three, and end with one model that
has learnt something. Nothing may be left: no process, no zombie, no file in /dev/shm, no socket. The times from
the kill to the report of each are printed, as quantiles; they are not judged.

With parameter servers nobody goes on: the training must fail within seconds, and say who has died and what it was.
Servers that nobody uses may die unnoticed.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

# Each with the options that it is played with.
ALGORITHMS = ["allreduce", "merged", "merged --merge-sparse topk", "merged --merge-sparse gtopk --merge-wait all", "local",
              "d-psgd", "sgp", "ad-psgd", "eager-solo", "eager-majority", "wagma", "topk", "gtopk", "oktopk", "qsgd",
              "qsgd --bits sign", "powersgd", "gradiveq", "gradiveq --compress-residual kept --loss-bound 1",
              "merged --merge-compress powersgd", "merged --merge-compress qsgd --merge-wait all",
              "allreduce --servers 2", "bsp", "asp --servers 2", "ssp --staleness 1", "dssp", "r2sp", "osp --osp-share 0.5",
              "bsp --servers 2 --co-located"]
SERVED = ("bsp", "asp", "ssp", "dssp", "r2sp", "osp")
# Of the mean of some seeds without a death, so much must be left: less is not training.
LEAST_ACCURACY = 0.5
PATIENCE_S = 60


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def regions(pid):
    """Memory of ranks that a process has mapped."""
    try:
        with open(f"/proc/{pid}/maps") as file:
            return len({line.split()[4] for line in file if "/memfd:" in line})
    except OSError:
        return 0


def names():
    """Of all that might be left, of trainings and of whatever else runs on this machine."""
    with open("/proc/net/unix") as file:
        sockets = {line.split()[-1] for line in file if "@weft" in line}
    return sockets | {name for name in os.listdir("/dev/shm") if "weft" in name}


def left_since(before):
    """What was not there before, and stays: others make names of their own, which go with them."""
    left, until = names() - before, time.monotonic() + PATIENCE_S
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left &= names()
    return sorted(left)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def has_gradiveq(weft):
    """It needs LAPACK."""
    return subprocess.run([weft, "train", "--algorithm", "gradiveq", "-n", "1", "--steps", "1"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def servers_of(algorithm):
    """How many processes there are on top of the ranks, and whether they are used."""
    words = algorithm.split()
    used = words[0] in SERVED
    if "--co-located" in words or not used and "--servers" not in words:
        return 0, used
    return int(words[words.index("--servers") + 1]) if "--servers" in words else 1, used


class Training:
    def __init__(self, weft, ranks, algorithm, steps, seed):
        self.lines = []  # of standard error, each with the time at which it came
        self.process = subprocess.Popen(
            [weft, "train", "--transport", "shared", "-n", str(ranks), "--algorithm", *algorithm.split(), "--steps",
             str(steps), "--seed", str(seed), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ranks = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.servers, self.served = servers_of(algorithm)
        self.size = ranks + self.servers

    def read(self):
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip()))

    def wait_until_it_trains(self):
        """Until all have mapped each other's memory."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self.process.poll() is None:
            self.ranks = children(self.process.pid)
            if len(self.ranks) == self.size and all(regions(pid) >= self.size for pid in self.ranks):
                return True
            time.sleep(0.002)
        return self.process.poll() == 0  # it was over before it was looked at

    def end(self):
        """The exit status and what it has printed; None: it hangs."""
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            for pid in children(self.process.pid):
                os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
            self.reader.join()
            return None, ""
        out = self.process.stdout.read()
        self.reader.join()
        return self.process.returncode, out


def tells_how(line):
    """The kernel does not say more than that it has ended until its parent has looked at it."""
    return "signal 9" in line or "process has ended" in line


def judge_served(training, victim, algorithm, status, text):
    """The same where nobody goes on."""
    if status == 0:
        return "no training"
    if "weft_context_create_world: the rendezvous" in text:
        return "no training"
    if status != 1:
        return f"exit status {status}\n{text}"
    if not any(f"{algorithm.split()[0]}: " in line and f"rank {victim}" in line and "died" in line and tells_how(line)
               for _, line in training.lines):
        return f"nobody says how rank {victim} has died\n{text}"
    first = training.size - training.servers
    if training.servers and (victim >= first) != (f"server {victim - first} of {training.servers}" in text):
        return f"what rank {victim} was is not said\n{text}"
    return None


def judge(training, victim, killed_at, algorithm, least, latencies):
    """What is wrong, or None; "no training": it had ended before, or not begun."""
    status, out = training.end()
    text = "\n".join(line for _, line in training.lines)
    if status is None:
        return f"hangs\n{text}"
    left = [pid for pid in training.ranks if lives(pid)]
    if left:
        return f"processes {left} are left"
    if training.served:
        return judge_served(training, victim, algorithm, status, text)
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    ranks = training.size - training.servers
    if victim >= ranks and status == 0 and rows and rows[0]["ranks"] == ranks and rows[0]["ranks_lost"] == 0:
        return None
    died = [(at, line) for at, line in training.lines if f": rank {victim} has died" in line and "are left" in line]
    if not died and status == 0 and rows and rows[0]["ranks_lost"] == 0:
        return "no training"
    if "weft_context_create_world: the rendezvous" in text:
        return "no training"
    if status != 0:
        return f"exit status {status}\n{text}"
    if len(died) != ranks - 1:
        return f"{len(died)} ranks say that rank {victim} has died\n{text}"
    if not all(tells_how(line) for _, line in died):
        return f"how it died is not said\n{text}"
    if len(rows) != 1 or rows[0]["ranks"] != ranks - 1 or rows[0]["ranks_lost"] != 1:
        return f"its result is {out!r}\n{text}"
    if not rows[0]["identical"]:
        return "the models are not the same in the end"
    if rows[0]["test_accuracy"] < least:
        return f"accuracy {rows[0]['test_accuracy']:.3f}, expected at least {least:.3f}"
    # The first that a rank says of it.
    noticed = [at for at, line in training.lines if ": step " in line or "has died" in line]
    latencies.append(min(noticed) - killed_at)
    latencies_of_all.append(max(at for at, _ in died) - killed_at)
    return None


latencies_of_all = []


def quantiles(values):
    values = sorted(values)
    at = lambda q: values[min(len(values) - 1, int(q * len(values)))]
    return "  ".join(f"{name} {1e3 * at(q):.1f}" for name, q in
                     [("least", 0), ("median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("most", 1)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--algorithm", help="one or more, joined by commas; default: all, in turns")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    algorithms = options.algorithm.split(",") if options.algorithm else [
        name for name in ALGORITHMS if not name.startswith("gradiveq") or has_gradiveq(options.weft)]
    before = names()
    whole, latencies, done, apart, seed = {}, [], 0, 0, options.seed
    while done < options.moments:
        draw = random.Random(seed)
        algorithm = algorithms[seed % len(algorithms)]
        if algorithm not in whole:
            training = Training(options.weft, options.ranks, algorithm, options.steps, 1)
            status, out = training.end()
            if status != 0:
                sys.exit(f"{algorithm} fails by itself: {training.lines}")
            whole[algorithm] = json.loads(out)
        training = Training(options.weft, options.ranks, algorithm, options.steps, seed)
        if not training.wait_until_it_trains():
            training.end()
            sys.exit(f"seed {seed}, {algorithm}: does not begin: {training.lines}")
        time.sleep(draw.random() * whole[algorithm]["seconds"])
        victim = draw.randrange(training.size)
        # Their numbers are in the order in which they were started.
        killed_at = time.monotonic()
        if len(training.ranks) == training.size:
            try:
                os.kill(training.ranks[victim], signal.SIGKILL)
            except ProcessLookupError:
                pass
            wrong = judge(training, victim, killed_at, algorithm, LEAST_ACCURACY * whole[algorithm]["test_accuracy"],
                          latencies)
        else:
            training.end()
            wrong = "no training"
        if wrong == "no training":
            apart += 1
            whole[algorithm]["seconds"] *= 0.9  # the one that was measured may have been slowed down
        elif wrong:
            sys.exit(f"seed {seed}, {algorithm}, rank {victim} killed: {wrong}")
        else:
            done += 1
        if options.verbose:
            print(f"seed {seed}, {algorithm}, rank {victim}: {wrong or ('was said' if training.served else 'went on')}", flush=True)
        seed += 1
        if apart > 10 + options.moments:
            sys.exit(f"{apart} of {seed - options.seed} trainings had ended before anybody was killed")
    left = left_since(before)
    if left:
        sys.exit(f"left: {left}")
    print(f"{done} moments, seeds {options.seed} to {seed - 1}, {apart} too early or too late; the others went on every time")
    if latencies:
        print(f"ms from the kill to the first word of it:  {quantiles(latencies)}")
        print(f"ms from the kill until all have said it:   {quantiles(latencies_of_all)}")


main()

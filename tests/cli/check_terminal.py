#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The command on a terminal of 80 columns: lines that fit, no escape sequences, no progress where it
would only be in the way; and what SIGINT and SIGTERM leave.

    check_terminal.py WEFT
"""
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

weft = sys.argv[1]
# Whoever runs this may ignore them, as nohup and shells do for what is in the background.
for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(ignored, signal.SIG_DFL)
WIDTH = 80
PATIENCE = 120
PROFILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiles", "world")


class Terminal:
    """A command whose standard error is a terminal, and its standard output too unless `piped`.
    `under` begins another one, which runs it, and may let it have the terminal WEFT_TEST_TERMINAL."""

    def __init__(self, *words, piped=False, term="xterm", width=WIDTH, under=(), **environment):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        env = dict(os.environ, TERM=term, OPENBLAS_NUM_THREADS="1", **environment)
        env.pop("COLUMNS", None)
        env.update(environment, WEFT_TEST_TERMINAL=os.ttyname(slave))
        self.process = subprocess.Popen(
            [*under, weft, *words], stdin=subprocess.DEVNULL, env=env, stderr=slave,
            stdout=subprocess.PIPE if piped else slave, start_new_session=True)
        os.close(slave)
        self.seen = b""
        self.out = b""

    def read(self, until=None):
        """Reads until `until` stands in what the terminal or the pipe has got; None: to the end."""
        files = [self.master] + ([self.process.stdout.fileno()] if self.process.stdout else [])
        end = time.monotonic() + PATIENCE
        while files and not (until and (until in self.seen or until in self.out)):
            ready = select.select(files, [], [], max(0, end - time.monotonic()))[0]
            assert ready, f"nothing for {PATIENCE} s; terminal: {self.seen!r}, output: {self.out!r}"
            for file in ready:
                try:
                    data = os.read(file, 65536)
                except OSError:
                    data = b""
                if not data:
                    files.remove(file)
                elif file == self.master:
                    self.seen += data
                else:
                    self.out += data
        return self

    def wait(self):
        self.read()
        os.close(self.master)
        return self.process.wait(PATIENCE)

    def status_of(self, field):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1], 16)
        return 0

    def wait_for(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.001)

    def screen(self):
        """The lines that stand there in the end: what a carriage return goes back over is replaced."""
        lines = []
        for line in self.seen.decode().replace("\r\n", "\n").split("\n"):
            shown = []
            for part in line.split("\r"):
                shown[:len(part)] = part
            lines.append("".join(shown).rstrip())
        return lines


def fits(*words, width=WIDTH, **environment):
    terminal = Terminal(*words, width=width, **environment)
    assert terminal.wait() == 0, terminal.seen
    limit = int(environment.get("COLUMNS", width))
    for line in terminal.screen():
        assert len(line) <= limit, f"weft {' '.join(words)}: {len(line)} columns: {line}"
    assert b"\x1b" not in terminal.seen
    return "\n".join(terminal.screen())


# lines that fit; in a pipe they are as long as they are
for words in (["--help"], ["list"], ["list", "-a"], ["list", "oktopk"], ["run", "--help"], ["train", "--help"],
              ["info"], ["bench"], ["groups", "-n", "8"],
              ["bench", "merge", "--rounds", "1"],
              ["profile", "--read", PROFILE], ["profile", "--read", PROFILE, "-c"],
              ["train", "--algorithm", "allreduce,local", "--steps", "3", "-n", "2"]):
    for width in (80, 120):
        text = fits(*words, width=width)
        if words == ["list"]:
            assert "allreduce" in text and "sparse-average" in text
fits("list", COLUMNS="100")
# prose is broken where a table no longer can be
for words in (["info"], ["groups", "-n", "8"], ["check", "allreduce", "-n", "4"],
              ["run", "allreduce", "-n", "2", "--verify"]):
    fits(*words, width=40)
terminal = Terminal("list", width=40)
assert terminal.wait() == 0
assert "weft list NAME describes its result and\neach of its algorithms." in "\n".join(terminal.screen())
assert "critical path" in fits("sim", "allreduce", "-n", "4", width=50)
piped = subprocess.run([weft, "list"], check=True, capture_output=True, text=True, env=dict(
    os.environ, COLUMNS="80")).stdout
assert max(map(len, piped.splitlines())) > 150
table = fits("train", "--algorithm", "allreduce,local", "--steps", "3", "-n", "2")
assert table.count("allreduce") == 2, table  # the columns that had no room, behind the first again

# progress: erased in the end, none on a dumb terminal, no escapes anywhere
words = ["train", "--algorithm", "allreduce", "--steps", "60", "--compute", "10", "-n", "2"]
terminal = Terminal(*words, "--json", piped=True)
assert terminal.wait() == 0
assert b"step " in terminal.seen and b"\x1b" not in terminal.seen, terminal.seen
assert "".join(terminal.screen()) == "", terminal.screen()
for environment in ({"term": "dumb"}, {"term": ""}):
    terminal = Terminal(*words, "--json", piped=True, **environment)
    assert terminal.wait() == 0
    assert terminal.seen == b"", terminal.seen

# a signal: what is done is told, the partial one marked, the line of progress erased
words = ["train", "--algorithm", "allreduce,local", "--steps", "100000", "--compute", "2", "-n", "3"]
for number in (signal.SIGINT, signal.SIGTERM):
    for transport in (["--transport", "local"], ["--transport", "virtual"]):
        terminal = Terminal(*words, *transport, "--json", piped=True).read(b"step ")
        terminal.process.send_signal(number)
        assert terminal.wait() == 128 + number, (terminal.process.returncode, terminal.seen)
        lines = [json.loads(line) for line in terminal.out.splitlines()]
        assert [line["algorithm"] for line in lines] == ["allreduce"], lines
        assert lines[0]["interrupted"] is True and 0 < lines[0]["steps"] < 100000
        assert lines[0]["identical"] is True
        assert "step" not in "".join(terminal.screen()), terminal.screen()
terminal = Terminal(*words, width=200).read(b"step ")
terminal.process.send_signal(signal.SIGINT)
assert terminal.wait() == 130
assert any(line.startswith("allreduce (interrupted)") for line in terminal.screen())

# over MPI rank 0 tells what it knows, and waits for nobody
with_mpi = os.environ.get("WEFT_TEST_MPI", "1") == "1" and shutil.which("mpiexec") and "mpi" in json.loads(
    subprocess.run([weft, "info", "--json"], check=True, capture_output=True).stdout)["transports"]
launcher = ["mpiexec", "-n", "3", "sh", "-c", 'exec "$0" "$@" 2>"$WEFT_TEST_TERMINAL"']
words = ["train", "--transport", "mpi", "--steps", "100000", "--compute", "2", "--algorithm"]
for number in (signal.SIGINT, signal.SIGTERM) if with_mpi else ():
    for algorithm in ("allreduce,local", "wagma"):
        terminal = Terminal(*words, algorithm, "--json", piped=True, under=launcher).read(b"step ")
        terminal.process.send_signal(number)
        terminal.wait()
        lines = [json.loads(line) for line in terminal.out.splitlines() if line.startswith(b"{")]
        assert [line["algorithm"] for line in lines] == algorithm.split(",")[:1], terminal.out
        assert lines[0]["interrupted"] is True and 0 < lines[0]["steps"] < 100000
        assert lines[0]["identical"] is None and lines[0]["ranks"] == 3
    terminal = Terminal(*words, "allreduce", piped=True, under=launcher).read(b"step ")
    terminal.process.send_signal(number)
    terminal.wait()
    assert b"\nallreduce (interrupted)" in terminal.out, terminal.out
if not with_mpi:
    print("skipped: signals over MPI were not tested (no MPI, or WEFT_TEST_MPI=0)")

# over processes that it starts itself, too; those that miss rank 0 then do not go on, and say nothing
words = ["train", "--transport", "shared", "-n", "3", "--steps", "100000", "--compute", "2", "--json"]
for number in (signal.SIGINT, signal.SIGTERM):
    for on_death in ("go-on", "stop"):
        terminal = Terminal(*words, "--on-death", on_death, piped=True).read(b"step ")
        terminal.process.send_signal(number)
        assert terminal.wait() == 128 + number, (terminal.process.returncode, terminal.seen)
        lines = [json.loads(line) for line in terminal.out.splitlines()]
        assert len(lines) == 1 and lines[0]["interrupted"] is True and lines[0]["ranks"] == 3, lines
        shown = [line for line in terminal.screen() if line]
        assert shown == ["weft train: interrupted: what is shown is what was done"], shown

# the ones before it are whole; all of them would take many minutes
words = ["train", "--algorithm", "allreduce,local", "--seeds", "1000", "--steps", "100", "--compute", "5", "-n", "2"]
terminal = Terminal(*words, "--json", piped=True).read(b"}\n")
terminal.process.send_signal(signal.SIGINT)
assert terminal.wait() == 130
lines = [json.loads(line) for line in terminal.out.splitlines()]
for line in lines[:1] + lines[:-1]:
    assert line["interrupted"] is False and line["steps"] == 100, line
assert lines[-1]["interrupted"] is False or lines[-1]["steps"] < 100, lines[-1]

# a second one ends it at once: the first waits for a step that lasts an hour, if that has begun; a training
# that has not begun one ends with the first
for tries in range(100):
    terminal = Terminal("train", "-n", "2", "--imbalance", "fixed:0,3600000", "--patience", "0")
    terminal.wait_for(lambda: terminal.status_of("SigCgt") >> (signal.SIGINT - 1) & 1)
    time.sleep(0.01 * tries)
    terminal.process.send_signal(signal.SIGINT)
    while terminal.process.poll() is None and (terminal.status_of("ShdPnd") or terminal.status_of("SigPnd")):
        time.sleep(0.001)
    terminal.process.send_signal(signal.SIGINT)
    if terminal.wait() != 130:
        break
assert terminal.process.returncode == -signal.SIGINT, terminal.process.returncode
print("as it should be")

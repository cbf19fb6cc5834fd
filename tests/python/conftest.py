# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the Python package share, and `pytest --tap`, which prints results as TAP."""
import faulthandler
import functools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

#: A test that takes longer hangs: who is where is printed, and the program ends.
LONGEST = 240


# ---- TAP ----


def pytest_addoption(parser):
    parser.addoption("--tap", action="store_true", help="print results as TAP")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if config.getoption("--tap") or os.environ.get("WEFT_TAP"):
        terminal = config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None:
            config.pluginmanager.unregister(terminal)
        config.pluginmanager.register(Tap(), "tap")


class Tap:
    """Prints a line for each test, and why it failed behind `#`."""

    def __init__(self):
        self.count = 0
        self.out = os.fdopen(os.dup(1), "w", buffering=1)  # what pytest captures is another file

    def line(self, good, name, comment="", text=""):
        self.count += 1
        self.out.write("%sok %d - %s%s\n" % ("" if good else "not ", self.count, name, comment))
        for line in text.splitlines():
            self.out.write("# %s\n" % line)

    def skip(self, name, reason):
        self.line(True, name, " # SKIP %s" % " ".join(str(reason).replace("Skipped: ", "").split()))

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.replace("#", "")
        if report.failed:
            captured = "".join("\n-- %s\n%s" % section for section in report.sections)
            self.line(False, name if report.when == "call" else "%s (%s)" % (name, report.when),
                      text=report.longreprtext + captured)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.wasxfail
            self.skip(name, reason)
        elif report.when == "call":
            self.line(True, name)

    def pytest_collectreport(self, report):
        if report.failed:
            self.line(False, report.nodeid or "collection", text=report.longreprtext)
        elif report.skipped:  # importorskip at the top of a file
            self.skip(report.nodeid, report.longrepr[2])

    def pytest_internalerror(self, excrepr):
        self.line(False, "pytest itself", text=str(excrepr))

    def pytest_sessionfinish(self, session):
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.count:
            session.exitstatus = pytest.ExitCode.OK  # all were skipped
        self.out.write("1..%d\n" % self.count)
        self.out.flush()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


# ---- what tests share ----


@pytest.fixture
def alone():
    """The context of a world of one rank."""
    import weft

    with weft.LocalGroup(1).context(0) as context:
        yield context


@pytest.fixture
def pair():
    """Both contexts of two local ranks with helpers, so that either goes on by itself."""
    import weft

    group = weft.LocalGroup(2)
    contexts = [group.context(rank, progress="helper") for rank in range(2)]
    yield contexts
    for context in contexts:
        context.close()


#: How an MPI is called: its launcher, and what it and mpi4py are told.
MPIS = {
    "MPICH": ("mpiexec.mpich", {"MPI4PY_MPIABI": "mpich"}),
    "Open MPI": ("mpiexec.openmpi", {
        "MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": "libmpi.so.40", "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_plm_rsh_agent": ""})}

ASK_MPI = """
import ctypes
from weft import _mpi
from weft._library import companion
print(_mpi._version_of(ctypes.CDLL(companion("libweft-mpi.so.0"))))
"""


@functools.lru_cache(maxsize=None)
def mpi_of_weft():
    """The MPI that weft was built for: its name, launcher and environment. Skips the test where there is none."""
    said = subprocess.run([sys.executable, "-c", ASK_MPI], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    if "libweft-mpi" in said.stderr:
        pytest.skip("weft was built without MPI")
    assert said.returncode == 0, said.stderr
    name = "Open MPI" if "Open MPI" in said.stdout else "MPICH"
    launcher, environment = MPIS[name]
    mpiexec = shutil.which(launcher) or shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("there is no %s" % launcher)
    return name, mpiexec, environment


class Ended:
    """How a program has ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return "exit status %s\n-- stdout\n%s\n-- stderr\n%s" % (self.code, self.out, self.err)


def start(text, *arguments, python=sys.executable, environment=None, before=()):
    """Starts a program in a process of its own; `before`: what starts Python."""
    given = dict(os.environ, PYTHONFAULTHANDLER="1", **(environment or {}))
    return subprocess.Popen(
        list(before) + [python, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(text)] +
        [str(argument) for argument in arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, env=given, cwd="/")


def finish(process, timeout=120):
    """Waits for the end of a program; who hangs says where, and fails the test."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler prints
        out, err = process.communicate()
        pytest.fail("the program hangs\n%s" % Ended(process.returncode, out, err))
    return Ended(process.returncode, out, err)


def execute(text, *arguments, timeout=120, **how):
    """Runs a program to its end."""
    return finish(start(text, *arguments, **how), timeout)


def well(ended, out=None):
    """Asserts that a program has ended well, and what it has printed, and that it complained of nothing."""
    assert ended.code == 0, str(ended)
    assert not ended.err, str(ended)
    if out is not None:
        assert ended.out == out, str(ended)
    return ended


def in_threads(*functions):
    """Runs functions in threads, at once; raises what one of them raises. Returns what they return."""
    results, problems = [None] * len(functions), []

    def call(i):
        try:
            results[i] = functions[i]()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return results


#: What programs begin with that tests start.
BEGIN = """
import atexit, gc, os, signal, sys, threading, time
import numpy
import weft
def exchange(context):
    s = weft.Schedule(context.rank, 2)
    x, y = s.slot("x", "f64", 4), s.slot("y", "f64", 4, "output")
    s.send(x, 1 - context.rank), s.recv(y, 1 - context.rank)
    return s.commit()
group = weft.LocalGroup(2)
"""


def event_plan(context):
    """A plan of a copy that an event holds, and the event."""
    import weft

    s = weft.Schedule(context.rank, context.size)
    x = s.slot("x", "f64", 4)
    go = s.event()
    s.copy(s.slot("y", "f64", 4, "output"), x, after=go)
    return s.commit(), go


def exchange(context):
    """A plan in which both ranks of two need each other."""
    import weft

    s = weft.Schedule(context.rank, 2)
    x, y = s.slot("x", "f64", 4), s.slot("y", "f64", 4, "output")
    s.send(x, 1 - context.rank), s.recv(y, 1 - context.rank)
    return s.commit()


def gone(what, seconds=60):
    """Waits until a thread has done what is to be done."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.001)

# SPDX-License-Identifier: BSD-3-Clause
"""Memory: what is made and ended again and again takes no more after a while.

WEFT_PYTHON_LEAKS is how often: 100000 for a thorough look.
"""
import gc
import os
import time

import numpy
import pytest

import weft
from conftest import event_plan, exchange, gone
from weft import _life

OFTEN = int(os.environ.get("WEFT_PYTHON_LEAKS", "2000"))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ending():
    """Whether a context is being ended, or waits for the thread that does."""
    records = [known() for known in list(_life._contexts.values())]
    return any(record is not None and record.pointer is None for record in records)


class Steady:
    """Memory, and what is registered, after so many repetitions, against what it was after some."""

    def __init__(self, function, times, before=None):
        before = before or max(times // 5, 50)
        self.repeat(function, before)
        self.first = self.look()
        began = time.monotonic()
        self.repeat(function, times)
        self.seconds = time.monotonic() - began
        self.last = self.look()
        self.times = times

    @staticmethod
    def repeat(function, times):
        for _ in range(times):
            function()

    @staticmethod
    def look():
        gc.collect()
        for record in filter(None, [known() for known in list(_life._contexts.values())]):
            for _ in range(2 * len(record.garbage)):
                record.sweep_garbage()
        gone(lambda: not ending())
        gc.collect()
        return resident(), len(_life._functions), len(_life._contexts), len(gc.get_objects())

    def check(self, bytes_each=16, most=3 << 20):
        grown = self.last[0] - self.first[0]
        print("%d times: %+d KiB, %+d functions, %+d contexts, %+d objects, %.2f us each" % (
            self.times, grown >> 10, self.last[1] - self.first[1], self.last[2] - self.first[2],
            self.last[3] - self.first[3], 1e6 * self.seconds / self.times))
        assert grown <= max(most, bytes_each * self.times)
        # What was lost last may wait for the next call.
        assert self.last[1] <= self.first[1] + 20 and self.last[2] <= self.first[2] + 1
        assert self.last[3] <= self.first[3] + max(100, self.times // 4)


def test_leaks_of_starts(alone):
    s = weft.Schedule(0, 1)
    s.join()
    run = s.commit().run(alone)
    Steady(run.execute, 50 * OFTEN).check(0)


def test_leaks_of_allreduces(alone):
    x = numpy.zeros(100)
    Steady(lambda: alone.allreduce(x), 50 * OFTEN).check(0)


def test_leaks_of_requests(alone):
    x = numpy.zeros(100)
    Steady(lambda: alone.iallreduce(x).wait(), 10 * OFTEN).check(0)


def test_leaks_of_lost_requests(alone):
    Steady(lambda: alone.iallreduce(numpy.zeros(1000)), 10 * OFTEN).check(0)


def test_leaks_of_requests_of_two_ranks(pair):
    def both():
        request = pair[0].iallreduce(numpy.zeros(1000))
        pair[1].iallreduce(numpy.zeros(1000))
        request.wait()

    Steady(both, 2 * OFTEN).check(0)


def test_leaks_of_runs(alone):
    plan, go = event_plan(alone)

    def one():
        run = plan.run(alone, x=numpy.zeros(4), y=numpy.zeros(4)).start()
        run.fire(go)
        run.wait()

    Steady(one, 5 * OFTEN).check()


def test_leaks_of_lost_runs(alone):
    plan, go = event_plan(alone)
    Steady(lambda: plan.run(alone, x=numpy.zeros(4), y=numpy.zeros(4)).start(), 5 * OFTEN).check()
    Steady(lambda: plan.run(alone), 5 * OFTEN).check()


def test_leaks_of_runs_in_cycles(alone):
    def one():
        s = weft.Schedule(0, 1)
        s.event()
        holder = []
        holder.append(weft.Run(alone, s, ended=lambda status: holder).start())

    Steady(one, OFTEN).check()


def test_leaks_of_schedules_and_plans():
    def one():
        s = weft.Schedule(0, 2)
        x = s.slot("x", "f64", 10)
        s.send(x, 1).label("give")
        s.recv(x, 1)
        s.commit()

    Steady(one, 2 * OFTEN).check(0)


def test_leaks_of_operations(alone):
    x = numpy.zeros(3)

    def one():
        alone.allreduce(x, op=weft.reduction(lambda a, b: a + b))
        weft.compute(lambda call: None)

    Steady(one, OFTEN).check()


def test_leaks_of_failures(alone):
    s = weft.Schedule(0, 1)

    def broken(call):
        raise ValueError("no")

    s.compute(weft.compute(broken))
    run = s.commit().run(alone)

    def one():
        with pytest.raises(weft.ComputeError):
            run.execute()

    Steady(one, OFTEN // 2).check()


def test_leaks_of_refusals(alone):
    def one():
        for call in (lambda: alone.allreduce(None), lambda: alone.allreduce(numpy.ones(2), numpy.ones(3)),
                     lambda: weft.Schedule(2, 1), lambda: weft.build("allreduce", 0, 2, algo="no", count=1)):
            with pytest.raises(weft.WeftError):
                call()

    Steady(one, OFTEN // 2).check()


def test_leaks_of_memory(alone):
    Steady(lambda: alone.empty(1000), 5 * OFTEN).check(0)


def mappings():
    with open("/proc/self/maps") as file:
        return len(file.readlines())


def test_leaks_of_memory_that_is_shared():
    """Also of what is lost after its context has been closed."""
    def one():
        context = weft.Context.shared(0, 1, name="leaks %d" % os.getpid())
        arrays = [context.empty(count) for count in (1, 10, 10000, 100000)]
        arrays.append(context.empty(10)[3:])
        if len(done) % 2:
            context.close()
            arrays[0][:] = 1
        done.append(1)

    done = []
    steady = Steady(one, OFTEN // 10)
    steady.check()
    count = mappings()
    Steady.repeat(one, 50)
    gc.collect()
    gone(lambda: not ending() and mappings() <= count + 10)


def test_leaks_of_closed_contexts():
    def one():
        weft.LocalGroup(1).context(0).close()

    Steady(one, OFTEN).check(0)


def test_leaks_of_lost_contexts():
    def one():
        context = weft.LocalGroup(1).context(0)
        context.allreduce(numpy.zeros(3))
        context.iallreduce(numpy.zeros(3))

    Steady(one, OFTEN // 2).check()
    gone(lambda: not ending())


def test_leaks_of_contexts_with_helpers():
    def one():
        group = weft.LocalGroup(2)
        contexts = [group.context(rank, progress="helper", log=lambda *line: None) for rank in range(2)]
        run = exchange(contexts[0]).run(contexts[0], x=numpy.zeros(4), y=numpy.zeros(4)).start()
        del run

    Steady(one, OFTEN // 10).check(64)


def test_leaks_of_split_contexts():
    def program(context):
        return Steady(lambda: context.split(0).close(), OFTEN // 10)

    steady = weft.run_local(2, program)
    assert steady[0].last[0] - steady[0].first[0] < 6 << 20


def test_leaks_of_run_local():
    def program(context):
        context.allreduce(numpy.zeros(3))

    Steady(lambda: weft.run_local(2, program), OFTEN // 10).check(64)

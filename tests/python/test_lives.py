# SPDX-License-Identifier: BSD-3-Clause
"""Lives: what is closed or lost, in whatever order and wherever, crashes nothing, and ends."""
import copy
import gc
import itertools
import os
import pickle
import threading
import time
import weakref

import numpy
import pytest

import weft
from conftest import event_plan, exchange, gone, in_threads
from weft import _life


def settled(record):
    """Calls until what was dropped has been ended, as far as it can be."""
    for _ in range(len(record.garbage) // _life.SWEEP + 1):
        record.sweep_garbage()


# ---- use after the end ----


def test_use_after_close():
    group = weft.LocalGroup(1)
    context = group.context(0, progress="helper")
    plan, go = event_plan(context)
    run = plan.run(context, x=numpy.zeros(4), y=numpy.zeros(4))
    request = context.iallreduce(numpy.zeros(2))
    series = weft.Series(context, plan)
    run.close(), run.close()
    for use in (run.start, run.wait, run.test, run.cancel, run.quit, run.reclaim, run.report, run.execute,
                lambda: run.fire(go), lambda: run.version, lambda: run.error, lambda: run.value("x"),
                lambda: run.bind(x=numpy.zeros(4)), lambda: run.bind_peers([0]), lambda: run.wait_node(0)):
        with pytest.raises((weft.StateError, weft.InvalidError)) as caught:
            use()
        assert "closed" in str(caught.value) or "no value" in str(caught.value)
    context.close(), context.close()
    assert "closed" in repr(context) and "closed" in repr(run) and "closed" in repr(series)
    x = numpy.zeros(2)
    for use in (context.barrier, lambda: context.allreduce(x), lambda: context.iallreduce(x),
                context.progress, context.report, context.abort, lambda: context.split(0),
                lambda: context.empty(3),
                lambda: context.stats, lambda: context.settings, lambda: context.hosts, lambda: context.now,
                lambda: context.sleep(0.1), lambda: context.rank_state(0), lambda: context.log("info", "x"),
                lambda: context.configure(), lambda: plan.run(context), lambda: weft.Series(context, plan),
                lambda: context.fail("x"), lambda: context.dump_state("/tmp/x"), context.__enter__,
                lambda: weft.create_plan(context, "allreduce", count=2), series.start, lambda: series.wait(0),
                series.poke, lambda: series.version, lambda: series.run().start(), lambda: context.root_ranks,
                lambda: context.progress_mode, lambda: context.collectives_stats):
        with pytest.raises(weft.StateError, match="has been closed"):
            use()
    assert (context.rank, context.size, context.transport) == (0, 1, "local")
    assert request.wait().tolist() == [0, 0]  # it had ended before
    series.close(), run.close()


def test_nothing_is_copied(pair):
    plan, go = event_plan(pair[0])
    request = pair[0].iallreduce(numpy.ones(2))
    for thing in (request, pair[0]._handle):
        with pytest.raises(TypeError, match="cannot be copied"):
            copy.copy(thing)
    for thing in (request, plan, pair[0], plan.run(pair[0])):
        with pytest.raises(TypeError):
            copy.deepcopy(thing)
        with pytest.raises(TypeError):
            pickle.dumps(thing)
    pair[1].allreduce(numpy.ones(2))
    assert request.wait().tolist() == [2, 2]


def test_a_context_ends_what_is_on_it_whatever_is_dropped_first():
    """All orders in which a program may lose its objects."""
    names = ["group", "context", "plan", "run", "request", "op", "memory"]

    def make():
        group = weft.LocalGroup(1)
        context = group.context(0)
        op = weft.reduction(lambda a, b: a + b)
        plan, go = event_plan(context)
        run = plan.run(context, x=numpy.zeros(4), y=numpy.zeros(4)).start()
        request = context.iallreduce(context.empty(3, "f8"), op=op)
        return dict(group=group, context=context, plan=plan, run=run, request=request, op=op,
                    memory=context.empty(5))

    for number, order in enumerate(itertools.permutations(names)):
        if number % 17:  # some 300 of them
            continue
        things = make()
        record = things["context"]._handle.record
        for name in order:
            things.pop(name)
        gone(lambda: record.done)
    assert not _life._dropped.qsize()


@pytest.mark.parametrize("order", list(itertools.permutations(["run", "request", "series", "context"])))
def test_closed_in_any_order(order):
    context = weft.LocalGroup(1).context(0, progress="helper")
    plan, go = event_plan(context)
    things = dict(context=context, run=plan.run(context, x=numpy.zeros(4), y=numpy.zeros(4)).start(),
                  request=context.iallreduce(numpy.zeros(2)), series=weft.Series(context, plan))
    for name in order:
        if name == "request":
            try:
                things[name].wait()
            except weft.CancelledError:
                assert order.index("context") < order.index("request")
        else:
            things[name].close()
    assert not context._handle.record.children


def test_cycles_through_functions():
    """What the program gives to weft may hold what weft has made: nothing of it lives for ever."""
    class Mark:
        pass

    def make():
        mark = Mark()
        context = weft.LocalGroup(1).context(0, log=lambda *line: mark.context.rank)
        mark.context = context
        mark.op = weft.compute(lambda call: mark.run.version)
        s = weft.Schedule(0, 1)
        go = s.event()
        s.compute(mark.op, after=go)
        mark.run = weft.Run(context, s, ended=lambda status: mark.run.version).start()
        mark.reduction = weft.reduction(lambda a, b: mark and a)
        mark.request = context.iallreduce(numpy.zeros(3), op=mark.reduction)
        return weakref.ref(mark), context._handle.record

    for _ in range(20):
        mark, record = make()
        gc.collect()
        assert mark() is None
        gone(lambda: record.done)
    known = len(_life._functions)
    for _ in range(20):
        mark, record = make()
    gone(lambda: gc.collect() is not None and len(_life._functions) <= known)


def test_a_run_in_a_cycle_goes_while_its_context_stays(alone):
    marks = []
    for _ in range(50):
        s = weft.Schedule(0, 1)
        s.event()
        holder = []
        run = weft.Run(alone, s, ended=lambda status, holder=holder: holder[0].version)
        holder.append(run)
        marks.append(weakref.ref(run))
        run.start()
        del run, holder
    gc.collect()
    assert not any(mark() for mark in marks)
    settled(alone._handle.record)
    settled(alone._handle.record)
    assert not alone._handle.record.garbage


def test_what_is_lost_in_flight_keeps_what_it_borrows(pair):
    """A run that is lost is cancelled; until then its arrays are lent."""
    for _ in range(30):
        runs = [exchange(context).run(context, x=numpy.ones(4), y=numpy.zeros(4)).start() for context in pair]
        del runs[0]
        gc.collect()
        others = [numpy.full(4, 7.0) for _ in range(100)]
        pair[0].progress()
        try:
            runs[0].wait()
        except weft.PeerError:
            pass
        runs[0].close()
        assert all((other == 7).all() for other in others)
    record = pair[0]._handle.record
    gone(lambda: settled(record) or not record.garbage)


def test_split_contexts_hold_the_one_on_the_transport():
    def program(context):
        half = context.split(context.rank % 2)
        again = half.split(0)
        return half, again

    group = weft.LocalGroup(4)
    contexts = [group.context(rank, progress="helper") for rank in range(4)]
    children = in_threads(*[lambda context=context: program(context) for context in contexts])
    records = [context._handle.record for context in contexts]
    del contexts, group
    gc.collect()
    assert not any(record.done for record in records)
    in_threads(*[lambda half=half: half.barrier() for half, again in children])
    for half, again in children:
        half.close()  # ends alone
    in_threads(*[lambda again=again: again.barrier() for half, again in children])
    assert [again.root_ranks for half, again in children] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    del children, half, again
    gc.collect()
    for record in records:
        gone(lambda: record.done)


def test_a_context_on_the_transport_ends_those_split_from_it():
    def program(context):
        child = context.split(0)
        grandchild = child.split(0)
        none = context.split(None)
        assert none is None
        context.close()
        for closed in (child, grandchild):
            with pytest.raises(weft.StateError):
                closed.barrier()
            closed.close()

    weft.run_local(2, program)


def shared():
    """A context of one rank over memory that could be shared."""
    return weft.Context.shared(0, 1, name="lives %d" % next(shared.numbers))


shared.numbers = itertools.count(1000 * os.getpid())


@pytest.mark.parametrize("make", [lambda: weft.LocalGroup(1).context(0), shared])
def test_arrays_of_a_context_outlive_it(make):
    for close in (False, True):
        context = make()
        record = context._handle.record
        arrays = [context.empty((3, 5), "f4"), context.empty(100000), context.empty(7, "u1")]
        assert arrays[0].shape == (3, 5) and not any(x.any() for x in arrays)
        y = arrays[0][1:, 2:]
        arrays[1][:], arrays[2][:] = 5, 6
        if close:
            context.close()
            assert record.done
        del context, arrays[0]
        gc.collect()
        y[:] = 4
        assert y.sum() == 24 and (arrays[0] == 5).all() and (arrays[1] == 6).all()
        arrays[0][:] = 1
        more = [numpy.ones(100000) for _ in range(20)]
        assert arrays[0].sum() == 100000 and (arrays[1] == 6).all()
        del y, arrays, more
        gc.collect()
        gone(lambda: record.done)
        assert not record.memories and not any(pages.users for pages in record.pages)


def test_what_borrows_memory_of_its_context_is_lost_with_it():
    for _ in range(20):
        context = shared()
        record = context._handle.record
        plan, go = event_plan(context)
        run = plan.run(context, x=context.empty(4, "f8"), y=[context.empty(1, "f8"), context.empty(3, "f8")])
        run.start()
        request = context.iallreduce(context.empty(100))
        del context, run, request
        gc.collect()
        gone(lambda: record.done)
        assert not record.memories


def test_shapes_and_datatypes_of_memory(alone):
    assert alone.empty(0).shape == (0,) and alone.empty((2, 0, 3)).shape == (2, 0, 3)
    assert alone.empty(3, "bf16").dtype.itemsize == 2 and alone.empty((), "i64").shape == ()
    kind = numpy.dtype([("a", "i4"), ("b", "f8")])
    assert alone.empty(4, kind).dtype == kind
    assert alone.empty((2, 3), numpy.int16).ctypes.data % 64 == 0
    assert alone.allreduce(alone.empty(5)).tolist() == [0] * 5
    with pytest.raises(ValueError):
        alone.empty(-1)
    with pytest.raises((MemoryError, ValueError)):
        alone.empty(2**60)
    with pytest.raises(weft.InvalidError):
        alone.empty(3, "f33")


# ---- in functions that weft calls ----


def test_objects_are_lost_in_functions_that_weft_calls():
    """The collector finds runs of the context whose engine it is called from."""
    def program(context):
        def litter(call):
            for _ in range(3):
                cycle = [trash.pop()] if trash else []
                cycle.append(cycle)
                del cycle
            gc.collect()

        trash = []
        op = weft.compute(litter)
        s = weft.Schedule(context.rank, 2)
        x = s.slot("x", "f64", 4)
        s.compute(op, weft.updates(x))
        s.send(x, 1 - context.rank)
        s.recv(s.slot("y", "f64", 4, "output"), 1 - context.rank)
        run = s.commit().run(context, x=numpy.zeros(4), y=numpy.zeros(4))
        event = weft.Schedule(0, 1)
        event.event()
        plan = event.commit()
        for _ in range(50):
            for number in range(3):
                lost = weft.Run(context, plan, local_only=True, peers=[context.rank])
                trash.append(lost.start() if number else lost)
            trash.append(context.iallreduce(numpy.zeros(5)))
            run.execute()
            context.barrier()
        trash.clear()
        for _ in range(100):
            context.progress()
        return len(context._handle.record.garbage)

    assert weft.run_local(2, program) == [0, 0]


def test_runs_are_closed_in_functions_that_weft_calls(alone):
    s = weft.Schedule(0, 1)
    s.join()
    plan = s.commit()
    runs = {}

    def ended(status):
        runs.pop("mine").close()

    for _ in range(100):
        runs["mine"] = weft.Run(alone, plan, ended=ended)
        runs["mine"].start()
        assert not runs
    alone.progress()
    settled(alone._handle.record)
    assert not alone._handle.record.garbage and not alone._handle.record.children


def test_what_must_not_be_called_there(alone):
    found = []

    def inside(call):
        for use in (alone.close, alone.progress, alone.report, lambda: alone.stats, lambda: run.wait(),
                    run.report, lambda: plan.run(alone), lambda: alone.split(0), alone.barrier,
                    lambda: alone.sleep(0.01), run.quit, run.reclaim):
            try:
                use()
            except weft.StateError as problem:
                found.append(str(problem))
        assert run.version == 0 and alone.now > 0 and alone.rank_state(0)[0] == "present"

    s = weft.Schedule(0, 1)
    s.compute(weft.compute(inside))
    plan = s.commit()
    run = plan.run(alone)
    run.execute()
    assert len(found) == 12


def test_a_logger(capfd):
    lines = []
    with weft.LocalGroup(1).context(0, log=lambda *line: lines.append(line), log_level="info") as context:
        context.log("warning", "look: \u00e4")
        context.log("debug", "not this")
    assert ("warning", 0, "look: \u00e4") in lines and all(line[0] != "debug" for line in lines)

    def broken(level, rank, line):
        raise ValueError("no log")

    with weft.LocalGroup(1).context(0, log=broken) as context:
        context.log("error", "x")
    assert "ValueError: no log" in capfd.readouterr().err
    with pytest.raises(weft.InvalidError, match="log is 5"):
        weft.LocalGroup(1).context(0, log=5)
    with pytest.raises(TypeError, match="did you mean 'progress'"):
        weft.LocalGroup(1).context(0, progres="helper")


def test_a_stall_is_reported():
    lines = []
    group = weft.LocalGroup(2)
    contexts = [group.context(rank, stall=0.1, log=lambda *line: lines.append(line)) for rank in range(2)]
    with pytest.raises(TimeoutError):
        exchange(contexts[0]).run(contexts[0], x=numpy.ones(4), y=numpy.ones(4)).start().wait(1.3)
    waits = [line for level, rank, line in lines if line.startswith("waiting for")]
    assert 3 <= len(waits) <= 5 and any("message" in line for _, _, line in lines), lines
    for context in contexts:
        context.close()


# ---- threads ----


def test_closing_ends_the_calls_of_other_threads():
    for what in ("run", "context"):
        for progress in ("helper", "caller"):
            group = weft.LocalGroup(2)
            context = group.context(0, progress=progress)
            run = exchange(context).run(context, x=numpy.ones(4), y=numpy.ones(4)).start()
            request = context.iallreduce(numpy.zeros(4))
            problems = []

            def call(function):
                try:
                    function()
                except Exception as problem:
                    problems.append(problem)

            waits = [run.wait, lambda: run.wait(60), request.wait,
                     lambda: context.allreduce(numpy.zeros(3)), lambda: context.sleep(60)]
            threads = [threading.Thread(target=call, args=(wait,)) for wait in waits]
            for thread in threads:
                thread.start()
            record = context._handle.record
            gone(lambda: len(record.busy()) >= len(threads) or problems)
            if what == "run":
                run.close()
            context.close()
            for thread in threads:
                thread.join()
            assert len(problems) == len(threads)
            assert all(isinstance(problem, weft.WeftError) for problem in problems), problems


def test_threads_of_all_kinds():
    """Several threads make, run, lose and close things of one context, with the collector at work."""
    until = time.monotonic() + 3
    trouble = []

    def program(context):
        op = weft.compute(lambda call: gc.collect(0))
        plan, go = event_plan(context)

        def some(number):
            local = weft.Schedule(0, 1)
            local.compute(op)
            quick = local.commit()
            rank = [context.rank]
            kept = []
            while time.monotonic() < until:
                run = weft.Run(context, quick, local_only=True, peers=rank)
                run.execute()
                lost = weft.Run(context, plan, local_only=True, x=numpy.zeros(4), y=numpy.zeros(4))
                lost.start()
                if number % 2:
                    lost.fire(go)
                kept.append([run, lost, kept])
                if len(kept) > 20:
                    kept[0][0].close()
                    kept = []
                try:
                    context.stats, context.report()
                    context.progress()
                except weft.WeftError as problem:
                    trouble.append(problem)

        in_threads(*[lambda number=number: some(number) for number in range(3)])

    weft.run_local(2, program, progress="helper")
    assert not trouble
    gc.collect()


def test_run_local_raises_what_failed_first():
    class Mine(Exception):
        pass

    def program(context):
        if context.rank == 1:
            raise Mine("rank 1")
        context.barrier()

    for _ in range(10):
        with pytest.raises(Mine, match="rank 1"):
            weft.run_local(3, program)

    def closes(context):
        context.close()
        return context.rank

    assert weft.run_local(3, closes) == [0, 1, 2]
    with pytest.raises(SystemExit):
        weft.run_local(2, lambda context: exit(3))
    with pytest.raises(weft.InvalidError):
        weft.run_local(0, closes)
    assert weft.run_local(2, lambda context, *more: more, 1, "x", progress="helper") == [(1, "x")] * 2


def test_with_a_context_that_fails(pair):
    x = numpy.zeros(2)
    with pytest.raises(ZeroDivisionError):
        with pair[0]:
            1 / 0
    with pytest.raises(weft.PeerError, match="ZeroDivisionError"):
        pair[1].allreduce(x)

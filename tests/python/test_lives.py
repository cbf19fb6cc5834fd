# SPDX-License-Identifier: BSD-3-Clause
"""Lives: what is closed, lost, forked, interrupted or left behind leaks nothing and crashes nothing.

WEFT_PYTHON_LEAKS is how often what might leak is made: 100000 for a thorough look.
"""
import gc
import itertools
import os
import threading
import time
import weakref

import numpy
import pytest

import weft
from conftest import execute, in_threads, well
from weft import _life

OFTEN = int(os.environ.get("WEFT_PYTHON_LEAKS", "2000"))


def event_plan(context):
    """A plan of an event: it ends when that is fired."""
    s = weft.Schedule(context.rank, context.size)
    x = s.slot("x", "f64", 4)
    go = s.event()
    s.copy(s.slot("y", "f64", 4, "output"), x, after=go)
    return s.commit(), go


def exchange(context):
    """A plan in which both ranks of two need each other."""
    s = weft.Schedule(context.rank, 2)
    x, y = s.slot("x", "f64", 4), s.slot("y", "f64", 4, "output")
    s.send(x, 1 - context.rank), s.recv(y, 1 - context.rank)
    return s.commit()


def settled(record):
    """Calls until what was dropped has been ended, as far as it can be."""
    for _ in range(len(record.garbage) // _life.SWEEP + 1):
        record.sweep_garbage()


def gone(what, seconds=60):
    """Waits until a thread has done what is to be done."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.001)


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
    for use in (context.barrier, lambda: context.allreduce(x), lambda: context.iallreduce(x), context.progress,
                context.report, context.abort, lambda: context.split(0), lambda: context.empty(3),
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
    request.wait() if request.record.status == 0 else None
    series.close(), run.close()
    with pytest.raises(weft.StateError):
        group.context(0) and None if False else context.__enter__()


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


def test_arrays_of_a_context_hold_it():
    context = weft.LocalGroup(1).context(0)
    record = context._handle.record
    x = context.empty((3, 5), "f4")
    assert x.shape == (3, 5) and not x.any()
    y = x[1:, 2:]
    del context, x
    gc.collect()
    y[:] = 4
    assert not record.done and y.sum() == 24
    del y
    gc.collect()
    gone(lambda: record.done)


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

            waits = [run.wait, lambda: run.wait_node(0) if False else run.wait(60), request.wait,
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
                lost = weft.Run(context, plan, local_only=True, peers=None, x=numpy.zeros(4), y=numpy.zeros(4))
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


# ---- the interpreter's exit ----

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


@pytest.mark.parametrize("progress", ["caller", "helper"])
@pytest.mark.parametrize("end", ["", "context.close()", "sys.exit(0)", "del context", "del run, plan",
                                 "import weft as w; del sys.modules['weft']", "gc.disable(); x = [context]; x.append(x)"])
def test_exit_with_runs_in_flight(progress, end):
    well(execute(BEGIN + """
context = group.context(0, progress=%r)
plan = exchange(context)
x = numpy.zeros(4)
run = plan.run(context, x=x, y=x.copy()).start()
request = context.iallreduce(x)
array = context.empty(100)
lost = context.ibarrier()
del lost
%s
print("end")
""" % (progress, end if "exit" not in end else "print('end'); " + end)), "end\n")


def test_exit_with_threads_that_wait():
    well(execute(BEGIN + """
context = group.context(0)
plan = exchange(context)
run = plan.run(context, x=numpy.zeros(4), y=numpy.zeros(4)).start()
request = context.iallreduce(numpy.zeros(3))
def call(function):
    try:
        function()
    except weft.WeftError:
        pass
waits = [run.wait, request.wait, context.barrier, lambda: context.split(0), lambda: context.sleep(1000)]
for wait in waits:
    threading.Thread(target=call, args=(wait,), daemon=True).start()
while len(context._handle.record.busy()) < len(waits):
    time.sleep(0.001)
print("end")
"""), "end\n")


def test_exit_with_threads_at_work():
    """Daemons that go on making things while the interpreter ends."""
    for _ in range(3):
        ended = execute(BEGIN + """
op = weft.compute(lambda call: None)
def work(number):
    while True:
        group = weft.LocalGroup(1)
        context = group.context(0, progress="helper" if number % 2 else "caller")
        for _ in range(20):
            s = weft.Schedule(0, 1)
            s.compute(op)
            weft.Run(context, s).execute()
            context.allreduce(numpy.zeros(3))
            context.iallreduce(numpy.zeros(3))
for number in range(3):
    threading.Thread(target=work, args=(number,), daemon=True).start()
time.sleep(0.5)
print("end")
""")
        assert ended.code == 0 and ended.out == "end\n", ended
        for line in ended.err.splitlines():  # what the threads are told, who still print
            assert "Fatal" not in line and "Segmentation" not in line, ended


def test_exit_by_an_exception():
    ended = execute(BEGIN + """
context = group.context(0, progress="helper")
run = exchange(context).run(context, x=numpy.zeros(4), y=numpy.zeros(4)).start()
with context:
    raise ValueError("mine")
""")
    assert ended.code == 1 and ended.err.rstrip().endswith("ValueError: mine"), ended
    ended = execute(BEGIN + """
def program(context):
    if context.rank == 2:
        raise ValueError("mine")
    context.barrier()
weft.run_local(4, program)
""")
    assert ended.code == 1 and ended.err.rstrip().endswith("ValueError: mine"), ended


def test_exit_in_other_ways():
    well(execute(BEGIN + """
context = group.context(0, progress="helper")
print("end", flush=True)
os._exit(0)
"""), "end\n")
    well(execute("""
import atexit
atexit.register(lambda: print("last"))
import weft, numpy
context = weft.LocalGroup(1).context(0)
atexit.register(lambda: print(context.allreduce(numpy.ones(1))[0]))  # before the contexts end
class Late:
    def __del__(self):
        print("late")
        context.close()
context.late = Late()
"""), None)
    well(execute("""
import weft
x = weft.LocalGroup(1).context(0).empty(1000)
s = weft.Schedule(0, 1)
p = s.commit()
o = weft.compute(print)
"""))


def test_exit_while_a_function_is_called():
    """A helper is in a function of the program when the interpreter ends."""
    well(execute(BEGIN + """
context = weft.LocalGroup(1).context(0, progress="helper")
inside = threading.Event()
def slow(call):
    inside.set()
    time.sleep(0.3)
s = weft.Schedule(0, 1)
go = s.event()
s.compute(weft.compute(slow), after=go)
run = s.commit().run(context).start()
threading.Thread(target=lambda: run.fire(go), daemon=True).start()
inside.wait()
print("end")
"""), "end\n")


# ---- fork ----


def test_fork():
    well(execute(BEGIN + """
contexts = [group.context(rank, progress="helper") for rank in range(2)]
run = exchange(contexts[0]).run(contexts[0], x=numpy.zeros(4), y=numpy.zeros(4)).start()
request = contexts[0].iallreduce(numpy.ones(3))
op = weft.reduction(lambda a, b: a + b)
array = contexts[0].empty(10)
sys.stdout.flush()
child = os.fork()
if child == 0:
    used = 0
    for use in (run.wait, run.test, run.cancel, request.wait, request.test, contexts[0].barrier, contexts[1].abort,
                lambda: contexts[0].stats, lambda: contexts[0].empty(3), lambda: contexts[0].split(0)):
        try:
            use()
        except weft.StateError as problem:
            used += "forked" in str(problem)
    print("child", used, contexts[0].rank)
    run.close(), contexts[0].close()
    del run, request, array
    gc.collect()
    print(weft.run_local(2, lambda context: context.allreduce(numpy.ones(1), op=op)[0]))
    sys.exit(0)
print(os.waitpid(child, 0)[1])
contexts[1].allreduce(numpy.ones(3))
print(request.wait())
contexts[0].close(), contexts[1].close()
"""), "child 10 0\n[2.0, 2.0]\n0\n[2. 2. 2.]\n")


def test_fork_with_threads_at_work():
    well(execute(BEGIN + """
stop = []
def program(context):
    while not stop:
        weft.Run(context, s, local_only=True, peers=[context.rank]).execute()
        context.iallreduce(numpy.ones(1))
        context.allreduce(numpy.ones(1))
        if context.rank == 0 and len(children) == 20:
            stop.append(1)
        stop.extend([1] * int(context.broadcast(numpy.array([len(stop)]))[0]))
s = weft.Schedule(0, 1)
s.compute(weft.compute(lambda call: None))
s = s.commit()
children = []
thread = threading.Thread(target=lambda: weft.run_local(2, program, progress="helper"))
thread.start()
for number in range(20):
    child = os.fork()
    if child == 0:
        gc.collect()
        sys.stdout.write("")
        del s, program
        gc.collect()
        os._exit(0) if number % 2 else None
        break
    children.append(child)
if child == 0:
    sys.exit(0)
thread.join()
print([os.waitpid(child, 0)[1] for child in children] == [0] * 20)
"""), "True\n")


def test_children_of_multiprocessing():
    well(execute("""
import multiprocessing
import numpy, weft
context = weft.LocalGroup(1).context(0, progress="helper")
def work(number):
    try:
        context.barrier()
    except weft.StateError:
        return weft.run_local(2, lambda c: c.allreduce(numpy.full(1, number))[0])
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(4)))
    print(context.allreduce(numpy.ones(1))[0])
"""), "[[0, 0], [2, 2], [4, 4], [6, 6]]\n1.0\n")


# ---- Ctrl-C ----

INTERRUPT = BEGIN + """
def interrupt():
    while not waiting():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
def interrupted(function, when=None):
    global waiting
    waiting = when or (lambda: context._handle.record.busy())
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        function()
    except KeyboardInterrupt:
        print("interrupted")
    thread.join()
context = group.context(0)
"""


def test_interrupted_waits():
    well(execute(INTERRUPT + """
x = numpy.ones(3)
other = group.context(1, progress="helper")
run = exchange(context).run(context, x=numpy.zeros(4), y=numpy.zeros(4)).start()
interrupted(run.wait)
interrupted(lambda: run.wait(1000))
peer = exchange(other).run(other, x=numpy.ones(4), y=numpy.zeros(4)).start()
print(run.wait().error == "")
interrupted(lambda: context.allreduce(x))       # goes on
print(other.allreduce(numpy.ones(3)))
context.barrier() if False else None
interrupted(lambda: context.sleep(1000))
request = context.iallreduce(numpy.ones(2))
interrupted(request.wait)
print(other.allreduce(numpy.ones(2)))
print(request.wait())
interrupted(lambda: weft.wait_all([context.ibarrier()]))
other.barrier()
y = numpy.zeros(3)
thread = threading.Thread(target=lambda: other.allreduce(y))
thread.start()
print(context.allreduce(y))
thread.join()
"""), "interrupted\n" * 2 + "True\ninterrupted\n[2. 2. 2.]\ninterrupted\ninterrupted\n[2. 2.]\n[2. 2.]\n"
      "interrupted\n[0. 0. 0.]\n")


@pytest.mark.parametrize("call", ["context.split(0)", "context.subset([0, 1])", "context.shrink()"])
def test_interrupted_collectives(call):
    """They cannot be taken up again: the context is aborted, and closes."""
    well(execute(INTERRUPT + """
other = group.context(1, progress="helper")
interrupted(lambda: %s)
try:
    context.barrier()
except weft.CancelledError as problem:
    print("KeyboardInterrupt" in str(problem))
context.close()
try:
    other.barrier()
except weft.PeerError:
    print("peer")
""" % call), "interrupted\nTrue\npeer\n")


def test_interrupted_run_local():
    well(execute(INTERRUPT + """
inside = []
def program(context):
    inside.append(context)
    if context.rank == 0:
        context.barrier()
    else:
        exchange(context).run(context, x=numpy.zeros(4), y=numpy.zeros(4)).execute() if context.rank == 1 else context.sleep(1000)
interrupted(lambda: weft.run_local(3, program), lambda: len(inside) == 3)
print([context._handle.record.done for context in inside])
print(weft.run_local(2, lambda context: context.allreduce(numpy.ones(1))[0]))
"""), "interrupted\n[True, True, True]\n[2.0, 2.0]\n")


def test_interrupted_meeting():
    """One that waits for a rank which does not come."""
    well(execute(INTERRUPT + """
def meet():
    started.append(1)
    weft.Context.shared(0, 2, name="nobody %d" % os.getpid(), meet=1000)
started = []
interrupted(meet, lambda: any(thread.name == "weft call" for thread in threading.enumerate()))
print(weft.run_local(2, lambda context: context.allreduce(numpy.ones(1))[0]))
"""), "interrupted\n[2.0, 2.0]\n")


def test_interrupted_functions():
    """Ctrl-C while weft is in a function of the program: the wait raises it."""
    well(execute(INTERRUPT + """
inside = []
def slow(call):
    inside.append(1)
    while True:
        time.sleep(0.01)
s = weft.Schedule(0, 1)
s.compute(weft.compute(slow))
run = weft.Run(context, s, local_only=True)
interrupted(lambda: run.start().wait(), lambda: inside)
inside.clear()
def slow_end(status):
    inside.append(1)
    while True:
        time.sleep(0.01)
s = weft.Schedule(0, 1)
go = s.event()
run = weft.Run(context, s, local_only=True, ended=slow_end).start()
waiting = lambda: inside
thread = threading.Thread(target=interrupt, daemon=True)
thread.start()
run.fire(go)
thread.join()
t = weft.Schedule(0, 1)
t.event()
try:
    weft.Run(context, t, local_only=True).start().wait(1000)
except KeyboardInterrupt:
    print("interrupted")
def slow_sum(a, b):
    inside.append(1)
    while True:
        time.sleep(0.01)
inside.clear()
other = group.context(1, progress="helper")
request = other.iallreduce(numpy.ones(1))
def both():
    context.allreduce(numpy.ones(1), op=weft.reduction(slow_sum))
interrupted(both, lambda: inside)
def gather(mine):
    inside.append(1)
    while True:
        time.sleep(0.01)
inside.clear()
interrupted(lambda: weft.Context.shared(0, 2, gather=gather), lambda: inside)
"""), "interrupted\n" * 4)


def test_interrupts_by_the_dozen():
    """Whatever is interrupted where: the process goes on, and ends well."""
    ended = execute(INTERRUPT + """
other = group.context(1, progress="helper")
def peer():
    while not stop:
        try:
            other.allreduce(numpy.ones(3))
        except weft.WeftError:
            return
stop = []
threading.Thread(target=peer, daemon=True).start()
def ring():
    for _ in range(60):
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    done.append(1)
done = []
count = 0
thread = threading.Thread(target=ring)
thread.start()
while not done:
    try:
        while not done:
            context.allreduce(numpy.ones(3))
            request = context.iallreduce(numpy.ones(3))
            s = weft.Schedule(0, 1)
            s.join()
            weft.Run(context, s, local_only=True).execute()
            request.wait()
    except KeyboardInterrupt:
        count += 1
while True:
    try:
        thread.join()
        break
    except KeyboardInterrupt:
        pass
print(count > 0)
stop.append(1)
signal.signal(signal.SIGINT, signal.SIG_IGN)
context.allreduce(numpy.ones(3))
context.close()
other.close()
print("end")
""")
    assert ended.code == 0 and ended.out == "True\nend\n", ended


# ---- leaks ----


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
        gone(lambda: not _life._dropped.qsize() and not any(state[0] for state in _life._reapers))
        return resident(), len(_life._functions), len(_life._contexts), len(gc.get_objects())

    def check(self, bytes_each=16, most=3 << 20):
        grown = self.last[0] - self.first[0]
        print("%d times: %+d KiB, %+d functions, %+d contexts, %+d objects, %.2f us each" % (
            self.times, grown >> 10, self.last[1] - self.first[1], self.last[2] - self.first[2],
            self.last[3] - self.first[3], 1e6 * self.seconds / self.times))
        assert grown <= max(most, bytes_each * self.times)
        assert self.last[1] <= self.first[1] and self.last[2] <= self.first[2]
        assert self.last[3] <= self.first[3] + 100


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
    gone(lambda: not _life._dropped.qsize())


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
    Steady(lambda: weft.run_local(2, lambda context: context.allreduce(numpy.zeros(3))), OFTEN // 10).check(64)

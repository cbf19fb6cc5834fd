# SPDX-License-Identifier: BSD-3-Clause
"""Lives of objects for trainers: interrupts, failures, ends in every order."""
import _thread
import gc
import io
import os
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import weft


def run(size, function, *arguments, **settings):
    return weft.run_local(size, function, *arguments, **dict({"progress": "helper"}, **settings))


def tensors():
    return [np.zeros(4, np.float32)]


def step_of_gradients(gradients):
    gradients.ready(0)
    gradients.wait_all()


def colocated(context):
    return weft.Server(context, tensors(), gradients=tensors(), place="colocated", servers=context.size)


#: How to make each object, and to take a step for which it waits for the others.
OBJECTS = {
    "group": (lambda context: weft.GroupAverage(context, tensors(), mode="waiting", group_size=context.size),
              lambda one: one.step()),
    "gossip": (lambda context: weft.Gossip(context, tensors(), neighbours=9), lambda one: one.step()),
    "pair": (lambda context: weft.PairAverage(context, tensors()), lambda one: one.synchronise()),
    "sparse": (lambda context: weft.SparseAverage(context, tensors()), lambda one: one.step()),
    "compressed": (lambda context: weft.CompressedAverage(context, tensors(), method="qsgd"),
                   lambda one: one.step()),
    "gradients": (lambda context: weft.Gradients(context, tensors(), cost=[(0, 1), (1, 2)]),
                  step_of_gradients),
    "server": (colocated, lambda one: one.step()),
}

each = pytest.mark.parametrize("make, step", OBJECTS.values(), ids=OBJECTS)


@each
def test_it_ends_when_nobody_has_it(make, step):
    def program(context):
        for _ in range(3):
            one = make(context)
            step(one)
            gone = weakref.ref(one)
            del one
            gc.collect()
            assert gone() is None
        context.barrier()

    run(2, program)


@each
def test_it_cannot_be_used_after_its_end(make, step):
    def program(context):
        one = make(context)
        assert "step 0" in repr(one)
        step(one)
        one.close()
        one.close()
        assert "closed" in repr(one)
        for use in (lambda: step(one), lambda: one.next, lambda: one.stats, one.state, one.fail,
                    lambda: one.__enter__()):
            with pytest.raises(weft.StateError, match="closed"):
                use()

    run(2, program)


@each
def test_the_context_ends_it(make, step):
    group = weft.LocalGroup(1)
    context = group.context(0, progress="helper")
    one = make(context)
    step(one)
    context.close()
    with pytest.raises(weft.StateError):
        step(one)
    one.close()


@each
def test_a_rank_that_raises_fails_the_others(make, step):
    failures, made = [], threading.Barrier(3)

    def program(context):
        one = make(context)
        made.wait(20)
        if context.rank == 1:
            raise ValueError("this rank has had enough")
        try:
            step(one)
            step(one)
        except weft.PeerError as problem:
            failures.append(str(problem))
            one.close()  # it has been told
            raise

    with pytest.raises(ValueError, match="enough"):
        run(3, program)
    assert len(failures) == 2 and all("rank 1" in text and "had enough" in text for text in failures)


@each
def test_what_leaves_its_block_by_an_exception_fails_the_others(make, step):
    made = threading.Barrier(2)

    def program(context):
        if context.rank == 0:
            with pytest.raises(KeyError):
                with make(context):
                    made.wait(20)
                    raise KeyError("lost")
        else:
            one = make(context)
            made.wait(20)
            with pytest.raises(weft.PeerError, match="rank 0.*KeyError: 'lost'"):
                step(one)
            one.close()

    run(2, program)


@each
def test_a_failure_that_looks_like_a_timeout_is_no_wait(make, step):
    def program(context):
        one = make(context)
        one.fail(weft.errors.TimeoutError("too long"))
        with pytest.raises(weft.WeftError, match="too long"):
            step(one)
        one.close()

    run(1, program)


@each
def test_an_aborted_context_is_no_wait(make, step):
    def program(context):
        one = make(context)
        context.barrier()
        context.abort(weft.errors.TimeoutError("too long"))
        with pytest.raises(weft.WeftError):
            step(one)
            step(one)

    run(1, program)


@each
def test_a_failure_that_nobody_knows_is_told_by_the_end(make, step):
    from weft._library import ffi, lib

    def program(context):
        one = make(context)
        # As if another rank had.
        one._handle.ask(getattr(lib, one._prefix + "_fail"), lib.WEFT_ERR_PEER,
                        ffi.new("char[]", b"no more data"))
        with pytest.raises(weft.PeerError, match="no more data"):
            one.close()
        one.close()
        with make(context) as one:
            one.fail("no more data")  # who has said it knows it

    run(1, program)


@each
def test_an_interrupt_leaves_the_step_to_be_waited_for(make, step):
    if make is OBJECTS["pair"][0]:
        return  # it has a test of its own, of timeouts
    group, late, waits, problems = weft.LocalGroup(2), threading.Event(), threading.Event(), []

    def other():
        try:
            with group.context(1, progress="helper") as context:
                one = make(context)
                assert late.wait(20)
                step(one)
                one.close()
        except BaseException as problem:  # noqa: B902 - looked at below
            problems.append(problem)

    def interrupt():
        if waits.wait(20):
            _thread.interrupt_main()

    def log(level, rank, line):  # of a wait that takes long
        waits.set()

    thread = threading.Thread(target=other)
    thread.start()
    with group.context(0, progress="helper", stall=0.02, log=log) as context:
        one = make(context)
        waits.clear()
        interrupter = threading.Thread(target=interrupt)
        try:
            if isinstance(one, weft.Gradients):
                one.ready(0)
            interrupter.start()
            while True:
                one.wait_all() if isinstance(one, weft.Gradients) else step(one)
        except KeyboardInterrupt:
            pass
        interrupter.join()
        late.set()
        if isinstance(one, weft.Gradients):
            one.wait_all(timeout=20)
        elif isinstance(one, weft.Server):
            one.step(timeout=20)
        else:
            one.wait(timeout=20)
        assert one.next == 1
        one.close()
    thread.join()
    assert not problems


def test_an_interrupt_of_the_creation_gives_up():
    group, problems = weft.LocalGroup(2), []
    there = threading.Event()

    def other():
        try:
            with group.context(1, progress="helper") as context:
                assert there.wait(20)
                weft.Gossip(context, tensors())
        except weft.WeftError as problem:
            problems.append(problem)

    thread = threading.Thread(target=other)
    thread.start()
    context = group.context(0, progress="helper")

    def interrupt():
        while not any(thread.name == "weft call" for thread in threading.enumerate()):
            pass
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        weft.Gossip(context, tensors())
    there.set()
    context.close()
    thread.join()
    assert isinstance(problems[0], weft.PeerError)


@pytest.mark.parametrize("ends", ["object", "context"])
@each
def test_the_end_by_another_thread_ends_a_step(make, step, ends):
    group, problems = weft.LocalGroup(2), []
    contexts = [group.context(rank, progress="helper") for rank in range(2)]
    made = [None, None]

    def create(rank):
        made[rank] = make(contexts[rank])

    threads = [threading.Thread(target=create, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def wait():
        try:
            step(made[0])
            step(made[0])
        except weft.WeftError as problem:
            problems.append(problem)

    thread = threading.Thread(target=wait)
    thread.start()
    while not made[0]._handle.record.users:
        pass
    if ends == "object":
        try:
            made[0].close()
        except weft.CancelledError:  # that thread had not heard of it yet
            pass
    else:
        contexts[0].close()
    thread.join()
    assert len(problems) == 1
    for context in contexts:
        context.close()


def test_a_step_that_was_posted_and_dropped_is_ended_all_the_same():
    def program(context):
        for make in (OBJECTS["gossip"][0], OBJECTS["sparse"][0], OBJECTS["compressed"][0]):
            one = make(context)
            one.post()
            del one
            gc.collect()
            context.barrier()
        gradients = weft.Gradients(context, tensors(), cost=[(0, 1), (1, 2)])
        gradients.ready(0)
        del gradients
        gc.collect()
        context.barrier()

    run(2, program)


def test_layers_that_were_dropped_unannounced_fail_the_others():
    dropped = threading.Event()

    def program(context):
        two = tensors() + tensors()
        gradients = weft.Gradients(context, two, cost=[(0, 1), (1, 2)], merge="single")
        gradients.ready(0)
        if context.rank == 1:
            del gradients
            gc.collect()
            dropped.set()
            context.progress()  # sweeps
            while not done.is_set():
                context.progress()
            return
        assert dropped.wait(20)
        with pytest.raises(weft.PeerError, match="rank 1"):
            gradients.ready(1)
            gradients.wait_all(timeout=20)
        done.set()
        gradients.close()

    done = threading.Event()
    run(2, program)


def test_a_context_that_stalls_says_so():
    heard = threading.Event()

    def log(level, rank, line):
        if level == "warning" and line.startswith("waiting for"):
            heard.set()

    def program(context):
        with weft.Gossip(context, tensors(), neighbours=1) as gossip:
            if context.rank == 1:
                assert heard.wait(20)
            gossip.step()

    run(2, program, stall=0.3, log=log)


def test_no_object_in_a_function_that_weft_calls():
    seen = []

    def program(context):
        gossip = weft.Gossip(context, tensors())

        def log(level, rank, line):
            for use in (gossip.step, gossip.post, gossip.state):
                try:
                    use()
                except weft.StateError as problem:
                    seen.append(problem)

        other = weft.LocalGroup(1).context(0, log=log)
        other.log("error", "a line")
        other.close()
        gossip.close()

    run(1, program)
    assert len(seen) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_in_a_forked_child_it_is_the_parents():
    def program(context):
        one = weft.Gossip(context, tensors())
        child = os.fork()
        if child == 0:
            try:
                one.step()
            except weft.StateError:
                one.close()
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        one.step()
        one.close()

    run(1, program)


def test_the_interpreter_exits_with_objects_in_use():
    program = """
import threading, numpy, weft
group = weft.LocalGroup(2)
contexts = [group.context(rank, progress="helper") for rank in range(2)]
made = {}

def rank(number):
    made[number] = weft.Gossip(contexts[number], [numpy.zeros(3)])
    if number == 0:
        began.set()
        made[number].step()  # for ever: the other rank takes none

began = threading.Event()
for number in range(2):
    threading.Thread(target=rank, args=(number,), daemon=True).start()
began.wait()
while not made[0]._handle.record.users:
    pass
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=60)
    assert done.returncode == 0, done.stdout


@each
def test_those_that_are_left_go_on(make, step):
    if make is colocated:
        return  # states of servers are those of as many ranks
    begun = threading.Barrier(3)
    settings = {"GroupAverage": dict(mode="waiting", group_size=2, contribution="accumulate"),
                "Gossip": dict(initial="any"), "PairAverage": dict(initial="any"),
                "SparseAverage": dict(method="allgather", density=1.0),
                "CompressedAverage": dict(method="qsgd", residual="kept"),
                "Gradients": dict(cost=[(0, 1), (1, 2)], sparse=dict(method="allgather", density=1.0))}

    def create(context, kind, gradient, state=None):
        given = dict(settings[kind.__name__])
        if kind is weft.GroupAverage:
            given["group_size"] = context.size
        return kind(context, [gradient], state=state, **given)

    def begin(one):
        if isinstance(one, weft.Gradients):
            one.ready(0)
        elif not isinstance(one, weft.PairAverage):
            one.post()

    def end(one):
        if isinstance(one, weft.Gradients):
            one.wait_all()
        elif isinstance(one, weft.PairAverage):
            one.synchronise()
        else:
            one.wait()

    def program(context):
        one = make(context)
        kind = type(one)
        one.close()
        gradient = np.zeros(4, np.float32)
        one = create(context, kind, gradient)
        gradient[:] = 8
        if context.rank < 2:
            begin(one)
        begun.wait(20)
        if context.rank == 2:
            one.fail("broken")
            one.close()
            context.close()
            return None
        with pytest.raises(weft.PeerError, match="rank 2"):
            end(one)
        state = pickle.loads(pickle.dumps(one.state()))
        one.close()
        with context.shrink() as left:
            assert left.size == 2
            with create(left, kind, gradient, state) as one:
                gradient[:] = 0
                step(one)
                return float(gradient[0])

    results = run(3, program)
    kind = next(name for name, entry in OBJECTS.items() if entry[0] is make)
    # Nobody had the sum of the step that failed: what was kept of gradients is in the next one.
    assert results[0] == results[1] == (0 if kind in ("gossip", "pair") else 8)


def test_states_are_saved_by_torch():
    torch = pytest.importorskip("torch")

    def program(context):
        with weft.SparseAverage(context, tensors()) as average:
            average.step()
            file = io.BytesIO()
            torch.save(average.state(), file)
        file.seek(0)
        with weft.SparseAverage(context, tensors(), state=torch.load(file)) as average:
            assert average.next == 1

    run(2, program)

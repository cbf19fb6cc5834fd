# SPDX-License-Identifier: BSD-3-Clause
"""Schedules composed in Python, plans, runs and series; templates and documents."""
import gc
import threading
import traceback

import numpy
import pytest

import weft
from weft import reads, updates, writes


def ring(rank, size, op="sum", count=1):
    """README's sum: every rank's vector travels once around a ring, and each rank adds what comes by."""
    s = weft.Schedule(rank, size, "ring")
    x = s.slot("sum", "f64", count, "inout")
    seen = s.slot("seen", "f64", size * count, "scratch")
    s.copy(seen[:count], x)
    for i in range(1, size):
        s.send(seen.at((i - 1) * count, count), (rank + 1) % size, tag=i)
        s.recv(seen.at(i * count, count), (rank - 1) % size, tag=i)
        s.reduce(op, x, x, seen.at(i * count, count))
    s.result(x, op=op)
    return s


def ring_by_hand(rank, size):
    """The same with all orders given, as in C."""
    s = weft.Schedule(rank, size, track=False)
    x, seen = s.slot("sum", "f64", 1), s.slot("seen", "f64", size, "scratch")
    here = added = s.copy(seen[0], x)
    for i in range(1, size):
        here >> s.send(seen[i - 1], (rank + 1) % size, i)
        here = s.recv(seen[i], (rank - 1) % size, i)
        add = s.reduce("sum", x, x, seen[i])
        [here, added] >> add
        added = add
    return s


# ---- schedules and runs ----


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("build", [ring, ring_by_hand])
def test_ring_sum(size, build):
    def program(context):
        x = numpy.array([context.rank + 1.0])
        plan = build(context.rank, size).commit()
        run = plan.run(context, sum=x)
        assert run.version is None and run.error == ""
        run.execute()
        assert run.version == 0 and x[0] == size * (size + 1) / 2
        for again in range(5):
            x[0] = context.rank + 1
            assert run() is run and x[0] == size * (size + 1) / 2
        return x[0]

    assert weft.run_local(size, program) == [size * (size + 1) / 2] * size


def test_ring_sum_with_a_python_operation():
    larger = weft.reduction(lambda a, b: numpy.where(abs(a) >= abs(b), a, b), name="absmax")

    def program(context):
        x = numpy.array([1.0, -2.0, 3.0]) * (context.rank - 1)
        ring(context.rank, 4, larger, 3).commit().run(context, sum=x).execute()
        return abs(x).tolist()

    assert weft.run_local(4, program) == [[2, 4, 6]] * 4


def test_what_a_schedule_has():
    s = weft.Schedule(1, 3, "named")
    x = s.slot("x", "f32", 10, "input")
    y = s.slot("y", numpy.float32, 10, "output")
    part = s.slot("part", "bytes24", 2, "scratch")
    n = s.value("n", 10)
    first = s.send(x[2:5], 0, 7).label("give")
    s.recv(y[:n.max, n], 2, up_to=False)
    s.recv(y, 0, 1, up_to=True)
    assert (s.rank, s.size, s.name, s.node_count) == (1, 3, "named", 3)
    assert list(s.slots) == ["x", "y", "part"]
    assert s.slots["part"].dtype == "bytes24" and s.slots["x"].kind == "input" and len(s.slots["x"]) == 10
    assert s.values["n"].max == 10
    node = s.nodes[first]
    assert (node["kind"], node["peer"], node["tag"], node["label"]) == ("send", 0, 7, "give")
    assert node["regions"] == [("x", 2, 3, "read")]
    assert s.edges == [(1, 2)]
    assert "named: rank 1 of 3" in repr(s) and "part: 2 of bytes24, scratch" in repr(part)
    assert repr(x[2:5]) == "<x[2:5]>" and repr(x[:5, n]) == "<x[0:5] of n>"
    assert first == weft.Node(s, 0) and first != weft.Node(weft.Schedule(0, 1), 0)
    assert len({first, weft.Node(s, 0)}) == 1 and int(first) == 0


def test_regions():
    s = weft.Schedule(0, 1)
    x = s.slot("x", "f32", 10)

    def of(region):
        return region.offset, region.count

    assert of(x[2:5]) == (2, 3) and of(x[:]) == (0, 10) and of(x[-3:]) == (7, 3) and of(x[4]) == (4, 1)
    assert of(x[-1]) == (9, 1) and of(x[5:5]) == (5, 0) and of(x[5:2]) == (5, 0) and of(x.at(3, 4)) == (3, 4)
    assert len(x[2:5]) == 3 and len(list(x)) == 10
    for wrong in (lambda: x[::2], lambda: x[:11], lambda: x["a"], lambda: x.at(-1, 2), lambda: x.at(0, "n"),
                  lambda: x[:3, 5]):
        with pytest.raises(weft.InvalidError):
            wrong()
    with pytest.raises(IndexError):
        x[10]


@pytest.mark.parametrize("wrong, kind, text", [
    (lambda s, x: s.send(x, 5), weft.InvalidError, "peer"),
    (lambda s, x: s.send(x, -1), weft.InvalidError, "peer"),
    (lambda s, x: s.send(x, "a"), weft.InvalidError, "cannot be added"),
    (lambda s, x: s.send(x, 0, -1), weft.InvalidError, "cannot be added"),
    (lambda s, x: s.send("x", 0), weft.InvalidError, "region is 'x', expected a slot"),
    (lambda s, x: s.send(weft.Schedule(0, 2).slot("x", "f32", 4), 0), weft.InvalidError, "another schedule"),
    (lambda s, x: s.slot("x", "f32", 4), weft.InvalidError, "x"),
    (lambda s, x: s.slot("y", "f32", -4), weft.InvalidError, "count is -4"),
    (lambda s, x: s.slot("y z", "f32", 4), weft.InvalidError, "name"),
    (lambda s, x: s.slot(3, "f32", 4), weft.InvalidError, "name is 3"),
    (lambda s, x: s.slot("y", "f32", 4, "inputs"), weft.InvalidError, "did you mean 'input'"),
    (lambda s, x: s.slot("y", "f33", 4), weft.InvalidError, "dtype is 'f33'"),
    (lambda s, x: s.recv(x.at(2, 4), 0), weft.InvalidError, "x"),
    (lambda s, x: s.recv(x, 0, produces=3), weft.InvalidError, "produces is 3"),
    (lambda s, x: s.reduce("sums", x, x, x), weft.NotFoundError, "sum"),
    (lambda s, x: s.reduce("sum", x, x, x[:2]), weft.InvalidError, ""),
    (lambda s, x: s.compute("sum", x), weft.InvalidError, r"expected weft.reads\(region\)"),
    (lambda s, x: s.compute("sum", reads(x)), weft.InvalidError, ""),
    (lambda s, x: s.order(s.join(), 17), weft.InvalidError, "17"),
    (lambda s, x: s.order(s.join(), "b"), weft.InvalidError, "after is 'b'"),
    (lambda s, x: weft.Schedule(0, 2).join() >> s.join(), weft.InvalidError, "another schedule"),
    (lambda s, x: s.choice(s.join()), weft.InvalidError, "event"),
    (lambda s, x: s.result(x), weft.InvalidError, ""),
    (lambda s, x: s.result(x, op="sum", offset=-1), weft.InvalidError, "offset"),
    (lambda s, x: s.result(x, op="sum", from_=7), weft.InvalidError, "from is 7"),
])
def test_wrong_parts_of_schedules(wrong, kind, text):
    s = weft.Schedule(0, 2)
    with pytest.raises(kind, match=text or None):
        wrong(s, s.slot("x", "f32", 4))
        s.commit()  # some are seen here


def test_wrong_schedules():
    with pytest.raises(weft.InvalidError, match="size"):
        weft.Schedule(0, 0)
    with pytest.raises(weft.InvalidError, match="rank"):
        weft.Schedule(2, 2)
    s = weft.Schedule(0, 2)
    a, b = s.join(), s.join()
    a >> b >> a
    with pytest.raises(weft.CycleError):
        s.commit()
    s = weft.Schedule(0, 2)
    x = s.slot("x", "f32", 4)
    s.send(x, 1), s.send(x, 1)
    with pytest.raises(weft.DuplicateError):
        s.commit()
    s = weft.Schedule(0, 2)
    with pytest.raises(weft.InvalidError):
        s.send(s.slot("x", "f32", 4), 9)
    with pytest.raises(weft.InvalidError):  # it sticks
        s.commit()


# ---- binding ----


def copier(count=6, kind="f64"):
    s = weft.Schedule(0, 1, "copier")
    s.copy(s.slot("out", kind, count, "output"), s.slot("in", kind, count, "input"))
    return s.commit()


def test_bindings(alone):
    plan = copier()
    assert list(plan.slots) == ["out", "in"] and plan.slots["in"].kind == "input"
    assert plan.name == "copier" and (plan.rank, plan.size, plan.node_count) == (0, 1, 1)
    assert plan.bytes > 0 and plan.run_bytes > 0 and "copier: rank 0 of 1" in repr(plan)
    x, y = numpy.arange(6.0), numpy.zeros(6)
    x.flags.writeable = False
    run = plan.run(alone, out=y, **{"in": x})
    run.execute()
    assert (x == y).all()
    run["in"], z = numpy.ones(6), numpy.zeros((2, 3))
    run.bind(out=z)
    run.execute()
    assert (z == 1).all()
    parts = [numpy.zeros(1), numpy.zeros((1, 3)), numpy.zeros(2)]
    run["out"] = parts
    run["in"] = [numpy.array([1.0, 2.0]), numpy.array([3.0, 4.0, 5.0, 6.0])]
    run.execute()
    assert numpy.concatenate([part.ravel() for part in parts]).tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(weft.StateError, match="never started"):
        plan.run(alone, out=y, **{"in": x}).wait()


@pytest.mark.parametrize("binding, text", [
    ({"out": numpy.zeros(5)}, "6"),
    ({"out": numpy.zeros(6, "f4")}, "f64"),
    ({"out": 5}, "out is a int"),
    ({"out": [numpy.zeros(3), numpy.zeros(2)]}, "6"),
    ({"out": [numpy.zeros(3), numpy.zeros(3, "f4")]}, r"out\[1\] is of another datatype"),
    ({"out": [numpy.zeros(3), None]}, r"out\[1\] is a NoneType"),
    ({"out": b"123456" * 8}, "out is read-only"),
    ({"other": numpy.zeros(6)}, "no slot or value 'other', expected one of out, in"),
])
def test_wrong_bindings(alone, binding, text):
    with pytest.raises(weft.InvalidError, match=text):
        copier().run(alone, **binding)


def test_a_slot_that_is_not_bound(alone):
    with pytest.raises(weft.InvalidError, match="out.*not bound"):
        copier().run(alone, **{"in": numpy.zeros(6)}).start()


def test_what_is_bound_is_kept(alone):
    run = copier(100000).run(alone, out=numpy.zeros(100000), **{"in": numpy.ones(100000)})
    gc.collect()
    others = [numpy.full(100000, 5.0) for _ in range(4)]
    run.execute()
    assert all((other == 5).all() for other in others)


def test_torch_is_bound(alone):
    torch = pytest.importorskip("torch")
    x, y = torch.arange(6.0, dtype=torch.float64), torch.nn.Parameter(torch.zeros(2, 3, dtype=torch.float64))
    copier().run(alone, out=y, **{"in": x}).execute()
    assert y.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    # A parameter that gets another memory leaves what is bound as it is.
    run = copier(6).run(alone, out=y, **{"in": x})
    y.data = torch.zeros(2, 3, dtype=torch.float64)
    others = [torch.full((2, 3), 7.0, dtype=torch.float64) for _ in range(50)]
    run.execute()
    assert not y.any() and all((other == 7).all() for other in others)
    x = torch.arange(6).to(torch.bfloat16)
    y = torch.zeros(6, dtype=torch.bfloat16)
    copier(6, torch.bfloat16).run(alone, out=y, **{"in": x}).execute()
    assert torch.equal(x, y)


def test_values_and_receives_up_to():
    def program(context):
        rank = context.rank
        s = weft.Schedule(rank, 2)
        n = s.value("n", 10)
        x = s.slot("x", "i32", 10)
        if rank == 0:
            s.send(x[:10, n], 1)
        else:
            s.recv(x, 0, produces=n)
        run = s.commit().run(context)
        for count in (0, 3, 10):
            x = numpy.arange(10, dtype="i4") + 1 if rank == 0 else numpy.zeros(10, "i4")
            run["x"] = x
            if rank == 0:
                run["n"] = count
            run.execute()
            assert run.value("n") == run.value(n) == count
            assert (x[:count] == numpy.arange(count) + 1).all() and (rank == 0 or not x[count:].any())
        if rank == 0:
            for wrong in (11, -1, "x", None):
                with pytest.raises(weft.InvalidError):
                    run["n"] = wrong
        with pytest.raises(weft.InvalidError, match="no slot or value 'm'"):
            run.value("m")
        with pytest.raises(weft.InvalidError, match="no value 'x'"):
            run.value("x")

    weft.run_local(2, program)


def test_a_message_that_is_too_long():
    def program(context):
        s = weft.Schedule(context.rank, 2)
        x = s.slot("x", "i32", 4 - context.rank)
        s.send(x, 1) if context.rank == 0 else s.recv(x, 0)
        with s.commit().run(context, x=numpy.zeros(4 - context.rank, "i4")) as run:
            if context.rank == 0:
                run.start()
                try:
                    run.wait()
                except weft.PeerError:
                    pass
            else:
                with pytest.raises(weft.TruncatedError, match="x"):
                    run.execute()
                assert "x" in run.error
            context.barrier()

    weft.run_local(2, program)


def test_blocks_are_bound():
    def program(context):
        size = context.size
        plan = weft.create_plan(context, "allgatherv", count=2, dtype="f64", counts=[2] * size)
        x = numpy.full(2, float(context.rank))
        out = numpy.full(3 * size, -1.0)
        run = plan.run(context, send=x)
        for wrong in (dict(counts=[2] * size, displacements=[-1] * size), dict(counts=[200] * size),
                      dict(counts=[2] * size, displacements=[0]), dict(counts=[2] * (size - 1))):
            with pytest.raises(weft.InvalidError):
                run.bind_blocks("recv", out, **wrong)
        with pytest.raises(weft.InvalidError, match="no slot 'other'"):
            run.bind_blocks("other", out, [2])
        run.bind_blocks("recv", out, [2] * size, [3 * rank for rank in range(size)])
        run.execute()
        assert out.tolist() == [value for rank in range(size) for value in (rank, rank, -1)]

    weft.run_local(3, program)


def test_peers():
    """A plan of two ranks on pairs of four."""
    def program(context):
        me = context.rank % 2
        s = weft.Schedule(me, 2)
        x, y = s.slot("x", "f64", 1, "input"), s.slot("y", "f64", 1, "output")
        s.send(x, 1 - me), s.recv(y, 1 - me)
        y = numpy.zeros(1)
        base = context.rank - me
        run = weft.Run(context, s, peers=[base, base + 1], x=numpy.array([float(context.rank)]), y=y)
        run.execute()
        assert y[0] == context.rank ^ 1
        with pytest.raises(weft.InvalidError, match="ranks has 1 entries, expected 2"):
            run.bind_peers([0])
        with pytest.raises(weft.InvalidError):
            run.bind_peers([0, 9])
        other = [0, 2] if context.rank % 2 == 0 else [1, 3]
        mine = other.index(context.rank)
        if mine == me:
            other[1 - me] = None  # nobody
            run.bind_peers(other)
            y[0] = -1
            run.execute()
            assert y[0] == -1
        else:
            pass  # its own entry must be its own rank
        context.barrier()

    weft.run_local(4, program)


# ---- computing ----


def test_compute():
    calls = []

    @weft.compute
    def scale(call):
        x, y = call.arguments
        y[:] = 3 * x
        calls.append((call.version, call.rank, call.size, call.node, x.dtype.name))

    assert scale.name == "scale"
    s = weft.Schedule(2, 3)
    x, y = s.slot("x", "f32", 5, "input"), s.slot("y", "f32", 5, "output")
    node = s.compute(scale, reads(x), writes(y))
    with weft.LocalGroup(1).context(0) as context:
        out = numpy.zeros(5, "f4")
        run = weft.Run(context, s.commit(), local_only=True, peers=[None, None, 0],
                       x=numpy.arange(5, dtype="f4"), y=out)
        run.execute(), run.execute()
        assert out.tolist() == [0, 3, 6, 9, 12]
    assert calls == [(version, 2, 3, int(node), "float32") for version in range(2)]


def test_compute_on_pieces_and_values(alone):
    seen = []

    def count(call):
        pieces, = call.arguments
        seen.append([len(piece) for piece in pieces] if isinstance(pieces, list) else len(pieces))
        call.value = sum(int((piece > 2).sum()) for piece in pieces)

    s = weft.Schedule(0, 1)
    x, y = s.slot("x", "i64", 6, "input"), s.slot("y", "i64", 6, "output")
    n = s.value("n", 6)
    s.compute(weft.compute(count), reads(x), produces=n)
    s.copy(y[:6, n], x[:6, n])
    out = numpy.full(6, -1)
    run = s.commit().run(alone, x=[numpy.array([1, 2]), numpy.array([3, 4, 5, 1])], y=out)
    run.execute()
    assert run.value("n") == 3 and seen == [[2, 4]]
    assert out.tolist() == [1, 2, 3, -1, -1, -1]


def test_updates(alone):
    def bump(call):
        call.arguments[0][:] += 1

    s = weft.Schedule(0, 1)
    x = s.slot("x", "f64", 3)
    op = weft.compute(bump)
    for _ in range(3):
        s.compute(op, updates(x))
    out = numpy.zeros(3)
    s.commit().run(alone, x=out).execute()
    assert out.tolist() == [3, 3, 3]


def test_a_call_ends_with_its_function(alone):
    kept = []

    def keep(call):
        kept.append(call)

    s = weft.Schedule(0, 1)
    s.compute(weft.compute(keep), reads(s.slot("x", "f64", 3)))
    s.commit().run(alone, x=numpy.zeros(3)).execute()
    assert kept[0].arguments == [] and kept[0].version == 0 and kept[0].size == 1


class Mine(Exception):
    pass


def test_what_a_function_raises_is_the_cause(alone):
    def broken(call):
        raise Mine("no luck")

    s = weft.Schedule(0, 1, "fragile")
    s.compute(weft.compute(broken), updates(s.slot("x", "f64", 3))).label("here")
    run = s.commit().run(alone, x=numpy.zeros(3))
    for _ in range(2):
        with pytest.raises(weft.ComputeError, match="fragile.*operation broken: Mine: no luck") as caught:
            run.execute()
        assert isinstance(caught.value.__cause__, Mine)
        frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
        assert "broken" in [frame.name for frame in frames]
    assert "here" in run.error


@pytest.mark.parametrize("value", [None, "many", 2.5, -1, 99])
def test_a_function_that_sets_no_value(alone, value):
    def set_value(call):
        call.value = value

    s = weft.Schedule(0, 1)
    n = s.value("n", 6)
    s.compute(weft.compute(set_value), produces=n)
    s.copy(s.slot("y", "f64", 6, "output")[:6, n], s.slot("x", "f64", 6, "input")[:6, n])
    with pytest.raises(weft.WeftError):
        s.commit().run(alone, x=numpy.zeros(6), y=numpy.zeros(6)).execute()


def test_functions_of_local_ranks_do_not_hold_each_other():
    """A function may wait for another rank's, which needs the GIL."""
    both = threading.Barrier(2)

    def meet(call):
        both.wait(60)

    op = weft.compute(meet)

    def program(context):
        s = weft.Schedule(0, 1)
        s.compute(op)
        weft.Run(context, s, local_only=True).execute()

    weft.run_local(2, program)


# ---- events ----


def test_events_are_fired_by_any_thread(alone):
    s = weft.Schedule(0, 1)
    x, y = s.slot("x", "f64", 1, "input"), s.slot("y", "f64", 1, "output")
    go = s.event()
    copied = s.copy(y, x, after=go)
    done = s.join(after=copied)
    out = numpy.zeros(1)
    run = s.commit().run(alone, x=numpy.ones(1), y=out).start()
    assert not run.test()
    with pytest.raises(weft.errors.TimeoutError, match="within 0.01 s: it goes on"):
        run.wait(0.01)
    with pytest.raises(TimeoutError):
        run.wait_node(done, 0.01)
    assert "event" in run.report() or "fire" in run.report()
    assert "fire" in alone.report()
    thread = threading.Thread(target=lambda: run.fire(go))
    thread.start()
    assert run.wait_node(done) is True
    run.wait()
    thread.join()
    assert run.test() and out[0] == 1
    with pytest.raises(weft.StateError, match="not active"):
        run.fire(go)
    run.start()
    assert run.fire(int(go)) is True
    run.wait()
    with pytest.raises(weft.InvalidError, match="expected an event"):
        run.fire(copied)
    with pytest.raises(weft.InvalidError, match="expected a join"):
        run.wait_node(copied)


def test_choices(alone):
    # The copies are of two branches of a choice: the order that is found by their memory would tie them.
    s = weft.Schedule(0, 1, track=False)
    y = s.slot("y", "f64", 1, "output")
    one, two = s.slot("one", "f64", 1, "input"), s.slot("two", "f64", 1, "input")
    first, second = s.event(), s.event()
    s.choice(first, second)
    s.copy(y, one, after=first)
    branch = s.join(after=s.copy(y, two, after=second))
    last = s.join(after=[first, second]).any()
    assert s.nodes[last]["any"] and s.nodes[first]["choice"] == s.nodes[second]["choice"] == 0
    out = numpy.zeros(1)
    run = s.commit().run(alone, y=out, one=numpy.array([1.0]), two=numpy.array([2.0]))
    run.start()
    assert run.fire(second) is True
    run.wait()
    assert out[0] == 2
    run.start()
    assert run.fire(first) is True
    assert run.wait_node(last) is True
    assert run.wait_node(branch) is False
    run.wait()
    assert out[0] == 1


def test_any(alone):
    s = weft.Schedule(0, 1)
    a, b = s.event(), s.event()
    either = s.join(after=[a, b]).any()
    run = s.commit().run(alone).start()
    assert run.fire(b) is True and run.fire(b) is False
    assert run.wait_node(either)
    run.fire(a)
    run.wait()


def test_signals_and_activation():
    """Whoever comes first starts the sum on all ranks: the others are only driven."""
    size = 3

    def program(context):
        s = weft.Schedule(context.rank, size)
        mine, started = s.activation()
        x = s.slot("x", "f64", 1)
        part = s.part(weft.build("allreduce", context.rank, size, count=1, dtype="f64", in_place=True),
                      after=started, slots={"recv": x})
        s.join(after=part).label("the end")
        x = numpy.array([context.rank + 1.0])
        run = s.commit().run(context, x=x)
        for version in range(4):
            x[0] = context.rank + 1
            run.start()
            if context.rank == version % size:
                assert run.fire(mine) in (True, False)
            run.wait()
            assert x[0] == 6
        return s.nodes[-1]["label"]

    assert weft.run_local(size, program) == ["the end"] * size


def test_signals():
    def program(context):
        s = weft.Schedule(context.rank, 2)
        if context.rank == 0:
            s.signal(1, 5)
        else:
            s.event(5)
            assert s.nodes[0]["channel"] == 5 and s.nodes[0]["kind"] == "event"
        s.commit().run(context).execute()

    weft.run_local(2, program)


def test_a_run_that_nobody_ends_is_cancelled(pair):
    plans = [ring(rank, 2).commit() for rank in range(2)]
    x = numpy.ones(1)
    first = plans[0].run(pair[0], sum=x).start()
    second = plans[1].run(pair[1], sum=numpy.ones(1))
    first.cancel()
    with pytest.raises(weft.CancelledError):
        first.wait()
    with pytest.raises(weft.PeerError):
        second.execute()
    assert first.reclaim() in (True, False)
    first.close(), second.close()


def test_deadlines(pair):
    run = ring(0, 2).commit().run(pair[0], sum=numpy.ones(1), deadline=0.02)
    with pytest.raises(weft.errors.TimeoutError):
        run.execute()
    run.set_deadline(None)
    with pytest.raises(weft.InvalidError, match="seconds is -1"):
        run.set_deadline(-1)


def test_versions(alone):
    s = weft.Schedule(0, 1)
    s.join()
    run = s.commit().run(alone)
    run.start(5).wait()
    assert run.version == 5
    run.execute()
    assert run.version == 6
    for wrong in (6, 0, -1, 2**64):
        with pytest.raises(weft.InvalidError, match="version"):
            run.start(wrong)
    with pytest.raises(weft.InvalidError):
        run.wait(float("nan"))


def test_a_run_says_that_it_has_ended(alone):
    s = weft.Schedule(0, 1)
    go = s.event()
    told = []
    run = weft.Run(alone, s, ended=told.append)
    run.start()
    run.fire(go)
    run.wait()
    run.start().cancel()
    with pytest.raises(weft.CancelledError):
        run.wait()
    assert told == [0, weft.CancelledError.status]


def test_a_run_starts_others_when_it_has_ended(alone):
    s = weft.Schedule(0, 1)
    s.join()
    plan = s.commit()
    runs = []
    runs.append(plan.run(alone))
    for _ in range(10):
        runs.append(weft.Run(alone, plan, ended=lambda status, next=runs[-1]: next.start()))
    runs[-1].start()
    for run in reversed(runs):
        run.wait()
    assert [run.version for run in runs] == [0] * 11


def test_what_ended_raises_is_printed(alone, capfd):
    s = weft.Schedule(0, 1)
    s.join()

    def broken(status):
        raise Mine("in a callback")

    weft.Run(alone, s, ended=broken).execute()
    assert "Mine: in a callback" in capfd.readouterr().err


def test_runs_of_the_sequence():
    def program(context):
        x = numpy.array([context.rank + 1.0])
        plan = ring(context.rank, 3).commit()
        runs = [weft.Run(context, plan, sequence=True, sum=x) for _ in range(1 + context.rank)]
        for i in range(4):
            x[0] = context.rank + 1
            runs[i % len(runs)].execute()
            assert x[0] == 6
            assert context.allreduce(numpy.ones(1))[0] == 3

    weft.run_local(3, program)


# ---- parts, results ----


def test_parts_and_results():
    size = 3

    def build(rank):
        s = weft.Schedule(rank, size, "twice")
        x = s.slot("x", "f64", 4)
        y = s.slot("y", "f64", 4, "scratch")
        first = s.part(weft.build("allreduce", rank, size, count=4, dtype="f64", in_place=True),
                       slots={"recv": x}, tag_count=100, name="first")
        copied = s.copy(y, x, after=first)
        s.part(weft.build("allreduce", rank, size, count=4, dtype="f64", in_place=True),
               after=[copied, first], slots={"recv": x}, tag=100, name="second")
        return s

    def program(context):
        x = numpy.full(4, context.rank + 1.0)
        s = build(context.rank)
        assert "first" in [node["label"] for node in s.nodes]
        s.commit().run(context, x=x).execute()
        return x.tolist()

    assert weft.run_local(size, program) == [[18.0] * 4] * 3
    with pytest.raises(weft.WeftError, match="recv"):
        weft.Schedule(0, 3).part(weft.build("allreduce", 0, 3, count=4, in_place=True))


def test_results_are_checked():
    assert weft.check([ring(rank, 4) for rank in range(4)])
    wrong = []
    for rank in range(2):
        s = weft.Schedule(rank, 2)
        x, y = s.slot("x", "f64", 1, "input"), s.slot("y", "f64", 1, "output")
        s.send(x, 1 - rank), s.recv(y, 1 - rank)
        s.result(y, x, op="sum")
        wrong.append(s)
    assert not weft.check(wrong)


# ---- documents ----


@pytest.mark.parametrize("format", ["text", "json"])
def test_documents_come_back(format):
    schedules = [ring(rank, 3) for rank in range(3)]
    document = weft.write_schedules(schedules, format)
    back = weft.read_schedules(document)
    assert [s.rank for s in back] == [0, 1, 2]
    assert weft.write_schedules(back, format) == document
    assert back[1].nodes[1] == dict(schedules[1].nodes[1], line=back[1].nodes[1]["line"])
    assert sorted(back[2].edges) == sorted(schedules[2].edges)
    assert weft.read_schedules(schedules[0].dump(format))[0].rank == 0

    def program(context):
        x = numpy.ones(1)
        back[context.rank].commit().run(context, sum=x).execute()
        return x[0]

    assert weft.run_local(3, program) == [3] * 3


def test_other_formats():
    schedules = [ring(rank, 2) for rank in range(2)]
    assert weft.write_schedules(schedules, "dot").startswith("digraph")
    assert "rank 1" in weft.write_schedules(schedules, "goal")
    with pytest.raises(weft.InvalidError, match="format is 'yaml'"):
        weft.write_schedules(schedules, "yaml")


def test_documents_with_operations_and_parameters():
    double = weft.compute(lambda call: call.arguments[0].__imul__(2), name="double")
    document = """weft 1
param n = 4
schedule "doubled" size any

ranks r {
  inout x f64 n
  compute double(inout x)
}
"""
    assert weft.read_parameters(document) == {"n": "4"}
    text = weft.Schedule(0, 1, "doubled")
    text.compute(double, updates(text.slot("x", "f64", 7)))
    written = text.dump()
    schedule, = weft.read_schedules(written, ops=[double])
    with weft.LocalGroup(1).context(0) as context:
        x = numpy.ones(7)
        schedule.commit().run(context, x=x).execute()
        assert x.tolist() == [2] * 7
    with pytest.raises(weft.FormatError, match="double"):
        weft.read_schedules(written)
    with pytest.raises(weft.FormatError, match="line"):
        weft.read_schedules("weft 1\nnonsense")
    del schedule, text
    gc.collect()


# ---- templates ----


def test_templates():
    known = {template["name"]: template for template in weft.templates()}
    assert "ring" in [algorithm["name"] for algorithm in known["allreduce"]["algorithms"]]
    assert "count" in known["allreduce"]["parameters"]
    with pytest.raises(weft.NotFoundError, match="allreduce"):
        weft.build("allredoce", 0, 2)
    with pytest.raises(weft.NotFoundError, match="ring"):
        weft.build("allreduce", 0, 2, algo="rings", count=4)
    with pytest.raises(TypeError, match="did you mean 'count'"):
        weft.build("allreduce", 0, 2, cuont=4)
    choice = weft.choose("allreduce", 8, count=1000000)
    assert choice.algo and choice.cost_us > 0
    assert [s.rank for s in weft.build_all("allreduce", 3, count=4)] == [0, 1, 2]


@pytest.mark.parametrize("algo", ["ring", "recursive-doubling", None])
def test_runs_of_templates(algo):
    larger = weft.reduction(lambda a, b: numpy.maximum(a, b))

    def program(context):
        x, y = numpy.full(5, float(context.rank)), numpy.zeros(5)
        weft.create_run(context, "allreduce", dict(algo=algo, op=larger), send=x, recv=y).execute()
        assert y.tolist() == [3] * 5
        weft.create_run(context, "allreduce", dict(algo=algo), recv=x).execute()
        assert x.tolist() == [6] * 5
        buffer = numpy.full(3, context.rank, "i4")
        weft.create_run(context, "broadcast", dict(root=2), buffer=buffer).execute()
        assert buffer.tolist() == [2] * 3

    weft.run_local(4, program)


# ---- series ----


def counter(rank, size=2):
    """A version sums one number once its event has been fired."""
    s = weft.Schedule(rank, size)
    x = s.slot("x", "f64", 1)
    go = s.event()
    s.part(weft.build("allreduce", rank, size, count=1, dtype="f64", in_place=True), after=go,
           slots={"recv": x})
    return s.commit(), go


def test_series(pair):
    def program(rank):
        plan, go = counter(rank)
        arrays = [numpy.full(1, float(version)) for version in range(6)]
        told, armed = [], []

        def arm(series, version):
            armed.append(version)
            if version == 6:
                return weft.Series.RETIRED
            series.run(0)["x"] = arrays[version]
            return None

        with weft.Series(pair[rank], [plan], arm, ended=lambda *what: told.append(what)) as series:
            assert series.start() is series
            for version in range(6):
                series.wait(version - 1) if version else None
                fired = None
                while fired is None:  # the version before has ended, and this one may have still to start
                    fired = series.fire(version, go)
                assert fired is True
                series.wait(version)
                assert arrays[version][0] == 2 * version
            assert series.fire(0, go) is False
            with pytest.raises(weft.StateError, match="ended before version 6"):
                series.wait(6)
            assert series.version == 6
        assert armed == list(range(7)) and told == [(version, 0) for version in range(6)]

    from conftest import in_threads

    in_threads(lambda: program(0), lambda: program(1))


def test_series_that_arms_later(pair):
    context = pair[0]
    s = weft.Schedule(0, 2)
    s.slot("x", "f64", 1)
    s.join()
    ready, asked = threading.Event(), []

    def arm(series, version):
        asked.append(version)
        if version == 0:
            if not ready.is_set():
                return weft.Series.LATER
            series.run()["x"] = numpy.zeros(1)
            return 0
        if asked.count(1) < 3:
            return 0.001
        return weft.Series.RETIRED

    series = weft.Series(context, s, arm)
    series.start()
    with pytest.raises(weft.errors.TimeoutError, match="version 0 has not ended"):
        series.wait(0, 0.02)
    ready.set()
    series.poke()
    series.wait(0)
    with pytest.raises(weft.StateError):
        series.wait(1)
    assert asked.count(1) == 3
    series.close()
    for closed in (series.poke, series.start, lambda: series.version, lambda: series.run().start(),
                   lambda: series.run()["x"]):
        with pytest.raises((weft.StateError, TypeError)):
            closed()


def test_series_of_two_plans(pair):
    plans = []
    for number in range(2):
        s = weft.Schedule(0, 2)
        s.copy(s.slot("out", "f64", 1, "output"), s.slot("in", "f64", 1, "input"))
        plans.append(s.commit())
    out = numpy.zeros(2)

    def arm(series, version):
        if version == 12:
            return weft.Series.RETIRED
        run = series.run(version % 2)
        run["out"], run["in"] = out[version % 2:][:1], numpy.full(1, float(version))
        return version % 2

    series = weft.Series(pair[0], plans, arm, first=10).start()
    series.wait(11)
    assert out.tolist() == [10, 11]
    with pytest.raises(weft.InvalidError, match="plan is 2, expected 0 to 1"):
        series.run(2)
    with pytest.raises(weft.StateError, match="series"):
        series.run(0).start()
    with pytest.raises(weft.StateError):
        series.run(0).close()
    run = series.run(1)
    assert run.version == 11 and "Run of" in repr(run)
    del series
    gc.collect()
    assert run.version == 11  # it holds the series


def test_series_whose_function_raises(pair):
    s = weft.Schedule(0, 2)
    s.join()

    def arm(series, version):
        if version == 2:
            raise Mine("not this one")

    series = weft.Series(pair[0], s, arm)
    series.start()
    with pytest.raises(weft.WeftError, match="arm: Mine: not this one") as caught:
        series.wait(5)
    assert isinstance(caught.value.__cause__, Mine)
    with pytest.raises(weft.InvalidError, match="arm is 5"):
        weft.Series(pair[0], s, 5)


def test_series_need_a_helper(alone):
    s = weft.Schedule(0, 1)
    s.join()
    with pytest.raises(weft.StateError, match="helper"):
        weft.Series(alone, s)

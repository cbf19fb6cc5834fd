# SPDX-License-Identifier: BSD-3-Clause
"""The collectives: every call, blocking and not, against numpy; what fails, and what goes on after that."""
import functools
import gc
import operator
import threading
import time

import numpy
import pytest

import weft
from weft._library import lib

SIZES = [1, 2, 3, 5]
REDUCTIONS = {"sum": numpy.add, "prod": numpy.multiply, "min": numpy.minimum, "max": numpy.maximum,
              "band": numpy.bitwise_and, "bor": numpy.bitwise_or, "bxor": numpy.bitwise_xor}


def numbers(rank, count, kind="f8", seed=0):
    """What a rank contributes: small whole numbers, so that sums of any order are equal."""
    return numpy.random.RandomState(1000 * seed + rank).randint(1, 5, count).astype(kind)


def folded(function, parts):
    return functools.reduce(function, parts)


def both(context, name, *arguments, **named):
    """The call that blocks, and the other one: what each returns, of copies of the arguments."""
    def copies():
        return [given.copy() if isinstance(given, numpy.ndarray) else given for given in arguments]

    first = getattr(context, name)(*copies(), **named)
    second = getattr(context, "i" + name)(*copies(), **named)
    assert isinstance(second, weft.Request)
    result = second.wait()
    assert second.done and second.test() and second.wait() is result is second.result
    return first, result


def same(given, expected):
    for array in given:
        assert array.dtype == expected.dtype and array.shape == expected.shape
        numpy.testing.assert_array_equal(array, expected)


# ---- every call ----


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 1, 7, 3000])
def test_broadcast_and_barrier(size, count):
    def program(context):
        for root in range(size):
            x = numbers(context.rank, count, seed=root)
            same(both(context, "broadcast", x, root), numbers(root, count, seed=root))
            kept = context.broadcast(x, root=root)
            assert kept is x
        assert context.barrier() is None
        assert context.ibarrier().wait() is None

    weft.run_local(size, program)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", list(REDUCTIONS))
def test_reductions(size, op):
    def program(context):
        for kind in ("i4", "u8", "i1") + (("f4", "f8", "f2") if op[0] != "b" else ()):
            for count in (0, 1, 5, 2000):
                parts = [numbers(rank, count, kind) for rank in range(size)]
                total = folded(REDUCTIONS[op], parts)
                mine = parts[context.rank]
                same(both(context, "allreduce", mine, op=op), total)
                same(both(context, "allreduce", mine, numpy.empty_like(mine), op), total)
                for root in (0, size - 1):
                    got = both(context, "reduce", mine, op=op, root=root)
                    if context.rank == root:
                        same(got, total)
                        same(both(context, "reduce", mine, numpy.empty_like(mine), op, root), total)
                    else:
                        assert got == (None, None)
                        assert both(context, "reduce", mine, None, op, root) == (None, None)

    weft.run_local(size, program)


@pytest.mark.parametrize("size", SIZES)
def test_logical_reductions(size):
    def program(context):
        parts = [numpy.random.RandomState(rank).randint(0, 2, 40).astype("i4") for rank in range(size)]
        for op in ("and", "or", "xor"):
            function = getattr(numpy, "logical_" + op)
            expected = folded(function, parts).astype("i4") if size > 1 else parts[0]
            same(both(context, "allreduce", parts[context.rank], op="l" + op), expected)

    weft.run_local(size, program)


@pytest.mark.parametrize("size", SIZES)
def test_in_place_is_what_is_returned(size):
    def program(context):
        x = numbers(context.rank, 4)
        assert context.allreduce(x) is x
        assert context.scan(x) is x and context.allreduce(x, x) is x
        out = numpy.empty(4)
        assert context.allreduce(x, out) is out
        assert (context.reduce(x) is x) == (context.rank == 0)

    weft.run_local(size, program)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 1, 6, 700])
def test_blocks(size, count):
    def program(context):
        rank = context.rank
        parts = [numbers(r, (size, count)) for r in range(size)]
        one = [part[0].copy() if count else numpy.zeros(0) for part in parts]
        same(both(context, "allgather", one[rank]), numpy.array(one).reshape(size, count))
        same(both(context, "allgather", one[rank], numpy.empty(size * count)), numpy.concatenate(one))
        total = sum(parts)
        same(both(context, "reduce_scatter", parts[rank]), total[rank])
        same(both(context, "reduce_scatter", parts[rank], numpy.empty(count)), total[rank])
        same(both(context, "alltoall", parts[rank]), numpy.array([part[rank] for part in parts]))
        same(both(context, "alltoall", parts[rank], numpy.empty(size * count)),
             numpy.concatenate([part[rank] for part in parts]))
        around = numpy.array([one[rank - 1], one[(rank + 1) % size]])
        same(both(context, "neighbour_exchange", one[rank]), around.reshape(2, count))
        for root in (0, size - 1):
            got = both(context, "gather", one[rank], root=root)
            if rank == root:
                same(got, numpy.array(one).reshape(size, count))
                same(both(context, "gather", one[rank], numpy.empty(size * count), root),
                     numpy.concatenate(one))
            else:
                assert got == (None, None)
                assert both(context, "gather", one[rank], None, root) == (None, None)
            if rank == root:
                same(both(context, "scatter", parts[root], root=root), parts[root][rank])
                same(both(context, "scatter", parts[root], numpy.empty(count), root=root), parts[root][rank])
            else:
                same(both(context, "scatter", None, numpy.empty(count), root), parts[root][rank])
                same(both(context, "scatter", None, recv=numpy.empty(count), root=root), parts[root][rank])

    weft.run_local(size, program)


@pytest.mark.parametrize("size", SIZES)
def test_scans(size):
    def program(context):
        rank = context.rank
        parts = [numbers(r, 30) for r in range(size)]
        same(both(context, "scan", parts[rank]), sum(parts[:rank + 1]))
        same(both(context, "scan", parts[rank], numpy.empty(30), "max"),
             folded(numpy.maximum, parts[:rank + 1]))
        got = both(context, "exscan", parts[rank], numpy.full(30, -7.0))
        same(got, sum(parts[:rank]) if rank else numpy.full(30, -7.0))
        got = both(context, "exscan", parts[rank])
        same(got, sum(parts[:rank]) if rank else parts[0])

    weft.run_local(size, program)


def test_shapes_of_new_arrays():
    def program(context):
        x = numpy.ones((2, 3), "f4")
        assert context.allgather(x).shape == (4, 2, 3)
        assert context.neighbour_exchange(x).shape == (2, 2, 3)
        assert context.reduce_scatter(numpy.ones((4, 5), "f4")).shape == (5,)
        assert context.reduce_scatter(numpy.ones((8, 5), "f4")).shape == (2, 5)
        assert context.reduce_scatter(numpy.ones((2, 6), "f4")).shape == (3,)
        assert context.reduce_scatter(numpy.ones(4, "f4")).shape == (1,)
        assert context.alltoall(numpy.ones((4, 2), "f4")).shape == (4, 2)
        assert context.allgather(numpy.float32(context.rank)).tolist() == [0, 1, 2, 3]

    weft.run_local(4, program)


# ---- blocks with counts of their own ----

COUNTS = [3, 0, 5, 1, 2]


@pytest.mark.parametrize("size", SIZES)
def test_counts(size):
    def program(context):
        rank = context.rank
        counts = COUNTS[:size]
        parts = [numbers(r, counts[r]) for r in range(size)]
        whole = numpy.concatenate(parts)
        same(both(context, "allgatherv", parts[rank], counts), whole)
        same(both(context, "allgatherv", parts[rank], counts, numpy.empty(sum(counts))), whole)
        for root in (0, size - 1):
            got = (both(context, "gatherv", parts[rank], counts, root=root) if rank == root else
                   both(context, "gatherv", parts[rank], root=root))
            same(got, whole) if rank == root else None
            assert rank == root or got == (None, None)
            got = (both(context, "scatterv", whole, counts, root=root) if rank == root else
                   both(context, "scatterv", None, None, numpy.empty(counts[rank]), root=root))
            same(got, parts[rank])
        full = [numbers(r, sum(counts), seed=1) for r in range(size)]
        offsets = numpy.concatenate([[0], numpy.cumsum(counts)]).astype(int)
        total = sum(full)[offsets[rank]:offsets[rank + 1]]
        same(both(context, "reduce_scatterv", full[rank], counts), total)
        same(both(context, "reduce_scatterv", full[rank], counts, numpy.empty(counts[rank]), "sum"), total)

    weft.run_local(size, program)


@pytest.mark.parametrize("size", SIZES)
def test_counts_of_pairs(size):
    counts = numpy.random.RandomState(5).randint(0, 4, (size, size))

    def program(context):
        rank = context.rank
        blocks = [[numbers(10 * s + r, counts[s, r]) for r in range(size)] for s in range(size)]
        expected = numpy.concatenate([blocks[s][rank] for s in range(size)])
        out, into = counts[rank].tolist(), counts[:, rank].tolist()
        send = numpy.concatenate(blocks[rank])
        same(both(context, "alltoallv", send, out, into), expected)
        same(both(context, "alltoallv", send, counts[rank], counts[:, rank], numpy.empty(sum(into))),
             expected)
        # Blocks in the opposite order, with gaps.
        ends = numpy.cumsum([count + 1 for count in out])
        places = [int(ends[-1] - end) for end in ends]
        spread = numpy.full(ends[-1], -1.0)
        for place, block in zip(places, blocks[rank]):
            spread[place:place + len(block)] = block
        recv_places = [int(sum(into[s + 1:]) + 2 * (size - s)) for s in range(size)]
        recv = numpy.full(sum(into) + 2 * size + 1, -9.0)
        result = numpy.full_like(recv, -9.0)
        for s in range(size):
            result[recv_places[s]:recv_places[s] + into[s]] = blocks[s][rank]
        same(both(context, "alltoallv", spread, out, into, recv, places, recv_places), result)

    weft.run_local(size, program)


@pytest.mark.parametrize("size", SIZES)
def test_displacements(size):
    def program(context):
        rank = context.rank
        counts = COUNTS[:size]
        places = [2 + sum(counts[r + 1:]) + size - r for r in range(size)]  # the last rank's block first
        room = max(place + count for place, count in zip(places, counts)) + 1
        parts = [numbers(r, counts[r]) for r in range(size)]
        expected = numpy.full(room, -1.0)
        for r in range(size):
            expected[places[r]:places[r] + counts[r]] = parts[r]
        blank = numpy.full(room, -1.0)
        same(both(context, "allgatherv", parts[rank], counts, blank, places), expected)
        if rank == 0:
            same(both(context, "gatherv", parts[0], counts, blank, places), expected)
            same(both(context, "scatterv", expected, counts, None, places), parts[0])
        else:
            assert both(context, "gatherv", parts[rank]) == (None, None)
            same(both(context, "scatterv", None, recv=numpy.empty(counts[rank])), parts[rank])
        made = context.allgatherv(parts[rank], counts, displacements=places)
        assert len(made) == max([p + c for p, c in zip(places, counts) if c])

    weft.run_local(size, program)


# ---- other things than numpy's ----


@pytest.mark.parametrize("size", [1, 3])
def test_torch(size):
    torch = pytest.importorskip("torch")

    def program(context):
        rank = context.rank
        for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8):
            x = torch.arange(6).to(kind) + rank
            total = sum(torch.arange(6).to(kind) + r for r in range(size))
            assert torch.equal(context.allreduce(x.clone()), total)
            got = context.allgather(x)
            assert isinstance(got, torch.Tensor) and got.dtype == kind and got.shape == (size, 6)
            assert torch.equal(got[rank], x)
            assert context.iallreduce(x).wait() is x
        flags = torch.tensor([rank == 0, True])
        assert torch.equal(context.broadcast(flags), torch.tensor([True, True]))
        x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(rank))
        last = x.to(memory_format=torch.channels_last)
        expected = x.clone()
        context.allreduce(expected)
        assert torch.equal(context.allreduce(last.clone(memory_format=torch.preserve_format)), expected)
        parameter = torch.nn.Parameter(torch.full((3,), float(rank)))
        context.broadcast(parameter)
        assert parameter.tolist() == [0, 0, 0]

    weft.run_local(size, program)


def test_numpy_and_torch_meet():
    torch = pytest.importorskip("torch")

    def program(context):
        x = numpy.ones(4, "f4") if context.rank else torch.ones(4)
        assert context.allreduce(x).tolist() == [2, 2, 2, 2]
        out = torch.zeros(4)
        context.allreduce(numpy.ones(4, "f4"), out)
        assert out.tolist() == [2, 2, 2, 2]

    weft.run_local(2, program)


def test_bytes_and_arrays():
    import array

    def program(context):
        data = bytearray(b"hello") if context.rank == 0 else bytearray(5)
        assert context.broadcast(data) is data and data == b"hello"
        assert bytes(context.allgather(b"ab").ravel()) == b"abab"
        numbers = array.array("d", [1.0, 2.0])
        context.allreduce(memoryview(numbers))
        assert numbers.tolist() == [2.0, 4.0]

    weft.run_local(2, program)


def test_orders_of_memory():
    def program(context):
        plain = numpy.arange(6.0).reshape(2, 3)
        x = numpy.asfortranarray(plain)
        numpy.testing.assert_array_equal(context.allreduce(x.copy(order="F")), 2 * plain)
        out = numpy.empty((2, 3), order="F")
        numpy.testing.assert_array_equal(context.allreduce(x, out), 2 * x)
        with pytest.raises(weft.InvalidError, match="different orders"):
            context.allreduce(x, numpy.empty((2, 3)))
        for name in ("allgather", "reduce_scatter", "alltoall", "neighbour_exchange"):
            with pytest.raises(weft.InvalidError, match="send is cut into blocks, and is not in C order"):
                getattr(context, name)(x)
        with pytest.raises(weft.InvalidError, match="recv is cut into blocks, and is not in C order"):
            context.allgather(numpy.ones(3), numpy.empty((2, 3), order="F"))
        context.barrier()

    weft.run_local(2, program)


def test_complex_and_structured_elements_move():
    def program(context):
        kind = numpy.dtype([("a", "i4"), ("b", "f8")])
        x = numpy.zeros(3, kind)
        x["a"], x["b"] = context.rank, context.rank + 0.5
        got = context.allgather(x)
        assert got.dtype == kind and got.shape == (2, 3)
        assert got["b"].tolist() == [[0.5] * 3, [1.5] * 3]
        z = numpy.full(2, complex(context.rank, 1))
        assert context.broadcast(z, 1).tolist() == [1 + 1j] * 2
        with pytest.raises(weft.WeftError):
            context.allreduce(z)  # nothing built in works on them
        words = numpy.array(["x", "yz"], "U2")
        assert context.allgather(words[context.rank:][:1]).tolist() == [["x"], ["yz"]]

    weft.run_local(2, program)


# ---- Python functions as operations ----


@pytest.mark.parametrize("size", SIZES)
def test_python_reduction(size):
    larger = weft.reduction(lambda a, b: numpy.where(abs(a) >= abs(b), a, b), name="absmax")
    assert larger.name == "absmax" and larger.commutes

    def program(context):
        parts = [numbers(r, 50) * (-1) ** r for r in range(size)]
        expected = folded(lambda a, b: numpy.where(abs(a) >= abs(b), a, b), parts)
        got = context.allreduce(parts[context.rank].copy(), op=larger)
        assert abs(got).tolist() == abs(expected).tolist()
        assert abs(context.scan(parts[context.rank].copy(), op=larger))[0] == abs(
            folded(lambda a, b: max(a, b, key=abs), [p[0] for p in parts[:context.rank + 1]]))

    weft.run_local(size, program)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 40])
def test_reduction_that_does_not_commute(size, count):
    """Affine functions x -> a x + b, composed in the order of ranks."""
    kind = numpy.dtype([("a", "i8"), ("b", "i8")])

    def compose(f, g):
        both = numpy.empty(f.shape, kind)
        both["a"] = f["a"] * g["a"]
        both["b"] = g["a"] * f["b"] + g["b"]
        return both

    op = weft.reduction(compose, commutes=False, dtype=kind)
    assert op.name == "compose" and not op.commutes

    def program(context):
        parts = []
        for r in range(size):
            part = numpy.empty(count, kind)
            part["a"], part["b"] = numbers(r, count, "i8"), numbers(r, count, "i8", 1)
            parts.append(part)
        expected = folded(compose, parts)
        rank = context.rank
        same(both(context, "allreduce", parts[rank], op=op), expected)
        got = both(context, "reduce", parts[rank], op=op, root=size - 1)
        if rank == size - 1:
            same(got, expected)
        same(both(context, "scan", parts[rank], op=op), folded(compose, parts[:rank + 1]))
        blocks = [numpy.tile(part, size) for part in parts]
        same(both(context, "reduce_scatter", blocks[rank], op=op), expected)

    weft.run_local(size, program)


def test_reduction_of_complex_numbers():
    op = weft.reduction(operator.add, dtype="complex128")

    def program(context):
        x = numpy.full(4, complex(1, context.rank))
        assert context.allreduce(x, op=op).tolist() == [3 + 3j] * 4

    weft.run_local(3, program)


def test_reduction_of_torch_on_its_way():
    torch = pytest.importorskip("torch")
    op = weft.reduction(lambda a, b: a + b)

    def program(context):
        assert context.allreduce(torch.ones(3), op=op).tolist() == [2, 2, 2]

    weft.run_local(2, program)


def test_reduction_must_not_write_what_it_reads():
    def wrong(a, b):
        a += b
        return a

    op = weft.reduction(wrong)

    def program(context):
        mine = numpy.ones(3)
        with pytest.raises(weft.WeftError, match="read-only"):
            context.allreduce(mine, numpy.empty(3), op)
        assert mine.tolist() == [1, 1, 1]
        context.barrier()

    weft.run_local(2, program)


@pytest.mark.parametrize("returns", [None, 5, numpy.zeros(2), [1, 2, 3]])
def test_reduction_that_returns_nonsense(returns):
    op = weft.reduction(lambda a, b: returns, name="nonsense")

    def program(context):
        with pytest.raises(weft.WeftError, match="operation nonsense: InvalidError: it has returned"):
            context.allreduce(numpy.ones(3), op=op)
        assert context.allreduce(numpy.ones(3)).tolist() == [2, 2, 2]

    weft.run_local(2, program)


def test_reduction_that_raises():
    class Mine(Exception):
        pass

    def fails(a, b):
        raise Mine("not today")

    op = weft.reduction(fails)
    found = []

    def program(context):
        with pytest.raises((weft.ComputeError, weft.PeerError)) as caught:
            context.allreduce(numpy.ones(3), op=op)
        found.append(caught.value)
        assert context.allreduce(numpy.ones(3)).tolist() == [3, 3, 3]

    weft.run_local(3, program)
    mine = [problem for problem in found if isinstance(problem, weft.ComputeError)]
    assert mine
    for problem in mine:
        assert "operation fails: Mine: not today" in str(problem)
        assert isinstance(problem.__cause__, Mine)


def test_reduction_of_other_elements():
    op = weft.reduction(operator.add, dtype="complex128")

    def program(context):
        with pytest.raises(weft.WeftError, match="of 16 bytes each, and those of the call have 8"):
            context.allreduce(numpy.ones(3), op=op)

    weft.run_local(2, program)


def test_operations_by_name():
    assert weft.op("sum") is weft.op("sum") and weft.op("sum").name == "sum"
    assert weft.op("max").commutes
    mine = weft.reduction(operator.add)
    assert weft.op(mine) is mine
    with pytest.raises(weft.NotFoundError, match="sum"):
        weft.op("mean")
    with pytest.raises(weft.InvalidError, match="op is 5, expected a name"):
        weft.op(5)
    with pytest.raises(weft.InvalidError, match="weft.reduction"):
        weft.op(operator.add)
    with pytest.raises(weft.InvalidError, match="function is 3"):
        weft.reduction(3)
    assert weft.reduction(operator.add, name="mine").name == "mine"
    assert weft.reduction(lambda a, b: a).name == "function"
    with pytest.raises(weft.InvalidError):
        weft.reduction(operator.add, name="no name")
    for name in weft.op.__globals__["BUILTIN"]:
        assert weft.op(name).name == name


# ---- wrong arguments ----


@pytest.mark.parametrize("call", [
    lambda c: c.allreduce(5),
    lambda c: c.allreduce(b"abcd"),
    lambda c: c.allreduce(numpy.ones(3), numpy.ones(4)),
    lambda c: c.allreduce(numpy.ones(3), numpy.ones(3, "f4")),
    lambda c: c.allreduce(numpy.ones(3), op="mean"),
    lambda c: c.allreduce(numpy.ones(3), op=None),
    lambda c: c.allreduce(numpy.ones((4, 4))[:, :2]),
    lambda c: c.broadcast(numpy.ones(3), 7),
    lambda c: c.broadcast(numpy.ones(3), -1),
    lambda c: c.broadcast(numpy.ones(3), "first"),
    lambda c: c.broadcast(numpy.ones(3), 2**80),
    lambda c: c.reduce(numpy.ones(3), root=None),
    lambda c: c.gather(numpy.ones(3), root=1.5),
    lambda c: c.allgatherv(numpy.ones(3), [3]),
    lambda c: c.allgatherv(numpy.ones(3), None),
    lambda c: c.allgatherv(numpy.ones(3), [3, -1]),
    lambda c: c.allgatherv(numpy.ones(3), [3, 1.5]),
    lambda c: c.allgatherv(numpy.ones(3), [4, 4]),
    lambda c: c.allgatherv(numpy.ones(3), [3, 3], numpy.ones(5)),
    lambda c: c.allgatherv(numpy.ones(3), [3, 3], displacements=[0]),
    lambda c: c.allgatherv(numpy.ones(3), [3, 3], displacements=[0, -1]),
    lambda c: c.allgatherv(numpy.ones(3), [3, 3], displacements=[0, 1]),
    lambda c: c.alltoallv(numpy.ones(3), [9, 9], [1, 2]),
    lambda c: c.reduce_scatter(numpy.ones(3)),
    lambda c: c.reduce_scatterv(numpy.ones(3), [1, 1]),
    lambda c: c.scatter(numpy.ones(3), root=0) if c.rank == 0 else c.scatter(None, root=0),
    lambda c: c.alltoall(numpy.ones(3)),
    lambda c: c.allreduce(numpy.array([None])),
])
def test_a_wrong_argument_on_one_rank(call):
    """The others hear of it, and the next call is the next one on all."""
    def program(context):
        with pytest.raises((weft.InvalidError, weft.NotFoundError, weft.PeerError)) as caught:
            if context.rank == 0:
                call(context)
            else:
                context.allreduce(numpy.ones(3))
        assert isinstance(caught.value, weft.PeerError) == (context.rank == 1), caught.value
        x = numpy.full(5, context.rank + 1.0)
        assert context.allreduce(x).tolist() == [3] * 5
        with pytest.raises(weft.WeftError):
            (context.iallreduce(None) if context.rank == 0 else context.iallreduce(x).wait())
        context.barrier()

    weft.run_local(2, program)


def test_the_argument_is_named():
    with weft.LocalGroup(1).context(0) as context:
        for call, name in [(lambda: context.allreduce(None), "send is a NoneType"),
                           (lambda: context.allreduce(numpy.ones(2), None), None),
                           (lambda: context.allreduce(numpy.ones(2), [1]), "recv is a list"),
                           (lambda: context.broadcast("x"), "array is a str"),
                           (lambda: context.broadcast(numpy.ones(2), 3), "root is 3, expected 0 to 0"),
                           (lambda: context.allgatherv(numpy.ones(2), [2, 3]), "counts has 2 entries"),
                           (lambda: context.allgatherv(numpy.ones(2), ["a"]), r"counts\[0\] is 'a'"),
                           (lambda: context.alltoallv(numpy.ones(2), [2], [2], send_displacements=[-1]),
                            r"send_displacements\[0\] is -1")]:
            if name is None:
                call()
            else:
                with pytest.raises(weft.InvalidError, match=name):
                    call()


def test_a_call_that_is_failed_on_purpose():
    def program(context):
        if context.rank == 1:
            context.fail(MemoryError("no room"))
        else:
            with pytest.raises(weft.PeerError, match="rank 1.*no room"):
                context.allreduce(numpy.ones(2))
        assert context.allreduce(numpy.ones(2)).tolist() == [3, 3]

    weft.run_local(3, program)


def test_other_counts_and_a_deadline():
    def program(context):
        context.configure(deadline=0.05)
        with pytest.raises((weft.errors.TimeoutError, weft.PeerError)):
            if context.rank == 0:
                context.allreduce(numpy.ones(2))
            else:
                time.sleep(0.2)
                context.allreduce(numpy.ones(2))
        context.configure()
        context.barrier()
        assert context.allreduce(numpy.ones(2)).tolist() == [2, 2]

    weft.run_local(2, program)


def test_what_is_kept():
    with weft.LocalGroup(1).context(0) as context:
        for count in range(1, 6):
            context.allreduce(numpy.ones(count))
        stats = context.collectives_stats
        assert (stats.calls, stats.built, stats.plans) == (5, 5, 5)
        context.configure(plans=2)
        assert context.collectives_stats.plans == 2
        context.configure(plans=0)
        assert context.collectives_stats.plans == 0
        context.allreduce(numpy.ones(3))
        assert context.collectives_stats.plans == 0


# ---- requests ----


def test_requests_end_in_their_order():
    def program(context):
        arrays = [numpy.full(10, i + context.rank, "f8") for i in range(20)]
        requests = [context.iallreduce(x) for x in arrays]
        assert requests[-1].wait() is arrays[-1]
        assert all(request.done for request in requests)
        for i, x in enumerate(arrays):
            assert x.tolist() == [2 * i + 1] * 10
        assert requests[0].wait() is arrays[0]

    weft.run_local(2, program)


def test_a_request_that_waits_for_another_rank(pair):
    first, second = pair
    x = numpy.ones(4)
    request = first.iallreduce(x)
    assert not request.test() and not request.done
    assert "under way" in repr(request)
    with pytest.raises(weft.errors.TimeoutError, match="has not ended within 0.01 s"):
        request.wait(0.01)
    with pytest.raises(TimeoutError):
        request.wait(timeout=0)
    with pytest.raises(weft.InvalidError, match="timeout is 'long'"):
        request.wait("long")
    with pytest.raises(weft.InvalidError, match="timeout is -1"):
        request.wait(-1)
    second.allreduce(numpy.ones(4))
    assert request.wait(60) is x and x.tolist() == [2] * 4
    assert request.test() and "success" in repr(request)


def test_a_request_by_several_threads(pair):
    from conftest import in_threads

    first, second = pair
    for _ in range(50):
        x = numpy.ones(4)
        request = first.iallreduce(x)
        others = [request.wait] * 3 + [lambda: second.allreduce(numpy.ones(4))]
        results = in_threads(*others)
        assert all(result is x for result in results[:3])


def test_a_request_that_fails(pair):
    first, second = pair
    request = first.iallreduce(numpy.ones(4))
    second.fail("no")
    for _ in range(2):
        with pytest.raises(weft.PeerError, match="no"):
            request.wait(60)
        with pytest.raises(weft.PeerError):
            request.test()
    assert request.done


def test_requests_that_nobody_keeps(pair):
    """They go on, and their arrays are theirs until they have ended."""
    first, second = pair
    for i in range(200):
        x = numpy.full(5000, float(i))
        first.iallreduce(x)
        del x
        other = numpy.full(5000, -1.0)  # may lie where x lay, had that been freed
        second.iallreduce(numpy.full(5000, 1.0), other)
        del other
        if i % 50 == 49:
            gc.collect()
    done = first.iallreduce(numpy.ones(3))
    assert second.allreduce(numpy.ones(3)).tolist() == [2, 2, 2]
    done.wait()
    first.progress()
    second.progress()


def test_arrays_of_lost_requests_are_not_reused(pair):
    first, second = pair
    for i in range(100):
        first.iallreduce(numpy.full(3000, 1.0), numpy.empty(3000))
    gc.collect()
    mine = [numpy.full(3000, 7.0) for _ in range(100)]
    for i in range(100):
        second.allreduce(numpy.full(3000, 1.0))
    first.iallreduce(numpy.zeros(1)), second.allreduce(numpy.zeros(1))
    first.iallreduce(numpy.zeros(1)), second.allreduce(numpy.zeros(1))
    assert all((x == 7.0).all() for x in mine)
    record = first._handle.record
    while record.garbage:  # a call looks at some of it
        first.progress()
    assert not [child for child in record.children.values() if child.keep is not None]


def test_wait_all(pair):
    first, second = pair
    requests = [first.iallreduce(numpy.full(3, 1.0)) for _ in range(5)]
    with pytest.raises(TimeoutError):
        weft.wait_all(requests, 0.05)
    for i in range(5):
        second.iallreduce(numpy.ones(3)) if i != 2 else second.fail("no")
    with pytest.raises(weft.PeerError, match="no"):
        weft.wait_all(requests, 60)
    assert all(request.done for request in requests)
    weft.wait_all([])


def test_blocking_and_not_are_one_call():
    def program(context):
        x = numpy.ones(3)
        for i in range(20):
            x[:] = 1
            (context.allreduce(x) if (i + context.rank) % 2 else context.iallreduce(x).wait())
            assert x.tolist() == [3, 3, 3]

    weft.run_local(3, program)


def test_a_request_outlives_its_context():
    group = weft.LocalGroup(2)
    first, second = group.context(0, progress="helper"), group.context(1, progress="helper")
    x = numpy.ones(2)
    ended = first.iallreduce(x)
    second.allreduce(numpy.ones(2))
    while lib.weft_request_test(ended.pointer) == lib.WEFT_IN_PROGRESS:  # nothing in Python hears of it
        pass
    hanging = first.iallreduce(numpy.ones(2))
    first.close()
    assert ended.wait() is x and ended.done and ended.test()
    with pytest.raises(weft.CancelledError):
        hanging.wait()
    with pytest.raises(weft.WeftError):
        hanging.test()
    second.close()


def test_threads_share_a_context():
    def program(context):
        lock = threading.Lock()

        def some():
            for _ in range(100):
                with lock:  # the order must be that of all ranks
                    assert context.allreduce(numpy.ones(2)).tolist() == [2, 2]

        threads = [threading.Thread(target=some) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    weft.run_local(2, program)


def test_not_in_functions_that_weft_calls():
    seen = []

    def program(context):
        def nested(a, b):
            for call in (lambda: context.allreduce(numpy.ones(1)), lambda: context.iallreduce(numpy.ones(1)),
                         context.barrier, lambda: context.stats, context.report, context.progress,
                         lambda: context.split(0), context.close):
                with pytest.raises(weft.StateError) as caught:
                    call()
                seen.append(caught.value)
            return a + b

        assert context.allreduce(numpy.ones(3), op=weft.reduction(nested)).tolist() == [2, 2, 2]
        assert context.allreduce(numpy.ones(3)).tolist() == [2, 2, 2]

    weft.run_local(2, program)
    assert len(seen) >= 8

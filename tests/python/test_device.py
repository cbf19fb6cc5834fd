# SPDX-License-Identifier: BSD-3-Clause
"""Memory of devices: by DLPack, in runs, on streams, in objects; over the driver that there is, or its
stand-in (tests/gpu/standin), which counts what is wrong."""
import ctypes
import gc

import numpy
import pytest

import weft
from conftest import in_threads
from weft import buffers

try:
    cuda = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise OSError("no device")
except OSError as problem:
    pytest.skip("no CUDA driver, nor its stand-in: %s" % problem, allow_module_level=True)


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, "%s: %d" % (name, code)


class Context:
    """The primary context of the first device, current in a thread."""

    def __enter__(self):
        call("cuCtxPushCurrent_v2", primary)

    def __exit__(self, *_):
        call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


class Stream:
    """Of CUDA; as torch, cupy and others show theirs."""

    def __init__(self):
        self.pointer = ctypes.c_void_p()
        with Context():
            call("cuStreamCreate", ctypes.byref(self.pointer), 1)

    @property
    def cuda_stream(self):
        return self.pointer.value

    def synchronize(self):
        with Context():
            call("cuStreamSynchronize", self.pointer)

    def close(self):
        with Context():
            call("cuStreamDestroy_v2", self.pointer)


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Array:
    """An array in memory of a device, which gives it by DLPack."""

    made = []

    def __init__(self, values):
        values = numpy.ascontiguousarray(values)
        self.shape, self.kind, self.bytes = values.shape, values.dtype, values.nbytes
        self.pointer = ctypes.c_uint64()
        with Context():
            call("cuMemAlloc_v2", ctypes.byref(self.pointer), ctypes.c_size_t(max(self.bytes, 1)))
        self.set(values)
        Array.made.append(self)

    def set(self, values):
        values = numpy.ascontiguousarray(values, self.kind)
        with Context():
            call("cuMemcpyHtoD_v2", self.pointer, ctypes.c_void_p(values.ctypes.data),
                 ctypes.c_size_t(self.bytes))

    def get(self):
        values = numpy.empty(self.shape, self.kind)
        with Context():
            call("cuMemcpyDtoH_v2", ctypes.c_void_p(values.ctypes.data), self.pointer,
                 ctypes.c_size_t(self.bytes))
        return values

    def free(self):
        with Context():
            call("cuMemFree_v2", self.pointer)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        code = {"i": 0, "u": 1, "f": 2}[self.kind.kind]
        self.shape_of_c = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        self.tensor = DLTensor(self.pointer.value, 2, 0, len(self.shape), code, 8 * self.kind.itemsize, 1,
                               ctypes.cast(self.shape_of_c, ctypes.POINTER(ctypes.c_int64)))
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


primary = ctypes.c_void_p()


@pytest.fixture(autouse=True, scope="module")
def device():
    """Who releases a primary context last ends what is in it."""
    call("cuDevicePrimaryCtxRetain", ctypes.byref(primary), 0)
    yield
    call("cuDevicePrimaryCtxRelease_v2", 0)


@pytest.fixture(autouse=True)
def nothing_wrong():
    """Nothing was used wrongly, and what was made here is freed."""
    yield
    while Array.made:
        Array.made.pop().free()
    if hasattr(cuda, "standin_report"):
        said = ctypes.create_string_buffer(4096)
        wrong = cuda.standin_report(said, ctypes.c_size_t(4096))
        assert wrong == 0, said.value.decode()


@pytest.fixture
def on_device():
    """Both contexts of two local ranks with helpers, on one device."""
    group = weft.LocalGroup(2)
    contexts = [group.context(rank, progress="helper", device="cuda:0") for rank in range(2)]
    yield contexts
    for context in contexts:
        context.close()


@pytest.fixture
def stream():
    stream = Stream()
    yield stream
    stream.close()


# ---- buffers ----


@pytest.mark.parametrize("kind", ["f4", "f8", "f2", "i4", "u8"])
def test_memory_of_a_device_is_told(kind):
    x = Array(numpy.zeros((3, 4), kind))
    found = buffers.buffer(x, device=True)
    assert found.device and found.count == 12 and buffers.numpy_dtype(found.dtype) == numpy.dtype(kind)
    assert found.address == buffers.ffi.cast("void *", x.pointer.value)


def test_collectives_of_the_host_refuse_it(alone):
    with pytest.raises(weft.UnsupportedError, match="is memory of a device, expected the host's"):
        alone.allreduce(Array(numpy.zeros(3)))


@pytest.mark.parametrize("thing", ["cuda", 1.5, object()])
def test_no_streams(alone, thing):
    run = weft.build("barrier", 0, 1).commit().run(alone)
    for function in (run.start_on, run.wait_on, lambda stream: run.fire_on(0, stream)):
        with pytest.raises(weft.InvalidError, match="stream is .*expected a stream of torch or cupy"):
            function(thing)


def test_streams_as_others_show_them():
    class Protocol:
        def __cuda_stream__(self):
            return (0, 4096)

    class Cupy:
        ptr = 4096

    class Torch:
        cuda_stream = 4096

    pointer = buffers.stream_pointer(4096)
    assert all(buffers.stream_pointer(one) == pointer for one in (Protocol(), Cupy(), Torch()))
    assert not buffers.stream_pointer(None) and not buffers.stream_pointer(0)


# ---- schedules and runs ----


def exchange_of(rank, memory):
    s = weft.Schedule(rank, 2)
    x, y = s.slot("x", "f64", 1000, "input"), s.slot("y", "f64", 1000, "output")
    s.send(x, 1 - rank), s.recv(y, 1 - rank)
    s.set_memory(memory)
    return s


@pytest.mark.parametrize("apart", [False, True])
def test_messages_between_devices(on_device, apart):
    """Of the same device, and from a device to the host."""
    values = [numpy.arange(1000.0) + rank for rank in range(2)]
    schedules = [exchange_of(0, "device"), exchange_of(1, "host" if apart else "device")]
    x = [Array(values[0]), values[1] if apart else Array(values[1])]
    y = [Array(numpy.zeros(1000)), numpy.zeros(1000) if apart else Array(numpy.zeros(1000))]
    runs = [schedules[rank].commit().run(on_device[rank], x=x[rank], y=y[rank]) for rank in range(2)]
    for _ in range(3):
        in_threads(*[run.execute for run in runs])
        found = [one if isinstance(one, numpy.ndarray) else one.get() for one in y]
        assert (found[0] == values[1]).all() and (found[1] == values[0]).all()
    for run in runs:
        run.close()


def test_a_slot_is_where_it_says(on_device):
    run = exchange_of(0, "device").commit().run(on_device[0])
    with pytest.raises(weft.UnsupportedError, match="x is memory of the host, expected that of a device"):
        run.bind(x=numpy.zeros(1000))
    with pytest.raises(weft.InvalidError, match="999"):
        run.bind(x=Array(numpy.zeros(999)))
    other = exchange_of(0, "host").commit().run(on_device[0])
    with pytest.raises(weft.UnsupportedError, match="y is memory of a device, expected that of the host"):
        other.bind(y=Array(numpy.zeros(1000)))
    # Neither has a partner, and both are created on one rank only.
    run.close(), other.close()


def test_one_slot_is_moved(on_device):
    s = weft.Schedule(0, 1)
    x, y = s.slot("x", "f32", 10, "input", "device"), s.slot("y", "f32", 10, "output")
    s.copy(y, x)
    assert [s.slots["x"].count, s.node_count] == [10, 1]
    s.place()
    weft.read_schedules(s.dump())
    other = weft.Schedule(0, 1)
    with pytest.raises(weft.InvalidError, match="slot is of another schedule"):
        other.set_memory("device", x)
    with pytest.raises(weft.InvalidError, match="memory is 'disk', expected .*device"):
        s.set_memory("disk")
    s.set_memory("host", x)
    assert "device" not in s.dump()


def test_placing_adds_copies():
    s = weft.Schedule(0, 1)
    x, y = s.slot("x", "f32", 10, "input", "device"), s.slot("y", "f32", 10)
    s.reduce("sum", y, y, x)
    before = s.node_count
    s.place()
    assert s.node_count == before + 1 and s.nodes[-1]["kind"] == "copy"


@pytest.mark.parametrize("count", [0, 1, 999])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("algo", ["ring", "recursive-doubling", "reduce-scatter-allgather"])
def test_templates_on_devices(algo, size, count):
    def program(context):
        x = Array(numpy.arange(count, dtype="f4") * (context.rank + 1))
        y = Array(numpy.zeros(count, "f4"))
        s = weft.build("allreduce", context.rank, size, algo=algo, count=count, dtype="f32", memory="device")
        with s.commit().run(context, send=x, recv=y) as run:
            run.execute()
        return y.get()

    expected = numpy.arange(count) * (size * (size + 1) // 2)
    assert all((found == expected).all() for found in weft.run_local(size, program, device="cuda:0"))


def test_an_array_is_held_while_it_is_bound(on_device):
    run = exchange_of(0, "device").commit().run(on_device[0])
    ended = []

    class Mine(Array):
        def __del__(self):
            ended.append(1)

    run.bind(x=Mine(numpy.zeros(1000)))
    mine = Array.made.pop()
    pointer = mine.pointer
    del mine
    gc.collect()
    assert not ended
    run.close()
    del run
    gc.collect()
    assert ended
    with Context():
        call("cuMemFree_v2", pointer)


# ---- streams ----


def test_runs_on_streams(on_device, stream):
    """A stream starts a run and fires its event, and goes on behind it; no thread waits."""
    context = on_device[0]
    s = weft.Schedule(0, 1)
    x, y = s.slot("x", "f32", 100, "input", "device"), s.slot("y", "f32", 100, "output", "device")
    go = s.event()
    s.copy(y, x, after=go)
    source, target, behind = [Array(numpy.full(100, value, "f4")) for value in (7, 0, 0)]
    run = s.commit().run(context, x=source, y=target)
    for turn in range(1, 4):
        source.set(numpy.full(100, turn))
        assert run.start_on(stream) is run
        run.fire_on(go, stream)
        run.wait_on(stream)
        with Context():
            call("cuMemcpyDtoDAsync_v2", behind.pointer, target.pointer, ctypes.c_size_t(400), stream.pointer)
        stream.synchronize()
        assert run.test() and (behind.get() == turn).all()
        run.wait()
    run.close()


def test_a_run_for_a_stream_that_is_lost(on_device, stream):
    """Dropped while its event has not been fired: it is cancelled, and the stream goes on."""
    context = on_device[0]
    for _ in range(5):
        s = weft.Schedule(0, 1)
        s.event()
        run = s.commit().run(context)
        run.start_on(stream)
        run.wait_on(stream)
        del run
        gc.collect()
        context._handle.sweep()
        stream.synchronize()


# ---- objects ----


def averaging(contexts, program):
    """program(rank, context, tensors) in a thread a rank, each with two arrays of a device."""
    models = [[Array(numpy.full(7, 1.0 + rank, "f4")), Array(numpy.full(130, 2.0 * rank, "f4"))]
              for rank in range(2)]
    return models, in_threads(*[lambda rank=rank: program(rank, contexts[rank], models[rank])
                                for rank in range(2)])


def test_averages_of_devices(on_device):
    def program(rank, context, tensors):
        found = []
        with weft.GroupAverage(context, tensors, sync_period=1, initial="broadcast") as average:
            for turn in range(3):
                for i, one in enumerate(tensors):
                    one.set(numpy.full(one.shape, 1.0 + rank + turn + 10 * i))
                assert average.step().synchronised
                found.append([set(one.get()) for one in tensors])
            return found, average.state()["stats"]["steps"]

    _, found = averaging(on_device, program)
    assert found == [([[{1.5 + turn}, {11.5 + turn}] for turn in range(3)], 3)] * 2


def test_steps_on_streams(on_device):
    """What is put on a stream behind a step finds the average; the thread waits for nothing."""
    def program(rank, context, tensors):
        stream, found = Stream(), []
        with weft.GroupAverage(context, tensors, sync_period=1, initial="broadcast") as average:
            for turn in range(3):
                tensors[0].set(numpy.full(7, 1.0 + rank + turn))
                if turn < 2:
                    average.step_on(stream)
                else:
                    average.post_on(stream)
                    average.wait_on(stream)
                stream.synchronize()
                found.append(tensors[0].get()[0])
                result = average.wait()
                assert result.synchronised and result.members == 2
            with pytest.raises(weft.StateError):
                average.wait_on(stream)
        stream.close()
        return found

    _, found = averaging(on_device, program)
    assert found == [[1.5, 2.5, 3.5]] * 2


def test_a_step_whose_stream_does_not_get_there(on_device):
    """The next one is not begun, until it has."""
    def program(rank, context, tensors):
        stream, held = Stream(), weft.Schedule(0, 1)
        go = held.event()
        run = held.commit().run(context)
        with weft.GroupAverage(context, tensors, sync_period=1, initial="broadcast") as average:
            run.start().wait_on(stream)
            average.step_on(stream)
            with pytest.raises(weft.TimeoutError):
                average.step_on(stream, timeout=0.3)
            run.fire(go)
            average.step_on(stream)
            stream.synchronize()
            assert average.wait().synchronised and average.next == 2
        run.close()
        stream.close()

    averaging(on_device, program)


def test_steps_on_streams_are_for_devices(pair):
    def program(rank):
        with weft.GroupAverage(pair[rank], [numpy.zeros(3)]) as average:
            for function in (average.step_on, average.post_on, average.wait_on):
                with pytest.raises(weft.StateError, match="memory of the host"):
                    function()

    in_threads(*[lambda rank=rank: program(rank) for rank in range(2)])


def test_sides_are_not_mixed(on_device):
    with pytest.raises(weft.InvalidError, match="partly memory of the host and partly of a device"):
        weft.GroupAverage(on_device[0], [Array(numpy.zeros(3)), numpy.zeros(3)])
    with pytest.raises(weft.UnsupportedError, match="is memory of a device"):
        weft.CompressedAverage(on_device[0], [Array(numpy.zeros(3, "f4"))])


def test_states_of_sums_on_devices(on_device):
    """Gradients that no version has taken yet are copied out of the device, and back into it."""
    tensors = [[Array(numpy.full(7, 1.0 + rank, "f4")), Array(numpy.full(130, 3.0 + rank, "f4"))]
               for rank in range(2)]

    def created(states):
        return in_threads(*[lambda rank=rank: weft.GroupAverage(
            on_device[rank], tensors[rank], sync_period=100, contribution="accumulate", patience=0,
            state=states[rank]) for rank in range(2)])

    averages = created([None, None])
    averages[0].step()
    assert averages[1].step().stale  # its version has been without it
    states = [one.state() for one in averages]
    for one in averages:
        one.close()
    assert states[0]["pending"] is None
    assert (states[1]["pending"] == [2.0] * 7 + [4.0] * 130).all()
    averages = created(states)
    assert (averages[1].state()["pending"] == states[1]["pending"]).all()
    for one in averages:
        one.close()


@pytest.mark.parametrize("kind", ["f4", "f2"])
def test_sparse_averages_of_devices(on_device, kind):
    def program(rank, context):
        gradients = Array(numpy.zeros(500, kind))
        result = numpy.zeros(500, kind)
        result[10 * rank] = 4.0
        gradients.set(result)
        with weft.SparseAverage(context, [gradients], k=5) as average:
            average.step()
            state = average.state()
        return gradients.get(), state

    found = in_threads(*[lambda rank=rank: program(rank, on_device[rank]) for rank in range(2)])
    for values, state in found:
        assert values[0] == values[10] and values[0] > 0 and numpy.count_nonzero(values) == 2
        assert state["stats"]["steps"] == 1


def test_devices_in_many_threads(on_device):
    """Arrays that come and go while ranks run."""
    def program(rank):
        for turn in range(20):
            x, y = numpy.full(1000, rank + turn, "f8"), Array(numpy.zeros(1000))
            run = exchange_of(rank, "device").commit().run(on_device[rank], x=Array(x), y=y)
            run.execute()
            assert (y.get() == 1 - rank + turn).all()

    in_threads(*[lambda rank=rank: program(rank) for rank in range(2)])

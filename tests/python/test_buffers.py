# SPDX-License-Identifier: BSD-3-Clause
"""Memory that the caller brings: what is taken as it is, and what is refused, by name."""
import array
import ctypes
import gc
import mmap
import sys
import weakref

import numpy
import pytest

import weft
from weft import buffers
from weft._library import ffi

NUMBERS = ["f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
LONG = {"f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32",
        "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64"}
PAIR = numpy.dtype([("index", "i4"), ("value", "f8")])


def address(found):
    return int(ffi.cast("uintptr_t", found.address))


class OnlyDLPack:
    """What has DLPack, and nothing else."""

    def __init__(self, thing):
        self.thing = thing

    def __dlpack__(self, stream=None):
        return self.thing.__dlpack__()

    def __dlpack_device__(self):
        return self.thing.__dlpack_device__()


# ---- datatypes ----


@pytest.mark.parametrize("short", NUMBERS)
def test_datatypes_of_numpy(short):
    number = buffers.dtype(short)
    long = LONG[short]
    kinds = [long, numpy.dtype(long), getattr(numpy, long), numpy.dtype(long).newbyteorder("=")]
    assert {buffers.dtype(kind) for kind in kinds} == {number}
    assert buffers.dtype_name(number) == short
    assert buffers.numpy_dtype(number) == numpy.dtype(long)
    assert buffers.dtype(number) == number


@pytest.mark.parametrize("kind, size", [("?", 1), ("F", 8), ("D", 16), ("S5", 5), ("U3", 12), ("V7", 7),
                                        ("M8[ns]", 8), ("m8[s]", 8), (PAIR, 12), ("bytes24", 24)])
def test_opaque_datatypes(kind, size):
    number = buffers.dtype(kind)
    assert buffers.dtype_name(number) == "bytes%d" % size
    assert buffers.numpy_dtype(number) == numpy.dtype("V%d" % size)


@pytest.mark.parametrize("kind", ["f33", "bytes", "bytes0", "bytes-1", None, 1.5, "float33", object(), True,
                                  [1, 2]])
def test_no_datatypes(kind):
    with pytest.raises(weft.InvalidError):
        buffers.dtype(kind)


def test_no_datatype_lists_them():
    with pytest.raises(weft.InvalidError, match="'f33', expected one of .*f32.*u64.*bytesN"):
        buffers.dtype("f33")


def test_objects_are_no_elements():
    with pytest.raises(weft.InvalidError, match="Python objects"):
        buffers.dtype(object)
    with pytest.raises(weft.InvalidError, match="x: .*Python objects"):
        buffers.buffer(numpy.array([None]), "x")
    with pytest.raises(weft.InvalidError, match="Python objects"):
        buffers.dtype(numpy.dtype([("a", "O"), ("b", "i4")]))


def test_other_byte_order():
    with pytest.raises(weft.InvalidError, match="x: .*byte order"):
        buffers.buffer(numpy.zeros(3, ">f4"), "x")


def test_a_number_that_is_no_datatype():
    with pytest.raises(weft.InvalidError):
        buffers.numpy_dtype(12345)
    assert buffers.dtype_name(12345) == "12345"


# ---- numpy ----


@pytest.mark.parametrize("kind", [LONG[short] for short in NUMBERS] + ["?", "F", "D", "S5", "M8[ns]", PAIR])
def test_numpy_of_every_datatype(kind):
    x = numpy.zeros(6, kind)
    found = buffers.buffer(x, "x", writable=True)
    assert (address(found), found.count, found.dtype) == (x.ctypes.data, 6, buffers.dtype(x.dtype))
    assert found.bytes == x.nbytes
    assert not found.device and not found.readonly and found.order is None


def test_numpy_orders():
    x = numpy.zeros((3, 4), order="F")
    found = buffers.buffer(x)
    assert found.count == 12 and found.order == ((3, 4), (1, 3)) and address(found) == x.ctypes.data
    permuted = numpy.zeros((2, 3, 4)).transpose(1, 2, 0)
    assert buffers.buffer(permuted).order == ((3, 4, 2), (4, 1, 12))
    assert buffers.buffer(numpy.zeros((1, 5))[:, :]).order is None
    assert buffers.buffer(numpy.zeros((5, 1), order="F")).order is None
    assert buffers.buffer(numpy.float64(3)).count == 1
    assert buffers.buffer(numpy.zeros(())).count == 1


@pytest.mark.parametrize("make", [
    lambda x: x[::2], lambda x: x[::-1], lambda x: x[:, :2], lambda x: x[1:, 1:],
    lambda x: numpy.broadcast_to(x[0], (3, 4))])
def test_numpy_with_holes(make):
    view = make(numpy.zeros((4, 4)))
    with pytest.raises(weft.InvalidError, match=r"^here is not contiguous: strides are .*; pass a copy"):
        buffers.buffer(view, "here")


def test_numpy_parts_that_are_whole():
    x = numpy.arange(12.0).reshape(3, 4)
    found = buffers.buffer(x[1:])
    assert found.count == 8 and address(found) == x.ctypes.data + 32


def test_numpy_unaligned():
    raw = numpy.zeros(17, "u1")
    x = raw[1:17].view("f8")
    found = buffers.buffer(x, "x", writable=True)
    assert address(found) == raw.ctypes.data + 1


def test_numpy_subclasses(tmp_path):
    path = tmp_path / "map"
    x = numpy.memmap(path, "f4", "w+", shape=(5,))
    assert address(buffers.buffer(x, writable=True)) == x.ctypes.data
    assert buffers.buffer(numpy.ma.array([1.0, 2.0])).count == 2
    records = numpy.zeros(3, PAIR).view(numpy.recarray)
    assert buffers.buffer(records).bytes == 36


def test_numpy_read_only():
    x = numpy.zeros(3)
    x.flags.writeable = False
    assert buffers.buffer(x).readonly
    with pytest.raises(weft.InvalidError, match="^recv is read-only, and is written"):
        buffers.buffer(x, "recv", writable=True)


@pytest.mark.parametrize("shape", [0, (0, 3), (3, 0), (2, 0, 5)])
def test_numpy_empty(shape):
    found = buffers.buffer(numpy.zeros(shape), writable=True)
    assert found.count == 0 and found.bytes == 0 and found.order is None


def test_numpy_lives_as_long_as_its_buffer():
    x = numpy.ones(1000)
    gone = weakref.ref(x)
    found = buffers.buffer(x)
    located = buffers.locate(x.reshape(10, 100).T, "x")
    del x
    gc.collect()
    assert gone() is not None
    del found
    gc.collect()
    assert gone() is not None
    del located
    gc.collect()
    assert gone() is None


# ---- the buffer protocol ----


def test_bytes_and_the_like():
    room = bytearray(10)
    found = buffers.buffer(room, writable=True)
    assert (found.count, buffers.dtype_name(found.dtype)) == (10, "u8")
    with pytest.raises(BufferError):
        room.extend(b"x")  # lent
    del found
    gc.collect()
    room.extend(b"x")
    assert buffers.buffer(b"abc").readonly
    with pytest.raises(weft.InvalidError, match="buffer is read-only"):
        buffers.buffer(b"abc", writable=True)


@pytest.mark.parametrize("code, short", [
    ("b", "i8"), ("h", "i16"), ("i", "i32"), ("q", "i64"), ("B", "u8"), ("H", "u16"), ("I", "u32"),
    ("Q", "u64"),
    ("f", "f32"), ("d", "f64")])
def test_arrays_of_python(code, short):
    x = array.array(code, [1, 2, 3])
    found = buffers.buffer(x, writable=True)
    assert (address(found), found.count) == (x.buffer_info()[0], 3)
    assert buffers.dtype_name(found.dtype) == short
    view = memoryview(x)
    assert buffers.buffer(view, writable=True).count == 3
    with pytest.raises(weft.InvalidError, match="view is not contiguous"):
        buffers.buffer(view[::2], "view")
    assert buffers.buffer(view.cast("B").cast(code, (3, 1)), "view").count == 3


def test_ctypes_and_mmap():
    x = (ctypes.c_double * 4)(1, 2, 3, 4)
    found = buffers.buffer(x, writable=True)
    assert (address(found), found.count) == (ctypes.addressof(x), 4)
    assert buffers.dtype_name(found.dtype) == "f64"
    with mmap.mmap(-1, 100) as pages:
        assert buffers.buffer(pages, writable=True).count == 100
        gc.collect()


@pytest.mark.parametrize("thing", [None, 1, 1.5, "text", [1, 2], (1,), {}, object(), len])
def test_no_memory(thing):
    with pytest.raises(weft.InvalidError, match=r"^send is a \w+, expected an array, a tensor"):
        buffers.buffer(thing, "send")


def test_a_buffer_stays_what_it_is():
    x = numpy.zeros(3)
    found = buffers.buffer(x)
    assert buffers.buffer(found, writable=True) is found
    x.flags.writeable = False
    with pytest.raises(weft.InvalidError, match="out is read-only"):
        buffers.buffer(buffers.buffer(x), "out", writable=True)


def test_refused_things_leave_nothing():
    things = [numpy.zeros((4, 4))[:, :2], bytearray(8), [1], None]
    for thing in things:
        count = sys.getrefcount(thing)
        for _ in range(10):
            try:
                buffers.buffer(thing, writable=True)
            except weft.WeftError:
                pass
        gc.collect()
        assert sys.getrefcount(thing) <= count + 1


# ---- torch ----


@pytest.mark.parametrize("name, short", [
    ("float16", "f16"), ("bfloat16", "bf16"), ("float32", "f32"), ("float64", "f64"), ("uint8", "u8"),
    ("int8", "i8"), ("int16", "i16"), ("int32", "i32"), ("int64", "i64"), ("bool", "bytes1"),
    ("complex64", "bytes8"), ("complex128", "bytes16")])
def test_torch_of_every_datatype(name, short):
    torch = pytest.importorskip("torch")
    kind = getattr(torch, name)
    x = torch.zeros(6, dtype=kind)
    found = buffers.buffer(x, "x", writable=True)
    assert (address(found), found.count) == (x.data_ptr(), 6)
    assert buffers.dtype_name(found.dtype) == short == buffers.dtype_name(buffers.dtype(kind))


def test_torch_orders():
    torch = pytest.importorskip("torch")
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert not x.is_contiguous()
    found = buffers.buffer(x, writable=True)
    assert found.count == 120 and found.order == (tuple(x.shape), tuple(x.stride()))
    assert buffers.buffer(torch.zeros(3, 4).t()).order == ((4, 3), (1, 4))
    assert buffers.buffer(torch.zeros(3, 1).t()).order is None
    for view in (torch.zeros(4, 4)[:, :2], torch.zeros(8)[::2], torch.zeros(1, 3).expand(2, 3)):
        with pytest.raises(weft.InvalidError, match=r"x is not contiguous: .*\.contiguous\(\)"):
            buffers.buffer(view, "x")


def test_torch_tensors_of_models():
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(3, 2)
    for parameter in layer.parameters():
        found = buffers.buffer(parameter, writable=True)
        assert address(found) == parameter.data_ptr() and found.count == parameter.numel()
    x = torch.zeros(3, requires_grad=True)
    assert buffers.buffer(x * 2).count == 3
    assert buffers.buffer(torch.zeros(0)).count == 0
    assert buffers.buffer(torch.tensor(5.0)).count == 1


def test_torch_that_is_no_plain_memory():
    torch = pytest.importorskip("torch")
    with pytest.raises(weft.InvalidError, match="x has layout torch.sparse_coo"):
        buffers.buffer(torch.eye(3).to_sparse(), "x")
    with pytest.raises(weft.InvalidError, match="x is a lazy conjugate"):
        buffers.buffer(torch.zeros(3, dtype=torch.complex64).conj(), "x")
    with pytest.raises(weft.InvalidError, match="x is a lazy conjugate or negative"):
        buffers.buffer(torch.zeros(3, dtype=torch.complex64).conj().imag, "x")
    with pytest.raises(weft.UnsupportedError, match="x is on device meta"):
        buffers.buffer(torch.zeros(3, device="meta"), "x", device=True)
    with pytest.raises(weft.UnsupportedError, match="x: tensors of datatype torch.quint8"):
        buffers.buffer(torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.quint8), "x")


# ---- DLPack ----


@pytest.mark.parametrize("kind", [LONG[short] for short in NUMBERS])
def test_dlpack_of_numpy(kind):
    x = numpy.arange(6).astype(kind).reshape(2, 3)
    found = buffers.buffer(OnlyDLPack(x), writable=True)
    assert (address(found), found.count, found.dtype) == (x.ctypes.data, 6, buffers.dtype(kind))
    assert found.order is None


def test_dlpack_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.zeros(4, dtype=torch.bfloat16)
    found = buffers.buffer(OnlyDLPack(x), writable=True)
    assert (address(found), found.count) == (x.data_ptr(), 4)
    assert buffers.dtype_name(found.dtype) == "bf16"
    part = torch.arange(10)[3:]
    assert address(buffers.buffer(OnlyDLPack(part))) == part.data_ptr()
    complex_ones = buffers.buffer(OnlyDLPack(torch.zeros(2, dtype=torch.complex64)))
    assert buffers.dtype_name(complex_ones.dtype) == "bytes8"


def test_dlpack_orders():
    x = numpy.zeros((3, 4))
    assert buffers.buffer(OnlyDLPack(x.T)).order == ((4, 3), (1, 4))
    with pytest.raises(weft.InvalidError, match="x is not contiguous"):
        buffers.buffer(OnlyDLPack(x[:, :2]), "x")
    assert buffers.buffer(OnlyDLPack(numpy.zeros(()))).count == 1
    assert buffers.buffer(OnlyDLPack(numpy.zeros((0, 3)))).count == 0


def test_dlpack_keeps_and_gives_back():
    x = numpy.ones(1000)
    gone = weakref.ref(x)
    found = buffers.buffer(OnlyDLPack(x))
    del x
    gc.collect()
    assert gone() is not None
    del found
    gc.collect()
    assert gone() is None


def test_dlpack_that_fails():
    x = numpy.zeros(3)
    x.flags.writeable = False
    with pytest.raises(weft.InvalidError, match="^x: its memory cannot be had by DLPack"):
        buffers.buffer(OnlyDLPack(x), "x")

    class Strange:
        def __dlpack__(self, stream=None):
            return 5

    with pytest.raises(weft.InvalidError, match="^x: its memory cannot be had by DLPack"):
        buffers.buffer(Strange(), "x")


# ---- lists, views ----


def test_pieces():
    tensors = [numpy.ones(3, "f4"), numpy.ones((2, 2), "f4", order="F"), numpy.ones(0, "f4")]
    array, count, kind, found = buffers.pieces(tensors)
    assert count == 3 and kind == buffers.dtype("f32")
    assert [piece.count for piece in array] == [3, 4, 0]
    assert buffers.pieces([])[1:3] == (0, None)
    with pytest.raises(weft.InvalidError, match="layers are of several datatypes: f32, f64"):
        buffers.pieces([numpy.ones(3, "f4"), numpy.ones(3)], "layers")
    with pytest.raises(weft.InvalidError, match=r"tensors\[1\] is a NoneType"):
        buffers.pieces([numpy.ones(3), None])
    with pytest.raises(weft.InvalidError, match=r"tensors\[0\] is read-only"):
        buffers.pieces([b"abc"])


def test_views():
    x = numpy.arange(5, dtype="i4")
    there = ffi.cast("void *", x.ctypes.data)
    view = buffers.view(there, 5, buffers.dtype("i32"))
    view[2] = 7
    assert x[2] == 7
    fixed = buffers.view(there, 5, buffers.dtype("i32"), writeable=False)
    with pytest.raises(ValueError):
        fixed[0] = 1
    assert buffers.view(ffi.NULL, 0, buffers.dtype("f32")).shape == (0,)


def test_bf16_is_ml_dtypes_if_that_is_there():
    number = buffers.dtype("bf16")
    known = sys.modules.get("ml_dtypes")
    expected = numpy.dtype("uint16") if known is None else numpy.dtype(known.bfloat16)
    assert buffers.numpy_dtype(number) == expected
    assert buffers.dtype("bfloat16") == number


def test_plain_tensors_by_the_short_way():
    """What numpy cannot show, or is no plain memory, goes the long way, and both are held while they are used."""
    torch = pytest.importorskip("torch")
    for _ in range(2):  # datatypes are known from the first time on
        for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
            tensor = torch.ones(3, 4, dtype=kind, requires_grad=kind.is_floating_point)
            where, count, number, order = buffers.locate(tensor, "x", True)
            assert int(ffi.cast("uintptr_t", where)) == tensor.data_ptr()
            assert (count, buffers.dtype(kind), order) == (12, number, None)
        turned = torch.ones(3, 4).t()
        assert buffers.locate(turned, "x")[3] == ((4, 3), (1, 4))
        lazy = torch.complex(torch.ones(2), torch.ones(2)).conj()
        for tensor, text in ((lazy, "lazy conjugate"), (torch.ones(8)[::2], "not contiguous"),
                             (torch.ones(2, 2).to_sparse(), "expected a dense tensor")):
            with pytest.raises(weft.InvalidError, match="x is .*%s|x has .*%s" % (text, text)):
                buffers.locate(tensor, "x")
    where = buffers.locate(torch.ones(1000), "x")[0]  # which keeps it
    gc.collect()
    others = [torch.zeros(1000) for _ in range(50)]
    assert (numpy.frombuffer(ffi.buffer(where), "f4") == 1).all() and len(others) == 50

# SPDX-License-Identifier: BSD-3-Clause
"""Memory that the caller brings: arrays, tensors, anything with the buffer protocol or DLPack.

Nothing is copied. What is handed over must be contiguous, and writable where weft writes. Elements are
of the array's own datatype; ``bfloat16`` is known of torch and of ml_dtypes. Other elements (structured
arrays, complex numbers, booleans) are opaque: they are moved as a whole, and combined by functions only.
"""
import ctypes
import sys
from typing import Any, List, Optional, Tuple, Union

import numpy

from . import _life
from ._library import ffi, lib, text
from .errors import InvalidError, UnsupportedError, check

__all__ = ["Buffer", "buffer", "dtype", "dtype_name", "numpy_dtype", "view"]

#: What :func:`dtype` takes.
DTypeLike = Union[str, int, type, numpy.dtype, Any]

_OPAQUE = 0x40000000

_words = {}
for _number in range(12):
    _words[text(lib.weft_dtype_name(_number))] = _number

_numpy_names = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16",
                "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
                "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64"}
_by_long_name = {long: _words[short] for short, long in _numpy_names.items()}
_by_numpy = {}
_by_torch = {}
_numpy_kinds = {}

_CHARS = ffi.typeof("char[]")
_BYTES = ffi.typeof("char *")


def opaque(size: int) -> int:
    """The datatype of opaque elements of `size` bytes."""
    if size < 1:
        raise InvalidError("elements have %d bytes, expected 1 or more" % size)
    number = lib.weft_dtype_opaque(size)
    if number == lib.WEFT_DTYPE_COUNT:
        check(-1)
    return number


def _of_numpy(kind):
    number = _by_numpy.get(kind)
    if number is None:
        if kind.hasobject:
            raise InvalidError("elements of datatype %s are Python objects, expected plain memory" % kind)
        number = _by_long_name.get(kind.name)
        if number is None:
            number = opaque(kind.itemsize)
        elif not kind.isnative:
            raise InvalidError("elements of datatype %s are not in this machine's byte order" % kind)
        _by_numpy[kind] = number
    return number


def _of_torch(kind):
    number = _by_torch.get(kind)
    if number is None:
        number = _by_long_name.get(str(kind)[len("torch."):])
        if number is None:
            sizes = {"torch.bool": 1, "torch.complex32": 4, "torch.complex64": 8, "torch.complex128": 16}
            if str(kind) not in sizes:
                raise UnsupportedError("tensors of datatype %s are not supported" % kind)
            number = opaque(sizes[str(kind)])
        _by_torch[kind] = number
    return number


def dtype(kind: DTypeLike) -> int:
    """The number of a datatype.

    Parameters
    ----------
    kind : str, numpy.dtype, type, torch.dtype or int
        ``"f32"``, ``"bytes24"``, ``"float32"``, ``numpy.float32``, ``torch.float32`` ...

    Raises
    ------
    InvalidError
        There is no such datatype; the text lists those that there are.
    """
    if isinstance(kind, int) and not isinstance(kind, bool):
        return int(kind)
    if isinstance(kind, str):
        if kind in _words:
            return _words[kind]
        if kind in _by_long_name:
            return _by_long_name[kind]
        if kind.startswith("bytes") and kind[5:].isdigit():
            return opaque(int(kind[5:]))
    if type(kind).__module__ == "torch":
        return _of_torch(kind)
    try:
        found = None if kind is None else numpy.dtype(kind)  # None is float64 for numpy
    except (TypeError, ValueError):
        found = None
    if found is None:
        raise InvalidError("dtype is %r, expected one of %s, bytesN, or a datatype of numpy or torch"
                           % (kind, ", ".join(_words)))
    return _of_numpy(found)


def dtype_name(number: int) -> str:
    """``"f32"`` and so on, ``"bytes24"`` for opaque elements of 24 bytes."""
    return text(lib.weft_dtype_name(number), str(number))


def numpy_dtype(number: int) -> numpy.dtype:
    """The datatype of numpy for one of weft's. Of bf16 that is ml_dtypes' if it is there, else
    ``uint16``: the bits; of opaque elements ``V`` of their size."""
    known = _numpy_kinds.get(number)
    if known is not None:
        return known
    if number & _OPAQUE:
        known = numpy.dtype("V%d" % lib.weft_dtype_size(number))
    elif dtype_name(number) not in _numpy_names:
        raise InvalidError("dtype is %r, expected a number that weft.buffers.dtype() has returned" % number)
    elif number == _words["bf16"]:
        module = sys.modules.get("ml_dtypes")
        return numpy.dtype(module.bfloat16) if module else numpy.dtype("uint16")
    else:
        known = numpy.dtype(_numpy_names[dtype_name(number)])
    _numpy_kinds[number] = known
    return known


def view(address: Any, count: int, number: int, writeable: bool = True) -> numpy.ndarray:
    """An array over memory of the library: valid for as long as that is."""
    kind = numpy_dtype(number)
    if count == 0:
        return numpy.empty(0, kind)
    array = numpy.frombuffer(ffi.buffer(ffi.cast(_BYTES, address), count * kind.itemsize), kind)
    if not writeable:
        array.flags.writeable = False
    return array


class Buffer:
    """Contiguous memory of the caller.

    Attributes
    ----------
    address : cffi pointer
    count : int
        Elements.
    dtype : int
    keep : object
        What keeps the memory.
    device : bool
        Memory of a device (a GPU).
    readonly : bool
    order : tuple or None
        (shape, strides in elements) if the elements do not lie in C order.
    """

    __slots__ = ("address", "count", "dtype", "keep", "device", "readonly", "order")

    def __init__(self, address: Any, count: int, number: int, keep: Any, device: bool = False,
                 readonly: bool = False, order: Optional[tuple] = None) -> None:
        self.address = address
        self.count = count
        self.dtype = number
        self.keep = keep
        self.device = device
        self.readonly = readonly
        self.order = order

    @property
    def bytes(self) -> int:
        """How many bytes they are."""
        return self.count * lib.weft_dtype_size(self.dtype)

    def __repr__(self) -> str:
        return "<weft.buffers.Buffer: %d of %s>" % (self.count, dtype_name(self.dtype))


def _numpy_buffer(array, what):
    try:
        number = _of_numpy(array.dtype)
    except InvalidError as problem:
        raise InvalidError("%s: %s" % (what, problem)) from None
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        order = _order(array.shape, [stride // array.itemsize for stride in array.strides]
                       if not any(stride % array.itemsize for stride in array.strides) else None)
        if order is None:
            raise InvalidError("%s is not contiguous: strides are %r; pass a copy" % (what, array.strides))
    elif flags.c_contiguous:
        order = None
    else:
        order = (array.shape, tuple(stride // array.itemsize for stride in array.strides))
    return Buffer(ffi.cast(_BYTES, array.__array_interface__["data"][0]), array.size, number, array,
                  readonly=not flags.writeable, order=order)


def _order(shape, strides):
    """The order of memory, if the elements fill one piece of it in some order of the dimensions."""
    if strides is None:
        return None
    expected = 1
    for stride, extent in sorted((stride, extent) for stride, extent in zip(strides, shape) if extent > 1):
        if stride != expected:
            return None
        expected *= extent
    return tuple(shape), tuple(strides)


def _torch_buffer(tensor, what):
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided:
        raise InvalidError("%s has layout %s, expected a dense tensor" % (what, tensor.layout))
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidError("%s is a lazy conjugate or negative, expected its values: pass .resolve_conj()"
                           ".resolve_neg()" % what)
    order = None
    if not tensor.is_contiguous():  # channels last is one piece of memory all the same
        order = _order(tensor.shape, tensor.stride())
        if order is None:
            raise InvalidError("%s is not contiguous: strides are %r; pass .contiguous()"
                               % (what, tuple(tensor.stride())))
    place = tensor.device.type
    if place not in ("cpu", "cuda"):
        raise UnsupportedError("%s is on device %s, expected the processor's memory or CUDA's"
                               % (what, tensor.device))
    try:
        number = _of_torch(tensor.dtype)
    except UnsupportedError as problem:
        raise UnsupportedError("%s: %s" % (what, problem)) from None
    # Of a parameter that gets another memory (`parameter.data = ...`) this is the one that it has now.
    tensor = tensor.detach()
    return Buffer(ffi.cast(_BYTES, tensor.data_ptr()), tensor.numel(), number, tensor, device=place != "cpu",
                  order=order)


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

_DLPACK_CODES = {0: "i", 1: "u", 2: "f", 4: "bf"}
_DLPACK_HOST = (1, 3, 11)  # of the processor; pinned by CUDA, by ROCm
_DLPACK_DEVICE = (2, 13)  # of CUDA; managed by it


def _dlpack_buffer(thing, what):
    try:
        capsule = thing.__dlpack__()
        tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    except Exception as problem:
        raise InvalidError("%s: its memory cannot be had by DLPack: %s: %s"
                           % (what, type(problem).__name__, problem)) from problem
    if tensor.device_type not in _DLPACK_HOST + _DLPACK_DEVICE:
        raise UnsupportedError("%s is memory of DLPack device type %d, expected the processor's or CUDA's"
                               % (what, tensor.device_type))
    name = "%s%d" % (_DLPACK_CODES.get(tensor.code, "?"), tensor.bits)
    number = _words.get(name) if tensor.lanes == 1 else None
    if number is None:
        number = opaque((tensor.bits * tensor.lanes + 7) // 8)
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    count = 1
    for extent in shape:
        count *= extent
    order = None
    if tensor.strides and count:
        strides = [tensor.strides[i] for i in range(tensor.ndim)]
        order = _order(shape, strides)
        if order is None:
            raise InvalidError("%s is not contiguous: strides are %r; pass a copy" % (what, tuple(strides)))
        expected = 1
        for stride, extent in reversed([pair for pair in zip(strides, shape) if pair[1] > 1]):
            if stride != expected:
                break
            expected *= extent
        else:
            order = None
    # The capsule is not consumed: it frees what it has when it goes.
    return Buffer(ffi.cast(_BYTES, (tensor.data or 0) + tensor.byte_offset), count, number,
                  (capsule, thing), device=tensor.device_type in _DLPACK_DEVICE, order=order)


def buffer(thing: Any, what: str = "buffer", writable: bool = False, device: bool = False) -> Buffer:
    """The memory of an array, tensor or other thing; nothing is copied.

    Parameters
    ----------
    thing : array_like
        A numpy array, a torch tensor, what has the buffer protocol (``bytearray``, ``array.array``,
        ``memoryview``) or DLPack. A :class:`Buffer` is returned as it is.
    what : str
        The argument, for errors.
    writable : bool
        weft writes it.
    device : bool
        It may be memory of a device.

    Returns
    -------
    Buffer

    Raises
    ------
    InvalidError
        It is not contiguous, or cannot be written, or has no memory that can be used.
    UnsupportedError
        It is memory of a device that cannot be here, or of a datatype that weft does not know.
    """
    if type(thing) is Buffer:
        found = thing
    elif isinstance(thing, numpy.ndarray):
        found = _numpy_buffer(thing, what)
    elif "torch" in sys.modules and isinstance(thing, sys.modules["torch"].Tensor):
        found = _torch_buffer(thing, what)
    else:
        try:
            array = numpy.asarray(memoryview(thing))
        except (TypeError, ValueError, BufferError):
            if not hasattr(thing, "__dlpack__"):
                raise InvalidError("%s is a %s, expected an array, a tensor, or what has the buffer "
                                   "protocol or DLPack" % (what, type(thing).__name__)) from None
            found = _dlpack_buffer(thing, what)
        else:
            found = _numpy_buffer(array, what)
    if writable and found.readonly:
        raise InvalidError("%s is read-only, and is written" % what)
    if found.device and not device:
        raise UnsupportedError("%s is memory of a device, expected the host's: of a device are the slots of "
                               "schedules that say so, and the tensors of objects" % what)
    return found


def stream_pointer(stream: Any) -> Any:
    """A stream of CUDA, for C.

    Parameters
    ----------
    stream : object
        torch's, cupy's, or anything with ``__cuda_stream__()``; a ``cudaStream_t`` as a number; None for the
        legacy default stream.
    """
    number = stream
    if stream is None:
        number = 0
    elif hasattr(stream, "__cuda_stream__"):
        number = stream.__cuda_stream__()[1]
    else:
        for member in ("cuda_stream", "ptr"):
            if hasattr(stream, member):
                number = getattr(stream, member)
                break
    try:
        return ffi.cast("struct CUstream_st *", number.__index__())
    except AttributeError:
        raise InvalidError("stream is %r, expected a stream of torch or cupy, one with __cuda_stream__(), a "
                           "cudaStream_t as a number, or None" % (stream,)) from None


def locate(thing: Any, what: str, writable: bool = False) -> Tuple[Any, int, int, Optional[tuple]]:
    """What of :func:`buffer` a call needs, of memory of the host: address, count, datatype and order. The
    address keeps the memory."""
    kind = type(thing)
    if kind is numpy.ndarray:
        number = _by_numpy.get(thing.dtype)
        if number is not None:
            try:
                return ffi.from_buffer(_CHARS, thing, writable), thing.size, number, None
            except (ValueError, BufferError, TypeError):
                pass  # in another order, read-only, or of a datatype that no other library knows
    elif kind is getattr(sys.modules.get("torch"), "Tensor", None):
        number = _by_torch.get(thing.dtype)
        if number is not None:
            try:
                array = thing.detach().numpy()  # which refuses all that is no plain memory of the host
                return ffi.from_buffer(_CHARS, array, True), array.size, number, None
            except (ValueError, BufferError, TypeError, RuntimeError):
                pass
    found = buffer(thing, what, writable)
    # What is to be called when the address is gone keeps the memory until then.
    address = _life.freed(found.address, lambda _, keep=found.keep: None)
    return address, found.count, found.dtype, found.order


def pieces(tensors: Any, what: str = "tensors") -> Tuple[Any, int, Optional[int], List[Buffer]]:
    """A list of tensors for the library, to be written.

    Returns
    -------
    tuple
        (array of weft_piece, their number, their datatype or None, list of Buffers)
    """
    found = [buffer(tensor, "%s[%d]" % (what, i), True, True) for i, tensor in enumerate(tensors)]
    kinds = {item.dtype for item in found}
    if len(kinds) > 1:
        raise InvalidError("%s are of several datatypes: %s; expected one"
                           % (what, ", ".join(sorted(map(dtype_name, kinds)))))
    places = {item.device for item in found if item.count}
    if len(places) > 1:
        raise InvalidError("%s are partly memory of the host and partly of a device" % what)
    array = ffi.new("struct weft_piece[]", max(len(found), 1))
    for piece, item in zip(array, found):
        piece.data, piece.count = item.address, item.count
    return array, len(found), kinds.pop() if kinds else None, found

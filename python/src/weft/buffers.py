# SPDX-License-Identifier: BSD-3-Clause
"""Memory that the caller brings: arrays, tensors, anything with the buffer protocol or DLPack.

Nothing is copied. What is handed over must be contiguous, and writable where weft writes. Elements are
of the array's own datatype; ``bfloat16`` is known of torch and of ml_dtypes. Other elements (structured
arrays, complex numbers, booleans) are opaque: they are moved as a whole, and combined by functions only.
"""
import ctypes
import sys

import numpy

from ._library import ffi, lib, text
from .errors import InvalidError, UnsupportedError, check

__all__ = ["Buffer", "buffer", "dtype", "dtype_name", "numpy_dtype", "view"]

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


def opaque(size):
    """The datatype of opaque elements of `size` bytes."""
    number = lib.weft_dtype_opaque(size)
    if number == lib.WEFT_DTYPE_COUNT:
        check(-1)
    return number


def _of_numpy(kind):
    number = _by_numpy.get(kind)
    if number is None:
        if kind.hasobject:
            raise InvalidError("elements of datatype %s are Python objects, expected plain memory" % kind)
        if not kind.isnative:
            raise InvalidError("elements of datatype %s are not in this machine's byte order" % kind)
        number = _by_long_name.get(kind.name)
        if number is None:
            number = opaque(kind.itemsize)
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


def dtype(kind):
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
    if isinstance(kind, int):
        return kind
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
        return _of_numpy(numpy.dtype(kind))
    except TypeError:
        raise InvalidError("dtype is %r, expected one of %s, bytesN, or a datatype of numpy or torch"
                           % (kind, ", ".join(_words))) from None


def dtype_name(number):
    """``"f32"`` and so on, ``"bytes24"`` for opaque elements of 24 bytes."""
    return text(lib.weft_dtype_name(number), str(number))


def numpy_dtype(number):
    """The datatype of numpy for one of weft's. Of bf16 that is ml_dtypes' if it is there, else
    ``uint16``: the bits; of opaque elements ``V`` of their size."""
    if number & _OPAQUE:
        return numpy.dtype("V%d" % lib.weft_dtype_size(number))
    name = _numpy_names[dtype_name(number)]
    if name == "bfloat16":
        known = sys.modules.get("ml_dtypes")
        return numpy.dtype(known.bfloat16) if known else numpy.dtype("uint16")
    return numpy.dtype(name)


def view(address, count, number):
    """An array over memory of the library: valid for as long as that is."""
    kind = numpy_dtype(number)
    if count == 0:
        return numpy.empty(0, kind)
    return numpy.frombuffer(ffi.buffer(ffi.cast("char *", address), count * kind.itemsize), kind)


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
    """

    __slots__ = ("address", "count", "dtype", "keep", "device", "readonly")

    def __init__(self, address, count, number, keep, device=False, readonly=False):
        self.address = address
        self.count = count
        self.dtype = number
        self.keep = keep
        self.device = device
        self.readonly = readonly

    @property
    def bytes(self):
        return self.count * lib.weft_dtype_size(self.dtype)


def _numpy_buffer(array, what):
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        raise InvalidError("%s is not contiguous: strides are %r; pass a copy" % (what, array.strides))
    number = _of_numpy(array.dtype)
    if array.size == 0:
        return Buffer(ffi.NULL, 0, number, array)
    if flags.c_contiguous:
        try:
            return Buffer(ffi.from_buffer(array), array.size, number, array, readonly=not flags.writeable)
        except (BufferError, TypeError, ValueError):  # of a datatype that no other library knows
            pass
    return Buffer(ffi.cast("char *", array.__array_interface__["data"][0]), array.size, number, array,
                  readonly=not flags.writeable)


def _torch_buffer(tensor, what):
    if tensor.layout is not sys.modules["torch"].strided:
        raise InvalidError("%s has layout %s, expected a dense tensor" % (what, tensor.layout))
    if not tensor.is_contiguous():
        # Dense in another order of dimensions (channels last) is one piece of memory all the same.
        if not _dense(tensor):
            raise InvalidError("%s is not contiguous: strides are %r; pass .contiguous()"
                               % (what, tuple(tensor.stride())))
    return Buffer(ffi.cast("char *", tensor.data_ptr()), tensor.numel(), _of_torch(tensor.dtype), tensor,
                  device=tensor.device.type != "cpu")


def _dense(tensor):
    """Whether the elements fill one piece of memory, in some order of the dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape)
                               if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True


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
    capsule = thing.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
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
    if tensor.strides and count:
        expected = 1
        for stride, extent in reversed([(tensor.strides[i], shape[i]) for i in range(tensor.ndim)]):
            if extent > 1 and stride != expected:
                raise InvalidError("%s is not contiguous; pass a copy" % what)
            expected *= extent
    # The capsule is not consumed: it frees what it has when it goes.
    return Buffer(ffi.cast("char *", (tensor.data or 0) + tensor.byte_offset), count, number,
                  (capsule, thing), device=tensor.device_type in _DLPACK_DEVICE)


def buffer(thing, what="buffer", writable=False, device=False):
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

    Raises
    ------
    InvalidError
        It is not contiguous, or cannot be written, or has no memory that can be used.
    """
    kind = type(thing)
    if kind is Buffer:
        return thing
    if kind is numpy.ndarray or isinstance(thing, numpy.ndarray):
        found = _numpy_buffer(thing, what)
    elif "torch" in sys.modules and isinstance(thing, sys.modules["torch"].Tensor):
        found = _torch_buffer(thing, what)
    else:
        try:
            array = numpy.asarray(memoryview(thing))
        except (TypeError, ValueError, BufferError):
            if not hasattr(thing, "__dlpack__"):
                raise InvalidError("%s is a %s, expected an array, a tensor, or what has the buffer "
                                   "protocol or DLPack" % (what, kind.__name__)) from None
            found = _dlpack_buffer(thing, what)
        else:
            found = _numpy_buffer(array, what)
    if writable and found.readonly:
        raise InvalidError("%s is read-only, and is written" % what)
    if found.device and not device:
        raise UnsupportedError("%s is memory of a device, expected the host's: of a device are the slots of "
                               "schedules that say so, and the tensors of objects" % what)
    return found


def pieces(tensors, what="tensors"):
    """A list of tensors for the library.

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

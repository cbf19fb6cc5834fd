# SPDX-License-Identifier: BSD-3-Clause
"""Contexts over mpi4py's communicators.

A communicator of MPI is an int (MPICH and what has its ABI) or a pointer (Open MPI): mpi4py says which, by
its size. libweft-mpi was built for one MPI, and is loaded with the first context; the two must be the same
library in this process.
"""
import atexit
import ctypes
import weakref

from . import _life
from ._library import companion, ffi
from .errors import InvalidError, StateError, UnsupportedError

_create = None
_keyval = None
_contexts = weakref.WeakSet()


class _MpiConfig(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("tag_bits", ctypes.c_uint)]


def _version_of(library):
    """What MPI_Get_library_version says, as the library's own dependencies have it."""
    text, length = ctypes.create_string_buffer(1 << 16), ctypes.c_int()
    library.MPI_Get_library_version(text, ctypes.byref(length))
    return text.value.decode(errors="replace")


def _line(version):
    return " ".join(version.split("\n")[0].split(",")[0].split())


def _load(mpi):
    global _create
    if _create is not None:
        return
    path = companion("libweft-mpi.so.0")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise UnsupportedError("weft over MPI cannot be loaded: %s" % error) from None
    # Two MPIs in one process have two of everything: communicators of one are nothing to the other.
    ours, theirs = _version_of(library).strip(), mpi.Get_library_version().strip("\0 \n")
    if ours != theirs:
        raise UnsupportedError(
            "mpi4py uses %s, and weft was built for %s: build weft for that one (mpi_name), or choose mpi4py's "
            "by MPI4PY_MPIABI and MPI4PY_LIBMPI" % (_line(theirs), _line(ours)))
    _create = library.weft_context_create_mpi
    _create.restype = ctypes.c_int


def create(comm, config, tag_bits):
    """Makes a context; collective over the communicator.

    Returns
    -------
    tuple
        (pointer for cffi, what is to be kept, where the handle is to be added)
    """
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise UnsupportedError("Context.mpi needs mpi4py (pip install mpi4py): %s" % error) from None
    if comm is None:
        comm = MPI.COMM_WORLD
    if not isinstance(comm, MPI.Intracomm):
        raise InvalidError("comm is %r, expected an intracommunicator of mpi4py" % (comm,))
    if MPI.Is_finalized() or not MPI.Is_initialized():
        raise StateError("MPI has %s" % ("been finalised" if MPI.Is_finalized() else "not been initialised"))
    _load(MPI)
    kind = ctypes.c_int if MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_int) else ctypes.c_void_p
    handle = kind.from_address(MPI._addressof(comm))
    settings = _MpiConfig(ctypes.sizeof(_MpiConfig), tag_bits or 0)
    pointer = ctypes.c_void_p()
    _create.argtypes = [ctypes.POINTER(ctypes.c_void_p), kind, ctypes.c_void_p, ctypes.c_void_p]
    _life.require(_create(ctypes.byref(pointer), handle,
                          int(ffi.cast("uintptr_t", config)), ctypes.byref(settings)))
    _before_finalize(MPI)
    return ffi.cast("struct weft_context *", pointer.value), [comm], _contexts


def _before_finalize(mpi):
    """Contexts end before MPI does, also where the program calls MPI.Finalize(): that deletes what is
    attached to COMM_SELF first."""
    global _keyval
    if _keyval is None:
        _keyval = mpi.Comm.Create_keyval(delete_fn=_close_all)
        mpi.COMM_SELF.Set_attr(_keyval, True)
        atexit.register(_detach, mpi)


def _close_all(*_):
    for handle in sorted(list(_contexts), key=lambda handle: -handle.number):
        handle.close()


def _detach(mpi):
    """The interpreter exits: what is attached is no function any more when mpi4py ends MPI."""
    _close_all()
    if not mpi.Is_finalized():
        mpi.COMM_SELF.Delete_attr(_keyval)

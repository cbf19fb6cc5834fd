# SPDX-License-Identifier: BSD-3-Clause
"""Operations: how contributions are combined, and what a graph computes.

A built-in operation is known by its name (``"sum"``); a Python function is one by :func:`reduction` or
:func:`compute`. Functions are called by whichever thread drives the engine, one at a time as far as
Python goes: they hold the GIL. They must not wait for weft.
"""
import re
import weakref

from . import _life, _structs
from ._library import ffi, lib, text
from .buffers import numpy_dtype, view
from .errors import InvalidError, check

__all__ = ["Op", "Call", "op", "reduction", "compute", "BUILTIN"]

#: The names of the built-in operations.
BUILTIN = tuple(text(lib.weft_op_name(lib.weft_op_builtin(kind))) for kind in range(lib.WEFT_OP_COUNT))

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*$")


class Call:
    """What a compute function is called with. Valid until it returns.

    Attributes
    ----------
    arguments : list of numpy.ndarray
        The regions, in the order given to :meth:`weft.Schedule.compute`: views, valid during the call.
        A region that lies in several pieces is a list of them.
    version, rank, size, node : int
        Of the run, of the schedule, and the node in it.
    value : int or None
        To be set where the node produces a value.
    """

    __slots__ = ("_call", "arguments", "value")

    def __init__(self, call):
        self._call = call
        self.arguments = []
        for i in range(call.argument_count):
            argument = call.arguments[i]
            if argument.data or argument.count == 0:
                self.arguments.append(view(argument.data, argument.count, argument.dtype))
            else:
                self.arguments.append([view(argument.pieces[j].data, argument.pieces[j].count, argument.dtype)
                                       for j in range(argument.piece_count)])
        self.value = None

    version = property(lambda self: self._call.version)
    rank = property(lambda self: self._call.rank)
    size = property(lambda self: self._call.size)
    node = property(lambda self: self._call.node)


@ffi.callback("weft_compute_fn", error=-12)
def _compute(call):
    with _life.Callback():
        known = _life.function_of(call.user)
        if known is None:
            return _life.failed(RuntimeError("the function is gone"), "an operation of Python")
        try:
            given = Call(call)
            known[0](given)
            if call.value:
                if given.value is None:
                    raise InvalidError("the node produces a value, and the function has set none")
                call.value[0] = int(given.value)
            return 0
        except BaseException as problem:  # noqa: B902 - anything fails the run, nothing ends the engine
            return _life.failed(problem, "operation %s" % known[1])


@ffi.callback("weft_reduce_fn", error=-12)
def _reduce(user, dst, a, b, count, dtype):
    with _life.Callback():
        known = _life.function_of(user)
        if known is None:
            return _life.failed(RuntimeError("the function is gone"), "an operation of Python")
        try:
            kind = numpy_dtype(dtype)
            into, left, right = (view(pointer, count, dtype) for pointer in (dst, a, b))
            if known[2] is not None:
                into, left, right = (array.view(known[2]) for array in (into, left, right))
            result = known[0](left, right)
            if result is None or getattr(result, "shape", None) != into.shape:
                raise InvalidError("it has returned %r for %d elements of %s, expected as many"
                                   % (type(result).__name__ if result is None else result, count, kind))
            into[...] = result
            return 0
        except BaseException as problem:  # noqa: B902
            return _life.failed(problem, "operation %s" % known[1])


class Op:
    """An operation. Made by :func:`op`, :func:`reduction` and :func:`compute`.

    Attributes
    ----------
    name : str
    commutes : bool
        a op b equals b op a, so that the order of ranks need not be kept.
    """

    __slots__ = ("c", "name", "__weakref__")

    def __init__(self, pointer, number=None, owned=True):
        self.c = pointer
        self.name = text(lib.weft_op_name(pointer))
        if owned:
            # Plans of the library may hold the operation longer than anybody holds this object; the
            # function stays known as long as this object does, and what has it in Python holds it.
            weakref.finalize(self, _end_op, pointer, number).atexit = False

    @property
    def commutes(self):
        return bool(lib.weft_op_commutes(self.c))

    def __repr__(self):
        return "weft.Op(%r)" % self.name


def _end_op(pointer, number):
    lib.weft_op_destroy(pointer)
    if number is not None:
        _life.unregister(number)


_builtin = {}


def op(operation):
    """The operation of a name; an :class:`Op` is returned as it is.

    Raises
    ------
    InvalidError
        There is no such operation; the text lists those that there are.
    """
    if isinstance(operation, Op):
        return operation
    known = _builtin.get(operation) if isinstance(operation, str) else None
    if known is None:
        if not isinstance(operation, str):
            raise InvalidError("op is %r, expected a name (%s) or a weft.Op; a function becomes one by "
                               "weft.reduction(function)" % (operation, ", ".join(BUILTIN)))
        found = ffi.new("const struct weft_op **")
        check(lib.weft_op_parse(operation.encode(), found))
        known = _builtin[operation] = Op(found[0], owned=False)
    return known


def _create(function, name, flags, **members):
    if not callable(function):
        raise InvalidError("function is %r, expected something that can be called" % (function,))
    if name is None:
        name = getattr(function, "__name__", "function")
        name = name if _NAME.match(name) else "function"
    return name, flags, members


def reduction(function, *, name=None, commutes=True, dtype=None):
    """Makes a reduction of a Python function.

    Parameters
    ----------
    function : callable
        ``function(a, b)`` returns ``a op b``, element by element: arrays of as many elements as a and b,
        which are numpy arrays (views, valid during the call). `a` comes from lower ranks than `b`.
    name : str, optional
        For dumps and errors, ``[A-Za-z_][A-Za-z0-9_-]*``. Default: the function's.
    commutes : bool
        Whether a op b equals b op a. If not, algorithms that keep the order of ranks are used.
    dtype : numpy.dtype, optional
        What opaque elements are seen as: ``numpy.complex128``, a structured datatype.

    Returns
    -------
    Op

    Examples
    --------
    >>> larger = weft.reduction(lambda a, b: numpy.where(abs(a) >= abs(b), a, b), name="absmax")
    >>> context.allreduce(x, op=larger)
    """
    import numpy

    name, _, _ = _create(function, name, 0)
    seen = numpy.dtype(dtype) if dtype is not None else None
    return _make(name, lib_flags=1 if commutes else 0, reduce=_reduce, record=(function, name, seen))


def compute(function, *, name=None, folds=False):
    """Makes an operation for compute nodes of a Python function.

    Parameters
    ----------
    function : callable
        ``function(call)``, with a :class:`Call`: reads and writes ``call.arguments``.
    name : str, optional
        As for :func:`reduction`.
    folds : bool
        It folds regions together as wholes, as a merge of sparse vectors does: for checking.

    Returns
    -------
    Op
    """
    name, _, _ = _create(function, name, 0)
    return _make(name, lib_flags=4 if folds else 0, compute=_compute, record=(function, name, None))


def _make(name, lib_flags, record, **functions):
    number = _life.register(record)
    try:
        config = _structs.Struct("weft_op_config", {"name": name, "flags": lib_flags}, "weft.op")
        for member, value in functions.items():
            setattr(config.c, member, value)
        config.c.user = _life.user_of(number)
        pointer = ffi.new("struct weft_op **")
        check(lib.weft_op_create(pointer, config.c))
    except BaseException:
        _life.unregister(number)
        raise
    return Op(pointer[0], number)

# SPDX-License-Identifier: BSD-3-Clause
"""Operations: how contributions are combined, and what a graph computes.

A built-in operation is known by its name (``"sum"``); a Python function is one by :func:`reduction` or
:func:`compute`. Functions are called by whichever thread drives the engine, one at a time as far as
Python goes: they hold the GIL. They must not wait for weft.
"""
import re
from typing import Any, Callable, List, Optional, Union

import numpy

from . import _life, _structs
from ._library import ffi, lib, text
from .buffers import view
from .errors import InvalidError, check

__all__ = ["Op", "Call", "op", "reduction", "compute", "BUILTIN"]

#: The names of the built-in operations.
BUILTIN = tuple(text(lib.weft_op_name(lib.weft_op_builtin(kind))) for kind in range(lib.WEFT_OP_COUNT))

_COMMUTES, _FOLDS = 1, 4  # WEFT_OP_COMMUTES, WEFT_OP_FOLDS
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


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

    __slots__ = ("arguments", "version", "rank", "size", "node", "value")

    def __init__(self, call: Any) -> None:
        self.arguments: List[Any] = []
        for i in range(call.argument_count):
            argument = call.arguments[i]
            if argument.data or argument.count == 0:
                self.arguments.append(view(argument.data, argument.count, argument.dtype))
            else:
                self.arguments.append([view(argument.pieces[j].data, argument.pieces[j].count, argument.dtype)
                                       for j in range(argument.piece_count)])
        self.version: int = call.version
        self.rank: int = call.rank
        self.size: int = call.size
        self.node: int = call.node
        self.value: Optional[int] = None


class _Known:
    """What a function is called with, beside what weft says."""

    __slots__ = ("function", "name", "seen")

    def __init__(self, function, name, seen):
        self.function, self.name, self.seen = function, name, seen


@_life.callback("weft_compute_fn", -12, "an operation of Python")
def _compute(call):
    known = _life.function_of(call.user)
    if known is None:
        raise RuntimeError("the function is gone")
    given = Call(call)
    try:
        known.function(given)
        if call.value:
            if given.value is None:
                raise InvalidError("the node produces a value, and the function has set none")
            call.value[0] = given.value.__index__()
        return 0
    except BaseException as problem:  # noqa: B902 - anything fails the run, nothing ends the engine
        return _life.failed(problem, "operation %s" % known.name)
    finally:
        given.arguments = []


@_life.callback("weft_reduce_fn", -12, "an operation of Python")
def _reduce(user, dst, a, b, count, dtype):
    known = _life.function_of(user)
    if known is None:
        raise RuntimeError("the function is gone")
    try:
        into = view(dst, count, dtype)
        left, right = view(a, count, dtype, False), view(b, count, dtype, False)
        if known.seen is not None:
            if known.seen.itemsize != into.itemsize:
                raise InvalidError("its elements are %s, of %d bytes each, and those of the call have %d" % (
                    known.seen, known.seen.itemsize, into.itemsize))
            into, left, right = (array.view(known.seen) for array in (into, left, right))
        result = known.function(left, right)
        if getattr(result, "shape", None) != into.shape:
            raise InvalidError("it has returned %r for %d elements of %s, expected an array of as many" % (
                result, count, into.dtype))
        into[...] = result
        return 0
    except BaseException as problem:  # noqa: B902
        return _life.failed(problem, "operation %s" % known.name)


class Op:
    """An operation. Made by :func:`op`, :func:`reduction` and :func:`compute`.

    Attributes
    ----------
    name : str
    """

    __slots__ = ("c", "name", "_function", "__weakref__")

    def __init__(self, pointer: Any, function: Optional[_life.Function] = None) -> None:
        self.c = pointer
        self.name = text(lib.weft_op_name(pointer))
        # Plans of the library may hold the operation longer than anybody holds this object. The function
        # is there as long as this is; what has it in Python holds it.
        self._function = function

    @property
    def commutes(self) -> bool:
        """a op b equals b op a, so that the order of ranks need not be kept."""
        return bool(lib.weft_op_commutes(self.c))

    def __repr__(self) -> str:
        return "weft.Op(%r)" % self.name


_builtin = {}


def op(operation: Union[str, Op]) -> Op:
    """The operation of a name; an :class:`Op` is returned as it is.

    Raises
    ------
    NotFoundError
        There is no such operation; the text lists those that there are.
    """
    if type(operation) is str:
        known = _builtin.get(operation)
        if known is None:
            found = ffi.new("const struct weft_op **")
            check(lib.weft_op_parse(operation.encode(), found))
            known = _builtin[operation] = Op(found[0])
        return known
    if isinstance(operation, Op):
        return operation
    if isinstance(operation, str):
        return op(str(operation))
    raise InvalidError("op is %r, expected a name (%s) or a weft.Op; a function becomes one by "
                       "weft.reduction(function)" % (operation, ", ".join(BUILTIN)))


def reduction(function: Callable[[numpy.ndarray, numpy.ndarray], numpy.ndarray], *,
              name: Optional[str] = None, commutes: bool = True, dtype: Any = None) -> Op:
    """Makes a reduction of a Python function.

    Parameters
    ----------
    function : callable
        ``function(a, b)`` returns ``a op b``, element by element: an array of as many elements as a and b,
        which are numpy arrays (views to be read, valid during the call). `a` comes from lower ranks than
        `b`.
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
    seen = None if dtype is None else numpy.dtype(dtype)
    return _make(function, name, _COMMUTES if commutes else 0, "reduce", _reduce, seen)


def compute(function: Callable[[Call], Any], *, name: Optional[str] = None, folds: bool = False) -> Op:
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
    return _make(function, name, _FOLDS if folds else 0, "compute", _compute)


def _make(function, name, flags, member, called, seen=None):
    if not callable(function):
        raise InvalidError("function is %r, expected something that can be called" % (function,))
    if name is None:
        name = getattr(function, "__name__", "function")
        name = name if _NAME.match(name) else "function"
    known = _life.Function(_Known(function, name, seen))
    config = _structs.Struct("weft_op_config", {"name": name, "flags": flags}, "weft.%s" % member)
    setattr(config.c, member, called)
    config.c.user = known.user
    pointer = ffi.new("struct weft_op **")
    check(lib.weft_op_create(pointer, config.c))
    return Op(_life.freed(pointer[0], lib.weft_op_destroy), known)

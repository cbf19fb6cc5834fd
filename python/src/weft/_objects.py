# SPDX-License-Identifier: BSD-3-Clause
"""What the objects for trainers share: their calls, waits, states and ends.

The library waits for at most a slice; then Python looks for signals and goes on waiting, until the caller's
own time has passed. So Ctrl-C comes between two slices, and leaves what is under way as it is: a later wait
ends it.
"""
import contextlib
import re
from _thread import get_ident
from typing import Any, Callable, Dict, Iterable, NamedTuple, Optional, Tuple, TypeVar, Union

import numpy

from . import _life, _structs, buffers
from ._library import ffi, lib, text
from .errors import InvalidError, StateError, TimeoutError, UnsupportedError, check, status_of

#: How long a wait stays in the library before Python looks for signals, in nanoseconds.
SLICE = 200 * 1000 * 1000
SHORTEST = 1000 * 1000

#: For settings of which 0 is the default in C and a number in Python: the least number that is not 0.
LEAST = 5e-324

Self = TypeVar("Self", bound="Object")


class Watch:
    """What is under way, for whoever ends the object when nobody has it any more.

    Attributes
    ----------
    posted : bool
        A step is under way, for whose end the object's end waits.
    cancelled : bool
        It has been failed, so its end does not wait.
    """

    __slots__ = ("posted", "cancelled")

    def __init__(self) -> None:
        self.posted: Any = False
        self.cancelled = False

    def ended(self, pointer: Any) -> bool:
        """Whether destroying it would not wait for others."""
        return self.cancelled or not self.posted

    def stuck(self) -> bool:
        """Whether what is under way cannot end by itself."""
        return False


class Array(NamedTuple):
    """A list that a state points to.

    Attributes
    ----------
    kind : str
        The datatype of numpy; "own": that of the object's sums.
    count : str
        The member that has its length, or what it is as long as ("elements", "layers").
    """

    kind: str
    count: str


class Sizes(NamedTuple):
    """What the arrays of an object's states are measured by."""

    elements: int
    layers: int
    own: str
    device: bool


# ---- settings ----


def refuse_zeros(who: str, settings: Dict[str, Any], names: Iterable[str]) -> None:
    """Refuses a 0 that the library would take for the default."""
    for name in names:
        if settings.get(name) is not None and settings[name] == 0:
            raise InvalidError("%s: %s is 0, expected more than 0, or None for the default" % (who, name))


def refuse_device(who: str, found: Iterable[buffers.Buffer], what: str = "tensors") -> None:
    for i, item in enumerate(found):
        if item.device:
            raise UnsupportedError("%s: %s[%d] is memory of a device, expected the host's" % (who, what, i))


def above_zero(settings: Dict[str, Any], names: Iterable[str]) -> None:
    """Makes a 0 a number that the library does not take for the default."""
    for name in names:
        if settings.get(name) is not None and settings[name] == 0:
            settings[name] = LEAST


def slice_of(deadline: Optional[float], who: str) -> int:
    """How long the library is to wait at once."""
    return max(SHORTEST, min(SLICE, _structs.nanoseconds(deadline, "%s: deadline" % who, 0)))


# ---- states ----


def _plain(kind: Any, value: Any) -> Any:
    if kind.kind == "array":
        return [_plain(kind.item, item) for item in value]
    if kind.kind == "struct":
        return {member: _plain(field.type, getattr(value, member)) for member, field in kind.fields
                if member != "struct_size"}
    if kind.cname in ("double", "float"):
        return float(value)
    return int(value)


def _length(c: Any, array: Array, sizes: Sizes) -> int:
    return getattr(sizes, array.count) if array.count in Sizes._fields else getattr(c, array.count)


def _numpy(array: Array, sizes: Sizes) -> numpy.dtype:
    return numpy.dtype(sizes.own if array.kind == "own" else array.kind)


def _copied(pointer: Any, kind: numpy.dtype, count: int, device: Any) -> numpy.ndarray:
    copy = numpy.empty(count, kind)
    if count == 0:
        return copy
    if device is not None:
        check(lib.weft_context_device_copy(device, ffi.from_buffer(copy), pointer, copy.nbytes))
    else:
        ffi.memmove(ffi.from_buffer(copy), ffi.cast("char *", pointer), copy.nbytes)
    return copy


def state_of(name: str, c: Any, arrays: Dict[str, Array], sizes: Sizes, context: Any) -> Dict[str, Any]:
    """A state that the library has filled, as a dict that lives by itself: numbers, lists, dicts of them,
    and copies of arrays, or None. Lengths are those of the arrays, times are nanoseconds as they are."""
    lengths = {array.count for array in arrays.values()}
    device = context if sizes.device else None
    state: Dict[str, Any] = {}
    for member, field in ffi.typeof("struct " + name).fields:
        if member in arrays:
            pointer, array = getattr(c, member), arrays[member]
            state[member] = None if not pointer else _copied(
                pointer, _numpy(array, sizes), _length(c, array, sizes), device)
        elif member != "struct_size" and member not in lengths:
            state[member] = _plain(field.type, getattr(c, member))
    return state


def _put(c: Any, member: str, kind: Any, value: Any, what: str) -> None:
    """Writes what :func:`_plain` has made."""
    if kind.kind == "struct":
        _put_struct(getattr(c, member), kind, value, what)
    elif kind.kind == "array" and kind.item.kind == "struct":
        for i, item in enumerate(_list(value, kind.length, what)):
            _put_struct(getattr(c, member)[i], kind.item, item, "%s[%d]" % (what, i))
    elif kind.kind == "array":
        setattr(c, member, _list(value, kind.length, what))
    else:
        try:
            setattr(c, member, value)
        except (OverflowError, TypeError):
            raise InvalidError("%s is %r, expected what a %s can be" % (what, value, kind.cname)) from None


def _list(value: Any, length: int, what: str) -> Any:
    value = list(value)
    if len(value) > length:
        raise InvalidError("%s has %d entries, expected at most %d" % (what, len(value), length))
    return value


def _put_struct(c: Any, kind: Any, value: Any, what: str) -> None:
    fields = dict(kind.fields)
    if not isinstance(value, dict):
        raise InvalidError("%s is a %s, expected a dict" % (what, type(value).__name__))
    if "struct_size" in fields:
        c.struct_size = ffi.sizeof(kind)
    for member, item in value.items():
        if member not in fields or member == "struct_size":
            raise InvalidError("%s has %r, expected %s" % (what, member, ", ".join(fields)))
        _put(c, member, fields[member].type, item, "%s[%r]" % (what, member))


def state_struct(name: str, state: Any, arrays: Dict[str, Array], sizes: Sizes, who: str) -> Tuple[Any, Any]:
    """The struct of a state as :func:`state_of` has made it, and what must live as long as it is used.

    Raises
    ------
    InvalidError
        It is no such state, or of tensors of other sizes.
    """
    what = "%s: state" % who
    if not isinstance(state, dict):
        raise InvalidError("%s is a %s, expected a dict as state() returns it" % (what, type(state).__name__))
    c = ffi.new("struct %s *" % name)
    c.struct_size = ffi.sizeof("struct " + name)
    fields = dict(ffi.typeof("struct " + name).fields)
    c.stats.struct_size = ffi.sizeof(fields["stats"].type)
    lengths = {array.count for array in arrays.values()}
    keep = []
    for member, value in state.items():
        where = "%s[%r]" % (what, member)
        if member not in fields or member in lengths or member == "struct_size":
            raise InvalidError("%s: there is no such member, expected a state of %s" % (where, who))
        if member not in arrays:
            _put(c, member, fields[member].type, value, where)
        elif value is not None:
            array = arrays[member]
            data = numpy.ascontiguousarray(value, _numpy(array, sizes)).reshape(-1)
            if array.count not in Sizes._fields:
                known = getattr(c, array.count)
                if known and known != data.size:
                    raise InvalidError("%s has %d elements, expected %d" % (where, data.size, known))
                setattr(c, array.count, data.size)
            elif data.size != _length(c, array, sizes):
                raise InvalidError("%s has %d elements, expected %d, one of each of the %s" % (
                    where, data.size, _length(c, array, sizes), array.count))
            # An array of no elements is one all the same.
            data = data if data.size else numpy.zeros(1, data.dtype)
            keep.append(data)
            setattr(c, member, ffi.cast(fields[member].type, ffi.from_buffer(data)))
    return c, keep


# ---- objects ----


class Object:
    """The base of objects for trainers.

    Attributes
    ----------
    context : Context
    """

    _prefix = ""
    _what = ""
    _arrays: Dict[str, Array] = {}
    #: Whether the end does not wait for others, whatever is under way.
    _leaves = False

    context: Any

    def _sizes(self, found: Iterable[buffers.Buffer], layers: int = 0, own: str = "f4") -> Sizes:
        found = list(found)
        return Sizes(sum(item.count for item in found), layers, own, any(item.device for item in found))

    def _create(self, context: Any, config: _structs.Struct, keep: Any, sizes: Sizes,
                deadline: Optional[float], state: Any) -> None:
        """Makes it: collective, blocking."""
        who, prefix = type(self).__name__, self._prefix
        self.context = context
        self._deadline = deadline
        self._slice = slice_of(deadline, who)
        self._state_sizes = sizes
        self._told: set = set()
        self._watch = self._new_watch()
        self._parent = context._handle.get()  # lives as long as this object does
        config.c.deadline_ns = self._slice
        if state is not None:
            given, kept = state_struct(prefix + "_state", state, self._arrays, sizes, who)
            config.c.state = given
            config.keep += [given, kept]
        create, destroy = getattr(lib, prefix + "_create"), getattr(lib, prefix + "_destroy")
        pointer = ffi.new("struct %s **" % prefix)
        watch, records = self._watch, []
        fail = getattr(lib, prefix + "_fail")
        message = ffi.new("char[]", b"it is closed while a step is under way")

        def cancel(known: Any) -> None:
            """Where a call of another thread is to return, or others would wait for ever."""
            if watch.stuck() or any(user != get_ident() for user in records[0].users):
                watch.cancelled = True
                fail(known, lib.WEFT_ERR_CANCELLED, message)

        try:
            context._collective(lambda parent: create(pointer, parent, config.c))
            handle = _life.Handle(pointer[0], destroy, self._what, context._handle,
                                  None if self._leaves else watch.ended, cancel)
            records.append(handle.record)
        except BaseException:
            if pointer[0] and not records:  # an interrupt has come when it had been made
                destroy(pointer[0])
            raise
        handle.keep = [keep]
        self._handle = handle

    def _new_watch(self) -> Watch:
        return Watch()

    def _function(self, name: str) -> Any:
        return getattr(lib, "%s_%s" % (self._prefix, name))

    # ---- calls ----

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls ``function(pointer, *arguments)``, which does not wait for long."""
        return self._handle.call(function, *arguments)

    def _require(self, status: int) -> int:
        """Raises what a status is, with the text of this thread."""
        if status < 0:
            if status not in (lib.WEFT_ERR_STATE, lib.WEFT_ERR_INVALID):
                self._told.add(status)
            _life.raise_status(status)
        return status

    def _check(self, function: Callable[..., int], *arguments: Any) -> int:
        return self._require(self._call(function, *arguments))

    def _filled(self, struct: str, function: Callable[..., int], *arguments: Any) -> Any:
        """A struct that a function fills, its last argument, as a named tuple."""
        c = _structs.new(struct)
        self._check(function, *arguments, c)
        return _structs.read(struct, c)

    def _until(self, begin: Callable[[Any], int], again: Callable[[Any], int], timeout: Optional[float],
               over: Optional[Callable[[], bool]] = None,
               waits: Tuple[int, ...] = (lib.WEFT_ERR_TIMEOUT,)) -> int:
        """Calls `begin`, then `again`, for as long as they return one of `waits`, a slice being over.

        Parameters
        ----------
        begin, again : callable
            ``function(pointer)`` returns a status.
        timeout : float or None
            Seconds; None: the object's deadline.
        over : callable, optional
            After a slice: whether nothing is left to be waited for.

        Returns
        -------
        int
            The status, with the error text of this thread.
        """
        if timeout is None:
            timeout = self._deadline
        limit = _structs.nanoseconds(timeout, "timeout", 0)
        if _life.in_callback():
            raise StateError("%s cannot be waited for by a function that weft calls" % self._what)
        record, thread = self._handle.record, get_ident()
        try:
            record.users.append(thread)
            return self._wait(begin, again, limit, over, waits)
        finally:
            record.users.remove(thread)

    def _wait(self, begin: Callable[[Any], int], again: Callable[[Any], int], limit: int,
              over: Optional[Callable[[], bool]], waits: Tuple[int, ...]) -> int:
        now, parent = lib.weft_context_now, self._parent
        function, first = begin, None
        while True:
            pointer = self._handle.get()  # while there is one, there is its context
            began = now(parent)
            first = began if first is None else first
            status = function(pointer)
            ended = now(parent)
            # What an object has failed with may be of that status, too: then it is returned at once.
            if status not in waits or ended - began < self._slice // 2:
                return status
            waited = ended - first
            if limit != _structs.NEVER and waited >= limit:
                if status != lib.WEFT_ERR_TIMEOUT:
                    return status
                raise TimeoutError(_with_time(text(lib.weft_error_text()), waited), lib.WEFT_ERR_TIMEOUT)
            if over is not None and over():
                return 0
            _life.between(self._handle.record.parent, waited, ended - began)
            function = again

    def _advance(self, begin: Callable[[Any], int], again: Callable[[Any], int],
                 timeout: Optional[float]) -> None:
        """Ends a step; it is posted until that has ended, also where Ctrl-C comes."""
        posted, self._watch.posted = self._watch.posted, True
        status = self._until(begin, again, timeout)
        misused = status in (lib.WEFT_ERR_STATE, lib.WEFT_ERR_INVALID)
        self._watch.posted = posted if misused else False
        self._require(status)

    def _post(self) -> None:
        self._check(self._function("post"))
        self._watch.posted = True

    # ---- what it is ----

    @property
    def next(self) -> int:
        """The step to come: how many there have been."""
        return self._handle.ask(self._function("next"))

    @property
    def stats(self) -> Any:
        """What this rank has counted so far, as a named tuple (times in seconds)."""
        return self._filled(self._prefix + "_stats", self._function("get_stats"))

    def _state(self, function: Callable[..., int]) -> Dict[str, Any]:
        """A state, by a function that does not wait."""
        def copied(pointer: Any) -> Dict[str, Any]:
            c = _structs.new(self._prefix + "_state")
            self._require(function(pointer, c))
            return self._copied_state(c)

        return self._call(copied)

    def _copied_state(self, c: Any) -> Dict[str, Any]:
        return state_of(self._prefix + "_state", c, self._arrays, self._state_sizes, self._parent)

    def state(self) -> Dict[str, Any]:
        """The state for a checkpoint, beside the tensors: between steps.

        Of an object that has failed it is what those that are left go on from, on a context of theirs
        (:meth:`weft.Context.shrink`).

        Returns
        -------
        dict
            Numbers, and copies of arrays: for ``pickle`` or ``torch.save``, and given back as ``state=``
            when the object is created again. Times are in nanoseconds, as they were counted.

        Raises
        ------
        StateError
            A step is under way.
        """
        return self._state(self._function("get_state"))

    # ---- the end ----

    def fail(self, problem: Union[BaseException, str] = "this rank cannot go on") -> None:
        """Fails it on all ranks, if nothing has before. From any thread; does not block.

        Who is in a step, or begins one, gets an error: on the other ranks :class:`PeerError`, with this
        rank's number and the text.

        Parameters
        ----------
        problem : BaseException or str
        """
        status, message = lib.WEFT_ERR_CANCELLED, str(problem)
        if isinstance(problem, BaseException):
            status = status_of(problem) if isinstance(problem, Exception) else status
            message = "%s: %s" % (type(problem).__name__, problem)
        if status == lib.WEFT_ERR_TIMEOUT:  # which would be a wait's that goes on
            status = lib.WEFT_ERR_CANCELLED
        self._told.add(status)
        check(self._handle.ask(self._function("fail"), status,
                               ffi.new("char[]", message.encode("utf-8", "replace"))))

    def close(self) -> None:
        """Ends this rank's part in it; repeating that does nothing. A call of it that another thread is in
        ends with an error, on all ranks.

        Raises
        ------
        WeftError
            What it has failed with, if no call has raised that yet. It is closed all the same.
        """
        self._close(quiet=False)

    def _close(self, quiet: bool) -> None:
        handle = self._handle
        if handle.generation != _life._generation:
            return

        def end() -> int:
            status = handle.close()
            return 0 if quiet or status in self._told else min(status, 0)

        try:
            at_once = self._leaves or handle.ask(self._watch.ended)
        except StateError:  # it has been closed
            return
        # Where this thread is in a call of it, or of weft, it is left to the context.
        if at_once or _life.in_callback() or get_ident() in handle.record.users:
            _life.require(end())
        else:  # it waits for others
            _life.interruptible(end, self.context.abort, here=self.context.transport == "mpi")

    def __enter__(self: Self) -> Self:
        self._handle.get()
        return self

    def __exit__(self, kind: Any, problem: Optional[BaseException], _: Any) -> None:
        if problem is not None:
            with contextlib.suppress(StateError):  # it has been closed
                self.fail(problem)  # the others must not wait for a rank that has failed
        self._close(quiet=problem is not None)

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._handle.pointer is None:
            return "<weft.%s, closed>" % name
        return "<weft.%s, rank %d of %d, step %d>" % (name, self.context.rank, self.context.size, self.next)


def _with_time(message: str, waited: int) -> str:
    """A text of the library about a slice, with the time that was waited."""
    message = re.sub(r"within \d+ ns", "within %.3f s" % (waited * 1e-9), message)
    return re.sub(r"has not ended after [0-9.]+ s", "has not ended after %.3f s" % (waited * 1e-9), message)


def position(number: Any) -> int:
    """A position for the library to look at: it refuses what is out of range, and so what is below 0."""
    number = number.__index__()
    return number if 0 <= number < 2**64 else 2**64 - 1


def tensors_of(tensors: Any, who: str, what: str = "tensors") -> Tuple[Any, int, Optional[int], Any]:
    """:func:`weft.buffers.pieces` of the tensors of an object."""
    what = "%s: %s" % (who, what)
    if isinstance(tensors, (numpy.ndarray, bytes, str)) or hasattr(tensors, "__dlpack__"):
        raise InvalidError("%s is a %s, expected a list of arrays or tensors"
                           % (what, type(tensors).__name__))
    return buffers.pieces(list(tensors), what)

# SPDX-License-Identifier: BSD-3-Clause
"""The collectives that everybody knows, as methods of a context; and requests."""
import sys
import time
from _thread import get_ident
from typing import Any, Iterable, List, Optional, Sequence, Tuple, Union

import numpy

from . import _life, _structs
from ._library import ffi, lib, text
from .buffers import dtype_name, locate, numpy_dtype
from .errors import CancelledError, InvalidError, StateError, TimeoutError, WeftError, check, status_of
from .op import Op
from .op import op as to_op

#: An array, a tensor, or what has the buffer protocol or DLPack.
ArrayLike = Any
OpLike = Union[str, Op]

_IN_PLACE = ffi.cast("void *", _structs.SIZE_MAX)
_REQUEST = ffi.typeof("struct weft_request **")
_INSIDE = "a collective cannot be called by a function that weft calls"

# What every call uses, by short ways.
_new, _wait, _destroy = ffi.new, lib.weft_request_wait, lib.weft_request_destroy
_local, _SLICE = _life._local, _life.SLICE


def _ended(request):
    return lib.weft_request_test(request) != lib.WEFT_IN_PROGRESS


class _Record(_life.Record):
    """A request, as its context knows it.

    Attributes
    ----------
    status : int or None
        What the call has ended with, once that is known.
    text : str
        Of its failure.
    """

    __slots__ = ("status", "text")

    outlives = True

    def __init__(self, pointer, parent):
        super().__init__(pointer, lib.weft_request_destroy, "the request", parent, _ended)
        self.status = None
        self.text = ""

    def _destroy(self, pointer):
        if self.status is None:  # its context ends, or a sweep has found it ended
            status = lib.weft_request_wait(pointer, 0)
            if status != lib.WEFT_IN_PROGRESS:
                self.text = text(lib.weft_request_error(pointer))
                self.status = status
        return self.destroy(pointer)


class Request(_life.Handle):
    """A call that may not have ended.

    It goes on while a thread drives the context: its helper, or whoever is in a call that waits or
    tests. A request that nobody has any more goes on, too; its buffers are kept until it has ended.

    Attributes
    ----------
    result : object
        What the blocking call would return.
    """

    __slots__ = ("_context", "result")

    def __init__(self, context: Any, pointer: Any, keep: Any, result: Any) -> None:
        self.keep = keep
        self._context = context
        self.result = result
        self.record = _Record(pointer, context._handle.record)

    def __del__(self) -> None:
        record = getattr(self, "record", None)
        if record is not None and not record.done:
            # It goes on, so its function is called, also where the collector has found both in a cycle.
            for item in self.keep if isinstance(self.keep, tuple) else ():
                if isinstance(item, Op) and item._function is not None:
                    item._function.known()
        super().__del__()

    def _finish(self, status: int) -> bool:
        """Notes what it has ended with, if it has."""
        if status == lib.WEFT_IN_PROGRESS:
            return False
        record = self.record
        if status < 0:
            why = text(self.ask(lib.weft_request_error))
            if not why:  # it is the wait that has failed
                _life.raise_status(status)
            record.text = why
            if record.parent.home:  # a message of MPI's may use the buffers until the context ends
                self._context._handle.keep.append(self.keep)
        record.status = status
        self.close()
        return True

    def _outcome(self) -> Any:
        if self.record.status < 0:
            _life.raise_status(self.record.status, self.record.text)
        return self.result

    def _closed(self) -> bool:
        """Whether the context has been closed, which ends the request as well."""
        record = self.record
        if record.generation != _life._generation:
            raise record.gone()
        if record.pointer is not None:
            return False
        if record.status is None:
            raise CancelledError("the context was closed before the call had ended")
        return True

    def _poll(self) -> bool:
        if self.record.status is not None or self._closed():
            return True
        try:
            return self._finish(self.ask(lib.weft_request_test))
        except StateError:
            if self._closed():
                return True
            raise

    def test(self) -> bool:
        """Drives the engine a little.

        Returns
        -------
        bool
            Whether it has ended; raises what it has failed with.
        """
        if not self._poll():
            return False
        self._outcome()
        return True

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._poll()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits until it has ended.

        Parameters
        ----------
        timeout : float, optional
            Seconds. None: for ever.

        Returns
        -------
        object
            What the blocking call would return: the array that was received.

        Raises
        ------
        TimeoutError
            It goes on then, and may be waited for again.
        """
        if self.record.status is None and not self._closed():
            try:
                ended = self._finish(super().wait(lib.weft_request_wait, timeout))
            except StateError:
                ended = self._closed()
                if not ended:
                    raise
            if not ended:
                raise TimeoutError("the call has not ended within %g s" % timeout)
        return self._outcome()

    def __repr__(self) -> str:
        status = self.record.status
        return "<weft.Request, %s>" % ("under way" if status is None else text(lib.weft_status_text(status)))


def wait_all(requests: Iterable[Request], timeout: Optional[float] = None) -> None:
    """Waits for all of some requests.

    Parameters
    ----------
    requests : iterable of Request
    timeout : float, optional
        Seconds, for all of them together. None: for ever.

    Raises
    ------
    WeftError
        What the first of them has failed with, once all have ended.
    TimeoutError
        Some go on.
    """
    problem = None
    until = None if timeout is None else time.monotonic() + timeout
    for request in requests:
        try:
            request.wait(timeout if until is None else max(0, until - time.monotonic()))
        except Exception as found:
            problem = problem if problem is not None else found
    if problem is not None:
        raise problem


# ---- arguments ----


def _like(thing: Any, kind: int, shape: Sequence[int]) -> Any:
    """A new array, or tensor, of a shape, with elements as `thing` has them."""
    if isinstance(thing, numpy.ndarray):
        return numpy.empty(shape, thing.dtype)
    if "torch" in sys.modules and isinstance(thing, sys.modules["torch"].Tensor):
        return thing.new_empty(shape)
    return numpy.empty(shape, numpy_dtype(kind))


def _shape(thing: Any, count: int) -> Tuple[int, ...]:
    shape = getattr(thing, "shape", None)
    return (count,) if shape is None else tuple(shape)


def _block_shape(thing: Any, count: int, size: int) -> Tuple[int, ...]:
    """The shape of a block of `thing`, of which there are `size`: its first dimension cut, where that can
    be; of a vector it is a vector."""
    shape = _shape(thing, count * size)
    if len(shape) > 1 and shape[0] == size:
        return shape[1:]
    if shape and shape[0] % size == 0:
        return (shape[0] // size,) + shape[1:]
    return (count,)


def _blocks_of(count: int, size: int, what: str) -> int:
    if count % size:
        raise InvalidError("%s has %d elements, expected a multiple of %d, the ranks" % (what, count, size))
    return count // size


def _number(value: Any, what: str) -> int:
    try:
        number = value.__index__()
    except AttributeError:
        raise InvalidError("%s is %r, expected a whole number" % (what, value)) from None
    if not 0 <= number < 2**63:
        raise InvalidError("%s is %d, expected 0 or more" % (what, number))
    return number


def _numbers(values: Sequence[int], size: int, what: str) -> Tuple[Any, List[int]]:
    """A list with an entry for each rank, for C and for Python."""
    if values is None:
        raise InvalidError("%s is not given, expected a number for each of %d ranks" % (what, size))
    values = [_number(value, "%s[%d]" % (what, i)) for i, value in enumerate(values)]
    if len(values) != size:
        raise InvalidError("%s has %d entries, expected one for each of %d ranks" % (what, len(values), size))
    return _new("size_t[]", values), values


def _places(displacements: Optional[Sequence[int]], size: int, what: str) -> Tuple[Any, Optional[List[int]]]:
    return (ffi.NULL, None) if displacements is None else _numbers(displacements, size, what)


def _extent(counts: List[int], displacements: Optional[List[int]]) -> int:
    """The elements that blocks reach to."""
    if displacements is None:
        return sum(counts)
    return max([place + count for place, count in zip(displacements, counts) if count] + [0])


def _room(count: int, needed: int, what: str) -> None:
    if count < needed:
        raise InvalidError("%s has %d elements, expected at least %d" % (what, count, needed))


def _same(kind: int, other: int) -> None:
    if kind != other:
        raise InvalidError("send has elements of %s and recv of %s, expected one datatype" % (
            dtype_name(kind), dtype_name(other)))


def _plain(order: Any, what: str) -> None:
    """Blocks lie one behind the other in memory: so must what they are of."""
    if order is not None:
        raise InvalidError("%s is cut into blocks, and is not in C order: strides are %r; pass a copy"
                           % (what, order[1]))


class Collectives:
    """Methods that all ranks of a context call, in the same order, with the same counts.

    Arrays are numpy arrays, torch tensors or anything :func:`weft.buffers.buffer` takes; they are used
    in place, nothing is copied: element by element as they lie in memory. With ``i`` in front
    (``iallreduce``) a call does not wait, and returns a :class:`Request`, which keeps the arrays until it
    has ended. What a call needs is built once for its arguments and kept.

    `op` is the name of a built-in operation ("sum", "prod", "min", "max", "land", "lor", "lxor", "band",
    "bor", "bxor") or a :class:`weft.Op`.

    A rank that cannot make a call, as an argument is wrong, raises, and the others' calls fail with
    :class:`PeerError`; the next call is the next one on all.
    """

    __slots__ = ()

    _handle: Any
    _rank: int
    _size: int

    def _refused(self, problem):
        """This rank cannot make a call: the others hear of it."""
        try:
            self.fail(problem)
        except WeftError:
            pass  # there is no call to be failed: it is closed, say

    def _blocking(self, make, *given):
        if _local.depth:
            raise StateError(_INSIDE)
        try:
            function, keep, result, arguments = make(*given)
        except Exception as problem:
            self._refused(problem)
            raise
        record = self._handle.record
        if record.garbage:
            record.sweep_garbage()
        users, thread = record.users, get_ident()
        request = _new(_REQUEST)
        under_way = True
        try:
            users.append(thread)
            pointer = record.pointer
            if pointer is None or record.generation != _life._generation:
                raise record.gone()
            status = function(pointer, *arguments, request)
            if status < 0:
                _life.raise_status(status)
            pending = request[0]
            status = _wait(pending, _SLICE)
            if status == 0:
                under_way = False
                _destroy(pending)
                return result
            pending = Request(self, pending, keep, result)
            under_way = False
        except BaseException:
            if under_way and request[0]:
                self._go_on(request[0], keep)
            raise
        finally:
            users.remove(thread)
        pending._finish(status)
        return pending.wait()

    def _go_on(self, pointer, keep):
        """Ctrl-C in the middle of a call: it goes on with its buffers."""
        for record in list(self._handle.record.children.values()):
            if record.box and record.box[0] == pointer:
                record.drop(keep)
                return
        Request(self, pointer, keep, None)

    def _starting(self, make, *given):
        if _local.depth:
            raise StateError(_INSIDE)
        try:
            function, keep, result, arguments = make(*given)
        except Exception as problem:
            self._refused(problem)
            raise
        record = self._handle.record
        if record.garbage:
            record.sweep_garbage()
        users, thread = record.users, get_ident()
        request = _new(_REQUEST)
        try:
            users.append(thread)
            pointer = record.pointer
            if pointer is None or record.generation != _life._generation:
                raise record.gone()
            status = function(pointer, *arguments, request)
            if status < 0:
                _life.raise_status(status)
            return Request(self, request[0], keep, result)
        except BaseException:
            if request[0]:
                self._go_on(request[0], keep)
            raise
        finally:
            users.remove(thread)

    def _alike(self, send, recv):
        """Two buffers of as many elements, in the same order."""
        source, count, kind, order = locate(send, "send")
        target, into, into_kind, into_order = locate(recv, "recv", True)
        if kind != into_kind:
            _same(kind, into_kind)
        if count != into:
            raise InvalidError("send has %d elements and recv %d, expected as many" % (count, into))
        if order != into_order:
            raise InvalidError("send and recv lie in memory in different orders: strides are %r and %r; "
                               "pass copies" % (_strides(send), _strides(recv)))
        return source, target, count, kind

    def _cut(self, send, recv, send_blocks, recv_blocks):
        """Two buffers of blocks, of counts that belong together."""
        source, count, kind, order = locate(send, "send")
        target, into, into_kind, into_order = locate(recv, "recv", True)
        _same(kind, into_kind)
        _plain(order, "send")
        _plain(into_order, "recv")
        if count * recv_blocks != into * send_blocks or count % send_blocks:
            raise InvalidError("send has %d elements and recv %d, expected %s" % (
                count, into, "as many, %d blocks" % send_blocks if send_blocks == recv_blocks else
                "%d and %d blocks of as many" % (send_blocks, recv_blocks)))
        return source, target, count // send_blocks, kind

    def _given_root(self, root):
        if type(root) is not int:
            try:
                root = root.__index__()
            except AttributeError:
                raise InvalidError("root is %r, expected a rank" % (root,)) from None
        if not 0 <= root < self._size:
            raise InvalidError("root is %d, expected 0 to %d" % (root, self._size - 1))
        return root

    # Each returns (function, what is kept, result, arguments), for the call that blocks and the other.

    def _barrier(self):
        return lib.weft_ibarrier, None, None, ()

    def _broadcast(self, array, root=0):
        root = self._given_root(root)
        address, count, kind, _ = locate(array, "array", self._rank != root)
        return lib.weft_ibroadcast, address, array, (address, count, kind, root)

    def _allreduce(self, send, recv=None, op="sum"):
        operation = to_op(op)
        if recv is None or recv is send:
            address, count, kind, _ = locate(send, "send", True)
            return (lib.weft_iallreduce, (address, operation), send,
                    (_IN_PLACE, address, count, kind, operation.c))
        source, target, count, kind = self._alike(send, recv)
        return (lib.weft_iallreduce, (source, target, operation), recv,
                (source, target, count, kind, operation.c))

    def _scan(self, send, recv=None, op="sum"):
        return (lib.weft_iscan,) + self._allreduce(send, recv, op)[1:]

    def _exscan(self, send, recv=None, op="sum"):
        return (lib.weft_iexscan,) + self._allreduce(send, recv, op)[1:]

    def _reduce(self, send, recv=None, op="sum", root=0):
        operation = to_op(op)
        root = self._given_root(root)
        if self._rank != root:
            address, count, kind, _ = locate(send, "send")
            return (lib.weft_ireduce, (address, operation), None,
                    (address, ffi.NULL, count, kind, operation.c, root))
        if recv is None or recv is send:
            address, count, kind, _ = locate(send, "send", True)
            return (lib.weft_ireduce, (address, operation), send,
                    (_IN_PLACE, address, count, kind, operation.c, root))
        source, target, count, kind = self._alike(send, recv)
        return (lib.weft_ireduce, (source, target, operation), recv,
                (source, target, count, kind, operation.c, root))

    def _reduce_scatter(self, send, recv=None, op="sum"):
        operation = to_op(op)
        if recv is None:
            _, count, kind, _ = locate(send, "send")
            recv = _like(send, kind, _block_shape(send, _blocks_of(count, self._size, "send"), self._size))
        source, target, count, kind = self._cut(send, recv, self._size, 1)
        return (lib.weft_ireduce_scatter, (source, target, operation), recv,
                (source, target, count, kind, operation.c))

    def _joined(self, send, recv, blocks):
        """`send`, and as many blocks as that."""
        if recv is None:
            _, count, kind, _ = locate(send, "send")
            recv = _like(send, kind, (blocks,) + _shape(send, count))
        return self._cut(send, recv, 1, blocks) + (recv,)

    def _allgather(self, send, recv=None):
        source, target, count, kind, recv = self._joined(send, recv, self._size)
        return lib.weft_iallgather, (source, target), recv, (source, target, count, kind)

    def _gather(self, send, recv=None, root=0):
        root = self._given_root(root)
        if self._rank != root:
            address, count, kind, _ = locate(send, "send")
            return lib.weft_igather, address, None, (address, ffi.NULL, count, kind, root)
        source, target, count, kind, recv = self._joined(send, recv, self._size)
        return lib.weft_igather, (source, target), recv, (source, target, count, kind, root)

    def _neighbour_exchange(self, send, recv=None):
        source, target, count, kind, recv = self._joined(send, recv, 2)
        return lib.weft_ineighbour_exchange, (source, target), recv, (source, target, count, kind)

    def _scatter(self, send, recv=None, root=0):
        root = self._given_root(root)
        if self._rank != root:
            address, count, kind, _ = locate(recv, "recv", True)
            return lib.weft_iscatter, address, recv, (ffi.NULL, address, count, kind, root)
        if recv is None:
            _, count, kind, _ = locate(send, "send")
            recv = _like(send, kind, _block_shape(send, _blocks_of(count, self._size, "send"), self._size))
        source, target, count, kind = self._cut(send, recv, self._size, 1)
        return lib.weft_iscatter, (source, target), recv, (source, target, count, kind, root)

    def _alltoall(self, send, recv=None):
        if recv is None:
            _, count, kind, _ = locate(send, "send")
            recv = _like(send, kind, _shape(send, count))
        source, target, count, kind = self._cut(send, recv, self._size, self._size)
        return lib.weft_ialltoall, (source, target), recv, (source, target, count, kind)

    def _both(self, send, recv, extent):
        """Two buffers of blocks with counts of their own; `recv` None: a new array."""
        source, count, kind, order = locate(send, "send")
        _plain(order, "send")
        if recv is None:
            recv = _like(send, kind, (extent,))
        target, into, into_kind, order = locate(recv, "recv", True)
        _plain(order, "recv")
        _same(kind, into_kind)
        _room(into, extent, "recv")
        return source, count, target, kind, recv

    def _allgatherv(self, send, counts, recv=None, displacements=None):
        array, numbers = _numbers(counts, self._size, "counts")
        places, displacements = _places(displacements, self._size, "displacements")
        source, count, target, kind, recv = self._both(send, recv, _extent(numbers, displacements))
        if count != numbers[self._rank]:
            raise InvalidError("send has %d elements, expected %d, counts[%d]"
                               % (count, numbers[self._rank], self._rank))
        return (lib.weft_iallgatherv, (source, target, array, places), recv,
                (source, target, array, places, kind))

    def _gatherv(self, send, counts=None, recv=None, displacements=None, root=0):
        root = self._given_root(root)
        if self._rank != root:
            source, count, kind, _ = locate(send, "send")
            return (lib.weft_igatherv, source, None,
                    (source, count, ffi.NULL, ffi.NULL, ffi.NULL, kind, root))
        array, numbers = _numbers(counts, self._size, "counts")
        places, displacements = _places(displacements, self._size, "displacements")
        source, count, target, kind, recv = self._both(send, recv, _extent(numbers, displacements))
        return (lib.weft_igatherv, (source, target, array, places), recv,
                (source, count, target, array, places, kind, root))

    def _scatterv(self, send, counts=None, recv=None, displacements=None, root=0):
        root = self._given_root(root)
        if self._rank != root:
            target, count, kind, _ = locate(recv, "recv", True)
            return (lib.weft_iscatterv, target, recv,
                    (ffi.NULL, ffi.NULL, ffi.NULL, target, count, kind, root))
        array, numbers = _numbers(counts, self._size, "counts")
        places, displacements = _places(displacements, self._size, "displacements")
        source, count, kind, order = locate(send, "send")
        _plain(order, "send")
        _room(count, _extent(numbers, displacements), "send")
        if recv is None:
            recv = _like(send, kind, (numbers[root],))
        target, into, into_kind, _ = locate(recv, "recv", True)
        _same(kind, into_kind)
        return (lib.weft_iscatterv, (source, target, array, places), recv,
                (source, array, places, target, into, kind, root))

    def _alltoallv(self, send, send_counts, recv_counts, recv=None, send_displacements=None,
                   recv_displacements=None):
        out, outs = _numbers(send_counts, self._size, "send_counts")
        into, ins = _numbers(recv_counts, self._size, "recv_counts")
        out_places, send_displacements = _places(send_displacements, self._size, "send_displacements")
        into_places, recv_displacements = _places(recv_displacements, self._size, "recv_displacements")
        source, count, target, kind, recv = self._both(send, recv, _extent(ins, recv_displacements))
        _room(count, _extent(outs, send_displacements), "send")
        return (lib.weft_ialltoallv, (source, target, out, into, out_places, into_places), recv,
                (source, out, out_places, target, into, into_places, kind))

    def _reduce_scatterv(self, send, counts, recv=None, op="sum"):
        operation = to_op(op)
        array, numbers = _numbers(counts, self._size, "counts")
        source, count, target, kind, recv = self._both(send, recv, numbers[self._rank])
        if count != sum(numbers):
            raise InvalidError("send has %d elements, expected %d, the sum of counts" % (count, sum(numbers)))
        return (lib.weft_ireduce_scatterv, (source, target, array, operation), recv,
                (source, target, array, kind, operation.c))

    # ---- the calls ----

    def barrier(self) -> None:
        """No rank returns before all have called."""
        self._blocking(self._barrier)

    def ibarrier(self) -> Request:
        """:meth:`barrier` that does not wait."""
        return self._starting(self._barrier)

    def broadcast(self, array: ArrayLike, root: int = 0) -> Any:
        """The root's elements reach all ranks.

        Parameters
        ----------
        array : array_like
            The root's is read, those of the others are written.
        root : int

        Returns
        -------
        array
        """
        return self._blocking(self._broadcast, array, root)

    def ibroadcast(self, array: ArrayLike, root: int = 0) -> Request:
        """:meth:`broadcast` that does not wait."""
        return self._starting(self._broadcast, array, root)

    def allreduce(
        self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum"
    ) -> Any:
        """The contributions of all ranks combined, on every rank.

        Parameters
        ----------
        send : array_like
        recv : array_like, optional
            As many elements. None: in place, in `send`.
        op : str or Op

        Returns
        -------
        recv, or send
        """
        return self._blocking(self._allreduce, send, recv, op)

    def iallreduce(
        self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum"
    ) -> Request:
        """:meth:`allreduce` that does not wait."""
        return self._starting(self._allreduce, send, recv, op)

    def reduce(
        self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum", root: int = 0
    ) -> Any:
        """The contributions of all ranks combined, on the root.

        Parameters
        ----------
        send : array_like
        recv : array_like, optional
            On the root: as many elements. None: in place, in the root's `send`.
        op : str or Op
        root : int

        Returns
        -------
        recv, or send, on the root; else None
        """
        return self._blocking(self._reduce, send, recv, op, root)

    def ireduce(
        self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum", root: int = 0
    ) -> Request:
        """:meth:`reduce` that does not wait."""
        return self._starting(self._reduce, send, recv, op, root)

    def reduce_scatter(
        self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum"
    ) -> Any:
        """The contributions of all ranks combined, a block of the result on each rank.

        Parameters
        ----------
        send : array_like
            P blocks, for P ranks.
        recv : array_like, optional
            One block. None: a new array.
        op : str or Op

        Returns
        -------
        recv
        """
        return self._blocking(self._reduce_scatter, send, recv, op)

    def ireduce_scatter(
        self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum"
    ) -> Request:
        """:meth:`reduce_scatter` that does not wait."""
        return self._starting(self._reduce_scatter, send, recv, op)

    def allgather(self, send: ArrayLike, recv: Optional[ArrayLike] = None) -> Any:
        """The blocks of all ranks, on every rank.

        Parameters
        ----------
        send : array_like
        recv : array_like, optional
            P times as many elements: block r is `send` of rank r. None: a new array of shape
            (P, ``*send.shape``).

        Returns
        -------
        recv
        """
        return self._blocking(self._allgather, send, recv)

    def iallgather(self, send: ArrayLike, recv: Optional[ArrayLike] = None) -> Request:
        """:meth:`allgather` that does not wait."""
        return self._starting(self._allgather, send, recv)

    def gather(self, send: ArrayLike, recv: Optional[ArrayLike] = None, root: int = 0) -> Any:
        """The blocks of all ranks, on the root.

        Parameters
        ----------
        send : array_like
        recv : array_like, optional
            On the root, as of :meth:`allgather`.
        root : int

        Returns
        -------
        recv on the root; else None
        """
        return self._blocking(self._gather, send, recv, root)

    def igather(self, send: ArrayLike, recv: Optional[ArrayLike] = None, root: int = 0) -> Request:
        """:meth:`gather` that does not wait."""
        return self._starting(self._gather, send, recv, root)

    def scatter(
        self, send: Optional[ArrayLike], recv: Optional[ArrayLike] = None, root: int = 0
    ) -> Any:
        """The blocks of the root, one for each rank.

        Parameters
        ----------
        send : array_like
            On the root: P blocks. Not looked at elsewhere.
        recv : array_like
            One block. On the root None makes a new array.
        root : int

        Returns
        -------
        recv
        """
        return self._blocking(self._scatter, send, recv, root)

    def iscatter(
        self, send: Optional[ArrayLike], recv: Optional[ArrayLike] = None, root: int = 0
    ) -> Request:
        """:meth:`scatter` that does not wait."""
        return self._starting(self._scatter, send, recv, root)

    def alltoall(self, send: ArrayLike, recv: Optional[ArrayLike] = None) -> Any:
        """A block from every rank to every rank.

        Parameters
        ----------
        send : array_like
            P blocks.
        recv : array_like, optional
            P blocks: block s on rank r is block r of rank s. None: a new array.

        Returns
        -------
        recv
        """
        return self._blocking(self._alltoall, send, recv)

    def ialltoall(self, send: ArrayLike, recv: Optional[ArrayLike] = None) -> Request:
        """:meth:`alltoall` that does not wait."""
        return self._starting(self._alltoall, send, recv)

    def neighbour_exchange(self, send: ArrayLike, recv: Optional[ArrayLike] = None) -> Any:
        """The elements of both neighbours on a ring.

        Parameters
        ----------
        send : array_like
        recv : array_like, optional
            Twice as many: of the rank before, then of the rank behind. None: a new array.

        Returns
        -------
        recv
        """
        return self._blocking(self._neighbour_exchange, send, recv)

    def ineighbour_exchange(self, send: ArrayLike, recv: Optional[ArrayLike] = None) -> Request:
        """:meth:`neighbour_exchange` that does not wait."""
        return self._starting(self._neighbour_exchange, send, recv)

    def scan(self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum") -> Any:
        """The contributions of this rank and all before it, combined.

        Parameters
        ----------
        send, recv, op
            As of :meth:`allreduce`.

        Returns
        -------
        recv, or send
        """
        return self._blocking(self._scan, send, recv, op)

    def iscan(
        self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum"
    ) -> Request:
        """:meth:`scan` that does not wait."""
        return self._starting(self._scan, send, recv, op)

    def exscan(self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum") -> Any:
        """The contributions of all ranks before this one, combined.

        Parameters
        ----------
        send, recv, op
            As of :meth:`allreduce`. On rank 0 what is received is left as it is.

        Returns
        -------
        recv, or send
        """
        return self._blocking(self._exscan, send, recv, op)

    def iexscan(
        self, send: ArrayLike, recv: Optional[ArrayLike] = None, op: OpLike = "sum"
    ) -> Request:
        """:meth:`exscan` that does not wait."""
        return self._starting(self._exscan, send, recv, op)

    def allgatherv(
        self, send: ArrayLike, counts: Sequence[int], recv: Optional[ArrayLike] = None,
        displacements: Optional[Sequence[int]] = None
    ) -> Any:
        """The blocks of all ranks, on every rank, each with a count of its own.

        Parameters
        ----------
        send : array_like
            ``counts[rank]`` elements.
        counts : sequence of int
            Elements of the block of each rank; the same on all.
        recv : array_like, optional
            All blocks. None: a new array.
        displacements : sequence of int, optional
            The element of `recv` that each block begins with. None: one behind the other.

        Returns
        -------
        recv
        """
        return self._blocking(self._allgatherv, send, counts, recv, displacements)

    def iallgatherv(
        self, send: ArrayLike, counts: Sequence[int], recv: Optional[ArrayLike] = None,
        displacements: Optional[Sequence[int]] = None
    ) -> Request:
        """:meth:`allgatherv` that does not wait."""
        return self._starting(self._allgatherv, send, counts, recv, displacements)

    def gatherv(
        self, send: ArrayLike, counts: Optional[Sequence[int]] = None,
        recv: Optional[ArrayLike] = None, displacements: Optional[Sequence[int]] = None,
        root: int = 0
    ) -> Any:
        """The blocks of all ranks, on the root, each with a count of its own.

        Parameters
        ----------
        send : array_like
        counts, recv, displacements
            On the root, as of :meth:`allgatherv`.
        root : int

        Returns
        -------
        recv on the root; else None
        """
        return self._blocking(self._gatherv, send, counts, recv, displacements, root)

    def igatherv(
        self, send: ArrayLike, counts: Optional[Sequence[int]] = None,
        recv: Optional[ArrayLike] = None, displacements: Optional[Sequence[int]] = None,
        root: int = 0
    ) -> Request:
        """:meth:`gatherv` that does not wait."""
        return self._starting(self._gatherv, send, counts, recv, displacements, root)

    def scatterv(
        self, send: Optional[ArrayLike], counts: Optional[Sequence[int]] = None,
        recv: Optional[ArrayLike] = None, displacements: Optional[Sequence[int]] = None,
        root: int = 0
    ) -> Any:
        """The blocks of the root, one for each rank, each with a count of its own.

        Parameters
        ----------
        send, counts, displacements
            On the root: all blocks, their elements, and where each begins.
        recv : array_like
            This rank's block. On the root None makes a new array.
        root : int

        Returns
        -------
        recv
        """
        return self._blocking(self._scatterv, send, counts, recv, displacements, root)

    def iscatterv(
        self, send: Optional[ArrayLike], counts: Optional[Sequence[int]] = None,
        recv: Optional[ArrayLike] = None, displacements: Optional[Sequence[int]] = None,
        root: int = 0
    ) -> Request:
        """:meth:`scatterv` that does not wait."""
        return self._starting(self._scatterv, send, counts, recv, displacements, root)

    def alltoallv(
        self, send: ArrayLike, send_counts: Sequence[int], recv_counts: Sequence[int],
        recv: Optional[ArrayLike] = None, send_displacements: Optional[Sequence[int]] = None,
        recv_displacements: Optional[Sequence[int]] = None
    ) -> Any:
        """A block from every rank to every rank, with a count for each pair.

        Parameters
        ----------
        send : array_like
        send_counts, recv_counts : sequence of int
            Elements that go to each rank, and that come from it.
        recv : array_like, optional
            None: a new array.
        send_displacements, recv_displacements : sequence of int, optional

        Returns
        -------
        recv
        """
        return self._blocking(self._alltoallv, send, send_counts, recv_counts, recv, send_displacements,
                              recv_displacements)

    def ialltoallv(
        self, send: ArrayLike, send_counts: Sequence[int], recv_counts: Sequence[int],
        recv: Optional[ArrayLike] = None, send_displacements: Optional[Sequence[int]] = None,
        recv_displacements: Optional[Sequence[int]] = None
    ) -> Request:
        """:meth:`alltoallv` that does not wait."""
        return self._starting(self._alltoallv, send, send_counts, recv_counts, recv, send_displacements,
                              recv_displacements)

    def reduce_scatterv(
        self, send: ArrayLike, counts: Sequence[int], recv: Optional[ArrayLike] = None,
        op: OpLike = "sum"
    ) -> Any:
        """The contributions of all ranks combined, on each a block with a count of its own.

        Parameters
        ----------
        send : array_like
            All blocks, one behind the other.
        counts : sequence of int
            The same on all ranks.
        recv : array_like, optional
            ``counts[rank]`` elements. None: a new array.
        op : str or Op

        Returns
        -------
        recv
        """
        return self._blocking(self._reduce_scatterv, send, counts, recv, op)

    def ireduce_scatterv(
        self, send: ArrayLike, counts: Sequence[int], recv: Optional[ArrayLike] = None,
        op: OpLike = "sum"
    ) -> Request:
        """:meth:`reduce_scatterv` that does not wait."""
        return self._starting(self._reduce_scatterv, send, counts, recv, op)

    # ---- settings ----

    def configure(self, *, plans: Optional[int] = None, bytes: Optional[int] = None,
                  deadline: Optional[float] = None) -> None:
        """Sets what the calls keep, and how long one may take.

        Parameters
        ----------
        plans, bytes : int, optional
            So many plans, and bytes of them, are kept at most. None: 64, and 64 MiB.
        deadline : float, optional
            A call that takes longer fails with :class:`TimeoutError`, in seconds. None: none does.
        """
        config = _structs.Struct("weft_collectives_config", dict(
            plans=_structs.SIZE_MAX if plans == 0 else plans, bytes=1 if bytes == 0 else bytes,
            deadline=deadline), "configure")
        check(self._handle.call(lib.weft_collectives_configure, config.c))

    @property
    def collectives_stats(self) -> Any:
        """What the calls have done and keep, as a named tuple."""
        c = _structs.new("weft_collectives_stats")
        check(self._handle.call(lib.weft_collectives_get_stats, c))
        return _structs.read("weft_collectives_stats", c)

    def fail(self, problem: Union[BaseException, str]) -> None:
        """This rank fails its next call instead of making it; the others' fail with :class:`PeerError`.

        Parameters
        ----------
        problem : BaseException or str
            Reaches the others as the text of their errors.
        """
        status = status_of(problem) if isinstance(problem, BaseException) else lib.WEFT_ERR_CANCELLED
        check(self._handle.call(lib.weft_collectives_fail, status,
                                _new("char[]", str(problem).encode("utf-8", "replace"))))


def _strides(thing: Any) -> Any:
    stride = getattr(thing, "strides", None) or getattr(thing, "stride", None)
    return tuple(stride()) if callable(stride) else stride

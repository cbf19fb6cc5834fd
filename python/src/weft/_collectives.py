# SPDX-License-Identifier: BSD-3-Clause
"""The collectives that everybody knows, as methods of a context; and requests."""
import sys
from typing import Any, Optional, Sequence, Union

import numpy

from . import _life, _structs
from ._library import ffi, lib, text
from .buffers import buffer, dtype_name
from .errors import InvalidError
from .op import Op
from .op import op as to_op

#: An array, a tensor, or what has the buffer protocol or DLPack.
ArrayLike = Any
OpLike = Union[str, Op]

_IN_PLACE = ffi.cast("void *", _structs.SIZE_MAX)


def _ended(request):
    return lib.weft_request_test(request) != lib.WEFT_IN_PROGRESS


class Request:
    """A call that may not have ended.

    It goes on while a thread drives the context: its helper, or whoever is in a call that waits or
    tests. A request that nobody has any more goes on, too; its buffers are kept until it has ended.
    """

    __slots__ = ("_context", "_handle", "_status", "_text", "result", "__weakref__")

    def __init__(self, context, pointer, keep, result):
        self._context = context
        self._handle = _life.owned(self, _life.Handle(
            pointer, lib.weft_request_destroy, "the request", context._handle, _ended))
        self._handle.keep = keep
        self._status = None
        self._text = ""
        #: What the blocking call would return.
        self.result = result

    def _finish(self, status):
        if status == lib.WEFT_IN_PROGRESS:
            return False
        self._status = status
        if status < 0:
            self._text = text(lib.weft_error_text())
        self._handle.close()
        return True

    def test(self):
        """Drives the engine a little.

        Returns
        -------
        bool
            Whether it has ended; raises what it has failed with.
        """
        if self._status is None and not self._finish(lib.weft_request_test(self._handle.get())):
            return False
        if self._status < 0:
            _life.raise_status(self._status, self._text)
        return True

    done = property(lambda self: self._status is not None or self._finish(
        lib.weft_request_test(self._handle.get())), doc="Whether it has ended, well or not.")

    def wait(self, timeout=None):
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
        if self._status is None:
            status = _life.wait(self._context._handle, lib.weft_request_wait, self._handle.get(), timeout,
                                "timeout")
            if not self._finish(status):
                from .errors import TimeoutError

                raise TimeoutError("the call has not ended within %g s" % timeout)
        if self._status < 0:
            _life.raise_status(self._status, self._text)
        return self.result

    def __repr__(self):
        return "<weft.Request, %s>" % ("under way" if self._status is None else
                                       text(lib.weft_status_text(self._status)))


def wait_all(requests, timeout=None):
    """Waits for all of some requests; raises what the first of them has failed with, once all have ended."""
    problem = None
    for request in requests:
        try:
            request.wait(timeout)
        except Exception as found:
            problem = problem or found
    if problem is not None:
        raise problem


def _like(thing, shape):
    """A new array, or tensor, of a shape, as `thing` is."""
    if "torch" in sys.modules and isinstance(thing, sys.modules["torch"].Tensor):
        return thing.new_empty(shape)
    return numpy.empty(shape, numpy.asarray(thing).dtype)


def _counts(counts, size, what):
    counts = [int(count) for count in counts]
    if len(counts) != size:
        raise InvalidError("%s has %d entries, expected one for each of %d ranks" % (what, len(counts), size))
    return ffi.new("size_t[]", counts), counts


class Collectives:
    """Methods that all ranks of a context call, in the same order, with the same counts.

    Arrays are numpy arrays, torch tensors or anything :func:`weft.buffers.buffer` takes; they are used
    in place, nothing is copied. With ``i`` in front (``iallreduce``) a call does not wait, and returns
    a :class:`Request`, which keeps the arrays until it has ended. What a call needs is built once for
    its arguments and kept.

    `op` is the name of a built-in operation ("sum", "prod", "min", "max", "land", "lor", "lxor", "band",
    "bor", "bxor") or a :class:`weft.Op`.
    """

    __slots__ = ()

    def _made(self, make, given):
        """What a call is of, or this rank's failure of it, of which the others hear."""
        try:
            return make(*given)
        except Exception as problem:
            self.fail(problem)
            raise

    def _blocking(self, make, *given):
        function, keep, result, *arguments = self._made(make, given)
        handle = self._handle
        pointer = handle.get()
        if handle.garbage:
            handle.sweep()
        request = ffi.new("struct weft_request **")
        handle.calls += 1
        try:
            status = function(pointer, *arguments, request)
            if status < 0:
                _life.raise_status(status)
            status = lib.weft_request_wait(request[0], _life.SLICE)
            if status == 0:
                lib.weft_request_destroy(request[0])
                request[0] = ffi.NULL
                return result
            given = Request(self, request[0], keep, result)
            request[0] = ffi.NULL
        except BaseException:
            if request[0]:  # Ctrl-C in between: the call goes on with its buffers
                Request(self, request[0], keep, result)
            raise
        finally:
            handle.calls -= 1
        given._finish(status)
        return given.wait()

    def _starting(self, make, *given):
        function, keep, result, *arguments = self._made(make, given)
        handle = self._handle
        pointer = handle.get()
        if handle.garbage:
            handle.sweep()
        request = ffi.new("struct weft_request **")
        try:
            _life.require(function(pointer, *arguments, request))
        finally:
            if request[0]:
                given = Request(self, request[0], keep, result)
        return given

    def _pair(self, send, recv, send_blocks, recv_blocks):
        """Two buffers of blocks: of equal datatypes, and of counts that belong together."""
        source = buffer(send, "send")
        target = buffer(recv, "recv", True)
        if source.dtype != target.dtype:
            raise InvalidError("send has elements of %s and recv of %s, expected one datatype" % (
                dtype_name(source.dtype), dtype_name(target.dtype)))
        if source.count * recv_blocks != target.count * send_blocks or source.count % send_blocks:
            raise InvalidError("send has %d elements and recv %d, expected %s" % (
                source.count, target.count, "as many" if send_blocks == recv_blocks else
                "%d blocks and %d blocks of as many" % (send_blocks, recv_blocks)))
        return source.address, target.address, source.count // send_blocks, source.dtype, (source, target)

    # Each returns (function, what is kept, result, *arguments), for the call that blocks and the other.

    def _barrier(self):
        return lib.weft_ibarrier, (), None

    def _broadcast(self, array, root=0):
        found = buffer(array, "array", self._rank != root)
        return lib.weft_ibroadcast, (found,), array, found.address, found.count, found.dtype, root

    def _allreduce(self, send, recv=None, op="sum"):
        operation = to_op(op)
        if recv is None:
            found = buffer(send, "send", True)
            return (lib.weft_iallreduce, (found, operation), send,
                _IN_PLACE, found.address, found.count, found.dtype, operation.c)
        source, target, count, kind, keep = self._pair(send, recv, 1, 1)
        return lib.weft_iallreduce, (keep, operation), recv, source, target, count, kind, operation.c

    def _reduce(self, send, recv=None, op="sum", root=0):
        operation = to_op(op)
        if self._rank != root:
            found = buffer(send, "send")
            return (lib.weft_ireduce, (found, operation), None,
                found.address, ffi.NULL, found.count, found.dtype, operation.c, root)
        if recv is None:
            found = buffer(send, "send", True)
            return (lib.weft_ireduce, (found, operation), send,
                _IN_PLACE, found.address, found.count, found.dtype, operation.c, root)
        source, target, count, kind, keep = self._pair(send, recv, 1, 1)
        return lib.weft_ireduce, (keep, operation), recv, source, target, count, kind, operation.c, root

    def _reduce_scatter(self, send, recv=None, op="sum"):
        operation = to_op(op)
        if recv is None:
            found = buffer(send, "send")
            if found.count % self._size:
                raise InvalidError("send has %d elements, expected a multiple of %d, the ranks"
                                   % (found.count, self._size))
            recv = _like(send, _block_shape(send, found.count // self._size, self._size))
        source, target, count, kind, keep = self._pair(send, recv, self._size, 1)
        return lib.weft_ireduce_scatter, (keep, operation), recv, source, target, count, kind, operation.c

    def _allgather(self, send, recv=None):
        if recv is None:
            recv = _like(send, (self._size,) + tuple(_shape(send)))
        source, target, count, kind, keep = self._pair(send, recv, 1, self._size)
        return lib.weft_iallgather, keep, recv, source, target, count, kind

    def _gather(self, send, recv=None, root=0):
        if self._rank != root:
            found = buffer(send, "send")
            return lib.weft_igather, (found,), None, found.address, ffi.NULL, found.count, found.dtype, root
        if recv is None:
            recv = _like(send, (self._size,) + tuple(_shape(send)))
        source, target, count, kind, keep = self._pair(send, recv, 1, self._size)
        return lib.weft_igather, keep, recv, source, target, count, kind, root

    def _scatter(self, send, recv=None, root=0):
        if self._rank != root:
            found = buffer(recv, "recv", True)
            return lib.weft_iscatter, (found,), recv, ffi.NULL, found.address, found.count, found.dtype, root
        if recv is None:
            found = buffer(send, "send")
            if found.count % self._size:
                raise InvalidError("send has %d elements, expected a multiple of %d, the ranks"
                                   % (found.count, self._size))
            recv = _like(send, _block_shape(send, found.count // self._size, self._size))
        source, target, count, kind, keep = self._pair(send, recv, self._size, 1)
        return lib.weft_iscatter, keep, recv, source, target, count, kind, root

    def _alltoall(self, send, recv=None):
        if recv is None:
            recv = _like(send, _shape(send))
        source, target, count, kind, keep = self._pair(send, recv, self._size, self._size)
        return lib.weft_ialltoall, keep, recv, source, target, count, kind

    def _neighbour_exchange(self, send, recv=None):
        if recv is None:
            recv = _like(send, (2,) + tuple(_shape(send)))
        source, target, count, kind, keep = self._pair(send, recv, 1, 2)
        return lib.weft_ineighbour_exchange, keep, recv, source, target, count, kind

    def _scan(self, send, recv=None, op="sum"):
        return (lib.weft_iscan,) + self._allreduce(send, recv, op)[1:]

    def _exscan(self, send, recv=None, op="sum"):
        return (lib.weft_iexscan,) + self._allreduce(send, recv, op)[1:]

    def _allgatherv(self, send, counts, recv=None, displacements=None):
        array, numbers = _counts(counts, self._size, "counts")
        places = _displacements(displacements, self._size, "displacements")
        source = buffer(send, "send")
        if recv is None:
            recv = _like(send, (_extent(numbers, displacements),))
        target = buffer(recv, "recv", True)
        _same(source, target)
        _room(source, numbers[self._rank], "send")
        _room(target, _extent(numbers, displacements), "recv")
        return (lib.weft_iallgatherv, (source, target, array, places), recv,
                source.address, target.address, array, places, source.dtype)

    def _gatherv(self, send, counts=None, recv=None, displacements=None, root=0):
        source = buffer(send, "send")
        if self._rank != root:
            return (lib.weft_igatherv, (source,), None,
                source.address, source.count, ffi.NULL, ffi.NULL, ffi.NULL, source.dtype, root)
        array, numbers = _counts(counts, self._size, "counts")
        places = _displacements(displacements, self._size, "displacements")
        if recv is None:
            recv = _like(send, (_extent(numbers, displacements),))
        target = buffer(recv, "recv", True)
        _same(source, target)
        _room(target, _extent(numbers, displacements), "recv")
        return (lib.weft_igatherv, (source, target, array, places), recv,
                source.address, source.count, target.address, array, places, source.dtype, root)

    def _scatterv(self, send, counts=None, recv=None, displacements=None, root=0):
        if self._rank != root:
            target = buffer(recv, "recv", True)
            return (lib.weft_iscatterv, (target,), recv,
                ffi.NULL, ffi.NULL, ffi.NULL, target.address, target.count, target.dtype, root)
        array, numbers = _counts(counts, self._size, "counts")
        places = _displacements(displacements, self._size, "displacements")
        if recv is None:
            recv = _like(send, (numbers[root],))
        source, target = buffer(send, "send"), buffer(recv, "recv", True)
        _same(source, target)
        _room(source, _extent(numbers, displacements), "send")
        return (lib.weft_iscatterv, (source, target, array, places), recv,
                source.address, array, places, target.address, target.count, target.dtype, root)

    def _alltoallv(self, send, send_counts, recv_counts, recv=None, send_displacements=None,
                   recv_displacements=None):
        out, outs = _counts(send_counts, self._size, "send_counts")
        into, ins = _counts(recv_counts, self._size, "recv_counts")
        out_places = _displacements(send_displacements, self._size, "send_displacements")
        into_places = _displacements(recv_displacements, self._size, "recv_displacements")
        if recv is None:
            recv = _like(send, (_extent(ins, recv_displacements),))
        source, target = buffer(send, "send"), buffer(recv, "recv", True)
        _same(source, target)
        _room(source, _extent(outs, send_displacements), "send")
        _room(target, _extent(ins, recv_displacements), "recv")
        return (lib.weft_ialltoallv, (source, target, out, into, out_places, into_places), recv,
                source.address, out, out_places, target.address, into, into_places, source.dtype)

    def _reduce_scatterv(self, send, counts, recv=None, op="sum"):
        operation = to_op(op)
        array, numbers = _counts(counts, self._size, "counts")
        if recv is None:
            recv = _like(send, (numbers[self._rank],))
        source, target = buffer(send, "send"), buffer(recv, "recv", True)
        _same(source, target)
        _room(source, sum(numbers), "send")
        _room(target, numbers[self._rank], "recv")
        return (lib.weft_ireduce_scatterv, (source, target, array, operation), recv,
                source.address, target.address, array, source.dtype, operation.c)

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
            (P, \*send.shape).

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
        return self._blocking(self._alltoallv, send, send_counts, recv_counts, recv, send_displacements, recv_displacements)

    def ialltoallv(
        self, send: ArrayLike, send_counts: Sequence[int], recv_counts: Sequence[int],
        recv: Optional[ArrayLike] = None, send_displacements: Optional[Sequence[int]] = None,
        recv_displacements: Optional[Sequence[int]] = None
    ) -> Request:
        """:meth:`alltoallv` that does not wait."""
        return self._starting(self._alltoallv, send, send_counts, recv_counts, recv, send_displacements, recv_displacements)

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

    def configure(self, *, plans=None, bytes=None, deadline=None):
        """Sets what the calls keep, and how long one may take.

        Parameters
        ----------
        plans, bytes : int, optional
            So many plans, and bytes of them, are kept at most.
        deadline : float, optional
            A call that takes longer fails with :class:`TimeoutError`, in seconds.
        """
        config = _structs.Struct("weft_collectives_config", dict(
            plans=plans, bytes=bytes, deadline=deadline), "configure")
        self._call(lib.weft_collectives_configure, config.c)

    @property
    def collectives_stats(self):
        """What the calls have done and keep, as a named tuple."""
        return _structs.filled("weft_collectives_stats", lib.weft_collectives_get_stats, self._handle.get())

    def fail(self, problem):
        """This rank fails its next call instead of making it; the others' fail with PeerError."""
        from .errors import check, status_of

        status = status_of(problem) if isinstance(problem, BaseException) else lib.WEFT_ERR_CANCELLED
        check(lib.weft_collectives_fail(self._handle.get(), status,
                                        ffi.new("char[]", str(problem).encode("utf-8", "replace"))))


def _shape(thing):
    return getattr(thing, "shape", None) if hasattr(thing, "shape") else numpy.asarray(thing).shape


def _block_shape(send, count, size):
    """The shape of a block of `send`: its first dimension cut, where that can be."""
    shape = tuple(_shape(send))
    if shape and shape[0] == size:
        return shape[1:]
    if shape and shape[0] % size == 0:
        return (shape[0] // size,) + shape[1:]
    return (count,)


def _displacements(displacements, size, what):
    if displacements is None:
        return ffi.NULL
    return _counts(displacements, size, what)[0]


def _extent(counts, displacements):
    """The elements that blocks reach to."""
    if displacements is None:
        return sum(counts)
    return max([place + count for place, count in zip(displacements, counts) if count] + [0])


def _room(found, needed, what):
    if found.count < needed:
        raise InvalidError("%s has %d elements, expected at least %d" % (what, found.count, needed))


def _same(source, target):
    if source.dtype != target.dtype:
        raise InvalidError("send has elements of %s and recv of %s, expected one datatype" % (
            dtype_name(source.dtype), dtype_name(target.dtype)))

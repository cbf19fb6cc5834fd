# SPDX-License-Identifier: BSD-3-Clause
"""Contexts: one rank, with its transport, its engine and its progress.

======================================  =====================================================
``LocalGroup(4).context(rank)``          ranks that are threads of this process
``run_local(4, function)``               the same, with the threads
``Context.shared(rank, size, name=...)`` processes of one machine, by memory that they share
``Context.world("shared")``              those that ``weft launch`` or torchrun has started
``Context.world("mpi")``                 those of mpiexec, without mpi4py
``Context.mpi(comm)``                    a communicator of mpi4py
======================================  =====================================================

Waits release the GIL and see Ctrl-C. A context may be used from several threads.
"""
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy

from . import _collectives, _enums, _life, _structs, buffers
from ._library import ffi, lib, take_text, text
from .errors import CancelledError, InvalidError, OutOfMemoryError, PeerError, StateError, check, status_of

__all__ = ["Context", "LocalGroup", "Memory", "run_local", "transports"]


@_life.callback("weft_log_fn")
def _log(user, level, rank, line):
    function = _life.function_of(user)
    if function is not None:
        function(_enums.word("weft_log_level_t", level), rank, text(line))


@_life.callback("weft_gather_fn", -12, "gather", engine=False)
def _gather(user, mine, size, everything):
    function, ranks = _life.function_of(user)
    parts = list(function(bytes(ffi.buffer(mine, size))))
    if len(parts) != ranks or any(len(part) != size for part in parts):
        raise InvalidError("it has returned %d parts of %r bytes, expected %d of %d bytes" % (
            len(parts), sorted({len(part) for part in parts}), ranks, size))
    for rank, part in enumerate(parts):
        ffi.memmove(ffi.cast("char *", everything) + rank * size, bytes(part), size)
    return 0


class _Settings:
    """A weft_context_config of keyword arguments, and what it keeps."""

    def __init__(self, settings, who):
        settings = dict(settings)
        log = settings.pop("log", None)
        self.struct = _structs.Struct("weft_context_config", settings, who)
        self.keep = []
        if log is not None:
            if not callable(log):
                raise InvalidError("%s: log is %r, expected log(level, rank, line)" % (who, log))
            self.keep.append(_life.Function(log))
            self.struct.c.log = _log
            self.struct.c.log_user = self.keep[0].user


class Memory:
    """Memory of :meth:`Context.empty`: ends with the last array over it."""

    __slots__ = ("context", "pointer", "bytes", "__weakref__")

    def __init__(self, context: "Context", size: int) -> None:
        self.context = None
        self.bytes = size
        if context.transport in ("local", "virtual"):  # which have none of their own
            context._handle.get()
            pointer, free = lib.weft_memory_alloc(max(size, 1), 1), lib.weft_memory_free
        else:
            # It is of the one on the transport, which it therefore holds.
            self.context = context._root or context
            pointer = context._handle.ask(lib.weft_context_memory_alloc, max(size, 1), 1)
            free = self.context._handle.record.free
        if not pointer:
            raise OutOfMemoryError("there is no memory for an array of %d bytes" % size)
        self.pointer = _life.freed(pointer, free)
        if self.context is not None:
            address = int(ffi.cast("uintptr_t", pointer))
            self.context._handle.record.memories[address] = address + size, weakref.ref(self.pointer)

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {"version": 3, "shape": (self.bytes,), "typestr": "|u1",
                "data": (int(ffi.cast("uintptr_t", self.pointer)), False)}


class Context(_collectives.Collectives):
    """One rank. Made by :meth:`world`, :meth:`shared`, :meth:`mpi`, :meth:`LocalGroup.context`.

    To be closed, by :meth:`close` or as a context manager: that ends what is under way on it. A context
    that nobody has any more closes itself, and all are closed when the interpreter exits.

    Settings of all of them, as keyword arguments (weft_context_config in C):

    Parameters
    ----------
    progress : {"caller", "helper"}, optional
        Who drives the engine: threads that wait, or a thread of the context as well. Objects that avoid
        waiting need "helper". Default: WEFT_PROGRESS of the environment, else "caller".
    spin, yield_, sleep_min, sleep_max, helper_yield : float, optional
        Idle policy, in seconds.
    stall : float, optional
        Logs a report of a wait that takes longer, in seconds.
    log : callable, optional
        ``log(level, rank, line)`` receives log lines, from any thread.
    log_level : {"error", "warning", "info", "debug"}, optional
    bind_helper, keep_apart : {"on", "off"}, optional
    device : str, optional
        ``"cuda:1"``: the device of runs that have slots on one.
    """

    def __init__(self, pointer: Any, keep: Sequence[Any] = (), settings: Optional[_Settings] = None,
                 parent: Optional["Context"] = None) -> None:
        keep = list(keep) + ([] if settings is None else settings.keep)
        # What was split ends with the context on the transport, which it therefore holds.
        self._root = None if parent is None else parent._root or parent
        self._rank = lib.weft_context_rank(pointer)
        self._size = lib.weft_context_size(pointer)
        self._transport = text(lib.weft_context_transport(pointer))
        # From here on it may be closed by another thread, at the interpreter's exit say.
        self._handle = _life.ContextHandle(pointer, keep, None if parent is None else self._root._handle)
        _life.sweep_left()

    # ---- makers ----

    @classmethod
    def world(cls, transport: str = "shared", **settings: Any) -> "Context":
        """The context of this process among those that its launcher has started together.

        Collective over the processes, blocking; a world of one without a launcher.

        Parameters
        ----------
        transport : {"shared", "mpi"}
            "shared": the processes of ``weft launch`` or torchrun, all on one machine. "mpi": those of
            mpiexec of the MPI that weft was built for.
        **settings
            Of :class:`Context`.

        Returns
        -------
        Context

        Raises
        ------
        UnsupportedError
            What the transport needs is not installed; the text says what was tried.
        InvalidError
            The variables of the launcher make no sense; the text names them.
        """
        given = _Settings(settings, "Context.world")
        pointer = ffi.new("struct weft_context **")
        name = ffi.new("char[]", transport.encode())
        _life.interruptible(lambda: lib.weft_context_create_world(pointer, name, given.struct.c),
                            here=transport == "mpi", undo=lambda: lib.weft_context_destroy(pointer[0]))
        return cls(pointer[0], settings=given)

    @classmethod
    def shared(cls, rank: int, size: int, *, name: Optional[str] = None,
               gather: Optional[Callable[[bytes], Sequence[bytes]]] = None, meet: Optional[float] = None,
               eager_bytes: Optional[int] = None, ahead_bytes: Optional[int] = None,
               arena_bytes: Optional[int] = None, large: Optional[str] = None, **settings: Any) -> "Context":
        """The context of one rank among processes of this machine, whoever has started them.

        Collective and blocking: all ranks get a context, or none does.

        Parameters
        ----------
        rank, size : int
        name : str, optional
            The ranks meet by this name.
        gather : callable, optional
            Instead of a name: ``gather(mine)`` returns the `bytes` of all ranks, in their order, given
            those of this one. Called twice. For example over a store of torch.distributed.
        meet : float, optional
            How long one waits for the others where they meet by name, in seconds. Default: 60.
        eager_bytes, ahead_bytes, arena_bytes, large : optional
            As in weft_shared_config.
        **settings
            Of :class:`Context`.

        Returns
        -------
        Context

        Raises
        ------
        TimeoutError
            Not all have come: the text names those that have not.
        """
        given = _Settings(settings, "Context.shared")
        shared = _structs.Struct("weft_shared_config", dict(
            meet=meet, eager_bytes=eager_bytes, ahead_bytes=ahead_bytes, arena_bytes=arena_bytes,
            large=large, name=name), "Context.shared")
        if gather is not None:
            function = _life.Function((gather, size))
            shared.c.gather = _gather
            shared.c.user = function.user
        pointer = ffi.new("struct weft_context **")
        _life.interruptible(
            lambda: lib.weft_context_create_shared(pointer, rank, size, given.struct.c, shared.c),
            here=gather is not None, undo=lambda: lib.weft_context_destroy(pointer[0]))
        return cls(pointer[0], settings=given)

    @classmethod
    def mpi(cls, comm: Any = None, *, tag_bits: Optional[int] = None, **settings: Any) -> "Context":
        """The context of this process in a communicator of mpi4py.

        Collective over the communicator, which is duplicated; blocking. To be closed before MPI is
        finalised: what is left then is closed by itself.

        Parameters
        ----------
        comm : mpi4py.MPI.Intracomm, optional
            Default: ``MPI.COMM_WORLD``. Its MPI is the one that weft was built for.
        tag_bits : int, optional
            Bits of a tag that payloads use. For tests.
        **settings
            Of :class:`Context`.

        Raises
        ------
        UnsupportedError
            mpi4py uses another MPI than weft was built for: the text has both.
        StateError
            The thread level of MPI is too low.
        """
        from . import _mpi

        given = _Settings(settings, "Context.mpi")
        pointer, keep, contexts = _mpi.create(comm, given.struct.c, tag_bits)
        context = cls(pointer, keep, given)
        contexts.add(context._handle.record)
        return context

    def split(self, colour: Optional[int], key: int = 0) -> Optional["Context"]:
        """The context of the ranks that give the same colour. Collective over this context, blocking.

        Parameters
        ----------
        colour : int or None
            From 0; None: this rank wants none, and gets None.
        key : int
            Ranks are numbered by it, and among those of the same key as here.

        Returns
        -------
        Context or None
        """
        return self._family(lib.weft_context_split, -1 if colour is None else colour, key)

    def subset(self, ranks: Sequence[int], tag: int = 0) -> "Context":
        """The context of some ranks, the same list on all of them; only these call. Blocking.

        Parameters
        ----------
        ranks : sequence of int
            Rank i of the context is ``ranks[i]`` of this one.
        tag : int
            Tells calls with the same ranks apart.

        Returns
        -------
        Context
        """
        ranks = list(ranks)
        return self._family(lib.weft_context_subset, ffi.new("int[]", ranks), len(ranks), tag)

    def shrink(self) -> "Context":
        """The context of the ranks that have neither died nor left. Collective over these, blocking.

        Returns
        -------
        Context
        """
        return self._family(lib.weft_context_shrink)

    def _family(self, function, *arguments):
        pointer = ffi.new("struct weft_context **")

        def make(_):  # as one call: who closes this context ends what it has made, too
            self._collective(function, *arguments, pointer,
                             undo=lambda: pointer[0] and lib.weft_context_destroy(pointer[0]))
            return Context(pointer[0], parent=self) if pointer[0] else None

        return self._handle.call(make)

    # ---- life ----

    def close(self) -> None:
        """Ends it, what is under way on it, and all that were split from it, unless it was split itself.

        Repeating that does nothing. Calls of other threads that are under way fail. Objects that have been
        closed are served until all ranks have left them, or their time has passed. Over MPI of several
        hosts this is collective.

        Raises
        ------
        StateError
            This thread is in a call of it, or in a function that weft has called.
        TransportError
            Its transport had failed. It is closed all the same.
        """
        _life.require(self._handle.close())

    def __enter__(self) -> "Context":
        self._handle.get()
        return self

    def __exit__(self, kind: Any, problem: Optional[BaseException], _: Any) -> None:
        if problem is not None and self._handle.pointer is not None:
            # The others must not wait for a rank that has failed.
            self.abort(problem)
        self._handle.close()

    def abort(self, problem: Union[BaseException, str] = "the rank has given up") -> None:
        """This rank gives up: every run and object of all ranks ends, so that nobody waits for it.

        Parameters
        ----------
        problem : BaseException or str
            Reaches the other ranks as the text of their :class:`PeerError`.
        """
        status, message = lib.WEFT_ERR_CANCELLED, problem
        if isinstance(problem, BaseException):
            status = status_of(problem) if isinstance(problem, Exception) else status
            message = "%s: %s" % (type(problem).__name__, problem)
        check(self._handle.ask(lib.weft_context_abort, status,
                               ffi.new("char[]", str(message).encode("utf-8", "replace"))))

    def _call(self, function, *arguments):
        """A call that needs the engine, with the GIL released."""
        handle = self._handle
        handle.sweep()
        return _life.require(handle.call(function, *arguments))

    def _collective(self, function, *arguments, undo=None):
        """A call that waits for the other ranks and cannot be taken up again; Ctrl-C aborts the context."""
        handle = self._handle
        handle.sweep()
        return _life.interruptible(lambda: handle.call(function, *arguments), self.abort,
                                   self._transport == "mpi", undo)

    # ---- what it is ----

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    @property
    def transport(self) -> str:
        """The name of the transport: "local", "shared", "mpi", "virtual"."""
        return self._transport

    @property
    def progress_mode(self) -> str:
        """Who drives the engine: "caller" or "helper"."""
        return _enums.word("weft_progress_t", self._handle.ask(lib.weft_context_progress_mode))

    @property
    def hosts(self) -> List[int]:
        """The host (a number from 0) of each rank."""
        hosts = ffi.new("int[]", self._size)
        check(self._handle.ask(lib.weft_context_hosts, hosts))
        return list(hosts)

    @property
    def root_ranks(self) -> List[int]:
        """Which ranks those of this context are in the one from which it was split."""
        ranks = ffi.new("int[]", self._size)
        check(self._handle.ask(lib.weft_context_root_ranks, ranks))
        return list(ranks)

    @property
    def settings(self) -> Any:
        """The settings, with all defaults settled, as a named tuple (times in seconds)."""
        c = _structs.new("weft_context_config")
        check(self._handle.ask(lib.weft_context_get_config, c))
        return _structs.read("weft_context_config", c)

    @property
    def stats(self) -> Any:
        """Counters since the creation: messages, bytes, nodes ... as a named tuple."""
        c = _structs.new("weft_context_stats")
        check(self._handle.call(lib.weft_context_get_stats, c))
        return _structs.read("weft_context_stats", c)

    @property
    def now(self) -> float:
        """The time of the context, in seconds from an origin of its own."""
        return self._handle.ask(lib.weft_context_now) * 1e-9

    def rank_state(self, rank: int) -> Tuple[str, str]:
        """What has become of a rank, as far as this one knows.

        Returns
        -------
        tuple of str
            ("present", "left" or "dead", how a dead one has ended)
        """
        def ask(pointer):
            state, how = ffi.new("weft_rank_state_t *"), ffi.new("const char **")
            check(lib.weft_context_rank_state(pointer, rank, state, how))
            return _enums.word("weft_rank_state_t", state[0]), text(how[0])

        return self._handle.ask(ask)

    def __repr__(self) -> str:
        if self._handle.pointer is None:
            return "<weft.Context, closed>"
        return "<weft.Context rank %d of %d, %s>" % (self._rank, self._size, self._transport)

    # ---- memory, time, progress ----

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = "f32") -> numpy.ndarray:
        """An array in memory that the transport moves best (zeroed): on shared memory, where the other
        ranks read it straight from.

        Parameters
        ----------
        shape : int or tuple of int
        dtype : datatype
            As :func:`weft.buffers.dtype` takes it.

        Returns
        -------
        numpy.ndarray
            It is good for as long as it is used, also when the context has been closed.
        """
        kind = buffers.numpy_dtype(buffers.dtype(dtype))
        if not isinstance(dtype, (str, int)) and type(dtype).__module__ != "torch":
            kind = numpy.dtype(dtype)  # also one that is opaque to weft
        count = int(numpy.prod(shape, dtype=numpy.int64))
        if count < 0:
            raise InvalidError("shape is %r, expected no negative dimensions" % (shape,))
        memory = Memory(self, count * kind.itemsize)
        return numpy.asarray(memory).view(kind)[:count].reshape(shape)

    def progress(self) -> bool:
        """Drives the engine once. Returns True while runs are unfinished."""
        return self._call(lib.weft_context_progress) == lib.WEFT_IN_PROGRESS

    def sleep(self, seconds: float) -> None:
        """Lets time pass, as a computation would: virtual time on virtual ranks."""
        left = _structs.nanoseconds(seconds, "seconds", 0)
        while left > 0:
            part = min(left, _life.SLICE)
            check(self._handle.call(lib.weft_context_sleep, part))
            left -= part if left != _structs.NEVER else 0

    def report(self) -> str:
        """What every unfinished run waits for, as text."""
        lines = ffi.new("char **")
        check(self._handle.call(lib.weft_context_report, lines))
        return take_text(lines[0])

    def dump_state(self, path: Any, why: Optional[str] = None) -> None:
        """Writes the state as JSON, for ``weft post-mortem``."""
        check(self._handle.call(
            lib.weft_context_dump_state, ffi.new("char[]", os.fsencode(path)),
            ffi.NULL if why is None else ffi.new("char[]", why.encode("utf-8", "replace"))))

    def log(self, level: str, line: str) -> None:
        """Logs a line as the context does, if its level is loud enough."""
        self._handle.ask(lib.weft_context_log, _enums.number("weft_log_level_t", level, "level"),
                         ffi.new("char[]", line.encode("utf-8", "replace")))


def _end_group(pointer):
    if not _life._exiting:  # then a thread may have kept its context
        lib.weft_local_destroy(pointer)


class LocalGroup:
    """Ranks that are threads of this process.

    Parameters
    ----------
    size : int
    eager_bytes, eager_messages : int, optional
        As in weft_local_config.
    """

    def __init__(self, size: int, *, eager_bytes: Optional[int] = None,
                 eager_messages: Optional[int] = None) -> None:
        config = _structs.Struct("weft_local_config", dict(
            eager_bytes=eager_bytes, eager_messages=eager_messages), "LocalGroup")
        pointer = _structs.out("struct weft_local *", lib.weft_local_create, size, config.c)
        self.size = size
        # It ends when it and all of its contexts, which keep it, are gone.
        self._group = _life.freed(pointer, _end_group)

    def context(self, rank: int, **settings: Any) -> Context:
        """The context of one rank; each once. From any thread.

        Parameters
        ----------
        rank : int
        **settings
            Of :class:`Context`.

        Returns
        -------
        Context
        """
        given = _Settings(settings, "LocalGroup.context")
        pointer = _structs.out("struct weft_context *", lib.weft_context_create_local, self._group,
                               rank, given.struct.c)
        return Context(pointer, [self._group], given)


def run_local(size: int, function: Callable[..., Any], *arguments: Any, **settings: Any) -> List[Any]:
    """Runs ``function(context, *arguments)`` on local ranks, each in a thread of its own.

    Blocking. When a rank raises, the runs and objects of all ranks end, so that nobody waits for it; so
    they do on Ctrl-C.

    Parameters
    ----------
    size : int
    function : callable
    *arguments
        Handed on.
    **settings
        Of :class:`Context`.

    Returns
    -------
    list
        What each rank has returned.

    Raises
    ------
    Exception
        What the rank has raised that failed first: one that has heard of another's failure counts only
        if no rank says more.
    """
    group = LocalGroup(size)
    contexts = []
    try:
        for rank in range(size):
            contexts.append(group.context(rank, **settings))
        return _run_threads(contexts, function, arguments)
    finally:
        _close_all(contexts)


def _close_all(contexts):
    """Side by side: with caller progress what has been left needs all ranks to be driven."""
    threads = [threading.Thread(target=context._handle.close, name="weft close", daemon=True)
               for context in contexts[1:]]
    for thread in threads:
        thread.start()
    for context in contexts[:1]:
        context._handle.close()
    for thread in threads:
        thread.join()


#: How long an interrupted :func:`run_local` waits for functions that do not come back, in seconds.
PATIENCE = 10


def _run_threads(contexts, function, arguments):
    results = [None] * len(contexts)
    problems = []

    def rank_of(rank):
        context = contexts[rank]
        try:
            results[rank] = function(context, *arguments)
        except BaseException as problem:  # noqa: B902 - handed to the caller
            problems.append((isinstance(problem, (PeerError, CancelledError)), problem))
            _give_up(context, problem)

    threads = [threading.Thread(target=rank_of, args=(rank,), name="weft rank %d" % rank, daemon=True)
               for rank in range(len(contexts))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(1)
    except BaseException as problem:
        for context in contexts:
            _give_up(context, problem)
        for context in contexts:
            context._handle.close()
        until = time.monotonic() + PATIENCE
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0, until - time.monotonic()))
        raise
    if problems:
        try:
            raise min(problems, key=lambda entry: entry[0])[1]
        finally:
            problems.clear()
    return results


def _give_up(context, problem):
    try:
        context.abort(problem)
    except StateError:  # it is closed
        pass


def transports() -> List[Dict[str, Any]]:
    """What carries messages: a list of dicts with ``name``, ``summary``, ``available`` and more."""
    found = []
    for index in range(lib.weft_transport_count()):
        one = lib.weft_transport_at(index)
        found.append({"name": text(one.name), "summary": text(one.summary),
                      "available": bool(one.available), "processes": bool(one.processes),
                      "virtual_time": bool(one.virtual_time), "device_memory": bool(one.device_memory)})
    return found


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
import threading

import numpy

from . import _collectives, _enums, _life, _structs, buffers
from ._library import ffi, lib, take_text, text
from .errors import InvalidError, check, status_of

__all__ = ["Context", "LocalGroup", "Memory", "run_local", "transports"]


@ffi.callback("weft_log_fn")
def _log(user, level, rank, line):
    with _life.Callback():
        function = _life.function_of(user)
        if function is not None:
            try:
                function(_enums.word("weft_log_level_t", level), rank, text(line))
            except Exception:  # a logger that fails must not end the engine
                import traceback

                traceback.print_exc()


@ffi.callback("weft_gather_fn", error=-12)
def _gather(user, mine, size, everything):
    known = _life.function_of(user)
    try:
        parts = known[0](bytes(ffi.buffer(mine, size)))
        if len(parts) != known[1] or any(len(part) != size for part in parts):
            raise InvalidError("gather has returned %d parts of %r bytes, expected %d of %d bytes" % (
                len(parts), sorted({len(part) for part in parts}), known[1], size))
        for rank, part in enumerate(parts):
            ffi.memmove(ffi.cast("char *", everything) + rank * size, bytes(part), size)
        return 0
    except BaseException as problem:  # noqa: B902
        return _life.failed(problem, "gather")


class _Settings:
    """A weft_context_config of keyword arguments, and what it keeps."""

    def __init__(self, settings, who):
        settings = dict(settings)
        log = settings.pop("log", None)
        self.struct = _structs.Struct("weft_context_config", settings, who)
        self.number = None
        if log is not None:
            if not callable(log):
                raise InvalidError("%s: log is %r, expected log(level, rank, line)" % (who, log))
            self.number = _life.register(log)
            self.struct.c.log = _log
            self.struct.c.log_user = _life.user_of(self.number)


class Memory:
    """Memory of :meth:`Context.empty`: ends with the last array over it."""

    __slots__ = ("handle", "__weakref__", "address", "bytes")

    def __init__(self, context, size):
        pointer = lib.weft_context_memory_alloc(context._handle.get(), max(size, 1), 1)
        if not pointer:
            check(-2)
        parent = context._handle
        self.address = pointer
        self.bytes = size
        self.handle = _life.owned(self, _life.Handle(
            pointer, lambda memory: lib.weft_context_memory_free(parent.pointer or ffi.NULL, memory),
            "the memory", parent))

    @property
    def __array_interface__(self):
        self.handle.get()
        return {"version": 3, "shape": (self.bytes,), "typestr": "|u1",
                "data": (int(ffi.cast("uintptr_t", self.address)), False)}


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
    spin, yield, sleep_min, sleep_max, helper_yield : float, optional
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

    def __init__(self, pointer, keep=(), settings=None):
        self._init(_life.ContextHandle(pointer, keep), settings)

    def _init(self, handle, settings):
        self._handle = _life.owned(self, handle)
        self._rank = lib.weft_context_rank(handle.pointer)
        self._size = lib.weft_context_size(handle.pointer)
        if settings is not None and settings.number is not None:
            handle.keep.append(_Registered(settings.number))
        _life.sweep_left()

    # ---- makers ----

    @classmethod
    def world(cls, transport="shared", **settings):
        """The context of this process among those that its launcher has started together.

        Collective over the processes, blocking; a world of one without a launcher.

        Parameters
        ----------
        transport : {"shared", "mpi"}
            "shared": the processes of ``weft launch`` or torchrun, all on one machine. "mpi": those of
            mpiexec of the MPI that weft was built for.
        **settings
            Of :class:`Context`.

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
                            here=transport == "mpi")
        return cls(pointer[0], settings=given)

    @classmethod
    def shared(cls, rank, size, *, name=None, gather=None, meet=None, eager_bytes=None, ahead_bytes=None,
               arena_bytes=None, large=None, **settings):
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

        Raises
        ------
        TimeoutError
            Not all have come: the text names those that have not.
        """
        given = _Settings(settings, "Context.shared")
        number = None
        shared = _structs.Struct("weft_shared_config", dict(
            meet=meet, eager_bytes=eager_bytes, ahead_bytes=ahead_bytes, arena_bytes=arena_bytes,
            large=large, name=name), "Context.shared")
        if gather is not None:
            number = _life.register((gather, size))
            shared.c.gather = _gather
            shared.c.user = _life.user_of(number)
        pointer = ffi.new("struct weft_context **")
        try:
            _life.interruptible(lambda: lib.weft_context_create_shared(
                pointer, rank, size, given.struct.c, shared.c), here=gather is not None)
        finally:
            if number is not None:
                _life.unregister(number)
        return cls(pointer[0], settings=given)

    @classmethod
    def mpi(cls, comm=None, *, tag_bits=None, **settings):
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
        contexts.add(context._handle)
        return context

    def split(self, colour, key=0):
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

    def subset(self, ranks, tag=0):
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

    def shrink(self):
        """The context of the ranks that have neither died nor left. Collective over these, blocking.

        Returns
        -------
        Context
        """
        return self._family(lib.weft_context_shrink)

    def _family(self, function, *arguments):
        pointer = ffi.new("struct weft_context **")
        self._collective(function, *arguments, pointer)
        return self._child(pointer[0]) if pointer[0] else None

    def _child(self, pointer):
        child = Context.__new__(Context)
        handle = _life.ContextHandle(pointer, ())
        handle.parent = self._handle
        self._handle.children[handle.number] = handle
        child._init(handle, None)
        return child

    # ---- life ----

    def close(self):
        """Ends it, and what is under way on it. Repeating that does nothing.

        Objects that have been closed are served until all ranks have left them, or their time has
        passed. Over MPI of several hosts this is collective.
        """
        _life.require(self._handle.close())

    def __enter__(self):
        self._handle.get()
        return self

    def __exit__(self, kind, problem, _):
        if problem is not None and self._handle.pointer is not None:
            # The others must not wait for a rank that has failed.
            self.abort(problem)
        self._handle.close()

    def abort(self, problem="the rank has given up"):
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
        check(lib.weft_context_abort(self._handle.get(), status,
                                     ffi.new("char[]", str(message).encode("utf-8", "replace"))))

    def _call(self, function, *arguments):
        """A call that may block, with the GIL released."""
        handle = self._handle
        pointer = handle.get()
        handle.sweep()
        handle.calls += 1
        try:
            return _life.require(function(pointer, *arguments))
        finally:
            handle.calls -= 1

    def _collective(self, function, *arguments):
        """A call that waits for the other ranks and cannot be taken up again; Ctrl-C aborts the context."""
        handle = self._handle
        pointer = handle.get()
        handle.sweep()
        handle.calls += 1
        try:
            return _life.interruptible(lambda: function(pointer, *arguments), self.abort,
                                       here=self.transport == "mpi")
        finally:
            handle.calls -= 1

    # ---- what it is ----

    rank = property(lambda self: self._rank, doc="This rank, from 0.")
    size = property(lambda self: self._size, doc="How many ranks there are.")

    @property
    def transport(self):
        """The name of the transport: "local", "shared", "mpi", "virtual"."""
        return text(lib.weft_context_transport(self._handle.get()))

    @property
    def progress_mode(self):
        """Who drives the engine: "caller" or "helper"."""
        return _enums.word("weft_progress_t", lib.weft_context_progress_mode(self._handle.get()))

    @property
    def hosts(self):
        """The host (a number from 0) of each rank."""
        hosts = ffi.new("int[]", self._size)
        check(lib.weft_context_hosts(self._handle.get(), hosts))
        return list(hosts)

    @property
    def root_ranks(self):
        """Which ranks those of this context are in the one from which it was split."""
        ranks = ffi.new("int[]", self._size)
        check(lib.weft_context_root_ranks(self._handle.get(), ranks))
        return list(ranks)

    @property
    def settings(self):
        """The settings, with all defaults settled, as a named tuple (times in seconds)."""
        return _structs.filled("weft_context_config", lib.weft_context_get_config, self._handle.get())

    @property
    def stats(self):
        """Counters since the creation: messages, bytes, nodes ... as a named tuple."""
        return _structs.filled("weft_context_stats", lib.weft_context_get_stats, self._handle.get())

    @property
    def now(self):
        """The time of the context, in seconds from an origin of its own."""
        return lib.weft_context_now(self._handle.get()) * 1e-9

    def rank_state(self, rank):
        """What has become of a rank, as far as this one knows.

        Returns
        -------
        tuple of str
            ("present", "left" or "dead", how a dead one has ended)
        """
        state, how = ffi.new("weft_rank_state_t *"), ffi.new("const char **")
        check(lib.weft_context_rank_state(self._handle.get(), rank, state, how))
        return _enums.word("weft_rank_state_t", state[0]), text(how[0])

    def __repr__(self):
        if self._handle.pointer is None:
            return "<weft.Context, closed>"
        return "<weft.Context rank %d of %d, %s>" % (self._rank, self._size, self.transport)

    # ---- memory, time, progress ----

    def empty(self, shape, dtype="f32"):
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
            Lives as long as it is used, and at most until the context is closed.
        """
        kind = buffers.numpy_dtype(buffers.dtype(dtype))
        count = int(numpy.prod(shape, dtype=numpy.int64))
        memory = Memory(self, count * kind.itemsize)
        return numpy.asarray(memory).view(kind)[:count].reshape(shape)

    def progress(self):
        """Drives the engine once. Returns True while runs are unfinished."""
        self._handle.sweep()
        return self._call(lib.weft_context_progress) == lib.WEFT_IN_PROGRESS

    def sleep(self, seconds):
        """Lets time pass, as a computation would: virtual time on virtual ranks."""
        self._call(lib.weft_context_sleep, _structs.nanoseconds(seconds, "seconds", 0))

    def report(self):
        """What every unfinished run waits for, as text."""
        return take_text(_structs.out("char *", _flip(lib.weft_context_report), self._handle.get()))

    def dump_state(self, path, why=None):
        """Writes the state as JSON, for ``weft post-mortem``."""
        check(lib.weft_context_dump_state(
            self._handle.get(), ffi.new("char[]", str(path).encode()),
            ffi.NULL if why is None else ffi.new("char[]", why.encode())))

    def log(self, level, line):
        """Logs a line as the context does, if its level is loud enough."""
        lib.weft_context_log(self._handle.get(), _enums.number("weft_log_level_t", level, "level"),
                             ffi.new("char[]", line.encode("utf-8", "replace")))


def _flip(function):
    """For :func:`_structs.out`: of a function whose result is its last argument."""
    return lambda result, *arguments: function(*arguments, result)


class _Registered:
    """A function that is registered for as long as this object lives."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number

    def __del__(self):
        _life.unregister(self.number)


class LocalGroup:
    """Ranks that are threads of this process.

    Parameters
    ----------
    size : int
    eager_bytes, eager_messages : int, optional
        As in weft_local_config.
    """

    def __init__(self, size, *, eager_bytes=None, eager_messages=None):
        config = _structs.Struct("weft_local_config", dict(
            eager_bytes=eager_bytes, eager_messages=eager_messages), "LocalGroup")
        pointer = _structs.out("struct weft_local *", lib.weft_local_create, size, config.c)
        self.size = size
        self._group = _LocalPointer(pointer)

    def context(self, rank, **settings):
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
        pointer = _structs.out("struct weft_context *", lib.weft_context_create_local, self._group.c, rank,
                               given.struct.c)
        return Context(pointer, [self._group], given)


class _LocalPointer:
    """The group: ends when it and all of its contexts, which keep it, are gone."""

    __slots__ = ("c", "generation")

    def __init__(self, c):
        self.c = c
        self.generation = _life._generation

    def __del__(self):
        if self.generation == _life._generation:
            lib.weft_local_destroy(self.c)


def run_local(size, function, *arguments, **settings):
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
        for context in contexts:
            context._handle.close()


def _run_threads(contexts, function, arguments):
    from .errors import CancelledError, PeerError

    results = [None] * len(contexts)
    problems = []

    def rank_of(rank):
        context = contexts[rank]
        try:
            results[rank] = function(context, *arguments)
        except BaseException as problem:  # noqa: B902 - handed to the caller
            problems.append((isinstance(problem, (PeerError, CancelledError)), problem))
            if context._handle.pointer is not None:
                context.abort(problem)

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
            if context._handle.pointer is not None:
                context.abort(problem)
        for thread in threads:
            if thread.ident is not None:
                thread.join(10)
        raise
    if problems:
        raise min(problems, key=lambda entry: entry[0])[1]
    return results


def transports():
    """What carries messages: a list of dicts with ``name``, ``summary``, ``available`` and more."""
    found = []
    for index in range(lib.weft_transport_count()):
        one = lib.weft_transport_at(index)
        found.append({"name": text(one.name), "summary": text(one.summary),
                      "available": bool(one.available), "processes": bool(one.processes),
                      "virtual_time": bool(one.virtual_time), "device_memory": bool(one.device_memory)})
    return found


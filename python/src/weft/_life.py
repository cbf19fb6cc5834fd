# SPDX-License-Identifier: BSD-3-Clause
"""Lives of what the library has made, under a collector that ends things when and where it likes.

Every object of the library that belongs to a context has a :class:`Handle`, which the Python object
holds and the handle of its context knows:

    Run (Python) ---> Handle of the run ---> Handle of the context
      |  gone: finalizer                        ^ knows all handles below it
      v                                         |
    Handle.drop()  -------- destroys, or leaves it to ----+

- An end is one: whoever comes first, `close()`, the collector or the interpreter's exit, does it.
- A context ends what is below it first, the youngest first, so no order of finalizers does harm.
- The collector may run anywhere, also within a callback of the engine, where nothing may be destroyed;
  and what is under way may take its time to end. Such handles wait in the context's list, with the
  memory that they borrow, until the next call on the context finds them ended, or the context ends.
- In a forked child everything is the parent's: ends do nothing there, and calls raise `StateError`.
- At the interpreter's exit contexts are aborted, so that threads that still wait in them return, and
  then destroyed.
"""
import atexit
import collections
import itertools
import os
import threading
import weakref

from . import _structs
from ._library import ffi, lib
from .errors import StateError, check, error

#: How long a wait stays in the library before Python looks for signals, in nanoseconds.
SLICE = 50 * 1000 * 1000

_local = threading.local()
_generation = 0
_contexts = weakref.WeakSet()
_left = collections.deque()  # contexts that could not be destroyed where they were dropped


def _forked():
    global _generation
    _generation += 1
    _contexts.clear()
    _left.clear()


os.register_at_fork(after_in_child=_forked)


def in_callback():
    """Whether this thread is in a function that weft has called."""
    return getattr(_local, "depth", 0) > 0


class Callback:
    """Marks a thread as being in a function that weft has called."""

    def __enter__(self):
        _local.depth = getattr(_local, "depth", 0) + 1

    def __exit__(self, *_):
        _local.depth -= 1


class Handle:
    """An object of the library.

    Parameters
    ----------
    pointer : cffi pointer
    destroy : callable
        ``destroy(pointer)``; its status is ignored by finalizers.
    what : str
        For errors: ``"the run"``.
    parent : Handle, optional
        Of the context.
    ended : callable, optional
        ``ended(pointer)``: whether destroying it would not wait for others. Not given: it never does.
    cancel : callable, optional
        ``cancel(pointer)``: makes it end.
    """

    __slots__ = ("pointer", "destroy", "what", "parent", "ended", "cancel", "keep", "generation",
                 "children", "garbage", "calls", "lock", "number", "__weakref__")
    _numbers = itertools.count()

    def __init__(self, pointer, destroy, what, parent=None, ended=None, cancel=None):
        self.pointer = pointer
        self.destroy = destroy
        self.what = what
        self.parent = parent
        self.ended = ended
        self.cancel = cancel
        self.keep = []
        self.generation = _generation
        self.children = None
        self.garbage = None
        self.calls = 0
        self.lock = threading.Lock()
        self.number = next(Handle._numbers)
        if parent is not None:
            parent.children[self.number] = self

    def get(self):
        """The pointer; raises StateError if it has ended, or is another process's."""
        if self.generation != _generation:
            raise StateError("%s belongs to the process that this one was forked from" % self.what)
        pointer = self.pointer
        if pointer is None:
            raise StateError("%s has been closed" % self.what)
        return pointer

    def close(self):
        """Destroys it now. Returns the status, 0 if there is nothing to be done."""
        with self.lock:
            pointer, self.pointer = self.pointer, None
        if pointer is None or self.generation != _generation:
            return 0
        status = self.destroy(pointer)
        if self.parent is not None:
            self.parent.children.pop(self.number, None)
        self.keep = []
        return status if isinstance(status, int) else 0

    def drop(self):
        """Nobody has it any more: destroys it, or leaves it to its context."""
        if self.generation != _generation or self.pointer is None:
            return
        if not in_callback() and (self.ended is None or self.ended(self.pointer)):
            self.close()
            return
        if self.cancel is not None:
            self.cancel(self.pointer)
        if self.parent is not None:
            self.parent.garbage.append(self)
        else:
            _left.append(self)

    def sweep(self):
        """Of a context: ends what was dropped and has come to an end since."""
        garbage = self.garbage
        if not garbage or in_callback():
            return
        for _ in range(len(garbage)):
            try:
                handle = garbage.popleft()
            except IndexError:
                return
            if handle.pointer is None:
                continue
            if handle.ended is None or handle.ended(handle.pointer):
                handle.close()
            else:
                garbage.append(handle)


class ContextHandle(Handle):
    """A context, which ends what is below it first."""

    __slots__ = ("closing",)

    def __init__(self, pointer, keep):
        super().__init__(pointer, lib.weft_context_destroy, "the context")
        self.children = {}
        self.garbage = collections.deque()
        self.keep = list(keep)
        self.closing = False
        _contexts.add(self)

    def close(self):
        if self.generation != _generation or self.pointer is None:
            self.pointer = None
            return 0
        with self.lock:
            if self.closing:
                return 0
            self.closing = True
        for number in sorted(self.children, reverse=True):
            child = self.children.get(number)
            if child is not None:
                child.close()
        return super().close()

    def drop(self):
        if self.generation != _generation or self.pointer is None:
            return
        if in_callback():
            _left.append(self)
        else:
            self.close()


def sweep_left():
    """Destroys the contexts that were dropped within callbacks."""
    while _left and not in_callback():
        try:
            _left.popleft().close()
        except IndexError:
            return


def _exit():
    """The interpreter ends: nobody stays in a call, and nothing is left to the system."""
    contexts = [handle for handle in list(_contexts)
                if handle.pointer is not None and handle.generation == _generation]
    text = ffi.new("char[]", b"the interpreter exits")
    for handle in contexts:
        if handle.calls > 0:
            lib.weft_context_abort(handle.pointer, lib.WEFT_ERR_CANCELLED, text)
    waited = threading.Event()
    for _ in range(200):
        if not any(handle.calls for handle in contexts):
            break
        waited.wait(0.05)
    for handle in sorted(contexts, key=lambda handle: handle.number, reverse=True):
        if handle.calls == 0:  # else a thread does not come back: it keeps its context
            handle.close()
    sweep_left()


atexit.register(_exit)


def owned(thing, handle):
    """Ends `handle` when `thing` is gone; returns the handle. At exit contexts see to it."""
    weakref.finalize(thing, handle.drop).atexit = False
    return handle


def wait(handle, function, pointer, timeout, what):
    """Waits in slices, so that signals (Ctrl-C) are seen.

    Parameters
    ----------
    handle : ContextHandle
        Where the wait is counted.
    function : callable
        ``function(pointer, nanoseconds)`` returns a status, WEFT_IN_PROGRESS after that time.
    timeout : float or None
        Seconds.

    Returns
    -------
    int
        The status; WEFT_IN_PROGRESS after the timeout.
    """
    handle.calls += 1
    try:
        if timeout is None:
            while True:
                status = function(pointer, SLICE)
                if status != lib.WEFT_IN_PROGRESS:
                    return status
        left = _structs.nanoseconds(timeout, what, 0)
        while True:
            part = min(left, SLICE)
            status = function(pointer, part)
            if left != _structs.NEVER:
                left -= part
            if status != lib.WEFT_IN_PROGRESS or left == 0:
                return status
    finally:
        handle.calls -= 1


def interruptible(function, abort=None, here=False):
    """Calls what blocks until other ranks have come, so that Ctrl-C is seen.

    In the main thread, the only one that sees signals, the call is made by a thread of its own; on
    Ctrl-C `abort` is called with the interrupt, which is to make it return, and it is waited for.

    Parameters
    ----------
    function : callable
        Returns a status.
    abort : callable, optional
        Not given: the call is left to its thread.
    here : bool
        It is made by this thread whatever it is: MPI may be the main thread's alone.
    """
    if here or threading.current_thread() is not threading.main_thread():
        return require(function())
    outcome = []

    def call():
        try:
            outcome.append((require(function()), None))
        except BaseException as problem:  # noqa: B902 - raised in the main thread
            outcome.append((0, problem))

    thread = threading.Thread(target=call, name="weft call", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(1)
    except BaseException as problem:
        if abort is not None:
            abort(problem)
            thread.join()
        raise
    if outcome[0][1] is not None:
        raise outcome[0][1]
    return outcome[0][0]


# ---- Python functions that weft calls ----

_functions = {}
_function_numbers = itertools.count(1)
_failures = collections.deque(maxlen=64)


def register(function):
    """A number by which a trampoline finds a function; :func:`unregister` ends that."""
    number = next(_function_numbers)
    _functions[number] = function
    return number


def unregister(number):
    _functions.pop(number, None)


def function_of(user):
    return _functions.get(int(ffi.cast("uintptr_t", user)))


def user_of(number):
    return ffi.cast("void *", number)


def failed(exception, prefix):
    """Tells weft of an exception; returns the status."""
    from .errors import set_error, status_of

    status = status_of(exception)
    message = "%s: %s: %s" % (prefix, type(exception).__name__, exception)
    _failures.append((message[:500], exception))
    return set_error(status, message)


def raise_status(status, message=None):
    """Raises what a status is; with the exception of a Python function as its cause, if it was one."""
    problem = error(status, message)
    whole = str(problem)
    for known, cause in reversed(_failures):
        if known[:300] in whole:
            raise problem from cause
    raise problem


def require(status):
    if status < 0:
        raise_status(status)
    return status


__all__ = ["Handle", "ContextHandle", "owned", "wait", "check"]

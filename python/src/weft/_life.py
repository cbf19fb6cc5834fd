# SPDX-License-Identifier: BSD-3-Clause
"""Lives of what the library has made, under a collector that ends things when and where it likes.

Every object of the library has a :class:`Record`, which its context knows, and a :class:`Handle`, which
the Python object holds:

    Run (Python) ---> Handle ---> Record of the run ---> Record of the context
                        |  gone: drop                       ^ knows all records below it
                        v                                   |
                      left to the context, with what it keeps

- An end is one: whoever comes first, `close()`, a sweep, the context or the interpreter's exit, does it,
  and after the calls of other threads that are under way.
- A context ends what is below it first, the youngest first, so no order of drops does harm.
- The collector may run anywhere: in a callback of the engine, where nothing may be waited for, or in a
  thread that has a lock which a function of the program wants, and weft calls that. So it ends nothing
  that the engine knows. What it finds waits in the context's list, with the memory that it borrows, until
  the next call on the context finds it ended, or the context ends; contexts themselves are destroyed by a
  thread that does nothing else.
- What the program gives to weft (functions, arrays) is held by Python objects, not from here: so cycles
  through it are found. The collector calls `__del__` of all that is in a cycle, whatever of it is left to
  a context: so what others borrow is freed in another way (:func:`freed`).
- In a forked child everything is the parent's: ends do nothing there, and calls raise `StateError`.
- At the interpreter's exit contexts are aborted if a thread still waits in them, or if the program ends by an
  exception, so that no rank waits for another that does not come; and then destroyed.
"""
import _thread
import atexit
import collections
import ctypes
import functools
import itertools
import os
import queue
import sys
import threading
import time
import traceback
import weakref
from _thread import get_ident

from . import _pages, _structs
from ._library import ffi, lib, take_text, text
from .errors import StateError, check, error, set_error, status_of

#: How long a wait stays in the library before Python looks for signals, in nanoseconds.
SLICE = 50 * 1000 * 1000

#: So many of what was dropped are looked at by a call.
SWEEP = 8

#: How long the calls of other threads may take to see that a context is being closed, before it is aborted;
#: and how long the interpreter's exit waits for them after that. In seconds.
PATIENCE = 0.2
EXIT_PATIENCE = 10

IN_PROGRESS = lib.WEFT_IN_PROGRESS


class _Thread(threading.local):
    depth = 0


_local = _Thread()
_numbers = itertools.count()
_generation = 0
_exiting = False
_contexts = {}  # number: a weak reference to a record, of those that are not destroyed
_left = collections.deque()  # contexts that only a thread of the program may destroy, dropped
_dropped = queue.SimpleQueue()  # contexts for the thread that destroys
_reapers = []  # that thread's state: empty if there is none
_interrupts = collections.deque()  # that came where they could not be raised


def _forked():
    global _generation, _contexts, _left, _dropped, _reapers
    _generation += 1
    _contexts, _left, _dropped, _reapers = {}, collections.deque(), queue.SimpleQueue(), []
    _interrupts.clear()
    _failures.clear()


os.register_at_fork(after_in_child=_forked)


# ---- what others borrow ----

_pointers = {}  # number: a weak reference to a pointer


def freed(pointer, free):
    """The pointer, as an object with which ``free(pointer)`` is called when nobody can reach it any more.

    The collector calls `__del__` of all that is in a cycle, also of what another `__del__` saves, as those
    here do: what a run borrows that is left to its context must be there all the same. A pointer is nothing
    that the collector looks into, so a weak reference tells of its real end.
    """
    held = ffi.cast(ffi.typeof(pointer), pointer)
    number, generation = next(_numbers), _generation

    def end(_, pointers=_pointers):
        pointers.pop(number, None)
        if generation == _generation:
            free(pointer)

    _pointers[number] = weakref.ref(held, end)
    return held


# ---- functions that weft calls ----


def in_callback():
    """Whether this thread is in a function that weft has called."""
    return _local.depth > 0


def callback(kind, status=None, prefix="", engine=True):
    """Makes a Python function one that C may call.

    Parameters
    ----------
    kind : str
        The type in C.
    status : int, optional
        What is returned where the function raises; weft is told the text then, `prefix` in front. None: it
        returns nothing, so nobody can be told: what it raises is printed.
    engine : bool
        It is called by an engine, so it must not wait for weft.
    """

    def made(function):
        @functools.wraps(function)
        def called(*arguments):
            depth = _local.depth
            try:
                _local.depth = depth + engine
                return function(*arguments)
            except BaseException as problem:  # noqa: B902 - nothing may end the engine
                if status is None:
                    return unheard(problem)
                return failed(problem, prefix)
            finally:
                _local.depth = depth

        made_of = ffi.callback(kind, called, error=status, onerror=_escaped)
        # It is there to the very end: a thread of weft may call it when the interpreter has gone.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made_of))
        return made_of

    return made


def _escaped(_, problem, __):
    """Ctrl-C between two lines of those above."""
    unheard(problem)


def unheard(problem):
    """What a function raises that can tell nobody: printed, but Ctrl-C is raised by the next wait."""
    if isinstance(problem, KeyboardInterrupt):
        _interrupts.append(problem)
    else:
        traceback.print_exception(type(problem), problem, problem.__traceback__)


def _in_main_thread():
    return get_ident() == threading.main_thread().ident


_functions = {}  # number: a weak reference to what has the function
_function_numbers = itertools.count(1)
_failures = collections.deque(maxlen=16)


class Function:
    """A function that weft calls, for as long as this object lives.

    Attributes
    ----------
    function : object
        What :func:`function_of` gives for :attr:`user`.
    """

    __slots__ = ("number", "function", "_user", "__weakref__")

    def __init__(self, function):
        self.function = function
        self.number = next(_function_numbers)
        self._user = freed(ffi.cast("void *", self.number), _forget)
        self.known()

    def known(self):
        """It is found by its number. To be called again where it was in a cycle, and has been saved."""
        _functions[self.number] = weakref.ref(self)

    @property
    def user(self):
        """The pointer by which weft knows it."""
        return self._user


_UINTPTR = ffi.typeof("uintptr_t")


def function_of(user):
    """What a :class:`Function` has; None if it is gone."""
    known = _functions.get(int(ffi.cast(_UINTPTR, user)))
    known = None if known is None else known()
    return None if known is None else known.function


def _forget(user):
    _functions.pop(int(ffi.cast(_UINTPTR, user)), None)


def failed(exception, prefix):
    """Tells weft of an exception; returns the status."""
    status = status_of(exception)
    message = ("%s: %s: %s" % (prefix, type(exception).__name__, exception))[:500]
    # Its frames had arrays over memory that is not there for long.
    traceback.clear_frames(exception.__traceback__)
    _failures.append((message[:300], exception))
    return set_error(status, message)


def raise_status(status, message=None):
    """Raises what a status is; with the exception of a Python function as its cause, if it was one."""
    problem = error(status, message)
    if _interrupts and _in_main_thread():
        raise _interrupts.popleft() from problem
    whole, cause = str(problem), None
    for said, known in list(_failures):
        if said in whole:
            cause = known
    if isinstance(cause, KeyboardInterrupt) and status == status_of(cause) and _in_main_thread():
        raise cause from problem
    raise problem from cause


def require(status):
    """Raises what a negative status is; returns the others."""
    if status < 0:
        raise_status(status)
    return status


# ---- what the library has made ----


class Record:
    """An object of the library, as its context knows it.

    Attributes
    ----------
    pointer : cffi pointer or None
        None once it has been closed.
    box : list
        The pointer, until somebody takes it to destroy it.
    users : list
        The threads that are in a call of it, or that destroy it.
    done : bool
        It is destroyed.
    keep : object
        What was kept by a handle that is gone.
    """

    __slots__ = ("pointer", "box", "users", "done", "destroy", "what", "parent", "ended", "cancel",
                 "cancelled", "anywhere", "keep", "generation", "number", "__weakref__")

    #: Whether it ends after its context.
    outlives = False

    def __init__(self, pointer, destroy, what, parent, ended=None, cancel=None, anywhere=False):
        self.pointer = pointer
        self.box = [pointer]
        self.users = []
        self.done = False
        self.destroy = destroy
        self.what = what
        self.parent = parent
        self.ended = ended
        self.cancel = cancel
        self.cancelled = False
        self.anywhere = anywhere or parent is None
        self.keep = None
        self.generation = _generation
        self.number = next(_numbers)
        if parent is not None:
            if not parent.box:
                raise parent.gone()
            parent.children[self.number] = self

    def gone(self):
        """Why there is no pointer, as an exception."""
        if self.generation != _generation:
            return StateError("%s belongs to the process that this one was forked from" % self.what)
        return StateError("%s has been closed" % self.what)

    def busy(self):
        """The threads that are in a call of it, or of what is below it."""
        return self.users

    def close(self):
        """Ends it now, or as soon as that can be. Returns the status, 0 if there is nothing to be done."""
        if self.generation != _generation or not self.box:
            return 0
        if not self.anywhere and (_local.depth or get_ident() in self.users):
            if self.pointer is not None:
                self.pointer = None
                self.parent.garbage.append(self)
            return 0
        return self.end()

    def end(self):
        try:
            pointer = self.box.pop()
        except IndexError:
            return 0
        self.pointer = None
        if self.users:
            try:
                self._drain(pointer)
            except BaseException:
                self.box.append(pointer)
                raise
        thread = get_ident()
        try:
            self.users.append(thread)
            status = self._destroy(pointer)
        finally:
            self.users.remove(thread)
            self._is_done()
        return status if isinstance(status, int) else 0

    def _destroy(self, pointer):
        return self.destroy(pointer)

    def _is_done(self):
        self.done = True
        self.keep = None
        if self.parent is not None:
            self.parent.children.pop(self.number, None)

    def _drain(self, pointer):
        """Waits until the calls of other threads have returned: they see that it is closed."""
        if self.cancel is not None:
            self.cancel(pointer)
        while self.users:
            time.sleep(0.0005)

    def drop(self, keep):
        """Nobody has it any more. From anywhere, so nothing is done here."""
        if self.generation != _generation:
            return
        if keep is not None:
            self.keep = keep if self.anywhere else self.parent.lent(keep)
        if self.pointer is None:  # it is being ended, or waits for that
            if self.done:
                self.keep = None
            return
        self.pointer = None
        if self.anywhere:
            self.end()
        else:
            self.parent.garbage.append(self)
            if self.parent.done:
                self.parent.garbage.clear()

    def sweep(self):
        """Of what was dropped: ends it if that takes no time; returns whether it has."""
        thread = get_ident()
        if thread in self.users:
            return False
        try:
            self.users.append(thread)
            pointer = self.box[0]
            over = self.ended is None or self.ended(pointer)
            if not over and self.cancel is not None and not self.cancelled:
                self.cancelled = True
                self.cancel(pointer)
        except IndexError:  # another thread ends it
            return True
        finally:
            self.users.remove(thread)
        if over:
            self.end()
        return over


class ContextRecord(Record):
    """A context, which ends what is below it first."""

    __slots__ = ("children", "garbage", "memories", "pages", "closing", "home", "stall")

    def __init__(self, pointer, home=False, stall=_structs.NEVER):
        super().__init__(pointer, lib.weft_context_destroy, "the context", None)
        self.children = {}
        self.garbage = collections.deque()
        # Of what it has lent, and those that were split from it: address: (its end, a weak reference to the
        # pointer).
        self.memories = {}
        self.pages = []  # with what of it is in use after the end
        self.closing = [None]
        self.home = home  # whether only threads of the program may use it, as those that may call MPI
        self.stall = stall
        _contexts[self.number] = weakref.ref(self)
        if _exiting:
            self.close()
            raise StateError("a context cannot be made while the interpreter exits")

    def busy(self):
        found = list(self.users)
        for child in list(self.children.values()):
            found += child.busy()
        return found

    def close(self):
        if self.generation != _generation or not self.box:
            return 0
        if _local.depth:
            raise StateError("a context cannot be closed by a function that weft calls")
        if get_ident() in self.busy():
            raise StateError("the context is in use by this thread, which cannot close it meanwhile")
        try:
            self.closing.pop()
        except IndexError:  # another thread does
            return 0
        try:
            return self.end()
        finally:
            self.closing.append(None)

    def end(self):
        self.pointer = None  # nobody begins anything from here on
        self._end_children()
        self._await_calls()
        self._end_children()  # what those calls have made
        while True:
            try:
                pointer = self.box.pop()
            except IndexError:
                return 0
            if not self.users:
                break
            self.box.append(pointer)  # somebody frees memory of it
            time.sleep(0.0005)
        thread = get_ident()
        try:
            self.users.append(thread)
            pages = _pages.hold(dict(self.memories)) if self.memories else []
            status = self.destroy(pointer)
            for one in pages:
                one.put_back()
            self.pages = pages
            for one in pages:
                for address in [address for address in one.users if address not in self.memories]:
                    one.leave(address)
            for child in list(self.children.values()):
                if child.outlives:
                    child.end()
                else:  # which has come too late, and has been destroyed with it
                    child.pointer = None
                    child.box.clear()
                    child._is_done()
        finally:
            self.users.remove(thread)
            self._is_done()
            self.garbage.clear()
            _contexts.pop(self.number, None)
            if not _contexts:
                _failures.clear()
        return status

    def _end_children(self):
        for number in sorted(self.children, reverse=True):
            child = self.children.get(number)
            while child is not None and not child.done:
                child.pointer = None
                if child.outlives:
                    if not child.users:
                        break
                elif isinstance(child, ContextRecord):
                    child.close()
                else:
                    child.end()
                if not child.done:  # another thread ends it, or is in it
                    time.sleep(0.0005)

    def _await_calls(self):
        since = time.monotonic()
        aborted = False
        while self.users:
            if not aborted and time.monotonic() - since > PATIENCE:
                aborted = True
                lib.weft_context_abort(self.box[0], lib.WEFT_ERR_CANCELLED,
                                       ffi.new("char[]", b"the context is being closed"))
            time.sleep(0.0005)

    def drop(self, keep):
        if self.generation != _generation:
            return
        self.keep = keep
        if self.pointer is None:
            return
        self.pointer = None
        if self.home or _exiting:
            _left.append(self)
            return
        _dropped.put(self)
        _reap()

    def free(self, pointer):
        """Frees memory that it has lent, whether it has ended or not."""
        address = int(ffi.cast(_UINTPTR, pointer))
        self.memories.pop(address, None)
        self.ask(lib.weft_context_memory_free, pointer)
        for pages in self.pages:
            if address in pages.users:
                pages.leave(address)

    def lent(self, keep):
        """What is kept, for the context to hold: an array over memory of the context holds the context, so
        that memory stands here in its place."""
        memories = (self.parent or self).memories
        if not memories:
            return keep
        if isinstance(keep, (list, tuple)):
            return [self.lent(item) for item in keep]
        if isinstance(keep, dict):
            return [self.lent(item) for item in keep.values()]
        pointer = getattr(keep, "address", keep)
        if isinstance(pointer, ffi.CData) and ffi.typeof(pointer).kind in ("pointer", "array"):
            address = int(ffi.cast(_UINTPTR, pointer))
            for begin, (end, known) in list(memories.items()):
                if begin <= address < end:
                    return known()
        return keep

    def sweep_garbage(self):
        """Ends what was dropped and has come to an end since: looks at some of it."""
        garbage = self.garbage
        if _local.depth:
            return
        for _ in range(min(len(garbage), SWEEP)):
            try:
                record = garbage.popleft()
            except IndexError:
                return
            if not record.sweep():
                garbage.append(record)

    def ask(self, function, *arguments):
        """``function(pointer, *arguments)`` unless it is destroyed, whoever has closed it."""
        thread = get_ident()
        try:
            self.users.append(thread)
            if self.box:
                function(self.box[0], *arguments)
        except IndexError:
            pass
        finally:
            self.users.remove(thread)

    def give_up(self, problem):
        """Makes calls return, and lets none begin, at the interpreter's exit; and tells the other ranks of the
        exception by which the program ends, which must not wait for it."""
        if problem is not None or self.busy():
            said = "the interpreter exits" if problem is None else "%s: %s" % (type(problem).__name__, problem)
            self.ask(lib.weft_context_abort, lib.WEFT_ERR_CANCELLED,
                     ffi.new("char[]", said.encode("utf-8", "replace")))
        self.pointer = None
        for child in list(self.children.values()):
            child.pointer = None


def _reap():
    """Sees to it that there is a thread that destroys contexts. From anywhere."""
    if _reapers:
        return
    state = [None]  # what its end can be waited for by
    _reapers.append(state)
    try:
        if hasattr(_thread, "start_joinable_thread"):  # Python 3.13
            state[0] = _thread.start_joinable_thread(lambda: _reaper(_dropped, state, True), daemon=True).join
        else:
            _thread.start_new_thread(_reaper, (_dropped, state, False))
    except RuntimeError:  # no thread can be had: the next context, or the exit, will do it
        _reapers.clear()


def _reaper(dropped, state, joinable):
    if not joinable:
        ended = _thread._set_sentinel()  # what threading waits by: it is released when the thread is no more
        ended.acquire()
        state[0] = lambda timeout: ended.acquire(True, timeout)
    while True:
        record = dropped.get()
        if record is None:
            return
        try:
            record.close()
        except BaseException as problem:  # noqa: B902 - nobody could be told
            unheard(problem)
        record = None


def _end_reaper(until):
    """Waits for the end of the thread that destroys contexts, at the interpreter's exit: one that has still
    to begin then would find no interpreter."""
    for state in list(_reapers):
        _dropped.put(None)
        while state[0] is None and time.monotonic() < until:
            time.sleep(0.001)
        if state[0] is not None:
            state[0](max(until - time.monotonic(), 0))


def sweep_left():
    """Destroys contexts that were dropped."""
    while not _local.depth:
        try:
            record = _dropped.get_nowait()
        except queue.Empty:
            break
        if record is not None:
            record.close()
    while _left and not _local.depth:
        try:
            _left.popleft().close()
        except IndexError:
            return


def _exit():
    """The interpreter ends: nobody stays in a call, and nothing is left to the system."""
    global _exiting
    _exiting = True
    # What was not caught; who types at a prompt goes on after that.
    problem = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    until = time.monotonic() + EXIT_PATIENCE
    while True:
        records = [record for record in (known() for known in list(_contexts.values())) if record is not None]
        records.sort(key=lambda record: record.number, reverse=True)
        for record in records:
            record.give_up(problem)
        for record in records:
            # Where a thread does not come back it keeps its context.
            if not record.busy():
                try:
                    record.close()
                except Exception as problem:
                    unheard(problem)
        if not records or time.monotonic() > until:
            break
        time.sleep(0.001)
    _end_reaper(until)


atexit.register(_exit)


class Handle:
    """What a Python object holds of an object of the library; when it is gone that is dropped.

    Parameters
    ----------
    pointer : cffi pointer
    destroy : callable
        ``destroy(pointer)``; its status is ignored where nobody has the handle any more.
    what : str
        For errors: ``"the run"``.
    parent : Handle, optional
        Of the context. None: it is `anywhere`.
    ended : callable, optional
        ``ended(pointer)``: whether destroying it would not wait for others. Not given: it never does.
    cancel : callable, optional
        ``cancel(pointer)``: makes it end.
    anywhere : bool
        It is memory alone, which is freed in any thread at once.

    Attributes
    ----------
    keep : object
        What the library borrows.
    """

    __slots__ = ("record", "keep", "__weakref__")

    def __init__(self, pointer, destroy, what, parent=None, ended=None, cancel=None, anywhere=False):
        self.keep = None
        self.record = Record(pointer, destroy, what, None if parent is None else parent.record, ended, cancel,
                             anywhere)

    pointer = property(lambda self: self.record.pointer)
    what = property(lambda self: self.record.what)
    ended = property(lambda self: self.record.ended)
    cancel = property(lambda self: self.record.cancel)
    generation = property(lambda self: self.record.generation)
    number = property(lambda self: self.record.number)

    def get(self):
        """The pointer; raises StateError if it has ended, or is another process's."""
        record = self.record
        pointer = record.pointer
        if pointer is None or record.generation != _generation:
            raise record.gone()
        return pointer

    def ask(self, function, *arguments):
        """``function(pointer, *arguments)``, which may be called anywhere."""
        record = self.record
        users, thread = record.users, get_ident()
        try:
            users.append(thread)  # in here, so that Ctrl-C finds it undone or undoes it
            pointer = record.pointer
            if pointer is None or record.generation != _generation:
                raise record.gone()
            return function(pointer, *arguments)
        finally:
            users.remove(thread)

    def call(self, function, *arguments):
        """``function(pointer, *arguments)``, which needs the engine: not in functions that weft calls."""
        if _local.depth:
            raise StateError("%s is asked for something that a function which weft calls must not ask for: "
                             "to wait, or to make or to look at what the engine may be in" % self.record.what)
        return self.ask(function, *arguments)

    def wait(self, function, timeout=None, what="timeout"):
        """Waits in slices, so that signals (Ctrl-C) are seen.

        Parameters
        ----------
        function : callable
            ``function(pointer, nanoseconds)`` returns a status, WEFT_IN_PROGRESS after that time.
        timeout : float or None
            Seconds.

        Returns
        -------
        int
            The status; WEFT_IN_PROGRESS after the timeout.
        """
        if _local.depth:
            raise StateError("%s cannot be waited for by a function that weft calls" % self.record.what)
        left = _structs.NEVER if timeout is None else _structs.nanoseconds(timeout, what, 0)
        record = self.record
        users, thread = record.users, get_ident()
        waited = 0
        try:
            users.append(thread)
            while True:
                pointer = record.pointer
                if pointer is None or record.generation != _generation:
                    raise record.gone()
                part = SLICE if left > SLICE else left
                status = function(pointer, part)
                if status != IN_PROGRESS:
                    return status
                if left != _structs.NEVER:
                    left -= part
                    if left == 0:
                        return status
                waited += part
                between(record.parent or record, waited)
        finally:
            users.remove(thread)

    def close(self):
        """Ends it. Returns the status, 0 if there is nothing to be done."""
        status = self.record.close()
        if self.record.done:
            self.keep = None
        return status

    def __reduce__(self):
        raise TypeError("%s cannot be copied or pickled" % self.record.what)

    def __del__(self):
        record = getattr(self, "record", None)
        if record is not None and not record.done:
            try:
                record.drop(self.keep)
            except KeyboardInterrupt as problem:  # nobody above hears of it
                unheard(problem)


def between(context, waited, part=SLICE):
    """Between two slices of a wait: what came meanwhile, and what is to be logged of a long one."""
    if _interrupts and _in_main_thread():
        raise _interrupts.popleft()
    if waited >= context.stall:
        # The library sees slices only. The first report comes when the wait has lasted so long, the next
        # ones each time it has doubled.
        turns = waited // context.stall
        before = (waited - part) // context.stall
        if turns.bit_length() != max(before, 0).bit_length():
            report(context, waited)


def report(context, waited):
    """Logs what is waited for, as the library does."""
    pointer, lines = context.pointer, ffi.new("char **")
    if pointer is None or lib.weft_context_report(pointer, lines) < 0:
        return
    for line in ["waiting for %.1f s" % (waited * 1e-9)] + take_text(lines[0]).splitlines():
        lib.weft_context_log(pointer, lib.WEFT_LOG_WARNING,
                             ffi.new("char[]", line.encode("utf-8", "replace")))


class ContextHandle(Handle):
    """Of a context."""

    __slots__ = ()

    def __init__(self, pointer, keep=(), parent=None):
        self.keep = list(keep)
        config = _structs.new("weft_context_config")
        stall = config.stall_ns if lib.weft_context_get_config(pointer, config) == 0 else _structs.NEVER
        home = text(lib.weft_context_transport(pointer)) == "mpi"
        self.record = record = ContextRecord(pointer, home, stall)
        if parent is not None:
            record.parent = parent.record
            parent.record.children[record.number] = record

    def sweep(self):
        record = self.record
        if record.garbage:
            record.sweep_garbage()


def interruptible(function, abort=None, here=False, undo=None):
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
    undo : callable, optional
        Called if it succeeds after all, and nobody waits for it any more.
    """
    if _local.depth:
        raise StateError("a function that weft calls must not wait for other ranks")
    if here or not _in_main_thread():
        return require(function())
    outcome, left, begin, once = [], [], [True], [undo]
    finished = threading.Event()

    def take_back():
        if left and outcome and outcome[0][1] is None and once:
            once.pop()
            if undo is not None:
                undo()

    def call():
        try:
            begin.pop()
        except IndexError:  # interrupted before
            return
        try:
            outcome.append((require(function()), None))
        except BaseException as problem:  # noqa: B902 - raised in the main thread
            outcome.append((0, problem))
        take_back()
        finished.set()

    try:
        threading.Thread(target=call, name="weft call", daemon=True).start()
        while not finished.wait(1):
            pass
    except BaseException as problem:
        try:
            begin.pop()
        except IndexError:
            try:
                if abort is not None:
                    try:
                        abort(problem)
                    except StateError:  # it is being closed, which ends the call as well
                        pass
                    while not finished.wait(1):
                        pass
            finally:
                left.append(True)
                take_back()
        raise
    status, problem = outcome.pop()
    if problem is None:
        return status
    try:
        raise problem
    finally:
        del problem


__all__ = ["Handle", "ContextHandle", "Function", "callback", "interruptible", "check"]

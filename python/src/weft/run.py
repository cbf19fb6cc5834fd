# SPDX-License-Identifier: BSD-3-Clause
"""Runs and series: executions of plans on a context."""
import weakref
from typing import Any, Callable, List, Optional, Sequence, Union

from . import _life, _structs
from ._library import ffi, lib, take_text, text
from .buffers import buffer, stream_pointer
from .errors import InvalidError, StateError, TimeoutError, UnsupportedError, check
from .schedule import Node, Plan, Schedule, Slot, Value

__all__ = ["Run", "Series"]


@_life.callback("weft_ended_fn")
def _ended(user, run, status):
    function = _life.function_of(user)
    if function is not None:
        function(status)


def _over(run):
    """Whether destroying a run would not wait: it is not active, and has its buffers back."""
    if lib.weft_run_version(run) == _structs.NEVER:
        return True
    if lib.weft_run_test(run) == lib.WEFT_IN_PROGRESS:
        return False
    return lib.weft_run_reclaim(run) == 0


class Run:
    """An execution of a plan on a context: created once, started many times.

    Every run is an object of its context: objects are created in the same order on all ranks. Functions
    on one run are called by one thread at a time; :meth:`fire`, :meth:`cancel` and :meth:`report` by any.

    Parameters
    ----------
    context : Context
    plan : Plan or Schedule
        A schedule is committed.
    deadline : float, optional
        A version fails so many seconds after its start.
    ended : callable, optional
        ``ended(status)`` is called by the thread that drives the engine when a version has ended, 0 or
        an error's status; it must not wait.
    local_only : bool
        The plan has no messages on any rank, and the run is no object.
    sequence : bool
        It is one of the context's sequence, as the collectives are.
    nccl : {"none", "known", "agreed", "in-order"}, optional
        How messages between slots of devices go.
    peers : sequence of int, optional
        The rank of the context that each rank of the plan is.
    **bindings
        ``name=array``: what slots, and values, are bound to; as :meth:`bind`.
    """

    def __init__(self, context: Any, plan: Union[Plan, Schedule], *, deadline: Optional[float] = None,
                 ended: Optional[Callable[[int], Any]] = None, local_only: bool = False,
                 sequence: bool = False, nccl: Optional[str] = None,
                 peers: Optional[Sequence[Optional[int]]] = None, **bindings: Any) -> None:
        if isinstance(plan, Schedule):
            plan = plan.commit()
        self.context = context
        self.plan = plan
        config = _structs.Struct("weft_run_config", dict(
            deadline=deadline, local_only=local_only, sequence=sequence, nccl=nccl), "Run")
        function = None
        if ended is not None:
            if not callable(ended):
                raise InvalidError("Run: ended is %r, expected ended(status)" % (ended,))
            function = _life.Function(ended)
            config.c.ended, config.c.user = _ended, function.user
        context._handle.sweep()
        context._handle.call(self._create, config.c, nccl not in (None, "none"), function)
        try:
            if peers is not None:
                self.bind_peers(peers)
            self.bind(**bindings)
        except BaseException:
            self.close()
            raise

    def _create(self, parent, config, together, function):
        pointer = ffi.new("struct weft_run **")
        plan = self.plan._c()

        if not together:
            check(lib.weft_run_create(pointer, parent, plan, config))
        else:
            # By this thread where its context of CUDA says which device it is.
            _life.interruptible(
                lambda: self.context._handle.ask(
                    lambda parent: lib.weft_run_create(pointer, parent, plan, config)),
                self.context.abort, self.context.settings.device is None,
                undo=lambda: lib.weft_run_destroy(pointer[0]))
        self._bound = {}
        self._handle = _life.Handle(pointer[0], lib.weft_run_destroy, "the run", self.context._handle, _over,
                                    lib.weft_run_cancel)
        # What a run that is still active borrows when nobody has it any more.
        self._handle.keep = [self._bound, self.plan, function]
        self._former = []

    # ---- binding ----

    def bind(self, **bindings: Any) -> None:
        """Binds slots to arrays, and values to numbers, for the starts to come. Nothing is copied.

        Parameters
        ----------
        **bindings
            ``slot=array``; ``slot=[array, ...]`` for a list whose counts add up; ``value=number``.

        Raises
        ------
        InvalidError
            Another count or datatype than the slot's, or no such slot or value: the text says what was
            expected.
        """
        for name, thing in bindings.items():
            self._bind(name, thing)

    def __setitem__(self, slot: Union[str, Slot, Value], thing: Any) -> None:
        """``run["x"] = array``, ``run[slot] = array``, ``run[value] = number``."""
        self._bind(slot.name if isinstance(slot, (Slot, Value)) else slot, thing)

    def _bind(self, name, thing):
        slot, info = self.plan._find(name)
        ask = self._handle.ask
        if info is None:
            try:
                check(ask(lib.weft_run_bind_value, slot, thing))
            except (TypeError, OverflowError):
                raise InvalidError("%s is %r, expected 0 or more elements" % (name, thing)) from None
            return
        reads = info.kind == "input"
        if isinstance(thing, (list, tuple)):
            found = [self._located(item, "%s[%d]" % (name, i), info) for i, item in enumerate(thing)]
            array = ffi.new("struct weft_%spiece[]" % ("input_" if reads else ""), max(len(found), 1))
            for i, (piece, item) in enumerate(zip(array, found)):
                if item.dtype != info.number:
                    raise InvalidError("%s[%d] is of another datatype than the slot's %s"
                                       % (name, i, info.dtype))
                piece.data, piece.count = item.address, item.count
            function = lib.weft_run_bind_input_list if reads else lib.weft_run_bind_list
            check(ask(function, slot, array, len(found), info.number))
        else:
            found = self._located(thing, name, info)
            function = lib.weft_run_bind_input if reads else lib.weft_run_bind
            check(ask(function, slot, found.address, found.count, found.dtype))
        self._keep(name, found)

    def _located(self, thing, what, info):
        found = buffer(thing, what, info.kind != "input", True)
        if found.count and found.device != (info.memory == "device"):
            raise UnsupportedError("%s is memory of %s, expected that of %s, as the slot's" % (
                (what,) + (("a device", "the host") if found.device else ("the host", "a device"))))
        return found

    def _keep(self, name, found):
        """Holds what a slot is bound to. After a failure a message may still be on its way from, or to,
        what it was bound to before: that is held until the next start, before which it has come back."""
        former = self._bound.get(name)
        if former is not None and self.error:
            self._former.append(former)
            if len(self._handle.keep) == 3:
                self._handle.keep.append(self._former)
        self._bound[name] = found

    def bind_peers(self, ranks: Optional[Sequence[Optional[int]]]) -> None:
        """Binds the ranks of the plan to ranks of the context; None is no rank. None alone: the same."""
        if ranks is None:
            check(self._handle.ask(lib.weft_run_bind_peers, ffi.NULL))
            return
        ranks = [-1 if rank is None else rank for rank in ranks]
        if len(ranks) != self.plan.size:
            raise InvalidError("ranks has %d entries, expected %d" % (len(ranks), self.plan.size))
        check(self._handle.ask(lib.weft_run_bind_peers, ffi.new("int[]", ranks)))

    def bind_blocks(self, slot: str, array: Any, counts: Sequence[int],
                    displacements: Optional[Sequence[int]] = None) -> None:
        """Binds blocks that lie anywhere in one array, as of the collectives with counts.

        Parameters
        ----------
        slot : str
            A slot that has all blocks, or what its slots are called before the number.
        array : array_like
        counts, displacements : sequence of int
            In elements.
        """
        slots = self.plan.slots
        info = slots.get(slot) or slots.get(slot + ".0")
        if info is None:
            raise InvalidError("the plan %s has no slot %r, and none %r, expected one of %s" % (
                self.plan.name, slot, slot + ".0", ", ".join(slots)))
        found = self._located(array, slot, info)
        counts = [int(count) for count in counts]
        places = range(0) if displacements is None else [int(place) for place in displacements]
        if displacements is not None and len(places) != len(counts):
            raise InvalidError("displacements has %d entries, expected %d, as counts has"
                               % (len(places), len(counts)))
        if min(counts, default=0) < 0 or min(places, default=0) < 0:
            raise InvalidError("counts and displacements have a number below 0")
        extent = sum(counts) if displacements is None else max(
            [place + count for place, count in zip(places, counts) if count], default=0)
        if found.count < extent:
            raise InvalidError("%s has %d elements, expected at least %d" % (slot, found.count, extent))
        function = lib.weft_run_bind_input_blocks if info.kind == "input" else lib.weft_run_bind_blocks
        check(self._handle.ask(
            function, ffi.new("char[]", slot.encode()), found.address, ffi.new("size_t[]", counts),
            ffi.NULL if displacements is None else ffi.new("size_t[]", places), len(counts), found.dtype))
        self._keep(slot, found)

    def set_deadline(self, seconds: Optional[float]) -> None:
        """Sets the deadline for the starts to come, in seconds; None: none."""
        check(self._handle.ask(lib.weft_run_set_deadline, _structs.nanoseconds(seconds, "seconds")))

    # ---- running ----

    def start(self, version: Optional[int] = None) -> "Run":
        """Starts it, with the next version or a larger one; does not wait. Returns the run."""
        if version is None:
            status = self._handle.ask(lib.weft_run_start)
        elif 0 <= version < 2**64:
            status = self._handle.ask(lib.weft_run_start_version, version)
        else:
            raise InvalidError("version is %r, expected 0 to 2^64-2" % (version,))
        if status < 0:
            _life.raise_status(status)
        if self._former:
            self._former.clear()
        return self

    def test(self) -> bool:
        """Drives the engine a little.

        Returns
        -------
        bool
            Whether it has ended; raises what it has failed with.
        """
        return _life.require(self._handle.ask(lib.weft_run_test)) != lib.WEFT_IN_PROGRESS

    def wait(self, timeout: Optional[float] = None) -> "Run":
        """Waits until it has ended. Returns the run.

        Parameters
        ----------
        timeout : float, optional
            Seconds; the run goes on then. None: for ever.

        Raises
        ------
        WeftError
            What it has failed with; the text names node, peer and plan. :class:`TimeoutError` after the
            timeout, or the deadline.
        """
        status = self._handle.wait(lib.weft_run_wait, timeout)
        if status < 0:
            _life.raise_status(status)
        if status == lib.WEFT_IN_PROGRESS:
            raise TimeoutError("the run has not ended within %g s: it goes on" % timeout)
        return self

    def execute(self, timeout: Optional[float] = None) -> "Run":
        """Starts it and waits. Returns the run."""
        return self.start().wait(timeout)

    __call__ = execute

    def wait_node(self, node: Union[int, Node], timeout: Optional[float] = None) -> bool:
        """Waits until a join of the version under way has ended, while the rest goes on.

        Returns
        -------
        bool
            False: a choice has retired it, it never will.
        """
        number = int(node)
        status = self._handle.wait(lambda run, ns: lib.weft_run_wait_node(run, number, ns), timeout)
        if status == lib.WEFT_IN_PROGRESS:
            raise TimeoutError("node %d has not ended within %g s" % (number, timeout))
        return _life.require(status) != lib.WEFT_RETIRED

    def fire(self, event: Union[int, Node]) -> bool:
        """Fires an event of the active version. From any thread.

        Returns
        -------
        bool
            False: it had been fired or retired.
        """
        return check(self._handle.ask(lib.weft_run_fire, int(event))) != lib.WEFT_RETIRED

    def start_on(self, stream: Any = None) -> "Run":
        """Starts it when a stream of CUDA gets here: what was put on the stream before has been done then.
        Does not wait. Returns the run, which is active from now on.

        Parameters
        ----------
        stream : object, optional
            Of torch (``torch.cuda.current_stream()``), of cupy, one with ``__cuda_stream__()``, or a number.
            Default: the legacy default stream. It must still exist.

        Raises
        ------
        UnsupportedError
            There is no device.
        """
        _life.require(self._handle.ask(lib.weft_run_start_on, stream_pointer(stream)))
        if self._former:
            self._former.clear()
        return self

    def fire_on(self, event: Union[int, Node], stream: Any = None) -> None:
        """Fires an event of the version under way when a stream gets here; `stream` as in :meth:`start_on`. If
        the version has ended by then nothing happens."""
        check(self._handle.ask(lib.weft_run_fire_on, int(event), stream_pointer(stream)))

    def wait_on(self, stream: Any = None) -> None:
        """Makes a stream wait here until the version under way has ended, well or not: what is put on it later
        finds the results, if :meth:`test` then is true. This thread does not wait. `stream` as in
        :meth:`start_on`."""
        check(self._handle.ask(lib.weft_run_wait_on, stream_pointer(stream)))

    def cancel(self) -> None:
        """Cancels the active version, on the peers, too. From any thread."""
        check(self._handle.ask(lib.weft_run_cancel))

    def quit(self) -> None:
        """Tells the peers that this rank starts no further version."""
        check(self._handle.call(lib.weft_run_quit))

    def reclaim(self) -> bool:
        """After a failure: whether the transport has given all buffers back."""
        return check(self._handle.call(lib.weft_run_reclaim)) == 0

    def close(self) -> None:
        """Ends it; one that is active is cancelled first. Repeating that does nothing.

        In a function that weft calls it is ended as soon as that has returned.
        """
        self._handle.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- what it is ----

    @property
    def version(self) -> Optional[int]:
        """The version that is active or ended last; None before the first start."""
        number = self._handle.ask(lib.weft_run_version)
        return None if number == _structs.NEVER else number

    @property
    def error(self) -> str:
        """The text of the failure that it ended with, "" if none."""
        return self._handle.ask(lambda run: text(lib.weft_run_error(run)))

    def value(self, name: Union[str, Value]) -> int:
        """A value after the run has ended, by its name."""
        name = name.name if isinstance(name, Value) else name
        number, info = self.plan._find(name)
        if info is not None:
            raise InvalidError("the plan %s has no value %r" % (self.plan.name, name))
        return self._handle.ask(lib.weft_run_get_value, number)

    def report(self) -> str:
        """What each unfinished node waits for, on which peer, since when."""
        lines = ffi.new("char **")
        check(self._handle.call(lib.weft_run_report, lines))
        return take_text(lines[0])

    def __repr__(self) -> str:
        return "<weft.Run of %s%s>" % (self.plan.name, "" if self._handle.pointer is not None else ", closed")


_ARM = "int(void *, struct weft_series *, struct weft_series_arm *)"


@_life.callback(_ARM, -12, "arm")
def _arm(user, pointer, arm):
    series = _life.function_of(user)
    return lib.WEFT_RETIRED if series is None else series._armed(arm)


@_life.callback("void(void *, struct weft_series *, uint64_t, int)")
def _series_ended(user, pointer, version, status):
    series = _life.function_of(user)
    if series is not None and series._ended is not None:
        series._ended(version, status)


class Series:
    """Versions of plans that the engine starts one after the other, without the application.

    Needs helper progress. A version is held by its events, which :meth:`fire` or signals fire.

    Parameters
    ----------
    context : Context
    plans : Plan or sequence of Plan
    arm : callable, optional
        ``arm(series, version)`` is asked before a version starts, by the thread that drives the engine;
        it must not wait. It may bind (``series.run(0)["x"] = array``) and returns the number of the plan,
        or None for 0; :attr:`Series.RETIRED` ends the series before the version; :attr:`Series.LATER`
        asks again after :meth:`poke`; a float asks again after so many seconds.
    ended : callable, optional
        ``ended(version, status)`` is told that a version has ended.
    first : int
        The first version.
    nccl : str, optional
    """

    RETIRED = object()
    LATER = object()

    def __init__(self, context: Any, plans: Union[Plan, Schedule, Sequence[Union[Plan, Schedule]]],
                 arm: Optional[Callable[["Series", int], Any]] = None, *,
                 ended: Optional[Callable[[int, int], Any]] = None, first: int = 0,
                 nccl: Optional[str] = None) -> None:
        plans = list(plans) if isinstance(plans, (list, tuple)) else [plans]
        for what, function in (("arm", arm), ("ended", ended)):
            if function is not None and not callable(function):
                raise InvalidError("Series: %s is %r, expected a function" % (what, function))
        self.context = context
        self.plans: List[Plan] = [plan.commit() if isinstance(plan, Schedule) else plan for plan in plans]
        self._bindings: List[dict] = [{} for _ in plans]
        config = _structs.Struct("weft_series_config", dict(first=first, nccl=nccl), "Series")
        self._calls = _Calls(self, arm, ended)
        function = _life.Function(self._calls)
        config.c.plan_count = len(plans)
        config.c.arm, config.c.ended, config.c.user = _arm, _series_ended, function.user
        context._handle.sweep()
        context._handle.call(self._create, config.c, function)

    def _create(self, parent, config, function):
        array = ffi.new("struct weft_plan *[]", [plan._c() for plan in self.plans])
        config.plans = array
        pointer = ffi.new("struct weft_series **")
        check(lib.weft_series_create(pointer, parent, config))
        self._handle = _life.Handle(pointer[0], lib.weft_series_destroy, "the series", self.context._handle)
        self._handle.keep = [function, self.plans, self._bindings]

    def run(self, plan: int = 0) -> Run:
        """The run that executes versions with a plan: for its bindings."""
        return _SeriesRun(self, plan)

    def start(self, first: Optional[int] = None) -> "Series":
        """Starts the first version. Returns the series."""
        if first is None:
            status = self._handle.ask(lib.weft_series_start)
        else:
            status = self._handle.ask(lib.weft_series_start_version, first)
        _life.require(status)
        return self

    def fire(self, version: int, event: Union[int, Node]) -> Optional[bool]:
        """Fires an event of a version. From any thread.

        Returns
        -------
        bool or None
            True: it fired; False: the version, or the event, has gone by; None: it is still to come.
        """
        status = check(self._handle.ask(lib.weft_series_fire, version, int(event)))
        return {lib.WEFT_OK: True, lib.WEFT_RETIRED: False}.get(status)

    def poke(self) -> None:
        """Asks `arm` again, if it has said LATER. From any thread."""
        check(self._handle.ask(lib.weft_series_poke))

    def wait(self, version: int, timeout: Optional[float] = None) -> None:
        """Waits until a version has ended; raises what it has failed with."""
        status = self._handle.wait(lambda series, ns: lib.weft_series_wait(series, version, ns), timeout)
        if status == lib.WEFT_IN_PROGRESS:
            raise TimeoutError("version %d has not ended within %g s" % (version, timeout))
        _life.require(status)

    @property
    def version(self) -> int:
        """The version under way, or the next one."""
        return self._handle.ask(lib.weft_series_version)

    def close(self) -> None:
        """Ends it; a version under way is cancelled.

        In a function that weft calls it is ended as soon as that has returned.
        """
        self._handle.close()

    def __enter__(self) -> "Series":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<weft.Series of %s%s>" % (", ".join(plan.name for plan in self.plans),
                                          "" if self._handle.pointer is not None else ", closed")


class _Calls:
    """What a series calls. It is called from when it is made, so that `arm` may get what is not finished."""

    __slots__ = ("series", "arm", "_ended")

    def __init__(self, series, arm, ended):
        self.series = weakref.ref(series)
        self.arm = arm
        self._ended = ended

    def _armed(self, arm):
        answer = None
        if self.arm is not None:
            series = self.series()
            answer = Series.RETIRED if series is None else self.arm(series, arm.version)
        if answer is Series.RETIRED:
            return lib.WEFT_RETIRED
        if answer is Series.LATER:
            return lib.WEFT_IN_PROGRESS
        if isinstance(answer, float):
            arm.retry_ns = _structs.nanoseconds(answer, "the time to ask again", 1)
            return lib.WEFT_IN_PROGRESS
        arm.plan = 0 if answer is None else answer
        return lib.WEFT_OK


class _SeriesRun(Run):
    """A run of a series, which the series starts and ends."""

    def __init__(self, series: Series, number: int) -> None:
        if not 0 <= number < len(series.plans):
            raise InvalidError("plan is %r, expected 0 to %d" % (number, len(series.plans) - 1))
        self.context = series.context
        self.plan = series.plans[number]
        self._bound = series._bindings[number]
        self._former = []
        self._handle = _RunOfSeries(series, number)

    def close(self) -> None:
        raise StateError("a run of a series ends with it")


class _RunOfSeries:
    """A handle of what another handle has."""

    __slots__ = ("series", "number", "keep")

    def __init__(self, series, number):
        self.series, self.number = series, number
        self.keep = [None] * 3

    pointer = property(lambda self: self.series._handle.pointer)

    def ask(self, function, *arguments):
        return self._by(self.series._handle.ask, function, arguments)

    def call(self, function, *arguments):
        return self._by(self.series._handle.call, function, arguments)

    def _by(self, call, function, arguments):
        return call(lambda series: function(lib.weft_series_get_run(series, self.number), *arguments))

    def wait(self, function, timeout=None, what="timeout"):
        return self.series._handle.wait(
            lambda series, ns: function(lib.weft_series_get_run(series, self.number), ns), timeout, what)

# SPDX-License-Identifier: BSD-3-Clause
"""Runs and series: executions of plans on a context."""
from . import _enums, _life, _structs
from ._library import ffi, lib, take_text, text
from .buffers import Buffer, buffer
from .errors import InvalidError, TimeoutError, check
from .schedule import Slot, Value

__all__ = ["Run", "Series"]


@ffi.callback("weft_ended_fn")
def _ended(user, run, status):
    with _life.Callback():
        function = _life.function_of(user)
        if function is not None:
            try:
                function(status)
            except BaseException:  # noqa: B902 - nobody could be told
                import traceback

                traceback.print_exc()


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

    def __init__(self, context, plan, *, deadline=None, ended=None, local_only=False, sequence=False,
                 nccl=None, peers=None, **bindings):
        from .schedule import Schedule

        if isinstance(plan, Schedule):
            plan = plan.commit()
        self.context = context
        self.plan = plan
        config = _structs.Struct("weft_run_config", dict(
            deadline=deadline, local_only=local_only, sequence=sequence, nccl=nccl), "Run")
        keep = []
        if ended is not None:
            from .context import _Registered

            number = _life.register(ended)
            keep.append(_Registered(number))
            config.c.ended, config.c.user = _ended, _life.user_of(number)
        pointer = ffi.new("struct weft_run **")
        arguments = (pointer, context._handle.get(), plan._c(), config.c)
        context._handle.sweep()
        if nccl in (None, "none"):
            check(lib.weft_run_create(*arguments))
        else:
            _life.interruptible(lambda: lib.weft_run_create(*arguments), context.abort)
        self._start_from(pointer[0], keep)
        try:
            if peers is not None:
                self.bind_peers(peers)
            self.bind(**bindings)
        except BaseException:
            self.close()
            raise

    def _start_from(self, pointer, keep):
        self._bound = {}
        self._handle = _life.owned(self, _life.Handle(
            pointer, lib.weft_run_destroy, "the run", self.context._handle, _over, lib.weft_run_cancel))
        # What a run that is still active borrows when nobody has it any more.
        self._handle.keep = [self._bound, self.plan, keep]

    # ---- binding ----

    def bind(self, *, memory="host", **bindings):
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

    def __setitem__(self, slot, thing):
        """``run["x"] = array``, ``run[slot] = array``, ``run[value] = number``."""
        self._bind(slot.name if isinstance(slot, (Slot, Value)) else slot, thing)

    def _bind(self, name, thing):
        run, plan = self._handle.get(), self.plan._c()
        encoded = ffi.new("char[]", name.encode())
        slot = lib.weft_plan_find_slot(plan, encoded)
        if slot < 0:
            value = lib.weft_plan_find_value(plan, encoded)
            if value < 0:
                raise InvalidError("the plan %s has no slot or value %r, expected one of %s" % (
                    self.plan.name, name, ", ".join(self.plan.slots)))
            check(lib.weft_run_bind_value(run, value, thing))
            return
        info = _structs.new("weft_slot_info")
        check(lib.weft_plan_get_slot(plan, slot, info))
        reads = info.kind == lib.WEFT_SLOT_INPUT
        if isinstance(thing, (list, tuple)):
            found = [buffer(item, "%s[%d]" % (name, i), not reads, True) for i, item in enumerate(thing)]
            array = ffi.new("struct weft_%spiece[]" % ("input_" if reads else ""), max(len(found), 1))
            for piece, item in zip(array, found):
                if item.dtype != info.dtype:
                    raise InvalidError("%s has pieces of other datatypes than the slot" % name)
                piece.data, piece.count = item.address, item.count
            function = lib.weft_run_bind_input_list if reads else lib.weft_run_bind_list
            check(function(run, slot, array, len(found), info.dtype))
            self._bound[name] = found
            return
        found = thing if isinstance(thing, Buffer) else buffer(thing, name, not reads, True)
        function = lib.weft_run_bind_input if reads else lib.weft_run_bind
        check(function(run, slot, found.address, found.count, found.dtype))
        self._bound[name] = found

    def bind_peers(self, ranks):
        """Binds the ranks of the plan to ranks of the context; None is no rank. None alone: the same."""
        if ranks is None:
            check(lib.weft_run_bind_peers(self._handle.get(), ffi.NULL))
            return
        ranks = [-1 if rank is None else rank for rank in ranks]
        if len(ranks) != self.plan.size:
            raise InvalidError("ranks has %d entries, expected %d" % (len(ranks), self.plan.size))
        check(lib.weft_run_bind_peers(self._handle.get(), ffi.new("int[]", ranks)))

    def bind_blocks(self, slot, array, counts, displacements=None):
        """Binds blocks that lie anywhere in one array, as of the collectives with counts.

        Parameters
        ----------
        slot : str
            A slot that has all blocks, or what its slots are called before the number.
        array : array_like
        counts, displacements : sequence of int
            In elements.
        """
        names = [slot] if slot in self.plan.slots else [slot + ".0"]
        info = self.plan.slots.get(names[0])
        reads = info is not None and info.kind == "input"
        found = buffer(array, slot, not reads, True)
        counts = ffi.new("size_t[]", list(counts))
        places = ffi.NULL if displacements is None else ffi.new("size_t[]", list(displacements))
        function = lib.weft_run_bind_input_blocks if reads else lib.weft_run_bind_blocks
        check(function(self._handle.get(), ffi.new("char[]", slot.encode()), found.address, counts, places,
                       len(counts), found.dtype))
        self._bound[slot] = found

    def set_deadline(self, seconds):
        """Sets the deadline for the starts to come, in seconds; None: none."""
        check(lib.weft_run_set_deadline(self._handle.get(), _structs.nanoseconds(seconds, "seconds")))

    # ---- running ----

    def start(self, version=None):
        """Starts it, with the next version or a larger one; does not wait. Returns the run."""
        if version is None:
            check(lib.weft_run_start(self._handle.get()))
        else:
            check(lib.weft_run_start_version(self._handle.get(), version))
        return self

    def test(self):
        """Drives the engine a little.

        Returns
        -------
        bool
            Whether it has ended; raises what it has failed with.
        """
        status = lib.weft_run_test(self._handle.get())
        return _life.require(status) != lib.WEFT_IN_PROGRESS

    def wait(self, timeout=None):
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
        status = _life.wait(self.context._handle, lib.weft_run_wait, self._handle.get(), timeout, "timeout")
        if status == lib.WEFT_IN_PROGRESS:
            raise TimeoutError("the run has not ended within %g s: it goes on" % timeout)
        _life.require(status)
        return self

    def execute(self, timeout=None):
        """Starts it and waits. Returns the run."""
        return self.start().wait(timeout)

    __call__ = execute

    def wait_node(self, node, timeout=None):
        """Waits until a join of the version under way has ended, while the rest goes on.

        Returns
        -------
        bool
            False: a choice has retired it, it never will.
        """
        number = int(node)
        status = _life.wait(self.context._handle, lambda run, ns: lib.weft_run_wait_node(run, number, ns),
                            self._handle.get(), timeout, "timeout")
        if status == lib.WEFT_IN_PROGRESS:
            raise TimeoutError("node %d has not ended within %g s" % (number, timeout))
        return _life.require(status) != lib.WEFT_RETIRED

    def fire(self, event):
        """Fires an event of the active version. From any thread.

        Returns
        -------
        bool
            False: it had been fired or retired.
        """
        return check(lib.weft_run_fire(self._handle.get(), int(event))) != lib.WEFT_RETIRED

    def cancel(self):
        """Cancels the active version, on the peers, too."""
        check(lib.weft_run_cancel(self._handle.get()))

    def quit(self):
        """Tells the peers that this rank starts no further version."""
        check(lib.weft_run_quit(self._handle.get()))

    def reclaim(self):
        """After a failure: whether the transport has given all buffers back."""
        return check(lib.weft_run_reclaim(self._handle.get())) == 0

    def close(self):
        """Ends it; one that is active is cancelled first. Repeating that does nothing."""
        self._handle.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- what it is ----

    @property
    def version(self):
        """The version that is active or ended last; None before the first start."""
        number = lib.weft_run_version(self._handle.get())
        return None if number == _structs.NEVER else number

    @property
    def error(self):
        """The text of the failure that it ended with, "" if none."""
        return text(lib.weft_run_error(self._handle.get()))

    def value(self, name):
        """A value after the run has ended, by its name."""
        name = name.name if isinstance(name, Value) else name
        number = lib.weft_plan_find_value(self.plan._c(), ffi.new("char[]", name.encode()))
        if number < 0:
            raise InvalidError("the plan %s has no value %r" % (self.plan.name, name))
        return lib.weft_run_get_value(self._handle.get(), number)

    def report(self):
        """What each unfinished node waits for, on which peer, since when."""
        lines = ffi.new("char **")
        check(lib.weft_run_report(self._handle.get(), lines))
        return take_text(lines[0])

    def __repr__(self):
        return "<weft.Run of %s>" % ("a closed context" if self._handle.pointer is None else self.plan.name)


_ARM = "int(void *, struct weft_series *, struct weft_series_arm *)"


@ffi.callback(_ARM, error=-12)
def _arm(user, pointer, arm):
    with _life.Callback():
        series = _life.function_of(user)
        series = series and series()
        if series is None:
            return lib.WEFT_RETIRED
        try:
            return series._armed(arm)
        except BaseException as problem:  # noqa: B902
            return _life.failed(problem, "arm")


@ffi.callback("void(void *, struct weft_series *, uint64_t, int)")
def _series_ended(user, pointer, version, status):
    with _life.Callback():
        series = _life.function_of(user)
        series = series and series()
        if series is not None and series._ended is not None:
            try:
                series._ended(version, status)
            except BaseException:  # noqa: B902 - nobody could be told
                import traceback

                traceback.print_exc()


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

    def __init__(self, context, plans, arm=None, *, ended=None, first=0, nccl=None):
        import weakref

        from .context import _Registered

        plans = list(plans) if isinstance(plans, (list, tuple)) else [plans]
        self.context = context
        self.plans = plans
        self._function = arm
        self._ended = ended
        config = _structs.Struct("weft_series_config", dict(first=first, nccl=nccl), "Series")
        array = ffi.new("struct weft_plan *[]", [plan._c() for plan in plans])
        number = _life.register(weakref.ref(self))
        config.c.plans, config.c.plan_count = array, len(plans)
        config.c.arm, config.c.ended, config.c.user = _arm, _series_ended, _life.user_of(number)
        pointer = ffi.new("struct weft_series **")
        keep = [_Registered(number), plans]
        context._handle.sweep()
        check(lib.weft_series_create(pointer, context._handle.get(), config.c))
        self._handle = _life.owned(self, _life.Handle(
            pointer[0], lib.weft_series_destroy, "the series", context._handle))
        self._handle.keep = keep
        self._runs = [_SeriesRun(self, i) for i in range(len(plans))]
        self._handle.keep.append([run._bound for run in self._runs])

    def _armed(self, arm):
        answer = None if self._function is None else self._function(self, arm.version)
        if answer is Series.RETIRED:
            return lib.WEFT_RETIRED
        if answer is Series.LATER:
            return lib.WEFT_IN_PROGRESS
        if isinstance(answer, float):
            arm.retry_ns = _structs.nanoseconds(answer, "the time to ask again", 1)
            return lib.WEFT_IN_PROGRESS
        arm.plan = 0 if answer is None else answer
        return lib.WEFT_OK

    def run(self, plan=0):
        """The run that executes versions with a plan: for its bindings."""
        return self._runs[plan]

    def start(self, first=None):
        """Starts the first version. Returns the series."""
        if first is None:
            _life.require(lib.weft_series_start(self._handle.get()))
        else:
            _life.require(lib.weft_series_start_version(self._handle.get(), first))
        return self

    def fire(self, version, event):
        """Fires an event of a version.

        Returns
        -------
        bool or None
            True: it fired; False: the version, or the event, has gone by; None: it is still to come.
        """
        status = check(lib.weft_series_fire(self._handle.get(), version, int(event)))
        return {lib.WEFT_OK: True, lib.WEFT_RETIRED: False}.get(status)

    def poke(self):
        """Asks `arm` again, if it has said LATER. From any thread."""
        check(lib.weft_series_poke(self._handle.get()))

    def wait(self, version, timeout=None):
        """Waits until a version has ended; raises what it has failed with."""
        status = _life.wait(self.context._handle, lambda series, ns: lib.weft_series_wait(series, version, ns),
                            self._handle.get(), timeout, "timeout")
        if status == lib.WEFT_IN_PROGRESS:
            raise TimeoutError("version %d has not ended within %g s" % (version, timeout))
        _life.require(status)

    @property
    def version(self):
        """The version under way, or the next one."""
        return lib.weft_series_version(self._handle.get())

    def close(self):
        """Ends it; a version under way is cancelled."""
        self._handle.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _SeriesRun(Run):
    """A run of a series, which the series starts and ends."""

    def __init__(self, series, number):
        self.context = series.context
        self.plan = series.plans[number]
        self._bound = {}
        pointer = lib.weft_series_get_run(series._handle.get(), number)
        self._handle = _life.Handle(pointer, lambda run: 0, "the run")


_ = (_enums,)

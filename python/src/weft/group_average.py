# SPDX-License-Identifier: BSD-3-Clause
"""Wait-avoiding group averaging: ranks average their models in groups that change from step to step.

>>> average = weft.GroupAverage(context, [weights, bias], group_size=4)
>>> for batch in batches:
...     descend(batch)                       # on this rank alone
...     result = average.step()              # weights, bias: the mean over a group
"""
from typing import Any, Dict, Optional, Sequence

from . import _objects, _structs, buffers
from ._library import ffi, lib, take_text
from .buffers import dtype_name

__all__ = ["GroupAverage"]


class GroupAverage(_objects.Object):
    """The average of models (or gradients) over groups of ranks that change from step to step.

    In its wait-avoiding mode a rank that is late takes part with what it has published last, so nobody
    waits for it; every `sync_period` steps everybody waits for everybody. Creation is collective over the
    context, and blocking. An object is used by one thread at a time, but for :meth:`report` and
    :meth:`fail`.

    Source: Li, Ben-Nun, Dryden, Di Girolamo, Hoefler, "Breaking (Global) Barriers in Parallel Stochastic
    Optimization with Wait-Avoiding Group Averaging" (TPDS 2021), sections 3 and 4, Algorithm 2; eager-SGD:
    Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler, "Taming Unbalanced Training Workloads in Deep Learning with
    Partial Collective Operations" (PPoPP 2020).

    Parameters
    ----------
    context : Context
        With helper progress.
    tensors : sequence of array_like
        The model: of one datatype (f32, f64, f16 or bf16), the same sizes on all ranks, contiguous. They are
        averaged in place, and used until the object is closed. All of the host, or all of a device.
    group_size : int, optional
        Members of a group, 1 .. ranks. Default: :func:`weft.grouping.default_size`.
    sync_period : int or math.inf, optional
        Every so many steps all ranks are averaged. Default: 10.
    mode : {"wait-avoiding", "waiting", "none"}, optional
        Whom a step waits for: nobody, its group, or no groups at all (local SGD).
    activation : {"anyone", "drawn"}, optional
        Who starts a version, in the wait-avoiding mode: whoever comes first ("solo" in eager-SGD), or a rank
        that is drawn for each ("majority").
    contribution : {"replace", "accumulate"}, optional
        "replace": models. "accumulate": gradients, which add up until a version takes them; each enters one
        version. Then the tensors become sum / members, and a stale step that finds no sum gets zero.
    stale_mix : {"substitute", "paper"}, optional
        What a stale step makes of a sum in which its model W' is not: (sum - own + W') / members, or
        (sum + W') / (members + 1) as in Algorithm 2.
    patience : float, optional
        How long a late rank's part of a version is held for it, in seconds. 0: not at all, as in the paper.
        Default: adaptive.
    seed : int, optional
        Of ``activation="drawn"``; the same on all ranks.
    algo : str, optional
        The algorithm of the allreduce within groups. Default: by cost.
    initial : {"same", "broadcast"}, optional
        What the models are: the same on all ranks, which is checked, or those of rank 0, for all.
    nan : {"error", "zero", "spread"}, optional
        What becomes of NaNs and infinities: a model is refused, and a gradient counts as zero, with an
        error; those elements count as zero (of gradients); or they are not looked for.
    meet : float, optional
        How long the creation waits for the other ranks, in seconds. Default: for ever.
    leave : float, optional
        How long a rank that has closed its object serves the others while nothing happens, in seconds.
        Default: 60.
    deadline : float, optional
        How long steps and waits wait, in seconds, where they are not told. Default: for ever. It is looked
        at every 0.2 s.
    state : dict, optional
        Of :meth:`state`, of this object before a restart, or of one that has failed.

    Raises
    ------
    InvalidError
        A setting is wrong, or ranks do not agree: the text names it.
    StateError
        The context has no helper progress.
    UnsupportedError
        The datatype.
    PeerError
        Another rank has failed.
    """

    _prefix = "weft_group_average"
    _what = "the group average"
    _leaves = True
    _arrays = {"pending": _objects.Array("own", "pending_count"),
               "failed": _objects.Array("own", "failed_count"),
               "sum": _objects.Array("own", "sum_count")}

    def __init__(self, context: Any, tensors: Sequence[Any], *, group_size: Optional[int] = None,
                 sync_period: Optional[float] = None, mode: Optional[str] = None,
                 activation: Optional[str] = None, contribution: Optional[str] = None,
                 stale_mix: Optional[str] = None, patience: Optional[float] = None,
                 seed: Optional[int] = None, algo: Optional[str] = None, initial: Optional[str] = None,
                 nan: Optional[str] = None, meet: Optional[float] = None, leave: Optional[float] = None,
                 deadline: Optional[float] = None, state: Optional[Dict[str, Any]] = None) -> None:
        settings = dict(group_size=group_size, sync_period=sync_period, mode=mode, activation=activation,
                        contribution=contribution, stale_mix=stale_mix, patience=patience, seed=seed,
                        algo=algo, initial=initial, nan=nan, meet=meet, leave=leave)
        _objects.refuse_zeros("GroupAverage", settings, ("group_size", "sync_period"))
        array, count, dtype, found = _objects.tensors_of(tensors, "GroupAverage")
        wide = dtype is not None and dtype_name(dtype) == "f64"
        sizes = self._sizes(found, own="f8" if wide else "f4")
        settings.update(dtype=dtype, tensor_count=count, memory="device" if sizes.device else None)
        config = _structs.Struct("weft_group_average_config", settings, "GroupAverage")
        config.c.tensors = array
        self._create(context, config, (array, found), sizes, deadline, state)

    def _result(self) -> Any:
        return _structs.new("weft_group_average_result")

    def step(self, timeout: Optional[float] = None) -> Any:
        """One step, in place: publishes the tensors, starts the step's version, and writes the average.

        Blocks for communication only, and at synchronisations (with ``activation="drawn"`` for the drawn
        rank, with ``mode="waiting"`` for the group).

        Parameters
        ----------
        timeout : float, optional
            Seconds; then :meth:`wait` ends the step. Default: the object's deadline.

        Returns
        -------
        named tuple
            ``version`` (whose sum was taken), ``members`` (contributions in it, 0: none was taken),
            ``stale`` (1: this step's own was not in it), ``synchronised``.

        Raises
        ------
        ComputeError
            NaNs or infinities (`nan`): a model was refused, and the step not taken; or a gradient counted
            as zero, and the step was taken.
        TimeoutError
            The text names who is missing at a synchronisation.
        StateError
            A posted step has not been waited for.
        PeerError
            Another rank has failed; from then on always.
        """
        c = self._result()
        self._advance(lambda pointer: lib.weft_group_average_step(pointer, c),
                      lambda pointer: lib.weft_group_average_wait(pointer, c), timeout)
        return _structs.read("weft_group_average_result", c)

    def post(self) -> None:
        """The first half of a step: copies the tensors, publishes them, and does not block. Until
        :meth:`wait` they may be changed."""
        self._post()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """The second half: waits, and adds average - posted to the tensors, so that what was done to them
        in between is kept (of gradients: writes sum / members). Returns, and raises, as :meth:`step`."""
        c = self._result()

        def function(pointer: Any) -> int:
            return lib.weft_group_average_wait(pointer, c)

        self._advance(function, function, timeout)
        return _structs.read("weft_group_average_result", c)

    def test(self) -> Any:
        """:meth:`wait`, if that would not wait; else None, and the step goes on."""
        c = self._result()
        status = self._call(lib.weft_group_average_test, c)
        if status == lib.WEFT_IN_PROGRESS:
            return None
        if status not in (lib.WEFT_ERR_STATE, lib.WEFT_ERR_INVALID):
            self._watch.posted = False
        self._require(status)
        return _structs.read("weft_group_average_result", c)

    def step_on(self, stream: Any = None, timeout: Optional[float] = None) -> None:
        """Puts a whole step on a stream of CUDA, in place on tensors of a device: when the stream gets there
        they are published and the step's version is started, and what is put on the stream behind it finds
        the average.

        This thread waits for the step before at most, to end on its stream. What a step has got, and how it
        has ended, is told by :meth:`wait` or :meth:`test` before the next one is begun; an error that nobody has
        asked for is raised by what begins the next one, which then is not begun.

        Parameters
        ----------
        stream : object, optional
            As of :meth:`weft.Run.start_on`.
        timeout : float, optional
            Seconds, for the step before. Default: the object's deadline.

        Raises
        ------
        StateError
            The tensors are memory of the host; a posted step has not been waited for.
        TimeoutError
            The step before has not ended on its stream; nothing was begun.
        """
        self._put_on(lib.weft_group_average_step_on, stream, timeout)

    def post_on(self, stream: Any = None, timeout: Optional[float] = None) -> None:
        """The first half of :meth:`step_on`: the stream goes on when the tensors have been copied; what changes
        them between this and :meth:`wait_on` is kept."""
        self._put_on(lib.weft_group_average_post_on, stream, timeout)

    def wait_on(self, stream: Any = None) -> None:
        """The second half: makes a stream wait here for the step that was posted, by :meth:`post_on` or
        :meth:`post`, and adds average - posted to the tensors. This thread does not wait."""
        self._check(lib.weft_group_average_wait_on, buffers.stream_pointer(stream))

    def _put_on(self, function: Any, stream: Any, timeout: Optional[float]) -> None:
        where = buffers.stream_pointer(stream)

        def call(pointer: Any) -> int:
            return function(pointer, where)

        self._require(self._until(call, call, timeout))

    def state(self) -> Dict[str, Any]:
        """The state for a checkpoint, beside the tensors: between steps, of one moment of this rank.

        With ``contribution="accumulate"`` it has what this rank has published and no version has taken.
        Where gradients must count exactly once over all ranks it is asked for after a synchronisation, or
        by :meth:`take_state`. Of an object that has failed it is what those that are left go on from, on a
        context of theirs (:meth:`weft.Context.shrink`).

        Returns
        -------
        dict
            Numbers, and copies of arrays (f64 for f64, else f32): for ``pickle`` or ``torch.save``, and
            given back as ``state=`` when the object is created again, also on fewer ranks.

        Raises
        ------
        StateError
            A posted step has not been waited for.
        """
        return self._state(lib.weft_group_average_get_state)

    def take_state(self) -> Dict[str, Any]:
        """:meth:`state` of the last checkpoint: takes what is pending out of the object, so that no version
        consumes it any more."""
        return self._state(lib.weft_group_average_take_state)

    def report(self, timeout: float = 1.0) -> str:
        """Where everybody is: asks all ranks, whose helpers answer whatever their applications do. From any
        thread.

        Parameters
        ----------
        timeout : float
            How long it waits for answers, in seconds.
        """
        lines = ffi.new("char **")
        self._check(lib.weft_group_average_report, _structs.nanoseconds(timeout, "timeout", 0), lines)
        return take_text(lines[0])

    @staticmethod
    def activator(seed: int, ranks: int, version: int) -> int:
        """The rank that ``activation="drawn"`` draws for a version; -1 for no ranks."""
        return lib.weft_group_average_activator(seed, ranks, version)

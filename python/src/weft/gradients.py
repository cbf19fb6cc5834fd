# SPDX-License-Identifier: BSD-3-Clause
"""Merged gradients: layers' gradients are averaged while the backward pass goes on, neighbours together where
that ends sooner.

>>> gradients = weft.Gradients(context, tensors)
>>> for layer in reversed(range(len(tensors))):
...     backward(layer)
...     gradients.ready(layer)               # its tensor belongs to the object
>>> gradients.wait_all()                     # tensors: the averages
"""
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from . import _enums, _objects, _structs, buffers, compressed_average, merging, sparse_average
from ._library import ffi, lib, text
from .errors import InvalidError, WeftError, check

__all__ = ["Gradients", "GradientsPlan"]


class GradientsPlan(NamedTuple):
    """How layers are merged.

    Attributes
    ----------
    since : int
        The first step that it was used in.
    order : list of int
        The layers in the order of the backward pass.
    groups : list of list of int
        The layers of each group, in the order in which groups are sent.
    predicted : named tuple
        The plan in numbers: ``group_count``, ``ready_us`` (when the last layer is ready), ``end_us`` (when
        the last group has been summed), ``communication_us``, ``hidden_us``, ``hidden_fraction``,
        ``optimal`` ("no", "contiguous", "all"). 0 while no times are known.
    ready : list of float or None
        Of the last step, in seconds from its first announcement on this rank: when each layer of `order` was
        announced. None: there has been none since the plan is in force.
    start, end : list of float or None
        Likewise: when each group began to be summed, and when it was over.
    """

    since: int
    order: List[int]
    groups: List[List[int]]
    predicted: Any
    ready: Optional[List[float]]
    start: Optional[List[float]]
    end: Optional[List[float]]


# ---- settings ----


def merge_struct(merge: Any, who: str) -> _structs.Struct:
    """weft_merge_config of a method: a text, a dict, or the groups of a plan."""
    if isinstance(merge, merging.Plan):
        merge = {"group_layers": merge.group_layers}
    if isinstance(merge, str):
        struct = _structs.Struct("weft_merge_config", {}, who)
        check(lib.weft_merge_method_parse(ffi.new("char[]", merge.encode()), struct.c))
        return struct
    if not isinstance(merge, dict):
        raise InvalidError("%s: merge is a %s, expected a text, a dict or a plan"
                           % (who, type(merge).__name__))
    settings = dict(merge)
    groups = settings.get("group_layers")
    if groups is not None:
        settings["group_layers"] = list(groups)
        settings["group_count"] = len(settings["group_layers"])
        settings.setdefault("method", "given")
    return _structs.Struct("weft_merge_config", settings, "%s: merge" % who)


def cost_of(cost: Any, who: str) -> merging.Cost:
    """What an allreduce takes: of a Cost, a dict, pairs of bytes and microseconds, or a function of bytes."""
    if isinstance(cost, merging.Cost):
        return cost
    if callable(cost):
        return merging.Cost(function=cost)
    try:
        return merging.Cost(**cost) if isinstance(cost, dict) else merging.Cost(points=cost)
    except (TypeError, ValueError):
        raise InvalidError("%s: cost is %r, expected a_us and b_us_per_byte, pairs of bytes and "
                           "microseconds, a function of bytes, or a weft.merging.Cost"
                           % (who, cost)) from None


def layers_array(layers: Optional[Sequence[int]], who: str) -> Any:
    """The array of how many tensors each layer has, or None."""
    if layers is None:
        return None
    try:
        return ffi.new("size_t[]", [count.__index__() for count in layers])
    except (AttributeError, OverflowError):
        raise InvalidError("%s: layers is %r, expected a number of tensors for each"
                           % (who, layers)) from None


class _Watch(_objects.Watch):
    """How many layers of the step have been announced; whether there is a step the library knows."""

    __slots__ = ("lock", "layers", "announced", "plan")

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.layers = layers
        self.announced = 0
        self.plan = _structs.new("weft_gradients_plan")

    def announce(self) -> None:
        with self.lock:
            # All had been: then that step has ended, and this is the first of the next one.
            self.announced = 1 if self.announced >= self.layers else self.announced + 1

    def ended(self, pointer: Any) -> bool:
        return self.cancelled or lib.weft_gradients_get_plan(pointer, self.plan) == 0

    def stuck(self) -> bool:
        return self.announced < self.layers


class Gradients(_objects.Object):
    """The average of gradients, layers merged while the backward pass goes on.

    A step begins with the first layer that is announced, :meth:`ready` or :meth:`absent`, and ends when all
    layers have been waited for. In between a layer's tensors belong to the object, from its announcement
    until it has been waited for. All ranks take the same steps; layers may be announced in any order. What a
    step gives is the same on all ranks, bit for bit. Plans are made of costs and times, both measured if
    nothing else is said.

    :meth:`ready`, :meth:`absent`, :meth:`wait` and :meth:`fail` may be called by any number of threads at
    once. Creation is collective over the context, and blocking.

    Source: Shi, Chu, Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD Algorithms"
    (INFOCOM 2019).

    Parameters
    ----------
    context : Context
    tensors : sequence of array_like
        The gradients, in the order of the model: of one datatype (f32, f16 or bf16), contiguous, of the host.
        Used until the object is closed. Tensors of a group that lie one behind the other in memory are sent
        as they are; others are copied.
    layers : sequence of int, optional
        How many successive tensors each layer has. Default: one each.
    reduction : {"average", "sum"}, optional
    wire_dtype : datatype, optional
        Of what is sent, for ``method="dense"``: f32 (default), f16 or bf16.
    method : {"dense", "sparse", "compressed"}, optional
        How a group is summed: by an allreduce, by a sparse average, or by a compressed one. Default: what
        there are settings of, else "dense".
    sparse : dict, optional
        Settings of :class:`SparseAverage`, but for ``scope``, ``deadline``, ``meet``, ``leave`` and
        ``state``. The density, or ``k``, is each group's.
    compressed : dict, optional
        Settings of :class:`CompressedAverage`, likewise; ``shapes`` are those of all tensors.
    merge : str, dict or weft.merging.Plan, optional
        "exact" (default), "greedy", "wfbp", "single", "bucket:BYTES:FIRST"; or a dict of ``method``,
        ``bucket_bytes``, ``first_bucket_bytes``, or ``group_layers`` (how many layers each group has); or the
        groups of a plan.
    cost : weft.merging.Cost, dict, sequence or callable, optional
        What an allreduce takes, in microseconds: ``{"a_us": ..., "b_us_per_byte": ...}``, pairs of bytes and
        microseconds, or a function of bytes. Default: measured by the creation.
    ready : sequence of float, optional
        When each layer's gradient is there, in seconds from any origin. Default: measured.
    measure_steps, check_steps : int, optional
        Over how many steps times are measured, and every how many again. Default: 5, 200; `check_steps` may
        be math.inf.
    gain : float, optional
        How much sooner a new plan has to end to take the place of the one in force, 0 .. 1. Default: 0.05.
    missing : {"error", "zero"}, optional
        What :meth:`wait_all` does about layers that have not been announced.
    meet : float, optional
        How long the creation waits for the other ranks, in seconds. Default: for ever.
    leave : float, optional
        How long :meth:`close` waits for the end of a step whose layers have all been announced, in seconds.
        Default: 60.
    deadline : float, optional
        How long waits wait, in seconds, where they are not told. Default: for ever. It is looked at every
        0.2 s.
    state : dict, optional
        Of :meth:`state`.

    Raises
    ------
    InvalidError
        A setting is wrong, or ranks do not agree: the text names it.
    UnsupportedError
        The datatype.
    PeerError
        Another rank has failed.
    """

    _prefix = "weft_gradients"
    _what = "the merged gradients"
    _arrays = {"agreed": _objects.Array("u8", "agreed_count"), "residual": _objects.Array("f4", "elements"),
               "velocity": _objects.Array("f4", "elements"), "regions": _objects.Array("u8", "region_count"),
               "words": _objects.Array("u8", "word_count"), "numbers": _objects.Array("f4", "number_count"),
               "votes": _objects.Array("u1", "layers"), "taken": _objects.Array("u8", "layers"),
               "kept": _objects.Array("u1", "layers"), "unsent": _objects.Array("f4", "elements")}

    def __init__(self, context: Any, tensors: Sequence[Any], *, layers: Optional[Sequence[int]] = None,
                 reduction: Optional[str] = None, wire_dtype: Any = None, method: Optional[str] = None,
                 sparse: Optional[Dict[str, Any]] = None, compressed: Optional[Dict[str, Any]] = None,
                 merge: Any = None, cost: Any = None,
                 ready: Optional[Sequence[float]] = None, measure_steps: Optional[int] = None,
                 check_steps: Optional[float] = None, gain: Optional[float] = None,
                 missing: Optional[str] = None, meet: Optional[float] = None, leave: Optional[float] = None,
                 deadline: Optional[float] = None, state: Optional[Dict[str, Any]] = None) -> None:
        who = "Gradients"
        array, count, dtype, found = _objects.tensors_of(tensors, who)
        _objects.refuse_device(who, found)
        if method is None and (sparse is None) != (compressed is None):
            method = "compressed" if sparse is None else "sparse"
        costs, problems = (None, []) if cost is None else cost_of(cost, who)._struct()
        settings = dict(
            reduction=reduction, method=method, measure_steps=measure_steps, check_steps=check_steps,
            gain=gain, missing=missing, meet=meet, leave=leave, dtype=dtype, tensor_count=count,
            wire_dtype=None if wire_dtype is None else buffers.dtype(wire_dtype),
            sparse=_dict(sparse, who, "sparse", sparse_average.settings_struct),
            compressed=_dict(compressed, who, "compressed", lambda given, what:
                             compressed_average.settings_struct(given, tensors, what)),
            merge=None if merge is None else merge_struct(merge, who),
            cost=costs)
        _objects.refuse_zeros(who, settings, ("measure_steps", "check_steps"))
        _objects.above_zero(settings, ("gain",))
        config = _structs.Struct("weft_gradients_config", settings, who)
        config.c.tensors = array
        own = layers_array(layers, who)
        self._layers = count if own is None else len(own)
        if own is not None:
            config.c.layer_tensors, config.c.layer_count = own, len(own)
        times = _times(ready, self._layers, who)
        if times is not None:
            config.c.ready_ns = times
        config.keep += [own, times]
        try:
            self._create(context, config, (array, found), self._sizes(found, self._layers), deadline, state)
        except WeftError as problem:
            if problems:  # of the function that tells costs
                raise problem from problems[0]
            raise

    def _new_watch(self) -> _objects.Watch:
        return _Watch(self._layers)

    # ---- a step ----

    def _announce(self, function: Callable[..., int], layer: int) -> None:
        number = _objects.position(layer)
        self._check(function, number)
        self._watch.announce()

    def ready(self, layer: int) -> None:
        """Announces that a layer's gradient is in its tensors, which are not to be touched until the layer
        has been waited for. Any thread; does not block.

        Parameters
        ----------
        layer : int
            Of the model, from 0.

        Raises
        ------
        InvalidError
            There is no such layer.
        StateError
            The layer has been announced in this step, or all have been and the step has not ended.
        PeerError
            Another rank has failed; from then on always.
        """
        self._announce(lib.weft_gradients_ready, layer)

    def absent(self, layer: int) -> None:
        """Announces that a layer has no gradient in this step on this rank: it counts as zero, and its
        tensors receive the result all the same. Else as :meth:`ready`."""
        self._announce(lib.weft_gradients_absent, layer)

    def wait(self, layer: int, timeout: Optional[float] = None) -> None:
        """Waits until a layer's tensors hold the result: for the next forward pass. Who waits for the last
        layer ends the step. Any thread, several at once.

        Parameters
        ----------
        layer : int
            Of the model, from 0.
        timeout : float, optional
            Seconds; then it may be waited for again. Default: the object's deadline.

        Raises
        ------
        StateError
            It has not been announced.
        ComputeError
            Gradients of this rank were not finite (``nan`` of `sparse` or `compressed`): the layers have
            their results, with zeros for those.
        TimeoutError
            The text says for whom it waits.
        PeerError
            Another rank has failed; from then on always.
        """
        number = _objects.position(layer)
        step = self.next

        def function(pointer: Any) -> int:
            return lib.weft_gradients_wait(pointer, number)

        # Who has waited for the layer beside this thread may have ended the step.
        self._require(self._until(function, function, timeout, lambda: self.next != step))

    def wait_all(self, timeout: Optional[float] = None) -> Any:
        """Waits for all layers and ends the step: the one under way, or else the next one. One thread at a
        time.

        Parameters
        ----------
        timeout : float, optional
            Seconds; then it may be waited for again. Default: the object's deadline.

        Returns
        -------
        named tuple
            ``step``, ``absent`` (layers), ``waited``, ``communication`` and ``hidden`` (seconds; how much of
            it was behind this rank's computation), and of compressed gradients ``compressed_groups``,
            ``bits`` (of an element on the wire), ``loss``.

        Raises
        ------
        StateError
            Layers have not been announced (`missing`).
        ComputeError, TimeoutError, PeerError
            As :meth:`wait`.
        """
        c = _structs.new("weft_gradients_result")
        step, others = self.next, []

        def function(pointer: Any) -> int:
            return lib.weft_gradients_wait_all(pointer, c)

        def over() -> bool:
            others.append(self.next != step)
            return others[-1]

        self._require(self._until(function, function, timeout, over))
        self._watch.announced = self._layers
        if others and others[-1]:  # another thread has ended it, between two slices
            return self.result
        return _structs.read("weft_gradients_result", c)

    # ---- what it is ----

    @property
    def result(self) -> Any:
        """What the last step that has ended was, as :meth:`wait_all` returns it; all 0 if there was none."""
        return self._filled("weft_gradients_result", lib.weft_gradients_get_result)

    @property
    def plan(self) -> GradientsPlan:
        """The plan in force, between steps."""
        def copied(pointer: Any) -> GradientsPlan:
            plan = _structs.new("weft_gradients_plan")
            self._require(lib.weft_gradients_get_plan(pointer, plan))
            return _plan(plan)

        return self._call(copied)

    @property
    def phase(self) -> str:
        """The phase of the step under way, or to come: "compressed" if a group is, else "sampling" if one is,
        else "warmup"."""
        return _enums.word("weft_compressed_phase_t", self._call(lib.weft_gradients_phase))

    def tensor(self, index: int) -> Any:
        """How a tensor is compressed, between steps, as :meth:`CompressedAverage.tensor`."""
        return self._filled("weft_gradiveq_tensor", lib.weft_gradients_get_tensor, _objects.position(index))

    def state(self) -> Dict[str, Any]:
        """The state for a checkpoint, beside the model: between steps.

        Of an object that has failed it is what those that are left go on from, on a context of theirs
        (:meth:`weft.Context.shrink`), in a step as well; ``taken`` tells of each layer how many sums this
        rank has been given, and ``kept`` whether its gradient is in the state. Nobody calls anything else of
        the object meanwhile.

        Returns
        -------
        dict
            Numbers, and copies of arrays: for ``pickle`` or ``torch.save``, and given back as ``state=``.

        Raises
        ------
        StateError
            A step is under way, and the object has not failed.
        """
        return super().state()


def _dict(settings: Any, who: str, name: str, make: Callable[[Dict[str, Any], str], Any]) -> Any:
    if settings is None:
        return None
    if not isinstance(settings, dict):
        raise InvalidError("%s: %s is a %s, expected a dict" % (who, name, type(settings).__name__))
    return make(settings, "%s: %s" % (who, name))


def _times(ready: Optional[Sequence[float]], layers: int, who: str) -> Any:
    if ready is None:
        return None
    ready = list(ready)
    if len(ready) != layers:
        raise InvalidError("%s: ready has %d entries, expected %d, one a layer" % (who, len(ready), layers))
    return ffi.new("uint64_t[]", [_structs.nanoseconds(time, "%s: ready[%d]" % (who, i), 0)
                                  for i, time in enumerate(ready)] or [0])


def _seconds(pointer: Any, count: int) -> Optional[List[float]]:
    return [pointer[i] * 1e-6 for i in range(count)] if pointer else None


def _plan(plan: Any) -> GradientsPlan:
    order = [plan.order[i] for i in range(plan.layer_count)]
    groups = []
    for number in range(plan.group_count):
        group = _structs.new("weft_merge_group")
        check(lib.weft_merge_plan_get_group(plan.merge, number, group))
        groups.append([order[group.layers[i]] for i in range(group.layer_count)])
    predicted = _structs.filled("weft_merge_summary", lib.weft_merge_plan_get_summary, plan.merge)
    optimal = lib.weft_merge_optimal_name(_enums.number("weft_merge_optimal_t", predicted.optimal, "optimal"))
    predicted = predicted._replace(optimal=text(optimal))
    return GradientsPlan(plan.since, order, groups, predicted, _seconds(plan.ready_us, len(order)),
                         _seconds(plan.start_us, len(groups)), _seconds(plan.end_us, len(groups)))

# SPDX-License-Identifier: BSD-3-Clause
"""Optimizers that average: each wraps an optimizer of PyTorch, and is one.

=============================  ==============================================================================
:class:`WagmaOptimizer`        models, in groups that change; nobody waits for who is late (WAGMA-SGD)
:class:`LocalSGDOptimizer`     models, of all ranks, every so many steps
:class:`GossipOptimizer`       models, with neighbours (D-PSGD, SGP)
:class:`PairAverageOptimizer`  models, in pairs; nobody waits for who computes (AD-PSGD)
:class:`EagerOptimizer`        gradients; who is late contributes later (eager-SGD, solo and majority)
:class:`SparseOptimizer`       gradients, the largest entries (gTop-k, top-k, Ok-Topk)
:class:`CompressedOptimizer`   gradients, in fewer bits (GradiVeQ, QSGD, PowerSGD)
:class:`MergedOptimizer`       gradients, while the backward pass goes on, layers merged (MG-WFBP)
=============================  ==============================================================================

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = weft.torch.WagmaOptimizer(optimizer, context)
    for x, y in batches:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

All ranks create their wrappers in the same order, with the same settings and parameters of the same shapes:
creation is collective and blocks. Learning-rate schedulers, closures and ``param_groups`` are the wrapped
optimizer's. Parameters are in the processor's memory, and stay where they are.

What changes gradients between the backward pass and the step (clipping, ``GradScaler.unscale_``) changes this
rank's own, before they are averaged; to change the averages, alike on all ranks, ``synchronise()`` first::

    loss(model(x), y).backward()
    optimizer.synchronise()                  # of optimizers that average gradients
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
import contextlib
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, TypeVar

import torch

from ..compressed_average import CompressedAverage
from ..context import Context
from ..errors import ComputeError, InvalidError, StateError, WeftError
from ..gossip import Gossip, PairAverage
from ..gradients import Gradients
from ..group_average import GroupAverage
from ..sparse_average import SparseAverage
from ._common import GradientBuffers, by_dtype, parameters_of, states_of, to_tensors
from ._common import context as make_context

__all__ = ["WagmaOptimizer", "LocalSGDOptimizer", "GossipOptimizer", "PairAverageOptimizer",
           "EagerOptimizer", "SparseOptimizer", "CompressedOptimizer", "MergedOptimizer"]


Self = TypeVar("Self", bound="_Wrapper")


class _Wrapper(torch.optim.Optimizer):
    """An optimizer around another, and the objects of weft that average (one a datatype)."""

    #: For torch.amp.GradScaler: it looks for infinities itself.
    _step_supports_amp_scaling = False

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context]) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InvalidError("optimizer is a %s, expected an optimizer of torch" % type(optimizer).__name__)
        # Not initialised as an optimizer of its own: it has what the wrapped one has.
        self.optimizer = optimizer
        self.context = context if context is not None else make_context()
        self._members = parameters_of(optimizer)
        self._closed = False
        self._objects: List[Any] = []
        # Those whose part of the step under way has not ended, and what the others' have brought.
        self._left: List[Any] = []
        self._found: List[Any] = []
        self.results: List[Any] = []

    def _make(self, states: Optional[List[Any]]) -> List[Any]:
        raise NotImplementedError

    def _create(self, states: Optional[List[Any]] = None) -> None:
        if states is not None:
            states = states_of(states, self._count())
        self._close_objects()
        self._objects = self._make(states)

    def _count(self) -> int:
        """How many objects there are to be."""
        raise NotImplementedError

    # ---- what an optimizer has ----

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def defaults(self) -> Any:
        return self.optimizer.defaults

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __getstate__(self) -> Any:
        raise StateError("an optimizer that averages cannot be pickled: use state_dict()")

    def __repr__(self) -> str:
        return "%s(%r)" % (type(self).__name__, self.optimizer)

    def zero_grad(self, *arguments: Any, **settings: Any) -> None:
        self.optimizer.zero_grad(*arguments, **settings)

    def add_param_group(self, group: Any) -> None:
        raise StateError("parameters cannot be added: the ranks have agreed on those that there were. Make a "
                         "new wrapper, on all ranks")

    # ---- a step ----

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        raise NotImplementedError

    def _check(self) -> None:
        """Raises what must not be, before a step."""
        self._check_open()
        found = parameters_of(self.optimizer)
        if len(found) != len(self._members) or any(one is not other
                                                   for one, other in zip(found, self._members)):
            raise StateError("the wrapped optimizer has other parameters than when it was wrapped: make a "
                             "new wrapper, on all ranks")

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the optimizer has been closed")

    def _end(self, one: Any) -> Any:
        """Makes an object's part of a step, or goes on with it."""
        return one.wait() if one._watch.posted else one.step()

    def _finish(self) -> None:
        """Ends the step under way. Where a time has passed, or Ctrl-C has come, what is left is for the next
        call. NaNs of this rank are raised when all have ended: the other ranks know nothing of them."""
        if not self._left:
            return
        problem = None
        while self._left:
            try:
                self._found.append(self._end(self._left[0]))
            except ComputeError as error:
                self._found.append(None)
                problem = error
            self._left.pop(0)
        self.results, self._found = self._found, []
        if problem is not None:
            raise problem

    def flush(self) -> None:
        """Ends what goes on behind the steps; before an evaluation or a checkpoint."""

    @property
    def result(self) -> Any:
        """What the last step's average was, as a named tuple (of the first datatype); None before."""
        return self.results[0] if self.results else None

    @property
    def stats(self) -> Any:
        """What has been counted so far, as a named tuple (of the first datatype)."""
        return self._objects[0].stats if self._objects else None

    # ---- checkpoints, and the end ----

    def state_dict(self) -> Dict[str, Any]:
        """The state for a checkpoint: of the wrapped optimizer, and of this rank's part in the average.

        To be saved by each rank, and given back to the same one. With `overlap` it first takes the average
        that is under way, so the parameters are to be copied after this call, not before.
        """
        self._check_open()
        self.flush()
        return {"optimizer": self.optimizer.state_dict(),
                "weft": [to_tensors(one.state()) for one in self._objects]}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Goes on from a state. Collective: all ranks call; the models are loaded before.

        Parameters
        ----------
        state_dict : dict
            Of :meth:`state_dict`; of an optimizer that was not wrapped: averaging begins anew.
        """
        self._check_open()
        if set(state_dict) == {"optimizer", "weft"}:
            self.optimizer.load_state_dict(state_dict["optimizer"])
            self._create(state_dict["weft"])
        else:
            self.optimizer.load_state_dict(state_dict)
            self._create(None)

    def _close_objects(self) -> None:
        objects, self._objects, self._left, self._found = self._objects, [], [], []
        with contextlib.ExitStack() as stack:  # all of them, whatever one raises
            for one in reversed(objects):
                stack.callback(one.close)

    def close(self) -> None:
        """Ends this rank's part in the average; there are no steps any more. Repeating that does nothing."""
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self._closed = True
            self._close_objects()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Any, problem: Optional[BaseException], _: Any) -> None:
        if kind is None:
            self.close()
            return
        self._closed = True
        with contextlib.suppress(WeftError):
            for one in self._objects:  # the others must not wait for a rank that has failed
                one.fail(problem)
        with contextlib.suppress(WeftError):
            self._close_objects()


class _ModelOptimizer(_Wrapper):
    """Averages the parameters after (or beside) each step of the wrapped optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context], overlap: bool) -> None:
        super().__init__(optimizer, context)
        self.overlap = overlap
        self._places = [parameter.data_ptr() for parameter in self._members]

    def _parameters(self) -> List[Any]:
        return [[parameter.data for parameter in members] for _, members in by_dtype(self._members)]

    def _count(self) -> int:
        return len(by_dtype(self._members))

    def _check(self) -> None:
        super()._check()
        for i, (parameter, place) in enumerate(zip(self._members, self._places)):
            if parameter.data_ptr() != place:
                raise StateError("parameter %d has moved to other memory since the optimizer was wrapped (by "
                                 ".to(), .half() or .data = ...): make a new wrapper, on all ranks" % i)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """A step of the wrapped optimizer, and of the average.

        Without `overlap` the updated models are averaged: W <- average(W - rate g). With it the models as
        they were before the update are averaged while the gradient is computed: W <- average(W) - rate g.
        """
        self._check()
        self._finish()
        loss = self.optimizer.step(closure)
        if not self.overlap:
            self._left = list(self._objects)
            self._finish()
            return loss
        problem = None
        for one in self._objects:
            try:
                one.post()
                self._left.append(one)
            except ComputeError as error:
                problem = error
        if problem is not None:
            raise problem
        return loss

    def flush(self) -> None:
        """With `overlap`: waits for the average that is under way, and takes it."""
        self._finish()


class WagmaOptimizer(_ModelOptimizer):
    """Wait-avoiding group averaging: who is late takes part without having arrived.

    Source: Li, Ben-Nun, Dryden, Di Girolamo, Hoefler, "Breaking (Global) Barriers in Parallel Stochastic
    Optimization with Wait-Avoiding Group Averaging" (TPDS 2021), Algorithm 2.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
    context : Context, optional
        With helper progress. Default: :func:`weft.torch.context`.
    group_size : int, optional
        Ranks of a group. Default: near the square root of their number.
    sync_period : int or math.inf, optional
        Every so many steps all ranks are averaged. Default: 10.
    overlap : bool
        The average goes on beside the next forward and backward pass.
    **settings
        Of :class:`weft.GroupAverage`: ``initial`` ("same": models are equal, as after
        :func:`broadcast_parameters`; "broadcast"), ``patience``, ``stale_mix``, ``nan``, ``algo`` ...
    """

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context] = None, *,
                 group_size: Optional[int] = None, sync_period: Optional[float] = None, overlap: bool = False,
                 **settings: Any) -> None:
        super().__init__(optimizer, context, overlap)
        self._settings = dict(settings, group_size=group_size, sync_period=sync_period)
        self._create()

    def _make(self, states: Optional[List[Any]]) -> List[Any]:
        return [GroupAverage(self.context, tensors, state=states[i] if states else None, **self._settings)
                for i, tensors in enumerate(self._parameters())]


class LocalSGDOptimizer(WagmaOptimizer):
    """Local SGD: models of all ranks are averaged every `period` steps, and not at all in between.

    Source: Stich, "Local SGD Converges Fast and Communicates Little" (ICLR 2019), Algorithm 1.

    Parameters
    ----------
    optimizer, context, overlap
        As of :class:`WagmaOptimizer`.
    period : int
    **settings
        Of :class:`weft.GroupAverage`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context] = None, *,
                 period: int = 10, overlap: bool = False, **settings: Any) -> None:
        super().__init__(optimizer, context, sync_period=period, overlap=overlap, mode="none", **settings)


class GossipOptimizer(_ModelOptimizer):
    """Models are averaged with those of a few neighbours.

    Source: D-PSGD (Lian et al., NeurIPS 2017, Algorithm 1): ``graph="ring", overlap=True``; SGP (Assran et
    al., ICML 2019, Algorithm 1): ``graph="exponential"``.

    Parameters
    ----------
    optimizer, context, overlap
        As of :class:`WagmaOptimizer`.
    graph : {"ring", "exponential"}
    neighbours : int, optional
        Default: 2 on the ring, 1 else.
    weight : float, optional
        What this rank counts, for example its number of samples.
    **settings
        Of :class:`weft.Gossip`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context] = None, *,
                 graph: str = "ring", neighbours: Optional[int] = None, weight: Optional[float] = None,
                 overlap: bool = False, **settings: Any) -> None:
        super().__init__(optimizer, context, overlap)
        self._settings = dict(settings, graph=graph, neighbours=neighbours, weight=weight)
        self._create()

    def _make(self, states: Optional[List[Any]]) -> List[Any]:
        return [Gossip(self.context, tensors, state=states[i] if states else None, **self._settings)
                for i, tensors in enumerate(self._parameters())]


class PairAverageOptimizer(_ModelOptimizer):
    """Models are averaged in pairs, and nobody waits for a rank that computes.

    Source: AD-PSGD (Lian et al., ICML 2018, Algorithm 1): ``overlap=True``.

    Parameters
    ----------
    optimizer, context, overlap
        As of :class:`WagmaOptimizer`.
    seed : int
        Of the draw of partners; the same on all ranks.
    **settings
        Of :class:`weft.PairAverage`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context] = None, *, seed: int = 0,
                 overlap: bool = False, **settings: Any) -> None:
        super().__init__(optimizer, context, overlap)
        self._settings = dict(settings, seed=seed)
        self._create()

    def _make(self, states: Optional[List[Any]]) -> List[Any]:
        return [PairAverage(self.context, tensors, state=states[i] if states else None, **self._settings)
                for i, tensors in enumerate(self._parameters())]

    def synchronise(self) -> None:
        """The mean over all ranks, the same on all bit for bit. Collective, blocking."""
        self.flush()
        for one in self._objects:
            one.synchronise()


class _GradientOptimizer(_Wrapper):
    """Averages the gradients before each step of the wrapped optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context]) -> None:
        super().__init__(optimizer, context)
        self._buffers = GradientBuffers([parameter for parameter in self._members if parameter.requires_grad])
        self._frozen = [parameter for parameter in self._members if not parameter.requires_grad]
        self._averaged = False

    def _count(self) -> int:
        return len(self._buffers.groups)

    def _average(self) -> None:
        """Averages the gradients; goes on with what has been interrupted."""
        if not self._left:
            self._buffers.collect()
            self._left = list(self._objects)
        self._finish()

    def _take_average(self) -> Optional[ComputeError]:
        """Averages the gradients and makes the averages the parameters' gradients. NaNs of this rank are
        returned: it goes on as the others do, who know nothing of them, and raises that then."""
        for parameter in self._frozen:
            if parameter.grad is not None:
                raise StateError("a parameter of shape %s has a gradient, and was frozen when the optimizer "
                                 "was wrapped: make a new wrapper, on all ranks" % (tuple(parameter.shape),))
        problem = None
        try:
            self._average()
        except ComputeError as error:
            problem = error
        self._buffers.give()
        return problem

    def synchronise(self) -> None:
        """Averages the gradients now: what comes before the step then changes the averages. Collective,
        blocking, once a step."""
        self._check()
        problem = self._take_average()
        self._averaged = True
        if problem is not None:
            raise problem

    def zero_grad(self, *arguments: Any, **settings: Any) -> None:
        self._averaged = False
        super().zero_grad(*arguments, **settings)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Averages the gradients, and makes a step of the wrapped optimizer with them.

        A parameter without a gradient counts as zero. With a closure the gradients that it computes are
        averaged, each time that the wrapped optimizer calls it; for L-BFGS the loss is as well.

        Raises
        ------
        ComputeError
            Gradients of this rank were NaN or infinite. The step has been taken, without them.
        """
        self._check()
        problems = []

        def evaluate() -> Any:
            with torch.enable_grad():
                loss = closure()  # type: ignore[misc]
            problems.append(self._take_average())
            return self._mean(loss) if isinstance(self.optimizer, torch.optim.LBFGS) else loss

        if closure is None and not self._averaged:
            problems.append(self._take_average())
        self._averaged = False
        loss = self.optimizer.step(evaluate) if closure is not None else self.optimizer.step()
        for problem in problems:
            if problem is not None:
                raise problem
        return loss

    def _mean(self, loss: Any) -> Any:
        """The mean of all ranks' losses, by which all make the same decisions."""
        total = torch.as_tensor(loss, dtype=torch.float64).detach().reshape(1).clone()
        self.context.allreduce(total)
        mean = float(total) / self.context.size
        return loss.new_tensor(mean) if isinstance(loss, torch.Tensor) else mean


class EagerOptimizer(_GradientOptimizer):
    """Gradients of those who have arrived are averaged; what others have is added to a later average.

    Source: eager-SGD (Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler, PPoPP 2020, section 4): solo with
    ``activation="anyone"``, majority with ``activation="drawn"``.

    Parameters
    ----------
    optimizer, context
        As of :class:`WagmaOptimizer`.
    activation : {"anyone", "drawn"}
    **settings
        Of :class:`weft.GroupAverage`: ``sync_period``, ``seed`` ...
    """

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context] = None, *,
                 activation: str = "anyone", **settings: Any) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise InvalidError("optimizer is L-BFGS, which needs the same gradients on all ranks")
        super().__init__(optimizer, context)
        self._settings = dict({"group_size": self.context.size}, activation=activation,
                              contribution="accumulate", **settings)
        self._create()

    def _make(self, states: Optional[List[Any]]) -> List[Any]:
        return [GroupAverage(self.context, views, state=states[i] if states else None, **self._settings)
                for i, (_, _, views) in enumerate(self._buffers.groups)]


class SparseOptimizer(_GradientOptimizer):
    """Of the gradients the entries of largest magnitude are averaged; the others are kept for later.

    Source: gTop-k (Shi et al., ICDCS 2019, Algorithm 4); Ok-Topk (Li, Hoefler, PPoPP 2022, section 3);
    momentum, clipping and warm-up: Deep Gradient Compression (Lin et al., ICLR 2018).

    Parameters
    ----------
    optimizer, context
        As of :class:`WagmaOptimizer`.
    method : {"gtopk", "gtopk-butterfly", "allgather", "oktopk"}
    density : float, optional
        The share of elements that a rank selects. Default: 0.001.
    **settings
        Of :class:`weft.SparseAverage`: ``momentum`` (the wrapped optimizer has none then), ``clip_norm``,
        ``warmup_steps``, ``residual`` ...
    """

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context] = None, *,
                 method: str = "gtopk", density: Optional[float] = None, **settings: Any) -> None:
        super().__init__(optimizer, context)
        self._settings = dict(settings, method=method, density=density)
        self._create()

    def _make(self, states: Optional[List[Any]]) -> List[Any]:
        return [SparseAverage(self.context, views, state=states[i] if states else None, **self._settings)
                for i, (_, _, views) in enumerate(self._buffers.groups)]


class CompressedOptimizer(_GradientOptimizer):
    """All entries of the gradients are averaged, in fewer bits.

    Source: GradiVeQ (Yu et al., NeurIPS 2018); QSGD (Alistarh et al., NIPS 2017); PowerSGD (Vogels et al.,
    NeurIPS 2019).

    Parameters
    ----------
    optimizer, context
        As of :class:`WagmaOptimizer`.
    method : {"gradiveq", "qsgd", "powersgd"}
    **settings
        Of :class:`weft.CompressedAverage`: ``quantiser``, ``gradiveq``, ``powersgd`` (dicts), ``residual``.
        Shapes are the parameters'.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context] = None, *,
                 method: str = "powersgd", **settings: Any) -> None:
        super().__init__(optimizer, context)
        self._settings = dict(settings, method=method)
        self._create()

    def _make(self, states: Optional[List[Any]]) -> List[Any]:
        return [CompressedAverage(self.context, views, state=states[i] if states else None, **self._settings)
                for i, (_, _, views) in enumerate(self._buffers.groups)]


def _on_gradient(parameter: torch.Tensor, function: Callable[[], None]) -> Any:
    """Calls a function each time that a parameter's gradient has been accumulated; returns what keeps it, and
    what removes it."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):  # torch 2.1
        return None, parameter.register_post_accumulate_grad_hook(lambda _: function())
    # The node that accumulates lives as long as it is kept.
    with torch.enable_grad():
        node = parameter.view_as(parameter).grad_fn.next_functions[0][0]
    return node, node.register_hook(lambda *_: function())


def _announcer(owner: "MergedOptimizer", group: int, layer: int) -> Callable[[], None]:
    """What a parameter calls; it does not keep the optimizer."""
    reference = weakref.ref(owner)

    def announce() -> None:
        known = reference()
        if known is not None:
            known._announce(group, layer)

    return announce


class MergedOptimizer(_GradientOptimizer):
    """Gradients are averaged while the backward pass goes on, neighbours together where that ends sooner.

    Source: MG-WFBP (Shi, Chu, Li, INFOCOM 2019, Algorithm 1), with the exact plan by default.

    Parameters
    ----------
    optimizer, context
        As of :class:`WagmaOptimizer`.
    method : {"dense", "sparse", "compressed"}
        How a group of layers is summed.
    sparse, compressed : dict, optional
        Settings of these.
    merge : str, optional
        "exact", "greedy", "wfbp", "single", "bucket:BYTES" ...
    **settings
        Of :class:`weft.Gradients`: ``reduction``, ``wire_dtype``, ``cost``, ``check_steps`` ...

    Notes
    -----
    A layer is a parameter. ``with optimizer.no_sync():`` accumulates gradients of a backward pass without
    averaging; the last pass before a step is outside of it. From that pass on gradients belong to weft, until
    the step or :meth:`synchronise`: what changes them in between, or zeroes them, is an error.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, context: Optional[Context] = None, *,
                 method: str = "dense", sparse: Optional[Dict[str, Any]] = None,
                 compressed: Optional[Dict[str, Any]] = None, merge: Any = None, **settings: Any) -> None:
        super().__init__(optimizer, context)
        self._settings = dict(settings, method=method, sparse=sparse, compressed=compressed, merge=merge)
        # Of (group, layer): the gradient that was announced, and how often it had been written.
        self._announced: Dict[Any, Any] = {}
        self._changed: List[Any] = []
        self._syncing = True
        self._create()
        self._hooks = [_on_gradient(member, _announcer(self, group, layer))
                       for group, (_, members, _) in enumerate(self._buffers.groups)
                       for layer, member in enumerate(members)]

    def _make(self, states: Optional[List[Any]]) -> List[Any]:
        return [Gradients(self.context, views, state=states[i] if states else None, **self._settings)
                for i, (_, _, views) in enumerate(self._buffers.groups)]

    def _announce(self, group: int, layer: int) -> None:
        if not self._syncing or not self._objects:
            return
        if (group, layer) in self._announced:
            raise StateError("a second gradient of parameter %d has come before the step: backward passes "
                             "that only accumulate belong into `with optimizer.no_sync():`" % layer)
        parameter = self._buffers.groups[group][1][layer]
        self._averaged = False
        with torch.no_grad():
            self._buffers.take(parameter)
        self._announced[group, layer] = parameter.grad, parameter.grad._version
        self._objects[group].ready(layer)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in it accumulate gradients on this rank alone."""
        before, self._syncing = self._syncing, False
        try:
            yield
        finally:
            self._syncing = before

    def zero_grad(self, *arguments: Any, **settings: Any) -> None:
        if self._announced:
            raise StateError("gradients are being averaged, and are not to be zeroed before step() or "
                             "synchronise()")
        super().zero_grad(*arguments, **settings)

    def _end(self, one: Any) -> Any:
        return one.wait_all()

    def _average(self) -> None:
        if not self._left:
            for group, (_, members, _) in enumerate(self._buffers.groups):
                for layer, member in reversed(list(enumerate(members))):
                    self._complete(group, layer, member)
            self._left = list(self._objects)
        try:
            self._finish()
        finally:
            if not self._left:
                self._announced.clear()
                changed, self._changed = self._changed, []
        if changed:
            raise StateError("the gradient of parameter %d was changed between the backward pass and the "
                             "step, while it was averaged: call optimizer.synchronise() before what changes it"
                             % changed[0])

    def _complete(self, group: int, layer: int, member: torch.Tensor) -> None:
        """Announces a layer that the backward pass has not, and looks at one that it has."""
        if (group, layer) in self._announced:
            gradient, version = self._announced[group, layer]
            if member.grad is not gradient or gradient._version != version:
                self._changed.append(layer)
        elif member.grad is None:
            self._objects[group].absent(layer)
        else:  # it has been accumulated without averaging
            with torch.no_grad():
                self._buffers.take(member)
            self._objects[group].ready(layer)

    @property
    def plans(self) -> List[Any]:
        """The plans in force, of each datatype."""
        return [one.plan for one in self._objects]

    def _close_objects(self) -> None:
        self._announced.clear()
        self._changed.clear()
        if self._closed:
            for _, handle in self._hooks:
                handle.remove()
            self._hooks.clear()
        super()._close_objects()

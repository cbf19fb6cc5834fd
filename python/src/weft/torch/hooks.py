# SPDX-License-Identifier: BSD-3-Clause
"""Communication hooks of DistributedDataParallel: its buckets are averaged by weft.

    model = torch.nn.parallel.DistributedDataParallel(model)
    weft.torch.register_comm_hook(model, "gtopk", density=0.01)

The process group (of any backend) does what DDP does beside: the hook averages gradients over a context of
weft. What is kept from step to step, residuals above all, is kept by parameter, so it stays right when DDP
rebuilds its buckets after the first step.
"""
import contextlib
from typing import Any, Dict, List, Optional

import torch
from torch.nn.parallel import DistributedDataParallel

from ..context import Context
from ..errors import ComputeError, InvalidError, StateError, WeftError
from ..gradients import Gradients
from ._common import GradientBuffers, states_of, to_tensors
from ._common import context as make_context

__all__ = ["HookState", "comm_hook", "register_comm_hook", "HOOKS"]

_SPARSE = {"gtopk": "gtopk", "gtopk-butterfly": "gtopk-butterfly", "topk": "allgather", "oktopk": "oktopk"}
_COMPRESSED = ("gradiveq", "qsgd", "powersgd")

#: The names of hooks.
HOOKS = ("merged",) + tuple(_SPARSE) + _COMPRESSED


class HookState:
    """The state of :func:`comm_hook`: the average of a model's gradients.

    Parameters
    ----------
    model : DistributedDataParallel, torch.nn.Module or iterable of parameters
        Those whose gradients DDP hands over.
    context : Context, optional
        Default: :func:`weft.torch.context`, of the ranks of DDP's process group.
    method : {"dense", "sparse", "compressed"}
    sparse, compressed : dict, optional
        Settings of these.
    **settings
        Of :class:`weft.Gradients`.

    Notes
    -----
    Collective and blocking, as :class:`weft.Gradients` is. Gradients are copied into memory that stays where
    it is, and back into DDP's buckets. A layer is a parameter; how layers are merged is planned from measured
    costs and times, whatever DDP's buckets are: a bucket that is smaller (``bucket_cap_mb``) leaves the plan
    more to choose from.

    Layers are waited for with the last bucket, when the backward pass has nothing left to compute; what goes
    wrong is raised by ``backward()``. The average is over the ranks of the context, also where some have no
    more inputs (``model.join()``).
    """

    def __init__(self, model: Any, context: Optional[Context] = None, *, method: str = "dense",
                 sparse: Optional[Dict[str, Any]] = None, compressed: Optional[Dict[str, Any]] = None,
                 **settings: Any) -> None:
        group = None
        if isinstance(model, DistributedDataParallel):
            group = model.process_group
            ignored = set(getattr(model, "parameters_to_ignore", ()))
            parameters = [parameter for name, parameter in model.module.named_parameters()
                          if parameter.requires_grad and name not in ignored]
        else:
            given = model.parameters() if isinstance(model, torch.nn.Module) else model
            parameters = [parameter for parameter in given if parameter.requires_grad]
        self.context = context if context is not None else make_context(group=group)
        if group is not None and (self.context.rank, self.context.size) != (group.rank(), group.size()):
            raise InvalidError("the context is rank %d of %d, and the process group of DDP rank %d of %d" % (
                self.context.rank, self.context.size, group.rank(), group.size()))
        self._buffers = GradientBuffers(parameters)
        self._settings = dict(settings, method=method, sparse=sparse, compressed=compressed)
        self._objects: List[Gradients] = []
        self._place = {id(member): (group, layer)
                       for group, (_, members, _) in enumerate(self._buffers.groups)
                       for layer, member in enumerate(members)}
        self._announced: set = set()
        self._buckets: List[Any] = []  # of a step: (future, buffer, [(place, view, gradient)])
        self._problem: Optional[BaseException] = None
        self._create(None)

    def _create(self, states: Optional[List[Any]]) -> None:
        self.close()
        self._objects = [Gradients(self.context, views, state=states[i] if states else None, **self._settings)
                         for i, (_, _, views) in enumerate(self._buffers.groups)]

    def __getstate__(self) -> Any:
        raise StateError("the state of a hook cannot be pickled: use state_dict()")

    def _bucket(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        future: "torch.futures.Future[torch.Tensor]" = torch.futures.Future()
        try:
            if self._problem is None:
                self._announce(bucket, future)
            if bucket.is_last() and self._problem is None:
                self._finish()
        except BaseException as problem:  # noqa: B902 - raised below
            self._problem = problem
        if self._problem is not None and not future.done():
            future.set_result(bucket.buffer())
        if bucket.is_last():
            self._end()
        return future

    def _end(self) -> None:
        """Ends a step; raises what has gone wrong."""
        buckets, problem = self._buckets, self._problem
        self._buckets, self._problem = [], None
        self._announced.clear()
        if problem is None:
            return

        def fail() -> None:
            raise problem

        queue = torch.autograd.Variable._execution_engine.queue_callback
        raising = fail
        if isinstance(problem, ComputeError):  # the step has ended: it is raised behind DDP's own end of it
            def raising() -> None:
                queue(fail)
        else:  # this rank cannot go on, so the others are not to wait for it, nor DDP for buckets
            for one in self._objects:
                with contextlib.suppress(WeftError):
                    one.fail(problem)
            for future, buffer, _ in buckets:
                if not future.done():
                    future.set_result(buffer)
        try:  # as what ends the backward pass: an error of a hook loses its class
            queue(raising)
        except RuntimeError:  # who has no more inputs (join) is in no backward pass
            raise problem from None

    def _announce(self, bucket: Any, future: Any) -> None:
        if not self._objects:
            raise StateError("the hook's state has been closed")
        buffer, parameters = bucket.buffer(), bucket.parameters()
        # Of an embedding a sparse gradient may come, in a bucket of its own.
        gradients = bucket.gradients() if buffer.layout is torch.strided else [buffer]
        parts = []
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                place = self._place.get(id(parameter))
                if place is None:
                    raise InvalidError("DDP has handed over a parameter of shape %s that the state does not "
                                       "know" % (tuple(parameter.shape),))
                view = self._buffers.view[id(parameter)]
                view.copy_(gradient if gradient.layout is torch.strided else gradient.to_dense())
                parts.append((place, view, gradient))
        self._buckets.append((future, buffer, parts))
        for (group, layer), _, _ in reversed(parts):
            self._objects[group].ready(layer)
            self._announced.add((group, layer))

    def _finish(self) -> None:
        """Waits for all layers of a step, and completes DDP's futures. NaNs of this rank are raised when all
        has ended: the other ranks know nothing of them."""
        problems = []

        def wait(group: int, layer: int) -> None:
            try:
                self._objects[group].wait(layer)
            except ComputeError as problem:
                problems.append(problem)

        absent = sorted(set(self._place.values()) - self._announced)
        for group, layer in absent:
            self._objects[group].absent(layer)
        for future, buffer, parts in self._buckets:
            for place, view, gradient in parts:
                wait(*place)
                with torch.no_grad():
                    if gradient.layout is torch.strided:
                        gradient.copy_(view)
                    else:
                        buffer = view.to_sparse(gradient.sparse_dim())
            future.set_result(buffer)
        for place in absent:
            wait(*place)
        if problems:
            raise problems[0]

    @property
    def stats(self) -> Any:
        """What has been counted so far (of the first datatype), as a named tuple."""
        return self._objects[0].stats if self._objects else None

    @property
    def plans(self) -> List[Any]:
        """The plans in force, of each datatype."""
        return [one.plan for one in self._objects]

    def state_dict(self) -> Dict[str, Any]:
        """The state for a checkpoint of this rank, between steps: residuals and plans."""
        if not self._objects and self._place:
            raise StateError("the hook's state has been closed")
        return {"weft": [to_tensors(one.state()) for one in self._objects]}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Goes on from a state. Collective: all ranks call."""
        self._create(states_of(state_dict["weft"], len(self._buffers.groups)))

    def close(self) -> None:
        """Ends this rank's part. DDP must not call the hook any more."""
        objects, self._objects = self._objects, []
        with contextlib.ExitStack() as stack:  # all of them, whatever one raises
            for one in reversed(objects):
                stack.callback(one.close)


def comm_hook(state, bucket):  # DDP looks at annotations, and versions differ in which they take
    """The hook, for ``model.register_comm_hook(state, weft.torch.comm_hook)``."""
    return state._bucket(bucket)


def register_comm_hook(model: Any, name: str, context: Optional[Context] = None, **settings: Any) -> HookState:
    """Makes DDP average its gradients by weft. Collective, blocking.

    Parameters
    ----------
    model : torch.nn.parallel.DistributedDataParallel
    name : {"merged", "gtopk", "gtopk-butterfly", "topk", "oktopk", "gradiveq", "qsgd", "powersgd"}
        "merged": dense, layers merged by measured costs (MG-WFBP).
    context : Context, optional
    **settings
        Of "gtopk" and its like: of :class:`weft.SparseAverage` (``density``, ``momentum`` ...); of
        compressions: of :class:`weft.CompressedAverage` (``powersgd={"rank": 4}`` ...); of "merged": of
        :class:`weft.Gradients`.

    Returns
    -------
    HookState
        For statistics and checkpoints.
    """
    if not isinstance(model, DistributedDataParallel):
        raise InvalidError("model is a %s, expected a DistributedDataParallel" % type(model).__name__)
    if name in _SPARSE:
        state = HookState(model, context, method="sparse", sparse=dict(settings, method=_SPARSE[name]))
    elif name in _COMPRESSED:
        state = HookState(model, context, method="compressed", compressed=dict(settings, method=name))
    elif name == "merged":
        state = HookState(model, context, **settings)
    else:
        raise InvalidError("name is %r, expected one of %s" % (name, ", ".join(HOOKS)))
    try:
        model.register_comm_hook(state, comm_hook)
    except BaseException:  # there is one already
        state.close()
        raise
    return state

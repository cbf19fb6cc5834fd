# SPDX-License-Identifier: BSD-3-Clause
"""What the modules of weft.torch share: contexts, and parameters and gradients as lists of tensors."""
import os
from typing import Any, Iterable, List, Optional, Sequence, Tuple

import numpy
import torch

from ..context import Context
from ..errors import InvalidError, UnsupportedError

#: Variables by which launchers of MPI tell a process its rank.
_MPI_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


def context(transport: Optional[str] = None, *, group: Any = None, **settings: Any) -> Context:
    """The context of this process among those that train together. Collective, blocking.

    Parameters
    ----------
    transport : {"shared", "mpi"}, optional
        Default: that of the launcher. The ranks are those of ``torch.distributed`` if that has been
        initialised (all on one machine), else of mpiexec, of torchrun or ``weft launch``; one alone without.
    group : ProcessGroup, optional
        Of ``torch.distributed``: the ranks are its members. Default: all. The context of a group of the
        backend ``weft`` is a part of the group's, and ends with it.
    **settings
        Of :class:`weft.Context`. ``progress`` is "helper" here, so that late ranks take part.

    Returns
    -------
    Context
    """
    settings.setdefault("progress", "helper")
    distributed = torch.distributed
    if transport in (None, "shared") and distributed.is_available() and distributed.is_initialized():
        from .backend import ProcessGroupWeft, context_of

        rank, size = distributed.get_rank(group), distributed.get_world_size(group)
        if rank < 0:
            raise InvalidError("this process is no member of the group")
        if isinstance(group or distributed.distributed_c10d._get_default_group(), ProcessGroupWeft):
            if settings != {"progress": "helper"}:
                raise InvalidError("settings are %r, expected none: the context is a part of that of the group, "
                                   "which is of the backend weft" % settings)
            return context_of(group).split(0)

        def gather(mine: bytes) -> List[bytes]:
            parts: List[Any] = [None] * size
            distributed.all_gather_object(parts, mine, group=group)
            return parts

        return Context.shared(rank, size, gather=gather, **settings)
    if group is not None:
        raise InvalidError("group is of torch.distributed, which has not been initialised or is not used, with "
                           "transport=%r" % transport)
    if transport is None and any(name in os.environ for name in _MPI_RANKS) and "RANK" not in os.environ:
        transport = "mpi"
    return Context.world(transport or "shared", **settings)


def parameters_of(thing: Any) -> List[torch.Tensor]:
    """The tensors of a module (parameters and buffers), of an optimizer, or of an iterable."""
    if isinstance(thing, torch.nn.Module):
        return list(thing.parameters()) + list(thing.buffers())
    if isinstance(thing, torch.optim.Optimizer):
        return [parameter for group in thing.param_groups for parameter in group["params"]]
    if isinstance(thing, dict):
        return [tensor for tensor in thing.values() if isinstance(tensor, torch.Tensor)]
    tensors = list(thing)
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise InvalidError("tensors[%d] is a %s, expected a tensor" % (i, type(tensor).__name__))
    return tensors


def by_dtype(tensors: Iterable[torch.Tensor]) -> List[Tuple[torch.dtype, List[torch.Tensor]]]:
    """Tensors by datatype, in the order in which datatypes appear; each tensor once."""
    groups: dict = {}
    seen = set()
    for tensor in tensors:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            groups.setdefault(tensor.dtype, []).append(tensor)
    return list(groups.items())


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _unflat(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    offset = 0
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(flat[offset:offset + tensor.numel()].view(tensor.shape))
            offset += tensor.numel()


def broadcast_parameters(thing: Any, context: Context, root: int = 0) -> None:
    """Gives all ranks the root's tensors. Collective, blocking.

    Parameters
    ----------
    thing : torch.nn.Module, torch.optim.Optimizer, dict of str to tensor, or iterable of tensors
        Of a module parameters and buffers. Of the same shapes on all ranks; written in place.
    context : Context
    root : int
    """
    for _, tensors in by_dtype(parameters_of(thing)):
        flat = _flat(tensors)
        context.broadcast(flat.view(torch.uint8), root)
        if context.rank != root:
            _unflat(flat, tensors)


def average_parameters(thing: Any, context: Context) -> None:
    """Replaces tensors by their mean over all ranks, for an evaluation or at the end of a training.
    Collective, blocking.

    Parameters
    ----------
    thing
        As of :func:`broadcast_parameters`. Tensors of whole numbers (counters) become rank 0's. f16 and bf16
        are summed in f32.
    context : Context
    """
    for dtype, tensors in by_dtype(parameters_of(thing)):
        if not (dtype.is_floating_point or dtype.is_complex):
            broadcast_parameters(tensors, context)
            continue
        flat = _flat(tensors)
        parts = torch.view_as_real(flat) if dtype.is_complex else flat
        wide = parts.float() if parts.element_size() < 4 else parts
        context.allreduce(wide)
        parts.copy_(wide.div_(context.size))
        _unflat(flat, tensors)


# ---- states ----


def to_tensors(state: Any) -> Any:
    """The state of an object of weft with tensors in the place of arrays, which ``torch.load`` takes with
    ``weights_only=True`` (torch's default from 2.6 on). Whole numbers of 64 bits are signed then."""
    if isinstance(state, dict):
        return {name: to_tensors(value) for name, value in state.items()}
    if isinstance(state, numpy.ndarray):
        return torch.from_numpy(state.view("i8") if state.dtype == numpy.dtype("u8") else state)
    return state


def from_tensors(state: Any) -> Any:
    """What :func:`to_tensors` was given."""
    if isinstance(state, dict):
        return {name: from_tensors(value) for name, value in state.items()}
    if isinstance(state, torch.Tensor):
        array = state.detach().cpu().numpy()
        return array.view("u8") if array.dtype == numpy.dtype("i8") else array
    return state


def states_of(given: Any, count: int) -> List[Any]:
    """The states of `count` objects in a checkpoint.

    Raises
    ------
    InvalidError
        It has another number of them: of a model that has other datatypes.
    """
    if not isinstance(given, (list, tuple)) or len(given) != count:
        raise InvalidError("the state has %s, expected the states of %d averages, one a datatype of the model"
                           % ("%d states" % len(given) if isinstance(given, (list, tuple)) else repr(given),
                              count))
    return [from_tensors(state) for state in given]


# ---- gradients ----


class GradientBuffers:
    """Memory for the gradients of parameters that stays where it is, whatever ``zero_grad`` does.

    Gradients are views of it once :meth:`give` has been called, so that as long as they are zeroed and not
    dropped (``zero_grad(set_to_none=False)``) nothing is copied.

    Attributes
    ----------
    groups : list of (dtype, list of parameters, list of views)
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.groups = []
        self.view = {}
        for dtype, members in by_dtype(parameters):
            for member in members:
                if member.device.type != "cpu":
                    raise UnsupportedError("a parameter is on %s, expected the processor's memory"
                                           % member.device)
            flat = torch.zeros(sum(member.numel() for member in members), dtype=dtype, device="cpu")
            views, offset = [], 0
            for member in members:
                # In the order of the parameter's memory (channels last), and counting its own changes.
                view = flat[offset:offset + member.numel()].as_strided(
                    member.shape, torch.empty_like(member).stride()).data
                offset += member.numel()
                views.append(view)
                self.view[id(member)] = view
            self.groups.append((dtype, members, views))

    def take(self, parameter: torch.Tensor) -> bool:
        """Brings a parameter's gradient in; False, and zeros, if it has none."""
        view = self.view[id(parameter)]
        gradient = parameter.grad
        if gradient is None:
            view.zero_()
            return False
        if gradient.layout is not torch.strided:  # of an embedding, say
            gradient = gradient.to_dense()
        if gradient.data_ptr() != view.data_ptr():
            view.copy_(gradient)
        return True

    def collect(self) -> None:
        """Brings all gradients in."""
        with torch.no_grad():
            for _, members, _ in self.groups:
                for member in members:
                    self.take(member)

    def give(self) -> None:
        """Makes what is here the parameters' gradients."""
        for _, members, views in self.groups:
            for member, view in zip(members, views):
                if member.grad is not view:
                    member.grad = view

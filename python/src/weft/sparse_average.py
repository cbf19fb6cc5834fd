# SPDX-License-Identifier: BSD-3-Clause
"""Sparse averaging of gradients: every rank sends the few entries of largest magnitude, and keeps the others
for the steps to come.

>>> average = weft.SparseAverage(context, gradients, method="oktopk", density=0.01)
>>> average.step()                           # gradients: the sparse mean
>>> average.post(); average.wait(); average.apply(-rate, weights)    # the same, added to the weights
"""
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy

from . import _objects, _structs
from ._library import ffi, lib
from .buffers import buffer, view
from .errors import InvalidError

__all__ = ["SparseAverage"]

_POSITIVE = ("density", "k", "threshold_steps", "balance_steps")


def settings_struct(settings: Dict[str, Any], who: str) -> _structs.Struct:
    """weft_sparse_average_config of settings, with `warmup` as a list."""
    settings = dict(settings)
    _objects.refuse_zeros(who, settings, _POSITIVE)
    warmup = settings.pop("warmup", None)
    struct = _structs.Struct("weft_sparse_average_config", settings, who)
    if warmup is not None:
        densities = ffi.new("double[]", [float(density) for density in warmup])
        struct.keep.append(densities)
        struct.c.warmup, struct.c.warmup_count = densities, len(densities)
    return struct


class _Watch(_objects.Watch):
    """`posted` is the set of tensors, and `None` for a step."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.posted = set()


class SparseAverage(_objects.Object):
    """The average of gradients, of which each rank sends the entries of largest magnitude.

    A step, for gradient g, residual v and the velocity u of momentum correction::

        accumulate    u = m u + g, v = v + u          (m = 0: v = v + g)
        select        s = the k entries of v of largest magnitude; v = 0 and u = 0 there
        aggregate     S = the sparse sum of s over all ranks, the same bits on all of them
        keep          what S does not have goes back to residuals
        apply         W = W + scale S / ranks

    All ranks take the same number of steps. Creation is collective over the context, and blocking. An object
    is used by one thread at a time, but for :meth:`fail`.

    Source: gTop-k and top-k: Shi, Wang, Zhao, Tang, Wang, Tan, Chu (ICDCS 2019), Algorithms 4 and 1; Ok-Topk:
    Li, Hoefler (PPoPP 2022), section 3; momentum, clipping, warm-up: Lin, Han, Mao, Wang, Dally, "Deep
    Gradient Compression" (ICLR 2018), Algorithms 2 and 4.

    Parameters
    ----------
    context : Context
    tensors : sequence of array_like
        The gradients: of one datatype (f32, f16 or bf16), the same sizes on all ranks, contiguous; all of the
        host, or all of a device. Used until the object is closed.
    method : {"gtopk", "gtopk-butterfly", "allgather", "oktopk"}, optional
        How lists become a sum.
    scope : {"model", "tensor"}, optional
        Among what the largest are looked for: the whole model, or each tensor for itself.
    residual : {"conserving", "paper"}, optional
        What becomes of pairs that merges drop: who drops one keeps it, so that nothing is lost; or as
        Algorithm 4, line 10.
    density : float, optional
        The share of elements that a rank selects. Default: 0.001.
    k : int, optional
        So many pairs instead (of each tensor with ``scope="tensor"``).
    warmup_steps : int, optional
        Each density of `warmup` holds for so many steps at the beginning. Default: 0, no warm-up.
    warmup : sequence of float, optional
        Default: 0.25, 0.0725, 0.015, 0.004 (gTop-k, section IV-B).
    threshold_steps, balance_steps : int, optional
        Ok-Topk: how often thresholds and regions are found anew. Default: 32, 64.
    momentum : float, optional
        m of momentum correction, 0 .. 1. Default: 0, none.
    clip_norm : float, optional
        Gradients are scaled down to an L2 norm of clip_norm / sqrt(ranks). Default: 0, they are not.
    nan : {"error", "zero"}, optional
        What becomes of NaNs and infinities: the gradient counts as zero, with an error; or those elements do.
    threads : int, optional
        That a large selection may use.
    meet : float, optional
        How long the creation waits for the other ranks, in seconds. Default: for ever.
    leave : float, optional
        How long :meth:`close` waits for the end of a posted step, in seconds. Default: 60.
    deadline : float, optional
        How long steps and waits wait, in seconds, where they are not told. Default: for ever. It is looked
        at every 0.2 s.
    state : dict, optional
        Of :meth:`state`.

    Raises
    ------
    InvalidError
        A setting is wrong, or ranks do not agree: the text names it.
    UnsupportedError
        The datatype, or more than 2^32 elements to select from.
    PeerError
        Another rank has failed.
    """

    _prefix = "weft_sparse_average"
    _what = "the sparse average"
    _arrays = {"residual": _objects.Array("f4", "elements"), "velocity": _objects.Array("f4", "elements"),
               "regions": _objects.Array("u8", "region_count"),
               "unsent": _objects.Array("f4", "elements")}

    def __init__(self, context: Any, tensors: Sequence[Any], *, method: Optional[str] = None,
                 scope: Optional[str] = None, residual: Optional[str] = None,
                 density: Optional[float] = None, k: Optional[int] = None,
                 warmup_steps: Optional[int] = None, warmup: Optional[Sequence[float]] = None,
                 threshold_steps: Optional[int] = None, balance_steps: Optional[int] = None,
                 momentum: Optional[float] = None, clip_norm: Optional[float] = None,
                 nan: Optional[str] = None, threads: Optional[int] = None, meet: Optional[float] = None,
                 leave: Optional[float] = None, deadline: Optional[float] = None,
                 state: Optional[Dict[str, Any]] = None) -> None:
        array, count, dtype, found = _objects.tensors_of(tensors, "SparseAverage")
        sizes = self._sizes(found)
        config = settings_struct(dict(
            method=method, scope=scope, residual=residual, density=density, k=k, warmup_steps=warmup_steps,
            warmup=warmup, threshold_steps=threshold_steps, balance_steps=balance_steps, momentum=momentum,
            clip_norm=clip_norm, nan=nan, threads=threads, meet=meet, leave=leave, dtype=dtype,
            tensor_count=count, memory="device" if sizes.device else None), "SparseAverage")
        config.c.tensors = array
        # What a state has is copied to the host, whatever the memory is.
        self._create(context, config, (array, found), sizes._replace(device=False), deadline, state)
        self._counts = [item.count for item in found]

    def _new_watch(self) -> _objects.Watch:
        return _Watch()

    def _result(self) -> Any:
        return _structs.new("weft_sparse_average_result")

    def _advanced(self, what: Any, begin: Any, again: Any, timeout: Optional[float], result: Any) -> Any:
        posted = self._watch.posted
        known = set(posted)
        posted.add(what)
        status = self._until(begin, again, timeout)
        if status in (lib.WEFT_ERR_STATE, lib.WEFT_ERR_INVALID):
            self._watch.posted = known
        elif what is None:
            posted.clear()
        else:
            posted.discard(what)
        self._require(status)
        return _structs.read("weft_sparse_average_result", result)

    def step(self, timeout: Optional[float] = None) -> Any:
        """One step, in place: the tensors become S / ranks, zero where S has no pair.

        Blocks until all ranks have got as far.

        Parameters
        ----------
        timeout : float, optional
            Seconds; then :meth:`wait` ends the step. Default: the object's deadline.

        Returns
        -------
        named tuple
            ``version`` (the step), ``density``, ``k`` (pairs that a rank could select), ``selected`` (that
            this one has), ``pairs`` (in the sum).

        Raises
        ------
        ComputeError
            This rank's gradient had NaNs or infinities; the step was taken, with a gradient of zero.
        TimeoutError
            The text says who is missing.
        StateError
            A posted step has not been waited for.
        PeerError
            Another rank has failed, or has ended before; from then on always.
        """
        c = self._result()
        return self._advanced(None, lambda pointer: lib.weft_sparse_average_step(pointer, c),
                              lambda pointer: lib.weft_sparse_average_wait(pointer, c), timeout, c)

    def post(self) -> None:
        """The first half of a step: accumulates, selects, and starts the aggregation; does not wait. From
        its return on the gradients may be overwritten."""
        self._check(lib.weft_sparse_average_post)
        self._watch.posted.add(None)

    def wait(self, timeout: Optional[float] = None) -> Any:
        """The second half: waits for what has been posted. The sum is there, for :meth:`apply` or
        :meth:`pairs`; the gradients are not touched. Returns, and raises, as :meth:`step`."""
        c = self._result()

        def function(pointer: Any) -> int:
            return lib.weft_sparse_average_wait(pointer, c)

        return self._advanced(None, function, function, timeout, c)

    def post_tensor(self, tensor: int) -> None:
        """:meth:`post` of one tensor, with ``scope="tensor"``, in any order.

        Parameters
        ----------
        tensor : int
            Its position among the tensors.
        """
        self._check(lib.weft_sparse_average_post_tensor, _objects.position(tensor))
        self._watch.posted.add(tensor)

    def wait_tensor(self, tensor: int, timeout: Optional[float] = None) -> Any:
        """:meth:`wait` for one tensor."""
        c, number = self._result(), _objects.position(tensor)

        def function(pointer: Any) -> int:
            return lib.weft_sparse_average_wait_tensor(pointer, number, c)

        return self._advanced(tensor, function, function, timeout, c)

    def pairs(self, tensor: int = 0) -> Tuple[numpy.ndarray, numpy.ndarray]:
        """The sum S of the last step, not yet divided by the number of ranks.

        Parameters
        ----------
        tensor : int
            With ``scope="tensor"``; else 0.

        Returns
        -------
        indices : numpy.ndarray
            u32, ascending; from the first element of the tensor, or of the model. A copy.
        values : numpy.ndarray
            f32. A copy.

        Raises
        ------
        StateError
            There has been no step, or it has not been waited for.
        """
        number = _objects.position(tensor)

        def copied(pointer: Any) -> Tuple[numpy.ndarray, numpy.ndarray]:
            pairs = ffi.new("struct weft_sparse *")
            self._require(lib.weft_sparse_average_get_pairs(pointer, number, pairs))
            return (view(pairs.indices, pairs.count, pairs.index_dtype).copy(),
                    view(pairs.values, pairs.count, pairs.dtype).copy())

        return self._call(copied)

    def apply(self, scale: float, tensors: Sequence[Any]) -> None:
        """``tensors += scale * S / ranks``, of the last step: the sparse update of a model.

        Parameters
        ----------
        scale : float
            Minus the learning rate, say.
        tensors : sequence of array_like
            As many elements as the gradients, of f16, bf16, f32 or f64; of the same side (host, device).
        """
        array, count, dtype, found = _objects.tensors_of(tensors, "SparseAverage.apply")
        dtype = lib.WEFT_F32 if dtype is None else dtype
        self._check(lib.weft_sparse_average_apply, scale, dtype, array, count)

    def apply_tensor(self, tensor: int, scale: float, data: Any) -> None:
        """:meth:`apply` of one tensor, with ``scope="tensor"``."""
        number = _objects.position(tensor)
        found = buffer(data, "SparseAverage.apply_tensor: data", True, True)
        if number < len(self._counts) and found.count != self._counts[number]:
            raise InvalidError("SparseAverage.apply_tensor: data has %d elements, expected %d" % (
                found.count, self._counts[number]))
        self._check(lib.weft_sparse_average_apply_tensor, number, scale, found.dtype, found.address)

    def density(self, step: Optional[int] = None) -> float:
        """The density of a step, by default of the step to come."""
        return self._call(lib.weft_sparse_average_density, self.next if step is None else step)

    @property
    def residual_norm(self) -> float:
        """The L2 norm of this rank's residual. Reads it; not while something is posted."""
        norm = ffi.new("double *")
        self._check(lib.weft_sparse_average_residual_norm, norm)
        return norm[0]

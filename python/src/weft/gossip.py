# SPDX-License-Identifier: BSD-3-Clause
"""Gossip: ranks average their models with a few neighbours instead of with everybody.

=====================================  ==================================================================
``Gossip``, ring                       D-PSGD: Lian, Zhang, Zhang, Hsieh, Zhang, Liu (NeurIPS 2017),
                                       Algorithm 1
``Gossip``, exponential                SGP: Assran, Loizou, Ballas, Rabbat (ICML 2019), Algorithm 1,
                                       Appendix A
``PairAverage``                        AD-PSGD: Lian, Zhang, Zhang, Liu (ICML 2018), Algorithm 1
=====================================  ==================================================================
"""
from typing import Any, Dict, List, Optional, Sequence

from . import _enums, _objects, _structs
from ._library import ffi, lib
from .errors import InvalidError, check

__all__ = ["Gossip", "PairAverage", "gossip_hops"]


def gossip_hops(graph: str, ranks: int, neighbours: int, version: int) -> List[int]:
    """The hops of a version: rank r sends to r + hop, and receives from r - hop, modulo the ranks.

    Parameters
    ----------
    graph : {"ring", "exponential"}
        1, -1, 2, -2 ...; or j (n + 1)^i for j = 1 .. n with n neighbours and i = version modulo the number
        of powers of n + 1 below the ranks.
    ranks, neighbours, version : int

    Returns
    -------
    list of int
        1 .. ranks - 1 each, no two alike; fewer than `neighbours` where the ranks do not suffice.
    """
    if neighbours < 0:
        raise InvalidError("gossip_hops: neighbours is %d, expected 0 or more" % neighbours)
    hops = ffi.new("int[]", max(min(neighbours, max(ranks, 1)), 1))
    count = check(lib.weft_gossip_hops(_enums.number("weft_gossip_graph_t", graph, "gossip_hops: graph"),
                                       ranks, min(neighbours, len(hops)) if ranks > 0 else neighbours,
                                       version, hops))
    return [hops[i] for i in range(count)]


class _Models(_objects.Object):
    """What both have in common: f32 or f64 models of the host."""

    def _make(self, context: Any, tensors: Sequence[Any], settings: Dict[str, Any],
              deadline: Optional[float], state: Any) -> None:
        who = type(self).__name__
        array, count, dtype, found = _objects.tensors_of(tensors, who)
        _objects.refuse_device(who, found)
        config = _structs.Struct(self._prefix + "_config", dict(settings, dtype=dtype, tensor_count=count),
                                 who)
        config.c.tensors = array
        self._create(context, config, (array, found), self._sizes(found), deadline, state)

    def step(self, timeout: Optional[float] = None) -> None:
        self._advance(self._function("step"), self._function("wait"), timeout)

    def post(self) -> None:
        self._post()

    def wait(self, timeout: Optional[float] = None) -> None:
        self._advance(self._function("wait"), self._function("wait"), timeout)


class Gossip(_Models):
    """The average of models with neighbours, who are waited for.

    All ranks take the same number of steps. Creation is collective over the context, and blocking. An object
    is used by one thread at a time, but for :meth:`fail`.

    Parameters
    ----------
    context : Context
    tensors : sequence of array_like
        The model: f32 or f64, the same sizes on all ranks, contiguous, of the host. Averaged in place, and
        used until the object is closed.
    graph : {"ring", "exponential"}, optional
        To whom a rank sends: see :func:`gossip_hops`.
    neighbours : int, optional
        Default: 2 on the ring, else 1. More than there are ranks means all.
    weight : float, optional
        What this rank counts, for example its number of samples. Default: 1; ranks may differ. Each step
        keeps the sum of weight * model over all ranks.
    initial : {"same", "broadcast", "any"}, optional
        What the models are: the same on all ranks, which is checked; those of rank 0, for all; or any.
    nan : {"error", "spread"}, optional
        Whether a model with NaNs or infinities is refused, or they are not looked for.
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
        The datatype.
    PeerError
        Another rank has failed.
    """

    _prefix = "weft_gossip"
    _what = "the gossip"

    def __init__(self, context: Any, tensors: Sequence[Any], *, graph: Optional[str] = None,
                 neighbours: Optional[int] = None, weight: Optional[float] = None,
                 initial: Optional[str] = None, nan: Optional[str] = None, meet: Optional[float] = None,
                 leave: Optional[float] = None, deadline: Optional[float] = None,
                 state: Optional[Dict[str, Any]] = None) -> None:
        settings = dict(graph=graph, neighbours=neighbours, weight=weight, initial=initial, nan=nan,
                        meet=meet, leave=leave)
        _objects.refuse_zeros("Gossip", settings, ("neighbours", "weight"))
        self._make(context, tensors, settings, deadline, state)

    def step(self, timeout: Optional[float] = None) -> None:
        """One step, in place. Of this rank's model z and those z_j of the n ranks from whom it receives::

            z <- z + sum_j s_j (z_j - z)

        with s_j = 1 / (n + 1) where weights are equal (else Metropolis-Hastings weights on the ring, push-sum
        shares elsewhere). Blocks until the neighbours have got as far.

        Parameters
        ----------
        timeout : float, optional
            Seconds; then :meth:`wait` ends the step. Default: the object's deadline.

        Raises
        ------
        ComputeError
            The model has NaNs or infinities; nothing has been sent, and no step taken.
        TimeoutError
            The text says who is missing.
        StateError
            A posted step has not been waited for.
        PeerError
            Another rank has failed, or has ended before; from then on always.
        """
        super().step(timeout)

    def post(self) -> None:
        """The first half of a step: copies the model and sends it; does not block. Until :meth:`wait` the
        tensors may be changed."""
        super().post()

    def wait(self, timeout: Optional[float] = None) -> None:
        """The second half: waits, and adds average - posted to the tensors, so that what was done to them
        in between is kept. Raises as :meth:`step`."""
        super().wait(timeout)


class PairAverage(_Models):
    """The average of models in pairs: nobody waits for a rank that computes.

    Even ranks begin exchanges with odd ones that are drawn, whose helpers answer; ranks may take different
    numbers of steps. Creation is collective over the context, and blocking. An object is used by one thread
    at a time, but for :meth:`fail`.

    Parameters
    ----------
    context : Context
        With helper progress.
    tensors : sequence of array_like
        As of :class:`Gossip`.
    seed : int, optional
        Of the draw of partners; the same on all ranks.
    initial, nan, meet, deadline, state : optional
        As of :class:`Gossip`.
    leave : float, optional
        How long a rank that has closed its object answers the others while none of them asks, in seconds.
        Default: 60.
    """

    _prefix = "weft_pair_average"
    _what = "the pair average"
    _leaves = True

    def __init__(self, context: Any, tensors: Sequence[Any], *, seed: Optional[int] = None,
                 initial: Optional[str] = None, nan: Optional[str] = None, meet: Optional[float] = None,
                 leave: Optional[float] = None, deadline: Optional[float] = None,
                 state: Optional[Dict[str, Any]] = None) -> None:
        self._make(context, tensors, dict(seed=seed, initial=initial, nan=nan, meet=meet, leave=leave),
                   deadline, state)

    @staticmethod
    def partner(seed: int, ranks: int, rank: int, step: int) -> Optional[int]:
        """With whom an even rank exchanges in a step: an odd rank. None for odd ranks, and for one alone."""
        found = lib.weft_pair_average_partner(seed, ranks, rank, step)
        return None if found < 0 else found

    def step(self, timeout: Optional[float] = None) -> None:
        """One step, in place. An even rank i exchanges with the odd rank j that is drawn for it::

            d = (W_i - W_j) / 2        W_i <- W_i - d        W_j <- W_j + d

        An odd rank takes over what exchanges have added since its last step. Blocks for communication only.

        Parameters
        ----------
        timeout : float, optional
            Seconds; then :meth:`wait` ends the step. Default: the object's deadline.

        Raises
        ------
        ComputeError
            The model has NaNs or infinities; no step was taken, and others go on with the model before.
        TimeoutError
            The text names the partner.
        StateError
            A posted step has not been waited for, or a synchronisation not been ended.
        PeerError
            Another rank has failed; from then on always.
        """
        super().step(timeout)

    def post(self) -> None:
        """The first half of a step: copies the model and begins the exchange. Until :meth:`wait` the tensors
        may be changed."""
        super().post()

    def wait(self, timeout: Optional[float] = None) -> None:
        """The second half: waits, and adds what the exchange has brought. Raises as :meth:`step`."""
        super().wait(timeout)

    def synchronise(self, timeout: Optional[float] = None) -> None:
        """The mean over all ranks, in place, bit for bit the same on all. Collective, blocking.

        Parameters
        ----------
        timeout : float, optional
            Seconds; then the next call goes on waiting, and until one has ended it no step can be begun.
            Default: the object's deadline.

        Raises
        ------
        TimeoutError
            The text has the ranks that are missing.
        ComputeError, StateError, PeerError
            As :meth:`step`.
        """
        self._require(self._until(lib.weft_pair_average_synchronise, lib.weft_pair_average_synchronise,
                                  timeout))

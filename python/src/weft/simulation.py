# SPDX-License-Identifier: BSD-3-Clause
"""Simulation: what schedules cost on a network that need not exist (LogGOPS; docs/simulation.md).

>>> weft.sim("allreduce", 64, algo="ring", count=2**20, net="L=3,G=0.0001").time_us
1203.7536
"""
import os
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence

import numpy

from . import _enums, _life, _structs, _targets, costs, template
from ._library import ffi, lib, text
from .errors import InvalidError, check as require

if TYPE_CHECKING:
    from .tracing import Trace

__all__ = ["Result", "sim"]

#: Up to so many ranks the schedules of a template are kept, beyond they are built one by one.
KEPT = 4096

KEEP_NODES, EVERY_RANK = 1, -1  # as macros of C

_NODE = numpy.dtype({
    "names": [name for name, _ in ffi.typeof("struct weft_sim_node").fields],
    "formats": [{"double": "f8", "int": "i4", "int32_t": "i4"}[field.type.cname]
                for _, field in ffi.typeof("struct weft_sim_node").fields],
    "offsets": [field.offset for _, field in ffi.typeof("struct weft_sim_node").fields],
    "itemsize": ffi.sizeof("struct weft_sim_node")})

#: Columns of :attr:`Result.nodes`.
NODES = numpy.dtype([("rank", "i4"), ("node", "i4"), ("ready_us", "f8"), ("start_us", "f8"),
                     ("end_us", "f8"), ("peer", "i4"), ("peer_node", "i4"), ("retired", "?")])


class Result:
    """What came out of a simulation. Times are microseconds from its start.

    Attributes
    ----------
    title : str
    ranks : int
    time_us : float
        When the last rank had finished.
    rank_us : numpy.ndarray
        When each rank had finished.
    complete : bool
        Every node ended or was retired, and every message was received.
    faults : list of dict
        If not: each ``rank``, ``node`` (None: none in particular) and ``text``, beginning with a cycle
        of waits where there is one.
    critical_path : list of dict
        What led to the end, in the order of time: ``rank``, ``node``, ``kind``, ``start_us``, ``end_us``,
        ``after`` (what it had to wait for: "first", "order", "message", "processor", "link",
        "rendezvous", "time"), ``peer`` (None where there is none) and ``bytes``.
    node_count, stuck, messages, bytes, signals : int
        Nodes, those that never ended, messages and their bytes, signals.
    nodes : numpy.ndarray or None
        If they were kept: a record a node, with ``rank``, ``node``, ``ready_us``, ``start_us``,
        ``end_us`` (-1: it never came), ``peer``, ``peer_node`` (the other end of a message) and
        ``retired``.
    net : weft.costs.Net
    fabric : weft.costs.Fabric or None
    sent_bytes : int
        With a fabric: of messages and signals.
    levels, links : list of dict
        With a fabric: its dimensions or levels (``links``, ``bytes``, ``crossing_bytes``,
        ``utilisation``), and the busiest links (``from``, ``to``, ``level``, ``messages``, ``bytes``,
        ``utilisation``).
    schedules : list of Schedule or None
        What was simulated, if it is still there.
    """

    def __init__(self, c, title, net, fabric, schedules):
        self.title, self.net, self.fabric, self.schedules = title, net, fabric, schedules
        self.ranks, self.time_us, self.complete = c.ranks, c.time_us, bool(c.complete)
        self.rank_us = _array(c.rank_us, c.ranks, "f8")
        self.node_count, self.stuck = c.nodes, c.stuck
        self.messages, self.bytes, self.signals = c.messages, c.bytes, c.signals
        self.faults = [{"rank": fault.rank, "node": fault.node if fault.node >= 0 else None,
                        "text": text(fault.text)}
                       for fault in (c.faults[i] for i in range(c.fault_count))]
        self.critical_path = [_step(c.path[i]) for i in range(c.path_length)]
        self.sent_bytes = c.sent_bytes
        self.levels = [_members(c.levels[i]) for i in range(c.level_count)]
        self.links = [_members(c.links[i]) for i in range(c.link_count)]
        self.nodes = _nodes(c) if c.nodes_at else None

    def __repr__(self):
        return "<weft sim of %s: %d ranks, %s; %s messages, %s nodes; %s>" % (
            self.title, self.ranks, "%.6g us" % self.time_us if self.complete else
            "does not end (%d nodes are left)" % self.stuck, format(self.messages, ","),
            format(self.node_count, ","), self.net)

    def trace(self) -> "Trace":
        """What every node did as a :class:`weft.Trace`; only with `keep_nodes` and kept schedules."""
        from . import tracing

        self._needs_nodes()
        return tracing.of_simulation(self)

    def _needs_nodes(self):
        if self.nodes is None or self.schedules is None:
            raise InvalidError("the simulation has not kept its nodes and schedules: "
                               "sim(..., keep_nodes=True), on at most %d ranks of a template" % KEPT)

    def _repr_svg_(self):
        from . import draw

        return draw.simulation(self) if self.nodes is not None and self.schedules is not None else None


def _array(pointer, count, kind):
    if not count:
        return numpy.empty(0, kind)
    return numpy.frombuffer(ffi.buffer(pointer, count * numpy.dtype(kind).itemsize), kind).copy()


def _step(step):
    return {"rank": step.rank, "node": step.node, "kind": _enums.word("weft_node_kind_t", step.kind),
            "start_us": step.start_us, "end_us": step.end_us,
            "after": text(lib.weft_sim_reason_name(step.reason)),
            "peer": step.peer if step.peer >= 0 else None, "bytes": step.bytes}


def _members(c):
    return {name: _structs.value_of(field.type, name, getattr(c, name))
            for name, field in ffi.typeof(c).fields}


def _nodes(c):
    first = _array(c.first_node, c.ranks + 1, "u8").astype(numpy.int64)
    raw = _array(c.nodes_at, int(first[-1]), _NODE)
    nodes = numpy.empty(len(raw), NODES)
    for name in _NODE.names:
        nodes[name] = raw[name]
    counts = numpy.diff(first)
    nodes["rank"] = numpy.repeat(numpy.arange(c.ranks), counts)
    nodes["node"] = numpy.arange(len(raw)) - numpy.repeat(first[:-1], counts)
    return nodes


# ---- what is simulated ----


@_life.callback("weft_sim_build_fn", -12, "a schedule that is built")
def _build(user, rank, schedule):
    return _life.function_of(user)(rank, schedule)


class _Builder:
    """Schedules of a template, one rank after the other."""

    def __init__(self, name, n, parameters):
        self.params, self.ops = template._params(parameters, name)
        self.name, self.n = template._name(name), n
        self.stopped = False

    def __call__(self, rank, schedule):
        if self.stopped:
            return lib.WEFT_ERR_CANCELLED
        return lib.weft_template_build(self.name, rank, self.n, self.params.c, schedule)

    def stop(self, _):
        self.stopped = True

    def try_first(self):
        """What is wrong with the parameters is raised as such."""
        schedule = ffi.new("struct weft_schedule **")
        require(self(0, schedule))
        lib.weft_schedule_destroy(schedule[0])


def _rates(compute):
    """Microseconds a byte of reductions, copies and calls."""
    words = ("reduce", "copy", "call")
    if compute is None:
        return None
    if isinstance(compute, dict):
        for word in compute:
            if word not in words:
                raise InvalidError("sim: compute has %r, expected %s (costs of an operation are op_costs)"
                                   % (word, ", ".join(words)))
        return tuple(float(compute.get(word) or 0) for word in words)
    try:
        return float(compute), 0.0, float(compute)
    except (TypeError, ValueError):
        raise InvalidError("sim: compute is %r, expected microseconds a byte, or a dict of %s"
                           % (compute, ", ".join(words))) from None


class _Settings:
    """The weft_sim_config of what users say, and what it borrows."""

    def __init__(self, net, compute, fabric, transport):
        given, wired, model = costs.to_network(net, "sim")
        self.fabric = costs.Fabric.parse(fabric) if isinstance(fabric, str) else fabric or wired
        rates = _rates(compute)
        if model is None:
            model = costs.CostModel.default(transport)
        elif rates is None:
            rates = (model.gamma_us_per_byte, model.copy_us_per_byte, model.gamma_us_per_byte)
        self.net = given if given is not None else costs.Net(L=model.alpha_us, G=model.beta_us_per_byte)
        self.rates = rates or (0.0, 0.0, 0.0)
        typed = given is not None and not isinstance(net, costs.Costs)
        # Algorithms are chosen by the network that is simulated, as the command does it.
        self.model = costs.CostModel(
            alpha_us=self.net.L + 2 * self.net.o + (self.fabric.hop_us if self.fabric else 0),
            beta_us_per_byte=max(self.net.G, self.fabric.link_us_per_byte if self.fabric else 0),
            gamma_us_per_byte=self.rates[0], copy_us_per_byte=self.rates[1],
            segment_bytes=model.segment_bytes, cores=model.cores,
            switch_us=model.switch_us) if typed else model

    def struct(self, n, links, threads, keep_nodes, activators):
        fabric = self.fabric
        if fabric is not None and not fabric.link_us_per_byte:
            fabric = fabric._replace(link_us_per_byte=self.net.G)
        activators = None if activators is None else [int(rank) for rank in activators]
        for rank in activators or ():
            if not 0 <= rank < n:
                raise InvalidError("sim: activators has %d, expected ranks from 0 to %d" % (rank, n - 1))
        return _structs.Struct("weft_sim_config", {
            "ranks": n, "net": self.net._struct(), "fabric": fabric._struct() if fabric else None,
            "reduce_us_per_byte": self.rates[0], "copy_us_per_byte": self.rates[1],
            "compute_us_per_byte": self.rates[2], "links": links,
            "threads": threads or min(os.cpu_count() or 1, 64), "flags": KEEP_NODES * bool(keep_nodes),
            "activators": activators, "activator_count": len(activators or ())}, "sim")


def _firings(firings, struct):
    if firings is None:
        return
    if isinstance(firings, dict):
        firings = [(key[0], us, key[1]) if isinstance(key, tuple) else (key, us)
                   for key, us in firings.items()]
    else:
        firings = list(firings)
    array = ffi.new("struct weft_sim_firing[]", max(len(firings), 1))
    for item, entry in zip(array, firings):
        try:
            event, us, rank = (tuple(entry) + (None,))[:3]
            item.rank = EVERY_RANK if rank is None else rank
            item.us = us
            if isinstance(event, str):
                struct.keep.append(ffi.new("char[]", event.encode()))
                item.label = struct.keep[-1]
            else:
                item.event = int(event)
        except (TypeError, ValueError):
            raise InvalidError("sim: firings has %r, expected (label or node of an event, microseconds) or "
                               "that and a rank" % (entry,)) from None
    struct.keep.append(array)
    struct.c.firings, struct.c.firing_count = array, len(firings)


def _op_costs(op_costs, struct):
    if not op_costs:
        return
    array = ffi.new("struct weft_sim_op_cost[]", len(op_costs))
    for item, (name, rates) in zip(array, op_costs.items()):
        struct.keep.append(ffi.new("char[]", name.encode()))
        item.op = struct.keep[-1]
        try:
            rates = tuple(rates) if isinstance(rates, (tuple, list)) else (rates,)
            item.written_us_per_byte, item.read_us_per_byte, item.product_us = (rates + (0, 0))[:3]
        except (TypeError, ValueError):
            raise InvalidError("sim: op_costs[%r] is %r, expected microseconds a byte written, or that and "
                               "those a byte read and a multiply-add" % (name, rates)) from None
    struct.keep.append(array)
    struct.c.op_costs, struct.c.op_cost_count = array, len(op_costs)


def sim(target: "_targets.Target", n: Optional[int] = None, *, net: Any = None, compute: Any = None,
        op_costs: Optional[Dict[str, Any]] = None, keep_nodes: bool = False, firings: Any = None,
        activators: Optional[Sequence[int]] = None, fabric: Any = None, links: Optional[int] = None,
        loggopsim: bool = False, transport: str = "local", threads: Optional[int] = None,
        ops: Sequence[Any] = (), parameters: Optional[dict] = None, **more: Any) -> Result:
    """Simulates one run of schedules, all ranks starting at time 0, without payloads. Deterministic.

    Parameters
    ----------
    target : sequence of Schedule, str or path
        The schedules of all ranks; the name of a template; or a file.
    n : int, optional
        Ranks, of a template (default 4) or a file of any size. Of templates on more than 4096 ranks one
        schedule is there at a time, so hundreds of thousands fit.
    net : str, dict, weft.costs.Net or weft.costs.Costs, optional
        ``"L=1.5,o=0.1,G=0.0004"``: microseconds, and microseconds a byte; with ``torus=8x8`` or
        ``fat-tree=16x16`` messages share links. What :func:`weft.costs.read` returns gives the costs of
        computing, too. Default: of `transport`.
    compute : float or dict, optional
        Microseconds a byte of reductions and calls, or ``{"reduce": .., "copy": .., "call": ..}``.
    op_costs : dict, optional
        {beginning of the name of an operation: microseconds a byte written, or (that, a byte read, a
        multiply-add)}.
    keep_nodes : bool
        Keep what every node did: for :attr:`Result.nodes`, pictures and traces.
    firings : dict or sequence of tuple, optional
        When the application fires events: {label or node: microseconds}, on one rank
        {(label or node, rank): microseconds}; or pairs and triples (label or node, microseconds, rank).
    activators : sequence of int, optional
        Ranks whose application fires its events at time 0. Default: rank 0.
    fabric : weft.costs.Fabric or str, optional
        How hosts are wired, if `net` does not say it.
    links : int, optional
        So many of the busiest links are told of. Default: 8.
    loggopsim : bool
        The times of LogGOPSim, to the letter.
    transport : str
        Whose costs make the network, if there is no `net`.
    threads : int, optional
        That build schedules one by one. Default: the cores.
    ops : sequence of Op
        Operations of the user that a file may name.
    parameters : dict, optional
        As `more`, for names that are arguments here.
    **more
        Parameters of the template (``algo="ring"``, ``count=1000``), or that the file declares. Without
        `algo` and `cost` the algorithm is chosen by the network that is simulated.

    Returns
    -------
    Result
        Also of schedules that do not end: ``complete`` is False then.

    Raises
    ------
    InvalidError
        An argument, or schedules that do not fit together; the text says which.
    """
    given = dict(parameters or {}, **more)
    settings = _Settings(net, compute, fabric, transport)
    if loggopsim:
        settings.net = settings.net._replace(loggopsim=True)
    is_template = _targets.is_template(target)
    if is_template and given.get("cost") is None:
        given["cost"] = settings.model
    builder = None
    if is_template and n is not None and n > KEPT:
        builder, schedules, title = _Builder(target, n, _targets.with_defaults(given)), None, target
        builder.try_first()
    else:
        schedules, title = _targets.schedules_of(target, n, ops, given, "sim")
        n = schedules[0].size
        schedules = _in_order(schedules, n)
    struct = settings.struct(n, links, threads, keep_nodes, activators)
    _firings(firings, struct)
    _op_costs(op_costs, struct)
    return _simulate(struct, builder, schedules, title, settings)


def _in_order(schedules, n):
    by_rank = {one.rank: one for one in schedules}
    if len(by_rank) != n or len(schedules) != n:
        raise InvalidError("sim: there are schedules of %d of %d ranks, expected one for each rank"
                           % (len(by_rank), n))
    return [by_rank[rank] for rank in range(n)]


def _simulate(struct, builder, schedules, title, settings):
    pointer = ffi.new("struct weft_sim_result **")
    stop = None
    if builder is not None:
        function, stop = _life.Function(builder), builder.stop
        struct.c.build, struct.c.user = _build, function.user
        struct.keep.append(function)
    else:
        array = ffi.new("struct weft_schedule *[]", [one._c() for one in schedules])
        struct.keep += [array, schedules]
        struct.c.schedules = array
    # Ctrl-C stops the building of schedules; a simulation without that is left to its thread.
    _life.interruptible(lambda keep=struct: lib.weft_simulate(keep.c, pointer), stop,
                        undo=lambda: lib.weft_sim_result_destroy(pointer[0]))
    try:
        return Result(pointer[0], title, settings.net, settings.fabric, schedules)
    finally:
        lib.weft_sim_result_destroy(pointer[0])

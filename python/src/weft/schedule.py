# SPDX-License-Identifier: BSD-3-Clause
"""Schedules: a collective written down as a graph for one rank; and plans, which are committed ones.

A schedule is built for any (rank, size), without a context::

    s = weft.Schedule(rank, size)
    x = s.slot("x", "f32", 1000, "inout")
    tmp = s.slot("tmp", "f32", 1000, "scratch")
    got = s.recv(tmp, left, tag=0)
    s.reduce("sum", x, x, tmp)                  # after the receive: by what they read and write
    s.send(x, right, tag=1)                     # after the sum
    plan = s.commit()

Regions are slices of slots: ``x``, ``x[10:20]``, ``x[:n, value]``. Orders are found by what nodes read and
write, in the order in which they are added (``Schedule(..., track=False)`` to give them all by hand), and
``a >> b`` adds one more.
"""
import itertools

from . import _enums, _life, _structs, buffers
from ._library import ffi, lib, take_text, text
from .errors import InvalidError, check
from .op import op as to_op

__all__ = ["Schedule", "Slot", "Region", "Value", "Node", "Plan", "reads", "writes", "updates",
           "read_schedules", "write_schedules", "read_parameters"]

CHANNEL_NONE = 2**32 - 1


class Value:
    """A count that is known only while a schedule runs; see :meth:`Schedule.value`."""

    __slots__ = ("schedule", "number", "name", "max")

    def __init__(self, schedule, number, name, most):
        self.schedule, self.number, self.name, self.max = schedule, number, name, most

    def __repr__(self):
        return "<weft.Value %s <= %d>" % (self.name, self.max)


class Region:
    """A range of elements of a slot.

    Attributes
    ----------
    slot : Slot
    offset, count : int
        In elements.
    value : Value or None
        Holds the number that is used in a run.
    """

    __slots__ = ("slot", "offset", "count", "value")

    def __init__(self, slot, offset, count, value=None):
        self.slot, self.offset, self.count, self.value = slot, offset, count, value

    def c(self):
        return _structs.region(self.slot.number, self.offset, self.count,
                               self.value.number if self.value is not None else 0)

    def __len__(self):
        return self.count

    def __repr__(self):
        return "<%s[%d:%d]%s>" % (self.slot.name, self.offset, self.offset + self.count,
                                  "" if self.value is None else " of " + self.value.name)


class Slot:
    """A buffer of a schedule: a range of it is a region, ``slot[10:20]``, and the slot itself is all."""

    __slots__ = ("schedule", "number", "name", "dtype", "count", "kind")

    def __init__(self, schedule, number, name, dtype, count, kind):
        self.schedule, self.number, self.name = schedule, number, name
        self.dtype, self.count, self.kind = dtype, count, kind

    def __getitem__(self, key):
        value = None
        if isinstance(key, tuple):
            key, value = key
        if isinstance(key, slice):
            start, stop, step = key.indices(self.count)
            for given in (key.start, key.stop):
                if given is not None and not -self.count <= given <= self.count:
                    raise InvalidError("%s[%s:%s] is beyond the %d elements of the slot" % (
                        self.name, key.start, key.stop, self.count))
            if step != 1:
                raise InvalidError("%s[...:%d]: a region has step 1" % (self.name, step))
            return Region(self, start, max(stop - start, 0), value)
        index = key.__index__()
        if not -self.count <= index < self.count:
            raise IndexError("%s[%d]: the slot has %d elements" % (self.name, index, self.count))
        return Region(self, index % self.count, 1, value)

    def at(self, offset, count, value=None):
        """The region of `count` elements from element `offset`."""
        return Region(self, offset, count, value)

    def __len__(self):
        return self.count

    def __repr__(self):
        return "<weft.Slot %s: %d of %s, %s>" % (self.name, self.count, self.dtype, self.kind)


def _region(thing, what):
    if isinstance(thing, Region):
        return thing
    if isinstance(thing, Slot):
        return Region(thing, 0, thing.count)
    raise InvalidError("%s is %r, expected a slot or a region of one" % (what, thing))


class Node:
    """A node of a schedule. ``a >> b``: b starts after a; ``[a, b] >> c`` and ``a >> [b, c]`` as well."""

    __slots__ = ("schedule", "number")

    def __init__(self, schedule, number):
        self.schedule, self.number = schedule, number

    def __int__(self):
        return self.number

    __index__ = __int__

    def __rshift__(self, other):
        self.schedule.order(self, other)
        return other

    def __rrshift__(self, other):
        self.schedule.order(other, self)
        return self

    def any(self):
        """It starts after ANY of its predecessors instead of ALL. Returns the node."""
        check(lib.weft_schedule_set_any(self.schedule._c(), self.number))
        return self

    def label(self, text):
        """Names it, for dumps and errors. Returns the node."""
        check(lib.weft_schedule_set_label(self.schedule._c(), self.number,
                                          ffi.new("char[]", text.encode())))
        return self

    def __eq__(self, other):
        return isinstance(other, Node) and (self.schedule, self.number) == (other.schedule, other.number)

    def __hash__(self):
        return hash(self.number)

    def __repr__(self):
        return "<weft.Node %d>" % self.number


class _Argument:
    __slots__ = ("region", "access")

    def __init__(self, region, access):
        self.region, self.access = region, access


def reads(region):
    """An argument of a compute node that is read."""
    return _Argument(_region(region, "reads"), 1)


def writes(region):
    """An argument of a compute node that is written; what it held before does not matter."""
    return _Argument(_region(region, "writes"), 2)


def updates(region):
    """An argument of a compute node that is read and written."""
    return _Argument(_region(region, "updates"), 3)


class Schedule:
    """A collective under construction, for one rank.

    Parameters
    ----------
    rank, size : int
        Of the schedule: which ranks of a context they are is bound when it runs.
    name : str, optional
        For dumps, traces and errors.
    track : bool
        Orders are added for what nodes read and write, in the order in which they are added: no two of
        them race then. False: only those that are given are there.

    Notes
    -----
    One thread at a time. Errors are raised at once, and stick: a schedule that had one does not commit.
    """

    def __init__(self, rank, size, name=None, track=True):
        pointer = _structs.out("struct weft_schedule *", lib.weft_schedule_create, rank, size)
        self._adopt(pointer, ())
        if name is not None:
            check(lib.weft_schedule_set_name(pointer, ffi.new("char[]", name.encode())))
        self._tracker = None
        if track:
            tracker = _structs.out("struct weft_tracker *", lib.weft_tracker_create, pointer)
            # It borrows the schedule: so it ends first.
            self._tracker = tracker
            self._handle.destroy = lambda pointer: (lib.weft_tracker_destroy(tracker),
                                                    lib.weft_schedule_destroy(pointer))

    def _adopt(self, pointer, ops):
        self._handle = _life.owned(self, _life.Handle(pointer, lib.weft_schedule_destroy, "the schedule"))
        self._tracker = None
        self._ops = list(ops)
        return self

    def _c(self):
        return self._handle.get()

    # ---- what it has ----

    rank = property(lambda self: lib.weft_schedule_rank(self._c()), doc="Of the schedule.")
    size = property(lambda self: lib.weft_schedule_size(self._c()), doc="Ranks of the schedule.")
    name = property(lambda self: text(lib.weft_schedule_name(self._c())), doc="For dumps and errors.")
    node_count = property(lambda self: lib.weft_schedule_node_count(self._c()), doc="How many nodes.")

    @property
    def slots(self):
        """The slots, {name: Slot}."""
        found = {}
        for number in range(lib.weft_schedule_slot_count(self._c())):
            info = _structs.filled("weft_slot_info", lib.weft_schedule_get_slot, self._c(), number)
            found[info.name] = Slot(self, number, info.name, buffers.dtype_name(info.dtype)
                                    if isinstance(info.dtype, int) else info.dtype, info.count, info.kind)
        return found

    @property
    def nodes(self):
        """The nodes, as a list of dicts: kind, peer, tag, regions, label and more."""
        return [_node(self, number) for number in range(self.node_count)]

    @property
    def edges(self):
        """The orders, as pairs of numbers of nodes."""
        before, after = ffi.new("weft_node_t *"), ffi.new("weft_node_t *")
        found = []
        for index in range(lib.weft_schedule_edge_count(self._c())):
            check(lib.weft_schedule_get_edge(self._c(), index, before, after))
            found.append((before[0], after[0]))
        return found

    # ---- building ----

    def slot(self, name, dtype, count, kind="inout", memory="host"):
        """Adds a buffer.

        Parameters
        ----------
        name : str
            Unique in the schedule.
        dtype : datatype
            ``"f32"``, ``numpy.float32``, ``torch.float32`` ...
        count : int
            Elements.
        kind : {"input", "output", "inout", "scratch"}
            Scratch is provided by the run; the others are bound by whoever runs it.
        memory : {"host", "device"}

        Returns
        -------
        Slot
        """
        number = buffers.dtype(dtype)
        kind_number = _enums.number("weft_slot_kind_t", kind, "kind")
        slot = check(lib.weft_schedule_add_slot(self._c(), ffi.new("char[]", name.encode()), number, count,
                                                kind_number))
        if memory != "host":
            check(lib.weft_schedule_set_memory(
                self._c(), slot, _enums.number("weft_memory_t", memory, "memory")))
        return Slot(self, slot, name, buffers.dtype_name(number), count,
                    _enums.word("weft_slot_kind_t", kind_number))

    def value(self, name, most):
        """Adds a value: a count between 0 and `most` that is known only while the schedule runs.

        Returns
        -------
        Value
        """
        number = check(lib.weft_schedule_add_value(self._c(), ffi.new("char[]", name.encode()), most))
        return Value(self, number, name, most)

    def _add(self, status, after):
        number = check(status)
        if self._tracker is not None:
            check(lib.weft_tracker_add(self._tracker, number))
        node = Node(self, number)
        if after is not None:
            self.order(after, node)
        return node

    def send(self, region, peer, tag=0, *, after=None):
        """Adds a send to rank `peer`. (peer, tag) is unique among the sends of a rank.

        Parameters
        ----------
        region : Region or Slot
        peer, tag : int
        after : Node or sequence of Node, optional
            It starts after these.

        Returns
        -------
        Node
        """
        return self._add(lib.weft_schedule_add_send(self._c(), _region(region, "region").c()[0], peer, tag),
                         after)

    def recv(self, region, peer, tag=0, *, up_to=False, produces=None, after=None):
        """Adds a receive from rank `peer`.

        Parameters
        ----------
        region : Region or Slot
        peer, tag : int
        up_to : bool
            It takes at most so many elements, not exactly as many.
        produces : Value, optional
            With `up_to`: becomes their number.
        after : Node or sequence of Node, optional

        Returns
        -------
        Node
        """
        where = _region(region, "region").c()[0]
        if up_to or produces is not None:
            status = lib.weft_schedule_add_recv_up_to(self._c(), where, peer, tag,
                                                      produces.number if produces is not None else 0)
        else:
            status = lib.weft_schedule_add_recv(self._c(), where, peer, tag)
        return self._add(status, after)

    def reduce(self, op, dst, a, b, *, after=None):
        """Adds ``dst[i] = a[i] op b[i]``.

        Parameters
        ----------
        op : str or Op
        dst, a, b : Region or Slot
            Of the same count and datatype; `dst` may be exactly `a` or `b`. Of an operation that does
            not commute, `a` must stem from lower ranks than `b`.
        after : Node or sequence of Node, optional

        Returns
        -------
        Node
        """
        operation = to_op(op)
        self._ops.append(operation)
        return self._add(lib.weft_schedule_add_reduce(
            self._c(), operation.c, *[_region(region, what).c()[0] for region, what in
                                      ((dst, "dst"), (a, "a"), (b, "b"))]), after)

    def copy(self, dst, src, *, after=None):
        """Adds a copy. Regions of the same size in bytes.

        Returns
        -------
        Node
        """
        return self._add(lib.weft_schedule_add_copy(self._c(), _region(dst, "dst").c()[0],
                                                    _region(src, "src").c()[0]), after)

    def compute(self, op, *arguments, produces=None, after=None):
        """Adds a call of a compute operation.

        Parameters
        ----------
        op : Op
            Of :func:`weft.compute`.
        *arguments
            Regions, each in :func:`weft.reads`, :func:`weft.writes` or :func:`weft.updates`.
        produces : Value, optional
            The value that the function sets.
        after : Node or sequence of Node, optional

        Returns
        -------
        Node
        """
        operation = to_op(op)
        self._ops.append(operation)
        array = ffi.new("struct weft_compute_argument[]", max(len(arguments), 1))
        for item, argument in zip(array, arguments):
            if not isinstance(argument, _Argument):
                raise InvalidError("an argument of compute is %r, expected weft.reads(region), "
                                   "weft.writes(region) or weft.updates(region)" % (argument,))
            item.region = argument.region.c()[0]
            item.access = argument.access
        return self._add(lib.weft_schedule_add_compute(
            self._c(), operation.c, array, len(arguments),
            produces.number if produces is not None else 0), after)

    def join(self, *, after=None):
        """Adds a node that does nothing.

        Returns
        -------
        Node
        """
        return self._add(lib.weft_schedule_add_join(self._c()), after)

    def event(self, channel=None, *, after=None):
        """Adds an event: it ends when it has been fired, by :meth:`Run.fire` or by a signal.

        Parameters
        ----------
        channel : int, optional
            Of signals. None: only the application fires it.

        Returns
        -------
        Node
        """
        return self._add(lib.weft_schedule_add_event(
            self._c(), CHANNEL_NONE if channel is None else channel), after)

    def signal(self, peer, channel, *, after=None):
        """Adds a node that signals the run's version to a channel of the same object on rank `peer`.

        Returns
        -------
        Node
        """
        return self._add(lib.weft_schedule_add_signal(self._c(), peer, channel), after)

    def order(self, before, after):
        """`after` starts only when `before` allows it. Either may be several nodes."""
        befores = before if isinstance(before, (list, tuple)) else [before]
        afters = after if isinstance(after, (list, tuple)) else [after]
        for one, other in itertools.product(befores, afters):
            check(lib.weft_schedule_add_order(self._c(), int(one), int(other)))

    def choice(self, *events):
        """The events become a choice: the first to fire retires the others."""
        check(lib.weft_schedule_add_choice(self._c(), ffi.new("weft_node_t[]", [int(e) for e in events]),
                                           len(events)))

    def activation(self, channel=0):
        """Adds the fragment by which whoever arrives first starts the schedule on all ranks.

        Parameters
        ----------
        channel : int
            The first channel that it uses.

        Returns
        -------
        tuple of Node
            (the application's event, a join that ends once the version has been started)
        """
        started = ffi.new("weft_node_t *")
        event = check(lib.weft_activation_add(self._c(), channel, started))
        return Node(self, event), Node(self, started[0])

    def part(self, part, after=None, *, name=None, slots=None, scratch=None, tag=0, tag_count=0, channel=0,
             ranks=None):
        """Puts a copy of another schedule into this one.

        Parameters
        ----------
        part : Schedule
        after : Node, optional
            It starts after this one.
        name : str, optional
            Names what the part brings.
        slots : dict
            {name of a slot of the part: Region or Slot of this schedule}, for all that are not scratch.
        scratch : str, optional
            Its scratch is shared with other parts that say the same.
        tag, tag_count, channel : int
            Added to its tags and channels; all its tags must be below `tag_count`, if that is not 0.
        ranks : sequence of int, optional
            The rank of this schedule that each rank of the part is.

        Returns
        -------
        Node
            The join that ends after all of it.
        """
        slots = dict(slots or {})
        array = ffi.new("struct weft_part_slot[]", max(len(slots), 1))
        keep = []
        for item, (key, region) in zip(array, slots.items()):
            keep.append(ffi.new("char[]", key.encode()))
            item.name = keep[-1]
            item.region = _region(region, key).c()[0]
        config = _structs.Struct("weft_part_config", dict(
            name=name, scratch=scratch, tag=tag, tag_count=tag_count, channel=channel,
            ranks=None if ranks is None else list(ranks)), "Schedule.part", keep)
        config.c.slots, config.c.slot_count = array, len(slots)
        self._ops.extend(part._ops)
        return Node(self, check(lib.weft_schedule_add_part(
            self._c(), part._c(), -1 if after is None else int(after), config.c)))

    def result(self, dst=None, from_=None, *, op=None, offset=0, ranks=None, own=None, lossy=False):
        """States what the schedule computes, for checking and verification.

        Parameters
        ----------
        dst : Region or Slot, optional
            When the run has ended it holds, element by element, the combination by `op` of
            ``from_[offset + i]`` of `ranks`, each once. None: the run ends after the runs of `ranks`
            have started, as a barrier's does.
        from_ : Slot or str, optional
            On the contributing ranks. Default: the slot of `dst`.
        op : str or Op, optional
            With one rank none is needed.
        offset : int
        ranks : sequence of int, optional
            Default: all.
        own : Slot or str, optional
            Where the own contribution lies, if in another slot.
        lossy : bool
            Up to what is lost where contributions are compressed on the way.
        """
        result = _structs.Struct("weft_result", {"offset": offset, "lossy": lossy}, "Schedule.result")
        if dst is None:
            result.c.kind = lib.WEFT_RESULT_AFTER_START
        else:
            region = _region(dst, "dst")
            result.c.dst = region.c()[0]
            for member, given in (("from", from_ if from_ is not None else region.slot), ("own", own)):
                if given is not None:
                    name = ffi.new("char[]", getattr(given, "name", given).encode())
                    result.keep.append(name)
                    setattr(result.c, member, name)
        ranks = range(self.size) if ranks is None else list(ranks)
        result.c.ranks = len(ranks)
        if isinstance(ranks, range):
            result.c.first = ranks.start
        else:
            among = ffi.new("int[]", ranks)
            result.keep.append(among)
            result.c.among = among
        if op is not None:
            operation = to_op(op)
            self._ops.append(operation)
            result.c.op = operation.c
        check(lib.weft_schedule_add_result(self._c(), result.c))

    # ---- what becomes of it ----

    def commit(self):
        """Validates and compiles it.

        Returns
        -------
        Plan

        Raises
        ------
        CycleError, DuplicateError, InvalidError
            The text names the nodes.
        """
        pointer = ffi.new("struct weft_plan **")
        check(lib.weft_schedule_commit(self._c(), pointer))
        return Plan(pointer[0], self._ops)

    def dump(self, format="text"):
        """The schedule of this rank as a document: "text", "json" (these read back), "dot" or "goal"."""
        return write_schedules([self], format)

    def __repr__(self):
        if self._handle.pointer is None:
            return "<weft.Schedule, closed>"
        return "<weft.Schedule %s: rank %d of %d, %d nodes>" % (self.name, self.rank, self.size,
                                                               self.node_count)

    def _repr_svg_(self):
        from . import draw

        return draw.schedule(self)


def _node(schedule, number):
    info = _structs.new("weft_node_info")
    check(lib.weft_schedule_get_node(schedule._c(), number, info))
    slots = list(schedule.slots) if number == 0 else None
    regions = []
    for i in range(info.region_count):
        region = info.regions[i]
        slot = _structs.filled("weft_slot_info", lib.weft_schedule_get_slot, schedule._c(), region.slot)
        regions.append((slot.name, region.offset, region.count, {1: "read", 2: "write", 3: "update"}[
            int(info.accesses[i])]))
    del slots
    kind = _enums.word("weft_node_kind_t", info.kind)
    return {"node": number, "kind": kind, "peer": info.peer if info.peer >= 0 else None,
            "tag": info.tag if kind in ("send", "recv") else None,
            "channel": info.channel if kind in ("event", "signal") and info.channel != CHANNEL_NONE else None,
            "any": bool(info.any), "up_to": bool(info.up_to),
            "choice": info.choice if info.choice >= 0 else None,
            "op": text(lib.weft_op_name(info.op)) if info.op else None, "regions": regions,
            "label": text(info.label, None), "line": info.line or None}


class Plan:
    """A committed schedule: immutable, used by any number of runs, from any thread."""

    def __init__(self, pointer, ops=()):
        self._handle = _life.owned(self, _life.Handle(pointer, lib.weft_plan_destroy, "the plan"))
        self._ops = tuple(ops)

    def _c(self):
        return self._handle.get()

    name = property(lambda self: text(lib.weft_plan_name(self._c())), doc="Of its schedule.")
    rank = property(lambda self: lib.weft_plan_rank(self._c()), doc="Of its schedule.")
    size = property(lambda self: lib.weft_plan_size(self._c()), doc="Of its schedule.")
    node_count = property(lambda self: lib.weft_plan_node_count(self._c()), doc="How many nodes it has.")
    bytes = property(lambda self: lib.weft_plan_bytes(self._c()), doc="Memory that it takes.")
    run_bytes = property(lambda self: lib.weft_plan_run_bytes(self._c()),
                         doc="Memory that a run of it takes, scratch included.")

    @property
    def slots(self):
        """The slots as named tuples, {name: SlotInfo(name, dtype, kind, count, memory)}."""
        found = {}
        for number in range(lib.weft_plan_slot_count(self._c())):
            info = _structs.filled("weft_slot_info", lib.weft_plan_get_slot, self._c(), number)
            found[info.name] = info
        return found

    def run(self, context, **bindings):
        """A run of it on a context, bound to arrays: ``Run(context, plan, **bindings)``."""
        from .run import Run

        return Run(context, self, **bindings)

    def __repr__(self):
        return "<weft.Plan %s: rank %d of %d, %d nodes>" % (self.name, self.rank, self.size, self.node_count)


# ---- documents ----


def _array(schedules):
    return ffi.new("const struct weft_schedule *[]", [schedule._c() for schedule in schedules])


def write_schedules(schedules, format="text"):
    """The schedules of some ranks (usually all, or one) as one document.

    Parameters
    ----------
    schedules : sequence of Schedule
    format : {"text", "json", "dot", "goal"}
        The first two are read back by :func:`read_schedules`.

    Returns
    -------
    str
    """
    schedules = list(schedules)
    document, length = ffi.new("char **"), ffi.new("size_t *")
    check(lib.weft_schedule_write(_array(schedules), len(schedules),
                                  _enums.number("weft_format_t", format, "format"), document, length))
    return take_text(document[0])


def read_schedules(document, *, size=None, ops=(), parameters=None):
    """Reads a text or JSON document.

    Parameters
    ----------
    document : str
    size : int, optional
        Ranks of a document that says ``size any``.
    ops : sequence of Op
        Operations of the user that it may name.
    parameters : dict, optional
        Values of the parameters that a text declares.

    Returns
    -------
    list of Schedule
        In ascending rank.

    Raises
    ------
    FormatError
        The text gives the line, what was found and what was expected.
    """
    data = document.encode()
    ops = [to_op(one) for one in ops]
    options = _structs.Struct("weft_read_options", {"size": size}, "read_schedules")
    keep = [ffi.new("const struct weft_op *[]", [one.c for one in ops])]
    options.c.ops, options.c.op_count = keep[0], len(ops)
    given = dict(parameters or {})
    array = ffi.new("struct weft_parameter[]", max(len(given), 1))
    for item, (name, value) in zip(array, given.items()):
        keep += [ffi.new("char[]", name.encode()), ffi.new("char[]", str(value).encode())]
        item.name, item.value = keep[-2], keep[-1]
    options.c.parameters, options.c.parameter_count = array, len(given)
    found, count = ffi.new("struct weft_schedule ***"), ffi.new("size_t *")
    check(lib.weft_schedule_read_with(data, len(data), options.c, found, count))
    try:
        return [Schedule.__new__(Schedule)._adopt(found[0][i], ops) for i in range(count[0])]
    finally:
        lib.weft_memory_free(found[0])


def read_parameters(document):
    """The parameters that a document declares, {name: default as written}."""
    data = document.encode()
    found, count = ffi.new("struct weft_parameter **"), ffi.new("size_t *")
    check(lib.weft_schedule_read_parameters(data, len(data), found, count))
    try:
        return {text(found[0][i].name): text(found[0][i].value) for i in range(count[0])}
    finally:
        lib.weft_memory_free(found[0])

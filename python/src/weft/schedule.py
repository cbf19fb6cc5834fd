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
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _enums, _life, _structs, buffers
from ._library import ffi, lib, take_text, text
from .draw import Schedules
from .errors import InvalidError, check
from .op import Op
from .op import op as to_op

__all__ = ["Schedule", "Slot", "Region", "Value", "Node", "Plan", "reads", "writes", "updates",
           "read_schedules", "write_schedules", "read_parameters"]

CHANNEL_NONE = 2**32 - 1
SLOT_ALL = -1


def _text(words, what):
    if not isinstance(words, str):
        raise InvalidError("%s is %r, expected a text" % (what, words))
    return ffi.new("char[]", words.encode("utf-8", "replace"))


class Value:
    """A count that is known only while a schedule runs; see :meth:`Schedule.value`."""

    __slots__ = ("schedule", "number", "name", "max")

    def __init__(self, schedule: "Schedule", number: int, name: str, most: int) -> None:
        self.schedule, self.number, self.name, self.max = schedule, number, name, most

    def __repr__(self) -> str:
        return "<weft.Value %s <= %d>" % (self.name, self.max)


def _whole(value, what):
    try:
        number = value.__index__()
    except AttributeError:
        raise InvalidError("%s is %r, expected a whole number" % (what, value)) from None
    if not 0 <= number < 2**64:
        raise InvalidError("%s is %d, expected 0 or more" % (what, number))
    return number


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

    def __init__(self, slot: "Slot", offset: int, count: int, value: Optional[Value] = None) -> None:
        if value is not None and not isinstance(value, Value):
            raise InvalidError("the value of a region of %s is %r, expected a value of the schedule"
                               % (slot.name, value))
        offset, count = _whole(offset, "offset"), _whole(count, "count")
        self.slot, self.offset, self.count, self.value = slot, offset, count, value

    def c(self) -> Any:
        """As the library takes it."""
        return _structs.region(self.slot.number, self.offset, self.count,
                               self.value.number if self.value is not None else 0)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return "<%s[%d:%d]%s>" % (self.slot.name, self.offset, self.offset + self.count,
                                  "" if self.value is None else " of " + self.value.name)


class Slot:
    """A buffer of a schedule: a range of it is a region, ``slot[10:20]``, and the slot itself is all."""

    __slots__ = ("schedule", "number", "name", "dtype", "count", "kind")

    def __init__(self, schedule: "Schedule", number: int, name: str, dtype: str, count: int,
                 kind: str) -> None:
        self.schedule, self.number, self.name = schedule, number, name
        self.dtype, self.count, self.kind = dtype, count, kind

    def __getitem__(self, key: Any) -> Region:
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
        try:
            index = key.__index__()
        except AttributeError:
            raise InvalidError("%s[%r]: expected a slice, or the number of an element"
                               % (self.name, key)) from None
        if not -self.count <= index < self.count:
            raise IndexError("%s[%d]: the slot has %d elements" % (self.name, index, self.count))
        return Region(self, index % self.count, 1, value)

    def at(self, offset: int, count: int, value: Optional[Value] = None) -> Region:
        """The region of `count` elements from element `offset`."""
        return Region(self, offset, count, value)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
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

    def __init__(self, schedule: "Schedule", number: int) -> None:
        self.schedule, self.number = schedule, number

    def __int__(self) -> int:
        return self.number

    __index__ = __int__

    def __rshift__(self, other: "Nodes") -> "Nodes":
        self.schedule.order(self, other)
        return other

    def __rrshift__(self, other: "Nodes") -> "Node":
        self.schedule.order(other, self)
        return self

    def any(self) -> "Node":
        """It starts after ANY of its predecessors instead of ALL. Returns the node."""
        check(lib.weft_schedule_set_any(self.schedule._c(), self.number))
        return self

    def label(self, text: str) -> "Node":
        """Names it, for dumps and errors. Returns the node."""
        check(lib.weft_schedule_set_label(self.schedule._c(), self.number, _text(text, "label")))
        return self

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Node) and self.schedule is other.schedule and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return "<weft.Node %d>" % self.number


#: A node, by itself or its number; or several.
Nodes = Union[Node, int, Sequence[Union[Node, int]]]


class Argument:
    """A region that a compute function is called with, and what it does to it: of :func:`reads`,
    :func:`writes` and :func:`updates`."""

    __slots__ = ("region", "access")

    def __init__(self, region: Region, access: int) -> None:
        self.region, self.access = region, access


def reads(region: Union[Region, Slot]) -> Argument:
    """An argument of a compute node that is read."""
    return Argument(_region(region, "reads"), 1)


def writes(region: Union[Region, Slot]) -> Argument:
    """An argument of a compute node that is written; what it held before does not matter."""
    return Argument(_region(region, "writes"), 2)


def updates(region: Union[Region, Slot]) -> Argument:
    """An argument of a compute node that is read and written."""
    return Argument(_region(region, "updates"), 3)


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

    def __init__(self, rank: int, size: int, name: Optional[str] = None, track: bool = True) -> None:
        pointer = _structs.out("struct weft_schedule *", lib.weft_schedule_create, rank, size)
        self._adopt(pointer, ())
        if name is not None:
            check(lib.weft_schedule_set_name(pointer, _text(name, "name")))
        if track:
            tracker = _structs.out("struct weft_tracker *", lib.weft_tracker_create, pointer)
            # It borrows the schedule: so it ends first.
            self._tracker = tracker
            self._handle.record.destroy = lambda pointer: (lib.weft_tracker_destroy(tracker),
                                                           lib.weft_schedule_destroy(pointer))

    def _adopt(self, pointer, ops):
        self._handle = _life.Handle(pointer, lib.weft_schedule_destroy, "the schedule")
        self._tracker = None
        self._ops = list(ops)
        return self

    def _c(self):
        return self._handle.get()

    # ---- what it has ----

    @property
    def rank(self) -> int:
        """Of the schedule."""
        return lib.weft_schedule_rank(self._c())

    @property
    def size(self) -> int:
        """Ranks of the schedule."""
        return lib.weft_schedule_size(self._c())

    @property
    def name(self) -> str:
        """For dumps and errors."""
        return text(lib.weft_schedule_name(self._c()))

    @property
    def node_count(self) -> int:
        """How many nodes."""
        return lib.weft_schedule_node_count(self._c())

    @property
    def slots(self) -> Dict[str, Slot]:
        """The slots, {name: Slot}."""
        found = {}
        for number in range(lib.weft_schedule_slot_count(self._c())):
            info = _structs.filled("weft_slot_info", lib.weft_schedule_get_slot, self._c(), number)
            found[info.name] = Slot(self, number, info.name, info.dtype, info.count, info.kind)
        return found

    @property
    def values(self) -> Dict[str, Value]:
        """The values, {name: Value}."""
        found = {}
        for number in range(1, lib.weft_schedule_value_count(self._c()) + 1):
            info = _structs.filled("weft_value_info", lib.weft_schedule_get_value, self._c(), number)
            found[info.name] = Value(self, number, info.name, info.max)
        return found

    @property
    def nodes(self) -> List[Dict[str, Any]]:
        """The nodes, as a list of dicts: kind, peer, tag, regions, bytes, label and more."""
        slots = [(slot.name, lib.weft_dtype_size(buffers.dtype(slot.dtype))) for slot in self.slots.values()]
        return [_node(self, number, slots) for number in range(self.node_count)]

    @property
    def edges(self) -> List[Tuple[int, int]]:
        """The orders, as pairs of numbers of nodes."""
        before, after = ffi.new("weft_node_t *"), ffi.new("weft_node_t *")
        found = []
        for index in range(lib.weft_schedule_edge_count(self._c())):
            check(lib.weft_schedule_get_edge(self._c(), index, before, after))
            found.append((before[0], after[0]))
        return found

    # ---- building ----

    def slot(self, name: str, dtype: Any, count: int, kind: str = "inout", memory: str = "host") -> Slot:
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
        count = _whole(count, "count")
        slot = check(lib.weft_schedule_add_slot(self._c(), _text(name, "name"), number, count, kind_number))
        if memory != "host":
            check(lib.weft_schedule_set_memory(
                self._c(), slot, _enums.number("weft_memory_t", memory, "memory")))
        return Slot(self, slot, name, buffers.dtype_name(number), count,
                    _enums.word("weft_slot_kind_t", kind_number))

    def set_memory(self, memory: str, slot: Optional[Slot] = None) -> None:
        """Says where the memory of a slot is: what is bound to it must be there, and of scratch the run provides
        it there.

        Parameters
        ----------
        memory : {"host", "device"}
        slot : Slot, optional
            Default: every slot that there is, of a template, say.
        """
        if slot is not None and slot.schedule is not self:
            raise InvalidError("slot is of another schedule: %r" % slot)
        check(lib.weft_schedule_set_memory(self._c(), SLOT_ALL if slot is None else slot.number,
                                           _enums.number("weft_memory_t", memory, "memory")))

    def place(self) -> None:
        """Puts every node on one side, the host's or the device's, and adds the copies between them.

        :meth:`commit` does so to a copy of its own: this is for who wants to see it, or to dump it.
        """
        check(lib.weft_schedule_place(self._c()))

    def value(self, name: str, most: int) -> Value:
        """Adds a value: a count between 0 and `most` that is known only while the schedule runs.

        Returns
        -------
        Value
        """
        most = _whole(most, "most")
        number = check(lib.weft_schedule_add_value(self._c(), _text(name, "name"), most))
        return Value(self, number, name, most)

    def _region(self, thing, what):
        """A region of this schedule, for C."""
        region = _region(thing, what)
        if region.slot.schedule is not self:
            raise InvalidError("%s is of a slot of another schedule: %r" % (what, region))
        return region.c()[0]

    def _produced(self, produces):
        if produces is None:
            return 0
        if not isinstance(produces, Value) or produces.schedule is not self:
            raise InvalidError("produces is %r, expected a value of this schedule" % (produces,))
        return produces.number

    def _add(self, after, function, *arguments):
        try:
            status = function(self._c(), *arguments)
        except (TypeError, OverflowError) as problem:  # a peer, tag or channel that is no such number
            raise InvalidError("a node cannot be added: %s" % problem) from None
        number = check(status)
        if self._tracker is not None:
            check(lib.weft_tracker_add(self._tracker, number))
        node = Node(self, number)
        if after is not None:
            self.order(after, node)
        return node

    def send(self, region: Union[Region, Slot], peer: int, tag: int = 0, *,
             after: Optional[Nodes] = None) -> Node:
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
        return self._add(after, lib.weft_schedule_add_send, self._region(region, "region"), peer, tag)

    def recv(self, region: Union[Region, Slot], peer: int, tag: int = 0, *, up_to: bool = False,
             produces: Optional[Value] = None, after: Optional[Nodes] = None) -> Node:
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
        where = self._region(region, "region")
        if up_to or produces is not None:
            return self._add(after, lib.weft_schedule_add_recv_up_to, where, peer, tag,
                             self._produced(produces))
        return self._add(after, lib.weft_schedule_add_recv, where, peer, tag)

    def reduce(self, op: Union[str, Op], dst: Union[Region, Slot], a: Union[Region, Slot],
               b: Union[Region, Slot], *, after: Optional[Nodes] = None) -> Node:
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
        return self._add(after, lib.weft_schedule_add_reduce, operation.c, self._region(dst, "dst"),
                         self._region(a, "a"), self._region(b, "b"))

    def copy(self, dst: Union[Region, Slot], src: Union[Region, Slot], *,
             after: Optional[Nodes] = None) -> Node:
        """Adds a copy. Regions of the same size in bytes.

        Returns
        -------
        Node
        """
        return self._add(after, lib.weft_schedule_add_copy, self._region(dst, "dst"),
                         self._region(src, "src"))

    def compute(self, op: Union[str, Op], *arguments: Argument, produces: Optional[Value] = None,
                after: Optional[Nodes] = None) -> Node:
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
            if not isinstance(argument, Argument):
                raise InvalidError("an argument of compute is %r, expected weft.reads(region), "
                                   "weft.writes(region) or weft.updates(region)" % (argument,))
            item.region = self._region(argument.region, "an argument of compute")
            item.access = argument.access
        return self._add(after, lib.weft_schedule_add_compute, operation.c, array, len(arguments),
                         self._produced(produces))

    def join(self, *, after: Optional[Nodes] = None) -> Node:
        """Adds a node that does nothing.

        Returns
        -------
        Node
        """
        return self._add(after, lib.weft_schedule_add_join)

    def event(self, channel: Optional[int] = None, *, after: Optional[Nodes] = None) -> Node:
        """Adds an event: it ends when it has been fired, by :meth:`Run.fire` or by a signal.

        Parameters
        ----------
        channel : int, optional
            Of signals. None: only the application fires it.

        Returns
        -------
        Node
        """
        return self._add(after, lib.weft_schedule_add_event, CHANNEL_NONE if channel is None else channel)

    def signal(self, peer: int, channel: int, *, after: Optional[Nodes] = None) -> Node:
        """Adds a node that signals the run's version to a channel of the same object on rank `peer`.

        Returns
        -------
        Node
        """
        return self._add(after, lib.weft_schedule_add_signal, peer, channel)

    def _numbers(self, nodes, what):
        """The numbers of one node, or of several."""
        numbers = []
        for node in nodes if isinstance(nodes, (list, tuple)) else [nodes]:
            if isinstance(node, Node) and node.schedule is not self:
                raise InvalidError("%s is a node of another schedule: %r" % (what, node))
            try:
                number = node.__index__()
            except AttributeError:
                raise InvalidError("%s is %r, expected a node" % (what, node)) from None
            numbers.append(number if -2**31 <= number < 2**31 else -1)
        return numbers

    def order(self, before: Nodes, after: Nodes) -> None:
        """`after` starts only when `before` allows it. Either may be several nodes."""
        for one, other in itertools.product(self._numbers(before, "before"), self._numbers(after, "after")):
            check(lib.weft_schedule_add_order(self._c(), one, other))

    def choice(self, *events: Union[Node, int]) -> None:
        """The events become a choice: the first to fire retires the others."""
        numbers = self._numbers(events, "an event of the choice")
        check(lib.weft_schedule_add_choice(self._c(), ffi.new("weft_node_t[]", numbers), len(numbers)))

    def activation(self, channel: int = 0) -> Tuple[Node, Node]:
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

    def part(self, part: "Schedule", after: Optional[Nodes] = None, *, name: Optional[str] = None,
             slots: Optional[Dict[str, Union[Region, Slot]]] = None, scratch: Optional[str] = None,
             tag: int = 0, tag_count: int = 0, channel: int = 0,
             ranks: Optional[Sequence[int]] = None) -> Node:
        """Puts a copy of another schedule into this one.

        Parameters
        ----------
        part : Schedule
        after : Node or sequence of Node, optional
            It starts after these.
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
            item.region = self._region(region, key)
        config = _structs.Struct("weft_part_config", dict(
            name=name, scratch=scratch, tag=tag, tag_count=tag_count, channel=channel,
            ranks=None if ranks is None else list(ranks)), "Schedule.part", keep)
        config.c.slots, config.c.slot_count = array, len(slots)
        self._ops.extend(part._ops)
        before = [-1] if after is None else self._numbers(after, "after")
        if len(before) != 1:
            before = [int(self.join(after=after))]
        return Node(self, check(lib.weft_schedule_add_part(self._c(), part._c(), before[0], config.c)))

    def result(self, dst: Union[Region, Slot, None] = None, from_: Union[Slot, str, None] = None, *,
               op: Union[str, Op, None] = None, offset: int = 0, ranks: Optional[Sequence[int]] = None,
               own: Union[Slot, str, None] = None, lossy: bool = False) -> None:
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
            result.c.dst = self._region(dst, "dst")
            for member, given in (("from", from_ if from_ is not None else region.slot), ("own", own)):
                if given is not None:
                    name = _text(getattr(given, "name", given), member)
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

    def commit(self) -> "Plan":
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

    def dump(self, format: str = "text") -> str:
        """The schedule of this rank as a document: "text", "json" (these read back), "dot" or "goal"."""
        return write_schedules([self], format)

    def __repr__(self) -> str:
        if self._handle.pointer is None:
            return "<weft.Schedule, closed>"
        return "<weft.Schedule %s: rank %d of %d, %d nodes>" % (self.name, self.rank, self.size,
                                                               self.node_count)

    def _repr_svg_(self) -> str:
        from . import draw

        return draw.schedule(self)


_ACCESS = {1: "read", 2: "write", 3: "update"}


def _node(schedule, number, slots):
    info = _structs.new("weft_node_info")
    check(lib.weft_schedule_get_node(schedule._c(), number, info))
    regions = []
    for i in range(info.region_count):
        region = info.regions[i]
        regions.append((slots[region.slot][0], region.offset, region.count, _ACCESS[int(info.accesses[i])]))
    size = regions[0][2] * slots[info.regions[0].slot][1] if regions else 0
    kind = _enums.word("weft_node_kind_t", info.kind)
    return {"node": number, "kind": kind, "peer": info.peer if info.peer >= 0 else None,
            "tag": info.tag if kind in ("send", "recv") else None,
            "channel": info.channel if kind in ("event", "signal") and info.channel != CHANNEL_NONE else None,
            "any": bool(info.any), "up_to": bool(info.up_to),
            "choice": info.choice if info.choice >= 0 else None,
            "op": text(lib.weft_op_name(info.op)) if info.op else None, "regions": regions, "bytes": size,
            "label": text(info.label, None), "line": info.line or None}


class Bindable(NamedTuple):
    """What binding a slot asks for."""

    kind: str
    dtype: str
    number: int
    memory: str


class Plan:
    """A committed schedule: immutable, used by any number of runs, from any thread."""

    def __init__(self, pointer: Any, ops: Iterable[Op] = ()) -> None:
        self._handle = _life.Handle(pointer, lib.weft_plan_destroy, "the plan")
        self._ops = tuple(ops)
        self._known = {}

    def _c(self):
        return self._handle.get()

    @property
    def name(self) -> str:
        """Of its schedule."""
        return text(lib.weft_plan_name(self._c()))

    @property
    def rank(self) -> int:
        """Of its schedule."""
        return lib.weft_plan_rank(self._c())

    @property
    def size(self) -> int:
        """Of its schedule."""
        return lib.weft_plan_size(self._c())

    @property
    def node_count(self) -> int:
        """How many nodes it has."""
        return lib.weft_plan_node_count(self._c())

    @property
    def bytes(self) -> int:
        """Memory that it takes."""
        return lib.weft_plan_bytes(self._c())

    @property
    def run_bytes(self) -> int:
        """Memory that a run of it takes, scratch included."""
        return lib.weft_plan_run_bytes(self._c())

    @property
    def slots(self) -> Dict[str, Any]:
        """The slots as named tuples, {name: SlotInfo(name, dtype, kind, count, memory)}."""
        found = {}
        for number in range(lib.weft_plan_slot_count(self._c())):
            info = _structs.filled("weft_slot_info", lib.weft_plan_get_slot, self._c(), number)
            found[info.name] = info
        return found

    def _find(self, name):
        """What a name is of, for bindings: the number, and the slot, of which a value has none."""
        if not self._known:
            for number, info in enumerate(self.slots.values()):
                self._known[info.name] = number, Bindable(info.kind, info.dtype, buffers.dtype(info.dtype),
                                                          info.memory)
        known = self._known.get(name)
        if known is None:
            number = lib.weft_plan_find_value(self._c(), _text(name, "the name of a slot or value"))
            if number < 0:
                raise InvalidError("the plan %s has no slot or value %r, expected %s" % (
                    self.name, name, "one of %s" % ", ".join(self._known) if self._known else "none"))
            known = self._known[name] = number, None
        return known

    def run(self, context: Any, **bindings: Any) -> Any:
        """A run of it on a context, bound to arrays: ``Run(context, plan, **bindings)``."""
        from .run import Run

        return Run(context, self, **bindings)

    def __repr__(self) -> str:
        return "<weft.Plan %s: rank %d of %d, %d nodes>" % (self.name, self.rank, self.size, self.node_count)


# ---- documents ----


def _array(schedules):
    return ffi.new("const struct weft_schedule *[]", [schedule._c() for schedule in schedules])


def write_schedules(schedules: Iterable[Schedule], format: str = "text") -> str:
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


def read_schedules(document: str, *, size: Optional[int] = None, ops: Iterable[Op] = (),
                   parameters: Optional[Dict[str, Any]] = None) -> List[Schedule]:
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
        return Schedules(Schedule.__new__(Schedule)._adopt(found[0][i], ops) for i in range(count[0]))
    finally:
        lib.weft_memory_free(found[0])


def read_parameters(document: str) -> Dict[str, str]:
    """The parameters that a document declares, {name: default as written}."""
    data = document.encode()
    found, count = ffi.new("struct weft_parameter **"), ffi.new("size_t *")
    check(lib.weft_schedule_read_parameters(data, len(data), found, count))
    try:
        return {text(found[0][i].name): text(found[0][i].value) for i in range(count[0])}
    finally:
        lib.weft_memory_free(found[0])

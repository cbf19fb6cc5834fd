# SPDX-License-Identifier: BSD-3-Clause
"""Traces: when each node of each rank began and ended.

>>> with weft.tracing.record(context) as trace:
...     context.allreduce(x)
>>> trace.save("rank0.json")
>>> weft.trace("rank0.json", "rank1.json").open()           # all ranks, in ui.perfetto.dev

Files are Chrome trace JSON, which https://ui.perfetto.dev and chrome://tracing open. In a notebook a trace
shows as a picture.
"""
import contextlib
import os
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, NamedTuple, Optional

from . import _enums, _life, _structs
from ._library import ffi, lib, text
from ._svg import plural
from .errors import InvalidError, WeftError, check

if TYPE_CHECKING:
    from .context import Context
    from .simulation import Result

__all__ = ["Trace", "TraceRank", "merge", "record", "start", "stop", "trace"]

RUN, NO_OBJECT, NO_PEER = -1, 2**32 - 1, -1  # as macros of C


class TraceRank(NamedTuple):
    """What a trace holds of one rank.

    Attributes
    ----------
    rank : int
    size : int
        Ranks of its context; 0: not known.
    spans : int
    dropped : int
        Records that were dropped because its recorder was full: the oldest ones.
    offset_us : float
        What :meth:`Trace.align` has added to its times.
    uncertainty_us : float
        How wrong that may be. 0: one clock with the first rank; ``math.inf``: it is a guess.
    """

    rank: int
    size: int
    spans: int
    dropped: int
    offset_us: float
    uncertainty_us: float


class Trace:
    """What contexts have recorded, or files hold: spans of one rank or of many.

    Attributes
    ----------
    spans : list of dict
        A dict each (``pandas.DataFrame(trace.spans)``), by rank and time: ``rank``, ``kind`` ("run" for a
        whole run, else the kind of the node), ``node``, ``object``, ``version``, ``peer``, ``tag`` (of an
        event or signal its channel), ``bytes``, ``start_us``, ``end_us`` and ``arrived_us`` (of a receive:
        when its message came), in microseconds from the first span on, ``end`` ("ended", "retired",
        "unfinished"), ``status`` (of a run), ``helper``, ``plan``, ``label``. None is what is not.
    ranks : list of TraceRank
    """

    def __init__(self):
        self._handle = _life.Handle(
            _structs.out("struct weft_trace *", lib.weft_trace_create), lib.weft_trace_destroy, "the trace")
        self._spans = None

    def _c(self):
        return self._handle.get()

    # ---- what it takes in ----

    @classmethod
    def read(cls, *files: Any) -> "Trace":
        """The trace of one or several files, with the clocks as they are; see :func:`trace`."""
        result = cls()
        for path in files:
            result.add_file(path)
        return result

    def add_file(self, path: Any) -> "Trace":
        """Adds what a file holds. Returns the trace.

        Raises
        ------
        FileError, FormatError
            The text says where.
        """
        self._spans = None
        check(lib.weft_trace_read(self._c(), ffi.new("char[]", os.fsencode(path))))
        return self

    def add(self, other: "Trace") -> "Trace":
        """Adds what another trace holds. Returns the trace."""
        return self.add_text(other.json())

    def add_text(self, document: str) -> "Trace":
        """Adds what a document (Chrome trace JSON of weft) holds. Returns the trace."""
        self._spans = None
        data = document.encode()
        check(lib.weft_trace_read_text(self._c(), data, len(data)))
        return self

    def collect(self, context: "Context") -> "Trace":
        """Adds what a context has recorded so far; recording goes on. Returns the trace.

        Raises
        ------
        StateError
            The context does not record.
        """
        self._spans = None
        context._call(lib.weft_context_trace_collect, self._c())
        return self

    def add_span(self, rank: int, kind: str, start_us: float, end_us: float, *, node: int = 0,
                 object: Optional[int] = None, version: int = 0, peer: Optional[int] = None,
                 tag: int = 0, bytes: int = 0, arrived_us: Optional[float] = None, end: str = "ended",
                 plan: str = "", label: Optional[str] = None) -> None:
        """Adds a span that no context has recorded.

        Parameters
        ----------
        rank : int
        kind : str
            "run", or the kind of a node: "send", "recv", "reduce" ...
        start_us, end_us, arrived_us : float
            Microseconds, 0 or more, on a clock that all ranks share.
        node, object, version, peer, tag, bytes, end, plan, label
            As in :attr:`spans`.
        """
        self._spans = None
        span = _structs.new("weft_trace_span")
        lib.weft_trace_span_init_sized(span, ffi.sizeof(span[0]))
        texts = [ffi.new("char[]", one.encode()) for one in (plan, label or "")]
        span.rank = rank
        span.kind = RUN if kind == "run" else _enums.number("weft_node_kind_t", kind, "kind")
        span.node = RUN if kind == "run" else node
        span.object = NO_OBJECT if object is None else object
        span.version, span.tag, span.bytes = version, tag, bytes
        span.peer = NO_PEER if peer is None else peer
        span.start_ns, span.end_ns = _ns(start_us, "start_us"), _ns(end_us, "end_us")
        if arrived_us is not None:
            span.arrived_ns = _ns(arrived_us, "arrived_us")
        span.end = _enums.number("weft_trace_end_t", end, "end")
        span.plan = texts[0]
        if label is not None:
            span.label = texts[1]
        check(lib.weft_trace_add(self._c(), span))

    def align(self) -> "Trace":
        """Brings clocks of several machines together, by the messages between them. Returns the trace."""
        self._spans = None
        check(lib.weft_trace_align(self._c()))
        return self

    # ---- what it holds ----

    def __len__(self):
        return lib.weft_trace_span_count(self._c())

    @property
    def ranks(self) -> List[TraceRank]:
        found = []
        for index in range(lib.weft_trace_rank_count(self._c())):
            rank = _structs.new("weft_trace_rank")
            check(lib.weft_trace_get_rank(self._c(), index, rank))
            found.append(TraceRank(rank.rank, rank.size, rank.spans, rank.dropped, rank.offset_ns * 1e-3,
                                   _structs.seconds_of(rank.uncertainty_ns) * 1e6))
        return found

    @property
    def spans(self) -> List[Dict[str, Any]]:
        if self._spans is None:
            self._spans = self._read_spans()
        return self._spans

    def _read_spans(self):
        pointer = self._c()
        span = _structs.new("weft_trace_span")
        raw = []
        kinds = {value: word for word, value in _enums.words("weft_node_kind_t").items()}
        kinds[RUN] = "run"
        ends = {value: word for word, value in _enums.words("weft_trace_end_t").items()}
        for index in range(lib.weft_trace_span_count(pointer)):
            check(lib.weft_trace_get_span(pointer, index, span))
            kind = kinds[span.kind]
            raw.append({
                "rank": span.rank, "kind": kind, "node": None if kind == "run" else span.node,
                "object": None if span.object == NO_OBJECT else span.object, "version": span.version,
                "peer": span.peer if span.peer >= 0 else None,
                "tag": span.tag if kind in ("send", "recv", "event", "signal") else None,
                "bytes": span.bytes, "start_us": span.start_ns, "end_us": span.end_ns,
                "arrived_us": None if span.arrived_ns == _structs.NEVER else span.arrived_ns,
                "end": ends[span.end], "status": span.status if kind == "run" else None,
                "helper": bool(span.helper), "plan": text(span.plan), "label": text(span.label, None)})
        # Times are whole nanoseconds until here, so that nothing is lost in their difference.
        origin = min((one["start_us"] for one in raw), default=0)
        for one in raw:
            for key in ("start_us", "end_us", "arrived_us"):
                if one[key] is not None:
                    one[key] = (one[key] - origin) / 1000
        raw.sort(key=lambda one: (one["rank"], one["start_us"], one["end_us"]))
        return raw

    def json(self) -> str:
        """The trace as Chrome trace JSON."""
        document, length = ffi.new("char **"), ffi.new("size_t *")
        check(lib.weft_trace_write_text(self._c(), document, length))
        try:
            return ffi.buffer(document[0], length[0])[:].decode("utf-8", "replace")
        finally:
            lib.weft_memory_free(document[0])

    def save(self, path: Any) -> Any:
        """Writes Chrome trace JSON: drag the file into https://ui.perfetto.dev (nothing is uploaded), or
        load it in chrome://tracing. Returns the path.

        Raises
        ------
        FileError
        """
        check(lib.weft_trace_write(self._c(), ffi.new("char[]", os.fsencode(path))))
        return path

    def open(self, timeout: float = 60) -> bool:
        """Opens it in the browser, at https://ui.perfetto.dev, which fetches it from this process.

        Nothing is uploaded: the page runs in the browser, and reads the trace from a server on this
        machine (127.0.0.1:9001, the one address that the page reads from) that ends with that. Where the
        browser is on another machine, :meth:`save` the trace and drag the file into that page.

        Parameters
        ----------
        timeout : float
            Seconds that the server waits.

        Returns
        -------
        bool
            Whether the trace was fetched.

        Raises
        ------
        StateError
            Another program has the port.
        """
        from . import _serve

        return _serve.perfetto(self.json(), timeout)

    def __repr__(self):
        ranks = self.ranks
        dropped = sum(rank.dropped for rank in ranks)
        return "<weft.Trace: %s, %s%s; save(path) or open() for ui.perfetto.dev>" % (
            plural(len(ranks), "rank"), plural(len(self), "span"),
            ", %s dropped" % plural(dropped, "record") if dropped else "")

    def _repr_svg_(self):
        from . import draw

        return draw.trace(self)


def _ns(us, what):
    try:
        value = round(us * 1000)
    except (TypeError, ValueError, OverflowError):
        value = -1
    if not 0 <= value <= _structs.LARGEST:
        raise InvalidError("%s is %r, expected 0 or more microseconds" % (what, us))
    return value


def trace(*files: Any, align: bool = True) -> Trace:
    """The traces of ranks as one: what ``weft trace`` does.

    Parameters
    ----------
    *files : path or Trace
        As ``WEFT_TRACE=DIR``, ``weft run --trace`` or :meth:`Trace.save` leave them.
    align : bool
        Bring clocks of different machines together.

    Returns
    -------
    Trace

    Raises
    ------
    FileError, FormatError
        The text says where.
    """
    result = Trace()
    for one in files:
        if isinstance(one, Trace):
            result.add(one)
        else:
            result.add_file(one)
    return result.align() if align else result


def merge(traces: "Iterable[Trace]", align: bool = True) -> Trace:
    """Traces of several ranks as one: ``trace(*traces)``."""
    return trace(*traces, align=align)


def start(context: "Context", records: Optional[int] = None) -> None:
    """A context begins to record; what it had recorded is dropped.

    Parameters
    ----------
    context : Context
    records : int, optional
        Records that are kept, of 56 bytes; a node takes two, a receive three. When there are more the
        oldest go. Default: 2**18.
    """
    config = _structs.Struct("weft_trace_config", {"records": records}, "tracing.start")
    context._call(lib.weft_context_trace_start, config.c)


def stop(context: "Context") -> None:
    """A context ends recording, and what it has recorded is freed."""
    context._call(lib.weft_context_trace_stop)


@contextlib.contextmanager
def record(*contexts: "Context", records: Optional[int] = None) -> Iterator[Trace]:
    """Records one or more contexts of this process: the trace holds their spans when the block has ended.

    Parameters
    ----------
    *contexts : Context
    records : int, optional
        As of :func:`start`.

    Examples
    --------
    >>> def program(context):
    ...     with weft.tracing.record(context) as trace:
    ...         context.allreduce(numpy.ones(4))
    ...     return trace
    >>> weft.trace(*weft.run_local(4, program)).save("all.json")
    """
    result = Trace()
    started = []

    def finish():
        for context in started:
            if context._handle.pointer is not None:  # closed within the block: nothing is left of it
                result.collect(context)
                stop(context)

    try:
        for context in contexts:
            start(context, records)
            started.append(context)
        yield result
    except BaseException:
        with contextlib.suppress(WeftError):  # the one that there is says more
            finish()
        raise
    finish()


def of_simulation(result: "Result") -> Trace:
    """What every node of a simulation did, as a trace of a run would say it."""
    made = Trace()
    counts = [one.node_count for one in result.schedules]
    position = 0
    for rank, schedule in enumerate(result.schedules):
        infos = schedule.nodes
        name = schedule.name
        for info, did in zip(infos, result.nodes[position:position + counts[rank]].tolist()):
            _, node, ready, began, ended, _, _, retired = did
            event = info["kind"] == "event"
            begin = max(began if began >= 0 and not event else ready, 0.0)
            made.add_span(
                rank, info["kind"], begin, max(ended, begin), node=node, object=0, peer=info["peer"],
                tag=info["tag"] if info["tag"] is not None else info["channel"] or 0, bytes=info["bytes"],
                arrived_us=begin if info["kind"] == "recv" and began >= 0 else None,
                end="retired" if retired else "unfinished" if ended < 0 else "ended", plan=name,
                label=info["label"])
        position += counts[rank]
    return made


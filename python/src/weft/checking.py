# SPDX-License-Identifier: BSD-3-Clause
"""Checking schedules before they run: cycles, messages without counterparts, deadlock, races, results.

>>> weft.check("allreduce", 8, algo="ring")
<weft.Report: no fault; 8 ranks, 280 nodes, 112 messages, 8 results>
"""
import html
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from . import _enums, _life, _structs, _targets
from ._library import ffi, lib, text
from ._svg import plural
from .errors import WeftError, check as require

__all__ = ["FaultError", "Report", "check"]


class FaultError(WeftError, ValueError):
    """Schedules have faults: the text has the first ones.

    Attributes
    ----------
    report : Report
    """

    def __init__(self, message: str, report: "Report"):
        super().__init__(message, lib.WEFT_ERR_INVALID)
        self.report = report


class Summary(NamedTuple):
    """What was checked.

    Attributes
    ----------
    ranks, nodes, messages : int
    results : int
        Results that are stated; with none there is nothing to compare outputs with.
    faults : int
        All faults, also those that the report has not kept.
    executions : int
        Of choices; 1 without choices, 0 if a cycle left nothing to execute.
    bounded : bool
        There are more choices than were executed.
    more : bool
        A rank may have more races than those counted.
    ordered, rounds, unordered : int
        With `in_order`: messages that are issued in order, in how many rounds, and ends of messages
        whose place is not known beforehand.
    unordered_text : str or None
        On the first of these.
    """

    ranks: int
    nodes: int
    messages: int
    results: int
    faults: int
    executions: int
    bounded: bool
    more: bool
    ordered: int
    rounds: int
    unordered: int
    unordered_text: Optional[str]


class Report:
    """What :func:`check` has found. True if that is nothing.

    Attributes
    ----------
    ok : bool
        There is no fault.
    faults : list of dict
        Each ``kind`` ("cycle", "match", "size", "deadlock", "race", "result", "order"), ``ranks``
        (list), ``nodes`` (dicts of ``rank``, ``node``, ``line``), ``bytes`` and ``text``.
    summary : Summary
    title : str
        What was checked.
    """

    __slots__ = ("ok", "faults", "summary", "title")

    def __init__(self, ok: bool, faults: List[Dict[str, Any]], summary: Summary, title: str):
        self.ok, self.faults, self.summary, self.title = ok, faults, summary, title

    def __bool__(self):
        return self.ok

    def raise_for_faults(self) -> "Report":
        """Raises :class:`FaultError` if there are faults; returns the report."""
        if not self.ok:
            raise FaultError("%s: %s" % (self.title, self._told(3)), self)
        return self

    def _told(self, most):
        lines = ["%s: %s" % (fault["kind"], fault["text"]) for fault in self.faults[:most]]
        left = self.summary.faults - len(lines)
        lines.insert(0, plural(self.summary.faults, "fault"))
        return "\n  ".join(lines + ["and %d more" % left] * (left > 0))

    def _measures(self):
        summary = self.summary
        parts = [plural(summary.ranks, "rank"), plural(summary.nodes, "node"),
                 plural(summary.messages, "message")]
        parts.append(plural(summary.results, "result") if summary.results
                     else "no result is stated to compare with")
        if summary.executions != 1:
            parts.append("%s of choices%s" % (plural(summary.executions, "execution"),
                                              ", not all" * summary.bounded))
        if summary.rounds:
            parts.append("in order: %d messages in %d rounds" % (summary.ordered, summary.rounds))
        return ", ".join(parts)

    def __repr__(self):
        if self.ok:
            return "<weft.Report: no fault; %s>" % self._measures()
        return "<weft.Report: %s: %s>" % (self._measures(), self._told(5))

    def _repr_html_(self):
        colour = "#00795a" if self.ok else "#c2340a"
        head = "no fault" if self.ok else plural(self.summary.faults, "fault")
        cell = ('<td style="text-align:left;vertical-align:top;padding:3px 14px 3px 0;color:#1b2330;%s">'
                '%s</td>')
        rows = []
        for fault in self.faults:
            ranks = ", ".join(map(str, fault["ranks"][:8])) + ", …" * (len(fault["ranks"]) > 8)
            rows.append("<tr style=\"background:#ffffff\">%s%s%s</tr>" % (
                cell % ("font-weight:600", html.escape(fault["kind"])), cell % ("white-space:nowrap", ranks),
                cell % ("", html.escape(fault["text"]))))
        left = self.summary.faults - len(self.faults)
        if left > 0:
            rows.append('<tr style="background:#ffffff"><td colspan="3" style="text-align:left;'
                        'color:#5b6675">and %d more</td></tr>' % left)
        title = '<th style="text-align:left;padding:2px 14px 2px 0;color:#5b6675;font-weight:500">%s</th>'
        table = ('<table style="border-collapse:collapse;margin:8px 0 0;background:#ffffff;font-size:13px">'
                 '<tr style="background:#ffffff">%s</tr>%s</table>' % (
                     "".join(title % word for word in ("kind", "ranks", "fault")), "".join(rows))
                 if rows else "")
        return ('<div style="background:#ffffff;color:#1b2330;border-left:4px solid %s;padding:8px 14px;'
                'font:13px/1.45 system-ui,\'Noto Sans\',\'DejaVu Sans\',sans-serif">'
                '<b style="color:%s">%s</b>&ensp;%s&ensp;<span style="color:#5b6675">%s</span>%s</div>' % (
                    colour, colour, head, html.escape(self.title), html.escape(self._measures()), table))


def _fault(report, index):
    fault = _structs.new("weft_fault")
    require(lib.weft_check_report_get_fault(report, index, fault))
    return {"kind": _enums.word("weft_fault_kind_t", fault.kind),
            "ranks": [fault.ranks[i] for i in range(fault.rank_count)],
            "nodes": [{"rank": node.rank, "node": node.node, "line": node.line or None}
                      for node in (fault.nodes[i] for i in range(fault.node_count))],
            "bytes": fault.bytes, "text": text(fault.text)}


def check(target: "_targets.Target", n: Optional[int] = None, *, faults: Optional[int] = None,
          executions: Optional[int] = None, seed: Optional[int] = None, local_only: bool = False,
          in_order: bool = False, ops: Sequence[Any] = (), parameters: Optional[dict] = None,
          **more: Any) -> Report:
    """Looks at the graphs of all ranks together, before anything runs.

    Parameters
    ----------
    target : sequence of Schedule, str or path
        The schedules of all ranks; the name of a template; or a file as :func:`weft.write_schedules` or
        ``weft dump`` writes it.
    n : int, optional
        Ranks, of a template (default 4) or a file of any size.
    faults : int, optional
        Faults that the report keeps; more are counted. Default: 100.
    executions : int, optional
        Executions of choices, at most. Default: 1024, fewer for large graphs.
    seed : int, optional
        What executions beyond that are drawn from.
    local_only : bool
        No deadlock and no result is looked for.
    in_order : bool
        Look also for an order of issue in which nothing can block, as NCCL needs it.
    ops : sequence of Op
        Operations of the user that a file may name.
    parameters : dict, optional
        As `more`, for names that are arguments here.
    **more
        Parameters of the template (``count=1000, algo="ring"``), or that the file declares.

    Returns
    -------
    Report

    Raises
    ------
    WeftError
        It could not be checked: a file that cannot be read, a wrong parameter. Faults are no error:
        :meth:`Report.raise_for_faults` makes them one.
    """
    schedules, title = _targets.schedules_of(target, n, ops, dict(parameters or {}, **more), "check")
    config = _structs.Struct("weft_check_config", dict(
        faults=faults, executions=executions, seed=seed, local_only=int(local_only), in_order=int(in_order)),
        "check")
    array = ffi.new("struct weft_schedule *[]", [one._c() for one in schedules])
    pointer = ffi.new("struct weft_check_report **")
    # What the call borrows lives in it: Ctrl-C leaves it to its thread.
    _life.interruptible(lambda keep=schedules: lib.weft_check(array, len(keep), config.c, pointer),
                        undo=lambda: lib.weft_check_report_destroy(pointer[0]))
    report = pointer[0]
    try:
        found = [_fault(report, i) for i in range(lib.weft_check_report_fault_count(report))]
        raw = _structs.filled("weft_check_summary", lib.weft_check_report_get_summary, report)._asdict()
        raw.update(bounded=bool(raw["bounded"]), more=bool(raw["more"]))
        return Report(bool(lib.weft_check_report_ok(report)), found, Summary(**raw), title)
    finally:
        lib.weft_check_report_destroy(report)

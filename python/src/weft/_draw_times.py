# SPDX-License-Identifier: BSD-3-Clause
"""Space and time: a row a rank, bars for nodes, lines for messages, the critical path in red."""

from ._draw_graph import short_text, tip_text
from ._svg import (ACCENT, CRITICAL, INK, KINDS, LANE, LINE, ON, SOFT, Picture, arrow, bytes_text, cut,
                   plural, ticks, time_text, time_unit, width_of)

WIDTH, GUTTER, RIGHT, TOP = 1100, 62, 20, 98
MOST_ROWS, MOST_BARS, MOST_ARROWS, MOST_LANES = 64, 3000, 3000, 12
KINDS_ORDER = ("run", "send", "recv", "reduce", "copy", "compute", "join", "event", "signal")


class Bar:
    """A node on its rank's row. Times are microseconds."""

    __slots__ = ("rank", "node", "kind", "start", "end", "text", "tip", "faint", "any", "lane", "x", "y", "w")

    def __init__(self, rank, node, kind, start, end, text, tip, faint=False, any_=False):
        self.rank, self.node, self.kind, self.start, self.end = rank, node, kind, start, end
        self.text, self.tip, self.faint, self.any = text, tip, faint, any_


class Chart:
    """What a timeline shows.

    Attributes
    ----------
    bars : list of Bar
    messages, signals : list of (Bar, Bar)
    path : list of Bar
        The critical path.
    facts : list of (str, str)
        Below the title.
    warning : str
    notes : list of str
        What was left out.
    pale : str
        What pale bars mean.
    """

    def __init__(self, title, about):
        self.title, self.about = title, about
        self.bars, self.messages, self.signals, self.path = [], [], [], []
        self.facts, self.warning, self.notes, self.pale = [], "", [], "has not ended"


# ---- bounds ----


def choose_rows(all_ranks, wanted, chart):
    """The ranks that are drawn."""
    if wanted is not None:
        chosen = [rank for rank in all_ranks if rank in set(wanted)]
    else:
        chosen = list(all_ranks)
    if len(chosen) > MOST_ROWS:
        chart.notes.append("%d of %s are drawn: %s are left out, ranks=[...] chooses" % (
            MOST_ROWS, plural(len(chosen), "rank"), plural(len(chosen) - MOST_ROWS, "rank")))
        chosen = chosen[:MOST_ROWS]
    elif len(chosen) < len(all_ranks):
        chart.notes.append("%d of %s are drawn" % (len(chosen), plural(len(all_ranks), "rank")))
    return chosen


def _bound(chart):
    """The bars, messages and steps that are drawn: the first ones. Returns where they end."""
    chart.bars.sort(key=lambda bar: (bar.start, bar.end))
    high = max((bar.end for bar in chart.bars), default=0)
    if len(chart.bars) > MOST_BARS:
        high = chart.bars[MOST_BARS].start
        kept = chart.bars[:MOST_BARS]
        chart.notes.append("the first %s of %s are drawn, up to %s" % (
            format(MOST_BARS, ","), plural(len(chart.bars), "node"), time_text(high)))
        high = max([high] + [min(bar.end, high) for bar in kept])
        chart.bars = kept
        known = set(map(id, kept))
        chart.messages = [pair for pair in chart.messages if id(pair[0]) in known and id(pair[1]) in known]
        chart.signals = [pair for pair in chart.signals if id(pair[0]) in known and id(pair[1]) in known]
        chart.path = [bar for bar in chart.path if id(bar) in known]
    if len(chart.messages) > MOST_ARROWS:
        chart.notes.append("the first %s of %s are drawn" % (format(MOST_ARROWS, ","),
                                                            plural(len(chart.messages), "message")))
        chart.messages = sorted(chart.messages, key=lambda pair: pair[0].start)[:MOST_ARROWS]
    return high


def _lanes(bars, least):
    """Lanes on which bars of a rank do not overlap. Runs have lanes of their own, above. How many."""
    free = []
    for runs in (True, False):
        first = len(free)
        for bar in bars:
            if (bar.kind == "run") != runs:
                continue
            end = bar.end if bar.end > bar.start else bar.start + least
            lane = next((i for i in range(first, len(free)) if free[i] <= bar.start), len(free))
            if lane == len(free):
                if len(free) - first < MOST_LANES:
                    free.append(0.0)
                else:
                    lane = len(free) - 1
            free[lane] = max(end, free[lane])
            bar.lane = lane
    return max(len(free), 1)


# ---- the picture ----


class _Stage:
    def __init__(self, chart, rows):
        self.chart, self.rows = chart, rows
        self.picture = Picture(WIDTH)
        self.high = _bound(chart)
        self.low = min((bar.start for bar in chart.bars), default=0)
        if not self.high > self.low:
            self.high = self.low + 1
        self.unit = time_unit(self.high)
        by_rank = {rank: [] for rank in rows}
        for bar in chart.bars:
            by_rank[bar.rank].append(bar)
        least = (self.high - self.low) * 0.004
        lanes = {rank: _lanes(by_rank[rank], least) for rank in rows}
        total = sum(lanes.values())
        self.lane = max(7.0, min(26.0, 600.0 / max(total, 1)))
        gap = max(2.0, min(12.0, self.lane * 0.4))
        self.top = TOP + (22 if chart.warning else 0)
        self.row = {}
        y = self.top
        for rank in rows:
            height = lanes[rank] * self.lane + gap
            self.row[rank] = (y, height)
            for bar in by_rank[rank]:
                bar.x = self.x(bar.start)
                # Nothing is narrower than can be seen.
                bar.w = max(self.x(min(bar.end, self.high)) - bar.x, min(max(self.lane * 0.22, 1.5), 4))
                bar.y = y + gap / 2 + bar.lane * self.lane
            y += height
        self.bottom = y
        self.by_rank = by_rank

    def x(self, us):
        return GUTTER + (us - self.low) / (self.high - self.low) * (WIDTH - GUTTER - RIGHT - 6)

    def middle(self, bar):
        return bar.y + self.lane * 0.46

    # ---- parts ----

    def head(self):
        chart, picture = self.chart, self.picture
        title = cut(chart.title, 18, WIDTH - 40)
        picture.text(20, 30, title, 18, font_weight=650)
        at = 20 + width_of(title, 18) * 1.06 + 14
        picture.text(at, 30, cut(chart.about, 12.5, WIDTH - 20 - at), 12.5, SOFT)
        at = 20
        for name, value in chart.facts:
            wide = width_of(name, 11.5) + 6 + width_of(value, 12.5) * 1.06
            if at + wide > WIDTH - 20:
                value = cut(value, 12.5, (WIDTH - 20 - at - width_of(name, 11.5) - 6) / 1.06)
                if not value:
                    break
            picture.text(at, 55, name, 11.5, SOFT)
            picture.text(at + width_of(name, 11.5) + 6, 55, value, 12.5, font_weight=600)
            at += wide + 22
        if chart.warning:
            picture.rect(20, 64, 4, 20, CRITICAL)
            picture.text(32, 78, cut(chart.warning, 12, WIDTH - 60), 12, CRITICAL, class_="warning")

    def axis(self):
        picture = self.picture
        y = self.top
        picture.line(0, y - 0.5, WIDTH, y - 0.5, LINE)
        picture.text(GUTTER - 9, y - 10, "rank", 11.5, SOFT, "end")
        scale, name = self.unit
        marks, digits = ticks(self.low * scale, self.high * scale, 9)
        free = GUTTER
        for mark in marks:
            x = self.x(mark / scale)
            picture.line(x, y, x, self.bottom, LINE)
            text = "%s %s" % ("{:,.{}f}".format(mark, digits), name)
            wide = width_of(text, 11.5)
            left = max(GUTTER + 2, min(x - wide / 2, WIDTH - 6 - wide))
            if left >= free:
                picture.text(left, y - 10, text, 11.5, SOFT)
                free = left + wide + 10
        picture.line(GUTTER - 0.5, y, GUTTER - 0.5, self.bottom, LINE)

    def lanes(self):
        for i, rank in enumerate(self.rows):
            y, height = self.row[rank]
            if i % 2 == 0:
                self.picture.rect(GUTTER, y, WIDTH - GUTTER, height, LANE)

    def ranks(self):
        free = 0
        for rank in self.rows:
            y, height = self.row[rank]
            middle = y + height / 2
            if middle - 6 >= free:
                self.picture.text(GUTTER - 9, middle + 4, rank, 11.5 if height > 10 else 10, INK, "end")
                free = middle + 7

    def ends(self, a, b, order=False):
        """Where an arrow leaves and arrives: from the end of the send if the message begins to come in
        later, else from its start to the end of the receive."""
        late = order or a.end <= b.start
        x1, x2 = (a.x + (a.w if a.end > a.start else 0), b.x) if late else (a.x, b.x + b.w)
        return min(x1, WIDTH), self.middle(a), min(x2, WIDTH), self.middle(b)

    def arrows(self):
        many = len(self.chart.messages) + len(self.chart.signals)
        alpha = min(max(500 / max(many, 1), 0.16), 0.75)
        head = min(7, 3 + self.lane / 5) if many <= 2500 and self.lane >= 7 else 0
        for kind, pairs, colour, dash in (("message", self.chart.messages, SOFT, None),
                                          ("signal", self.chart.signals, ACCENT, "4 3")):
            if pairs:
                self.picture.raw('<g stroke="%s" fill="%s" opacity="%.2f" stroke-width="%s"%s>' % (
                    colour, colour, alpha, "0.7" if many > 1500 else "1",
                    ' stroke-dasharray="%s"' % dash if dash else ""))
                for a, b in pairs:
                    self.picture.path(arrow(*self.ends(a, b), head), class_=kind)
                self.picture.raw("</g>")

    def bars(self):
        for rank in self.rows:
            right = {}
            for bar in self.by_rank[rank]:
                # Of narrow bars in one place, the first is seen.
                if bar.w < 3 and bar.x + bar.w < right.get(bar.lane, -9) + 0.7:
                    continue
                if bar.w < 3:
                    right[bar.lane] = bar.x + bar.w
                self._bar(bar)

    def _bar(self, bar):
        height = self.lane * 0.92
        self.picture.rect(bar.x, bar.y, bar.w, height, KINDS[bar.kind], bar.tip,
                          min(2, height / 3, bar.w / 3), class_=bar.kind, opacity=0.4 if bar.faint else None)
        if bar.any and bar.w > 7 and height > 7:
            self.picture.rect(bar.x + 2, bar.y + 2, bar.w - 4, height - 4, "none", stroke="#ffffff",
                              pointer_events="none")
        if height < 11 or bar.w < 16:
            return
        size = min(12, max(9.5, height * 0.55))
        text = bar.text
        if width_of(text, size) > bar.w - 7:
            text = text.split(" ", 1)[1] if text.startswith(("send ", "recv ", "signal ")) else text
        text = cut(text, size, bar.w - 7)
        if len(text) > 2 or text == bar.text:
            self.picture.text(bar.x + 4, bar.y + height / 2 + size * 0.36, text, size,
                              INK if bar.faint else ON.get(bar.kind, "#ffffff"), pointer_events="none")

    def path(self):
        picture, last = self.picture, None
        if not self.chart.path:
            return
        picture.raw('<g stroke="%s" stroke-width="%s">' % (CRITICAL, 2 if self.lane > 9 else 1.3))
        for bar in self.chart.path:
            picture.rect(bar.x - 0.5, bar.y - 0.5, bar.w + 1, self.lane * 0.92 + 1, "none", class_="critical",
                         pointer_events="none")
            if last is not None:
                same = last.rank == bar.rank
                x1, y1, x2, y2 = self.ends(last, bar, same)
                if not same or x2 - x1 > 1.5 or y1 != y2:
                    picture.path(arrow(x1, y1, x2, y2, 8 if self.lane > 9 else 5), fill=CRITICAL,
                                 pointer_events="none")
            last = bar
        picture.raw("</g>")

    def foot(self):
        y, at = self.bottom + 24, 20
        picture = self.picture
        used = {bar.kind for bar in self.chart.bars}
        entries = [(kind, KINDS[kind]) for kind in KINDS_ORDER if kind in used]
        for kind, colour in entries:
            picture.rect(at, y - 9, 14, 10, colour, radius=2)
            picture.text(at + 20, y, kind, 12, SOFT)
            at += 20 + width_of(kind, 12) + 18
        for there, name, colour, dash in ((self.chart.messages, "message", SOFT, None),
                                          (self.chart.signals, "signal", ACCENT, "4 3")):
            if there:
                picture.path(arrow(at, y - 4, at + 20, y - 4, 6), stroke=colour, fill=colour,
                             stroke_dasharray=dash)
                picture.text(at + 27, y, name, 12, SOFT)
                at += 27 + width_of(name, 12) + 18
        if self.chart.path:
            picture.rect(at, y - 9, 14, 10, "none", radius=2, stroke=CRITICAL, stroke_width=2)
            picture.text(at + 20, y, "critical path", 12, SOFT)
            at += 20 + width_of("critical path", 12) + 18
        if any(bar.faint for bar in self.chart.bars):
            picture.rect(at, y - 9, 14, 10, INK, radius=2, opacity=0.25)
            picture.text(at + 20, y, self.chart.pale, 12, SOFT)
        for note in self.chart.notes:
            y += 19
            picture.text(20, y, cut(note, 12, WIDTH - 40), 12, ACCENT, class_="left-out")
        return y + 16


def timeline(chart, rows):
    stage = _Stage(chart, rows)
    stage.lanes()
    stage.axis()
    stage.arrows()
    stage.bars()
    stage.path()
    stage.ranks()
    stage.head()
    if not chart.bars:
        stage.picture.text(GUTTER + 20, stage.top + 16, "There is nothing to be seen.", 12, SOFT)
    return stage.picture.svg(max(stage.foot(), stage.top + 60))


# ---- of simulations ----


def of_simulation(result, ranks=None):
    """The chart of a simulation that has kept its nodes, and its rows."""
    chart = Chart(result.title, "%s · simulated, %s" % (plural(result.ranks, "rank"), result.net))
    rows = choose_rows(range(result.ranks), ranks, chart)
    chart.facts = [("makespan", time_text(result.time_us))]
    if result.critical_path:
        chart.facts.append(("critical path", "%s, %s" % (plural(len(result.critical_path), "step"), plural(
            sum(step["after"] == "message" for step in result.critical_path), "message"))))
    chart.facts += [("nodes", format(result.node_count, ",")),
                    ("messages", "%s, %s" % (format(result.messages, ","), bytes_text(result.bytes)))]
    if result.signals:
        chart.facts.append(("signals", format(result.signals, ",")))
    if not result.complete:
        chart.warning = "does not end: %s left; %s" % (
            plural(result.stuck, "node"), result.faults[0]["text"] if result.faults else "")
    known = {}
    firsts = [0]
    for schedule in result.schedules:
        firsts.append(firsts[-1] + schedule.node_count)
    unit = time_unit(result.time_us)
    infos = {}
    for rank in rows:
        infos[rank] = result.schedules[rank].nodes
        for info, did in zip(infos[rank], result.nodes[firsts[rank]:firsts[rank + 1]].tolist()):
            bar = _simulated(rank, info, did, unit, result.time_us)
            if bar is not None:
                known[rank, info["node"]] = bar
                chart.bars.append(bar)
    for (rank, node), bar in known.items():
        peer, other = result.nodes[firsts[rank] + node].item()[5:7]
        if bar.kind == "send" and other >= 0 and (peer, other) in known and not bar.faint:
            chart.messages.append((bar, known[peer, other]))
        elif bar.kind == "signal" and not bar.faint:
            info = infos[rank][node]
            for heard in infos.get(info["peer"], ()):
                if heard["kind"] == "event" and heard["channel"] == info["channel"]:
                    event = known.get((info["peer"], heard["node"]))
                    if event is not None and not event.faint and event.end >= bar.end:
                        chart.signals.append((bar, event))
    chart.path = [known[step["rank"], step["node"]] for step in result.critical_path
                  if (step["rank"], step["node"]) in known]
    return chart, rows


def _simulated(rank, info, did, unit, until):
    _, node, ready, start, end, _, _, retired = did
    if retired or (end < 0 and ready < 0):
        return None
    tip = "rank %d, %s\n" % (rank, tip_text(info))
    if end < 0:
        return Bar(rank, node, info["kind"], ready, max(until, ready), short_text(info),
                   tip + "ready at %s, has not ended" % time_text(ready, unit), True, info["any"])
    return Bar(rank, node, info["kind"], start, end, short_text(info), tip + "%s to %s" % (
        time_text(start, unit), time_text(end, unit)), False, info["any"])


# ---- of traces ----


def of_trace(trace, ranks=None, start_us=None, end_us=None):
    spans = trace.spans
    chart = Chart(_plans(spans), "recorded")
    chart.pale = "retired"
    there = [entry.rank for entry in trace.ranks]
    rows = choose_rows(there, ranks, chart)
    chosen = set(rows)
    low = -1.0 if start_us is None else start_us
    high = float("inf") if end_us is None else end_us
    unit = time_unit(max((span["end_us"] for span in spans), default=0))
    shown = {}
    sends, signals = {}, {}
    for number_, span in enumerate(spans):
        if span["rank"] not in chosen or span["end_us"] < low or span["start_us"] > high:
            continue
        bar = shown[number_] = _recorded(span, unit, max(low, 0.0), high)
        chart.bars.append(bar)
        if span["end"] == "retired":
            continue
        key = (span["object"], span["version"], span["rank"], span["peer"], span["tag"])
        if span["kind"] == "send":
            sends[key] = bar
        elif span["kind"] == "signal":
            signals.setdefault((span["object"], span["version"], span["peer"], span["tag"]), []).append(bar)
    for number_, bar in shown.items():
        span = spans[number_]
        if span["end"] == "retired":
            continue
        if span["kind"] == "recv":
            send = sends.get((span["object"], span["version"], span["peer"], span["rank"], span["tag"]))
            if send is not None:
                chart.messages.append((send, bar))
        elif span["kind"] == "event":
            key = (span["object"], span["version"], span["rank"], span["tag"])
            heard = [signal for signal in signals.get(key, ()) if signal.end <= span["end_us"]]
            if heard:
                chart.signals.append((min(heard, key=lambda signal: signal.end), bar))
    if start_us is not None or end_us is not None:
        chart.notes.append("a part of the time: %s to %s of %s" % (
            time_text(max(low, 0.0)), "the end" if end_us is None else time_text(end_us),
            time_text(max((span["end_us"] for span in spans), default=0))))
    dropped = sum(entry.dropped for entry in trace.ranks)
    if dropped:
        chart.notes.append("%s were dropped while recording: the oldest ones" % plural(dropped, "record"))
    nodes = sum(span["kind"] != "run" for span in spans)
    chart.facts = [("time", time_text(max((span["end_us"] for span in spans), default=0))),
                   ("ranks", str(len(there))), ("runs", format(len(spans) - nodes, ",")),
                   ("nodes", format(nodes, ",")),
                   ("messages", format(sum(span["kind"] == "send" for span in spans), ","))]
    return chart, rows


def _plans(spans):
    names = []
    for span in spans:
        if span["plan"] and span["plan"] not in names:
            names.append(span["plan"])
        if len(names) > 3:
            break
    return ", ".join(names[:3]) + ", …" * (len(names) > 3) or "trace"


def _recorded(span, unit, low, high):
    kind = span["kind"]
    peer = span["peer"]
    if kind == "run":
        text = "%s v%d" % (span["plan"], span["version"])
    elif kind in ("send", "signal"):
        text = "%s → %s" % (kind, peer)
    elif kind == "recv":
        text = "recv ← %s" % peer
    else:
        text = span["label"] or kind
    tip = ["rank %d, %s" % (span["rank"], kind if kind == "run" else "node %d: %s" % (span["node"], kind))]
    tip += [span["label"]] if span["label"] else []
    tip += ["%s, version %d" % (span["plan"], span["version"])]
    if peer is not None:
        tip.append("%s rank %d, %s %s, %s" % ("from" if kind == "recv" else "to", peer,
                                              "channel" if kind == "signal" else "tag", span["tag"],
                                              bytes_text(span["bytes"])))
    tip.append("%s to %s (%s)" % (time_text(span["start_us"], unit), time_text(span["end_us"], unit),
                                  time_text(span["end_us"] - span["start_us"])))
    tip += [span["end"]] if span["end"] != "ended" else []
    return Bar(span["rank"], span["node"], kind, max(span["start_us"], low), min(span["end_us"], high), text,
               "\n".join(tip), span["end"] == "retired")



# SPDX-License-Identifier: BSD-3-Clause
"""Merge plans: for each two lanes, the layers that are computed and below them the allreduces, on one
scale; as ``weft merge --plot`` draws them. A group has one colour in both, and a ribbon between them."""
from ._svg import ACCENT, INK, LINE, SOFT, Picture, cut, number, plural, ticks, time_text, time_unit, width_of

WIDTH, LEFT, RIGHT, TOP, HEAD, HIGH, BETWEEN, SPACE, BOTTOM = 1100, 116, 112, 104, 24, 26, 22, 24, 50
MOST_PLANS, MOST_GROUPS, MOST_LAYERS = 8, 400, 2000

# Of Okabe and Ito, which people with any kind of colour vision tell apart.
COLOURS = ((0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233))
END = "#d55e00"

_OPTIMAL = {"all": "; no plan ends earlier", "contiguous": "; no plan of successive layers ends earlier"}


def _mix(colour, white):
    """A colour, towards white (1) or black (-1)."""
    to = 255 if white > 0 else 0
    return "#%02x%02x%02x" % tuple(round(part + (to - part) * abs(white)) for part in colour)


class _Stage:
    def __init__(self, plans):
        self.plans = plans[:MOST_PLANS]
        self.layers = plans[0].layers
        self.ready = plans[0].ready_us
        order = sorted(range(len(self.layers)), key=lambda i: (self.layers[i].ready_us, i))
        self.begin = {}
        for before, layer in zip([None] + order, order):
            self.begin[layer] = 0.0 if before is None else self.layers[before].ready_us
        self.high = max([self.ready] + [plan.end_us for plan in self.plans]) or 1.0
        self.unit = time_unit(self.high)
        self.picture = Picture(WIDTH)
        self.best = min(plan.end_us for plan in self.plans)
        self.notes = []

    def x(self, us):
        return LEFT + us / self.high * (WIDTH - LEFT - RIGHT)

    def block(self, x1, x2, y, fill, tip=None, **more):
        self.picture.rect(x1, y, max(x2 - x1, 0.35), HIGH, fill, tip, **more)

    def label(self, x1, x2, y, text, fill, plate=False):
        wide = width_of(text, 11)
        if not text or wide + 6 > x2 - x1:
            return
        middle = (x1 + x2) / 2
        if plate:
            self.picture.rect(middle - wide / 2 - 2, y + HIGH / 2 - 7, wide + 4, 14, "#ffffff", opacity=0.85,
                              pointer_events="none")
        self.picture.text(middle, y + HIGH / 2 + 4, text, 11, INK if plate else fill, "middle",
                          pointer_events="none")

    # ---- a band ----

    def band(self, plan, top):
        compute, send = top + HEAD, top + HEAD + HIGH + BETWEEN
        self.picture.rect(LEFT, compute, WIDTH - RIGHT - LEFT, HIGH, "#f3f3f3")
        self.picture.rect(LEFT, send, WIDTH - RIGHT - LEFT, HIGH, "#f3f3f3")
        best = plan.end_us == self.best and len(self.plans) > 1
        name = cut(plan.method, 14, 320)
        self.picture.text(LEFT, top + 16, name, 14, END if best else INK, font_weight=650)
        self.picture.text(LEFT + width_of(name, 14) * 1.06 + 10, top + 16, "%s, %.0f %% hidden%s" % (
            plural(len(plan.groups), "allreduce"), 100 * plan.hidden_fraction,
            _OPTIMAL.get(plan.optimal, "")), 12, SOFT)
        self.picture.text(LEFT - 9, compute + HIGH / 2 + 4, "backward pass", 12, SOFT, "end")
        self.picture.text(LEFT - 9, send + HIGH / 2 + 4, "allreduces", 12, SOFT, "end")
        sends = plan.sends[:MOST_GROUPS]
        if len(sends) < len(plan.sends):
            self.notes.append("%s: the first %d of %s are drawn" % (
                plan.method, len(sends), plural(len(plan.sends), "allreduce")))
        for i, one in enumerate(sends):
            self._ribbon(one, COLOURS[i % len(COLOURS)], compute + HIGH, send)
        self._layers(plan, sends, compute)
        for i, one in enumerate(sends):
            self._send(plan, one, i, send)
        self._exposed(sends, send, plan)
        for i, one in enumerate(sends):
            self.label(self.x(one["start_us"]), self.x(one["end_us"]), send, _name(one["layers"]),
                       INK if i % len(COLOURS) in (1, 4) else "#ffffff", one["end_us"] > self.ready)
        self._ready(top)
        self._end(plan, send, best)

    def _ribbon(self, send, colour, y1, y2):
        low = min(self.begin[layer] for layer in send["layers"])
        high = max(self.layers[layer].ready_us for layer in send["layers"])
        a, b, c, d = self.x(low), self.x(high), self.x(send["end_us"]), self.x(send["start_us"])
        middle = (y1 + y2) / 2
        self.picture.path("M%s %sL%s %sC%s %s %s %s %s %sL%s %sC%s %s %s %s %s %sZ" % tuple(map(number, (
            a, y1, b, y1, b, middle, c, middle, c, y2, d, y2, d, middle, a, middle, a, y1))),
            fill=_mix(colour, 0.3), opacity=0.28)

    def _layers(self, plan, sends, y):
        group_of = {layer: i for i, send in enumerate(sends) for layer in send["layers"]}
        shown = len(self.layers) <= MOST_LAYERS
        i = 0
        while i < len(self.layers):
            # Neighbours of one group, and of one time, are one block, where there are too many.
            last = i + 1
            while not shown and last < len(self.layers) and group_of.get(last) == group_of.get(i) and \
                    self.begin[last] == self.layers[last - 1].ready_us:
                last += 1
            x1, x2 = self.x(self.begin[i]), self.x(self.layers[last - 1].ready_us)
            colour = COLOURS[group_of[i] % len(COLOURS)] if i in group_of else (150, 150, 150)
            if x2 > x1:
                layer = self.layers[i]
                tip = "layer %d: %s\n%s elements, ready at %s" % (
                    i, layer.name, format(layer.elements, ","), time_text(layer.ready_us, self.unit))
                self.block(x1, x2, y, _mix(colour, 0.5), tip if shown else None, class_="layer")
                if x2 - x1 > 1.5:
                    self.picture.line(x2, y, x2, y + HIGH, "#ffffff", 0.7)
                if shown:
                    self.label(x1, x2, y, layer.name, INK)
            i = last

    def _send(self, plan, send, index, y):
        colour = COLOURS[index % len(COLOURS)]
        x1, x2 = self.x(send["start_us"]), self.x(send["end_us"])
        tip = "allreduce %d: %s\n%s bytes, ready at %s\n%s to %s" % (
            index, "layer %s" % _name(send["layers"]), format(send["bytes"], ","),
            time_text(send["ready_us"], self.unit), time_text(send["start_us"], self.unit),
            time_text(send["end_us"], self.unit))
        self.block(x1, x2, y, _mix(colour, 0), tip, class_="allreduce")
        latency = min(plan.latency_us, send["end_us"] - send["start_us"])
        if latency > 0:
            self.block(x1, self.x(send["start_us"] + latency), y, _mix(colour, -0.45), pointer_events="none")
        if x2 - x1 > WIDTH / 300:
            self.picture.line(x2, y, x2, y + HIGH, "#ffffff", 0.7)

    def _exposed(self, sends, y, plan):
        """Strokes over what nothing hides."""
        strokes = []
        for send in sends:
            x1, x2 = max(self.x(send["start_us"]), self.x(self.ready)), self.x(send["end_us"])
            at = x1 - (x1 % 6) - HIGH
            while at < x2:
                left, right = max(at, x1), min(at + HIGH, x2)
                if right > left:
                    strokes.append("M%s %sL%s %s" % tuple(map(number, (
                        left, y + HIGH - (left - at), right, y + HIGH - (right - at)))))
                at += 6
        if strokes:
            self.picture.path("".join(strokes), stroke="#ffffff", stroke_width=1.5, opacity=0.62, fill="none",
                              pointer_events="none", class_="exposed")

    def _ready(self, top):
        x = self.x(self.ready)
        self.picture.line(x, top + HEAD - 1, x, top + HEAD + 2 * HIGH + BETWEEN + 6, INK, 1.4,
                          stroke_dasharray="4 3")

    def _end(self, plan, send, best):
        x = self.x(plan.end_us)
        self.picture.line(x, send - 5, x, send + HIGH + 5, END, 2)
        self.picture.text(x + 7, send + HIGH / 2 + 4.5, time_text(plan.end_us, self.unit), 13,
                          END if best else INK, font_weight=650)

    # ---- the whole ----

    def head(self):
        layers = self.layers
        self.picture.text(LEFT, 34, "Merged gradients", 19, font_weight=650)
        self.picture.text(LEFT, 56, "%s, %s elements, ready within %s" % (
            plural(len(layers), "layer"), format(sum(layer.elements for layer in layers), ","),
            time_text(self.ready, self.unit)), 13, SOFT)
        x = LEFT
        keys = [(_mix(COLOURS[0], 0.5), "a layer's gradient computed", False)]
        if any(plan.latency_us > 0 for plan in self.plans):
            keys.append((_mix(COLOURS[0], -0.45), "latency of an allreduce", False))
        keys += [(_mix(COLOURS[0], 0), "its bytes, hidden", False), (_mix(COLOURS[0], 0), "exposed", True)]
        for colour, text, hatched in keys:
            self.picture.rect(x, 74, 26, 13, colour)
            if hatched:
                self.picture.path("".join("M%d 87L%d 74" % (x + i, x + i + 13) for i in range(0, 14, 6)),
                                  stroke="#ffffff", stroke_width=1.5, opacity=0.62)
            self.picture.text(x + 33, 85, text, 12, SOFT)
            x += 33 + width_of(text, 12) + 20
        self.picture.line(x + 6, 71, x + 6, 90, INK, 1.4, stroke_dasharray="4 3")
        self.picture.text(x + 16, 85, "last gradient", 12, SOFT)

    def grid(self, foot):
        scale, name = self.unit
        marks, digits = ticks(0, self.high * scale, 10)
        for mark in marks:
            x = self.x(mark / scale)
            self.picture.line(x, TOP, x, foot, LINE)
            self.picture.text(x, foot + 19, "{:,.{}f}".format(mark, digits), 12, SOFT, "middle")
        self.picture.line(LEFT, foot, WIDTH - RIGHT, foot, SOFT, 1.2)
        self.picture.text((LEFT + WIDTH - RIGHT) / 2, foot + 39, "time (%s)" % name, 13, SOFT, "middle")


def _name(layers):
    """"3", "3-7", or how many."""
    first, last = min(layers), max(layers)
    if first == last:
        return str(first)
    return "%d-%d" % (first, last) if last - first + 1 == len(layers) else "%d layers" % len(layers)


def plans(given):
    stage = _Stage(given)
    band = HEAD + 2 * HIGH + BETWEEN + SPACE
    foot = TOP + band * len(stage.plans)
    stage.head()
    stage.grid(foot)
    for i, plan in enumerate(stage.plans):
        stage.band(plan, TOP + i * band)
    if len(given) > MOST_PLANS:
        stage.notes.append("%d of %d plans are drawn" % (MOST_PLANS, len(given)))
    height = foot + BOTTOM
    for note in stage.notes:
        stage.picture.text(LEFT, height + 6, note, 12, ACCENT, class_="left-out")
        height += 19
    return stage.picture.svg(height + 4)

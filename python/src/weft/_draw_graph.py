# SPDX-License-Identifier: BSD-3-Clause
"""The graph of one rank: layers by longest path, orders within them by barycentres, places as near to
those of neighbours as boxes allow."""
from ._svg import ACCENT, FAINT, INK, KINDS, ON, SOFT, Picture, cut, number, plural, width_of

MOST_NODES = 400
MOST_LAYERS = 40
MOST_OF_LAYER = 40  # of parts that are too large
MOST_ORDERS = 2000
MOST_POINTS = 4000  # of long edges, where they pass layers
WIDEST, TALLEST = 1100, 2400
BOX, LEAST_BOX, HEIGHT, APART = 158, 84, 34, 14
LEFT, TOP, BOTTOM = 20, 78, 18


# ---- layers ----


def levels_of(count, edges):
    """How many nodes come before each, along the longest path. What hangs in a cycle comes last."""
    after = [[] for _ in range(count)]
    missing = [0] * count
    for a, b in edges:
        after[a].append(b)
        missing[b] += 1
    level = [0] * count
    queue = [node for node in range(count) if not missing[node]]
    for node in queue:
        for other in after[node]:
            level[other] = max(level[other], level[node] + 1)
            missing[other] -= 1
            if not missing[other]:
                queue.append(other)
    if len(queue) < count:
        last = max((level[node] for node in queue), default=-1) + 1
        for node in set(range(count)) - set(queue):
            level[node] = max(level[node], last)
    return level


def parts_of(count, edges):
    """The connected parts, each ascending, in the order of their first nodes."""
    root = list(range(count))

    def find(node):
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for a, b in edges:
        a, b = find(a), find(b)
        root[max(a, b)] = min(a, b)
    found = {}
    for node in range(count):
        found.setdefault(find(node), []).append(node)
    return list(found.values())


def _bounded(part, level, room):
    """The nodes of a part that are drawn: all, or so many of each layer, of as many first layers as may
    be."""
    if len(part) <= room:
        return part
    rows = {}
    for node in part:
        row = rows.setdefault(level[node], [])
        if len(row) < MOST_OF_LAYER:
            row.append(node)
    found = []
    for one in sorted(rows):
        if len(found) + len(rows[one]) > room:
            break
        found += rows[one]
    return sorted(found)


class _Layout:
    """Rows of nodes and of the points at which long edges pass; each at a place along its row."""

    def __init__(self, nodes, level, edges, sizes):
        self.rows = [[] for _ in range(max((level[node] for node in nodes), default=-1) + 1)]
        self.size = dict(sizes)
        self.neighbours = {}
        self.chains = []
        self.level = {node: level[node] for node in nodes}
        for node in nodes:
            self.rows[level[node]].append(node)
            self.neighbours[node] = ([], [])
        self.points = 0
        for a, b in edges:
            if a in self.level and b in self.level:
                self._chain(a, b)
        self.weight = {}
        for row in self.rows[::-1]:
            for node in row:
                after = max((self.weight[other] for other in self.neighbours[node][1]), default=0)
                self.weight[node] = 1 + min(4 * after, 400)
        self._order()
        self._place()

    def _chain(self, a, b):
        """An edge by way of a point in each layer between its ends."""
        chain = [a]
        low, high = self.level[a], self.level[b]
        if high - low > 1 and self.points + high - low <= MOST_POINTS:
            for row in range(low + 1, high):
                point = ("point", self.points)
                self.points += 1
                self.size[point] = 10
                self.neighbours[point] = ([], [])
                self.rows[row].append(point)
                chain.append(point)
        chain.append(b)
        self.chains.append(chain)
        if high - low == 1 or len(chain) > 2:
            for one, other in zip(chain, chain[1:]):
                self.neighbours[one][1].append(other)
                self.neighbours[other][0].append(one)

    def _order(self):
        index = {}
        for row in self.rows:
            index.update((node, i) for i, node in enumerate(row))
        best, fewest = None, None
        for sweep in range(8):
            down = sweep % 2 == 0
            for row in (self.rows if down else self.rows[::-1]):
                weight = {}
                for i, node in enumerate(row):
                    near = self.neighbours[node][0 if down else 1]
                    weight[node] = (sum(index[other] for other in near) / len(near) if near else i, i)
                row.sort(key=weight.__getitem__)
                index.update((node, i) for i, node in enumerate(row))
            crossings = self._crossings(index)
            if fewest is None or crossings < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
            if crossings == 0:
                break
        self.rows = best or self.rows

    def _crossings(self, index):
        found = 0
        for row in self.rows:
            ends = [index[other] for node in row for other in sorted(self.neighbours[node][1], key=index.get)]
            if len(ends) > 200:  # it takes their square
                continue
            for i, one in enumerate(ends):
                found += sum(1 for other in ends[i + 1:] if other < one)
        return found

    def _place(self):
        self.place = {}
        for row in self.rows:
            at = 0.0
            for node in row:
                self.place[node] = at + self.size[node] / 2
                at += self.size[node] + APART
        for sweep in range(13):
            down = sweep % 2 == 0
            for row in (self.rows if down else self.rows[::-1]):
                self._settle(row, 0 if down else 1)
        lowest = min((self.place[node] - self.size[node] / 2 for node in self.place), default=0)
        for node in self.place:
            self.place[node] -= lowest
        self.extent = max((self.place[node] + self.size[node] / 2 for node in self.place), default=0)

    def _settle(self, row, side):
        """Near to the mean of neighbours, in this order and apart: the least sum of squares (by pooling
        neighbours that would overlap)."""
        blocks = []  # [sum of weights times places less what lies before, sum of weights, nodes]
        shift, shifts = 0.0, []
        for i, node in enumerate(row):
            if i:
                shift += (self.size[row[i - 1]] + self.size[node]) / 2 + APART
            shifts.append(shift)
            near = self.neighbours[node][side] or self.neighbours[node][1 - side]
            if near:  # what goes on weighs more than what ends there, so that long ways are straight
                weight = self.weight[node]
                wanted = (sum(self.place[other] * self.weight[other] for other in near)
                          / sum(self.weight[other] for other in near))
                blocks.append([weight * (wanted - shift), weight, 1])
            else:  # whatever its row likes
                wanted = blocks[-1][0] / blocks[-1][1] if blocks else self.place[node] - shift
                blocks.append([1e-6 * wanted, 1e-6, 1])
            while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
                last = blocks.pop()
                blocks[-1] = [one + other for one, other in zip(blocks[-1], last)]
        i = 0
        for total, weight, count in blocks:
            for _ in range(count):
                self.place[row[i]] = total / weight + shifts[i]
                i += 1


# ---- words ----


def short_text(node):
    """What stands on a node: "send → 1"."""
    kind = node["kind"]
    if kind in ("send", "signal"):
        return "%s → %s" % (kind, "none" if node["peer"] is None else node["peer"])
    if kind == "recv":
        peer = "none" if node["peer"] is None else node["peer"]
        return "recv ← %s%s" % (peer, ", up to" if node["up_to"] else "")
    if kind == "event":
        return "event" if node["channel"] is None else "event, channel %d" % node["channel"]
    if kind in ("reduce", "compute"):
        return node["op"] or kind
    return kind


def region_text(region):
    return "%s[%d:%d]" % (region[0], region[1], region[1] + region[2])


def second_text(node):
    """The line below: its name, or what it touches."""
    if node["label"]:
        return node["label"]
    regions = node["regions"]
    if not regions:
        return "tag %d" % node["tag"] if node["tag"] else ""
    if node["kind"] == "copy" and len(regions) > 1:
        return "%s = %s" % (region_text(regions[0]), regions[1][0])
    return region_text(regions[0])


def tip_text(node):
    """Everything, for who points at it."""
    lines = ["node %d: %s%s" % (node["node"], node["kind"], " %s" % node["op"] if node["op"] else "")]
    if node["label"]:
        lines.append(node["label"])
    if node["peer"] is not None:
        lines.append("%s rank %d%s" % ("from" if node["kind"] == "recv" else "to", node["peer"],
                                       "" if node["tag"] is None else ", tag %d" % node["tag"]))
    if node["channel"] is not None:
        lines.append("channel %d" % node["channel"])
    lines += ["%s %s" % (region[3], region_text(region)) for region in node["regions"]]
    lines += ["starts after any of its predecessors"] * node["any"]
    lines += ["takes up to so many"] * node["up_to"]
    lines += ["of choice %d" % node["choice"]] if node["choice"] is not None else []
    lines += ["line %d" % node["line"]] if node["line"] else []
    return "\n".join(lines)


# ---- the picture ----


class _Sheet:
    """The parts that are drawn, each laid out by itself, on shelves."""

    def __init__(self, nodes, edges):
        self.nodes = nodes
        self.level = level = levels_of(len(nodes), edges)
        self.parts, room = [], MOST_NODES
        for part in parts_of(len(nodes), edges):
            part = _bounded([node for node in part if level[node] < MOST_LAYERS], level, room)
            self.parts += [part] if part else []
            room -= len(part)
            if room <= 0 or not part:
                break
        shown = [node for part in self.parts for node in part]
        self.upper = {node: short_text(nodes[node]) for node in shown}
        self.lower = {node: second_text(nodes[node]) for node in shown}
        widths = [max(width_of(self.upper[node], 12), width_of(self.lower[node], 10)) + 16 for node in shown]
        self.box = min(max([LEAST_BOX] + widths), BOX)
        layers = max([level[node] for node in shown], default=0) + 1
        widest = 1
        for part in self.parts:
            rows = {}
            for node in part:
                rows[level[node]] = rows.get(level[node], 0) + 1
            widest = max(widest, max(rows.values()))
        self.across = (layers * (self.box + 40) + 2 * LEFT <= WIDEST
                       or widest * (self.box + APART) + 2 * LEFT > WIDEST)
        self.long, self.thick = (self.box, HEIGHT) if self.across else (HEIGHT, self.box)
        self.step = self.long + (40 if self.across else 26)
        self._lay(edges)

    def _lay(self, edges):
        of = {node: i for i, part in enumerate(self.parts) for node in part}
        own = [[] for _ in self.parts]
        for a, b in edges:
            if a in of and b in of:
                own[of[a]].append((a, b))
        self.layouts, self.corners, self.shown = [], [], 0
        self.orders = self.without = 0
        x = y = shelf = 0.0
        size = None
        self.width = 0.0
        for part, among in zip(self.parts, own):
            among.sort(key=lambda edge: self.level[edge[1]] - self.level[edge[0]])
            among, more = among[:MOST_ORDERS - self.orders], among[MOST_ORDERS - self.orders:]
            self.orders += len(among)
            self.without += len(more)
            layout = _Layout(part, self.level, among, {node: self.thick for node in part})
            length = len(layout.rows) * self.step - (self.step - self.long)
            wide, high = (length, layout.extent) if self.across else (layout.extent, length)
            if (wide, high) != size or x + wide + 2 * LEFT > WIDEST:  # a shelf has parts of one size
                if self.layouts and y + shelf + high > TALLEST:
                    break
                x, y, shelf, size = 0.0, y + shelf, 0.0, (wide, high)
            self.layouts.append(layout)
            self.corners.append((x, y))
            self.shown += len(part)
            self.width = max(self.width, x + wide)
            x += wide + 40
            shelf = high + APART
        self.height = max(y + shelf - APART, 0)

    def at(self, layout, corner, node, row, left):
        """The middle of a node, or of the point at which a long edge passes that row."""
        along, place = row * self.step + self.long / 2, layout.place[node]
        x, y = (along, place) if self.across else (place, along)
        return left + corner[0] + x, TOP + corner[1] + y


def graph(schedule):
    nodes, edges = schedule.nodes, sorted(set(schedule.edges))
    sheet = _Sheet(nodes, edges)
    width = max(sheet.width + 2 * LEFT, 360)
    picture = Picture(width)
    layers = max(sheet.level, default=-1) + 1
    _head(picture, schedule, len(nodes), layers)
    left = (width - sheet.width) / 2
    picture.raw('<g class="edges" fill="%s" stroke="%s" stroke-width="1">' % (FAINT, FAINT))
    for layout, corner in zip(sheet.layouts, sheet.corners):
        for chain in layout.chains:
            _edge(picture, sheet, layout, chain, lambda node, row: sheet.at(layout, corner, node, row, left))
    picture.raw("</g>")
    for layout, corner in zip(sheet.layouts, sheet.corners):
        for node, row in layout.level.items():
            _box(picture, nodes[node], *sheet.at(layout, corner, node, row, left), box=sheet.box,
                 upper=sheet.upper[node], lower=sheet.lower[node])
    height = TOP + sheet.height + BOTTOM
    if sheet.shown < len(nodes):
        first = ": the first %d steps" % MOST_LAYERS if layers > MOST_LAYERS else ""
        picture.text(LEFT, height + 6, "%s of %s are drawn%s" % (
            format(sheet.shown, ","), plural(len(nodes), "node"), first), 12, ACCENT, class_="left-out")
        height += 22
    if sheet.without:
        picture.text(LEFT, height + 6, "%s without an arrow: those that lead farthest" % plural(
            sheet.without, "order"), 12, ACCENT, class_="left-out")
        height += 22
    if not nodes:
        picture.text(LEFT, TOP + 12, "The schedule has no nodes.", 12, SOFT)
        height += 24
    return picture.svg(height, fit=width <= 1.3 * WIDEST)


def _head(picture, schedule, nodes, layers):
    room = picture.width - 2 * LEFT
    picture.text(LEFT, 28, cut(schedule.name or "schedule", 17, room), 17, font_weight=650)
    picture.text(LEFT, 47, cut("rank %d of %d · %s, %s" % (
        schedule.rank, schedule.size, plural(nodes, "node"), plural(layers, "step")), 12, room), 12, SOFT)
    slots = " · ".join("%s %s[%d] %s" % (slot.name, slot.dtype, slot.count, slot.kind)
                      for slot in schedule.slots.values())
    picture.text(LEFT, 63, cut(slots, 11, room), 11, SOFT)


def _edge(picture, sheet, layout, chain, at):
    across, level = sheet.across, layout.level
    row = level[chain[0]]
    places = [at(node, row + i) for i, node in enumerate(chain)]
    if len(chain) == 2:
        places[1] = at(chain[1], level[chain[1]])
    half = sheet.long / 2
    out = (half, 0) if across else (0, half)
    start = (places[0][0] + out[0], places[0][1] + out[1])
    end = (places[-1][0] - out[0], places[-1][1] - out[1])
    points = [start]
    for x, y in places[1:-1]:  # straight past the boxes of a layer
        points += [(x - out[0], y - out[1]), (x + out[0], y + out[1])]
    points.append(end)
    parts = ["M%s %s" % (number(start[0]), number(start[1]))]
    for i, ((x1, y1), (x2, y2)) in enumerate(zip(points, points[1:])):
        if i % 2:
            parts.append("L%s %s" % (number(x2), number(y2)))
        else:
            middle = ((x1 + x2) / 2, (y1 + y2) / 2)
            bends = (middle[0], y1, middle[0], y2) if across else (x1, middle[1], x2, middle[1])
            parts.append("C%s %s %s %s %s %s" % tuple(map(number, bends + (x2, y2))))
    picture.path("".join(parts), class_="order", fill="none")
    x, y = end
    head = (x, y, x - 6, y - 2.7, x - 6, y + 2.7) if across else (x, y, x - 2.7, y - 6, x + 2.7, y - 6)
    picture.path("M%s %sL%s %sL%s %sZ" % tuple(map(number, head)), stroke="none")


def _box(picture, node, x, y, box, upper, lower):
    colour, on = KINDS[node["kind"]], ON.get(node["kind"], "#ffffff")
    picture.rect(x - box / 2, y - HEIGHT / 2, box, HEIGHT, colour, tip_text(node), 4, class_="node",
                 stroke=INK if node["choice"] is not None else None,
                 stroke_dasharray="4 2" if node["choice"] is not None else None)
    if node["any"]:
        picture.rect(x - box / 2 + 2.5, y - HEIGHT / 2 + 2.5, box - 5, HEIGHT - 5, "none", None, 2,
                     stroke="#ffffff", stroke_width=1.2, pointer_events="none")
    room = box - 12
    upper, lower = cut(upper, 12, room), cut(lower, 10, room)
    picture.text(x, y + (-2.5 if lower else 4), upper, 12, on, "middle", pointer_events="none")
    if lower:
        picture.text(x, y + 10.5, lower, 10, on, "middle", pointer_events="none", opacity=0.92)

# SPDX-License-Identifier: BSD-3-Clause
"""Lines over one axis, each with its name at its end; told apart by colours and by marks."""
import math

from .errors import InvalidError
from ._svg import INK, LINE, SOFT, Picture, cut, number, ticks, width_of

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, NAMES = 1000, 520, 84, 46, 64, 230
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b6508f", "#8c6d31", "#56b4e9", "#7b8694", "#b39b00")
MOST_POINTS = 2000


def _points(name, points):
    try:
        found = [(float(x), float(y)) for x, y in points]
    except (TypeError, ValueError):
        raise InvalidError("curves: the points of %r are %r, expected pairs of numbers"
                           % (name, points)) from None
    if not all(math.isfinite(x) and math.isfinite(y) for x, y in found):
        raise InvalidError("curves: %r has a point that is not finite" % name)
    every = -(-len(found) // MOST_POINTS) if found else 1
    return found[::every] + (found[-1:] if (len(found) - 1) % every else [])


_SHAPES = (None, ((-.9, -.9), (.9, -.9), (.9, .9), (-.9, .9)), ((0, -1.2), (1.1, .8), (-1.1, .8)),
           ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)), ((0, 1.2), (1.1, -.8), (-1.1, -.8)))


def _mark(shape, x, y, r=4.0):
    """One of five shapes, so that lines differ without colour."""
    corners = _SHAPES[shape]
    if corners is None:
        return "M%s %sa%s %s 0 1 0 %s 0a%s %s 0 1 0 %s 0Z" % tuple(map(number, (
            x - r, y, r, r, 2 * r, r, r, -2 * r)))
    return "M%sZ" % "L".join("%s %s" % (number(x + r * dx), number(y + r * dy)) for dx, dy in corners)


def _spread(places, apart, low, high):
    """Places in their order, at least so far apart, near to where they were."""
    order = sorted(range(len(places)), key=places.__getitem__)
    found = list(places)
    for before, one in zip(order, order[1:]):
        found[one] = max(found[one], found[before] + apart)
    if order and found[order[-1]] > high:
        found[order[-1]] = high
        for after, one in zip(order[::-1], order[-2::-1]):
            found[one] = min(found[one], found[after] - apart)
    return [max(place, low) for place in found]


def curves(lines, x_label, y_label, title):
    lines = {str(name): _points(name, points) for name, points in dict(lines).items()}
    every = [point for points in lines.values() for point in points]
    if not every:
        raise InvalidError("curves: there is no point to be drawn")
    low_x, high_x = min(x for x, _ in every), max(x for x, _ in every)
    low_y, high_y = min(y for _, y in every), max(y for _, y in every)
    if 0 <= low_x <= 0.3 * high_x:
        low_x = 0.0
    if 0 <= low_y <= 0.3 * high_y:
        low_y = 0.0
    pad = (high_y - low_y) * 0.04 or abs(high_y) * 0.1 or 1.0
    low_y, high_y = low_y - pad * (low_y != 0), high_y + pad
    high_x += (high_x == low_x)
    names = min(max([width_of(name, 13.6) for name in lines] + [60]) + 36, NAMES)
    right = WIDTH - names
    picture = Picture(WIDTH)
    foot = HEIGHT - BOTTOM

    def px(x):
        return LEFT + (x - low_x) / (high_x - low_x) * (right - LEFT)

    def py(y):
        return foot - (y - low_y) / (high_y - low_y) * (foot - TOP)

    if title:
        picture.text(LEFT, 27, cut(title, 17, WIDTH - LEFT - 20), 17, font_weight=650)
    marks, digits = ticks(low_y, high_y, 7)
    for mark in marks:
        picture.line(LEFT, py(mark), right, py(mark), LINE)
        picture.text(LEFT - 9, py(mark) + 4.5, "{:,.{}f}".format(mark, digits), 12, SOFT, "end")
    marks, digits = ticks(low_x, high_x, 8)
    for mark in marks:
        picture.line(px(mark), foot, px(mark), foot + 5, SOFT)
        picture.text(px(mark), foot + 20, "{:,.{}f}".format(mark, digits), 12, SOFT, "middle")
    picture.line(LEFT, foot, right, foot, SOFT, 1.2)
    picture.line(LEFT, TOP, LEFT, foot, SOFT, 1.2)
    picture.text((LEFT + right) / 2, HEIGHT - 16, cut(x_label, 13, right - LEFT), 13, INK, "middle")
    middle = (TOP + foot) / 2
    picture.text(22, middle, cut(y_label, 13, foot - TOP), 13, INK, "middle",
                 transform="rotate(-90 22 %s)" % number(middle))
    drawn = [(name, points) for name, points in lines.items() if points]
    places = _spread([py(points[-1][1]) for _, points in drawn], 17, TOP + 4, foot - 4)
    for i, ((name, points), place) in enumerate(zip(drawn, places)):
        colour = COLOURS[i % len(COLOURS)]
        picture.path("M" + "L".join("%s %s" % (number(px(x)), number(py(y))) for x, y in points), name,
                     fill="none", stroke=colour, stroke_width=2, stroke_linejoin="round", class_="curve",
                     stroke_dasharray="7 4" if i >= len(COLOURS) else None)
        last, shapes = -1e9, []
        for x, y in points[:-1]:
            if px(x) - last >= 48 and px(points[-1][0]) - px(x) >= 24:
                shapes.append(_mark(i % 5, px(x), py(y)))
                last = px(x)
        shapes.append(_mark(i % 5, px(points[-1][0]), py(points[-1][1])))
        picture.path("".join(shapes), fill=colour)
        end = px(points[-1][0])
        picture.path("M%s %sL%s %s" % tuple(map(number, (end + 7, py(points[-1][1]), right + 11, place))),
                     fill="none", stroke=colour, opacity=0.4)
        picture.path(_mark(i % 5, right + 16, place), fill=colour)
        picture.text(right + 26, place + 4.5, cut(name, 13.6, names - 32), 12.5, colour, font_weight=600)
    return picture.svg(HEIGHT)

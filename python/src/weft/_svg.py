# SPDX-License-Identifier: BSD-3-Clause
"""SVG by hand: shapes, text of which the width is known well enough, scales of time."""
import math

FONT = "system-ui,-apple-system,'Segoe UI','Noto Sans','DejaVu Sans',sans-serif"

# Of the page that `weft dump --format html` writes; on paper of their own, also in dark notebooks.
PAPER, INK, SOFT, FAINT = "#ffffff", "#1b2330", "#5b6675", "#8b95a3"
LINE, LANE, ACCENT, CRITICAL = "#dfe3e9", "#f3f5f8", "#0b5fb3", "#c2340a"

# In the order of the kinds of nodes: colours that remain apart for people who see few (Okabe and Ito).
KINDS = {"send": "#0072b2", "recv": "#009e73", "reduce": "#e69f00", "copy": "#8c6d31", "compute": "#b6508f",
         "join": "#7b8694", "event": "#c7b200", "signal": "#56b4e9", "run": "#dbe4ee"}
ON = {"reduce": INK, "event": INK, "signal": INK, "run": INK}

_NARROW = {}
for _letters, _share in (("il'|!.,:;jI", 0.34), ("()[]{}frt/\\- \"", 0.40), ("mMW%@", 0.98), ("w", 0.82),
                         ("→←↔≤", 0.84), ("…", 1.0)):
    _NARROW.update(dict.fromkeys(_letters, _share))


def width_of(text, size):
    """Points that a text takes at most: those of DejaVu Sans, the widest of the fonts."""
    return size * sum(_NARROW.get(letter) or (0.70 if letter.isupper() else 0.64) for letter in text)


def cut(text, size, room):
    """The text, or as much of it as there is room for; "" if that says nothing."""
    if width_of(text, size) <= room:
        return text
    while len(text) > 1 and width_of(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…" if len(text) > 1 else ""


def number(value):
    """A coordinate."""
    text = "%.1f" % value
    return text[:-2] if text.endswith(".0") else text


class Picture:
    """Elements, painted in the order in which they come."""

    def __init__(self, width):
        self.width = width
        self.parts = []

    def raw(self, part):
        self.parts.append(part)

    def rect(self, x, y, width, height, fill, tip=None, radius=0, **more):
        self._element("rect", tip, x=number(x), y=number(y), width=number(max(width, 0)),
                      height=number(max(height, 0)), rx=number(radius) if radius else None, fill=fill, **more)

    def line(self, x1, y1, x2, y2, stroke, width=1, **more):
        self._element("line", None, x1=number(x1), y1=number(y1), x2=number(x2), y2=number(y2), stroke=stroke,
                      stroke_width=number(width), **more)

    def path(self, d, tip=None, **more):
        self._element("path", tip, d=d, **more)

    def text(self, x, y, text, size=12, fill=INK, anchor=None, **more):
        self.parts.append("<text %s>%s</text>" % (_attributes(dict(
            x=number(x), y=number(y), font_size=number(size), fill=fill, text_anchor=anchor, **more)),
            escape(clean(text))))

    def _element(self, name, tip, **attributes):
        if tip:
            self.parts.append("<%s %s><title>%s</title></%s>" % (
                name, _attributes(attributes), escape(clean(tip)), name))
        else:
            self.parts.append("<%s %s/>" % (name, _attributes(attributes)))

    def svg(self, height, fit=True):
        """The document. `fit`: not wider than where it stands."""
        return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d"%s '
                'font-family="%s">\n<rect width="100%%" height="100%%" rx="6" fill="%s"/>\n%s\n</svg>\n' % (
                    self.width, math.ceil(height), self.width, math.ceil(height),
                    ' style="max-width:100%;height:auto"' if fit else "", FONT, PAPER, "\n".join(self.parts)))


def clean(text):
    """Without what XML cannot have."""
    def may_stand(letter):
        return letter == "\n" or (letter >= " " and letter not in "\ufffe\uffff"
                                  and not "\ud800" <= letter <= "\udfff")

    return "".join(letter if may_stand(letter) else " " for letter in str(text))


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attributes(given):
    return " ".join('%s="%s"' % (name.rstrip("_").replace("_", "-"),
                                 escape(str(value)).replace('"', "&quot;"))
                    for name, value in given.items() if value is not None)


# ---- words ----


def time_unit(us):
    """(what microseconds are multiplied by, the name of the unit) for times up to `us`."""
    return ((1e-6, "s") if us >= 1e6 else (1e-3, "ms") if us >= 1e3 else (1.0, "µs") if us >= 1 or us <= 0
            else (1e3, "ns"))


def time_text(us, unit=None):
    scale, name = unit or time_unit(us)
    value = us * scale
    return "%s %s" % ("{:,.1f}".format(value) if abs(value) >= 1000 else "%.4g" % value, name)


def bytes_text(count):
    for size, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            return "%.4g %s" % (count / size, name)
    return "%d B" % count


def plural(count, word):
    return "%s %s%s" % (format(count, ","), word, "s" * (count != 1))


def ticks(low, high, wanted):
    """Round numbers from `low` to `high`, about `wanted` of them, and their digits after the point."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low], 0
    rough = span / max(wanted, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    lead = rough / power
    step = power * (1 if lead <= 1.5 else 2 if lead <= 3 else 5 if lead <= 7 else 10)
    digits = max(0, math.ceil(-math.log10(step) - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, int(math.floor(high / step + 1e-9)) + 1)], digits


def arrow(x1, y1, x2, y2, head):
    """Path of a line and its head, of that length."""
    line = "M%s %sL%s %s" % tuple(map(number, (x1, y1, x2, y2)))
    if not head:
        return line
    angle = math.atan2(y2 - y1, x2 - x1)
    corners = []
    for side in (-0.45, 0.45):
        dx, dy = -head, head * side
        corners += [x2 + dx * math.cos(angle) - dy * math.sin(angle),
                    y2 + dx * math.sin(angle) + dy * math.cos(angle)]
    return line + "M%s %sL%s %sL%s %sZ" % tuple(map(number, [x2, y2] + corners))

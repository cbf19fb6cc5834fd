# SPDX-License-Identifier: BSD-3-Clause
"""Pages of the manual: what all of them share. Text goes in as people write it in comments and help."""
import datetime
import os
import re
import textwrap

INDENT = 4  # of examples
MOST = 71  # columns that a terminal has for them


def escape(text):
    """Text as roff takes it for itself; hyphens stay what can be typed."""
    text = text.replace("\\", "\\(rs").replace("-", "\\-")
    text = "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in text)
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def bold(text):
    return f"\\fB{escape(text)}\\fR"


def italic(text):
    return f"\\fI{escape(text)}\\fR"


def inline(text):
    """Escapes a paragraph; names of functions, constants and code become bold, arguments italic."""
    pattern = re.compile(r"`([^`]+)`|@p (\w+(?:(?:->|\.)\w+)*)|\b(weft_\w+(?:\.\w+)*(?=\(\))|WEFT_[A-Z0-9_]+)")
    parts, at = [], 0
    for found in pattern.finditer(text):
        parts.append(escape(text[at:found.start()]))
        code, argument, name = found.groups()
        parts.append(italic(argument) if argument else bold(code or name))
        at = found.end()
    whole = "".join(parts) + escape(text[at:])
    return re.sub(r"^([.'])", r"\\&\1", whole)


def paragraphs(text):
    """A comment's text as roff: paragraphs, hanging items, and what is indented as it stands."""
    lines = []
    for block in re.split(r"\n[ \t]*\n", text.strip("\n")):
        rows = block.split("\n")
        indents = [len(row) - len(row.lstrip()) for row in rows]
        if min(indents) >= INDENT:
            lines += terms(rows) or [".PP", ".EX", *(escape(row) for row in rows), ".EE"]
            continue
        items = []
        for row, indent in zip(rows, indents):
            hanging = indent > min(indents)
            if items and (hanging or not hangs(rows, indents)):
                items[-1] += " " + row.strip()
            else:
                items.append(row.strip())
        for item in items:
            lines += [".PP", inline(item)]
    lines = [line for i, line in enumerate(lines) if line != ".P" or (i + 1 < len(lines) and lines[i + 1] != ".PP")]
    return lines[1:] if lines[:1] == [".PP"] and lines[1:2] != [".EX"] else lines


def terms(rows):
    """Indented words with what they mean, if that is too wide for a terminal; else None."""
    if max(map(len, rows)) <= MOST:
        return None
    indent = min(len(row) - len(row.lstrip()) for row in rows)
    found = []
    for row in rows:
        term = re.match(rf" {{{indent}}}(\S.*?) {{2,}}(\S.*)", row)
        if term:
            found.append([term.group(1), term.group(2)])
        elif found and row.startswith(" " * (indent + 1)):
            found[-1][1] += " " + row.strip()
        else:
            return None
    return [line for word, text in found for line in item(bold(word), [inline(text)])] + [".P"]


def hangs(rows, indents):
    """Whether a block is a list of items, whose further lines are indented."""
    return len(rows) > 1 and indents[0] == min(indents) and max(indents) > min(indents)


def item(tag, lines):
    """A tagged paragraph; @p tag is roff already."""
    return [".TP", tag, *lines]


def date():
    """The day of the pages: SOURCE_DATE_EPOCH, so that two builds agree, else today."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    zone = datetime.timezone.utc
    day = datetime.datetime.fromtimestamp(int(epoch), zone) if epoch else datetime.datetime.now(zone)
    return day.strftime("%Y-%m-%d")


def fold(lines):
    """Lines of text short enough to be read as roff; what is shown as it stands is left alone."""
    folded, example = [], False
    for line in lines:
        if line in (".EX", ".nf", ".EE", ".fi"):
            example = line in (".EX", ".nf")
        if example or line.startswith(".") or "\n" in line:
            folded.append(line)
            continue
        for row in textwrap.wrap(line, 79, break_long_words=False, break_on_hyphens=False):
            folded.append(row if row[0] not in ".'" else "\\&" + row)
    return folded


def page(name, section, version, sections):
    """The text of a page: a heading and its lines for each section; empty ones are left out."""
    lines = [".\\\" Made by the build: see tools/man.",
             f'.TH {escape(name.upper())} {section} {date()} "weft {version}" "weft manual"',
             ".nh", ".ad l"]
    for title, body in sections:
        if body:
            lines += [f".SH {title}", *fold(body)]
    return "\n".join(lines) + "\n"


def see_also(names):
    """References, "NAME(SECTION)", in the order of the manual."""
    order = sorted(set(names), key=lambda name: (name.rstrip(")").split("(")[1], name))
    lines = []
    for i, name in enumerate(order):
        word, section = name.rstrip(")").split("(")
        lines.append(f".BR {escape(word)} ({section})" + ("," if i + 1 < len(order) else ""))
    return lines

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/python-reference.md from the docstrings of the Python package.

    tools/scripts/python_reference.py [--check]     --check: exit 1 if the page is not what would be written

Runs where the package can be imported, with torch. Sections in NumPy's style become lists and code becomes
code; nothing else is changed, so that the page says what `help()` says.
"""
import importlib
import inspect
import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/python-reference.md"

#: The modules of the page, in its order: what each `__all__` has.
MODULES = ["weft", "weft.context", "weft.op", "weft.schedule", "weft.run", "weft.template", "weft.checking",
           "weft.simulation", "weft.costs", "weft.grouping", "weft.merging", "weft.tracing", "weft.draw",
           "weft.tools", "weft.group_average", "weft.gossip", "weft.sparse_average", "weft.compressed_average",
           "weft.gradients", "weft.server", "weft.buffers", "weft.errors", "weft.datasets", "weft.torch",
           "weft.torch.optim", "weft.torch.hooks", "weft.torch.backend"]

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.M)
LISTS = ("Parameters", "Attributes", "Returns", "Raises", "Yields")


def inline(text):
    """Roles and double backquotes become code of Markdown; what stands for itself stays."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`")
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<>*_|])", r"\\\1", part) for part in parts)


def paragraph(text):
    """Text, with examples and indented lines as code, and tables as they are."""
    lines, code, out = text.split("\n"), [], []

    def end_code():
        if code:
            while code and not code[-1].strip():
                code.pop()
            indent = min(len(line) - len(line.lstrip()) for line in code if line.strip())
            out.extend(["```python" if code[0].lstrip().startswith(">>>") else "```"] +
                       [line[indent:] for line in code] + ["```", ""])
            code.clear()

    example = table = False
    for line in lines:
        if line.startswith(">>>"):
            example = True
        elif not line.strip():
            example = False
        ruler = re.match(r"^=+( +=+)+$", line)
        if ruler:
            table = not table if not code or table else table
        if example or line.startswith("    ") or table or ruler or (code and not line.strip() and not example):
            code.append(line)
            if ruler and len([one for one in code if re.match(r"^=+( +=+)+$", one)]) == 2:
                table = False
        else:
            end_code()
            out.append(inline(re.sub(r"::$", ":", line)))
    end_code()
    return "\n".join(out).strip()


def entries(text, named):
    """A section of NumPy's: names, or kinds, with what is said of them."""
    out = []
    for part in re.split(r"\n(?=\S)", text.strip("\n")):
        head, _, body = part.partition("\n")
        name, _, kind = head.partition(" : ")
        body = " ".join(line.strip() for line in body.split("\n")).strip()
        title = ("`%s`" % name.replace("\\", "") if named or kind else inline(name)) + \
            (": %s" % inline(kind) if kind else "")
        out.append("- %s%s" % (title, ". " + inline(body) if body else ""))
    return "\n".join(out)


def document(text):
    """A docstring as Markdown."""
    text = inspect.cleandoc(text or "")
    parts = SECTION.split(text)
    out = [paragraph(parts[0])]
    for title, body in zip(parts[1::2], parts[2::2]):
        out.append("*%s*" % title)
        out.append(entries(body, title != "Returns") if title in LISTS else paragraph(body.strip("\n")))
    return "\n\n".join(part for part in out if part)


def signature(thing):
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return "()"
    text = re.sub(r"<object object at 0x[0-9a-f]+>|<function [^>]*>", "...", text)
    for long, short in (("weft._collectives.", ""), ("weft.context.", "weft."), ("typing.", ""), ("~", ""),
                        ("torch.optim.optimizer.", "torch.optim."), ("torch._tensor.", "torch.")):
        text = text.replace(long, short)
    return text.replace("(self, ", "(").replace("(self)", "()")


def members(kind):
    """Public methods and properties of a class, inherited ones of weft included, in the order of the source."""
    found = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("weft") or base.__module__ == "weft._life":
            continue
        for name, value in vars(base).items():
            if name.startswith("_"):
                continue
            plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if inspect.isfunction(plain) or isinstance(plain, property):
                found[name] = value
    return found


def write_class(name, kind):
    exception = issubclass(kind, BaseException)
    out = ["### %s" % name, "```python\nclass %s%s\n```" % (
        name, "" if exception else signature(kind)), document(kind.__doc__)]
    if exception:
        return out
    for member, value in members(kind).items():
        plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if isinstance(plain, property):
            text = document(plain.__doc__)
            out += ["**%s.%s**: %s" % (name, member, text) if "\n" not in text else
                    "**%s.%s**\n\n%s" % (name, member, text)]
        else:
            bound = signature(plain)
            if isinstance(value, classmethod):
                bound = bound.replace("(cls, ", "(").replace("(cls)", "()")
            out += ["#### %s.%s" % (name, member), "```python\n%s%s\n```" % (member, bound),
                    document(plain.__doc__)]
    return out


def belongs(thing, name):
    """Whether a thing is described with a module: it is of it, or of a private one that this shows."""
    module = getattr(thing, "__module__", None) or ""
    return module == name or module.startswith("weft.") and "._" in module


def page():
    out = ["<!-- Written by tools/scripts/python_reference.py from the docstrings. -->",
           "# The Python package: reference",
           "What each function takes, returns and raises, as `help()` has it. [weft from PyTorch in five "
           "minutes](pytorch.md) is the way in; what the collectives and objects do stands in the pages on the C "
           "library: [templates](templates.md), [averaging](averaging.md), [sparse sums](sparse.md), "
           "[compression](compression.md), [merging](merging.md), [servers](servers.md)."]
    seen = set()
    for name in MODULES:
        module = importlib.import_module(name)
        things = [(one, getattr(module, one)) for one in getattr(module, "__all__", [])]
        own = [(one, thing) for one, thing in things if id(thing) not in seen and belongs(thing, name)]
        if name == "weft":
            module_collectives = importlib.import_module("weft._collectives")
            own = [("Request", module_collectives.Request), ("wait_all", module_collectives.wait_all)]
        out += ["## %s" % name, document(module.__doc__)]
        for one, thing in own:
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            if inspect.isclass(thing):
                out += write_class(one, thing)
            elif callable(thing):
                out += ["### %s" % one, "```python\n%s%s\n```" % (one, signature(thing)),
                        document(thing.__doc__)]
    return "\n\n".join(part for part in out if part) + "\n"


def main():
    text = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/python-reference.md is not what the docstrings say: run "
                     "tools/scripts/python_reference.py")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: BSD-3-Clause
"""Structs of the library: settings as keyword arguments in, what the library fills as named tuples out.

One rule for all of them, so that a setting of C is one of Python's:

- a word for an enumeration (``mode="waiting"``), a bool or a number for a number, a `str` for a text;
- a time in seconds, and without the ``_ns`` of its name: ``deadline=0.5`` is ``deadline_ns`` of
  500000000. ``math.inf`` is never, 0 is none at all;
- a word of Python has an underscore behind it: ``yield_``;
- ``None`` is what is not given: the default.
"""
import collections
import difflib
import keyword
import math

from . import _enums
from ._library import ffi, lib, text
from .errors import InvalidError, check

NEVER = 2**64 - 1
NONE = 2**64 - 2
LARGEST = 2**64 - 3
SIZE_MAX = 2**64 - 1

_fields = {}
_tuples = {}


def nanoseconds(seconds, what, none=NONE):
    """A time for the library; `none` is what stands for 0."""
    if seconds is None or seconds == math.inf:
        return NEVER
    try:
        value = round(seconds * 1e9)
    except (TypeError, ValueError, OverflowError):
        raise InvalidError("%s is %r, expected seconds, or math.inf" % (what, seconds)) from None
    if value < 0:
        raise InvalidError("%s is %r, expected 0 or more seconds" % (what, seconds))
    if value == 0:
        return none if seconds == 0 else 1
    return min(value, LARGEST)


def seconds_of(ns):
    return math.inf if ns == NEVER else ns * 1e-9


def fields(struct):
    """{name: (member, type)} of a struct, with times under their names without ``_ns``."""
    table = _fields.get(struct)
    if table is None:
        table = {}
        for member, field in ffi.typeof("struct " + struct).fields:
            if member == "struct_size":
                continue
            time = member.endswith("_ns") and field.type.cname == "uint64_t"
            key = member[:-3] if time else member
            table[key + "_" if keyword.iskeyword(key) else key] = (member, field.type, time)
        _fields[struct] = table
    return table


def _number(kind, value, what):
    if kind.cname.endswith(("double", "float")):
        try:
            return float(value)
        except (TypeError, ValueError):
            raise InvalidError("%s is %r, expected a number" % (what, value)) from None
    if value == math.inf:
        return NEVER
    try:
        return value.__index__()
    except AttributeError:
        raise InvalidError("%s is %r, expected a whole number" % (what, value)) from None


class Struct:
    """A struct for the library, and whatever it points to.

    Attributes
    ----------
    c : cffi pointer
    keep : list
        What must live as long as it is used.
    """

    __slots__ = ("c", "keep")

    def __init__(self, name, settings, who, keep=()):
        self.c = ffi.new("struct %s *" % name)
        self.keep = list(keep)
        if hasattr(self.c, "struct_size"):
            self.c.struct_size = ffi.sizeof("struct " + name)
        table = fields(name)
        for key, value in settings.items():
            if value is None:
                continue
            if key not in table:
                close = difflib.get_close_matches(key, table, 1)
                raise TypeError("%s: there is no setting %r%s, expected one of %s" % (
                    who, key, " (did you mean %r?)" % close[0] if close else "", ", ".join(table)))
            member, kind, time = table[key]
            self._set(member, kind, time, value, "%s: %s" % (who, key))

    def _set(self, member, kind, time, value, what):
        if time:
            value = nanoseconds(value, what)
        elif kind.kind == "enum":
            value = _enums.number(kind.cname, value, what)
        elif kind.kind == "primitive":
            value = _number(kind, value, what)
        elif kind.cname == "char *" and isinstance(value, str):
            value = ffi.new("char[]", value.encode())
            self.keep.append(value)
        elif isinstance(value, Struct):
            self.keep.append(value)
            value = value.c
        elif kind.kind == "pointer" and isinstance(value, (list, tuple)):
            value = ffi.new("%s[]" % kind.item.cname.replace("const ", ""), list(value))
            self.keep.append(value)
        elif isinstance(value, ffi.CData):
            self.keep.append(value)
        try:
            setattr(self.c, member, value)
        except (OverflowError, TypeError):
            raise InvalidError("%s is %r, expected what a %s can be" % (what, value, kind.cname)) from None


def new(name):
    """A struct that the library is to fill."""
    c = ffi.new("struct %s *" % name)
    c.struct_size = ffi.sizeof("struct " + name)
    return c


def value_of(kind, member, raw):
    """A member as Python has it."""
    if kind.cname == "enum weft_dtype":  # also those of opaque elements, which are no words of it
        return text(lib.weft_dtype_name(raw), str(raw))
    if kind.kind == "enum":
        return _enums.word(kind.cname, raw)
    if kind.cname == "char *":
        return text(raw, None)
    if kind.kind == "array":
        if kind.item.cname == "char":
            return text(raw)
        return tuple(value_of(kind.item, member, item) for item in raw)
    if kind.kind == "struct":
        return read(kind.cname[len("struct "):], raw)
    return raw


def tuple_type(name, members=None):
    """The named tuple of a struct: the members that are no pointers, times in seconds."""
    known = _tuples.get(name)
    if known is None:
        columns = [(key, member, kind, time) for key, (member, kind, time) in fields(name).items()
                   if kind.kind != "pointer" or kind.cname == "char *"]
        title = "".join(part.capitalize() for part in name.split("_")[1:])
        known = _tuples[name] = (
            collections.namedtuple(title, [column[0] for column in columns]), columns)
    return known


def read(name, c):
    """A struct that the library has filled, as a named tuple.

    Enumerations are words, times (``..._ns``) seconds under their names without ``_ns``; lists are
    left out, as whoever asks for them copies them.
    """
    kind, columns = tuple_type(name)
    return kind(*[seconds_of(getattr(c, member)) if time else value_of(type_, member, getattr(c, member))
                  for _, member, type_, time in columns])


def filled(name, function, *arguments):
    """Calls ``function(*arguments, &struct)`` and returns the struct as :func:`read` does."""
    c = new(name)
    check(function(*arguments, c))
    return read(name, c)


def out(kind, function, *arguments):
    """Calls ``function(&result, *arguments)`` and returns the result."""
    result = ffi.new(kind + " *")
    check(function(result, *arguments))
    return result[0]


def region(slot, offset, count, value=0):
    c = ffi.new("struct weft_region *")
    c.slot, c.offset, c.count, c.value = slot, offset, count, value
    return c


__all__ = ["Struct", "new", "read", "filled", "out", "lib", "ffi"]

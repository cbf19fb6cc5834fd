# SPDX-License-Identifier: BSD-3-Clause
"""Enumerations of the library as words: "wait-avoiding" for WEFT_AVERAGE_WAIT_AVOIDING."""
import difflib
import os.path

from ._library import ffi
from .errors import InvalidError

_tables = {}


def words(enum):
    """The words of an enumeration, {word: number}: what its names do not have in common."""
    table = _tables.get(enum)
    if table is None:
        names = {name: value for value, name in sorted(ffi.typeof(enum).elements.items())}
        names = {name: value for name, value in names.items() if not name.endswith("_COUNT")}
        prefix = os.path.commonprefix(list(names)) if len(names) > 1 else "WEFT_"
        prefix = prefix[:prefix.rfind("_") + 1]
        table = {name[len(prefix):].lower().replace("_", "-"): value for name, value in names.items()}
        _tables[enum] = table
    return table


def number(enum, value, what):
    """The number of a word. Numbers are taken as they are: the library looks at their range.

    Parameters
    ----------
    enum : str
        The name of the C type.
    value : str or int
    what : str
        The argument, for the error.
    """
    if isinstance(value, int):
        return int(value)
    table = words(enum)
    if isinstance(value, str):
        word = value.lower().replace("_", "-")
        if word in table:
            return table[word]
    close = difflib.get_close_matches(str(value), table, 1)
    raise InvalidError("%s is %r%s, expected one of %s" % (
        what, value, " (did you mean %r?)" % close[0] if close else "", ", ".join(map(repr, table))))


def word(enum, value):
    """The word of a number."""
    for name, known in words(enum).items():
        if known == value:
            return name
    return str(value)

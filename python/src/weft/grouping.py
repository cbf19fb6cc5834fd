# SPDX-License-Identifier: BSD-3-Clause
"""Dynamic grouping: which ranks average together in a version.

>>> weft.groups(7, 3, version=1)
[[0, 3, 5], [1, 4], [2, 6]]
"""
from typing import List, NamedTuple, Optional, Tuple

from . import _life, _structs
from ._library import ffi, lib
from .errors import InvalidError, check

__all__ = ["Groups", "Place", "default_size", "groups"]


class Place(NamedTuple):
    """Where a rank is in a version: its `group`, and its `place` there, both from 0."""

    group: int
    place: int


def default_size(ranks: int) -> int:
    """The group size to take when nothing is known: the power of two nearest the root of `ranks`."""
    return lib.weft_groups_default_size(ranks)


class Groups:
    """The groups of all versions, for any number of ranks and any group size. Immutable.

    Every rank computes the same answer alone: from the two numbers and the version.

    Parameters
    ----------
    ranks : int
    group_size : int, optional
        The most members of a group. Default: :func:`default_size`.

    Raises
    ------
    InvalidError
        `ranks` is below 1, or `group_size` is not between 0 and `ranks`.
    """

    def __init__(self, ranks: int, group_size: Optional[int] = None):
        self._handle = _life.Handle(
            _structs.out("struct weft_groups *", lib.weft_groups_create, ranks, group_size or 0),
            lib.weft_groups_destroy, "the groups")
        self.ranks = ranks
        self.group_size = group_size or default_size(ranks)

    def _c(self):
        return self._handle.get()

    def __len__(self):
        return lib.weft_groups_count(self._c())

    @property
    def largest(self) -> int:
        """The most members that a group has."""
        return lib.weft_groups_largest(self._c())

    def size(self, group: int) -> int:
        """The members of a group: as many in every version."""
        return check(lib.weft_groups_size(self._c(), group))

    def find(self, rank: int, version: int = 0) -> Place:
        """Where a rank is in a version."""
        group, place = ffi.new("int *"), ffi.new("int *")
        check(lib.weft_groups_find(self._c(), _version(version), rank, group, place))
        return Place(group[0], place[0])

    def members(self, group: int, version: int = 0) -> List[int]:
        """The ranks of a group in a version, by place (not sorted)."""
        members, count = ffi.new("int[]", self.largest), ffi.new("int *")
        check(lib.weft_groups_members(self._c(), _version(version), group, members, count))
        return list(members[0:count[0]])

    def of(self, rank: int, version: int = 0) -> List[int]:
        """The group of a rank in a version: the same list for all of its members."""
        members, count = ffi.new("int[]", self.largest), ffi.new("int *")
        check(lib.weft_groups_at(self._c(), _version(version), rank, members, count, ffi.NULL))
        return list(members[0:count[0]])

    def at(self, version: int = 0) -> List[List[int]]:
        """All groups of a version, each by place."""
        return [self.members(group, version) for group in range(len(self))]

    __getitem__ = at

    def places(self, rank: int) -> List[Tuple[int, int]]:
        """The places that a rank has in any version, as pairs (members of the group, place)."""
        largest = self.largest
        flags = ffi.new("unsigned char[]", 2 * largest)
        check(lib.weft_groups_places(self._c(), rank, flags))
        return [(largest - i // largest, i % largest) for i in range(2 * largest) if flags[i]]

    def __iter__(self):
        raise TypeError("there is no end of versions: iterate over groups.at(version)")

    def __repr__(self):
        return "<weft.Groups: %d ranks in %d groups of at most %d>" % (self.ranks, len(self), self.largest)

    def _repr_html_(self):
        versions = range(min(8, 2 + max(self.ranks - 1, 1).bit_length()))
        shown = range(min(len(self), 16))
        cell = '<td style="padding:2px 14px 2px 0;text-align:left;color:#1b2330">%s</td>'
        rows = []
        for version in versions:
            cells = ["version %d" % version] + [_short(self.members(group, version)) for group in shown]
            rows.append('<tr style="background:#ffffff">%s</tr>' % "".join(cell % one for one in cells))
        more = len(self) - len(shown)
        return ('<div style="background:#ffffff;color:#5b6675;font-size:13px"><table style="background:'
                '#ffffff;border-collapse:collapse;font-size:13px">%s</table>%d ranks%s</div>' % (
                    "".join(rows), self.ranks, "; %d more groups" % more if more else ""))


def _short(members):
    return " ".join(map(str, members[:12])) + " …" * (len(members) > 12)


def _version(version):
    if not 0 <= version <= _structs.NEVER:
        raise InvalidError("version is %r, expected 0 to 2**64 - 1" % (version,))
    return version


def groups(n: int, group_size: Optional[int] = None, version: int = 0) -> List[List[int]]:
    """The groups of a version, each sorted: what ``weft groups`` tells.

    Parameters
    ----------
    n : int
        Ranks.
    group_size : int, optional
        The most members of a group. Default: the power of two nearest the root of `n`.
    version : int
    """
    return [sorted(group) for group in Groups(n, group_size).at(version)]

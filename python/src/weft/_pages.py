# SPDX-License-Identifier: BSD-3-Clause
"""Memory that outlives what it was part of.

Arrays over memory of a context are good after it has been closed: who has one may not know. The library
unmaps that memory, so what is in it is copied before, and put where it was after. Pages are not moved: UCX,
which MPI may bring, takes the place of mremap() and loses its last argument.
"""
import ctypes
import mmap

_NOREPLACE = 0x100000  # MAP_FIXED_NOREPLACE
_FAILED = ctypes.c_void_p(-1).value

_c = ctypes.CDLL(None)
_c.mmap.restype = ctypes.c_void_p
_c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Pages:
    """Pages with memory in use.

    Attributes
    ----------
    begin, end : int
        Addresses.
    users : set of int
        The addresses of what is in use.
    """

    __slots__ = ("begin", "end", "users", "_copy", "_mapped")

    def __init__(self, begin, end):
        self.begin, self.end = begin, end
        self.users = set()
        self._copy = None
        self._mapped = []

    def hold(self):
        """Copies what is in them."""
        self._copy = ctypes.string_at(self.begin, self.end - self.begin)

    def put_back(self):
        """Puts it where it was, if nothing is there by now."""
        length = self.end - self.begin
        there = _c.mmap(self.begin, length, mmap.PROT_READ | mmap.PROT_WRITE,
                        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NOREPLACE, -1, 0)
        if there == self.begin:
            self._mapped.append(True)
            ctypes.memmove(self.begin, self._copy, length)
        elif there != _FAILED:  # of a kernel that does not know the flag
            _c.munmap(there, length)
        self._copy = None

    def leave(self, address):
        """Something is not in use any more; the last takes the pages with it."""
        self.users.discard(address)
        if not self.users:
            try:
                self._mapped.pop()
            except IndexError:
                return
            _c.munmap(self.begin, self.end - self.begin)


def hold(memories):
    """Holds the pages of memory that goes with a context.

    Parameters
    ----------
    memories : dict
        {address: (its end, ...)}.

    Returns
    -------
    list of Pages
    """
    found = []
    for begin, (end, *_) in sorted(memories.items()):
        first = begin & -mmap.PAGESIZE
        last = (max(end, begin + 1) + mmap.PAGESIZE - 1) & -mmap.PAGESIZE
        if found and first <= found[-1].end:
            found[-1].end = max(found[-1].end, last)
        else:
            found.append(Pages(first, last))
        found[-1].users.add(begin)
    for pages in found:
        pages.hold()
    return found

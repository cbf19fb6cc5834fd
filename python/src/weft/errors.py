# SPDX-License-Identifier: BSD-3-Clause
"""Errors of weft as exceptions, with weft's own text.

Each status of the library is a class below :class:`WeftError`; those that mean what an exception of
Python's means are also of that kind, so ``except ValueError`` and ``except TimeoutError`` work.
"""
import builtins
from typing import Optional

from ._library import ffi, lib, text

__all__ = [
    "WeftError", "InvalidError", "OutOfMemoryError", "StateError", "CycleError", "DuplicateError",
    "UnsupportedError", "TruncatedError", "TransportError", "TimeoutError", "CancelledError",
    "PeerError", "ComputeError", "FormatError", "FileError", "SystemError", "NotFoundError",
    "DeadlockError",
]


class WeftError(Exception):
    """An error that a function of weft has returned.

    Attributes
    ----------
    status : int
        The status, below 0.
    name : str
        Its name, ``"WEFT_ERR_PEER"``.
    """

    status = 0

    def __init__(self, message: str, status: Optional[int] = None) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status

    @property
    def name(self) -> str:
        """The name of the status."""
        return text(lib.weft_status_name(self.status))


class InvalidError(WeftError, ValueError):
    """An argument is not valid: the text names it, its value and what was expected."""

    status = -1


class OutOfMemoryError(WeftError, MemoryError):
    """There was no memory."""

    status = -2


class StateError(WeftError):
    """Not possible in this state: closed, active, or of another process."""

    status = -3


class CycleError(WeftError, ValueError):
    """A schedule has a cycle; the text names a node on it."""

    status = -4


class DuplicateError(WeftError, ValueError):
    """Two messages have the same peer and tag."""

    status = -5


class UnsupportedError(WeftError, NotImplementedError):
    """Not supported here; the text says what is missing."""

    status = -6


class TruncatedError(WeftError):
    """A message was longer or shorter than its receive."""

    status = -7


class TransportError(WeftError, ConnectionError):
    """What carries messages has failed."""

    status = -8


class TimeoutError(WeftError, builtins.TimeoutError):
    """A deadline has passed."""

    status = -9


class CancelledError(WeftError):
    """It was cancelled."""

    status = -10


class PeerError(WeftError, ConnectionError):
    """Another rank has failed, left or died; the text names it."""

    status = -11


class ComputeError(WeftError, ArithmeticError):
    """An operation has failed. Where that was an exception of a Python function, it is the cause."""

    status = -12


class FormatError(WeftError, ValueError):
    """A document is malformed; the text gives the line."""

    status = -13


class FileError(WeftError, OSError):
    """Reading or writing a file has failed."""

    status = -14


class SystemError(WeftError, OSError):
    """A call of the operating system has failed, or a limit was met."""

    status = -15


class NotFoundError(WeftError, LookupError):
    """There is no such thing; the text lists those that there are."""

    status = -16


class DeadlockError(WeftError):
    """What is waited for will never come."""

    status = -17


_classes = {kind.status: kind for kind in list(globals().values())
            if isinstance(kind, type) and issubclass(kind, WeftError) and kind is not WeftError}


def error(status, message=None):
    """The exception for a status, with the text of the calling thread if none is given."""
    if message is None:
        message = text(lib.weft_error_text())
    if not message:
        message = text(lib.weft_status_text(status))
    return _classes.get(status, WeftError)(message, status)


def check(status):
    """Raises what a negative status is; returns the others."""
    if status < 0:
        raise error(status)
    return status


def status_of(exception):
    """The status by which an exception of Python's is told to weft."""
    if isinstance(exception, WeftError):
        return exception.status
    return -2 if isinstance(exception, MemoryError) else -12


def set_error(status, message):
    """Sets the text of the calling thread, for a callback that returns `status`."""
    return lib.weft_error_set_text(status, ffi.new("char[]", message.encode("utf-8", "replace")))

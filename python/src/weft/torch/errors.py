# SPDX-License-Identifier: BSD-3-Clause
"""Errors of groups of torch.distributed: those of :mod:`weft.errors`, which are RuntimeError as well, as
scripts for torch.distributed expect."""
from typing import Dict, Type

from .. import errors as _errors

__all__ = list(_errors.__all__)

_known: Dict[type, Type[_errors.WeftError]] = {}
for _name in __all__:
    _kind = getattr(_errors, _name)
    _known[_kind] = globals()[_name] = type(_name, (_kind, RuntimeError), {
        "__doc__": _kind.__doc__, "__module__": __name__})
del _name, _kind


def of_torch(kind: Type[_errors.WeftError]) -> Type[_errors.WeftError]:
    """The class here for one of :mod:`weft.errors`."""
    return _known.get(kind, kind)


def convert(problem: Exception, what: str) -> Exception:
    """An error for users of torch.distributed, with what was done in front; those that are not weft's, and
    those that are from here, stay as they are."""
    kind = _known.get(type(problem))
    if kind is None:
        return problem
    made = kind("%s: %s" % (what, problem), problem.status)  # type: ignore[attr-defined]
    made.__cause__ = problem.__cause__
    return made

# SPDX-License-Identifier: BSD-3-Clause
"""What checks and simulations are given: schedules, the name of a template, or the path of a file."""
import os
import pathlib
from typing import Sequence, Union

from . import schedule, template
from ._library import ffi, lib
from .errors import FileError, InvalidError, NotFoundError, error

#: Schedules of all ranks, or what stands for them.
Target = Union[Sequence[schedule.Schedule], schedule.Schedule, str, "os.PathLike[str]"]

#: Elements of one block, as the command has it.
COUNT = 1024


def is_template(target):
    return (isinstance(target, str)
            and lib.weft_template_find(ffi.new("char[]", target.encode())) != ffi.NULL)


def with_defaults(parameters):
    """The command's defaults: what is looked at has elements, if nothing is said."""
    return parameters if parameters.get("count") is not None else dict(parameters, count=COUNT)


def read_file(path, n, ops, parameters):
    try:
        document = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise FileError("cannot read '%s': %s" % (path, problem.strerror)) from problem
    except UnicodeDecodeError as problem:
        raise InvalidError("'%s' is no text: %s" % (path, problem)) from problem
    return schedule.read_schedules(document, size=n, ops=ops, parameters=parameters)


def schedules_of(target, n, ops, parameters, who):
    """All schedules that a target stands for.

    Parameters
    ----------
    target : sequence of Schedule, Schedule, str or path
    n : int or None
        Ranks, of templates (default 4) and of documents of any size.
    ops : sequence of Op
        That documents may name.
    parameters : dict
        Of the template (``count`` is 1024 if not given), or that the document declares.

    Returns
    -------
    tuple
        (list of Schedule, title)
    """
    if isinstance(target, schedule.Schedule):
        target = [target]
    if isinstance(target, (str, os.PathLike)):
        if is_template(target):
            parameters = with_defaults(parameters)
            return template.build_all(target, 4 if n is None else n, **parameters), target
        if isinstance(target, str) and not os.path.exists(target):
            problem = error(lib.WEFT_ERR_NOT_FOUND)
            raise NotFoundError("%s: %r is neither a template nor a file: %s" % (who, target, problem))
        return read_file(target, n, ops, parameters), os.path.basename(os.fspath(target))
    try:
        found = list(target)
    except TypeError:
        found = None
    if found is None or not all(isinstance(one, schedule.Schedule) for one in found):
        raise InvalidError("%s: target is %r, expected a list of schedules, the name of a template or the "
                           "path of a schedule file" % (who, target))
    if not found:
        raise InvalidError("%s: the list of schedules is empty" % who)
    if parameters:
        raise TypeError("%s: %s: parameters are of templates and files, and these schedules are built"
                        % (who, ", ".join(sorted(parameters))))
    if n is not None and n != found[0].size:
        raise InvalidError("%s: n is %r, and the schedules are of %d ranks" % (who, n, found[0].size))
    return found, found[0].name

# SPDX-License-Identifier: BSD-3-Clause
"""Templates: ready-made schedules of collectives, and the choice of their algorithm by cost."""
import collections
from typing import Any, Dict, List, Optional

from . import _structs, buffers, costs
from ._library import ffi, lib, text
from .draw import Schedules
from .errors import check, error
from .op import op as to_op
from .schedule import Plan, Schedule

__all__ = ["templates", "build", "build_all", "choose", "create_plan", "create_run"]

Choice = collections.namedtuple("Choice", "algo cost_us")


def templates() -> List[Dict[str, Any]]:
    """The templates: a list of dicts with ``name``, ``summary``, ``parameters``, ``result`` and
    ``algorithms`` (each ``name``, ``cost``, ``notes``, ``ordered``)."""
    found = []
    for index in range(lib.weft_template_count()):
        one = lib.weft_template_at(index)
        found.append({
            "name": text(one.name), "summary": text(one.summary),
            "parameters": text(one.parameters).split(), "result": text(one.result),
            "algorithms": [{"name": text(algorithm.name), "cost": text(algorithm.cost),
                            "notes": text(algorithm.notes), "ordered": bool(algorithm.ordered)}
                           for algorithm in (one.algorithms[i] for i in range(one.algorithm_count))]})
    return found


def _params(parameters, who):
    """weft_template_params of keyword arguments, and the operations among them."""
    given = dict(parameters)
    keep, ops = [], []
    if given.get("dtype") is not None:
        given["dtype"] = buffers.dtype(given["dtype"])
    operation = given.pop("op", None)
    blocks = given.pop("blocks", None)
    quantiser = given.pop("quantiser", None)
    if given.get("cost") is not None:
        given["cost"] = costs.model_struct(given["cost"])
    for name, length in (("layers", "layer_count"), ("groups", "group_count")):
        if given.get(name) is not None:
            given[length] = len(given[name])
    params = _structs.Struct("weft_template_params", given, who, keep)
    if operation is not None:
        ops.append(to_op(operation))
        params.c.op = ops[0].c
    if blocks is not None:
        array = ffi.new("struct weft_compressed_block[]", [tuple(block) for block in blocks])
        params.keep.append(array)
        params.c.blocks, params.c.block_count = array, len(array)
    if quantiser is not None:
        settings = quantiser if isinstance(quantiser, _structs.Struct) else _structs.Struct(
            "weft_quantiser", quantiser, who)
        params.keep.append(settings)
        params.c.quantiser = settings.c
    return params, ops


def _name(name):
    encoded = ffi.new("char[]", name.encode())
    if not lib.weft_template_find(encoded):
        raise error(lib.WEFT_ERR_NOT_FOUND)
    return encoded


def build(name: str, rank: int, size: int, **parameters: Any) -> Schedule:
    """Builds the schedule of a template for one rank.

    Parameters
    ----------
    name : str
        As :func:`templates` lists them.
    rank, size : int
    **parameters
        As the template reads them: ``count``, ``dtype``, ``op``, ``algo``, ``root``, ``in_place``,
        ``segment`` ... (weft_template_params in C).

    Returns
    -------
    Schedule
    """
    params, ops = _params(parameters, name)
    pointer = ffi.new("struct weft_schedule **")
    check(lib.weft_template_build(_name(name), rank, size, params.c, pointer))
    return Schedule.__new__(Schedule)._adopt(pointer[0], ops)


def build_all(name: str, size: int, **parameters: Any) -> List[Schedule]:
    """The schedules of all ranks, as a list (:class:`weft.draw.Schedules`); as :func:`build`."""
    return Schedules(build(name, rank, size, **parameters) for rank in range(size))


def choose(name: str, size: int, **parameters: Any) -> Choice:
    """The algorithm that would be chosen, and its predicted time.

    Returns
    -------
    Choice
        ``algo``, ``cost_us`` (microseconds).
    """
    params, _ = _params(parameters, name)
    algo, cost = ffi.new("const char **"), ffi.new("double *")
    check(lib.weft_template_choose(_name(name), size, params.c, algo, cost))
    return Choice(text(algo[0]), cost[0])


def create_plan(context: Any, name: str, **parameters: Any) -> Plan:
    """The plan of the calling rank; costs and hosts are the context's.

    Returns
    -------
    Plan
    """
    params, ops = _params(parameters, name)
    pointer = ffi.new("struct weft_plan **")
    template = _name(name)
    check(context._handle.ask(
        lambda parent: lib.weft_template_create_plan(pointer, parent, template, params.c)))
    return Plan(pointer[0], ops)


def create_run(context: Any, name: str, parameters: Optional[Dict[str, Any]] = None, **bindings: Any) -> Any:
    """A run of a template on a context.

    Parameters
    ----------
    context : Context
    name : str
    parameters : dict, optional
        Of :func:`build`. ``count`` and ``dtype`` are those of what is bound to ``send`` or ``recv``, if
        they are not given, for templates in which that is one block.
    **bindings
        ``send=array, recv=array``: of :class:`Run`.

    Returns
    -------
    Run
    """
    from .run import Run

    parameters = dict(parameters or {})
    for slot in ("send", "recv", "buffer"):
        if slot in bindings and "count" not in parameters:
            found = buffers.buffer(bindings[slot], slot, device=True)
            parameters.setdefault("count", found.count)
            parameters.setdefault("dtype", found.dtype)
            if slot == "recv":
                parameters.setdefault("in_place", True)
    return Run(context, create_plan(context, name, **parameters), **bindings)

# SPDX-License-Identifier: BSD-3-Clause
"""Which layers' gradients to merge before their allreduce (docs/merging.md).

>>> plan = weft.merge([(250, 1.0), (250, 2.0), (250, 4.0)], net=(2, 0.001))
>>> plan.groups, plan.end_us, plan.optimal
([[0], [1, 2]], 8.0, 'all')

Layers are in the order of the backward pass; an allreduce of M bytes takes a + b M microseconds, or what
measured points or a function say, and they are sent one after the other.
"""
import csv
import io
import json
import os
import pathlib
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _enums, _library, _structs, buffers, template
from ._library import ffi, lib, text
from ._svg import plural
from .errors import FileError, FormatError, InvalidError, NotFoundError, check

__all__ = ["Cost", "Layer", "Plan", "Plans", "fit", "layers_of", "merge", "networks", "predict"]

#: What ``method="all"`` stands for, as in the command.
ALL = ("exact", "greedy", "wfbp", "single", "bucket:26214400")

POINTS = 136  # WEFT_MERGE_POINTS
METHOD_TEXT = 80  # WEFT_MERGE_METHOD_TEXT


class Layer(NamedTuple):
    """A layer: its `name`, the `elements` of its gradient, and when that is ready, in microseconds."""

    name: str
    elements: int
    ready_us: float


class Cost:
    """What an allreduce of some bytes takes, in microseconds: ``cost(2**20)``.

    Parameters
    ----------
    a_us, b_us_per_byte : float
        It takes ``a_us + bytes * b_us_per_byte``.
    points : sequence of (bytes, us), optional
        Instead: on the lines between points, of ascending bytes.
    function : callable, optional
        Instead: ``function(bytes)`` returns microseconds.
    """

    def __init__(self, a_us: float = 0.0, b_us_per_byte: float = 0.0, *,
                 points: Optional[Sequence[Tuple[float, float]]] = None, function: Any = None):
        self.a_us, self.b_us_per_byte = a_us, b_us_per_byte
        self.points = None if points is None else [tuple(map(float, point)) for point in points]
        self.function = function

    def _struct(self):
        """The weft_merge_cost, and the list into which a function's exception goes."""
        struct = _structs.Struct("weft_merge_cost", {
            "a_us": float(self.a_us), "b_us_per_byte": float(self.b_us_per_byte)}, "merge: the cost")
        problems = []
        if self.points is not None:
            array = ffi.new("struct weft_merge_point[]", self.points)
            struct.keep.append(array)
            struct.c.points, struct.c.point_count = array, len(self.points)
        if self.function is not None:
            def call(_, size):
                try:
                    return float(self.function(size))
                except BaseException as problem:  # noqa: B902 - raised by whoever asks
                    problems.append(problem)
                    return -1.0

            callback = ffi.callback("double(void *, double)", call)
            struct.keep.append(callback)
            struct.c.function = callback
        return struct, problems

    def __call__(self, bytes: float) -> float:
        struct, problems = self._struct()
        us = ffi.new("double *")
        _require(lib.weft_merge_cost_get(struct.c, bytes, us), problems)
        return us[0]

    def __repr__(self):
        if self.function is not None:
            return "<weft merge cost: %r>" % self.function
        if self.points is not None:
            return "<weft merge cost: %d points, %g to %g bytes>" % (
                len(self.points), self.points[0][0], self.points[-1][0])
        return "<weft merge cost: %g us + bytes * %g us>" % (self.a_us, self.b_us_per_byte)


def _require(status, problems):
    if problems:
        raise problems[0]
    return check(status)


def fit(points: Sequence[Tuple[float, float]]) -> Cost:
    """The a and b with which a + b M is nearest to what was measured.

    Parameters
    ----------
    points : sequence of (bytes, us)
        Of at least two sizes. Their relative errors are made small, so that small messages count as
        much as large ones.

    Raises
    ------
    InvalidError
    """
    array = ffi.new("struct weft_merge_point[]", [tuple(map(float, point)) for point in points])
    a, b = ffi.new("double *"), ffi.new("double *")
    check(lib.weft_merge_cost_fit(array, len(array), a, b))
    return Cost(a[0], b[0])


def predict(n: int, most_bytes: int = 2**28, **parameters: Any) -> Cost:
    """What weft's own allreduce is predicted to take, as points.

    Parameters
    ----------
    n : int
        Ranks.
    most_bytes : int
    **parameters
        Of the template "allreduce": ``algo``, ``dtype``, ``op``, ``cost``, ``hosts``.
    """
    params, _ = template._params(parameters, "predict")
    array, count = ffi.new("struct weft_merge_point[]", POINTS), ffi.new("size_t *")
    check(lib.weft_merge_cost_predict(params.c, n, most_bytes, array, count))
    return Cost(points=[(array[i].bytes, array[i].us) for i in range(count[0])])


# ---- layers ----


def _layer(entry, index):
    try:
        if isinstance(entry, dict):
            return Layer(str(entry.get("name") or index), int(entry["elements"]), float(entry["ready_us"]))
        entry = tuple(entry)
        name, elements, ready = entry if len(entry) == 3 else (str(index),) + entry
        return Layer(str(name), int(elements), float(ready))
    except (KeyError, TypeError, ValueError):
        raise InvalidError("merge: layer %d is %r, expected (elements, ready_us), (name, elements, ready_us) "
                           "or a dict of these" % (index, entry)) from None


def _folder():
    """Where the tables of layers of known networks are; None if nowhere."""
    here = pathlib.Path(__file__).resolve()
    command = _library.command()
    for folder in ([here.parent / "_native/share/weft/layers"]
                   + [pathlib.Path(command).resolve().parent.parent / "share/weft/layers"] * bool(command)
                   + [here.parents[3] / "tools/data/layers"]):
        if folder.is_dir():
            return folder
    return None


def networks() -> List[str]:
    """The networks whose layers come with weft: ``merge("resnet50")``."""
    folder = _folder()
    return sorted(path.stem for path in folder.glob("*.json")) if folder else []


def _read(path):
    if isinstance(path, str) and not os.path.exists(path):
        if path in networks():
            path = _folder() / (path + ".json")
        else:
            raise NotFoundError("merge: %r is neither a file nor one of the networks %s"
                                % (path, ", ".join(networks())))
    try:
        document = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise FileError("merge: cannot read '%s': %s" % (path, problem.strerror)) from problem
    if document.lstrip()[:1] in ("{", "["):
        try:
            found = json.loads(document)
        except ValueError as problem:
            raise FormatError("merge: '%s': %s" % (path, problem)) from problem
        return found["layers"] if isinstance(found, dict) and "layers" in found else found
    lines = [line for line in csv.reader(io.StringIO(document)) if line and not line[0].startswith("#")]
    if lines and "elements" in lines[0]:
        return [dict(zip(lines[0], line)) for line in lines[1:]]
    return lines


def layers_of(given: Any) -> List[Layer]:
    """Layers of what describes them.

    Parameters
    ----------
    given : sequence or path
        Of each layer (elements, ready_us), (name, elements, ready_us) or a dict of these, in the order of
        the backward pass; or a JSON or CSV file of such, as ``weft merge`` takes it; or the name of one
        of :func:`networks`.

    Raises
    ------
    InvalidError
        A layer is none: the text says which.
    """
    if isinstance(given, (str, os.PathLike)):
        given = _read(given)
    if isinstance(given, dict):
        given = given.get("layers", ())
    return [_layer(entry, index) for index, entry in enumerate(given)]


# ---- plans ----


class Plan:
    """Groups of layers that are allreduced together, and their times. Made by :func:`merge`.

    Attributes
    ----------
    method : str
        With all its numbers: "exact", "bucket:26214400".
    groups : list of list of int
        Indices of layers, in the order in which groups are sent.
    sends : list of dict
        Of each group ``layers``, ``bytes``, ``ready_us``, ``start_us``, ``end_us``, ``hidden_us``: how
        much of its allreduce is before the last layer of all is ready.
    end_us, ready_us : float
        When the last allreduce has ended; when the last layer is ready.
    communication_us, hidden_us, hidden_fraction : float
        Of all allreduces; how much of that is hidden behind the computation.
    optimal : {"all", "contiguous", "no"}
        No groups whatsoever end earlier; no groups of successive layers do; nothing is promised.
    layers : list of Layer
    latency_us : float
        What an allreduce of no bytes takes.
    """

    def __init__(self, pointer, method, layers, latency_us):
        summary = _structs.filled("weft_merge_summary", lib.weft_merge_plan_get_summary, pointer)
        self.method, self.layers, self.latency_us = method, layers, latency_us
        self.sends = [_group(pointer, index) for index in range(summary.group_count)]
        self.groups = [send["layers"] for send in self.sends]
        self.end_us, self.ready_us = summary.end_us, summary.ready_us
        self.communication_us, self.hidden_us = summary.communication_us, summary.hidden_us
        self.hidden_fraction = summary.hidden_fraction
        number = _enums.number("weft_merge_optimal_t", summary.optimal, "optimal")
        self.optimal = text(lib.weft_merge_optimal_name(number))

    @property
    def group_layers(self) -> List[int]:
        """How many layers each group has: ``merge(..., groups=...)``, and what objects take."""
        return [len(group) for group in self.groups]

    def __repr__(self):
        return "<weft merge plan %s: %s in %s, end %.6g us, %.0f %% hidden>" % (
            self.method, plural(len(self.layers), "layer"), plural(len(self.groups), "group"), self.end_us,
            100 * self.hidden_fraction)

    def _repr_svg_(self):
        from . import draw

        return draw.merge(self)


class Plans(list):
    """Plans of the same layers by several methods. In a notebook they show below each other."""

    @property
    def best(self) -> Plan:
        """The plan that ends first."""
        return min(self, key=lambda plan: plan.end_us)

    def _repr_svg_(self):
        from . import draw

        return draw.merge(self) if self else None


def _group(pointer, index):
    group = _structs.new("weft_merge_group")
    check(lib.weft_merge_plan_get_group(pointer, index, group))
    return {"layers": [group.layers[i] for i in range(group.layer_count)], "bytes": group.bytes,
            "ready_us": group.ready_us, "start_us": group.start_us, "end_us": group.end_us,
            "hidden_us": group.hidden_us}


def _cost(net, cost, n, dtype, most):
    if net is not None and cost is not None:
        raise InvalidError("merge: net and cost say the same: expected one of them")
    if net is not None:
        if isinstance(net, str):
            net = dict(word.partition("=")[::2] for word in net.split(",") if word)
        if isinstance(net, dict):
            unknown = sorted(set(net) - {"a", "b"})
            if unknown:
                raise InvalidError("merge: net has %r, expected a and b" % unknown[0])
            net = (net.get("a", 0), net.get("b", 0))
        try:
            a, b = (float(number) for number in net)
        except (TypeError, ValueError):
            raise InvalidError("merge: net is %r, expected (a microseconds, b microseconds a byte)"
                               % (net,)) from None
        return Cost(a, b)
    if cost is None:
        return predict(n, max(most, 1), dtype=dtype)
    if isinstance(cost, Cost):
        return cost
    return Cost(function=cost) if callable(cost) else Cost(points=cost)


def merge(layers: Any, *, method: Union[str, Sequence[str]] = "exact", net: Any = None, cost: Any = None,
          n: int = 4, dtype: Any = "f32", groups: Optional[Sequence[int]] = None) -> Union[Plan, Plans]:
    """Plans which successive layers' gradients to send together.

    Parameters
    ----------
    layers : sequence or path
        As :func:`layers_of` takes them.
    method : str or sequence of str
        "exact" (no plan of successive layers ends earlier), "greedy" (MG-WFBP), "wfbp" (every layer by
        itself), "single", "bucket[:BYTES[:FIRST]]" (as DistributedDataParallel), "cycle[:BYTES[:MS]]" (as
        Horovod). Several: a sequence, or with commas between them; "all": :data:`ALL`.
    net : (float, float), dict or str, optional
        An allreduce of M bytes takes a + b M microseconds: ``(50, 0.001)``, ``"a=50,b=0.001"``.
    cost : Cost, sequence of (bytes, us) or callable, optional
        Instead: measured points, or a function of bytes. Neither: what weft's allreduce is predicted to
        take on `n` ranks.
    n : int
        Ranks, for that.
    dtype : datatype
        Of the gradients as they are sent.
    groups : sequence of int, optional
        Instead of a method: so many successive layers has each group.

    Returns
    -------
    Plan
        For one method; for several a list of them, :class:`Plans`.

    Raises
    ------
    InvalidError
        The text says what was expected.
    """
    layers = layers_of(layers)
    size = lib.weft_dtype_size(buffers.dtype(dtype))
    for layer in layers:
        if layer.elements < 0:
            raise InvalidError("merge: layer %s has %d elements, expected 0 or more" % (layer[:2]))
    cost = _cost(net, cost, n, dtype, sum(layer.elements for layer in layers) * size)
    if method == "all":
        method = ALL
    several = not isinstance(method, str) or "," in method
    methods = method.split(",") if isinstance(method, str) else list(method)
    made = Plans(_plan(layers, size, cost, one, groups) for one in methods)
    return made if several else made[0]


def _plan(layers, size, cost, method, groups):
    config = _structs.new("weft_merge_config")
    if groups is not None:
        sizes = ffi.new("size_t[]", list(groups))
        config.method = lib.WEFT_MERGE_GIVEN
        config.group_layers, config.group_count = sizes, len(sizes)
    else:
        check(lib.weft_merge_method_parse(ffi.new("char[]", str(method).encode()), config))
    array = ffi.new("struct weft_merge_layer[]", [(layer.elements * size, layer.ready_us)
                                                  for layer in layers] or 1)
    name = ffi.new("char[]", METHOD_TEXT)
    check(lib.weft_merge_method_format(config, name, METHOD_TEXT))
    struct, problems = cost._struct()
    pointer = ffi.new("struct weft_merge_plan **")
    _require(lib.weft_merge_plan_create(pointer, array, len(layers), struct.c, config), problems)
    try:
        return Plan(pointer[0], text(name), layers, cost(0))
    finally:
        lib.weft_merge_plan_destroy(pointer[0])

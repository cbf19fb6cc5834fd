# SPDX-License-Identifier: BSD-3-Clause
"""Pictures, as SVG: schedules, simulations, traces, plans of merged gradients.

>>> schedules = weft.build_all("allreduce", 8, algo="ring", count=65536)
>>> schedules                                # in a notebook: all ranks over time, the critical path in red
>>> schedules[0]                             # the graph of rank 0
>>> weft.draw.schedules(schedules, net="L=2,o=0.5,G=0.0002").save("ring.svg")

What these functions return is a document that browsers, editors and papers take (:class:`Svg`, a `str`).
Pictures are bounded, and say what they leave out; pointing at a node tells all of it. The page that
:meth:`Schedules.page` writes has everything, and can be zoomed.
"""
import os
import pathlib
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Tuple, Union

from .errors import FileError, InvalidError, WeftError

if TYPE_CHECKING:
    from .checking import Report
    from .merging import Plan
    from .schedule import Schedule
    from .simulation import Result
    from .tracing import Trace

__all__ = ["Schedules", "Svg", "curves", "merge", "schedule", "schedules", "simulation", "trace"]

#: Schedules with more nodes than this together are not simulated just to be shown.
SHOWN = 200_000


class Svg(str):
    """A picture, as text: SVG. In a notebook it shows."""

    def save(self, path: "Union[str, os.PathLike[str]]") -> "Union[str, os.PathLike[str]]":
        """Writes it to a file. Returns the path.

        Raises
        ------
        FileError
        """
        try:
            pathlib.Path(path).write_text(self, encoding="utf-8")
        except OSError as problem:
            raise FileError("cannot write '%s': %s" % (path, problem.strerror)) from problem
        return path

    def _repr_svg_(self):
        return str(self)


def schedule(one: "Schedule") -> Svg:
    """The graph of one rank: a box a node, an arrow an order, by what must come before.

    Parameters
    ----------
    one : Schedule

    Returns
    -------
    Svg
        Of more than 400 nodes, or 40 steps, the first ones are drawn.
    """
    from . import _draw_graph

    return Svg(_draw_graph.graph(one))


def schedules(several: "Sequence[Schedule]", net: Any = None, *, ranks: Optional[Sequence[int]] = None,
              **settings: Any) -> Svg:
    """All ranks over time, as simulated: bars are nodes, lines messages, the critical path is red.

    Parameters
    ----------
    several : sequence of Schedule
        Of all ranks; or what else :func:`weft.sim` takes.
    net : str, dict, weft.costs.Net or weft.costs.Costs, optional
        As for :func:`weft.sim`.
    ranks : sequence of int, optional
        Which are drawn. Default: all, up to 64.
    **settings
        Of :func:`weft.sim`.

    Returns
    -------
    Svg
    """
    from .simulation import sim

    return simulation(sim(several, net=net, keep_nodes=True, **settings), ranks=ranks)


def simulation(result: "Result", *, ranks: Optional[Sequence[int]] = None) -> Svg:
    """What :func:`schedules` draws, of a simulation with ``keep_nodes=True``.

    Raises
    ------
    InvalidError
        It has not kept its nodes.
    """
    from . import _draw_times

    result._needs_nodes()
    return Svg(_draw_times.timeline(*_draw_times.of_simulation(result, ranks)))


def trace(recorded: "Trace", *, ranks: Optional[Sequence[int]] = None, start_us: Optional[float] = None,
          end_us: Optional[float] = None) -> Svg:
    """What ranks did over time: runs pale, below them their nodes; lines are messages.

    Parameters
    ----------
    recorded : Trace
    ranks : sequence of int, optional
        Which are drawn. Default: all, up to 64.
    start_us, end_us : float, optional
        A part of the time. Default: from the start, up to 3000 nodes.

    Returns
    -------
    Svg
    """
    from . import _draw_times

    return Svg(_draw_times.timeline(*_draw_times.of_trace(recorded, ranks, start_us, end_us)))


def merge(plans: "Union[Plan, Sequence[Plan]]") -> Svg:
    """Plans of merged gradients: above the layers as they are ready, below the allreduces.

    Parameters
    ----------
    plans : weft.merging.Plan or sequence of it
        Of the same layers.

    Returns
    -------
    Svg
    """
    from . import _draw_merge

    plans = [plans] if hasattr(plans, "sends") else list(plans)
    if not plans or any(plan.layers != plans[0].layers for plan in plans):
        raise InvalidError("plans is %r, expected one or more plans of the same layers" % (plans,))
    return Svg(_draw_merge.plans(plans))


def curves(lines: "Mapping[str, Sequence[Tuple[float, float]]]", x_label: str = "", y_label: str = "",
           title: str = "") -> Svg:
    """Lines over one axis: the accuracy of trainings over time, say.

    Parameters
    ----------
    lines : dict
        {name: points (x, y), by ascending x}.
    x_label, y_label, title : str
        With units.

    Returns
    -------
    Svg

    Raises
    ------
    InvalidError
        There is no point, or one that is not finite.
    """
    from . import _draw_curves

    return Svg(_draw_curves.curves(lines, x_label, y_label, title))


class Schedules(list):
    """The schedules of all ranks: a list, which shows as a picture in a notebook."""

    def check(self, **settings: Any) -> "Report":
        """:func:`weft.check` of them."""
        from .checking import check

        return check(self, **settings)

    def sim(self, **settings: Any) -> "Result":
        """:func:`weft.sim` of them."""
        from .simulation import sim

        return sim(self, **settings)

    def dump(self, format: str = "text") -> str:
        """All of them as a document: "text", "json" (these read back), "dot" or "goal"."""
        from .schedule import write_schedules

        return write_schedules(self, format)

    def page(self, path: Any = None, **options: Any) -> Any:
        """The page of ``weft dump --format html``, for browsers: to be zoomed and searched.

        Parameters
        ----------
        path : path, optional
            Where to write it.
        **options
            Of ``weft dump``: ``net="L=2,G=0.0001"``, ``trace="trace.json"``.

        Returns
        -------
        weft.tools.Page
            A `str`; in a notebook it shows. With `path`: the path.
        """
        from . import tools

        return tools.dump(self, format="html", output=path, **options)

    def _repr_svg_(self):
        if not self or sum(one.node_count for one in self) > SHOWN:
            return None
        try:
            return schedules(self)
        except WeftError:  # not of all ranks: it shows as a list
            return None

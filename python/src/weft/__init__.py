# SPDX-License-Identifier: BSD-3-Clause
"""weft: collective communication that is written down as graphs.

>>> import numpy, weft
>>> def program(context):
...     x = numpy.full(4, context.rank + 1.0)
...     context.allreduce(x)
...     return x
>>> weft.run_local(3, program)[0]
array([6., 6., 6., 6.])

Contexts, collectives, schedules, what checks and simulates and draws them, and the objects with which models
are trained. ``weft.torch`` is for those who train in PyTorch; ``weft.tools`` has the `weft` command.
"""
from . import buffers, costs, draw, errors, merging, tools, tracing
from ._library import version as __version__
from .context import Context, LocalGroup, run_local, transports
from ._collectives import Request, wait_all
from .checking import FaultError, Report, check
from .compressed_average import CompressedAverage
from .errors import *  # noqa: F401,F403
from .gossip import Gossip, PairAverage, gossip_hops
from .gradients import Gradients
from .grouping import Groups, groups
from .group_average import GroupAverage
from .merging import merge
from .op import Call, Op, compute, op, reduction
from .run import Run, Series
from .schedule import (Node, Plan, Region, Schedule, Slot, Value, read_parameters, read_schedules, reads,
                       updates, write_schedules, writes)
from .server import Server, place_layers
from .simulation import sim
from .sparse_average import SparseAverage
from .template import build, build_all, choose, create_plan, create_run, templates
from .tracing import Trace, trace

# TimeoutError and SystemError are of Python, too: `from weft import *` leaves those alone.
__all__ = ([name for name in errors.__all__ if name not in ("TimeoutError", "SystemError")] + [
    "Call", "Context", "LocalGroup", "Node", "Op", "Plan", "Region", "Request", "Run", "Schedule", "Series",
    "Slot", "Value", "build", "build_all", "buffers", "choose", "compute", "create_plan", "create_run",
    "errors", "op", "read_parameters", "read_schedules", "reads", "reduction", "run_local", "templates",
    "transports", "updates", "wait_all", "write_schedules", "writes", "__version__",
    "CompressedAverage", "Gossip", "Gradients", "GroupAverage", "PairAverage", "Server", "SparseAverage",
    "gossip_hops", "place_layers",
    "FaultError", "Groups", "Report", "Trace", "check", "costs", "draw", "groups", "merge", "merging", "sim",
    "tools", "trace", "tracing"])

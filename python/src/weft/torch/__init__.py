# SPDX-License-Identifier: BSD-3-Clause
"""weft for those who train in PyTorch.

- :func:`context`: the ranks that train together, of torchrun, mpiexec or torch.distributed;
- optimizers that average models or gradients (:mod:`weft.torch.optim`);
- communication hooks of DistributedDataParallel (:mod:`weft.torch.hooks`);
- the backend ``weft`` of torch.distributed (:mod:`weft.torch.backend`), which importing this registers;
- :func:`broadcast_parameters`, :func:`average_parameters`.

Tested with torch 1.13.1 (Debian's) and 2.15.0 (of PyPI), on processors.
"""
import torch.distributed

from ._common import average_parameters, broadcast_parameters, context
from .hooks import HOOKS, HookState, comm_hook, register_comm_hook
from .optim import (CompressedOptimizer, EagerOptimizer, GossipOptimizer, LocalSGDOptimizer, MergedOptimizer,
                    PairAverageOptimizer, SparseOptimizer, WagmaOptimizer)

if torch.distributed.is_available():
    from . import backend  # noqa: F401 - registers it

__all__ = ["context", "broadcast_parameters", "average_parameters", "HOOKS", "HookState", "comm_hook",
           "register_comm_hook", "CompressedOptimizer", "EagerOptimizer", "GossipOptimizer",
           "LocalSGDOptimizer", "MergedOptimizer", "PairAverageOptimizer", "SparseOptimizer",
           "WagmaOptimizer"]

# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of a group of torch.distributed get a context: they meet by the group's store."""
import json
import os
import secrets
import socket
import time
import weakref
from datetime import timedelta
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch.distributed as dist

from ..context import Context
from ..errors import InvalidError, TimeoutError, UnsupportedError
from .errors import of_torch

__all__ = ["TRANSPORT", "make_context", "ranks_text"]

#: What carries messages: "shared" (the default) or "mpi".
TRANSPORT = "WEFT_TORCH_TRANSPORT"


class _Meeting:
    """Gathers over a store, by the ranks of one group."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.seconds = timeout.total_seconds()
        # A group of the same name may have met here before.
        self.prefix = "weft/%d" % store.add("weft/turn/%d" % rank, 1)
        self.calls = 0

    def gather(self, mine: bytes) -> List[bytes]:
        """What all ranks have given, by rank."""
        self.calls += 1
        at = "%s/%d" % (self.prefix, self.calls)
        store = self.store
        store.set("%s/%d" % (at, self.rank), mine.hex())
        store.add("%s/here/%d" % (at, self.rank), 1)
        here = store.add(at + "/here", 1)
        until, pause = time.monotonic() + self.seconds, 0.0002
        while here < self.size:
            if time.monotonic() > until:
                absent = [rank for rank in range(self.size) if store.add("%s/here/%d" % (at, rank), 0) == 0]
                raise of_torch(TimeoutError)(
                    "init of a group of %d ranks, on rank %d: not here within %g s: %s" % (
                        self.size, self.rank, self.seconds, ranks_text(absent)))
            time.sleep(pause)  # where Ctrl-C is seen
            pause = min(pause * 1.5, 0.01)
            here = store.add(at + "/here", 0)
        return [bytes.fromhex(bytes(store.get("%s/%d" % (at, rank))).decode()) for rank in range(self.size)]


def ranks_text(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _host() -> Tuple[str, str]:
    """What two processes have in common that can share memory; and a name for it."""
    parts = []
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts.append(file.read().strip())
        parts.append(os.readlink("/proc/self/ns/net"))
    except OSError:
        parts.append(socket.gethostname())
    return " ".join(parts), socket.gethostname()


def check_hosts(known: List[Dict[str, Any]], who: str) -> None:
    hosts: Dict[str, List[int]] = {}
    names = {}
    for rank, one in enumerate(known):
        hosts.setdefault(one["host"], []).append(rank)
        names[one["host"]] = one["node"]
    if len(hosts) > 1:
        raise of_torch(UnsupportedError)(
            "%s: the ranks are on several machines (%s), and weft's shared memory needs one: start them by "
            "mpiexec, with %s=mpi in the environment, or use another backend" % (
                who, "; ".join("%s: %s" % (names[host], ranks_text(ranks)) for host, ranks in hosts.items()),
                TRANSPORT))


class _Root:
    """The world's context, of which other groups are made; it may have been closed."""

    def __init__(self, context: Context, token: str) -> None:
        self.context = weakref.ref(context)
        self.token = token

    def open(self) -> Optional[Context]:
        context = self.context()
        return context if context is not None and context._handle.pointer is not None else None


_root: Optional[_Root] = None


def make_context(store: Any, rank: int, size: int, timeout: timedelta, name: str) -> Context:
    """The context of a group. Collective over its ranks, blocking."""
    global _root
    who = "group %s, rank %d of %d" % (name, rank, size)
    transport = os.environ.get(TRANSPORT) or "shared"
    if transport not in ("shared", "mpi"):
        raise of_torch(InvalidError)("%s: %s is %r, expected 'shared' or 'mpi'" % (who, TRANSPORT, transport))
    is_world = not dist.is_initialized()
    root = None if is_world or _root is None else _root.open()
    meeting = _Meeting(store, rank, size, timeout)
    host, node = _host()
    known = [json.loads(one) for one in meeting.gather(json.dumps({
        "host": host, "node": node, "transport": transport, "token": secrets.token_hex(16),
        "root": "" if root is None or _root is None else _root.token,
        "at": -1 if root is None else root.rank}).encode())]
    for other, one in enumerate(known):
        if one["transport"] != transport:
            raise of_torch(InvalidError)("%s: %s is %r here, and %r on rank %d" % (
                who, TRANSPORT, transport, one["transport"], other))
    if root is not None and len({one["root"] for one in known}) == 1:
        return root.subset([one["at"] for one in known])
    if transport == "mpi":
        if not is_world:
            raise of_torch(UnsupportedError)("%s: over MPI the world has to be of weft, too" % who)
        context = Context.world("mpi", progress="helper")
        if (context.rank, context.size) != (rank, size):
            raise of_torch(InvalidError)("%s: MPI has rank %d of %d here, expected the same" % (
                who, context.rank, context.size))
    else:
        check_hosts(known, who)
        context = Context.shared(rank, size, gather=meeting.gather, progress="helper")
    if is_world:
        _root = _Root(context, known[0]["token"])
    return context

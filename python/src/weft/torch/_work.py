# SPDX-License-Identifier: BSD-3-Clause
"""Handles of what groups of torch.distributed have under way, and their futures."""
import os
import queue
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch._C._distributed_c10d import Work as _TorchWork

from .._collectives import wait_all
from ..context import Context
from ..errors import InvalidError, StateError, TimeoutError
from ._messages import Message, Messages
from .errors import convert

__all__ = ["Core", "MessageWork", "Work", "Works"]

#: After so many calls handles are looked through for those that have ended; so many of them are kept for a
#: caller in C++ that may still wait.
MANY, KEPT = 64, 256

_NO_TIME = timedelta(0)


class Core:
    """What a group has, without the group: its context, and what is under way."""

    def __init__(self, context: Context, name: str, timeout: timedelta) -> None:
        self.context = context
        self.rank, self.size = context.rank, context.size
        self.name = name
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.begun = 0
        #: Handles by themselves: torch 1.13 does not keep those that it has in C++.
        self.alive: Dict[Work, None] = {}
        #: Of the threads that complete futures, by what they complete and by their level.
        self.completers: Dict[Tuple[str, int], queue.SimpleQueue] = {}
        self._messages: Optional[Messages] = None
        self.aside = context.split(0) if self.size > 1 else None
        self.set_timeout(timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        self.seconds = timeout.total_seconds()
        self.context.configure(deadline=max(self.seconds, 1e-3))

    def who(self, what: str) -> str:
        return "%s (group %s, rank %d of %d)" % (what, self.name, self.rank, self.size)

    @property
    def messages(self) -> Messages:
        """Made when they are first needed: locally, as the context for them is there."""
        if self._messages is None:
            with self.lock:
                if self._messages is None:
                    if self.aside is None:
                        raise InvalidError("there is no other rank in the group")
                    self._messages = Messages(self.aside)
        return self._messages

    def completer(self, kind: str) -> queue.SimpleQueue:
        """The queue of a thread that completes futures.

        What callbacks of futures call, which such a thread runs, is the next level's: so they may wait for
        futures.
        """
        level = getattr(_this_thread, "level", 0)
        with self.lock:
            found = self.completers.get((kind, level))
            if found is None:
                found = self.completers[kind, level] = queue.SimpleQueue()
                threading.Thread(target=_complete, args=(found, level + 1), name="weft futures",
                                 daemon=True).start()
        return found

    def look(self) -> None:
        """Now and then: finishes what has ended and nobody has waited for."""
        ended = [work for work in list(self.alive) if work._promise is None and work.is_completed()]
        for work in ended[:-KEPT]:
            self.alive.pop(work, None)

    def close(self) -> None:
        if os.getpid() != self.process:
            return
        for context in (self.aside, self.context):
            if context is not None:
                try:
                    context.close()
                except StateError:  # it is dropped where it cannot be closed: who may will do it
                    pass
        for ended in list(self.completers.values()):  # behind what has failed by that
            ended.put(None)


_this_thread = threading.local()


def _complete(ended: queue.SimpleQueue, level: int) -> None:
    _this_thread.level = level
    while True:
        work = ended.get()
        if work is None:
            return
        work._complete()
        work = None


class Work(_TorchWork):
    """A call of a group that may not have ended.

    Functions may be called from any thread; waits release the GIL and see Ctrl-C.
    """

    _over = False
    _error: Optional[Exception] = None
    _future: Any = None
    _promise: Any = None

    def __init__(self, core: Core, what: str, outputs: List[Tensor], after: Optional[Callable[[], None]],
                 requests: Sequence[Any]) -> None:
        super().__init__()
        self._core = core
        self._what = what
        self._outputs = outputs
        self._after = after
        self._requests = requests
        self._lock = threading.Lock()
        core.alive[self] = None
        core.begun += 1
        if core.begun % MANY == 0:
            core.look()

    # ---- the call itself: requests of the context ----

    def _await(self, seconds: Optional[float]) -> None:
        """Waits; raises what it has failed with, or a timeout that it survives."""
        if len(self._requests) == 1:
            self._requests[0].wait(seconds)
        else:
            wait_all(self._requests, seconds)

    def _poll(self) -> bool:
        """Whether it has ended, well or not."""
        return all(request.done for request in self._requests)

    def _ask(self) -> None:
        """Sees to it that :meth:`_complete` is called."""
        self._core.completer("calls").put(self)

    # ---- its end ----

    def _conclude(self, problem: Optional[Exception]) -> None:
        """Under the lock, once."""
        after, self._after = self._after, None
        self._requests = ()
        if problem is None and after is not None:
            try:
                with torch.no_grad():
                    after()
            except Exception as found:
                problem = found
        if problem is not None:
            self._error = convert(problem, self._core.who(self._what))
        self._over = True

    def _settle(self, seconds: Optional[float]) -> None:
        """Waits until it is over, whether it fails or not; raises a timeout that it survives."""
        if not (self._lock.acquire() if seconds is None else self._lock.acquire(timeout=seconds)):
            raise self._late(seconds)
        try:
            if self._over:
                return
            problem: Optional[Exception] = None
            try:
                self._await(seconds)
            except TimeoutError as found:
                if not self._poll():
                    raise self._late(seconds) from None
                problem = found
            except Exception as found:
                problem = found
            self._conclude(problem)
        finally:
            self._lock.release()

    def _late(self, seconds: Optional[float]) -> Exception:
        return convert(TimeoutError("has not ended within %g s, and goes on" % (seconds or 0)),
                            self._core.who(self._what))

    def _complete(self) -> None:
        """Completes its future: by the thread that does so, or by who asks for it."""
        try:
            self._settle(None)
        except Exception as problem:
            self._error = self._error or problem
        promise, self._promise = self._promise, None
        self._core.alive.pop(self, None)
        if promise is not None:
            promise.set_result(None)

    def _value(self, _: Any) -> List[Tensor]:
        if self._error is not None:
            raise self._error
        return self._outputs

    # ---- as torch.distributed knows it ----

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits until it has ended; raises what it has failed with.

        Parameters
        ----------
        timeout : timedelta, optional
            Later it raises a TimeoutError and goes on. None, or none above 0: the group's timeout ends it.
        """
        if not self._over:
            self._settle(None if timeout is None or timeout <= _NO_TIME else timeout.total_seconds())
        if self._promise is None:
            self._core.alive.pop(self, None)
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether it has ended, well or not. Drives the engine a little."""
        if not self._over and self._lock.acquire(blocking=False):
            try:
                if not self._over and self._poll():
                    problem: Optional[Exception] = None
                    try:
                        self._await(None)
                    except Exception as found:
                        problem = found
                    self._conclude(problem)
            finally:
                self._lock.release()
        return self._over

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Exception]:
        """What it has failed with; None if it has not, or has not ended."""
        self.is_completed()
        return self._error

    def synchronize(self) -> None:
        """As :meth:`wait`: there are no streams."""
        self.wait()

    def result(self) -> List[Tensor]:
        """The tensors that it writes."""
        return list(self._outputs)

    def source_rank(self) -> int:
        """Of a receive that has ended: the rank, in the group, that the message is from."""
        raise convert(StateError("only a receive has a source"), self._core.who(self._what))

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> torch.futures.Future:
        """A future of :meth:`result`; it is completed whether somebody waits or not."""
        with self._core.lock:
            future = self._future
            if future is None:
                # Of a callback that raises: so it fails for who waits in C++, too.
                promise = torch.futures.Future()
                future = self._future = promise.then(self._value)
                self._promise = promise
                if self._over:
                    self._complete()
                else:
                    self._ask()
        return future

    def __repr__(self) -> str:
        return "<weft.torch.backend.Work %s, %s>" % (
            self._what, "failed" if self._error else "ended" if self._over else "under way")


class Works(Work):
    """Several, as one."""

    def _await(self, seconds: Optional[float]) -> None:
        for work in self._requests:
            work._settle(seconds)
            self._core.alive.pop(work, None)
        for work in self._requests:
            if work._error is not None:
                raise work._error

    def _poll(self) -> bool:
        return all([work.is_completed() for work in self._requests])


class MessageWork(Work):
    """A send or a receive. The group's timeout counts from the call, and ends it when it is looked at."""

    def __init__(self, core: Core, what: str, outputs: List[Tensor], after: Optional[Callable[[], None]],
                 message: Message) -> None:
        self._message = message
        self._until = time.monotonic() + core.seconds
        super().__init__(core, what, outputs, after, ())

    def _await(self, seconds: Optional[float]) -> None:
        message, messages = self._message, self._core.messages
        left = max(self._until - time.monotonic(), 0.0)
        if seconds is not None and seconds < left:
            messages.wait(message, seconds)
            return
        try:
            messages.wait(message, left)
        except TimeoutError:
            problem = TimeoutError("nobody has %s within %g s, the timeout of the group" % (
                "received it" if message.sends else "sent that", self._core.seconds))
            if not message.done and not messages.withdraw(message):
                messages.cancel(message, problem)
                messages.wait(message, 60)
            raise problem from None

    def _poll(self) -> bool:
        return self._message.done or time.monotonic() > self._until

    def _ask(self) -> None:
        ended = self._core.completer("messages")
        self._core.messages.when_over(self._message, lambda: ended.put(self))

    def source_rank(self) -> int:
        """The rank, in the group, that the message is from."""
        if self._message.source is None:
            return super().source_rank()
        return self._message.source

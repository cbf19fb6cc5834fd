# SPDX-License-Identifier: BSD-3-Clause
"""Messages between two ranks of a context, at any time, matched by tag: send and recv of torch.distributed.

Collectives are steps that all ranks take in one order; these are not. Each ordered pair of ranks has a
channel, which is a run of weft on either side with one message a version:

    rank 0    send(x, 1, tag 7)      send(y, 1, tag 8)
              header (7, bytes of x) + x         header (8, bytes of y)    y
    channel   ---- version 0 ----------------------- version 1 -------- version 2 --->
    rank 1    recv(b, 0, tag 8)      recv(a, 0, tag 7)

- A message of up to :data:`INLINE` bytes travels in its header; a larger one is a version of its own, which
  the receiver reads straight into its tensor if it waits for it, and else into memory that is kept.
- Messages of one pair and tag arrive in their order. One that comes while others are waited for is kept, so
  tags may be received in any order.
- A send of up to INLINE bytes ends when it has been copied; a larger one when its receiver has read it.
- A receive from any rank takes what has come first, here; among waiting receives the one that was made
  first gets a message.
- Nobody waits for the making of a channel: the runs are made at the first message of a rank, in the same
  order on all of them (rounds in which everybody has one partner), and what comes before is kept by weft.

The versions of a channel are started by whoever drives the engine when the one before has ended, so no
thread is needed. The lock guards Python's state only: nothing of weft that may wait is called under it.
"""
import collections
import ctypes
import struct
import threading
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import numpy

from .. import _life
from .._library import ffi, lib, text
from ..context import Context
from ..errors import InvalidError, StateError, TimeoutError, error
from ..run import Run
from ..schedule import Plan, Schedule

__all__ = ["INLINE", "Message", "Messages"]

#: Bytes of a message that travels with its header, in one message that is copied.
INLINE = 4080

_HEADER = struct.Struct("<qq")
_ROOM = _HEADER.size + INLINE
_MOST = 1 << 48  # bytes of a message; slots are said to be so large, and values say how much is used

# weft_context_wait() asks a function of C, so that a thread which drives the engine need not have Python's
# lock at every step: atoi() of "0" or "1".
_is_set = ffi.cast("weft_done_fn", ctypes.cast(ctypes.CDLL(None).atoi, ctypes.c_void_p).value)

_IDLE, _AT_HEADER, _AT_PAYLOAD = range(3)


def partner_of(rank: int, size: int, turn: int) -> Optional[int]:
    """The partner of a rank in a round in which everybody has one at most; all pairs meet once in
    ``size - 1`` rounds (`size`, if that is odd)."""
    last = size - 1 if size % 2 == 0 else size
    if rank == last:
        return turn * (last + 1) // 2 % last
    partner = (turn - rank) % last
    if partner != rank:
        return partner
    return last if last < size else None


def rounds_of(size: int) -> int:
    """How many rounds there are."""
    return size - 1 if size % 2 == 0 else size


class Message:
    """A send or a receive.

    Attributes
    ----------
    peer : int or None
        None: from any rank.
    tag : int
    bytes : int
    source : int or None
        Of a receive that has ended: the rank it is from.
    done : bool
    error : Exception or None
        What it has failed with.
    """

    __slots__ = ("sends", "peer", "tag", "address", "bytes", "keep", "source", "done", "error", "order",
                 "flag", "ended")

    def __init__(self, sends: bool, peer: Optional[int], tag: int, address: Any, size: int,
                 keep: Any) -> None:
        self.sends, self.peer, self.tag = sends, peer, tag
        self.address, self.bytes, self.keep = address, size, keep
        self.source: Optional[int] = None
        self.done = False
        self.error: Optional[Exception] = None
        self.order = 0
        self.flag = ffi.new("char[]", b"0")
        #: Called when it has ended, by any thread; it must not wait.
        self.ended: Optional[Callable[[], None]] = None

    def _end(self, problem: Optional[Exception] = None) -> None:
        """Under the lock."""
        self.error = problem
        self.keep = None
        self.done = True
        self.flag[0] = b"1"


class _Channel:
    """One direction of a pair: a run, of which one version at a time is under way.

    Whoever has `pumping` looks after it; a version that ends meanwhile is seen in its next look.
    """

    def __init__(self, messages: "Messages", peer: int, plan: Plan, ranks: List[int]) -> None:
        self.messages = messages
        self.peer = peer
        self.phase = _IDLE
        self.pumping = False
        self.flying = False
        self.landed: Optional[int] = None
        self.problem: Optional[Exception] = None
        self.header = ffi.new("char[]", _ROOM)
        self.view = ffi.buffer(self.header)
        self.run = Run(messages.context, plan, peers=ranks, ended=self._ended)

    def _ended(self, status: int) -> None:
        messages = self.messages
        problem: Optional[Exception] = None
        if status < 0:
            try:
                said = text(self.run._handle.ask(lib.weft_run_error))
            except StateError:
                said = "the group has been closed"
            problem = error(status, said)
        with messages.lock:
            self.flying = False
            self.landed = status
            self.problem = self.problem or problem
        self.pump()

    def pump(self) -> None:
        """Starts what is next, and goes on until a version is under way or nothing is to be done."""
        lock = self.messages.lock
        with lock:
            if self.pumping:
                return
            self.pumping = True
        over: List[Message] = []
        while True:
            with lock:
                begin = None if self.flying else self.look(over)
                if begin is None:
                    self.pumping = False
                    break
                self.flying = True
            try:
                self.begin(*begin)
            except Exception as problem:
                with lock:
                    self.flying = False
                    self.landed = -1
                    self.problem = self.problem or problem
        for message in over:
            if message.ended is not None:
                message.ended()

    def look(self, over: List[Message]) -> Optional[Tuple[Any, int]]:
        raise NotImplementedError

    def begin(self, address: Any, size: int) -> None:
        raise NotImplementedError

    def start(self, bind: Any, address: Any, size: int) -> None:
        ask = self.run._handle.ask
        _life.require(ask(bind, 0, address, _MOST, lib.WEFT_U8))
        _life.require(ask(lib.weft_run_bind_value, 1, size))
        _life.require(ask(lib.weft_run_start))


class _Outgoing(_Channel):
    def __init__(self, messages: "Messages", peer: int, plan: Plan) -> None:
        self.queue: Deque[Message] = collections.deque()
        self.current: Optional[Message] = None
        super().__init__(messages, peer, plan, [messages.rank, peer])

    def look(self, over: List[Message]) -> Optional[Tuple[Any, int]]:
        landed, self.landed = self.landed, None
        current = self.current
        if self.problem is not None:
            for message in ([current] if current else []) + list(self.queue):
                message._end(self.problem)
                over.append(message)
            self.queue.clear()
            self.current = None
            return None
        if landed is not None and current is not None:
            if self.phase == _AT_HEADER and current.bytes > INLINE:
                self.phase = _AT_PAYLOAD
                return current.address, current.bytes
            current._end()
            over.append(current)
            self.current = None
            self.phase = _IDLE
        if not self.queue:
            return None
        current = self.current = self.queue.popleft()
        self.phase = _AT_HEADER
        _HEADER.pack_into(self.view, 0, current.tag, current.bytes)
        if current.bytes > INLINE:
            return self.header, _HEADER.size
        ffi.memmove(self.header + _HEADER.size, current.address, current.bytes)
        return self.header, _HEADER.size + current.bytes

    def begin(self, address: Any, size: int) -> None:
        self.start(lib.weft_run_bind_input, address, size)


class _Incoming(_Channel):
    def __init__(self, messages: "Messages", peer: int, plan: Plan) -> None:
        self.tag = self.size = 0
        self.target: Optional[Message] = None  # who gets the payload that is on its way
        self.spare: Any = None  # or the memory in which it is kept; dropped where nobody wants it
        self.unwanted = False
        super().__init__(messages, peer, plan, [peer, messages.rank])


    def look(self, over: List[Message]) -> Optional[Tuple[Any, int]]:
        messages = self.messages
        landed, self.landed = self.landed, None
        if self.problem is not None:
            if self.target is not None:
                self.target._end(self.problem)
                over.append(self.target)
                self.target = None
            messages._lost(self.peer, self.problem, over)
            return None
        if landed is not None and self.phase == _AT_HEADER:
            self.tag, self.size = _HEADER.unpack_from(self.view, 0)
            if self.size <= INLINE:
                self.phase = _IDLE
                messages._arrived(self.peer, self.tag, self.size, self.header + _HEADER.size, None, over)
            else:
                self.phase = _AT_PAYLOAD
                target = messages._match(self.peer, self.tag)
                if target is not None and target.bytes == self.size:
                    self.target = target
                    return target.address, self.size
                if target is not None:
                    messages._misfit(target, self.peer, self.size, over)
                self.unwanted = target is not None
                self.spare = numpy.empty(self.size, numpy.uint8)
                return ffi.cast("char *", self.spare.ctypes.data), self.size
        elif landed is not None:
            self.phase = _IDLE
            spare, self.spare = self.spare, None
            if self.target is not None:
                self.target.source = self.peer
                self.target._end()
                over.append(self.target)
                self.target = None
            elif not self.unwanted:
                messages._arrived(self.peer, self.tag, self.size,
                                  ffi.cast("char *", spare.ctypes.data), spare, over)
        if not messages._awaits(self.peer):
            return None
        self.phase = _AT_HEADER
        return self.header, _ROOM

    def begin(self, address: Any, size: int) -> None:
        self.start(lib.weft_run_bind, address, size)


_plans: Dict[str, Plan] = {}


def _plan(kind: str) -> Plan:
    plan = _plans.get(kind)
    if plan is None:
        rank, size = {"send": (0, 2), "recv": (1, 2), "none": (0, 1)}[kind]
        schedule = Schedule(rank, size, name="message", track=False)
        if kind == "none":
            schedule.join()
        else:
            data = schedule.slot("data", "u8", _MOST, "input" if kind == "send" else "output")
            used = schedule.value("used", _MOST)
            region = data.at(0, _MOST, used)
            if kind == "send":
                schedule.send(region, 1)
            else:
                schedule.recv(region, 0, up_to=True)
        plan = _plans[kind] = schedule.commit()
    return plan


class Messages:
    """The messages of one rank of a context that is used for nothing else.

    Making it is local. Functions may be called from any thread.

    Parameters
    ----------
    context : Context
        With helper progress.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.rank, self.size = context.rank, context.size
        self.lock = threading.Lock()
        self._order = 0
        #: Receives that wait, by (rank or None, tag); and how many, by rank.
        self._posted: Dict[Tuple[Optional[int], int], Deque[Message]] = {}
        self._waiting: Dict[Optional[int], int] = {}
        #: What has come and nobody waits for: (order, bytes, memory), by (rank, tag).
        self._early: Dict[Tuple[int, int], Deque[Tuple[int, int, Any]]] = {}
        self._gone: Dict[int, Exception] = {}
        self.outgoing: Dict[int, _Outgoing] = {}
        self.incoming: Dict[int, _Incoming] = {}
        # Objects of the context: the same numbers on both ranks of a pair, so there are some that do nothing.
        for turn in range(rounds_of(self.size)):
            peer = partner_of(self.rank, self.size, turn)
            for lower_sends in (True, False):
                if peer is None:
                    Run(context, _plan("none"))
                elif lower_sends == (self.rank < peer):
                    self.outgoing[peer] = _Outgoing(self, peer, _plan("send"))
                else:
                    self.incoming[peer] = _Incoming(self, peer, _plan("recv"))

    # ---- for users ----

    def send(self, address: Any, size: int, peer: int, tag: int = 0, keep: Any = None) -> Message:
        """Sends memory to a rank; does not wait.

        Parameters
        ----------
        address : cffi pointer
        size : int
            Bytes.
        peer, tag : int
        keep : object
            What keeps the memory.
        """
        message = Message(True, peer, tag, address, size, keep)
        channel = self.outgoing.get(peer)
        if channel is None:
            raise InvalidError("send to rank %r, expected another rank below %d" % (peer, self.size))
        with self.lock:
            channel.queue.append(message)
        channel.pump()
        return message

    def recv(self, address: Any, size: int, peer: Optional[int], tag: int = 0, keep: Any = None) -> Message:
        """Receives a message of just this size from a rank, or from any (None); does not wait."""
        message = Message(False, peer, tag, address, size, keep)
        channels = list(self.incoming.values()) if peer is None else [self.incoming.get(peer)]
        if None in channels or not channels:
            raise InvalidError("recv from rank %r, expected another rank below %d" % (peer, self.size))
        over: List[Message] = []
        with self.lock:
            self._order += 1
            message.order = self._order
            if self._take_early(message, over):
                channels = []
            elif peer is not None and peer in self._gone:
                message._end(self._gone[peer])
                over.append(message)
            elif peer is None and self._hopeless():
                message._end(self._hopeless())
                over.append(message)
            else:
                self._posted.setdefault((peer, tag), collections.deque()).append(message)
                self._waiting[peer] = self._waiting.get(peer, 0) + 1
        for channel in channels:
            channel.pump()
        return message

    def wait(self, message: Message, timeout: Optional[float] = None) -> None:
        """Waits until a message has ended, driving the engine; raises what it has failed with.

        Raises
        ------
        TimeoutError
            It goes on then.
        """
        if not message.done:
            flag = message.flag
            status = self.context._handle.wait(
                lambda pointer, ns: lib.weft_context_wait(pointer, _is_set, flag, ns), timeout)
            if status < 0:
                _life.raise_status(status)
            if not message.done:
                raise TimeoutError("the message has not ended within %g s" % (timeout or 0))
        if message.error is not None:
            raise message.error

    def when_over(self, message: Message, function: Callable[[], None]) -> None:
        """Calls a function, which must not wait, once a message has ended; by whichever thread sees it."""
        with self.lock:
            if not message.done:
                message.ended = function
                return
        function()

    def withdraw(self, message: Message) -> bool:
        """Takes back a receive for which nothing has come, or a send that has not begun. Returns whether it
        has: it has failed then."""
        with self.lock:
            if message.done:
                return False
            if message.sends:
                queue = self.outgoing[message.peer].queue  # type: ignore[index]
                found = message in queue
            else:
                queue = self._posted.get((message.peer, message.tag), collections.deque())
                found = message in queue
                if found:
                    self._waiting[message.peer] -= 1
            if found:
                queue.remove(message)
                message._end(StateError("it was taken back"))
        if found and message.ended is not None:
            message.ended()
        return found

    def cancel(self, message: Message, problem: Exception) -> None:
        """Ends a message of which a part is on its way, and with it its channel, on both sides."""
        channels: Any = self.outgoing if message.sends else self.incoming
        for channel in channels.values():
            with self.lock:
                if message.done or message is not (channel.current if message.sends else channel.target):
                    continue
                channel.problem = problem
            channel.run.cancel()

    # ---- for channels, under the lock ----

    def _awaits(self, peer: int) -> bool:
        return self._waiting.get(peer, 0) + self._waiting.get(None, 0) > 0

    def _match(self, peer: int, tag: int) -> Optional[Message]:
        """The receive that gets a message: it waits no more."""
        best: Any = None
        for key in ((peer, tag), (None, tag)):
            queue = self._posted.get(key)
            if queue and (best is None or queue[0].order < self._posted[best][0].order):
                best = key
        if best is None:
            return None
        queue = self._posted[best]
        message = queue.popleft()
        if not queue:
            del self._posted[best]
        self._waiting[best[0]] -= 1
        return message

    @staticmethod
    def _misfit(message: Message, peer: int, size: int, over: List[Message]) -> None:
        message.source = peer
        message._end(InvalidError("the message from rank %d has %d bytes, expected the %d of the tensor" % (
            peer, size, message.bytes)))
        over.append(message)

    def _fill(self, message: Message, peer: int, size: int, address: Any, over: List[Message]) -> None:
        if message.bytes != size:
            self._misfit(message, peer, size, over)
            return
        if size:
            ffi.memmove(message.address, address, size)
        message.source = peer
        message._end()
        over.append(message)

    def _arrived(self, peer: int, tag: int, size: int, address: Any, memory: Any,
                 over: List[Message]) -> None:
        """A message is here: for who waits for it, or to be kept."""
        message = self._match(peer, tag)
        if message is not None:
            self._fill(message, peer, size, address, over)
            return
        if memory is None:
            memory = numpy.empty(max(size, 1), numpy.uint8)
            ffi.memmove(ffi.cast("char *", memory.ctypes.data), address, size)
        self._order += 1
        self._early.setdefault((peer, tag), collections.deque()).append((self._order, size, memory))

    def _take_early(self, message: Message, over: List[Message]) -> bool:
        peers = self.incoming if message.peer is None else [message.peer]
        found = [(self._early[peer, message.tag][0][0], peer) for peer in peers
                 if (peer, message.tag) in self._early]
        if not found:
            return False
        peer = min(found)[1]
        queue = self._early[peer, message.tag]
        _, size, memory = queue.popleft()
        if not queue:
            del self._early[peer, message.tag]
        self._fill(message, peer, size, ffi.cast("char *", memory.ctypes.data), over)
        return True

    def _hopeless(self) -> Optional[Exception]:
        """Why nothing can come from any rank: one has died, or all have left."""
        for peer, problem in self._gone.items():
            if self._state_of(peer) == lib.WEFT_RANK_DEAD or len(self._gone) == len(self.incoming):
                return problem
        return None

    def _state_of(self, peer: int) -> int:
        state = ffi.new("weft_rank_state_t *")
        try:
            self.context._handle.ask(lib.weft_context_rank_state, peer, state, ffi.NULL)
        except StateError:
            pass
        return state[0]

    def _lost(self, peer: int, problem: Exception, over: List[Message]) -> None:
        """Nothing more comes from a rank."""
        self._gone.setdefault(peer, problem)
        for key in [key for key in self._posted if key[0] == peer]:
            queue = self._posted.pop(key)
            self._waiting[peer] -= len(queue)
            for message in queue:
                message._end(problem)
                over.append(message)
        hopeless = self._hopeless()
        if hopeless is not None:
            for key in [key for key in self._posted if key[0] is None]:
                queue = self._posted.pop(key)
                self._waiting[None] -= len(queue)
                for message in queue:
                    message._end(hopeless)
                    over.append(message)


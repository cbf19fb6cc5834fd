# SPDX-License-Identifier: BSD-3-Clause
"""The backend ``weft`` of torch.distributed, for tensors in the memory of the host.

Importing :mod:`weft.torch` registers it; the script stays what it is::

    import weft.torch
    torch.distributed.init_process_group("weft")
    model = torch.nn.parallel.DistributedDataParallel(model)

Started by torchrun, by multiprocessing with a store, or anything else that torch.distributed can be
started by, with all ranks on one machine. Over MPI, under mpiexec, with WEFT_TORCH_TRANSPORT=mpi in the
environment: the ranks are then those of MPI_COMM_WORLD.

What there is
-------------
- all_reduce, broadcast, all_gather, reduce_scatter, reduce, gather, scatter, all_to_all, barrier, and their
  variants for single tensors, lists and objects; ``async_op=True``. Blocks of all_gather, reduce_scatter
  and all_to_all may be of different sizes.
- send, recv (also from any rank), isend, irecv, batch_isend_irecv; see :mod:`weft.torch._messages`. A
  message of another size than the tensor is an error of the receiver. After a timeout of a message of which
  a part was on its way, messages of that direction between the two ranks fail.
- new_group: the new group is a part of the world's context, so its making is cheap. Timeouts are the
  group's: a collective that takes longer than that after those before it fails on the rank whose time has
  passed first, and so on the others, which are told of it.
- DistributedDataParallel with all of its options and hooks. Gradients are bit for bit the same on all
  ranks.
- Sparse tensors in all_reduce with SUM and AVG, which then blocks.
- :func:`monitored_barrier`, since torch.distributed's own refuses backends that are not gloo.

Operations are SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, AVG (the sum divided, whole numbers towards zero), and
PREMUL_SUM where torch lets Python see its factor. SUM, MAX and BOR of booleans are "or", PRODUCT, MIN and
BAND "and", BXOR "xor". Complex numbers can be summed and averaged.

What there is not
-----------------
- Tensors on a GPU: an error says so. Lists of one tensor per device (the ``_multigpu`` functions).
- Ranks on several machines, but over MPI.

Rules
-----
- Collectives of a group are called in the same order on all ranks, whatever thread calls them: what a
  callback of a future calls must be ordered by the program, as with gloo.
- A rank that dies, leaves, or calls with arguments that cannot be, makes the others fail with an error that
  names it and says why. Errors are those of :mod:`weft.errors` and RuntimeError at once
  (:mod:`weft.torch.errors`).
- Nobody need wait for a :class:`Work`: futures are completed by a thread of the group. A Work that nobody
  waits for and whose future nobody has asked for is finished by one of the calls after it.
- destroy_process_group() ends a group as soon as nothing holds it any more, a model in
  DistributedDataParallel, say; else the end of the process does.

Tested with torch 1.13.1 (Debian's) and 2.15.0 (of PyPI), on processors. Groups are subclasses of ProcessGroup
that distributed_c10d takes as they are; functional collectives, which have not been run, need a torch whose
PyProcessGroup.hpp hands them on to Python.
"""
import inspect
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import ProcessGroup

from .._library import ffi
from ..buffers import Buffer
from ..context import Context
from ..errors import InvalidError, TimeoutError, UnsupportedError, WeftError
from ._meet import make_context, ranks_text
from ._tensors import (Call, Operation, adjacent, apart_from, bytes_of, checked, checked_list, copies_of,
                       elements_of, empty_for, expect, flat_of, memory_of, operation_of, overlap, plain_of,
                       pointer_of, room_for, single, splits_of, spread)
from ._work import Core, MessageWork, Work, Works
from .errors import convert, of_torch

__all__ = ["ProcessGroupWeft", "Work", "context_of", "monitored_barrier", "register"]

#: Tags from here down are those of monitored barriers.
_OWN_TAGS = -(1 << 40)


class ProcessGroupWeft(ProcessGroup):
    """A group of torch.distributed over a context of weft. Made by torch.distributed.

    Methods are those that torch.distributed calls, which has the functions for users; each returns a
    :class:`Work`, and those of collectives are called in the same order on all ranks.

    Parameters
    ----------
    context : weft.Context
        With helper progress; it is the group's from now on.
    name : str
        For errors.
    timeout : timedelta
    """

    def __init__(self, context: Context, name: str, timeout: timedelta) -> None:
        super().__init__(context.rank, context.size)
        self._core = Core(context, name, timeout)
        self._name = name
        self._description = ""
        self._barriers = 0
        self._together: Optional[List[Work]] = None
        finalizer = weakref.finalize(self, self._core.close)
        finalizer.atexit = False  # weft sees to what is left then

    # ---- what it is ----

    @property
    def context(self) -> Context:
        """The context of weft under it, for what else the ranks want to do with it."""
        return self._core.context

    def getBackendName(self) -> str:
        return "weft"

    def name(self) -> str:
        return "weft"

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name = property(lambda self: self._name)
    group_desc = property(lambda self: self._description)

    @property
    def _device_types(self) -> List[torch.device]:
        # While the group is being made torch attaches a recorder (2.15) to the backends of its devices, of
        # which a group that is a subclass has none.
        world = getattr(dist.distributed_c10d, "_world", None)
        return [] if world is not None and self not in world.pg_map else [torch.device("cpu")]

    bound_device_id = None
    supports_splitting = supports_coalescing = supports_time_estimate = False

    def _get_backend(self, device: Any) -> "ProcessGroupWeft":
        if torch.device(device).type != "cpu":
            raise RuntimeError("the backend weft has none for %s" % (device,))
        return self

    def _get_backend_name(self) -> str:
        return "weft"

    def _has_hooks(self) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._core.begun

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._core.set_timeout(timeout)

    def _start_coalescing(self, *_: Any) -> None:
        self._together = []

    def _end_coalescing(self, *_: Any) -> Work:
        """What has begun since, as one."""
        together, self._together = self._together or [], None
        return Works(self._core, "coalesced", [], None, together)

    def _begun(self, work: Work) -> Work:
        if self._together is not None:
            self._together.append(work)
        return work

    def shutdown(self) -> None:
        """Ends it."""
        self._core.close()

    def abort(self) -> None:
        """Ends it, and what is under way on all ranks."""
        self._core.context.abort("the group was aborted")
        self._core.close()

    def __repr__(self) -> str:
        return "<weft.torch.backend.ProcessGroupWeft %s, rank %d of %d>" % (
            self._name, self._core.rank, self._core.size)

    # ---- beginning ----

    def _begin(self, what: str, make: Callable[..., Call], *given: Any) -> Work:
        core = self._core
        try:
            begin, arguments, outputs, after = make(*given)
        except Exception as problem:
            made = convert(problem, core.who(what))
            try:
                # The others hear of it, instead of waiting for this rank.
                core.context.fail("%s: %s" % (what, problem))
            except WeftError:
                pass
            raise made from made.__cause__
        try:
            request = begin(*arguments)
        except Exception as problem:
            made = convert(problem, core.who(what))
            raise made from made.__cause__
        requests = request if type(request) is list else (request,)
        return self._begun(Work(core, what, outputs, after, requests))

    # ---- collectives ----

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        tensor = tensors[0] if type(tensors) is list and len(tensors) == 1 else tensors
        if isinstance(tensor, Tensor) and tensor.layout is torch.sparse_coo:
            return self._begin("allreduce of sparse tensors", self._allreduce_sparse, tensor, opts)
        return self._begin("allreduce", self._allreduce, tensors, opts)

    def _allreduce(self, tensors: Any, opts: Any) -> Call:
        tensor = checked(single(tensors, "tensors"), "tensor")
        operation = operation_of(opts, tensor.dtype, self._core.size)
        plain = plain_of(tensor)
        if operation.factor is not None:
            operation.before(plain)
        after = None
        if plain is not tensor or operation.asks_after:
            def after() -> None:
                operation.after(plain)
                if plain is not tensor:
                    tensor.copy_(plain)
        return (self._core.context.iallreduce, (elements_of(operation.numbers(plain)), None, operation.name),
                [tensor], after)

    def _allreduce_sparse(self, tensor: Tensor, opts: Any) -> Call:
        operation = operation_of(opts, tensor.dtype, self._core.size)
        if operation.kind not in ("SUM", "AVG"):
            raise UnsupportedError("ReduceOp.%s of sparse tensors is not supported" % operation.kind)
        if not tensor.is_cpu:
            checked(tensor, "tensor")
        return self._exchange_sparse, (tensor, operation), [tensor], None

    def _exchange_sparse(self, tensor: Tensor, operation: Operation) -> List[Any]:
        """Blocks: what the ranks have to say depends on what they have."""
        context = self._core.context
        with torch.no_grad():
            mine = tensor.detach().coalesce()
            indices, values = mine.indices().t().contiguous(), mine.values().contiguous()
            counts = torch.empty(self._core.size, dtype=torch.int64)
            context.allgather(torch.tensor([values.shape[0]]), counts)
            numbers = counts.tolist()
            parts = []
            for part in (indices, values):
                row = bytes_of(part.new_empty((1,) + part.shape[1:]))
                whole = part.new_empty((sum(numbers),) + part.shape[1:])
                context.allgatherv(memory_of(part), [number * row for number in numbers], memory_of(whole))
                parts.append(whole)
            total = torch.sparse_coo_tensor(parts[0].t(), parts[1], tensor.shape).coalesce()
            operation.after(total.values())
            tensor.copy_(total)
        return []

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        return self._begin("allreduce_coalesced", self._allreduce_coalesced, tensors, opts)

    def _allreduce_coalesced(self, tensors: Any, opts: Any) -> Call:
        tensors = checked_list(tensors, len(tensors), "tensors")
        if len(tensors) == 1:
            return self._allreduce(tensors, opts)
        flat = flat_of(tensors) if tensors else torch.empty(0)
        operation = operation_of(opts, flat.dtype, self._core.size)
        operation.before(flat)

        def after() -> None:
            operation.after(flat)
            spread(flat, tensors)

        return (self._core.context.iallreduce, (elements_of(operation.numbers(flat)), None, operation.name),
                tensors, after)

    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        return self._begin("broadcast", self._broadcast, tensors, opts)

    def _broadcast(self, tensors: Any, opts: Any) -> Call:
        tensor = checked(single(tensors, "tensors"), "tensor")
        root = _root_of(opts)
        mine = self._core.rank == root
        plain = plain_of(tensor) if mine else room_for(tensor)
        return (self._core.context.ibroadcast, (memory_of(plain), root), [tensor],
                None if mine else copies_of([(tensor, plain)]))

    def reduce(self, tensors: Any, opts: Any = None) -> Work:
        return self._begin("reduce", self._reduce, tensors, opts)

    def _reduce(self, tensors: Any, opts: Any) -> Call:
        tensor = checked(single(tensors, "tensors"), "tensor")
        root = _root_of(opts)
        operation = operation_of(opts, tensor.dtype, self._core.size)
        plain = plain_of(tensor)
        if operation.factor is not None and plain is tensor and self._core.rank != root:
            plain = tensor.clone()
        operation.before(plain)
        after = None
        if self._core.rank == root and (plain is not tensor or operation.asks_after):
            def after() -> None:
                operation.after(plain)
                if plain is not tensor:
                    tensor.copy_(plain)
        source = elements_of(operation.numbers(plain))
        return self._core.context.ireduce, (source, None, operation.name, root), [tensor], after

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        return self._begin("allgather", self._allgather, output_tensors, input_tensors)

    def _allgather(self, output_tensors: Any, input_tensors: Any) -> Call:
        core = self._core
        outputs = checked_list(single(output_tensors, "output_tensors"), core.size, "outputs")
        source = checked(single(input_tensors, "input_tensors"), "input")
        expect(source, outputs[core.rank].numel(), outputs[0].dtype, "input")
        whole, after = self._lists_out(outputs)
        source = plain_of(source)
        if any(overlap(source, output) for output in outputs):
            source = source.clone()
        if len({output.numel() for output in outputs}) == 1:
            return core.context.iallgather, (memory_of(source), whole), outputs, after
        counts = [bytes_of(output) for output in outputs]
        return core.context.iallgatherv, (memory_of(source), counts, whole), outputs, after

    @staticmethod
    def _lists_out(outputs: List[Tensor]) -> Tuple[Buffer, Optional[Callable[[], None]]]:
        """Memory for all of some tensors, and what brings it to them."""
        whole = adjacent(outputs)
        if whole is not None:
            return whole, None
        flat = empty_for(outputs)
        return memory_of(flat), lambda: spread(flat, outputs)

    def _allgather_base(self, output_tensor: Any, input_tensor: Any, opts: Any = None) -> Work:
        return self._begin("allgather_base", self._allgather_single, output_tensor, input_tensor)

    def _allgather_single(self, output: Any, source: Any) -> Call:
        output, source = checked(output, "output"), checked(source, "input")
        expect(output, source.numel() * self._core.size, source.dtype, "output")
        plain = room_for(output)
        source = apart_from(plain_of(source), plain)
        return (self._core.context.iallgather, (memory_of(source), memory_of(plain)), [output],
                copies_of([(output, plain)]))

    def allgather_coalesced(self, output_lists: Any, input_list: Any, opts: Any = None) -> Work:
        return self._begin("allgather_coalesced", self._allgather_coalesced, output_lists, input_list)

    def _allgather_coalesced(self, output_lists: Any, input_list: Any) -> Call:
        core = self._core
        inputs = checked_list(input_list, len(input_list), "input_list")
        if len(output_lists) != core.size:
            raise InvalidError("output_lists has %d lists, expected one for each of %d ranks" % (
                len(output_lists), core.size))
        outputs = []
        for rank, part in enumerate(output_lists):
            part = checked_list(part, len(inputs), "output_lists[%d]" % rank)
            for i, (output, source) in enumerate(zip(part, inputs)):
                expect(output, source.numel(), source.dtype, "output_lists[%d][%d]" % (rank, i))
            outputs += part
        source, whole = flat_of(inputs), empty_for(outputs)
        return (core.context.iallgather, (memory_of(source), memory_of(whole)), outputs,
                lambda: spread(whole, outputs))

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return self._begin("allgather_into_tensor_coalesced", self._several, self._allgather_single,
                           list(zip(outputs, inputs)))

    @staticmethod
    def _several(make: Callable[..., Call], calls: List[Tuple[Any, ...]]) -> Call:
        """Calls one after the other, as one."""
        made = [make(*call) for call in calls]
        afters = [call[3] for call in made if call[3] is not None]

        def after() -> None:
            for one in afters:
                one()

        return (lambda: [begin(*arguments) for begin, arguments, _, _ in made], (),
                [output for call in made for output in call[2]], after)

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        return self._begin("gather", self._gather, output_tensors, input_tensors, opts)

    def _gather(self, output_tensors: Any, input_tensors: Any, opts: Any) -> Call:
        core = self._core
        source = plain_of(checked(single(input_tensors, "input_tensors"), "input"))
        root = _root_of(opts)
        if core.rank != root:
            return core.context.igather, (memory_of(source), None, root), [], None
        outputs = checked_list(single(output_tensors, "output_tensors"), core.size, "outputs")
        for output in outputs:
            expect(output, source.numel(), source.dtype, "an output")
        whole, after = self._lists_out(outputs)
        if any(overlap(source, output) for output in outputs):
            source = source.clone()
        return core.context.igather, (memory_of(source), whole, root), outputs, after

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        return self._begin("scatter", self._scatter, output_tensors, input_tensors, opts)

    def _scatter(self, output_tensors: Any, input_tensors: Any, opts: Any) -> Call:
        core = self._core
        output = checked(single(output_tensors, "output_tensors"), "output")
        root = _root_of(opts)
        plain = room_for(output)
        source: Any = None
        if core.rank == root:
            inputs = checked_list(single(input_tensors, "input_tensors"), core.size, "inputs")
            for one in inputs:
                expect(one, output.numel(), output.dtype, "an input")
            source = None if any(overlap(plain, one) for one in inputs) else adjacent(inputs)
            source = source or memory_of(flat_of(inputs))
        return core.context.iscatter, (source, memory_of(plain), root), [output], copies_of([(output, plain)])

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        return self._begin("reduce_scatter", self._reduce_scatter, output_tensors, input_tensors, opts)

    def _reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any) -> Call:
        core = self._core
        output = checked(single(output_tensors, "output_tensors"), "output")
        inputs = checked_list(single(input_tensors, "input_tensors"), core.size, "inputs")
        expect(output, inputs[core.rank].numel(), inputs[0].dtype, "output")
        return self._reduce_scatter_flat(output, flat_of(inputs), [one.numel() for one in inputs], opts, True)

    def _reduce_scatter_flat(self, output: Tensor, flat: Tensor, counts: List[int], opts: Any,
                             ours: bool) -> Call:
        core = self._core
        operation = operation_of(opts, output.dtype, core.size)
        if operation.factor is not None and not ours:
            flat = flat.clone()
        operation.before(flat)
        plain = room_for(output)
        if overlap(plain, flat):
            plain = torch.empty(output.shape, dtype=output.dtype)
        after = None
        if plain is not output or operation.asks_after:
            def after() -> None:
                operation.after(plain)
                if plain is not output:
                    output.copy_(plain)
        source, target = elements_of(operation.numbers(flat)), elements_of(operation.numbers(plain))
        if len(set(counts)) == 1:
            return core.context.ireduce_scatter, (source, target, operation.name), [output], after
        scale = source.count // max(flat.numel(), 1)  # of complex numbers 2
        return (core.context.ireduce_scatterv, (source, [count * scale for count in counts], target,
                                                operation.name), [output], after)

    def _reduce_scatter_base(self, output_tensor: Any, input_tensor: Any, opts: Any = None) -> Work:
        return self._begin("reduce_scatter_base", self._reduce_scatter_single, output_tensor, input_tensor,
                           opts)

    def _reduce_scatter_single(self, output: Any, source: Any, opts: Any) -> Call:
        output, source = checked(output, "output"), checked(source, "input")
        expect(source, output.numel() * self._core.size, output.dtype, "input")
        plain = plain_of(source)
        return self._reduce_scatter_flat(output, plain, [output.numel()] * self._core.size, opts,
                                         plain is not source)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return self._begin("reduce_scatter_tensor_coalesced", self._several, self._reduce_scatter_single,
                           [(output, source, opts) for output, source in zip(outputs, inputs)])

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        return self._begin("alltoall", self._alltoall, output_tensors, input_tensors)

    def _alltoall(self, output_tensors: Any, input_tensors: Any) -> Call:
        core = self._core
        outputs = checked_list(output_tensors, core.size, "output_tensors")
        inputs = checked_list(input_tensors, core.size, "input_tensors")
        if outputs[0].dtype != inputs[0].dtype:
            raise InvalidError("outputs are of %s and inputs of %s" % (outputs[0].dtype, inputs[0].dtype))
        whole, after = self._lists_out(outputs)
        aliased = any(overlap(one, other) for one in inputs for other in outputs)
        source = None if aliased else adjacent(inputs)
        counts = [bytes_of(one) for one in inputs], [bytes_of(one) for one in outputs]
        return core.context.ialltoallv, (source or memory_of(flat_of(inputs)), *counts, whole), outputs, after

    def alltoall_base(self, output_tensor: Any, input_tensor: Any, output_split_sizes: Any = None,
                      input_split_sizes: Any = None, opts: Any = None) -> Work:
        return self._begin("alltoall_base", self._alltoall_single, output_tensor, input_tensor,
                           output_split_sizes, input_split_sizes)

    def _alltoall_single(self, output: Any, source: Any, output_splits: Any, input_splits: Any) -> Call:
        output, source = checked(output, "output"), checked(source, "input")
        if output.dtype != source.dtype:
            raise InvalidError("output is of %s and input of %s" % (output.dtype, source.dtype))
        size = self._core.size
        ins = splits_of(source, input_splits, size, "input")
        outs = splits_of(output, output_splits, size, "output")
        plain = room_for(output)
        source = apart_from(plain_of(source), plain)
        # With sizes or without: other ranks may have said what this one has not.
        return (self._core.context.ialltoallv, (memory_of(source), ins, outs, memory_of(plain)), [output],
                copies_of([(output, plain)]))

    def barrier(self, opts: Any = None) -> Work:
        return self._begin("barrier", lambda: (self._core.context.ibarrier, (), [], None))

    # What later versions of torch call some of these.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    # ---- messages ----

    def _message(self, what: str, tensors: Any, peer: Optional[int], tag: int, sends: bool) -> Work:
        core = self._core
        what = "%s, tag %d" % (what, tag)
        try:
            tensor = checked(single(tensors, "tensors"), "tensor")
            messages = core.messages
            if sends:
                plain = plain_of(tensor)
                message = messages.send(pointer_of(plain), bytes_of(plain), peer, tag, plain)  # type: ignore
                return self._begun(MessageWork(core, what, [tensor], None, message))
            plain = room_for(tensor)
            message = messages.recv(pointer_of(plain), bytes_of(plain), peer, tag, plain)
            return self._begun(MessageWork(core, what, [tensor], copies_of([(tensor, plain)]), message))
        except Exception as problem:
            made = convert(problem, core.who(what))
            raise made from made.__cause__

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work:
        return self._message("send to rank %d" % dstRank, tensors, dstRank, tag, True)

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work:
        return self._message("recv from rank %d" % srcRank, tensors, srcRank, tag, False)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        return self._message("recv from any rank", tensors, None, tag, False)

    def monitored_barrier(self, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False) -> None:
        """A barrier that says who has not come. Blocking.

        Parameters
        ----------
        timeout : timedelta, optional
            How long rank 0 waits. Default: the group's.
        wait_all_ranks : bool
            The error names all ranks that have not come, not the first one only.
        """
        core = self._core
        if core.size == 1:
            return
        seconds = core.seconds if timeout is None else timeout.total_seconds()
        with core.lock:
            self._barriers += 1
            tag = _OWN_TAGS - self._barriers
        messages = core.messages
        answer = bytearray(512)
        address = ffi.from_buffer(answer)
        if core.rank:
            messages.send(address, 0, 0, tag, answer)
            message = messages.recv(address, len(answer), 0, tag, answer)
            until = time.monotonic() + seconds
            try:
                # Rank 0 may have begun to wait later than this one.
                messages.wait(message, seconds + max(until - time.monotonic(), 0) + 1)
                said = bytes(answer).rstrip(b"\0").decode()
            except WeftError as problem:
                messages.withdraw(message)
                said = "rank 0 has not answered: %s" % problem
        else:
            said = self._monitor(tag, seconds, wait_all_ranks)
            data = said.encode()[:len(answer)].decode("utf-8", "ignore").encode()
            answer[:len(data)] = data
            for peer in range(1, core.size):
                messages.send(address, len(answer), peer, tag, answer)
        if said:
            raise convert(TimeoutError(said), core.who("monitored_barrier"))

    def _monitor(self, tag: int, seconds: float, wait_all_ranks: bool) -> str:
        """Waits for all others; what is wrong with some of them, or ""."""
        messages = self._core.messages
        until = time.monotonic() + seconds
        absent, why = [], ""
        pending = [(peer, messages.recv(ffi.NULL, 0, peer, tag)) for peer in range(1, self._core.size)]
        for peer, message in pending:
            try:
                messages.wait(message, max(until - time.monotonic(), 0.0))
            except WeftError as problem:
                messages.withdraw(message)
                if not absent or wait_all_ranks:
                    absent.append(peer)
                    if not isinstance(problem, TimeoutError):
                        why += "; %s" % problem
        return "not here within %g s: %s%s" % (seconds, ranks_text(absent), why) if absent else ""


def _root_of(opts: Any) -> int:
    return opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)


# ---- for users ----


def _group(group: Any) -> ProcessGroupWeft:
    found = dist.distributed_c10d._get_default_group() if group is None else group
    if not isinstance(found, ProcessGroupWeft):
        raise of_torch(InvalidError)("the group is %r, expected one of the backend weft" % (found,))
    return found


def context_of(group: Any = None) -> Context:
    """The context of weft under a group of torch.distributed.

    Parameters
    ----------
    group : ProcessGroup, optional
        Of the backend ``weft``. Default: the world.

    Returns
    -------
    Context
        The group's: it is closed with it. What is called on it is called by all ranks in the same order as
        the collectives of the group.
    """
    return _group(group).context


def monitored_barrier(group: Any = None, timeout: Optional[timedelta] = None,
                      wait_all_ranks: bool = False) -> None:
    """torch.distributed.monitored_barrier() for groups of the backend ``weft``. Collective, blocking.

    Parameters
    ----------
    group : ProcessGroup, optional
    timeout : timedelta, optional
        How long rank 0 waits for the others. Default: the group's timeout.
    wait_all_ranks : bool
        The error names all ranks that have not come, not the first one only.

    Raises
    ------
    TimeoutError
        The text names the ranks; on those that have come as well.
    """
    _group(group).monitored_barrier(timeout, wait_all_ranks)


def _create(options: Any, settings: Any = None) -> ProcessGroupWeft:
    """Makes a group; called by torch.distributed."""
    if settings is not None:
        raise of_torch(InvalidError)("pg_options is %r, and the backend weft has none" % (settings,))
    name = str(options.group_id)
    rank, size = options.group_rank, options.group_size
    try:
        context = make_context(options.store, rank, size, options.timeout, name)
        return ProcessGroupWeft(context, name, options.timeout)
    except WeftError as problem:
        made = convert(problem, "group %s, rank %d of %d" % (name, rank, size))
        raise made from made.__cause__


def register() -> None:
    """Registers the backend with torch.distributed. Repeating that does nothing."""
    if "WEFT" in dist.Backend._plugins:
        return
    known = inspect.signature(dist.Backend.register_backend).parameters
    more = {"devices": ["cpu"]} if "devices" in known else {}
    dist.Backend.register_backend("weft", _create, extended_api=True, **more)


register()

# SPDX-License-Identifier: BSD-3-Clause
"""Tensors as memory that weft moves, and as elements that it combines."""
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch._C._distributed_c10d import ReduceOp

from .._library import ffi
from ..buffers import Buffer
from ..buffers import dtype as dtype_of
from ..errors import InvalidError, UnsupportedError

_RedOpType = getattr(ReduceOp, "RedOpType", ReduceOp)

#: Operations, by what torch calls them.
_NAMES = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "BAND": "band", "BOR": "bor",
          "BXOR": "bxor", "AVG": "sum", "PREMUL_SUM": "sum"}
_NAMES_OF_BOOLEANS = {"SUM": "lor", "MAX": "lor", "BOR": "lor", "PRODUCT": "land", "MIN": "land",
                      "BAND": "land", "BXOR": "lxor"}
_KINDS = {number: kind for kind, number in _RedOpType.__members__.items()}
_NUMBERS: Dict[torch.dtype, int] = {}
_U8 = dtype_of("u8")


def checked(tensor: Any, what: str) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise InvalidError("%s is a %s, expected a tensor" % (what, type(tensor).__name__))
    if not tensor.is_cpu:
        raise UnsupportedError(
            "%s is on %s: the backend weft of torch.distributed takes tensors in the memory of the host "
            "only; use .cpu(), or another backend for this group" % (what, tensor.device))
    if tensor.layout is not torch.strided:
        raise UnsupportedError("%s has layout %s: sparse tensors are for all_reduce only" % (
            what, tensor.layout))
    return tensor


def checked_list(tensors: Any, count: int, what: str) -> List[Tensor]:
    if not isinstance(tensors, (list, tuple)) or len(tensors) != count:
        raise InvalidError("%s is %s, expected a list of %d tensors" % (
            what, "of %d" % len(tensors) if isinstance(tensors, (list, tuple)) else "no list", count))
    for i, tensor in enumerate(tensors):
        checked(tensor, "%s[%d]" % (what, i))
        if tensor.dtype != tensors[0].dtype:
            raise InvalidError("%s[%d] is of %s, and %s[0] of %s: expected one datatype" % (
                what, i, tensor.dtype, what, tensors[0].dtype))
    return list(tensors)


def single(tensors: Any, what: str) -> Any:
    """The only entry of a list: lists have one for each device of the process, of which there is one."""
    if isinstance(tensors, (list, tuple)):
        if len(tensors) != 1:
            raise UnsupportedError("%s has %d entries, expected one: lists of a tensor per device are not "
                                   "supported" % (what, len(tensors)))
        return tensors[0]
    return tensors


def expect(tensor: Tensor, count: int, dtype: torch.dtype, what: str) -> None:
    """Whether it has so many elements of a datatype."""
    if tensor.numel() != count or tensor.dtype != dtype:
        raise InvalidError("%s has %d elements of %s, expected %d of %s" % (
            what, tensor.numel(), tensor.dtype, count, dtype))


def is_plain(tensor: Tensor) -> bool:
    """Whether its memory is its elements, one behind the other."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def plain_of(tensor: Tensor) -> Tensor:
    """It, or a copy whose memory is its elements, one behind the other."""
    if is_plain(tensor):
        return tensor
    with torch.no_grad():
        return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)


def room_for(tensor: Tensor) -> Tensor:
    """It, or room for as much, from which it is to be copied."""
    return tensor if is_plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)


def pointer_of(tensor: Tensor) -> Any:
    return ffi.cast("char *", tensor.data_ptr())


def bytes_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def memory_of(tensor: Tensor) -> Buffer:
    """Memory that is moved as it is."""
    return Buffer(pointer_of(tensor), bytes_of(tensor), _U8, tensor)


def elements_of(tensor: Tensor) -> Buffer:
    """Memory whose elements are combined."""
    number = _NUMBERS.get(tensor.dtype)
    if number is None:
        number = _NUMBERS[tensor.dtype] = dtype_of(tensor.dtype)
    return Buffer(pointer_of(tensor), tensor.numel(), number, tensor)


def overlap(one: Tensor, other: Tensor) -> bool:
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + bytes_of(other) and second < first + bytes_of(one)


def apart_from(source: Tensor, target: Tensor) -> Tensor:
    """The source, or a copy if it lies in the target."""
    return source.clone() if overlap(source, target) else source


def adjacent(tensors: Sequence[Tensor]) -> Optional[Buffer]:
    """Tensors that lie one behind the other, as one memory; None: they do not."""
    at = first = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != at or not is_plain(tensor):
            return None
        at += bytes_of(tensor)
    return Buffer(ffi.cast("char *", first), at - first, _U8, list(tensors))


def flat_of(tensors: Sequence[Tensor]) -> Tensor:
    """A copy of tensors, one behind the other."""
    with torch.no_grad():
        return torch.cat([tensor.reshape(-1) for tensor in tensors])


def spread(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """The opposite."""
    at = 0
    for tensor in tensors:
        tensor.copy_(flat[at:at + tensor.numel()].view(tensor.shape))
        at += tensor.numel()


def empty_for(tensors: Sequence[Tensor]) -> Tensor:
    return torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)


class Operation:
    """How tensors of a datatype are combined."""

    __slots__ = ("kind", "name", "factor", "size", "asks_after", "as_numbers")

    def __init__(self, kind: str, given: Any, dtype: torch.dtype, size: int) -> None:
        self.kind = kind
        names = _NAMES_OF_BOOLEANS if dtype == torch.bool else _NAMES
        if kind not in names or (dtype.is_complex and names[kind] != "sum"):
            raise UnsupportedError("ReduceOp.%s of tensors of %s is not supported" % (kind, dtype))
        self.name = names[kind]
        self.size = size
        self.asks_after = kind == "AVG"
        self.as_numbers = not (dtype == torch.bool or dtype.is_complex)
        self.factor: Any = None
        if kind == "PREMUL_SUM":
            state = getattr(given, "__getstate__", lambda: None)()
            if not isinstance(state, tuple) or state[1] is None:
                raise UnsupportedError("ReduceOp.PREMUL_SUM is not supported with torch %s, which does not "
                                       "let Python see the factor: multiply first, and use SUM"
                                       % torch.__version__)
            self.factor = state[1]

    def numbers(self, plain: Tensor) -> Tensor:
        """A tensor as weft's operation takes it: the same memory."""
        if self.as_numbers:
            return plain
        return torch.view_as_real(plain) if plain.is_complex() else plain.view(torch.uint8)

    def before(self, plain: Tensor) -> None:
        """Of the contribution, which may be written."""
        if self.factor is not None:
            with torch.no_grad():
                plain.mul_(self.factor)

    def after(self, plain: Tensor) -> None:
        """Of the result."""
        if not self.asks_after:
            return
        if plain.dtype.is_floating_point or plain.is_complex():
            plain.div_(self.size)
        else:
            plain.copy_(torch.div(plain, self.size, rounding_mode="trunc"))


_operations: Dict[Any, Operation] = {}


def operation_of(opts: Any, dtype: torch.dtype, size: int) -> Operation:
    """The operation of options, or of a ReduceOp; None: SUM."""
    given = getattr(opts, "reduceOp", opts)
    key = (getattr(given, "op", given), dtype, size)
    found = _operations.get(key)
    if found is None:
        kind = "SUM" if given is None else _KINDS.get(key[0], str(key[0]))
        found = Operation(kind, given, dtype, size)
        if found.factor is None:
            _operations[key] = found
    return found


#: What a call is of: the function, its arguments, what it writes, what is to be done after it.
Call = Tuple[Callable[..., Any], Tuple[Any, ...], List[Tensor], Optional[Callable[[], None]]]


def copies_of(pairs: Sequence[Tuple[Tensor, Tensor]]) -> Optional[Callable[[], None]]:
    """What copies results to where they belong, as far as they are elsewhere."""
    pairs = [(target, source) for target, source in pairs if target is not source]

    def after() -> None:
        for target, source in pairs:
            target.copy_(source)

    return after if pairs else None


def splits_of(tensor: Tensor, splits: Any, size: int, what: str) -> List[int]:
    """The bytes that go to, or come from, each rank: rows of the first dimension."""
    rows = tensor.shape[0] if tensor.dim() else 1
    splits = [int(split) for split in splits or ()]
    if not splits:
        if rows % size:
            raise InvalidError("%s has %d rows, expected a multiple of the %d ranks, or sizes" % (
                what, rows, size))
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows or min(splits) < 0:
        raise InvalidError("%s has sizes %r, expected %d that add up to its %d rows" % (
            what, splits, size, rows))
    row = bytes_of(tensor) // rows if rows else 0
    return [split * row for split in splits]

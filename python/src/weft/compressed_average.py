# SPDX-License-Identifier: BSD-3-Clause
"""Averaging of dense gradients in fewer bits: all entries are sent, with less than 32 bits.

>>> average = weft.CompressedAverage(context, gradients, method="powersgd", powersgd={"rank": 4})
>>> average.step()                           # gradients: their average, as far as rank 4 goes
"""
import math
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from . import _enums, _objects, _structs
from ._library import ffi, lib
from .errors import InvalidError

__all__ = ["CompressedAverage"]

Shape = Union[None, str, Dict[str, Any], Tuple[Any, ...]]

#: weft_gradiveq_config.loss: no component is left out; weft_gradiveq_config.warmup_steps: none.
_EXACT = -1.0
_NO_WARMUP = 2**64 - 1


# ---- shapes ----


def _extents(tensor: Any) -> Tuple[Tuple[int, ...], Optional[str]]:
    """The shape of a tensor as its memory has it, and the layout of filters that are in another order."""
    shape = tuple(int(extent) for extent in getattr(tensor, "shape", ()))
    flags = getattr(tensor, "flags", None)
    if flags is not None and hasattr(flags, "c_contiguous"):
        if not flags.c_contiguous and len(shape) == 2:
            return shape[::-1], None
        return (shape, None) if flags.c_contiguous else ((), None)
    if hasattr(tensor, "is_contiguous") and not tensor.is_contiguous():
        strides = tuple(tensor.stride())
        if len(shape) == 4 and strides[1] == 1:  # channels last
            return shape, "ohwi"
        return (shape[::-1], None) if len(shape) == 2 else ((), None)
    return shape, None


def _of_extents(shape: Sequence[int], layout: Optional[str] = None) -> Tuple[Any, ...]:
    """What a tensor is, by the number of its dimensions."""
    if len(shape) == 2:
        return ("dense",) + tuple(shape)
    if len(shape) == 3:
        return ("oihw", shape[0], shape[1], 1, shape[2])
    if len(shape) == 4:
        return (layout or "oihw",) + tuple(shape)
    return ("vector",)


def _fill_shape(c: Any, shape: Shape, what: str) -> None:
    if isinstance(shape, dict):
        given = _structs.Struct("weft_tensor_shape", shape, what).c[0]
        for member in ("layout", "outputs", "inputs", "height", "width"):
            setattr(c, member, getattr(given, member))
        return
    parts = (shape,) if isinstance(shape, str) else tuple(shape or ("vector",))
    if not isinstance(parts[0], str):
        parts = _of_extents(parts)
    c.layout = _enums.number("weft_tensor_layout_t", parts[0], "%s: the layout" % what)
    if len(parts) > 5:
        raise InvalidError("%s is %r, expected a layout, outputs, inputs, height, width" % (what, shape))
    try:
        for member, extent in zip(("outputs", "inputs", "height", "width"), parts[1:]):
            setattr(c, member, extent)
    except (TypeError, OverflowError):
        raise InvalidError("%s is %r, expected whole numbers behind the layout" % (what, shape)) from None


def shapes_array(shapes: Optional[Sequence[Shape]], tensors: Sequence[Any], who: str) -> Any:
    """The array of weft_tensor_shape for tensors; by default what they look like."""
    tensors = list(tensors)
    if shapes is None:
        shapes = [_of_extents(*_extents(tensor)) for tensor in tensors]
    shapes = list(shapes)
    if len(shapes) != len(tensors):
        raise InvalidError("%s: shapes has %d entries, expected %d, one a tensor"
                           % (who, len(shapes), len(tensors)))
    array = ffi.new("struct weft_tensor_shape[]", max(len(shapes), 1))
    for i, shape in enumerate(shapes):
        _fill_shape(array[i], shape, "%s: shapes[%d]" % (who, i))
    return array


# ---- settings ----


def _gradiveq(settings: Any, who: str) -> Any:
    settings = dict(settings)
    _objects.refuse_zeros(who, settings, ("slice_factor", "slice", "memory_bytes", "reuse", "sample_steps",
                                          "compressed_steps"))
    if settings.get("loss") in ("exact", 0):
        settings["loss"] = _EXACT
    if settings.get("warmup_steps") == math.inf:
        raise InvalidError("%s: warmup_steps is inf, expected a number of steps" % who)
    if settings.get("warmup_steps") == 0:
        settings["warmup_steps"] = _NO_WARMUP
    return _structs.Struct("weft_gradiveq_config", settings, who)


def _powersgd(settings: Any, who: str) -> Any:
    settings = dict(settings)
    _objects.refuse_zeros(who, settings, ("rank",))
    _objects.above_zero(settings, ("least_ratio",))
    return _structs.Struct("weft_powersgd_config", settings, who)


def _quantiser(settings: Any, who: str) -> Any:
    settings = dict(settings)
    _objects.refuse_zeros(who, settings, ("bits", "bucket"))
    if settings.get("bits") == "sign":
        settings["bits"] = 1
    return _structs.Struct("weft_quantiser", settings, who)


def settings_struct(settings: Dict[str, Any], tensors: Sequence[Any], who: str) -> _structs.Struct:
    """weft_compressed_average_config of settings, with shapes and the dicts of each method."""
    settings = dict(settings)
    shapes = shapes_array(settings.pop("shapes", None), tensors, who)
    for name, make in (("quantiser", _quantiser), ("gradiveq", _gradiveq), ("powersgd", _powersgd)):
        given = settings.get(name)
        if given is not None:
            if not isinstance(given, dict):
                raise InvalidError("%s: %s is a %s, expected a dict" % (who, name, type(given).__name__))
            settings[name] = make(given, "%s: %s" % (who, name))
    struct = _structs.Struct("weft_compressed_average_config", settings, who)
    struct.keep.append(shapes)
    struct.c.shapes = shapes
    return struct


class CompressedAverage(_objects.Object):
    """The average of gradients in fewer bits.

    A step, for gradients g of this rank, tensor after tensor, and a residual e (where one is kept)::

        in            x = g + e
        aggregate     S = what the others can make of the sum of x over all ranks: the same bits on all
        keep          e = what of x is not in S
        out           g = S / ranks

    GradiVeQ goes through phases, the same on all ranks: warm-up, sampling, compressed, sampling ... All ranks
    take the same number of steps. Creation is collective over the context, and blocking. An object is used by
    one thread at a time, but for :meth:`fail`.

    Source: GradiVeQ: Yu, Lin, Narra et al. (NeurIPS 2018); QSGD: Alistarh, Grubic, Li, Tomioka, Vojnovic
    (NIPS 2017); PowerSGD: Vogels, Karimireddy, Jaggi (NeurIPS 2019).

    Parameters
    ----------
    context : Context
    tensors : sequence of array_like
        The gradients: of one datatype (f32, f16 or bf16), the same sizes on all ranks, contiguous, of the
        host. Used until the object is closed.
    shapes : sequence, optional
        What each tensor is: ``("dense", outputs, inputs)``, ``("oihw", outputs, inputs, height, width)`` (or
        "ohwi", "hwio": the order in memory; the numbers come in this one), ``("vector",)``, a dict of
        these names, or a shape alone. Default: the tensors' own shapes, of which two dimensions are the
        weights of a dense layer, three and four are filters, and others are vectors.
    method : {"gradiveq", "qsgd", "powersgd"}, optional
    sum : bool, optional
        The tensors become the sum, and not the average.
    quantiser : dict, optional
        How QSGD quantises, and GradiVeQ while it does not compress: ``bits`` (2, 4, 8, or "sign"), ``bucket``
        (elements), ``norm`` ("max", "l2"), ``seed``.
    qsgd_way : {"shards", "ring"}, optional
        How QSGD's sums are made.
    gradiveq : dict, optional
        ``loss`` (the share of variance that a projection may lose; 0 or "exact": none), ``order``
        ("across-filters", "of-filters"), ``slice_factor``, ``slice``, ``memory_bytes``, ``reuse``,
        ``warmup_steps`` (0: none), ``sample_steps``, ``sample_bits``, ``compressed_steps`` (math.inf: for
        ever), ``loss_bound``, ``uncompressed`` ("qsgd", "dense"), ``dense_layers`` (bool), ``algo``.
    powersgd : dict, optional
        ``rank``, ``warmup_steps``, ``cold_start`` (bool), ``seed``, ``least_ratio``.
    residual : {"default", "none", "kept"}, optional
        Whether what compression drops is kept for later steps.
    nan : {"error", "zero"}, optional
        What becomes of NaNs and infinities: the gradient counts as zero, with an error; or those elements do.
    meet : float, optional
        How long the creation waits for the other ranks, in seconds. Default: for ever.
    leave : float, optional
        How long :meth:`close` waits for the end of a posted step, in seconds. Default: 60.
    deadline : float, optional
        How long steps and waits wait, in seconds, where they are not told. Default: for ever. It is looked
        at every 0.2 s.
    state : dict, optional
        Of :meth:`state`.

    Raises
    ------
    InvalidError
        A setting is wrong, or ranks do not agree: the text names it.
    UnsupportedError
        The datatype; GradiVeQ, and there is no LAPACK.
    PeerError
        Another rank has failed.
    """

    _prefix = "weft_compressed_average"
    _what = "the compressed average"
    _arrays = {"words": _objects.Array("u8", "word_count"), "numbers": _objects.Array("f4", "number_count"),
               "residual": _objects.Array("f4", "elements"), "unsent": _objects.Array("f4", "elements")}

    def __init__(self, context: Any, tensors: Sequence[Any], *, shapes: Optional[Sequence[Shape]] = None,
                 method: Optional[str] = None, sum: Optional[bool] = None,
                 quantiser: Optional[Dict[str, Any]] = None, qsgd_way: Optional[str] = None,
                 gradiveq: Optional[Dict[str, Any]] = None, powersgd: Optional[Dict[str, Any]] = None,
                 residual: Optional[str] = None, nan: Optional[str] = None, meet: Optional[float] = None,
                 leave: Optional[float] = None, deadline: Optional[float] = None,
                 state: Optional[Dict[str, Any]] = None) -> None:
        array, count, dtype, found = _objects.tensors_of(tensors, "CompressedAverage")
        _objects.refuse_device("CompressedAverage", found)
        config = settings_struct(dict(
            shapes=shapes, method=method, sum=sum, quantiser=quantiser, qsgd_way=qsgd_way, gradiveq=gradiveq,
            powersgd=powersgd, residual=residual, nan=nan, meet=meet, leave=leave, dtype=dtype,
            tensor_count=count), tensors, "CompressedAverage")
        config.c.tensors = array
        self._create(context, config, (array, found), self._sizes(found), deadline, state)

    def _result(self) -> Any:
        return _structs.new("weft_compressed_average_result")

    def step(self, timeout: Optional[float] = None) -> Any:
        """One step, in place: the tensors become S / ranks. Blocks until all ranks have got as far.

        Parameters
        ----------
        timeout : float, optional
            Seconds; then :meth:`wait` ends the step. Default: the object's deadline.

        Returns
        -------
        named tuple
            ``step``, ``phase``, ``bytes`` (sent), ``bits`` (of an element on the wire), ``loss`` (the share
            of this rank's gradient, squared, that compression has dropped; -1: not known), ``votes``.

        Raises
        ------
        ComputeError
            This rank's gradient had NaNs or infinities; the step was taken, with a gradient of zero.
        TimeoutError
            The text says who is missing.
        StateError
            A posted step has not been waited for.
        PeerError
            Another rank has failed, or has ended before; from then on always.
        """
        c = self._result()
        self._advance(lambda pointer: lib.weft_compressed_average_step(pointer, c),
                      lambda pointer: lib.weft_compressed_average_wait(pointer, c), timeout)
        return _structs.read("weft_compressed_average_result", c)

    def post(self) -> None:
        """The first half of a step: brings the gradients in and starts the aggregation; does not wait. From
        its return on they may be overwritten."""
        self._post()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """The second half: waits for what has been posted, and writes the tensors. Between GradiVeQ's phases
        it finds principal components. Returns, and raises, as :meth:`step`."""
        c = self._result()

        def function(pointer: Any) -> int:
            return lib.weft_compressed_average_wait(pointer, c)

        self._advance(function, function, timeout)
        return _structs.read("weft_compressed_average_result", c)

    @property
    def phase(self) -> str:
        """The phase of the step to come: "warmup", "sampling" or "compressed"."""
        return _enums.word("weft_compressed_phase_t", self._call(lib.weft_compressed_average_phase))

    def tensor(self, index: int) -> Any:
        """How a tensor is compressed by GradiVeQ (or PowerSGD, with rows for slices, and the rank of its
        factors for components).

        Returns
        -------
        named tuple
            ``slice`` (elements; 0: it is sent as it is, or quantised), ``slices``, ``reuse``, ``components``,
            ``loss`` (-1: not known).
        """
        return self._filled("weft_gradiveq_tensor", lib.weft_compressed_average_get_tensor,
                            _objects.position(index))

    @property
    def residual_norm(self) -> float:
        """The L2 norm of this rank's residual, 0 if none is kept. Not while something is posted."""
        norm = ffi.new("double *")
        self._check(lib.weft_compressed_average_residual_norm, norm)
        return norm[0]

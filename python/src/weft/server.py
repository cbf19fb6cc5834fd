# SPDX-License-Identifier: BSD-3-Clause
"""Parameter servers: ranks that hold the parameters of a model, to which workers push gradients and from
which they pull parameters, under one of six synchronisation models.

>>> server = weft.Server(context, weights, gradients=gradients, sync="ssp", staleness=2, rate=0.1)
>>> if not server.is_worker:
...     server.serve()                       # until all workers have closed theirs
... else:
...     for batch in batches:
...         differentiate(batch)
...         server.step()                    # weights: what was pulled
"""
import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from . import _objects, _structs
from ._library import ffi, lib
from .errors import InvalidError, check
from .gradients import layers_array

__all__ = ["Part", "Server", "place_layers"]

#: weft_server_config.osp_share: no layer is ever late.
_NOTHING = -1.0


class Part(NamedTuple):
    """A range of elements of a layer on a server.

    Attributes
    ----------
    layer : int
    offset, count : int
        In elements of the layer.
    server : int
    """

    layer: int
    offset: int
    count: int
    server: int


def place_layers(counts: Sequence[int], servers: int, split_elements: float = math.inf) -> List[Part]:
    """Where layers lie: what a :class:`Server` makes of them.

    A layer of at least `split_elements` is cut into one range a server, which differ by one element at most;
    others go whole, the largest first, to the server that has least so far.

    Parameters
    ----------
    counts : sequence of int
        Elements of each layer.
    servers : int
    split_elements : int or math.inf
        math.inf: none is cut.

    Returns
    -------
    list of Part
        In the order of the layers, and of the servers in a layer. Layers of no elements have none.
    """
    counts = list(counts)
    if servers < 1:
        raise InvalidError("place_layers: servers is %d, expected 1 or more" % servers)
    sizes = ffi.new("size_t[]", counts or [0])
    parts = ffi.new("struct weft_server_part[]", max(len(counts) * servers, 1))
    count = ffi.new("size_t *")
    split = _structs.SIZE_MAX if split_elements == math.inf else int(split_elements)
    check(lib.weft_server_place_layers(sizes, len(counts), servers, split, parts, count))
    return [Part(part.layer, part.offset, part.count, part.server) for part in parts[0:count[0]]]


class _Watch(_objects.Watch):
    """Layers of a worker's step."""

    __slots__ = ("layers", "announced", "waited", "late")

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.announced: set = set()
        self.waited: set = set()
        self.late = False  # a second stage may be under way

    def ended(self, pointer: Any) -> bool:
        return self.cancelled or not (self.announced or self.late)

    def stuck(self) -> bool:
        return 0 < len(self.announced) < self.layers

    def over(self, osp: bool) -> None:
        self.announced.clear()
        self.waited.clear()
        self.late = osp


class Server(_objects.Object):
    """This rank's part in parameter servers: a worker, a server, or both.

    Creation is collective over the context, and blocking. Who is a server needs nothing of its application
    while workers train: with helper progress it goes on by itself, with caller progress in :meth:`serve`. An
    object is used by one thread at a time, but for :meth:`fail`.

    Source: BSP: Valiant (1990); ASP: Dean et al. (NIPS 2012); SSP: Ho et al. (NIPS 2013), section 3; DSSP:
    Zhao, An, Liu, Chen (ICDCS 2019), Algorithms 1 and 2; R2SP: Chen, Wang, Li (INFOCOM 2019); OSP: Chen, Shi,
    Liu, Li, Liu, Xu (ICPP 2023).

    Parameters
    ----------
    context : Context
        With helper progress where a server is a worker, too, and of workers with ``sync="osp"``.
    tensors : sequence of array_like
        The parameters: f32 or f64, the same sizes on all ranks, contiguous, of the host. Used until the
        object is closed.
    gradients : sequence of array_like, optional
        Of workers: a tensor for each of `tensors`, of the same sizes. Not with ``push="models"``.
    layers : sequence of int, optional
        How many successive tensors each layer has. Default: one each.
    servers : int
        How many.
    place : {"apart", "colocated"}, optional
        The last ranks are servers, and the others workers; or the first are, and all are workers.
    sync : {"bsp", "asp", "ssp", "dssp", "r2sp", "osp"}, optional
        When a server answers.
    staleness : int, optional
        Of SSP: how many steps a worker may be ahead. Of DSSP: the least.
    staleness_most : int, optional
        Of DSSP.
    weight : float, optional
        What this worker counts, for example its number of samples. Default: 1.
    push : {"gradients", "models"}, optional
        What workers push.
    optimiser : {"server-updates", "worker-updates"}, optional
        Who has the optimiser.
    rate : float, optional
        Its rate. Default: 0.1.
    momentum : float, optional
        0 (default) to less than 1.
    flow : {"at-once", "turns", "paced"}, optional
        How pushes come to a server: all at once, `turns` workers at a time (default: 1), or in segments of
        `segment_bytes` (default: 64 KiB) of which `window` (default: 1) are on the way.
    turns, segment_bytes, window : int, optional
    split_bytes : int or math.inf, optional
        A layer of so many bytes is split over all servers. Default: 256 KiB.
    merge_bytes : int or math.inf, optional
        BSP and OSP: pieces in which a layer is merged, and sent back.
    osp_most : float, optional
        The share of the model that may be late, at most. Default: 0.8.
    osp_share : float, optional
        The share of the model that is late. Default: by Algorithm 1. 0: nothing.
    osp_goodput : float, optional
        Of a server's link, in bytes a second. Default: measured.
    osp_compute : float, optional
        How long a worker computes in a step, in seconds. Default: measured.
    osp_average : float, optional
        b of EMA-LGP (section 4.2), less than 1. Default: 0, by the worker's own gradient (equation 6).
    osp_correction : {"at-end", "before-layer"}, optional
        When late layers are corrected.
    initial : {"same", "broadcast", "any"}, optional
        What the parameters are: the same on all ranks, which is checked; those of rank 0, for all; or those
        of the servers.
    nan : {"error", "spread"}, optional
        Whether gradients with NaNs or infinities are refused, or they are not looked for.
    meet : float, optional
        How long the creation waits for the other ranks, in seconds. Default: for ever.
    leave : float, optional
        How long :meth:`close` of a worker waits for the end of its last step, and how long a server that has
        been closed serves while nobody asks, in seconds. Default: 60.
    deadline : float, optional
        How long waits wait, in seconds, where they are not told. Default: for ever. It is looked at every
        0.2 s.
    state : dict, optional
        Of :meth:`state`, of the same rank; on all ranks, or on none.

    Raises
    ------
    InvalidError
        A setting is wrong, or ranks do not agree: the text names it.
    StateError
        A rank that needs helper progress has none.
    ComputeError
        NaNs or infinities in the parameters.
    UnsupportedError
        The datatype.
    PeerError
        Another rank has failed.
    """

    _prefix = "weft_server"
    _what = "the server"
    _arrays = {"parameters": _objects.Array("own", "element_count"),
               "velocity": _objects.Array("own", "element_count"),
               "clocks": _objects.Array("u8", "clock_count"),
               "worker_velocity": _objects.Array("own", "elements"), "late": _objects.Array("u1", "layers"),
               "pulled": _objects.Array("own", "elements"), "changes": _objects.Array("own", "elements"),
               "average": _objects.Array("own", "elements")}

    def __init__(self, context: Any, tensors: Sequence[Any], *, gradients: Optional[Sequence[Any]] = None,
                 layers: Optional[Sequence[int]] = None, servers: int = 1, place: Optional[str] = None,
                 sync: Optional[str] = None, staleness: Optional[int] = None,
                 staleness_most: Optional[int] = None, weight: Optional[float] = None,
                 push: Optional[str] = None, optimiser: Optional[str] = None, rate: Optional[float] = None,
                 momentum: Optional[float] = None, flow: Optional[str] = None, turns: Optional[int] = None,
                 segment_bytes: Optional[int] = None, window: Optional[int] = None,
                 split_bytes: Optional[float] = None, merge_bytes: Optional[float] = None,
                 osp_most: Optional[float] = None, osp_share: Optional[float] = None,
                 osp_goodput: Optional[float] = None, osp_compute: Optional[float] = None,
                 osp_average: Optional[float] = None, osp_correction: Optional[str] = None,
                 initial: Optional[str] = None, nan: Optional[str] = None, meet: Optional[float] = None,
                 leave: Optional[float] = None, deadline: Optional[float] = None,
                 state: Optional[Dict[str, Any]] = None) -> None:
        who = "Server"
        array, count, dtype, found = _objects.tensors_of(tensors, who)
        _objects.refuse_device(who, found)
        settings = dict(
            servers=servers, place=place, sync=sync, staleness=staleness, staleness_most=staleness_most,
            weight=weight, push=push, optimiser=optimiser, rate=rate, momentum=momentum, flow=flow,
            turns=turns, segment_bytes=segment_bytes, window=window, split_bytes=split_bytes,
            merge_bytes=merge_bytes,
            osp_most=osp_most, osp_share=osp_share, osp_goodput=osp_goodput, osp_compute=osp_compute,
            osp_average=osp_average, osp_correction=osp_correction, initial=initial, nan=nan, meet=meet,
            leave=leave, dtype=dtype, tensor_count=count)
        _objects.refuse_zeros(who, settings, ("servers", "weight", "rate", "turns", "segment_bytes", "window",
                                              "split_bytes", "merge_bytes", "osp_goodput", "osp_compute"))
        _objects.above_zero(settings, ("osp_most",))
        if osp_share == 0:
            settings["osp_share"] = _NOTHING
        config = _structs.Struct("weft_server_config", settings, who)
        config.c.tensors = array
        keep = [array, found]
        if gradients is not None:
            keep += self._gradients(config.c, gradients, count, dtype)
        own = layers_array(layers, who)
        self._layers = count if own is None else len(own)
        if own is not None:
            config.c.layer_tensors, config.c.layer_count = own, len(own)
        config.keep.append(own)
        self._osp = config.c.sync == lib.WEFT_SERVER_OSP
        wide = dtype == lib.WEFT_F64
        sizes = self._sizes(found, self._layers, "f8" if wide else "f4")
        self._create(context, config, keep, sizes, deadline, state)

    @staticmethod
    def _gradients(c: Any, gradients: Sequence[Any], count: int, dtype: Optional[int]) -> List[Any]:
        array, own_count, own_dtype, found = _objects.tensors_of(gradients, "Server", "gradients")
        _objects.refuse_device("Server", found, "gradients")
        if own_count != count:
            raise InvalidError("Server: gradients has %d tensors, expected %d, as tensors has"
                               % (own_count, count))
        if own_dtype != dtype:
            raise InvalidError("Server: gradients are of another datatype than tensors")
        c.gradients = array
        return [array, found]

    def _new_watch(self) -> _objects.Watch:
        return _Watch(self._layers)

    # ---- what it is ----

    @property
    def is_worker(self) -> bool:
        """Whether this rank is a worker. Workers are ranks 0 .. workers - 1."""
        return bool(self._call(lib.weft_server_is_worker))

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return self._call(lib.weft_server_workers)

    @property
    def index(self) -> Optional[int]:
        """The number of the server that this rank is; None: it is none."""
        index = self._call(lib.weft_server_index)
        return None if index < 0 else index

    # ---- workers ----

    def _announce(self, function: Any, layer: int, timeout: Optional[float]) -> None:
        number = _objects.position(layer)

        def announce(pointer: Any) -> int:
            return function(pointer, number)

        self._require(self._until(announce, announce, timeout))
        self._watch.announced.add(number)

    def ready(self, layer: int, timeout: Optional[float] = None) -> None:
        """Announces that a layer's gradient (model) is there, to be pushed. Until the layer has been waited
        for its tensors and gradients belong to the object.

        Every layer once a step, in any order, late to early at best. The first announcement begins the step;
        with OSP it waits for the second stage of the step before.

        Parameters
        ----------
        layer : int
            Of the model, from 0.
        timeout : float, optional
            Of OSP, in seconds. Default: the object's deadline.

        Raises
        ------
        InvalidError
            There is no such layer.
        StateError
            It has been announced in this step, or all have been and one has not been waited for, or this rank
            is no worker.
        ComputeError
            The gradient has NaNs or infinities; nothing has been announced, it may be mended.
        TimeoutError, PeerError
            As :meth:`wait`.
        """
        self._announce(lib.weft_server_ready, layer, timeout)

    def absent(self, layer: int, timeout: Optional[float] = None) -> None:
        """Announces that a layer has no gradient (model) in this step: nothing is pushed for it, and it is
        pulled as ever. With BSP and OSP it counts as zero. Else as :meth:`ready`."""
        self._announce(lib.weft_server_absent, layer, timeout)

    def wait(self, layer: int, timeout: Optional[float] = None) -> None:
        """Waits until a layer's tensors hold what the next step needs: what was pulled, or, of a layer that
        is late with OSP, what is predicted. Who waits for the last one ends the step.

        Parameters
        ----------
        layer : int
            Of the model, from 0.
        timeout : float, optional
            Seconds; then it may be waited for again. Default: the object's deadline.

        Raises
        ------
        StateError
            It has not been announced.
        TimeoutError
            The text says for whom it waits.
        PeerError
            Another rank has failed; from then on always.
        """
        number = _objects.position(layer)

        def function(pointer: Any) -> int:
            return lib.weft_server_wait(pointer, number)

        self._require(self._until(function, function, timeout))
        watch = self._watch
        if number in watch.announced:
            watch.waited.add(number)
            if len(watch.waited) == watch.layers:
                watch.over(self._osp)

    def _whole(self, function: Any, timeout: Optional[float]) -> Any:
        c = _structs.new("weft_server_result")

        def step(pointer: Any) -> int:
            return function(pointer, c)

        watch = self._watch
        if self._layers == 0:
            watch.late = True
        known = set(watch.announced)
        watch.announced.update(range(self._layers))  # also where Ctrl-C comes
        status = self._until(step, step, timeout)
        if status in (lib.WEFT_ERR_STATE, lib.WEFT_ERR_INVALID, lib.WEFT_ERR_COMPUTE):
            watch.announced = known
        else:
            watch.over(self._osp)
        self._require(status)
        return _structs.read("weft_server_result", c)

    def step(self, timeout: Optional[float] = None) -> Any:
        """A whole step: announces all layers that have not been, the last one first, and waits for all.

        Parameters
        ----------
        timeout : float, optional
            Seconds; then the next call goes on with it. Default: the object's deadline.

        Returns
        -------
        named tuple
            ``step``, ``version`` (updates in what was pulled), ``staleness`` (updates of others between the
            pull that the gradient was computed on and the gradient), ``synchronised`` and ``waited``
            (seconds), and of OSP ``bytes``, ``late_bytes``, ``late_layers``.

        Raises
        ------
        ComputeError, StateError, TimeoutError, PeerError
            As :meth:`ready` and :meth:`wait`.
        """
        return self._whole(lib.weft_server_step, timeout)

    def pull(self, timeout: Optional[float] = None) -> Any:
        """A step in which nothing is pushed but for layers that have been announced. Else as :meth:`step`."""
        return self._whole(lib.weft_server_pull, timeout)

    def correct(self, timeout: Optional[float] = None) -> None:
        """OSP: waits for the second stage of the last step, and writes what it has brought to the tensors, so
        that all workers have the servers' model. Between steps; it is none."""
        self._require(self._until(lib.weft_server_correct, lib.weft_server_correct, timeout))
        self._watch.late = False

    def tell_loss(self, loss: float) -> None:
        """The loss of an epoch, or of some steps, for Algorithm 1 of OSP. Until all workers have told one,
        nothing is late."""
        self._check(lib.weft_server_tell_loss, loss)

    def set_rate(self, rate: float) -> None:
        """The rate from the next step on. Of BSP and OSP that of the lowest worker counts."""
        self._check(lib.weft_server_set_rate, rate)

    def layer_version(self, layer: int) -> int:
        """How many updates are in the parameters of a layer, between steps."""
        return self._call(lib.weft_server_layer_version, _objects.position(layer))

    def layer_late(self, layer: int) -> bool:
        """Whether a layer is late in the step under way, or in the next one, as far as that is known."""
        return bool(self._call(lib.weft_server_layer_late, _objects.position(layer)))

    @property
    def result(self) -> Any:
        """What the last step that has ended was, as :meth:`step` returns it; all 0 if there was none."""
        return self._filled("weft_server_result", lib.weft_server_get_result)

    @property
    def tuning(self) -> Any:
        """What Algorithm 1 of OSP has decided: ``goodput`` (bytes a second), ``compute`` (seconds),
        ``most_bytes``, ``late_bytes``, ``first_loss``, ``loss``."""
        return self._filled("weft_osp_tuning", lib.weft_server_get_tuning)

    # ---- servers ----

    def serve(self, timeout: Optional[float] = None) -> bool:
        """Waits until all workers have closed theirs, and serves them meanwhile. Of a rank that is a server
        alone. Sleeps while nobody pushes.

        Parameters
        ----------
        timeout : float, optional
            Seconds. None: for ever, whatever the object's deadline is.

        Returns
        -------
        bool
            False: the time has passed, and there are workers.

        Raises
        ------
        StateError
            This rank is a worker.
        PeerError
            Another rank has failed.
        """
        return self._require(self._handle.wait(lib.weft_server_serve, timeout)) != lib.WEFT_IN_PROGRESS

    # ---- both ----

    def state(self, timeout: Optional[float] = None) -> Dict[str, Any]:
        """The state for a checkpoint, beside the tensors.

        Of a worker between steps; of a server when no worker is in a step, which the application sees to (a
        barrier before, and one behind). With OSP workers call it before that barrier.

        Parameters
        ----------
        timeout : float, optional
            How long it waits for second stages, and a server for steps, in seconds. Default: the object's
            deadline.

        Returns
        -------
        dict
            Numbers, and copies of arrays: for ``pickle`` or ``torch.save``, and given back to the same rank
            as ``state=``. A rate that was set is to be set again.

        Raises
        ------
        StateError
            A step is under way: of this worker, or of another one and has not ended in time.
        """
        c = _structs.new("weft_server_state")
        copies: List[Dict[str, Any]] = []

        def function(pointer: Any) -> int:
            status = lib.weft_server_get_state(pointer, c)
            if status == 0:
                copies.append(self._copied_state(c))
            return status

        # A wait for a second stage ends with a timeout, a server's for a worker's step with the other.
        self._require(self._until(function, function, timeout,
                                  waits=(lib.WEFT_ERR_TIMEOUT, lib.WEFT_ERR_STATE)))
        self._watch.late = False
        return copies[0]

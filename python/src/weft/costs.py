# SPDX-License-Identifier: BSD-3-Clause
"""Costs: what messages and arithmetic take, as templates choose by and simulations go by.

>>> weft.costs.Net.parse("L=1.5,o=0.1,G=0.0004")
Net(L=1.5, o=0.1, g=0.0, G=0.0004, O=0.0, S=None, offload=False, loggopsim=False)
>>> weft.costs.read("costs.json").net                   # as ``weft bench model -o costs.json`` wrote it
"""
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Tuple, Union

from . import _enums, _structs
from ._library import ffi, lib
from .errors import InvalidError, check

if TYPE_CHECKING:
    from .context import Context

__all__ = ["CostModel", "Costs", "Fabric", "Net", "network", "of_context", "read", "write"]


class CostModel(NamedTuple):
    """What a template chooses its algorithm by; 0 is free, or that there is no such thing.

    Attributes
    ----------
    alpha_us, beta_us_per_byte : float
        A message of m bytes takes ``alpha + m * beta`` microseconds.
    gamma_us_per_byte, copy_us_per_byte : float
        Of a reduction, of a copy.
    node_us : float
        Of a node of a schedule.
    segment_bytes : int
        Smaller segments are not worth their overhead.
    eager_bytes : int
        Larger messages wait for their receives, and take `rendezvous_us` more.
    exchange_us_per_byte : float
        A byte where both directions are used at once; 0: as `beta`.
    cores : int
        Ranks of one host that run at once; 0: all.
    switch_us : float
        How long a rank that waits takes to get a core from another.
    eager_us_per_byte : float
        So much more takes a byte of a message of at most `eager_bytes`.
    """

    alpha_us: float = 0.0
    beta_us_per_byte: float = 0.0
    gamma_us_per_byte: float = 0.0
    copy_us_per_byte: float = 0.0
    node_us: float = 0.0
    segment_bytes: int = 0
    eager_bytes: int = 0
    rendezvous_us: float = 0.0
    exchange_us_per_byte: float = 0.0
    cores: int = 0
    switch_us: float = 0.0
    eager_us_per_byte: float = 0.0

    @classmethod
    def default(cls, transport: str = "local") -> "CostModel":
        """Estimates for a transport; a name that is none gives those of "local"."""
        c = _structs.new("weft_cost_model")
        lib.weft_cost_model_init_sized(c, ffi.sizeof(c[0]), ffi.new("char[]", transport.encode()))
        return cls._of(c)

    @classmethod
    def _of(cls, c):
        return cls(*[getattr(c, name) for name in cls._fields])

    def _struct(self):
        return _structs.Struct("weft_cost_model", self._asdict(), "CostModel")


class Net(NamedTuple):
    """A LogGOPS network (docs/simulation.md); the default is one on which everything is free.

    Attributes
    ----------
    L : float
        Latency, microseconds.
    o, g : float
        Overhead of a message on a processor, gap between messages on a link; microseconds.
    G, O : float
        Gap and overhead of a byte; microseconds a byte.
    S : int or None
        The largest message in bytes that is sent eagerly; None: all are. Of 0: those of no bytes.
    offload : bool
        The adapter moves data by itself.
    loggopsim : bool
        The times of the program LogGOPSim, to the letter.
    """

    L: float = 0.0
    o: float = 0.0
    g: float = 0.0
    G: float = 0.0
    O: float = 0.0  # noqa: E741 - the model's name for it
    S: Optional[int] = None
    offload: bool = False
    loggopsim: bool = False

    @classmethod
    def parse(cls, text: str) -> "Net":
        """Reads ``"L=1.5,o=0.1,G=0.0004,S=65536"``; what is left out is 0.

        Raises
        ------
        InvalidError
            The text says which word is wrong and what was expected.
        """
        c = _structs.new("weft_net")
        check(lib.weft_net_parse(ffi.new("char[]", text.encode()), c))
        return cls._of(c)

    @classmethod
    def _of(cls, c):
        size = None if c.S in (0, _structs.NEVER) else 0 if c.S == _structs.NONE else c.S
        return cls(c.L, c.o, c.g, c.G, c.O, size, bool(c.flags & 2), bool(c.flags & 1))

    def _struct(self):
        size = 0 if self.S is None else _structs.NONE if self.S == 0 else self.S
        return _structs.Struct("weft_net", {
            "L": self.L, "o": self.o, "g": self.g, "G": self.G, "O": self.O, "S": size,
            "flags": 2 * bool(self.offload) + bool(self.loggopsim)}, "Net")

    def __str__(self):
        """As :meth:`parse` reads it."""
        words = ["%s=%g" % (name, getattr(self, name)) for name in "LogGO" if getattr(self, name)]
        words += ["S=%d" % self.S] if self.S is not None else []
        return ",".join(words + ["offload=1"] * self.offload) or "L=0"


class Fabric(NamedTuple):
    """How hosts are wired, so that messages share links (docs/simulation.md).

    Attributes
    ----------
    kind : {"torus", "fat-tree"}
    extents : tuple of int
        Hosts of each dimension of the torus; of the tree, children of each level from the hosts up.
    oversubscription : int
        Links down of a leaf switch for each one up.
    ranks_per_host : int
    hop_us : float
        Latency of a link, on top of L of the network; microseconds.
    link_us_per_byte : float
        1 / bandwidth of a link; 0: G of the network.
    hosts : sequence of int, optional
        The host of each rank.
    seed : int
    random : bool
        Ranks are on hosts drawn at random, by `seed`.
    """

    kind: str
    extents: Tuple[int, ...]
    oversubscription: int = 0
    ranks_per_host: int = 0
    hop_us: float = 0.0
    link_us_per_byte: float = 0.0
    hosts: Any = None
    seed: int = 0
    random: bool = False

    @classmethod
    def parse(cls, text: str) -> Optional["Fabric"]:
        """Reads ``"torus=8x8,hop=0.1"``, as :func:`network` does; None if it has no wiring."""
        return network(text)[1]

    @classmethod
    def _of(cls, c):
        if c.kind == 0:
            return None
        return cls(_enums.word("weft_fabric_kind_t", c.kind), tuple(c.extents[i] for i in range(c.levels)),
                   c.oversubscription, c.ranks_per_host, c.hop_us, c.link_us_per_byte, None, c.seed,
                   bool(c.flags & 1))

    def _struct(self):
        result = _structs.Struct("weft_fabric", {
            "kind": self.kind, "levels": len(self.extents), "oversubscription": self.oversubscription,
            "ranks_per_host": self.ranks_per_host, "hop_us": self.hop_us,
            "link_us_per_byte": self.link_us_per_byte, "seed": self.seed, "flags": int(self.random),
            "hosts": None if self.hosts is None else [int(host) for host in self.hosts]}, "Fabric")
        for i, extent in enumerate(self.extents):
            if i == len(result.c.extents):
                raise InvalidError("extents has %d entries, expected at most %d"
                                   % (len(self.extents), len(result.c.extents)))
            result.c.extents[i] = extent
        return result


class Costs(NamedTuple):
    """What a file holds of a transport: `model`, by which templates choose, and `net`."""

    model: CostModel
    net: Net


def network(text: str) -> Tuple[Net, Optional[Fabric]]:
    """Reads the words of :meth:`Net.parse` and ``torus=AxB`` or ``fat-tree=AxB`` with what goes with it.

    Parameters
    ----------
    text : str
        ``"torus=32x32,hop=0.05,L=1,G=0.0001"``: as ``weft sim --net`` takes it.

    Raises
    ------
    InvalidError
        The text says which word is wrong and what was expected.
    """
    net, fabric = _structs.new("weft_net"), _structs.new("weft_fabric")
    check(lib.weft_fabric_parse(ffi.new("char[]", text.encode()), fabric, net))
    return Net._of(net), Fabric._of(fabric)


def read(path: Any, transport: str = "local") -> Costs:
    """Reads what ``weft bench model -o FILE`` has written.

    Parameters
    ----------
    path : path
    transport : {"local", "shared", "mpi"}
        Of which.

    Raises
    ------
    FileError, FormatError
        The text names the key, what was found and what was expected.
    NotFoundError
        The file has nothing of this transport.
    """
    name = ffi.new("char[]", transport.encode())
    model, net = _structs.new("weft_cost_model"), _structs.new("weft_net")
    lib.weft_cost_model_init_sized(model, ffi.sizeof(model[0]), name)
    check(lib.weft_cost_model_read(ffi.new("char[]", os.fsencode(path)), name, model, net))
    return Costs(CostModel._of(model), Net._of(net))


def write(path: Any, model: CostModel, net: Net, transport: str = "local", residual: float = 0.0) -> None:
    """Writes what a transport costs; what the file holds of others is kept.

    Parameters
    ----------
    path : path
    model : CostModel
    net : Net
    transport : str
    residual : float
        How far the measurements were off: root mean square of the relative errors.

    Raises
    ------
    FileError, FormatError
        There is a file, and it is something else: it is left alone.
    """
    check(lib.weft_cost_model_write(
        ffi.new("char[]", os.fsencode(path)), ffi.new("char[]", transport.encode()), model._struct().c,
        net._struct().c, residual))


def of_context(context: "Context") -> CostModel:
    """What things cost on a context: as the file that WEFT_COST named when it was made, or by default."""
    c = _structs.new("weft_cost_model")
    check(lib.weft_context_get_cost(context._handle.get(), c))
    return CostModel._of(c)


def to_network(given: Union[str, dict, Net, Costs, None], who: str):
    """(Net or None, Fabric or None, CostModel or None) of what users say a network is."""
    if given is None:
        return None, None, None
    if isinstance(given, Costs):
        return given.net, None, given.model
    if isinstance(given, Net):
        return given, None, None
    if isinstance(given, dict):
        given = ",".join("%s=%s" % (key, "x".join(map(str, value)) if isinstance(value, (list, tuple))
                                    else int(value) if isinstance(value, bool) else repr(value)
                                    if isinstance(value, float) else value)
                         for key, value in given.items() if value is not None)
    if not isinstance(given, str):
        raise InvalidError("%s: net is %r, expected \"L=..,G=..\", a dict, a weft.costs.Net or what "
                           "weft.costs.read() returns" % (who, given))
    net, fabric = network(given)
    return net, fabric, None


def model_struct(given: Any):
    """A weft_cost_model of a CostModel, of Costs, or of a dict of its members."""
    if isinstance(given, Costs):
        given = given.model
    if isinstance(given, dict):
        unknown = sorted(set(given) - set(CostModel._fields))
        if unknown:
            raise TypeError("cost: there is no %r, expected one of %s"
                            % (unknown[0], ", ".join(CostModel._fields)))
        given = CostModel(**given)
    return given._struct() if isinstance(given, CostModel) else given

"""Which ranks share a stream: meshes, and the dimensions along which streams vary.

A mesh gives each rank a place along named dimensions. A stream that *varies along* some of them has
as its rank field the mixed-radix index of the rank's places along these, in the mesh's own order,
the last dimension fastest: ranks that differ along another dimension alone share it. A stream that
varies along none is one for the whole job, as with ``shared=True``.

Without a mesh each rank is its own place, and nothing here changes a bit.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from .._utils import validation
from .._utils.validation import describe
from ..derivation import streams
from ..derivation.streams import SHARED

logger = logging.getLogger("fastseed")

Dimensions: TypeAlias = tuple[str, ...]


class Preset(NamedTuple):
    """Along what streams vary in one kind of parallel training: an argument ``distinct_over`` of ``init``.

    Attributes:
        says: what it does, in words.
        same: the built-in and registered streams vary along every dimension of the mesh but these.
        inside: for each named stream of ``fork``: it varies along every dimension but these.
    """

    says: str
    same: Dimensions
    inside: Mapping[str, Dimensions]

    def __or__(self, other: Any) -> Preset:
        """Both: what either keeps the same, and the named streams of both."""
        if not isinstance(other, Preset):
            return NotImplemented
        same = (*self.same, *(d for d in other.same if d not in self.same))
        return Preset(f"{self.says}; {other.says}", same, {**self.inside, **other.inside})


def data_parallel() -> Preset:
    """Each rank has streams of its own."""
    return Preset("each rank its own", (), {})


def tensor_parallel(dimension: str = "tp") -> Preset:
    """What the group holds in common is drawn alike, what is split inside of it is not.

    Dropout on activations that all ranks of the group hold in full has to be the same on them; in
    the parallel region, ``with fork("tensor-parallel")``, each holds another part.
    """
    says = 'same in the group; inside fork("tensor-parallel") each rank its own'
    return Preset(says, (dimension,), {"tensor-parallel": ()})


def pipeline(dimension: str = "pp") -> Preset:
    """Each stage has streams of its own; ``fork("pipeline")`` is for what stages hold in common.

    Such as embeddings that the first and the last stage tie: drawn there, they are the same.
    """
    says = 'each stage its own; inside fork("pipeline") same on all stages'
    return Preset(says, (), {"pipeline": (dimension,)})


def context(dimension: str = "cp") -> Preset:
    """Each part of a sequence has streams of its own; ``fork("context")`` is the same on all."""
    says = 'each part of a sequence its own; inside fork("context") same on all parts'
    return Preset(says, (), {"context": (dimension,)})


def expert(dimension: str = "ep") -> Preset:
    """Outside of the experts the group draws alike; inside ``fork("expert")`` each rank its own.

    For a dimension that holds the same samples. Where it is cut out of the data-parallel ranks,
    each rank has samples of its own: keep to :func:`data_parallel` there.
    """
    says = 'same in the group; inside fork("expert") each rank its own'
    return Preset(says, (dimension,), {"expert": ()})


PRESETS = {
    "data_parallel": data_parallel,
    "tensor_parallel": tensor_parallel,
    "pipeline": pipeline,
    "context": context,
    "expert": expert,
}
"""The functions that make presets, each with the name of its dimension as its argument."""

STATE = "process.mesh"
"""Stands for the mesh in exact states: nobody else may use the name."""

DATA = "dp"
"""Dimensions whose names begin so cut the data: dp, dp_replicate, dp_shard."""


MODEL = ("tp", "pp", "cp", "ep", "sp", "mp", "etp", "model")
"""Names of dimensions that do not cut the data, as far as anybody knows them."""


class Mesh(NamedTuple):
    """Where this rank is in a mesh: for each dimension its name, the rank along it and its size."""

    names: Dimensions
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return ", ".join(
            f"{n} {r}/{s}" for n, r, s in zip(self.names, self.ranks, self.sizes, strict=True)
        )

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return math.prod(self.sizes)

    def along(self, dimensions: Dimensions) -> tuple[int, int]:
        """(the mixed-radix index of this rank along these dimensions, how many there are)."""
        index, count = 0, 1
        for name, rank, size in zip(self.names, self.ranks, self.sizes, strict=True):
            if name in dimensions:
                index, count = index * size + rank, count * size
        return index, count

    @property
    def data(self) -> tuple[int, int]:
        """(this rank, how many there are) along the dimensions that cut the data."""
        return self.along(tuple(n for n in self.names if n.startswith(DATA)))

    def check(self, function: str, argument: str, given: Any) -> Dimensions:
        """Names of dimensions, in the order of the mesh."""
        if isinstance(given, str) or not isinstance(given, (Sequence, set, frozenset)):
            hint = f"; for one dimension: ({given!r},)" if isinstance(given, str) else ""
            raise TypeError(
                f"fastseed.{function}: {argument} must be a tuple of names of dimensions{hint}, "
                f"got {describe(given)} of type {type(given).__name__}"
            )
        for name in given:
            if name not in self.names:
                has = f"which has {self.names}" if self.names else "and init was given none"
                raise ValueError(
                    f"fastseed.{function}: {argument} must hold dimensions of the mesh, {has}, "
                    f"got {describe(name)}"
                )
        return tuple(name for name in self.names if name in given)

    def but(self, argument: str, same: Any) -> Dimensions:
        """All dimensions but these."""
        same = self.check("init", argument, same)
        return tuple(name for name in self.names if name not in same)


_NONE = Mesh((), (), ())


def read(given: Any) -> Mesh:
    """The argument ``mesh`` of ``init``: a ``DeviceMesh``, or (rank, size) by name."""
    module = sys.modules.get("torch.distributed.device_mesh")
    if module is not None and isinstance(given, module.DeviceMesh):
        return _of_device_mesh(given)
    if not isinstance(given, Mapping):
        raise TypeError(
            "fastseed.init: mesh must be a DeviceMesh or a dict of (rank, size) by dimension, "
            f"got {describe(given)} of type {type(given).__name__}"
        )
    if not given:
        raise ValueError("fastseed.init: mesh must have at least one dimension, got none")
    ranks, sizes = [], []
    for name, place in given.items():
        _check_dimension(name)
        if not isinstance(place, Sequence) or isinstance(place, str) or len(place) != 2:
            raise TypeError(f"fastseed.init: mesh[{name!r}] must be (rank, size), got {place!r}")
        size = validation.check_int("init", f"mesh[{name!r}][1]", place[1], 1, streams.MAX_RANK + 1)
        ranks.append(validation.check_int("init", f"mesh[{name!r}][0]", place[0], 0, size - 1))
        sizes.append(size)
    return _checked(Mesh(tuple(given), tuple(ranks), tuple(sizes)))


def _check_dimension(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(
            "fastseed.init: mesh must name its dimensions with strings that are not empty, "
            f"got {describe(name)}"
        )


def _of_device_mesh(given: Any) -> Mesh:
    names = given.mesh_dim_names
    if names is None:
        raise ValueError(
            "fastseed.init: mesh must have names, init_device_mesh(..., mesh_dim_names=(...)), "
            f"got {describe(given)}"
        )
    place = given.get_coordinate()
    if place is None:
        raise ValueError(
            f"fastseed.init: mesh must contain every rank, got {describe(given)} without this one"
        )
    sizes = tuple(int(given.size(i)) for i in range(len(names)))
    return _checked(Mesh(tuple(names), tuple(int(p) for p in place), sizes))


def _checked(mesh: Mesh) -> Mesh:
    if mesh.size > streams.MAX_RANK + 1:
        raise ValueError(
            f"fastseed.init: mesh must have at most {streams.MAX_RANK + 1} ranks, got {mesh.size}"
        )
    return mesh


def check_world(mesh: Mesh, world_size: int) -> None:
    """The whole job has to be in it: ranks that no dimension tells apart would share all."""
    if mesh.size != world_size:
        product = f"{' x '.join(map(str, mesh.sizes))} = " if len(mesh.sizes) > 1 else ""
        raise ValueError(
            f"fastseed.init: mesh must hold the {world_size} ranks of the job, got "
            f"{product}{mesh.size} of dimensions {mesh.names}"
        )


def warn_of_uncut_data(mesh: Mesh, distinct_over: Any) -> None:
    """Where ranks read the same data along a dimension whose name does not say that it should."""
    known = {*MODEL}
    if isinstance(distinct_over, Preset):
        known.update(distinct_over.same, *distinct_over.inside.values())
    named = zip(mesh.names, mesh.sizes, strict=True)
    unclear = tuple(n for n, s in named if s > 1 and not n.startswith(DATA) and n not in known)
    if unclear:
        logger.warning(
            "fastseed.init: ranks along %s of the mesh read the same samples: only dimensions with "
            "names that begin with 'dp' cut the data",
            unclear,
        )


class Places:
    """The rank field of each stream on this rank.

    Args:
        rank: this process's global rank: the rank field of every stream where there is no mesh.
        mesh: where that is in a mesh.
        distinct_over: see :class:`~fastseed.seeder.Seeder`.
        agreed: whether all ranks are known to have one master seed.
    """

    def __init__(self, rank: int, mesh: Mesh | None, distinct_over: Any, agreed: bool) -> None:
        self.rank, self.mesh, self._agreed = rank, mesh, agreed
        self._along: Dimensions | None = None  # of streams that were told nothing; None: all
        self._named: dict[str, Dimensions] = {}
        if isinstance(distinct_over, Preset):
            if mesh is None:
                raise ValueError(
                    f"fastseed.init: distinct_over must come with a mesh, got {distinct_over}"
                )
            self._along = mesh.but("varies.same", distinct_over.same)
            for name, same in distinct_over.inside.items():
                self._named[name] = mesh.but(f"varies.inside[{name!r}]", same)
        elif isinstance(distinct_over, Mapping):
            for name, given in distinct_over.items():
                name = streams.check_name("init", name)
                self._named[name] = self._check("init", f"varies[{name!r}]", given)
        elif distinct_over is not None:
            self._along = self._check("init", "distinct_over", distinct_over)
        for along in (self._along, *self._named.values()):
            self._check_agreed("init", along)
        self.default = self._place(self._along)
        self._fields = {name: self._place(along) for name, along in self._named.items()}

    def _check(self, function: str, argument: str, given: Any) -> Dimensions:
        return (self.mesh or _NONE).check(function, argument, given)

    def _check_agreed(self, function: str, along: Dimensions | None) -> None:
        if self._agreed or along is None:
            return
        if self.mesh is not None and self.mesh.along(along)[1] == self.mesh.size:
            return
        raise RuntimeError(
            f"fastseed.{function}: ranks cannot share a stream here: master_seed was None and "
            "there was no process group to agree on one; give init a master seed, or call "
            "torch.distributed.init_process_group before it"
        )

    def _place(self, along: Dimensions | None) -> int:
        if along == ():
            return SHARED
        if self.mesh is None:
            return self.rank
        return self.mesh.along(self.mesh.names if along is None else along)[0]

    def of(self, name: str) -> int:
        """Of a stream that is built in, or not registered."""
        return self._fields.get(name, self.default)

    def of_registered(self, name: str, shared: bool, distinct_over: Any) -> int:
        """Of a stream that is about to be registered; checks that all who speak agree."""
        return self._told(
            "register_generator", name, () if shared else None, distinct_over, self.default
        )

    def of_fork(self, name: str, distinct_over: Any) -> int:
        """Of a named stream of ``fork``: its own on each rank unless it was told."""
        return self._told("fork", name, None, distinct_over, self._place(None))

    def _told(
        self, function: str, name: str, shared: Dimensions | None, distinct_over: Any, default: int
    ) -> int:
        given = (
            None if distinct_over is None else self._check(function, "distinct_over", distinct_over)
        )
        told = [along for along in (given, shared, self._named.get(name)) if along is not None]
        for along in told[1:]:
            if along != told[0]:
                raise ValueError(
                    f"fastseed.{function}: {'varies' if given is not None else 'shared'} must not "
                    f"contradict what else was said of {name!r}, got {told[0]} and {along}"
                )
        if not told:
            return default
        self._check_agreed(function, told[0])
        return self._place(told[0])

    @property
    def data(self) -> tuple[int, int] | None:
        """This rank's share of the data, and how many there are; None without a mesh."""
        return None if self.mesh is None else self.mesh.data

    def text(self) -> str:
        """All of it in words, which are equal where every stream has the same place."""
        if self.mesh is None and not self._named and self._along is None:
            return ""
        return f"{self.mesh}; {self.told()}"

    def alike(self, text: str) -> bool:
        """Whether another rank with that :meth:`text` is in the same mesh, told the same."""
        sizes, ours = (re.sub(r" \d+/", " ", t) for t in (text, self.text()))
        return sizes == ours

    def told(self) -> str:
        """What ``distinct_over`` said, in words that are the same however it was written."""
        named = [f"{name}: {along}" for name, along in sorted(self._named.items())]
        return "; ".join([f"varies along {self._along}", *named])

"""Meshes: the coordinates of this rank along named dimensions, and the rank field of each stream.

A stream that is *distinct over* some dimensions has as its rank field the mixed-radix index of the
rank's coordinates along them, in the mesh's order, the last dimension fastest; it is *shared over*
the other dimensions. Without a mesh the rank field is the rank.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .._utils import validation
from .._utils.validation import type_error, value_error
from ..derivation import scopes
from ..derivation.scopes import SHARED
from . import discovery

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

logger = logging.getLogger("fastseed")

Dimensions: TypeAlias = tuple[str, ...]

STATE = "process.mesh"
"""The name of the mesh among exact states; no generator can be registered under it."""

DATA = "dp"
"""Dimensions whose names begin so divide the data: dp, dp_replicate, dp_shard."""

MODEL = ("tp", "pp", "cp", "ep", "sp", "mp", "etp", "model")
"""Usual names of dimensions that do not divide the data."""


class Mesh(NamedTuple):
    """The coordinates of this rank in a mesh: name, rank and size of each dimension.

    Examples:
        >>> from fastseed.distributed import Mesh
        >>> mesh = Mesh(("dp", "tp"), ranks=(1, 0), sizes=(2, 4))
        >>> mesh.size, mesh.along(("dp",)), str(mesh)
        (8, (1, 2), 'dp 1/2, tp 0/4')
    """

    names: Dimensions
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        rows = zip(self.names, self.ranks, self.sizes, strict=True)
        return ", ".join(f"{name} {rank}/{size}" for name, rank, size in rows)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(self.sizes)

    def along(self, dimensions: Dimensions) -> tuple[int, int]:
        """Return (mixed-radix index of this rank along ``dimensions``, number of such indices).

        Raises:
            TypeError, ValueError: ``dimensions`` is no tuple of names, or the fields of the mesh
                are not integers of one length.
        """
        function = "distributed.Mesh.along"
        for name in _collection(function, "dimensions", dimensions):
            validation.check_text(function, "the name of a dimension", name)
        fields = [_collection(function, name, getattr(self, name)) for name in self._fields]
        if len(set(map(len, fields))) != 1:
            raise value_error(function, "names, ranks and sizes", "of one length", tuple(self))
        for i, (rank, size) in enumerate(zip(self.ranks, self.sizes, strict=True)):
            validation.check_int(function, f"sizes[{i}]", size, 1, scopes.MAX_RANK + 1)
            validation.check_int(function, f"ranks[{i}]", rank, 0, size - 1)
        index, count = 0, 1
        for name, rank, size in zip(self.names, self.ranks, self.sizes, strict=True):
            if name in dimensions:
                index, count = index * size + rank, count * size
        return index, count

    @property
    def data(self) -> tuple[int, int]:
        """(rank, number of ranks) along the dimensions that divide the data."""
        return self.along(tuple(name for name in self.names if name.startswith(DATA)))


def _collection(function: str, argument: str, given: object) -> Collection[str]:
    if not isinstance(given, (tuple, list, set, frozenset)):
        raise type_error(function, argument, "a tuple", given)
    return given


def read_mesh(given: object) -> Mesh:
    """Return the argument ``mesh`` of ``init``, a ``DeviceMesh`` or a dict, as a ``Mesh``."""
    module = sys.modules.get("torch.distributed.device_mesh")
    if module is not None and isinstance(given, module.DeviceMesh):
        given = _from_device_mesh(given)
    if not isinstance(given, Mapping):
        rule = "a DeviceMesh or a dict of (rank, size) by dimension"
        raise type_error("init", "mesh", rule, given)
    if not given:
        raise value_error("init", "mesh", "a mesh with at least one dimension", given)
    ranks, sizes = [], []
    for name, pair in given.items():
        validation.check_text("init", "the name of a dimension of mesh", name)
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise type_error("init", f"mesh[{name!r}]", "(rank, size)", pair)
        size = validation.check_int("init", f"mesh[{name!r}][1]", pair[1], 1, scopes.MAX_RANK + 1)
        ranks.append(validation.check_int("init", f"mesh[{name!r}][0]", pair[0], 0, size - 1))
        sizes.append(size)
    mesh = Mesh(tuple(given), tuple(ranks), tuple(sizes))
    if mesh.size > scopes.MAX_RANK + 1:
        rule = f"a mesh of at most {scopes.MAX_RANK + 1} ranks"
        raise value_error("init", "mesh", rule, dict(zip(mesh.names, mesh.sizes, strict=True)))
    return mesh


def _from_device_mesh(given: DeviceMesh) -> dict[str, tuple[int, int]]:
    names, ranks = given.mesh_dim_names, given.get_coordinate()
    if names is None:
        rule = "a mesh with names: init_device_mesh(..., mesh_dim_names=(...))"
        raise value_error("init", "mesh", rule, given)
    if ranks is None:
        raise value_error("init", "mesh", "a mesh that contains this rank", given)
    return {name: (int(ranks[i]), int(given.size(i))) for i, name in enumerate(names)}


def warn_undivided_data(mesh: Mesh, distinct_over: object) -> None:
    """Log a warning if a dimension may have been meant to divide the data but does not."""
    rules = distinct_over.values() if isinstance(distinct_over, Mapping) else ()
    presets = [names for rule in rules if isinstance(rule, Mapping) for names in rule.values()]
    known = {*MODEL, *itertools.chain(*presets)}
    named = zip(mesh.names, mesh.sizes, strict=True)
    unclear = tuple(n for n, s in named if s > 1 and not n.startswith(DATA) and n not in known)
    if unclear:
        logger.warning(
            "fastseed.init: ranks along %s of the mesh read the same samples: only dimensions with "
            "names that begin with 'dp' divide the data",
            unclear,
        )


class RankFields:
    """The rank field of each stream on this rank, under the argument ``distinct_over`` of ``init``.

    ``agreed`` is True if all ranks are known to have one master seed: others share no stream.
    """

    def __init__(self, rank: int, mesh: Mesh | None, distinct_over: object, agreed: bool) -> None:
        self.rank, self.mesh, self._agreed = rank, mesh, agreed
        self._names: Dimensions = () if mesh is None else mesh.names
        self._default: Dimensions | None = None  # None: all dimensions
        self._named: dict[str, Dimensions] = {}
        self._preset = False  # whether fork_rng takes known names only
        if isinstance(distinct_over, Mapping):
            self._read_dict(distinct_over)
        elif distinct_over is not None:
            self._default = self._check("init", "distinct_over", distinct_over)
        for dimensions in (self._default, *self._named.values()):
            self._check_agreed("init", dimensions)
        self.default = self._field(self._default)
        """The rank field of streams that ``distinct_over`` does not name."""

    def _read_dict(self, given: Mapping[str, object]) -> None:
        shared: set[str] = set()
        for name, value in given.items():
            name = scopes.check_name("init", name)
            where = f"distinct_over[{name!r}]"
            if not isinstance(value, Mapping):
                self._named[name] = self._check("init", where, value)
                continue
            if set(value) != {"shared_outside", "shared_inside"}:
                rule = "a tuple of dimensions or a rule of a preset"
                raise value_error("init", where, rule, value)
            if self.mesh is None:
                raise value_error("init", "mesh", "given together with a preset", None)
            self._preset = True
            shared.update(self._check("init", where, value["shared_outside"]))
            inside = self._check("init", where, value["shared_inside"])
            self._named[name] = tuple(n for n in self._names if n not in inside)
        if self._preset:
            self._default = tuple(n for n in self._names if n not in shared)

    def _check(self, function: str, argument: str, given: object) -> Dimensions:
        """Return names of dimensions in the order of the mesh."""
        if isinstance(given, str) or not isinstance(given, (Sequence, set, frozenset)):
            hint = f" (for one dimension: ({given!r},))" if isinstance(given, str) else ""
            raise type_error(function, argument, f"a tuple of dimensions{hint}", given)
        for name in given:
            if name not in self._names:
                rule = f"a tuple of dimensions of the mesh, {self._names}"
                if self.mesh is None:
                    rule = "empty unless init has a mesh"
                raise value_error(function, argument, rule, given)
        return tuple(name for name in self._names if name in given)

    def _check_agreed(self, function: str, dimensions: Dimensions | None) -> None:
        if self._agreed or dimensions is None:
            return
        if self.mesh is not None and self.mesh.along(dimensions)[1] == self.mesh.size:
            return
        raise RuntimeError(
            f"fastseed.{function}: ranks cannot share a stream before they agree on a master seed: "
            "give init a master seed, or call torch.distributed.init_process_group before init"
        )

    def _field(self, dimensions: Dimensions | None) -> int:
        if dimensions == ():
            return SHARED
        if self.mesh is None:
            return self.rank
        return self.mesh.along(self._names if dimensions is None else dimensions)[0]

    def of(self, name: str) -> int:
        """Return the rank field of a stream that is built in or not registered."""
        return self._field(self._named.get(name, self._default))

    def of_registered(self, name: str, shared: bool, distinct_over: object) -> int:
        """Return the rank field of a stream that is being registered, after checking conflicts."""
        function = "register_generator"
        chosen = self._resolve(function, name, () if shared else None, distinct_over)
        return self.default if chosen is None else self._field(chosen)

    def of_fork(self, name: str, distinct_over: object) -> int:
        """Return the rank field of a stream of ``fork_rng``; by default each rank has its own."""
        if self._preset and distinct_over is None and name not in self._named:
            known = ", ".join(repr(known) for known in sorted(self._named))
            rule = f"one of {known} under the preset of init, or come with distinct_over="
            raise value_error("fork_rng", "name", rule, name)
        return self._field(self._resolve("fork_rng", name, None, distinct_over))

    def _resolve(
        self, function: str, name: str, shared: Dimensions | None, distinct_over: object
    ) -> Dimensions | None:
        given = None
        if distinct_over is not None:
            given = self._check(function, "distinct_over", distinct_over)
        choices = [d for d in (given, shared, self._named.get(name)) if d is not None]
        for other in choices[1:]:
            if other != choices[0]:
                argument = "shared" if given is None else "distinct_over"
                rule = f"consistent with {other}, which other arguments say of {name!r}"
                raise value_error(function, argument, rule, choices[0])
        if not choices:
            return None
        self._check_agreed(function, choices[0])
        return choices[0]

    def rules(self) -> str:
        """Return what ``distinct_over`` means, in one form for all ways to write it."""
        default = "all dimensions" if self._default is None else repr(self._default)
        named = [f"{name!r} over {self._named[name]}" for name in sorted(self._named)]
        return ", ".join([f"distinct over {default}", *named])

    def fingerprint(self) -> str:
        """Return a description that is equal where every stream has the same rank field."""
        if self.mesh is None and not self._named and self._default is None:
            return ""
        mesh = self.mesh or Mesh((), (), ())
        return json.dumps([mesh.ranks, mesh.sizes, mesh.names, self.rules()])

    def shares_mesh(self, fingerprint: str) -> bool:
        """Return whether another rank's fingerprint is of the same mesh with the same rules."""
        own = self.fingerprint()
        if not own or not fingerprint.startswith("["):
            return own == fingerprint
        return bool(json.loads(own)[1:] == json.loads(fingerprint)[1:])


def locate_in_mesh(
    given: object, distinct_over: object, process: discovery.ProcessRank
) -> tuple[Mesh | None, discovery.ProcessRank]:
    """Check ``mesh`` and ``distinct_over``; return the mesh, and the rank and world size in it."""
    found = None if given is None else read_mesh(given)
    if found is not None and process.source == "default":
        process = discovery.ProcessRank(*found.along(found.names), "mesh")
    if found is not None and found.size != process.world_size:  # others would share all its streams
        sizes = dict(zip(found.names, found.sizes, strict=True))
        rule = f"a mesh of the {process.world_size} ranks of the job"
        raise value_error("init", "mesh", rule, sizes)
    RankFields(process.rank, found, distinct_over, agreed=True)
    if found is not None and process.rank == 0:
        warn_undivided_data(found, distinct_over)
    return found, process

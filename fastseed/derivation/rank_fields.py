"""The rank field of each stream on this rank, which may have a place in a mesh.

A stream that is *distinct over* some dimensions has as its rank field the mixed-radix index of the
rank's coordinates along them, in the mesh's order, the last dimension fastest; it is *shared over*
the other dimensions. Without a mesh the rank field is the rank. A registered generator has what it
was registered with, and a block's streams have that of the block's name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from .._utils.validation import type_error, value_error
from . import reserved, scopes
from .scopes import SHARED

Dimensions: TypeAlias = tuple[str, ...]


class Mesh(NamedTuple):
    """The coordinates of this rank in a mesh: name, rank and size of each dimension."""

    names: Dimensions
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        rows = zip(self.names, self.ranks, self.sizes, strict=True)
        return ", ".join(f"{name} {rank}/{size}" for name, rank, size in rows)

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    def along(self, dimensions: Dimensions) -> tuple[int, int]:
        """Return (mixed-radix index of this rank along ``dimensions``, number of such indices)."""
        index, count = 0, 1
        for name, rank, size in zip(self.names, self.ranks, self.sizes, strict=True):
            if name in dimensions:
                index, count = index * size + rank, count * size
        return index, count


def check_dimensions(function: str, argument: str, given: object, mesh: Mesh | None) -> Dimensions:
    """Return names of dimensions in the order of the mesh."""
    names = () if mesh is None else mesh.names
    if not isinstance(given, (tuple, list)):
        hint = f" (for one dimension: ({given!r},))" if isinstance(given, str) else ""
        raise type_error(function, argument, f"a tuple of dimensions{hint}", given)
    if not all(name in names for name in given):
        rule = f"a tuple of dimensions of the mesh, {names}"
        if mesh is None:
            rule = "empty unless init has a mesh"
        raise value_error(function, argument, rule, given)
    return tuple(name for name in names if name in given)


class RankFields:
    """The rank field of each stream on this rank, under the argument ``distinct_over`` of ``init``.

    ``agreed`` is True if all ranks are known to have one master seed: others share no stream.
    """

    def __init__(
        self, rank: int, mesh: Mesh | None, distinct_over: object, agreed: bool, function: str
    ) -> None:
        self.rank, self.mesh, self._agreed = rank, mesh, agreed
        self._default: Dimensions | None = None  # None: all dimensions
        self._named: dict[str, Dimensions] = {}
        if isinstance(distinct_over, Mapping):
            for name, value in distinct_over.items():
                where = f"distinct_over[{scopes.check_name(function, name)!r}]"
                if name != (block := reserved.block_of(name)):
                    raise value_error(function, "a name in distinct_over", repr(block), name)
                self._named[name] = check_dimensions(function, where, value, mesh)
        elif distinct_over is not None:
            self._default = check_dimensions(function, "distinct_over", distinct_over, mesh)
        for dimensions in (self._default, *self._named.values()):
            self._check_agreed(function, dimensions)
        self.default = self._field(self._default)
        """The rank field of streams that ``distinct_over`` does not name."""
        self._fields = {name: self._field(over) for name, over in self._named.items()}
        self.registered: dict[str, int] = {}
        """Those of the registered generators, by name: no block or argument names one of these."""

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
        return self.mesh.along(self.mesh.names if dimensions is None else dimensions)[0]

    def of(self, name: str) -> int:
        """Return the rank field of a stream."""
        found = self.registered.get(name)
        if found is None and self._fields:
            found = self._fields.get(reserved.block_of(name))
        return self.default if found is None else found

    def of_registered(self, name: str, shared: bool, distinct_over: object) -> int:
        """Return that of a stream to register; ``shared`` is another word for ``()``."""
        function = "register_generator"
        if shared and distinct_over is None:
            return self.under(function, name, (), "shared")
        found = self.under(function, name, distinct_over)
        if shared and found != SHARED:
            rule = "() or None where shared is True"
            raise value_error(function, "distinct_over", rule, distinct_over)
        return found

    def under(
        self, function: str, name: str, given: object, argument: str = "distinct_over"
    ) -> int:
        """Return that of a stream under an argument ``distinct_over``; None: as ``init`` says."""
        if given is None:
            return self.of(name)
        dimensions = check_dimensions(function, argument, given, self.mesh)
        block = reserved.block_of(name)
        said = self._named.get(block, dimensions)
        if said != dimensions:
            rule = f"consistent with {said}, which init says of {block!r}"
            raise value_error(function, argument, rule, given)
        self._check_agreed(function, dimensions)
        return self._field(dimensions)

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
        own, end = self.fingerprint(), "], "  # of the ranks, which come first
        return own.partition(end)[2] == fingerprint.partition(end)[2] and bool(own) == bool(
            fingerprint
        )


class SameRank(RankFields):
    """The rank field of all streams of a DataLoader worker, or of a sample."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, None, None, True, "init")

    def under(
        self, function: str, name: str, given: object, argument: str = "distinct_over"
    ) -> int:
        """Return that of a block."""
        if given not in (None, ()):
            rule = "None or () in a DataLoader worker and in a sample"
            raise value_error(function, argument, rule, given)
        return super().under(function, name, given, argument)

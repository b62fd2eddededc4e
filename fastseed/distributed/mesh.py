"""Reading the arguments of ``init`` that say where this rank is in a mesh."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .._utils import validation
from .._utils.validation import type_error, value_error
from ..derivation import scopes
from ..derivation.rank_fields import Dimensions, Mesh, RankFields, check_dimensions
from .discovery import ProcessRank

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

STATE = "process.mesh"
"""The name of the mesh among exact states; no generator can be registered under it."""

DATA = "dp"
"""Dimensions whose names begin so divide the data: dp, dp_replicate, dp_shard."""

MODEL = ("tp", "pp", "cp", "ep", "sp", "mp", "etp", "model")
"""Usual names of dimensions that do not divide the data."""


def read_mesh(function: str, given: object) -> Mesh:
    """Return the argument ``mesh`` of ``init``, a ``DeviceMesh`` or a dict, as a ``Mesh``."""
    module = sys.modules.get("torch.distributed.device_mesh")
    if module is not None and isinstance(given, module.DeviceMesh):
        given = _from_device_mesh(function, given)
    if not isinstance(given, Mapping):
        rule = "a DeviceMesh or a dict of (rank, size) by dimension"
        raise type_error(function, "mesh", rule, given)
    if not given:
        raise value_error(function, "mesh", "a mesh with at least one dimension", given)
    ranks, sizes = [], []
    for name, pair in given.items():
        validation.check_text(function, "the name of a dimension of mesh", name)
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise type_error(function, f"mesh[{name!r}]", "(rank, size)", pair)
        size = validation.check_int(function, f"mesh[{name!r}][1]", pair[1], 1, scopes.MAX_RANK + 1)
        ranks.append(validation.check_int(function, f"mesh[{name!r}][0]", pair[0], 0, size - 1))
        sizes.append(size)
    mesh = Mesh(tuple(given), tuple(ranks), tuple(sizes))
    if mesh.size > scopes.MAX_RANK + 1:
        rule = f"a mesh of at most {scopes.MAX_RANK + 1} ranks"
        raise value_error(function, "mesh", rule, dict(zip(mesh.names, mesh.sizes, strict=True)))
    return mesh


def _from_device_mesh(function: str, given: DeviceMesh) -> dict[str, tuple[int, int]]:
    names, ranks = given.mesh_dim_names, given.get_coordinate()
    if names is None:
        rule = "a mesh with names: init_device_mesh(..., mesh_dim_names=(...))"
        raise value_error(function, "mesh", rule, given)
    if ranks is None:
        raise value_error(function, "mesh", "a mesh that contains this rank", given)
    return {name: (int(ranks[i]), int(given.size(i))) for i, name in enumerate(names)}


def check_data_over(function: str, given: object, mesh: Mesh | None) -> Dimensions:
    """Return the dimensions that divide the data; ValueError where nothing says which do."""
    if given is not None:
        return check_dimensions(function, "data_over", given, mesh)
    if mesh is None:
        return ()
    named = zip(mesh.names, mesh.sizes, strict=True)
    unclear = [n for n, s in named if s > 1 and not n.startswith(DATA) and n not in MODEL]
    if unclear:
        rule = (
            f"given, those of {mesh.names} that divide the data, such as ({unclear[0]!r},): "
            f"nothing says whether {', '.join(map(repr, unclear))} do"
        )
        raise value_error(function, "data_over", rule, None)
    return tuple(name for name in mesh.names if name.startswith(DATA))


def locate_in_mesh(
    function: str, given: object, distinct_over: object, process: ProcessRank
) -> tuple[Mesh | None, ProcessRank]:
    """Check ``mesh`` and ``distinct_over``; return the mesh, and the rank and world size in it."""
    found = None if given is None else read_mesh(function, given)
    if found is not None and process.source == "default":
        process = ProcessRank(*found.along(found.names), "mesh")
    if found is not None and found.size != process.world_size:  # others would share all its streams
        sizes = dict(zip(found.names, found.sizes, strict=True))
        rule = f"a mesh of the {process.world_size} ranks of the job"
        raise value_error(function, "mesh", rule, sizes)
    RankFields(process.rank, found, distinct_over, agreed=True, function=function)
    return found, process

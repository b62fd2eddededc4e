"""Digests of tensors that are spread over ranks: sums of shards are added up, not their data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist

from ..random import shards
from . import tensor_digest
from .tensor_digest import MODULUS, Part

_LIMBS = 4  # of 32 bits each, in signed 64-bit words: 2**31 ranks can be added


def sums_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """The sums modulo 2**128 of whole tensors; of a ``DTensor`` over all its shards.

    With a ``DTensor`` among them this is a collective of its mesh.
    """
    tensors = {name: _settled(name, tensor) for name, tensor in tensors.items()}
    parts = tensor_digest.parts_of(tensors)
    for (mesh, dims), names in _by_mesh(tensors):
        for dim in dims:
            _check_names(mesh, dim, tensors, names)
            _reduce(mesh, dim, [(tensors[name], parts[name]) for name in names])
    for name, part in parts.items():
        if part.fragments:
            raise RuntimeError(
                f"fastseed.debug.digest: obj must be held in full by its mesh at {name!r}"
            )
    return {name: part.total for name, part in parts.items()}


def _settled(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose local parts are parts of it: what is still to be summed up is summed up."""
    if not shards.is_dtensor(tensor):
        return tensor
    found: Any = tensor
    whole: torch.Tensor = tensor
    if found.device_mesh.get_coordinate() is None:
        raise RuntimeError(
            "fastseed.debug.digest: obj must hold DTensors of meshes that this rank is in, "
            f"got one of {found.device_mesh} at {name!r}"
        )
    if any(p.is_partial() for p in found.placements):
        from torch.distributed.tensor import Replicate

        with torch.no_grad():
            whole = found.redistribute(
                placements=[Replicate() if p.is_partial() else p for p in found.placements]
            )
    return whole


def _check_names(
    mesh: Any, dim: int, tensors: Mapping[str, torch.Tensor], names: list[str]
) -> None:
    """RuntimeError on all ranks of a mesh dimension that are about to add up different things."""
    text = repr([(name, tuple(tensors[name].shape), str(tensors[name].dtype)) for name in names])
    mine = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    both = torch.tensor([mine, -mine], device=mesh.device_type)
    dist.all_reduce(both, op=dist.ReduceOp.MAX, group=mesh.get_group(dim))
    if both.tolist() != [mine, -mine]:
        raise RuntimeError(
            "fastseed.debug.digest: obj must hold the same DTensors on all ranks of their mesh, "
            f"got others elsewhere than the {len(names)} here, {names[0]!r} to {names[-1]!r}"
        )


def _by_mesh(
    tensors: Mapping[str, torch.Tensor],
) -> Iterator[tuple[tuple[Any, tuple[int, ...]], list[str]]]:
    """The names of DTensors by (mesh, the mesh dimensions that cut them), alike on all ranks.

    Along the other dimensions every rank holds the same, and the same sum.
    """
    order: dict[Any, int] = {}
    placed = []
    for name, tensor in tensors.items():
        if shards.is_dtensor(tensor):
            mesh = tensor.device_mesh  # type: ignore[attr-defined]
            placements = tensor.placements  # type: ignore[attr-defined]
            dims = tuple(i for i, p in enumerate(placements) if not p.is_replicate())
            where = mesh, dims
            placed.append((order.setdefault(where, len(order)), where, name))
    placed.sort(key=lambda entry: entry[0])
    for _, group in groupby(placed, key=lambda entry: entry[0]):
        entries = list(group)
        yield entries[0][1], [name for *_, name in entries]


def _reduce(mesh: Any, dim: int, held: list[tuple[torch.Tensor, Part]]) -> None:
    """Add up the parts along one dimension of the mesh, and join fragments that now make groups."""
    group = mesh.get_group(dim)
    words = torch.zeros((len(held) + 1, _LIMBS), dtype=torch.int64)
    for row, (_, part) in zip(words, held, strict=False):
        row.copy_(torch.tensor([part.total >> 32 * i & 0xFFFFFFFF for i in range(_LIMBS)]))
    words[-1, 0] = sum(len(part.fragments) for _, part in held)
    words = words.to(mesh.device_type)
    dist.all_reduce(words, group=group)
    for row, (_, part) in zip(words.tolist(), held, strict=False):
        part.total = sum(limb << 32 * i for i, limb in enumerate(row)) % MODULUS
    if int(words[-1, 0]) == 0:
        return
    everyone: list[Any] = [None] * dist.get_world_size(group)
    mine = [[tuple(f) for f in part.fragments] for _, part in held]
    dist.all_gather_object(everyone, mine, group=group)
    for i, (tensor, part) in enumerate(held):
        fragments = [tensor_digest.Fragment(*f) for theirs in everyone for f in theirs[i]]
        total, part.fragments = tensor_digest.join(tensor_digest.key_of(tensor), fragments)
        part.total = (part.total + total) % MODULUS


# ---------------------------------------------------------------- agreement

_NAMED = 8  # tensors of a rank, and ranks, at most, that a message names


def group_size(group: Any) -> int:
    """How many ranks are to be compared: 1 without torch.distributed."""
    if not (dist.is_available() and dist.is_initialized()):
        if group is not None:
            raise TypeError(
                "fastseed.assert_ranks_agree: group must be None before "
                f"torch.distributed.init_process_group, got {type(group).__name__}"
            )
        return 1
    if group is not None and not isinstance(group, dist.ProcessGroup):
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError(
                "fastseed.assert_ranks_agree: group must be one that this process is in"
            )
        raise TypeError(
            "fastseed.assert_ranks_agree: group must be a torch.distributed process group or "
            f"None, got {type(group).__name__}"
        )
    return dist.get_world_size(group)


def agree(table: Mapping[str, int], problem: str, group: Any) -> None:
    """RuntimeError, the same on all ranks, unless all have this table; see
    :func:`fastseed.debug.assert_ranks_agree`.

    Whatever the ranks hold, all of them enter the same collectives.
    """
    mine = _limbs_of(table, problem)
    both = torch.tensor([*mine, *(-limb for limb in mine)], device=_device(group))
    dist.all_reduce(both, op=dist.ReduceOp.MAX, group=group)
    if not problem and both.tolist() == [*mine, *(-limb for limb in mine)]:
        return
    ranks = dist.get_process_group_ranks(group)
    first: list[Any] = [(dict(table), problem)]
    dist.broadcast_object_list(first, src=ranks[0], group=group)
    found: list[Any] = [None] * len(ranks)
    dist.all_gather_object(found, _said(table, problem, *first[0]), group=group)
    lines = [f"rank {rank}: {said}" for rank, said in zip(ranks, found, strict=True) if said]
    if not lines:
        return  # rank 0's problem would be among them
    more = f"; and {len(lines) - _NAMED} ranks more" if len(lines) > _NAMED else ""
    raise RuntimeError(
        f"fastseed.assert_ranks_agree: module must be the same on all {len(ranks)} ranks; "
        f"compared with rank {ranks[0]}: " + "; ".join(lines[:_NAMED]) + more
    )


def _said(
    table: Mapping[str, int], problem: str, theirs: Mapping[str, int], their_problem: str
) -> str:
    """What a rank's table has that the first rank's has not, in words; "" if nothing."""
    if problem:
        return f"could not be digested ({problem})"
    if their_problem:
        return ""
    parts = (
        ("differs in", [name for name in theirs if table.get(name, theirs[name]) != theirs[name]]),
        ("lacks", [name for name in theirs if name not in table]),
        ("has besides", [name for name in table if name not in theirs]),
    )
    return ", ".join(
        f"{what} {', '.join(name or '(the tensor)' for name in names[:_NAMED])}"
        + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        for what, names in parts
        if names
    )


def _limbs_of(table: Mapping[str, int], problem: str) -> list[int]:
    """A table in four words of 32 bits; a fifth says whether there is none."""
    sha = hashlib.sha256()
    for name in sorted(table):
        text = name.encode("utf-8", "surrogatepass")
        sha.update(len(text).to_bytes(8, "little") + text + table[name].to_bytes(16, "little"))
    whole = int.from_bytes(sha.digest()[:16], "little")
    return [*(whole >> 32 * i & 0xFFFFFFFF for i in range(_LIMBS)), int(bool(problem))]


def _device(group: Any) -> torch.device:
    """Where the collectives of a group find their tensors."""
    chosen: Any = dist.group.WORLD if group is None else group
    kinds = {kind.type for kind in chosen._device_types}
    return torch.device("cpu" if "cpu" in kinds or not kinds else kinds.pop())

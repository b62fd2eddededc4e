"""Digests of tensors that are sharded over ranks: sums are exchanged, not data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist

from .._utils.validation import type_error, value_error
from ..random import shards
from . import tensor_digest
from .tensor_digest import MODULUS, Part

_LIMBS = 4  # of 32 bits each, in signed 64-bit words: 2**31 ranks can be added


def sums_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Return the sums modulo 2**128 of whole tensors; a collective if there are DTensors."""
    tensors = {name: _settled(name, tensor) for name, tensor in tensors.items()}
    parts = tensor_digest.parts_of(tensors)
    for (mesh, dims), names in _by_mesh(tensors):
        for dim in dims:
            _check_names(mesh, dim, tensors, names)
            _reduce(mesh, dim, [parts[name] for name in names])
    for name, part in parts.items():
        if part.fragments:
            raise RuntimeError(f"fastseed.debug.digest: a mesh holds only a part of {name!r}")
    return {name: part.total for name, part in parts.items()}


def _settled(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without partial sums: a ``Partial`` DTensor is summed up."""
    if not shards.is_dtensor(tensor):
        return tensor
    found: Any = tensor
    if found.device_mesh.get_coordinate() is None:
        raise RuntimeError(
            f"fastseed.debug.digest: the DTensor at {name!r} must be of a mesh that this rank is "
            f"in, got {found.device_mesh}"
        )
    if not any(p.is_partial() for p in found.placements):
        return tensor
    from torch.distributed.tensor import Replicate

    whole = [Replicate() if p.is_partial() else p for p in found.placements]
    with torch.no_grad():
        settled: torch.Tensor = found.redistribute(placements=whole)
    return settled


def _check_names(
    mesh: Any, dim: int, tensors: Mapping[str, torch.Tensor], names: list[str]
) -> None:
    """Raise on all ranks of a mesh dimension if they would add up different tensors."""
    text = repr([(name, tuple(tensors[name].shape), str(tensors[name].dtype)) for name in names])
    mine = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    both = torch.tensor([mine, -mine], device=mesh.device_type)
    dist.all_reduce(both, op=dist.ReduceOp.MAX, group=mesh.get_group(dim))
    if both.tolist() != [mine, -mine]:
        raise RuntimeError(
            "fastseed.debug.digest: all ranks of a mesh must hold the same DTensors, but another "
            f"rank differs from the {len(names)} here, {names[0]!r} to {names[-1]!r}"
        )


def _by_mesh(
    tensors: Mapping[str, torch.Tensor],
) -> Iterator[tuple[tuple[Any, tuple[int, ...]], list[str]]]:
    """Yield the names of DTensors by (mesh, the mesh dimensions that shard them)."""
    found: dict[tuple[Any, tuple[int, ...]], list[str]] = {}
    for name, tensor in tensors.items():
        if shards.is_dtensor(tensor):
            placements = enumerate(tensor.placements)  # type: ignore[attr-defined]
            dims = tuple(i for i, placement in placements if not placement.is_replicate())
            mesh = tensor.device_mesh  # type: ignore[attr-defined]
            found.setdefault((mesh, dims), []).append(name)
    yield from found.items()


def _reduce(mesh: Any, dim: int, parts: list[Part]) -> None:
    """Add up the parts along one dimension of the mesh, and join their fragments."""
    group = mesh.get_group(dim)
    limbs = [[part.total >> 32 * i & 0xFFFFFFFF for i in range(_LIMBS)] for part in parts]
    fragments = sum(len(part.fragments) for part in parts)
    words = torch.tensor([*limbs, [fragments, 0, 0, 0]], device=mesh.device_type)
    dist.all_reduce(words, group=group)
    *limbs, (fragments, *_) = words.tolist()
    for part, summed in zip(parts, limbs, strict=True):
        part.total = sum(limb << 32 * i for i, limb in enumerate(summed)) % MODULUS
    if fragments == 0:
        return
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, [part.fragments for part in parts], group=group)
    for part, theirs in zip(parts, zip(*everyone, strict=True), strict=True):
        total, part.fragments = tensor_digest.join(part.key, chain.from_iterable(theirs))
        part.total = (part.total + total) % MODULUS


# ---------------------------------------------------------------- agreement

_SHOWN = 8  # tensors of a rank, and ranks, at most, that a message names
_AGREE = "debug.assert_ranks_agree"


def group_size(group: Any) -> int:
    """Return how many ranks are compared: 1 without torch.distributed."""
    if not (dist.is_available() and dist.is_initialized()):
        if group is not None:
            rule = "None before torch.distributed.init_process_group"
            raise type_error(_AGREE, "group", rule, group)
        return 1
    if group is not None and group == dist.GroupMember.NON_GROUP_MEMBER:
        raise value_error(_AGREE, "group", "one that this process is in", group)
    if group is not None and not isinstance(group, dist.ProcessGroup):
        raise type_error(_AGREE, "group", "a torch.distributed process group or None", group)
    return dist.get_world_size(group)


def agree(table: Mapping[str, int], problem: str, group: Any) -> None:
    """Raise on all ranks unless all have this table; all enter the same collectives."""
    ranks = dist.get_process_group_ranks(group)
    mine = "" if problem else hashlib.sha256(repr(sorted(table.items())).encode()).hexdigest()
    found: list[Any] = [None] * len(ranks)
    dist.all_gather_object(found, mine, group=group)
    if mine and set(found) == {mine}:
        return
    first: list[Any] = [(dict(table), problem)]
    dist.broadcast_object_list(first, src=ranks[0], group=group)
    dist.all_gather_object(found, _compared(table, problem, *first[0]), group=group)
    lines = [f"rank {rank}: {text}" for rank, text in zip(ranks, found, strict=True) if text]
    more = f"; and {len(lines) - _SHOWN} ranks more" if len(lines) > _SHOWN else ""
    raise RuntimeError(
        f"fastseed.{_AGREE}: module must be the same on all {len(ranks)} ranks; "
        f"compared with rank {ranks[0]}: " + "; ".join(lines[:_SHOWN]) + more
    )


def _compared(
    table: Mapping[str, int], problem: str, first: Mapping[str, int], first_problem: str
) -> str:
    """Return in words how a table differs from the first rank's; "" if it does not."""
    if problem:
        return f"could not be digested ({problem})"
    names = [name for name in {**first, **table} if table.get(name) != first.get(name)]
    if first_problem or not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"differs in {', '.join(name or '(the tensor)' for name in names[:_SHOWN])}{more}"

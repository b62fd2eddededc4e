"""Digests of tensors that are spread over ranks: sums of shards are added up, not their data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist

from . import digest_parts, shards
from .digest_parts import MODULUS, Part

_LIMBS = 4  # of 32 bits each, in signed 64-bit words: 2**31 ranks can be added


def sums_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """The sums modulo 2**128 of whole tensors; of a ``DTensor`` over all its shards.

    With a ``DTensor`` among them this is a collective of its mesh.
    """
    parts = digest_parts.parts_of(tensors)
    for (mesh, dims), names in _by_mesh(tensors):
        for dim in dims:
            _reduce(mesh, dim, [(tensors[name], parts[name]) for name in names])
    for name, part in parts.items():
        if part.fragments:
            raise RuntimeError(f"fastseed.digest: obj must be held in full by its mesh at {name!r}")
    return {name: part.total for name, part in parts.items()}


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
        fragments = [digest_parts.Fragment(*f) for theirs in everyone for f in theirs[i]]
        total, part.fragments = digest_parts.join(digest_parts.key_of(tensor), fragments)
        part.total = (part.total + total) % MODULUS

"""Digests of tensors that are sharded over ranks: each rank digests its shard, and sums are added.

A tensor whose shards cut groups of 16 bytes, a short one as a rule, is gathered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ..distributed.rendezvous import collective
from ..random import layout
from .tensors import FUNCTION, GROUP, MODULUS, Part, header_of, parts_here, plain

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

_LIMBS = 4  # of 32 bits each, in signed 64-bit words: 2**31 ranks can be added


def parts_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Part]:
    """Return what this rank has of the digests; a collective only with a ``Partial`` DTensor."""
    found = {name: tensor for name, tensor in tensors.items() if layout.is_dtensor(tensor)}
    if not found:
        return parts_here(tensors)
    sharded = {name: _without_partial(name, tensor) for name, tensor in found.items()}
    cut = {name: tensor for name, tensor in sharded.items() if _cuts_groups(tensor)}
    whole = {name: sharded.get(name, t) for name, t in tensors.items() if name not in cut}
    parts = parts_here(whole)
    for name, tensor in cut.items():
        plain(name, tensor.to_local())  # raises where it has no memory
        header = header_of(tensor.dtype, tensor.shape)
        parts[name] = Part(header, cut=tensor.detach().clone())
    for name, tensor in sharded.items():
        parts[name].mesh = tensor.device_mesh
        placements = enumerate(tensor.placements)
        parts[name].dims = tuple(dim for dim, p in placements if not p.is_replicate())
    return parts


def join(parts: Mapping[str, Part]) -> None:
    """Add up the parts of all ranks of their meshes: a collective if there are DTensors."""
    by_mesh: dict[tuple[DeviceMesh, tuple[int, ...]], list[str]] = {}
    for name, part in parts.items():
        if part.mesh is not None:
            by_mesh.setdefault((part.mesh, part.dims), []).append(name)
    if not by_mesh:
        return
    for (mesh, dims), names in by_mesh.items():
        for dim in dims:
            _check_names(mesh, dim, parts, names)
            limbs = [[parts[n].total >> 32 * i & 0xFFFFFFFF for i in range(_LIMBS)] for n in names]
            words = torch.tensor(limbs, device=mesh.device_type)
            collective(FUNCTION, dist.all_reduce, words, group=mesh.get_group(dim))
            for name, summed in zip(names, words.tolist(), strict=True):
                total = sum(limb << 32 * i for i, limb in enumerate(summed))
                parts[name].total = total % MODULUS
    cut = {name: part.cut for name, part in parts.items() if part.cut is not None}
    gathered = {name: tensor.full_tensor() for name, tensor in cut.items()}
    for name, part in parts_here(gathered).items():
        parts[name].total = part.total


def _without_partial(name: str, found: DTensor) -> DTensor:
    """Return a ``DTensor`` without partial sums: those of a ``Partial`` one are added up."""
    if found.device_mesh.get_coordinate() is None:
        rule = f"must be of a mesh that this rank is in, got {found.device_mesh}"
        raise RuntimeError(f"fastseed.{FUNCTION}: the DTensor at {name!r} {rule}")
    if not any(p.is_partial() for p in found.placements):
        return found
    from torch.distributed.tensor import Replicate

    whole = [Replicate() if p.is_partial() else p for p in found.placements]
    with torch.no_grad():
        return found.redistribute(placements=whole)


def _cuts_groups(tensor: DTensor) -> bool:
    """Return whether an edge between shards may lie inside a group."""
    shards = 1
    for size, placement in zip(tensor.device_mesh.shape, tensor.placements, strict=True):
        if getattr(placement, "dim", None) == tensor.dim() - 1:
            shards *= size * getattr(placement, "split_factor", 1)
    length = tensor.element_size() * (tensor.shape[-1] if tensor.dim() else 1)
    return shards > 1 and length % (shards * GROUP) != 0


def _check_names(mesh: DeviceMesh, dim: int, parts: Mapping[str, Part], names: list[str]) -> None:
    """Raise on all ranks of a mesh dimension if they would add up different tensors."""
    text = repr([(name, parts[name].header) for name in names])
    mine = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    both = torch.tensor([mine, -mine], device=mesh.device_type)
    group = mesh.get_group(dim)
    collective(FUNCTION, dist.all_reduce, both, op=dist.ReduceOp.MAX, group=group)
    if both.tolist() != [mine, -mine]:
        raise RuntimeError(
            f"fastseed.{FUNCTION}: all ranks of a mesh must hold the same DTensors, but another "
            f"rank differs from the {len(names)} here, {names[0]!r} to {names[-1]!r}"
        )

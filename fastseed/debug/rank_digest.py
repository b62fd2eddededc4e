"""Digests of tensors that are sharded over ranks: sums are exchanged, not data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ..distributed.rendezvous import collective
from ..random import layout
from . import tensor_digest
from .tensor_digest import MODULUS, Fragment, Part

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

_DIGEST = "debug.digest"
_SHOWN = 8  # tensors of a rank, and ranks, at most, that a message names
_AGREE = "debug.check"
_LIMBS = 4  # of 32 bits each, in signed 64-bit words: 2**31 ranks can be added


def parts_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Part]:
    """Return what this rank has of the digests, which ``join`` completes.

    It is a collective only if a ``DTensor`` is ``Partial``.
    """
    found = {name: tensor for name, tensor in tensors.items() if layout.is_dtensor(tensor)}
    sharded = {name: _without_partial(name, tensor) for name, tensor in found.items()}
    parts = tensor_digest.parts_of({**tensors, **sharded} if sharded else tensors)
    for name, tensor in sharded.items():
        parts[name].mesh, placements = tensor.device_mesh, enumerate(tensor.placements)
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
            _reduce(mesh, dim, [parts[name] for name in names])
    incomplete = [name for name, part in parts.items() if part.fragments]
    if incomplete:
        raise RuntimeError(f"fastseed.debug.digest: a mesh holds only a part of {incomplete[0]!r}")


def _without_partial(name: str, found: DTensor) -> DTensor:
    """Return a ``DTensor`` without partial sums: those of a ``Partial`` one are added up."""
    if found.device_mesh.get_coordinate() is None:
        rule = f"must be of a mesh that this rank is in, got {found.device_mesh}"
        raise RuntimeError(f"fastseed.debug.digest: the DTensor at {name!r} {rule}")
    if not any(p.is_partial() for p in found.placements):
        return found
    from torch.distributed.tensor import Replicate

    whole = [Replicate() if p.is_partial() else p for p in found.placements]
    with torch.no_grad():
        return found.redistribute(placements=whole)


def _check_names(mesh: DeviceMesh, dim: int, parts: Mapping[str, Part], names: list[str]) -> None:
    """Raise on all ranks of a mesh dimension if they would add up different tensors."""
    text = repr([(name, parts[name].header) for name in names])
    mine = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    both = torch.tensor([mine, -mine], device=mesh.device_type)
    group = mesh.get_group(dim)
    collective(_DIGEST, dist.all_reduce, both, op=dist.ReduceOp.MAX, group=group)
    if both.tolist() != [mine, -mine]:
        rule = "all ranks of a mesh must hold the same DTensors, but another rank differs from"
        here = f"the {len(names)} here, {names[0]!r} to {names[-1]!r}"
        raise RuntimeError(f"fastseed.debug.digest: {rule} {here}")


def _reduce(mesh: DeviceMesh, dim: int, parts: list[Part]) -> None:
    """Add up the parts along one dimension of the mesh, and join their fragments."""
    group = mesh.get_group(dim)
    limbs = [[part.total >> 32 * i & 0xFFFFFFFF for i in range(_LIMBS)] for part in parts]
    fragments = sum(len(part.fragments) for part in parts)
    words = torch.tensor([*limbs, [fragments, 0, 0, 0]], device=mesh.device_type)
    collective(_DIGEST, dist.all_reduce, words, group=group)
    *limbs, (fragments, *_) = words.tolist()
    for part, summed in zip(parts, limbs, strict=True):
        part.total = sum(limb << 32 * i for i, limb in enumerate(summed)) % MODULUS
    if fragments == 0:
        return
    everyone: list[list[Sequence[Fragment]]] = [[]] * dist.get_world_size(group)
    fragments_here = [part.fragments for part in parts]
    collective(_DIGEST, dist.all_gather_object, everyone, fragments_here, group=group)
    for part, theirs in zip(parts, zip(*everyone, strict=True), strict=True):
        total, part.fragments = tensor_digest.join(part.header.key, chain.from_iterable(theirs))
        part.total = (part.total + total) % MODULUS


def process_count() -> int:
    """Return the number of ranks in the process group; 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def agree(table: Mapping[str, int], problem: str) -> None:
    """Raise on all ranks unless all have this table; all enter the same collectives."""
    first = [(table, problem)]
    collective(_AGREE, dist.broadcast_object_list, first, src=0)
    found = [""] * process_count()
    difference = _compared(table, problem, *first[0])
    collective(_AGREE, dist.all_gather_object, found, difference)
    lines = [f"rank {rank}: {text}" for rank, text in enumerate(found) if text]
    if not lines:
        return
    more = f"; and {len(lines) - _SHOWN} ranks more" if len(lines) > _SHOWN else ""
    rule = f"module must be the same on all {len(found)} ranks; compared with rank 0: "
    raise RuntimeError(f"fastseed.{_AGREE}: {rule}" + "; ".join(lines[:_SHOWN]) + more)


def _compared(
    table: Mapping[str, int], problem: str, first: Mapping[str, int], first_problem: str
) -> str:
    """Return how a table differs from the first rank's; "" if it does not."""
    if problem:
        return f"could not be digested ({problem})"
    names = [name for name in {**first, **table} if table.get(name) != first.get(name)]
    if first_problem or not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"differs in {', '.join(name or '(the tensor)' for name in names[:_SHOWN])}{more}"

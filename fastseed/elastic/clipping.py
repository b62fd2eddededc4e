"""The norm of all gradients and clipping by it, with the same bits on any layout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.distributed as dist

from .._backend import op_checks, tensors
from .._utils import validation
from ..random import layout
from . import rounding, sums

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    *,
    error_if_nonfinite: bool = False,
    shard_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Scale all gradients so that their 2-norm is at most ``max_norm``; return the norm before.

    As :func:`torch.nn.utils.clip_grad_norm_`, but the norm is that of :func:`get_total_norm`, the
    same on any layout. Gradients are multiplied in place by ``max_norm / (norm + 1e-6)``, computed
    in float64, where that is less than 1. It waits for the device once.

    Args:
        parameters: parameters or one of them; those without a gradient are left out.
        max_norm: greatest norm, at least 0; infinity only computes the norm.
        error_if_nonfinite: raise where the norm is NaN or infinite, before a gradient is changed.
            Otherwise gradients are scaled by NaN or 0, as torch does.
        shard_group: as in :func:`get_total_norm`.

    Returns:
        The norm, as :func:`get_total_norm` returns it.

    Raises:
        TypeError: a parameter is no tensor, or a gradient is not of float16, bfloat16, float32 or
            float64.
        ValueError: ``max_norm`` is negative or NaN, or a gradient is sparse or a DTensor of partial
            sums.
        RuntimeError: the norm is not finite and ``error_if_nonfinite`` is true.

    Examples:
        >>> import torch, fastseed
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> weight.grad = torch.tensor([3.0, 4.0])
        >>> fastseed.elastic.clip_grad_norm_([weight], 1.0)
        tensor(5.)
    """
    name = "elastic.clip_grad_norm_"
    if not (isinstance(max_norm, float) and max_norm == math.inf):
        max_norm = validation.check_float(name, "max_norm", max_norm, 0, math.inf)
    sums.check_group(name, "shard_group", shard_group)
    given = _listed(name, "parameters", parameters)
    gradients = [p.grad for p in given if p.grad is not None]
    parts = _local_parts(name, "gradients", gradients)
    norm, dtype = _norm(parts, shard_group)
    if error_if_nonfinite and not math.isfinite(norm):
        raise RuntimeError(
            f"fastseed.{name}: the norm must be finite, got {norm}; call it with "
            "error_if_nonfinite=False to scale the gradients all the same"
        )
    scale = max_norm / (norm + _EPSILON)
    if not scale >= 1.0:  # also NaN
        by_kind: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
        for local in itertools.chain.from_iterable(parts.values()):
            by_kind.setdefault((local.device, local.dtype), []).append(local)
        for alike in by_kind.values():
            torch._foreach_mul_(alike, scale)
    return _as_tensor(norm, dtype, gradients)


def get_total_norm(
    tensors: torch.Tensor | Iterable[torch.Tensor],
    *,
    shard_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Return the 2-norm of all elements of all tensors, correctly rounded.

    The sum of squares is exact and its root is rounded once, to nearest, so the norm depends on the
    elements alone: not on their order, nor on how they are cut over ranks. All ranks of a mesh have
    to call it with the same tensors.

    Args:
        tensors: tensors or one of them. A ``DTensor`` counts once: the ranks along the mesh
            dimensions that shard it add their parts, those along the others have the same. Other
            tensors are taken to be the same on every rank, as the gradients of a replicated model.
        shard_group: the ranks whose tensors that are no ``DTensor`` are parts of the whole, which
            are added. None: every rank has all of each.

    Returns:
        A tensor without dimensions on the device of the first one: float64 if one of them is
        float64, else float32. It is NaN where an element is NaN, else infinity where one is
        infinite or the norm is beyond the largest number. 0 without elements.

    Raises:
        TypeError: one of them is no tensor, or not of float16, bfloat16, float32 or float64.
        ValueError: one of them is sparse or a DTensor of partial sums.

    Examples:
        >>> import torch, fastseed
        >>> fastseed.elastic.get_total_norm([torch.tensor([2.0, 3.0]), torch.tensor(6.0)])
        tensor(7.)
    """
    name = "elastic.get_total_norm"
    sums.check_group(name, "shard_group", shard_group)
    listed = _listed(name, "tensors", tensors)
    return _as_tensor(*_norm(_local_parts(name, "tensors", listed), shard_group), listed)


def _listed(
    name: str, argument: str, given: torch.Tensor | Iterable[torch.Tensor]
) -> list[torch.Tensor]:
    try:
        found = [given] if isinstance(given, torch.Tensor) else list(given)
    except TypeError:
        raise validation.type_error(name, argument, "tensors or a tensor", given) from None
    for i, value in enumerate(found):
        validation.check_instance(name, f"{argument}[{i}]", value, torch.Tensor, "a tensor")
    return found


# (the mesh of a tensor, the mesh dimensions that shard it); None without a mesh
_Cut: TypeAlias = "tuple[DeviceMesh, tuple[int, ...]] | None"
_Parts: TypeAlias = dict[_Cut, list[torch.Tensor]]


@torch.no_grad()
def _local_parts(name: str, argument: str, given: list[torch.Tensor]) -> _Parts:
    """Return this rank's parts of tensors, those together that the same ranks share."""
    parts: _Parts = {}
    for i, tensor in enumerate(given):
        cut, local, label = None, tensor, f"{argument}[{i}]"
        if layout.is_dtensor(tensor):
            cut, local = _cut_of(name, label, tensor), tensor.to_local()
        tensors.check_dtype_of(name, label, local, op_checks.REALS)
        tensors.check_dense(name, label, local)
        parts.setdefault(cut, []).append(local.detach() if local.requires_grad else local)
    return parts


def _norm(parts: _Parts, shard_group: dist.ProcessGroup | None) -> tuple[float, torch.dtype]:
    if shard_group is not None:  # also a rank without tensors adds its 0
        parts = {None: [], **parts}
    found = []
    for cut, local in parts.items():
        total = sums.accumulate(local, local)
        if cut is None and shard_group is not None:
            total = sums.all_reduce(total, shard_group)
        elif cut is not None:
            for dim in cut[1]:
                total = sums.all_reduce(total, cut[0].get_group(dim))
        found.append(sums.read(total))
    wide = any(total.dtype == torch.float64 for total in found)
    dtype = torch.float64 if wide else torch.float32
    special = [total.special for total in found if total.special is not None]
    if special:
        return sum(special), dtype
    return rounding.square_root(sum(t.finite for t in found), sums.EXPONENT, dtype), dtype


def _cut_of(name: str, argument: str, tensor: DTensor) -> _Cut:
    """Return which ranks have the other parts of a tensor."""
    if any(placement.is_partial() for placement in tensor.placements):
        rule = "without partial sums (see DTensor.redistribute)"
        raise validation.value_error(name, argument, rule, tensor.placements)
    sharded = (d for d, placement in enumerate(tensor.placements) if not placement.is_replicate())
    return tensor.device_mesh, tuple(sharded)


def _as_tensor(norm: float, dtype: torch.dtype, given: list[torch.Tensor]) -> torch.Tensor:
    device = given[0].device if given else torch.device("cpu")
    return torch.tensor(norm, dtype=dtype, device=device)

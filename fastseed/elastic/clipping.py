"""The norm of all gradients and clipping by it, with the same bits on any layout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.distributed as dist

from .._backend import private_torch, tensors
from .._backend.ops.draws import REALS
from .._utils import validation
from ..distributed.agreement import check_group
from ..random import layout
from . import sums

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    *,
    error_if_nonfinite: bool = False,
    group: dist.ProcessGroup | DeviceMesh | None = None,
) -> torch.Tensor:
    """Scale all gradients so that their 2-norm is at most ``max_norm``; return the norm before.

    As :func:`torch.nn.utils.clip_grad_norm_`, with the norm of :func:`get_total_norm`, which is the
    same on any layout. Gradients are multiplied in place by ``max_norm / (norm + 1e-6)``, computed
    in float64, where that is less than 1. It waits for the device once.

    Args:
        parameters: parameters or one of them; those without a gradient are left out.
        max_norm: greatest norm, at least 0; infinity only computes the norm, and changes nothing.
        error_if_nonfinite: raise where the norm is NaN or infinite, before a gradient is changed.
            Otherwise gradients are scaled by NaN or 0, as torch does.
        group: as in :func:`get_total_norm`.

    Returns:
        The norm, as :func:`get_total_norm` returns it.

    Raises:
        TypeError, ValueError: as :func:`get_total_norm`, or ``max_norm`` is negative or NaN.
        RuntimeError: as there, or the norm is not finite and ``error_if_nonfinite`` is true.

    Examples:
        >>> import torch, fastseed
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> weight.grad = torch.tensor([3.0, 4.0])
        >>> fastseed.elastic.clip_grad_norm_([weight], 1.0)
        tensor(5.)
    """
    name = "elastic.clip_grad_norm_"
    ranks = check_group(name, group)
    problem: Exception | None = None
    try:
        error_if_nonfinite = validation.check_bool(name, "error_if_nonfinite", error_if_nonfinite)
        if not (isinstance(max_norm, float) and max_norm == math.inf):
            max_norm = validation.check_float(name, "max_norm", max_norm, 0, math.inf)
    except (TypeError, ValueError) as error:
        problem = error
    parts, device, wrong = _read(name, "parameters", parameters)
    norm, dtype = _norm(name, parts, ranks, problem or wrong)
    if error_if_nonfinite and not math.isfinite(norm):
        raise RuntimeError(
            f"fastseed.{name}: the norm must be finite, got {norm}; call it with "
            "error_if_nonfinite=False to scale the gradients all the same"
        )
    scale = max_norm / (norm + _EPSILON)
    if max_norm != math.inf and not scale >= 1.0:  # also NaN
        _scale(list(itertools.chain.from_iterable(parts.values())), scale)
    return torch.tensor(norm, dtype=dtype, device=device)


@torch.no_grad()
def _scale(gradients: list[torch.Tensor], scale: float) -> None:
    """Multiply gradients by ``scale`` in float64 or float32, and round them once."""
    for dtype in {gradient.dtype for gradient in gradients}:
        alike = [gradient for gradient in gradients if gradient.dtype == dtype]
        if dtype.itemsize > 2:
            private_torch.multiply_(alike, scale)
        else:  # on the CPU, kernels of 16 bits round the factor first
            for gradient in alike:
                gradient.copy_(gradient.float().mul_(scale))


def get_total_norm(
    tensors: torch.Tensor | Iterable[torch.Tensor],
    *,
    group: dist.ProcessGroup | DeviceMesh | None = None,
) -> torch.Tensor:
    """Return the 2-norm of all elements of all tensors, correctly rounded.

    The sum of squares is exact and its root is rounded once, so the norm depends on the elements
    alone, not on their order or layout. All ranks of a mesh have to call it with the same tensors.

    Args:
        tensors: tensors or one of them. A ``DTensor`` counts once: the ranks along the mesh
            dimensions that shard it add their parts, those along the others have the same. Other
            tensors are taken to be the same on every rank, as the gradients of a replicated model.
        group: the ranks whose tensors that are no ``DTensor`` are parts of the whole, which are
            added: a process group or a mesh of one dimension. None: every rank has all of each.

    Returns:
        A tensor without dimensions on the device of the first one: float64 if one of them is
        float64, else float32. It is NaN where an element is NaN, else infinity where one is
        infinite or the norm is beyond the largest number. 0 without elements.

    Raises:
        TypeError, ValueError: one of them is no tensor, not of a real dtype, sparse, or a DTensor
            of partial sums.
        RuntimeError: another rank has such an error, ended, or did not answer in time; with its
            name.

    Examples:
        >>> import torch, fastseed
        >>> fastseed.elastic.get_total_norm([torch.tensor([2.0, 3.0]), torch.tensor(6.0)])
        tensor(7.)
    """
    name = "elastic.get_total_norm"
    ranks = check_group(name, group)
    parts, device, problem = _read(name, "tensors", tensors)
    norm, dtype = _norm(name, parts, ranks, problem)
    return torch.tensor(norm, dtype=dtype, device=device)


# (the mesh of a tensor, the mesh dimensions that shard it); None without a mesh
_Cut: TypeAlias = "tuple[DeviceMesh, tuple[int, ...]] | None"
_Parts: TypeAlias = dict[_Cut, list[torch.Tensor]]


@torch.no_grad()
def _read(
    name: str, argument: str, given: torch.Tensor | Iterable[object]
) -> tuple[_Parts, torch.device, Exception | None]:
    """Return this rank's parts by the ranks that share them, the first device, and an error.

    A tensor with an error adds nothing, but its ranks are there: other ranks wait for this one.
    """
    parts: _Parts = {}
    device: torch.device | None = None
    problem: Exception | None = None
    try:
        listed = [given] if isinstance(given, torch.Tensor) else list(given)
    except TypeError:
        error = validation.type_error(name, argument, "tensors or a tensor", given)
        return parts, torch.device("cpu"), error
    has_gradients = argument == "parameters"
    for i, value in enumerate(listed):
        label = f"{argument}[{i}]"
        try:
            given = validation.check_instance(name, label, value, torch.Tensor, "a tensor")
            tensor = given.grad if has_gradients else given
            if tensor is None:
                continue
            device = device or tensor.device
            if tensors.is_whole(tensor) and tensor.dtype in REALS:  # as nearly all are
                parts.setdefault(None, []).append(tensor)
                continue
            if has_gradients:
                label += ".grad"
                tensors.check_writable(name, label, layout.local_part(tensor))
            _add(name, label, tensor, parts)
        except (TypeError, ValueError) as error:
            problem = problem or error
    return parts, device or torch.device("cpu"), problem


def _add(name: str, label: str, tensor: torch.Tensor, parts: _Parts) -> None:
    cut: _Cut = None
    local = tensor
    if layout.is_dtensor(tensor):
        places = enumerate(tensor.placements)
        sharded = tuple(d for d, placement in places if not placement.is_replicate())
        cut, local = (tensor.device_mesh, sharded), tensor.to_local()
    part = parts.setdefault(cut, [])
    if layout.is_dtensor(tensor) and any(p.is_partial() for p in tensor.placements):
        rule = "without partial sums (see DTensor.redistribute)"
        raise validation.value_error(name, label, rule, tensor.placements)
    tensors.check_dtype(name, label, local, *REALS)
    tensors.check_dense(name, label, local)
    tensors.check_data(name, label, local)
    part.append(local.detach())


def _norm(
    name: str, parts: _Parts, group: dist.ProcessGroup | None, problem: Exception | None
) -> tuple[float, torch.dtype]:
    """Return the norm of the parts of all ranks, and its dtype; raise where one has a problem."""
    if group is not None:  # also a rank without tensors adds its 0
        parts = {None: [], **parts}
    found = []
    for cut, local in parts.items():
        total = sums.accumulate(local, local)
        sums.mark(total, problem)
        if cut is not None:
            for dim in cut[1]:
                total = sums.all_reduce(name, total, cut[0].get_group(dim))
        elif group is not None:
            total = sums.all_reduce(name, total, group)
        found.append(sums.read(total))
    sums.check(name, found, problem)
    dtype = sums.dtype_of(found)
    special = [total.special for total in found if total.special is not None]
    if special:
        return sum(special), dtype
    return sums.square_root(sum(t.finite for t in found), sums.EXPONENT, dtype), dtype

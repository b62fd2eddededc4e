"""Keys and seeds of many streams, and scopes, as tensors on any device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from .._backend import derive, native, tensors
from .._backend.compile import refuse_capture
from .._backend.reference import scalar
from .._utils import validation
from ..derivation.scopes import MAX_INDEX, MAX_MEMBERS
from ..derivation.streams import Stream


def members(
    function: str,
    operator: Callable[..., None],
    stream: Stream,
    start: int,
    shape: tuple[int, ...],
    out: torch.Tensor | None,
    device: torch.device | str | None,
) -> torch.Tensor:
    """Return what ``operator`` writes for members ``start`` on, shape[0] of them."""
    start = validation.check_int(function, "start", start, 0, MAX_INDEX)
    n = validation.check_int(function, "n", shape[0], 0, min(MAX_MEMBERS, MAX_INDEX + 1 - start))
    shape = (n, *shape[1:])
    if out is None and device is None:  # nearly every call
        target = derive.empty_words(*shape)
        derive.fill(operator, target, stream.name_key, stream.rank_field, stream.worker, start)
        return target
    place = _device_of(function, out, shape, device)
    on_cuda = place.type == "cuda" and native.has_cuda
    if out is not None and out.is_contiguous() and (on_cuda or place.type == "cpu"):
        target = out
    elif on_cuda:
        target = torch.empty(shape, dtype=torch.uint64, device=place)
    else:
        target = derive.empty_words(*shape)
    derive.fill(operator, target, stream.name_key, stream.rank_field, stream.worker, start)
    if out is None:
        return target.to(place)
    return out if target is out else out.copy_(target)


def scope(
    function: str,
    words: scalar.ScopeKey,
    out: torch.Tensor | None,
    device: torch.device | str | None,
) -> torch.Tensor:
    """Return key and tweak of a scope as a tensor."""
    target = _device_of(function, out, (2,), device)
    refuse_capture(function, target, "call it between replays, with out=")
    found = torch.from_numpy(np.array(words, np.uint64))
    return found.to(target) if out is None else out.copy_(found)


def _device_of(
    function: str,
    out: torch.Tensor | None,
    shape: tuple[int, ...],
    device: torch.device | str | None,
) -> torch.device:
    """Return the device of the result; TypeError or ValueError if ``out`` does not fit."""
    where = tensors.check_device(function, device)
    if out is None:
        return tensors.check_available(function, "device", where)
    wanted = None if device is None else where
    return tensors.check_out(function, "out", out, shape, torch.uint64, wanted).device

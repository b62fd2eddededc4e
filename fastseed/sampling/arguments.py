"""Checks of the arguments of ``fastseed.sampling``, and the tensors made from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._backend import tensors
from .._backend.ops import keys as ops
from .._backend.ops.sampling import NUMBERS
from .._backend.reference.scalar import signed
from .._utils import validation
from ..derivation import streams

_SEEDS_NAME = tuple(map(signed, streams.name_words("sampling")))

Keys = torch.Tensor | Sequence[int | None] | None
MAX_TOKENS = 2**24
MAX_POSITION = 2**56 - 1


def check_numbers(function: str, argument: str, value: object, dims: int) -> torch.Tensor:
    """Return logits with consecutive tokens."""
    value = tensors.check_dtype(function, argument, value, *NUMBERS)
    tensors.check_dense(function, argument, value)
    if value.dim() != dims or value.size(-1) == 0:
        rule = f"of shape {'(B, V)' if dims == 2 else '(B, K, V)'}, V at least 1"
        raise validation.value_error(function, argument, rule, tuple(value.shape))
    if value.size(-1) > MAX_TOKENS:
        raise validation.value_error(function, argument, "of at most 2**24 tokens", value.size(-1))
    tensors.check_supported(function, argument, value.device)
    found = value.detach()
    return found if found.stride(-1) == 1 or found.size(-1) == 1 else found.contiguous()


def check_keys(function: str, keys: Keys, rows: int, device: torch.device) -> torch.Tensor:
    """Return one key a row, (rows, 2) uint64; seeds become keys, and None is an unseeded row."""
    if keys is None:
        return _fresh_keys(rows, device)
    if isinstance(keys, torch.Tensor) and keys.dtype == torch.uint64 and keys.dim() == 2:
        tensors.check_tensor(function, "keys", keys, torch.uint64, (rows, 2), device)
        return keys.contiguous()
    unseeded: list[bool] = []
    if isinstance(keys, (list, tuple)):
        unseeded = [key is None for key in keys]
        keys = [0 if key is None else key for key in keys]
    seeds = tensors.as_int64(function, "keys", keys, rows, -(2**63), 2**64 - 1, device)
    seeds = seeds.to(device).view(torch.uint64)
    found = seeds.new_empty(rows, 2)
    unused = seeds.new_empty(rows, dtype=torch.int64)
    ops.reseed_streams_from(found, unused, seeds, None, *_SEEDS_NAME)
    if not any(unseeded):
        return found
    mask = torch.tensor(unseeded).view(-1, 1).to(device)
    fresh = _fresh_keys(rows, device).view(torch.int64)
    return torch.where(mask, fresh, found.view(torch.int64)).view(torch.uint64)


def _fresh_keys(rows: int, device: torch.device) -> torch.Tensor:
    words = torch.randint(-(2**63), 2**63 - 1, (rows, 2), device=device)
    return words.view(torch.uint64)


def check_positions(
    function: str, positions: object, rows: int, device: torch.device, following: int = 0
) -> torch.Tensor:
    """Return one position a row, contiguous int64, with room for ``following`` positions."""
    last = MAX_POSITION - following
    if not isinstance(positions, torch.Tensor):
        number = validation.check_int(function, "positions", positions, 0, last)
        return torch.full((rows,), number, dtype=torch.int64, device=device)
    tensors.check_tensor(function, "positions", positions, torch.int64, (rows,), device)
    tensors.check_values(function, "positions", positions, last)
    return positions.contiguous()


_PARAMETERS: dict[str, tuple[torch.dtype, Callable[[Any], Any], str]] = {
    "temperature": (
        torch.float64,
        lambda t: (t == 0) | ((t >= 2.0**-20) & (t <= 2.0**20)),
        "0 or in [2**-20, 2**20]",
    ),
    "top_k": (torch.int64, lambda k: k >= 0, "0 (off) or more"),
    "top_p": (torch.float64, lambda p: (p > 0) & (p <= 1), "in (0, 1]"),
    "min_p": (torch.float64, lambda p: (p >= 0) & (p <= 1), "in [0, 1]"),
}
"""Parameters of sampling: dtype, what is valid, the rule in words."""


def check_parameter(
    function: str, argument: str, value: object, logits: torch.Tensor
) -> torch.Tensor:
    """Return a number, or one a row, as (B,); values on a device are not read."""
    dtype, is_valid, rule = _PARAMETERS[argument]
    rows, device = logits.size(0), logits.device
    if not isinstance(value, torch.Tensor):
        check = validation.check_int if dtype == torch.int64 else validation.check_float
        try:
            number = check(function, argument, value, -(2**62), 2**62)
        except ValueError:
            if dtype == torch.int64:
                raise
            number = -1.0  # NaN, an infinity or far outside: the rule says more
        if not is_valid(number):
            raise validation.value_error(function, argument, rule, value)
        return torch.full((rows,), number, dtype=dtype, device=device)
    tensors.check_tensor(function, argument, value, value.dtype, (rows,), device)
    is_other = value.is_complex() or value.dtype == torch.bool
    if is_other or (dtype == torch.int64 and value.is_floating_point()):
        raise TypeError(f"fastseed.{function}: {argument} must be {dtype}, got {value.dtype}")
    found = value.to(dtype).contiguous()
    if tensors.is_readable(found) and not (valid := is_valid(found)).all():
        row = int((~valid).nonzero()[0])
        raise validation.value_error(function, f"{argument}[{row}]", rule, found[row].item())
    return found

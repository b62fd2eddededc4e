"""The filters of sampling: the least code of a row that survives top-k, top-p and min-p.

``docs/spec/sampling.md`` specifies codes and masses. The search takes the digits of the threshold
one by one from histograms of integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from .._backend.ops.sampling import (
    BINS,
    DIGIT_BITS,
    DIGITS,
    INDEX_BITS,
    LEAST_CODE,
    sampling_histogram,
)
from . import arguments

Numbers = float | torch.Tensor
Integers = int | torch.Tensor
Filters = list[torch.Tensor | None]
"""Checked top_k, top_p and min_p, one number a row; None: off for all rows."""


class Rows(NamedTuple):
    """Checked logits, and a temperature for each row."""

    logits: torch.Tensor
    temperature: torch.Tensor

    def greatest(self) -> torch.Tensor:
        """Return the greatest logit of each row, (B,) float32."""
        return self.logits.amax(1).float()

    def histogram(
        self, floor: torch.Tensor, prefix: torch.Tensor, digit: int, greatest: torch.Tensor | None
    ) -> torch.Tensor:
        """Return counts (masses where ``greatest`` is given) by digit of the codes, (B, 4096)."""
        out = floor.new_empty(floor.size(0), BINS)
        sampling_histogram(out, self.logits, floor, prefix, greatest, self.temperature, digit, 0)
        return out


def check_filters(
    function: str, top_k: Integers, top_p: Numbers, min_p: Numbers, logits: torch.Tensor
) -> Filters:
    """Return the filters that are not off for all rows."""
    found: Filters = []
    for argument, value, off in (("top_k", top_k, 0), ("top_p", top_p, 1), ("min_p", min_p, 0)):
        checked = arguments.check_parameter(function, argument, value, logits)
        is_off = not isinstance(value, torch.Tensor) and value == off
        found.append(None if is_off else checked)
    return found


def threshold_of(rows: Rows, filters: Filters) -> torch.Tensor:
    """Return the least surviving code of each row."""
    top_k, top_p, min_p = filters
    floor = rows.temperature.new_full((rows.logits.size(0),), LEAST_CODE, dtype=torch.int64)
    if min_p is not None:
        least = _least_code(rows.greatest(), rows.temperature, min_p)
        floor = torch.where(min_p > 0, least.clamp(min=LEAST_CODE), floor)
    if top_k is not None:
        found = _search(rows, floor, None, lambda total: top_k)
        floor = torch.where(top_k > 0, found, floor)
    if top_p is not None:
        found = _search(rows, floor, rows.greatest(), lambda total: (top_p * total).ceil().long())
        floor = torch.where(top_p < 1, found, floor)
    return floor


def _least_code(
    greatest: torch.Tensor, temperature: torch.Tensor, min_p: torch.Tensor
) -> torch.Tensor:
    """Return the code of the least logit that min_p keeps, and of the highest token."""
    distance = (-min_p.log()).float().double()
    limit = greatest.double() - temperature * distance
    logit = limit.float()
    above = torch.nextafter(logit, torch.full_like(logit, torch.inf))
    logit = torch.where(logit.double() < limit, above, logit)
    bits = torch.where(logit == 0, 0.0, logit).view(torch.int32).long()
    order = torch.where(bits < 0, ~bits, bits + 2**31)
    return order << INDEX_BITS


def _search(
    rows: Rows,
    floor: torch.Tensor,
    greatest: torch.Tensor | None,
    needed: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Return the greatest code from which on there are ``needed`` codes, or masses, of all."""
    prefix = torch.zeros_like(floor)
    missing = total = prefix
    for digit in reversed(range(DIGITS)):
        values = rows.histogram(floor, prefix, digit, greatest).flip(1)
        sums = values.cumsum(1)
        if digit == DIGITS - 1:
            total = sums[:, -1]
            missing = torch.minimum(needed(total.double()).clamp(min=1), total)
        at = (sums < missing[:, None]).sum(1, keepdim=True).clamp(max=BINS - 1)
        missing = missing - (sums.gather(1, at) - values.gather(1, at)).squeeze(1)
        prefix = (prefix << DIGIT_BITS) + (BINS - 1 - at.squeeze(1))
    return torch.where(total > 0, prefix, floor)

"""The filters of sampling: the least code of a row that survives top-k, top-p and min-p.

``docs/spec/sampling.md`` specifies codes and masses.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .._backend.ops.sampling import INDEX_BITS, LEAST_CODE, sampling_threshold
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
        return self.logits.amax(1).float()

    def threshold(
        self, floor: torch.Tensor, wanted: torch.Tensor, greatest: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the code from which on there are ``wanted`` codes, or that share of masses."""
        out = torch.empty_like(floor)
        sampling_threshold(out, self.logits, floor, wanted, greatest, self.temperature, 0)
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
        floor = torch.where(top_k > 0, rows.threshold(floor, top_k.double(), None), floor)
    if top_p is not None:
        floor = torch.where(top_p < 1, rows.threshold(floor, top_p, rows.greatest()), floor)
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

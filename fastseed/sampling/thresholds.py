"""The filters of sampling: the least code of a row that survives top-k, top-p and min-p.

``docs/spec/sampling.md`` specifies codes and masses. The search takes the digits of the threshold
one by one from histograms of integers, whose sums over processes are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch

from .._backend.ops.sampling import (
    BINS,
    DIGIT_BITS,
    DIGITS,
    INDEX_BITS,
    LEAST_CODE,
    sampling_histogram,
)
from .._utils import validation
from . import arguments

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Numbers = float | torch.Tensor
Integers = int | torch.Tensor


class Filters(NamedTuple):
    """Checked filters, one number a row; None: off for all rows."""

    top_k: torch.Tensor | None
    top_p: torch.Tensor | None
    min_p: torch.Tensor | None


class Rows(NamedTuple):
    """Rows of logits, or this process's part of them."""

    logits: torch.Tensor
    temperature: torch.Tensor
    first: int  # the token of the first column
    group: ProcessGroup | None

    def summed(self, values: torch.Tensor, greatest: bool = False) -> torch.Tensor:
        """Return the sum, or the maximum, over the processes that hold the parts."""
        if self.group is not None:
            from torch import distributed

            from ..distributed.rendezvous import collective

            operation = distributed.ReduceOp.MAX if greatest else distributed.ReduceOp.SUM
            function = "sampling.find_threshold"
            collective(function, distributed.all_reduce, values, operation, group=self.group)
        return values

    def greatest(self) -> torch.Tensor:
        """Return the greatest logit of each row, (B,) float32."""
        return self.summed(self.logits.amax(1).float(), greatest=True)

    def histogram(
        self, floor: torch.Tensor, prefix: torch.Tensor, digit: int, greatest: torch.Tensor | None
    ) -> torch.Tensor:
        """Return counts (masses where ``greatest`` is given) by digit of the codes, (B, 4096)."""
        out = floor.new_empty(floor.size(0), BINS)
        sampling_histogram(
            out, self.logits, floor, prefix, greatest, self.temperature, digit, self.first
        )
        return self.summed(out)


def find_threshold(
    logits: torch.Tensor,
    *,
    temperature: Numbers = 1.0,
    top_k: Integers = 0,
    top_p: Numbers = 1.0,
    min_p: Numbers = 0.0,
    vocab_offset: int = 0,
    group: ProcessGroup | None = None,
) -> torch.Tensor:
    """Return the codes from which on the tokens of each row survive the filters.

    It is the first phase of sampling from a vocabulary that is split over processes; ``sample``
    with ``threshold=`` and ``merge`` follow. Every process of ``group`` calls it. Temperature and
    filters are as for ``sample``.

    Args:
        logits: (B, V), this process's part of the vocabulary.
        vocab_offset: the token of the first column.
        group: the processes that hold the parts. Default: this one holds all.

    Returns:
        (B,) torch.int64, on the device of the logits, equal on all processes.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: processes of the group did not take part.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[1.0, 3.0, 2.0]])
        >>> threshold = fastseed.sampling.find_threshold(logits, top_k=1)
        >>> int(fastseed.sampling.sample(logits, [7], 0, threshold=threshold))
        1
    """
    function = "sampling.find_threshold"
    logits = arguments.check_numbers(function, "logits", logits, 2)
    first = arguments.check_vocabulary(function, vocab_offset, logits.size(1))
    temperatures = arguments.check_parameter(function, "temperature", temperature, logits)
    filters = check_filters(function, top_k, top_p, min_p, logits)
    if group is not None:
        from torch.distributed import ProcessGroup

        validation.check_instance(function, "group", group, ProcessGroup, "a ProcessGroup or None")
    return threshold_of(Rows(logits, temperatures, first, group), filters)


def check_filters(
    function: str, top_k: Integers, top_p: Numbers, min_p: Numbers, logits: torch.Tensor
) -> Filters:
    """Return the filters that are not off for all rows."""
    found: list[torch.Tensor | None] = []
    for argument, value, off in (("top_k", top_k, 0), ("top_p", top_p, 1), ("min_p", min_p, 0)):
        checked = arguments.check_parameter(function, argument, value, logits)
        is_off = not isinstance(value, torch.Tensor) and value == off
        found.append(None if is_off else checked)
    return Filters(*found)


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

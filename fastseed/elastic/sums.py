"""Sums over elements that are exact until they are rounded, on any number of ranks.

An accumulator is a row of int64 (``docs/spec/exact-sums.md``). Rows of ranks are added as integers,
so neither the order of the elements nor how they are cut over ranks changes a bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from .._backend import native, private_distributed
from .._backend.ops import exact as exact_op
from .._backend.reference import exact_sum as reference
from ..distributed import rendezvous

EXPONENT = -reference.FRACTION_BITS
"""An accumulator's integer is worth two to this power."""


class Total(NamedTuple):
    """The contents of an accumulator."""

    finite: int  # the sum of the finite values, times 2**2176
    special: float | None  # the sum of the others, NaN or an infinity
    values: int  # their number, of any kind
    wide: int  # the number of tensors of float64, of all ranks
    refusals: int  # how many ranks refused an argument
    refusing: int  # the sum of their numbers: the rank, where there is one


# behind an accumulator: how many tensors are of float64, how many ranks refused, and their sum
_WIDE, _REFUSALS, _REFUSING = range(exact_op.SIZE, exact_op.SIZE + 3)


def dtype_of(totals: Sequence[Total]) -> torch.dtype:
    """Return float64 if some rank added a tensor of it, else float32."""
    return torch.float64 if any(total.wide for total in totals) else torch.float32


def accumulate(
    tensors: Sequence[torch.Tensor], factors: Sequence[torch.Tensor] = ()
) -> torch.Tensor:
    """Return an accumulator of all elements, or of their products with ``factors``.

    It lies where the first tensor does. No tensor is copied to another device.
    """
    devices = list(dict.fromkeys(t.device for t in tensors)) or [torch.device("cpu")]
    parts = []
    for device in devices:
        has_operator = device.type == "cpu" or (device.type == "cuda" and native.has_cuda)
        here = [i for i, t in enumerate(tensors) if t.device == device]
        values = [tensors[i].contiguous() for i in here]
        others = values
        if factors is not tensors:
            others = [factors[i].to(device).contiguous() for i in here if factors]
        total = torch.zeros(_REFUSING + 1, dtype=torch.int64, device=device)
        total[_WIDE] = sum(t.dtype == torch.float64 for t in values)
        add = exact_op.exact_sum if has_operator else exact_op.in_torch
        add(total[: exact_op.SIZE], values, others)
        parts.append(total.to(devices[0]))
    return torch.stack(parts).sum(0)  # limbs are below 2**32: those of 2**30 devices and ranks


def mark(totals: torch.Tensor, problem: Exception | None) -> None:
    """Note that this rank refuses an argument; it takes part, so that no other rank waits."""
    if problem is not None and dist.is_available() and dist.is_initialized():
        totals[..., _REFUSALS], totals[..., _REFUSING] = 1, dist.get_rank()


def check(function: str, totals: Sequence[Total], problem: Exception | None) -> None:
    """Raise this rank's problem, or RuntimeError where another rank has one."""
    if problem is not None:
        raise problem
    for total in totals:
        if total.refusals:
            alone = total.refusals == 1
            who = rendezvous.name_ranks([total.refusing]) if alone else f"{total.refusals} ranks"
            raise RuntimeError(f"fastseed.{function}: {who} refused an argument: look there")


def all_reduce(
    function: str, totals: torch.Tensor, group: dist.ProcessGroup | None
) -> torch.Tensor:
    """Return the accumulators of all ranks of a group, added; RuntimeError names a dead rank."""
    types = private_distributed.device_types(group)
    if totals.device.type not in types:
        totals = totals.to(types[0])
    rendezvous.collective(function, dist.all_reduce, totals, group=group)
    return totals


def read(total: torch.Tensor) -> Total:
    """Return what an accumulator holds; waits for its device."""
    row = total.cpu().numpy()
    nan, positive, negative, *counts = row[reference.LIMBS :].tolist()
    special = None
    if nan or (positive and negative):
        special = math.nan
    elif positive or negative:
        special = math.inf if positive else -math.inf
    return Total(reference.to_integer(row), special, *counts)


# ---------------------------------------------------------------- quotients and roots
# Integers, rounded once: to nearest, ties to even (IEEE 754).


class _Format(NamedTuple):
    digits: int  # of a significand
    lowest: int  # exponent of the least positive number
    limit: int  # exponent of the first power of two that is too large


_FORMATS = {torch.float32: _Format(24, -149, 128), torch.float64: _Format(53, -1074, 1024)}
_ROOT_BITS = 2 * (53 + 2)  # whose root has two bits more than a float64


def nearest(numerator: int, denominator: int, exponent: int, dtype: torch.dtype) -> float:
    """Return numerator / denominator * 2**exponent, rounded to float32 or float64.

    The denominator is positive. A numerator of 0 gives +0; what is too large gives an infinity.
    """
    digits, lowest, limit = _FORMATS[dtype]
    size = abs(numerator).bit_length() - denominator.bit_length() + exponent
    # the quotient is in [2**(size - 1), 2**(size + 1)): its last digit has one of two places
    for place in (max(size - digits, lowest), max(size - digits + 1, lowest)):
        shift = place - exponent
        scaled = denominator << max(shift, 0)
        whole, rest = divmod(abs(numerator) << max(-shift, 0), scaled)
        if whole.bit_length() <= digits:
            break
    whole += 2 * rest > scaled or (2 * rest == scaled and whole % 2 == 1)
    found = math.inf if whole.bit_length() + place > limit else math.ldexp(whole, place)
    return -found if numerator < 0 else found


def square_root(number: int, exponent: int, dtype: torch.dtype) -> float:
    """Return the root of number * 2**exponent, rounded to float32 or float64; exponent is even."""
    drop = (number.bit_length() - _ROOT_BITS) // 2 * 2
    kept = number >> drop if drop > 0 else number << -drop
    root = math.isqrt(kept)
    # one more bit says whether the root is greater than its digits
    inexact = root * root != kept or (drop > 0 and kept << drop != number)
    return nearest(2 * root + inexact, 1, (exponent + drop) // 2 - 1, dtype)

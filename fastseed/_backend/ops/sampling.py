"""The operators that choose tokens: ``torch.ops.fastseed.sampling_race`` and another."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference import sampling
from .register import operator

NUMBERS = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes of logits."""

INDEX_BITS = sampling.INDEX_BITS
LEAST_CODE = sampling.LEAST_CODE


@operator(
    "(Tensor(a0!) scores, Tensor(a1!) tokens, Tensor numbers, Tensor keys, Tensor positions, "
    "Tensor temperature, Tensor threshold, int first) -> ()"
)
def sampling_race(
    scores: Tensor, tokens: Tensor, numbers: Tensor, keys: Tensor, positions: Tensor,
    temperature: Tensor, threshold: Tensor, first: int,
) -> None:  # fmt: skip
    """Write score and token of the winner of each part of each row of logits, (B, parts)."""
    parts = scores.size(1)
    size = -(-numbers.size(1) // parts)
    for row, values in enumerate(numbers.float().numpy()):
        lo, hi = keys[row].tolist()
        for part in range(parts):
            scores[row, part], tokens[row, part] = sampling.winner(
                values[part * size : (part + 1) * size], (lo, hi), int(positions[row]),
                float(temperature[row]), int(threshold[row]), first + part * size,
            )  # fmt: skip


@operator(
    "(Tensor(a0!) out, Tensor numbers, Tensor floor, Tensor wanted, Tensor? greatest, Tensor "
    "temperature, int first) -> ()"
)
def sampling_threshold(
    out: Tensor, numbers: Tensor, floor: Tensor, wanted: Tensor, greatest: Tensor | None,
    temperature: Tensor, first: int,
) -> None:  # fmt: skip
    """Write the greatest code of each row from which on there are ``wanted`` codes, (B,).

    With ``greatest`` that share of all masses. Codes below ``floor`` do not count.
    """
    for row, values in enumerate(numbers.float().numpy()):
        masses = None
        if greatest is not None:
            masses = sampling.token_masses(values, greatest[row].numpy(), float(temperature[row]))
        out[row] = sampling.threshold(values, int(floor[row]), float(wanted[row]), first, masses)

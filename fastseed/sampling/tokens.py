"""Tokens from logits: functions of (key, position), whatever else is in the batch."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .._backend import tensors
from .._backend.ops.sampling import sampling_race
from .._utils import validation
from ..random import bank
from ..random.bank import Streams
from . import arguments, thresholds
from .arguments import Keys
from .thresholds import Integers, Numbers, Rows

_NEVER = 2**62  # above every token


def sample(
    logits: torch.Tensor,
    keys: Keys | Streams,
    positions: torch.Tensor | int | None = None,
    *,
    temperature: Numbers = 1.0,
    top_k: Integers = 0,
    top_p: Numbers = 1.0,
    min_p: Numbers = 0.0,
) -> torch.Tensor:
    """Sample one token for each row of logits, independently of the rest of the batch.

    The token of a row is a function of its logits, key and position. Filters are applied after the
    temperature: min_p, top_k, top_p; of equal logits, the lower token survives.

    Args:
        logits: (B, V) float32, bfloat16 or float16, on the CPU or a CUDA device; V at most 2**24.
        keys: a key a row, (B, 2) torch.uint64 as ``fastseed.derive_keys`` returns them; or a seed
            a row, (B,) as ``fastseed.derive_seeds`` returns them or integers of [-2**63, 2**64).
            Rows whose seed is None take their key from torch's default generator; None: all rows
            do. Or a ``fastseed.random.StreamBank`` of B streams, or ``bank[rows]``: it has keys and
            positions, and moves on by one; rows outside of a mask have token 0.
        positions: the index of the token in its request, (B,) torch.int64 of [0, 2**56); None for a
            bank. This and the next four may be one number for all rows.
        temperature: 0 (greedy: the greatest logit) or in [2**-20, 2**20], (B,).
        top_k: how many of the greatest logits survive, 0 for all, (B,) integers.
        top_p: the share of the probability that survives, in (0, 1], (B,).
        min_p: the least probability that survives, relative to the greatest, in [0, 1], (B,).

    Returns:
        The tokens, (B,) torch.int64. A row without a token (all logits -inf, or one NaN or +inf)
        has token -1 where it is no error: on a CUDA device and in compiled code.

    Raises:
        TypeError, ValueError: an argument is invalid, or a row on the CPU has no token. Values of
            CUDA tensors are not checked.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
        >>> fastseed.sampling.sample(logits, keys=[7, 8], positions=0)
        tensor([1, 0])
    """
    function = "sampling.sample"
    logits = arguments.check_numbers(function, "logits", logits, 2)
    n, device = logits.size(0), logits.device
    temperatures = arguments.check_parameter(function, "temperature", temperature, logits)
    filters = thresholds.check_filters(function, top_k, top_p, min_p, logits)
    streams: Streams | None = None
    with bank.locked(keys):
        if isinstance(keys, bank.STREAMS):
            if positions is not None:
                rule = "None with a StreamBank (or give bank.keys)"
                raise validation.value_error(function, "positions", rule, positions)
            streams = keys
            keys, positions = bank.begin(function, streams)
            tensors.check_tensor(function, "keys", keys, torch.uint64, (n, 2), device)
        row_positions = arguments.check_positions(function, positions, n, device)
        row_keys = arguments.check_keys(function, keys, n, device)
        rows = Rows(logits, temperatures)
        threshold = thresholds.threshold_of(rows, filters)
        tokens = _race(rows, row_keys, row_positions, threshold)
        if streams is not None:
            bank.zero_others(streams, tokens)
        _check_tokens(function, "logits", tokens)
        if streams is not None:  # last: after an error the bank is where it was
            bank.move(streams, row_positions, 1)
    return tokens


class Verified(NamedTuple):
    """The result of ``accept_equal``."""

    tokens: torch.Tensor  # (B, K + 1): the accepted ones, the one that follows them, then -1
    accepted: torch.Tensor  # (B,): how many drafted tokens were accepted


def accept_equal(
    draft_tokens: torch.Tensor,
    target_logits: torch.Tensor,
    keys: Keys,
    positions: torch.Tensor | int,
    *,
    temperature: Numbers = 1.0,
    top_k: Integers = 0,
    top_p: Numbers = 1.0,
    min_p: Numbers = 0.0,
) -> Verified:
    """Sample the tokens of the target model, and accept drafted tokens that are equal to them.

    The tokens are those that ``sample`` chooses from the target's logits one after another: the
    same with and without drafts, for any draft model. ``sample`` describes the other arguments.

    Args:
        draft_tokens: (B, K) torch.int64, of ``sample(draft_logits, keys, positions)``.
        target_logits: (B, K + 1, V) float32, bfloat16 or float16; the last row is that of the token
            behind the drafted ones.
        keys: as for ``sample``, with a key or a seed for every row; no bank.
        positions: (B,) torch.int64 of [0, 2**56 - K), the position of each row's first drafted
            token; or an integer.

    Returns:
        A tuple of ``tokens``, (B, K + 1) torch.int64: the accepted ones, the one that follows them,
        then -1; and ``accepted``, (B,): how many drafted tokens were accepted.

    Raises:
        TypeError, ValueError: as ``sample``.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]])
        >>> drafted = fastseed.sampling.sample(logits[:, 0], [7], 0)[:, None]
        >>> fastseed.sampling.accept_equal(drafted, logits, [7], 0)
        Verified(tokens=tensor([[1, 1]]), accepted=tensor([1]))
    """
    function = "sampling.accept_equal"
    logits = arguments.check_numbers(function, "target_logits", target_logits, 3)
    n, each, size = logits.shape
    device = logits.device
    if each == 0:
        rule = "of shape (B, K + 1, V), K at least 0"
        raise validation.value_error(function, "target_logits", rule, tuple(logits.shape))
    tensors.check_tensor(function, "draft_tokens", draft_tokens, torch.int64, (n, each - 1), device)
    tensors.check_values(function, "draft_tokens", draft_tokens, size - 1)
    temperatures = arguments.check_parameter(function, "temperature", temperature, logits)
    filters = thresholds.check_filters(function, top_k, top_p, min_p, logits)
    first = arguments.check_positions(function, positions, n, device, following=each - 1)
    if keys is None or (isinstance(keys, (list, tuple)) and None in keys):
        rule = "given for every row, since drafts are accepted if they have the same noise"
        raise validation.value_error(function, "keys", rule, keys)
    row_keys = arguments.check_keys(function, keys, n, device)

    rows = Rows(logits.flatten(0, 1), temperatures.repeat_interleave(each))
    repeated = [None if f is None else f.repeat_interleave(each) for f in filters]
    threshold = thresholds.threshold_of(rows, repeated)
    row_keys = row_keys.view(torch.int64).repeat_interleave(each, 0).view(torch.uint64)
    columns = torch.arange(each, device=device)
    row_positions = (first[:, None] + columns).view(-1)
    tokens = _race(rows, row_keys, row_positions, threshold)
    _check_tokens(function, "target_logits", tokens)
    tokens = tokens.view(n, each)
    accepted = (tokens[:, :-1] == draft_tokens).long().cumprod(1).sum(1)
    return Verified(tokens.masked_fill(columns > accepted[:, None], -1), accepted)


def _race(
    rows: Rows, keys: torch.Tensor, positions: torch.Tensor, threshold: torch.Tensor
) -> torch.Tensor:
    """Return the winners of checked rows; -1 where a row has none."""
    logits, temperatures = rows.logits, rows.temperature
    n, size = logits.shape
    # For a second thread on the CPU; for enough warps on a CUDA device.
    part = 2**12 if logits.device.type == "cuda" else 2**15
    parts = (size + part - 1) // part
    scores = temperatures.new_empty((n, parts))
    tokens = positions.new_empty((n, parts))
    sampling_race(scores, tokens, logits, keys, positions, temperatures, threshold, 0)
    if parts == 1:
        return tokens.squeeze(1)
    best = scores.amax(1, keepdim=True)  # NaN if one is
    found = torch.where(scores == best, tokens, _NEVER).amin(1)
    return torch.where(found == _NEVER, -1, found)


def _check_tokens(function: str, argument: str, tokens: torch.Tensor) -> None:
    """ValueError for a row without a token, unless that would wait for a device."""
    if tensors.is_readable(tokens) and bool((tokens < 0).any()):
        row = int((tokens < 0).nonzero()[0])
        raise ValueError(
            f"fastseed.{function}: {argument} must have a token to choose in every row, got row "
            f"{row} with NaN, with +inf, or without a finite number"
        )

"""Speculative decoding: which drafted tokens are accepted, and the token that follows them."""

from __future__ import annotations

from typing import NamedTuple

import torch

from .._backend import tensors
from .._utils import validation
from . import arguments, thresholds
from .arguments import Keys
from .thresholds import Filters, Integers, Numbers, Rows
from .tokens import check_tokens, race

_TARGET = arguments.ROLES["target"]
_ACCEPT, _RESIDUAL = arguments.ROLES["accept"], arguments.ROLES["residual"]


class Verified(NamedTuple):
    """The result of ``accept_equal`` and ``accept_or_resample``.

    Examples:
        >>> import torch
        >>> equal = torch.full((1, 2, 4), 0.25)
        >>> done = fastseed.sampling.accept_or_resample(
        ...     torch.tensor([[3]]), equal[:, :1], equal, [7], 0
        ... )
        >>> done.accepted
        tensor([1])
    """

    tokens: torch.Tensor
    """(B, K + 1) torch.int64: the accepted tokens, the one that follows them, then -1."""
    accepted: torch.Tensor
    """(B,) torch.int64: how many drafted tokens were accepted."""


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
    same with and without drafts, for any draft model. A draft model that samples from its own
    logits with the same keys, positions and role is accepted with a probability of at least
    (1 - d) / (1 + d), with d the total variation distance of the two distributions (Daliri, Musco,
    Suresh, "Coupling without Communication and Drafter-Invariant Speculative Decoding",
    arXiv:2408.07978).

    Args:
        draft_tokens: (B, K) torch.int64, the drafted tokens: of
            ``sample(draft_logits, keys, positions)``, or of anything else.
        target_logits: (B, K + 1, V) float32, bfloat16 or float16: the target model's, the last row
            being those of the token behind the drafted ones.
        keys: as for ``sample``, with a key or a seed for every row.
        positions: (B,) torch.int64 of [0, 2**56 - K), the position of each row's first drafted
            token; or an integer.
        temperature: as for ``sample``.
        top_k: as for ``sample``.
        top_p: as for ``sample``.
        min_p: as for ``sample``.

    Returns:
        Tokens and number of accepted ones of each row. On a CUDA device and in compiled code, the
        token of a row of logits without one is -1.

    Raises:
        TypeError, ValueError: an argument is invalid, or a row on the CPU has no token. Values of
            CUDA tensors are not checked.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]])
        >>> drafted = fastseed.sampling.sample(logits[:, 0], [7], 0)[:, None]
        >>> fastseed.sampling.accept_equal(drafted, logits, [7], 0)
        Verified(tokens=tensor([[1, 1]]), accepted=tensor([1]))
    """
    function = "sampling.accept_equal"
    logits = arguments.check_numbers(function, "target_logits", target_logits, 3)
    n, rows, size = logits.shape
    device = logits.device
    arguments.check_vocabulary(function, 0, size)
    if rows < 2:
        rule = "of shape (B, K + 1, V), K at least 1"
        raise validation.value_error(function, "target_logits", rule, tuple(logits.shape))
    tensors.check_tensor(function, "draft_tokens", draft_tokens, torch.int64, (n, rows - 1), device)
    tensors.check_values(function, "draft_tokens", draft_tokens, size - 1)
    heat = arguments.check_temperature(function, temperature, n, device)
    filters = thresholds.check_filters(function, top_k, top_p, min_p, logits)
    at = arguments.check_positions(function, positions, n, device, following=rows - 1)
    if keys is None or (isinstance(keys, (list, tuple)) and None in keys):
        rule = "given for every row, since drafts are accepted if they have the same noise"
        raise validation.value_error(function, "keys", rule, keys)
    own = arguments.check_keys(function, keys, n, device)

    each = [None if f is None else f.repeat_interleave(rows) for f in filters]
    flat = Rows(logits.flatten(0, 1), heat.repeat_interleave(rows), 0, None)
    threshold = thresholds.threshold_of(flat, Filters(*each)).contiguous()
    keys_each, at_each = _following(own, at, rows)
    _, tokens = race(flat.logits, keys_each, at_each, flat.temperature, threshold, _TARGET)
    check_tokens(function, "target_logits", tokens)
    tokens = tokens.view(n, rows)
    accepted = (tokens[:, :-1] == draft_tokens).long().cumprod(1).sum(1)
    behind = torch.arange(rows, device=device) > accepted[:, None]
    return Verified(tokens.masked_fill(behind, -1), accepted)


def accept_or_resample(
    draft_tokens: torch.Tensor,
    draft_probs: torch.Tensor,
    target_probs: torch.Tensor,
    keys: Keys,
    positions: torch.Tensor | int,
) -> Verified:
    """Accept drafted tokens, and sample the token that follows the accepted ones.

    More drafted tokens are accepted than by ``accept_equal``: a share of 1 - d, with d the total
    variation distance of the two distributions. But the tokens depend on the draft model, and
    differ from those without one.

    The result has the distribution of the target model if the drafted tokens were sampled from
    ``draft_probs`` with other random numbers than those used here: with ``role="draft"``. The rule
    is that of Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative
    Decoding", 2023.

    Args:
        draft_tokens: (B, K) torch.int64, the drafted tokens.
        draft_probs: (B, K, V) float32, bfloat16 or float16: the draft model's probabilities.
        target_probs: (B, K + 1, V): the target model's, the last row being those of the token
            behind the drafted ones.
        keys: as for ``sample``.
        positions: (B,) torch.int64 of [0, 2**56 - K), the position of each row's first drafted
            token; or an integer.

    Returns:
        Tokens and number of accepted ones of each row. The tokens of a row with invalid
        probabilities are -1 where that is not an error: on a CUDA device and in compiled code.

    Raises:
        TypeError, ValueError: an argument is invalid. Values of CUDA tensors are not checked.

    Examples:
        >>> import torch
        >>> draft, target = torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5])
        >>> fastseed.sampling.accept_or_resample(
        ...     torch.tensor([[0]]), draft.view(1, 1, 2), target.expand(1, 2, 2), [7], 0
        ... )
        Verified(tokens=tensor([[ 1, -1]]), accepted=tensor([0]))
    """
    function = "sampling.accept_or_resample"
    target_probs = arguments.check_numbers(function, "target_probs", target_probs, 3)
    n, k, size = target_probs.size(0), target_probs.size(1) - 1, target_probs.size(2)
    device = target_probs.device
    arguments.check_vocabulary(function, 0, size)
    draft_probs = arguments.check_numbers(function, "draft_probs", draft_probs, 3, device)
    if k < 1 or tuple(draft_probs.shape) != (n, k, size):
        rule = "(B, K, V) for target_probs of shape (B, K + 1, V), K at least 1"
        raise validation.value_error(function, "draft_probs", rule, tuple(draft_probs.shape))
    tensors.check_tensor(function, "draft_tokens", draft_tokens, torch.int64, (n, k), device)
    tensors.check_values(function, "draft_tokens", draft_tokens, size - 1)
    at = arguments.check_positions(function, positions, n, device, following=k)
    own = arguments.check_keys(function, keys, n, device)

    accepted = _accepted(draft_tokens, draft_probs, target_probs, own, at)
    weights = _weights_at(accepted, draft_probs, target_probs)
    zero = torch.zeros(n, dtype=torch.float64, device=device)
    _, following = race(weights, own, at + accepted, zero, None, _RESIDUAL, weights=True)
    check_tokens(function, "target_probs", following)
    columns = torch.arange(k + 1, device=device)
    drafted = torch.cat([draft_tokens, following[:, None]], 1)
    count = torch.where(following < 0, -1, accepted)[:, None]
    found = torch.where(columns < count, drafted, -1)
    return Verified(torch.where(columns == count, following[:, None], found), accepted)


def _accepted(
    draft_tokens: torch.Tensor,
    draft_probs: torch.Tensor,
    target_probs: torch.Tensor,
    keys: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """Return how many tokens of each row are accepted, (B,)."""
    n, k = draft_tokens.shape
    chosen = draft_tokens[:, :, None]
    target = target_probs[:, :k].gather(2, chosen).float()
    draft = draft_probs.gather(2, chosen).float()
    weights = torch.cat([target, (draft - target).clamp(min=0)], 2).view(n * k, 2)
    each, at = _following(keys, positions, k)
    zero = torch.zeros(n * k, dtype=torch.float64, device=positions.device)
    _, winners = race(weights, each, at, zero, None, _ACCEPT, weights=True)
    return (winners == 0).long().view(n, k).cumprod(1).sum(1)


def _following(
    keys: torch.Tensor, positions: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the keys and positions of ``count`` tokens of each row, from its position on."""
    each = keys.view(torch.int64).repeat_interleave(count, 0).view(torch.uint64)
    return each, (positions[:, None] + torch.arange(count, device=positions.device)).view(-1)


def _weights_at(
    accepted: torch.Tensor, draft_probs: torch.Tensor, target_probs: torch.Tensor
) -> torch.Tensor:
    """Return the weights of the token behind the accepted ones, (B, V) float32.

    Rounded probabilities may leave no residual: then the weights are those of the target.
    """
    n, k, size = draft_probs.shape
    at = accepted[:, None, None]
    target = target_probs.gather(1, at.expand(n, 1, size)).squeeze(1).float()
    draft = draft_probs.gather(1, at.clamp(max=k - 1).expand(n, 1, size)).squeeze(1).float()
    residual = (target - draft).clamp(min=0)
    some = ((residual > 0) | residual.isnan()).any(1, keepdim=True)
    return torch.where((accepted[:, None] < k) & some, residual, target)

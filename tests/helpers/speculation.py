"""Speculative decoding of a tiny target with five draft models, and the tables of docs/sampling.md.

    python -m helpers.speculation    # in tests/, a million tokens, prints the table

The models are tables of logits by the last two tokens, so that logits do not depend on the batch.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from fastseed.sampling import accept_equal, sample
from fastseed.sampling.tokens import Verified

V, CONTEXTS, DRAFTED = 64, 97, 4
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7, "top_k": 10},
    {"temperature": 1.3, "top_p": 0.9},
    {"min_p": 0.1},
    {"temperature": 0.9, "top_k": 30, "top_p": 0.95, "min_p": 0.02},
)

Model = Callable[[torch.Tensor], torch.Tensor]
"""Logits (..., V) of the last two tokens (..., 2)."""
Verify = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Verified]
"""Verified of drafted tokens, the target's logits and positions."""


def model(table: torch.Tensor) -> Model:
    return lambda last: table[(31 * last[..., 0] + last[..., 1]) % CONTEXTS]


def _normal(seed: int) -> torch.Tensor:
    return torch.randn(CONTEXTS, V, generator=torch.Generator().manual_seed(seed))


_TARGET = 2 * _normal(0)
TARGET = model(_TARGET)
DRAFTS = {
    "the target itself": TARGET,
    "close (logits + 0.25 z)": model(_TARGET + 0.25 * _normal(1)),
    "middling (logits + z)": model(_TARGET + _normal(2)),
    "sharper (1.5 logits)": model(1.5 * _TARGET),
    "unrelated": model(2 * _normal(3)),
}
"""Draft models by name; z is standard normal noise."""


def plain(keys: torch.Tensor, tokens: int, **setting: Any) -> torch.Tensor:
    """Return (B, tokens) sampled one after another."""
    found = torch.zeros(len(keys), 2 + tokens, dtype=torch.int64)
    for i in range(tokens):
        found[:, 2 + i] = sample(TARGET(found[:, i : i + 2]), keys, i, **setting)
    return found[:, 2:]


class Speculated(NamedTuple):
    tokens: torch.Tensor
    accepted: int
    tried: int
    """Drafted tokens up to the first that was rejected."""
    distance: float
    """The mean total variation distance of the models where a drafted token was tried."""


def speculate(
    draft: Model, keys: torch.Tensor, tokens: int, verify: Verify, **setting: Any
) -> Speculated:
    """Return (B, tokens) with ``DRAFTED`` drafted tokens before each verification."""
    n = len(keys)
    found = torch.zeros(n, 2 + tokens + DRAFTED + 1, dtype=torch.int64)
    length = torch.zeros(n, dtype=torch.int64)
    accepted = tried = 0
    distance = 0.0
    while bool((length < tokens).any()):
        at = length.clamp(max=tokens)
        history = found.gather(1, at[:, None] + torch.arange(2))
        own = []
        for i in range(DRAFTED):
            own.append(draft(history[:, i:]))
            new = sample(own[-1], keys, at + i, **setting)
            history = torch.cat([history, new[:, None]], 1)
        pairs = history.unfold(1, 2, 1)
        done = verify(history[:, 2:], TARGET(pairs), at)
        going = length < tokens
        count = torch.where(going, done.accepted, 0)
        attempts = torch.where(going, (done.accepted + 1).clamp(max=DRAFTED), 0)
        accepted, tried = accepted + int(count.sum()), tried + int(attempts.sum())
        p, q = TARGET(pairs[:, :-1]).softmax(-1), torch.stack(own, 1).softmax(-1)
        mask = torch.arange(DRAFTED) < attempts[:, None]
        distance += float(((p - q).abs().sum(-1) / 2 * mask).sum())
        columns = torch.arange(DRAFTED + 1)
        new = torch.where(done.tokens >= 0, done.tokens, 0)
        found.scatter_(1, 2 + at[:, None] + columns, new)
        length = torch.where(going, length + done.accepted + 1, length)
    return Speculated(found[:, 2 : 2 + tokens], accepted, tried, distance / tried)


def equal(draft: Model, keys: torch.Tensor, tokens: int, **setting: Any) -> Speculated:
    """Speculate with ``accept_equal``."""

    def verify(drafted: torch.Tensor, target: torch.Tensor, at: torch.Tensor) -> Verified:
        return accept_equal(drafted, target, keys, at, **setting)

    return speculate(draft, keys, tokens, verify, **setting)


def keys_of(rows: int) -> torch.Tensor:
    words = torch.arange(2 * rows, dtype=torch.int64) * 0x9E3779B97F4A7C15 % 2**62
    return words.view(rows, 2).view(torch.uint64)


def differing(
    rows: int, tokens: int, settings: Sequence[dict[str, Any]] = SETTINGS
) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield how many tokens differ from those without speculation, for each draft and setting."""
    keys = keys_of(rows)
    for setting in settings:
        alone = plain(keys, tokens, **setting)
        for name, draft in DRAFTS.items():
            found = equal(draft, keys, tokens, **setting).tokens
            yield name, setting, int((found != alone).sum())


def row(name: str, rows: int = 200, tokens: int = 200) -> str:
    """Return the table's row of a draft model."""
    keys = keys_of(rows)
    found = equal(DRAFTS[name], keys, tokens)
    d = found.distance
    shares = (d, (1 - d) / (1 + d), found.accepted / found.tried)
    same = float((found.tokens == plain(keys, tokens)).float().mean())
    cells = (name, *(f"{share:.3f}" for share in shares), f"{same:.1%}")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    torch.set_num_threads(1)
    ROWS, TOKENS = 200, 200
    counts = list(differing(ROWS, TOKENS))
    total = ROWS * TOKENS * len(counts)
    print(f"{total:,} tokens, {sum(count for *_, count in counts)} differ")
    for draft_name in DRAFTS:
        print(row(draft_name))

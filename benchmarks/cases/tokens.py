"""Tokens of a batch of requests, beside a generator for each request and torch's own sampling."""

from __future__ import annotations

import functools
from typing import Any

import torch

from fastseed.random import StreamBank
from fastseed.sampling import sample

from ..case import Case, Contest, Side, expect

ROWS, VOCABULARY = 64, 151_936
TOP_K, TOP_P = 50, 0.9
EACH = "a generator for each row"


def _by_generators(logits: torch.Tensor, generators: list[torch.Generator]) -> torch.Tensor:
    """Sample as vLLM does for requests with seeds."""
    probabilities = logits.softmax(-1, dtype=torch.float32)
    q = torch.empty_like(probabilities)
    for row, generator in zip(q, generators, strict=True):
        row.exponential_(generator=generator)
    return probabilities.div_(q).argmax(-1)


def _filtered(logits: torch.Tensor, k: int, p: float) -> torch.Tensor:
    """Apply top-k and top-p as vLLM does with torch alone: on sorted logits."""
    ordered, places = logits.sort(dim=-1)
    ordered.masked_fill_(ordered < ordered[:, -k : 1 - k or None][:, :1], -torch.inf)
    removed = ordered.softmax(-1).cumsum(-1) <= 1 - p
    removed[:, -1] = False
    ordered.masked_fill_(removed, -torch.inf)
    return ordered.scatter(-1, places, ordered)


def _names(device: str) -> dict[str, Any]:
    logits = torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0)) * 3
    bank = StreamBank(ROWS, "bank", device)
    bank.reseed_from_seeds(range(ROWS))
    return {
        "logits": logits.to(device), "keys": bank.keys, "sample": sample,
        "positions": torch.zeros(ROWS, dtype=torch.int64, device=device),
        "generators": [torch.Generator(device).manual_seed(i) for i in range(ROWS)],
        "by_generators": _by_generators, "filtered": _filtered, "torch": torch,
    }  # fmt: skip


def tokens(beside: dict[str, str], filters: dict[str, float], device: str) -> Contest:
    """Tokens of all rows; ``beside`` has the statement of each contender."""
    names = _names(device)
    given = "".join(f", {name}={value}" for name, value in filters.items())

    def survive(found: torch.Tensor) -> None:
        kept = _filtered(names["logits"], TOP_K, TOP_P) if filters else names["logits"]
        expect(bool(kept.gather(1, found.view(-1, 1)).isfinite().all()), "tokens that survive")

    def check(side: Side) -> None:
        found = side.run()
        alone = sample(names["logits"][5:6], names["keys"][5:6], 0, **filters)
        expect(found.shape == (ROWS,) and found[5] == alone[0], "the token of a row alone")
        survive(found)

    def ways(label: str) -> list[Side]:
        return [Side(label, beside[label], names)]

    side = Side("sample", f"sample(logits, keys, positions{given})", names)
    contenders = {label: functools.partial(ways, label) for label in beside}
    return Contest(side, check, contenders, lambda side: survive(side.run()))


def cases() -> list[Case]:
    """The rows of this module."""
    loop = "by_generators(logits, generators)"
    filtered = f"by_generators(filtered(logits, {TOP_K}, {TOP_P}), generators)"
    size, both = f"{ROWS}x{VOCABULARY}", ("cpu", "cuda")
    plain = {EACH: loop, "torch.multinomial": "torch.multinomial(logits.softmax(-1), 1)"}
    filters = {"top_k": TOP_K, "top_p": TOP_P}
    return [
        Case("sample", size, {EACH: 8, "torch.multinomial": None},
             functools.partial(tokens, plain, {}), devices=both),
        Case("sample_filtered", size, {f"torch's filters, {EACH}": 4},
             functools.partial(tokens, {f"torch's filters, {EACH}": filtered}, filters),
             devices=both),
    ]  # fmt: skip

"""Tokens of a batch of requests, beside a generator for each request and torch's own sampling."""

from __future__ import annotations

import functools

import torch

from fastseed.random import StreamBank
from fastseed.sampling import sample

from ..case import Case, Contest, Side, expect

ROWS, VOCABULARY = 64, 151_936
TOP_K, TOP_P = 50, 0.9


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


def _names() -> dict:
    logits = torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0)) * 3
    bank = StreamBank(ROWS, "bank")
    bank.reseed_from_seeds(range(ROWS))
    return {
        "logits": logits,
        "keys": bank.keys,
        "positions": torch.zeros(ROWS, dtype=torch.int64),
        "generators": [torch.Generator().manual_seed(i) for i in range(ROWS)],
        "sample": sample,
        "by_generators": _by_generators,
        "filtered": _filtered,
        "torch": torch,
    }


def _contest(call: str, baseline: str, label: str, filters: dict) -> Contest:
    names = _names()

    def check(contest: Contest) -> None:
        tokens = contest.fastseed.run()
        expect(tokens.shape == (ROWS,), "a token for each row")
        if "None" not in call:
            alone = sample(names["logits"][5:6], names["keys"][5:6], 0, **filters)
            expect(tokens[5] == alone[0], "the token of a row alone")
        kept = _filtered(names["logits"], TOP_K, TOP_P) if filters else names["logits"]
        expect(bool(kept.gather(1, tokens[:, None]).isfinite().all()), "tokens that survive")
        expect(contest.baselines[0].run().numel() == ROWS, "the baseline's tokens")

    return Contest(Side("sample", call, names), (Side(label, baseline, names),), check)


def cases() -> list[Case]:
    """The rows of this module."""
    loop = "a generator for each row"
    size = f"{ROWS}x{VOCABULARY}"
    given = f"top_k={TOP_K}, top_p={TOP_P}"
    filters = {"top_k": TOP_K, "top_p": TOP_P}
    rows = (
        ("sample", loop, 8, "sample(logits, keys, positions)",
         "by_generators(logits, generators)", {}),
        ("sample_filtered", f"torch's filters, {loop}", 4,
         f"sample(logits, keys, positions, {given})",
         f"by_generators(filtered(logits, {TOP_K}, {TOP_P}), generators)", filters),
        ("sample_unseeded", "torch.multinomial", 2, "sample(logits, None, positions)",
         "torch.multinomial(logits.softmax(-1), 1)", {}),
    )  # fmt: skip
    return [
        Case(f"{name}/cpu/{size}", label, target,
             functools.partial(_contest, call, baseline, label, more))
        for name, label, target, call, baseline, more in rows
    ]  # fmt: skip

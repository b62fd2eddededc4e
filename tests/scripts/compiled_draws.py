"""Draws and banks under ``torch.compile(fullgraph=True)``, beside eager; what did not agree."""

import json
import sys

import torch

import fastseed

REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
PARAMETERS = ((0.0, 1.0, 4), (0.1, 0.7, 5), (1, 2, 1))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
fastseed.init(42, rank=3, world_size=8)
KEYS = fastseed.derive_keys("draws", 3, task=1).to(DEVICE)
INDICES = torch.tensor([4, 0, 4], device=DEVICE)
MASK = torch.tensor([True, False, True, False, False], device=DEVICE)


def pure(keys, low, high, n):
    return (
        *(fastseed.random.uniform(keys, (n, 3), low=low, high=high, dtype=d) for d in REALS),
        *(fastseed.random.normal(keys, n, mean=low, std=high, dtype=d) for d in REALS),
        *(fastseed.random.exponential(keys[0], [2, n], rate=high, dtype=d) for d in REALS),
        *(fastseed.random.trunc_normal(keys, n, a=low - 3, b=high, dtype=d) for d in REALS),
        *(fastseed.random.bernoulli(keys, n, low / 10, dtype=d) for d in (torch.bool, torch.uint8)),
        fastseed.random.randint(keys, (2, n), -n, n + 1),
        fastseed.random.randint(keys, n, -(2**63), 2**62 + n),
        fastseed.random.bits(keys, n),
        fastseed.random.bits(keys, (), dtype=torch.uint64),
    )


def draws(bank, low, high, n):
    return (
        fastseed.random.uniform(bank, n, low=low, high=high),
        fastseed.random.normal(bank[INDICES], (2, 3), mean=low),
        fastseed.random.bits(bank[MASK], n),
        fastseed.random.randint(bank[MASK], 7, 0, n + 9),
        fastseed.random.exponential(bank, (2, 2), rate=high, dtype=torch.float64),
        fastseed.random.bernoulli(bank[INDICES], (), low / 10, dtype=torch.bfloat16),
        fastseed.random.uniform(bank, ()),
    )


def reseed_and_draw(bank, seeds, indices):
    bank.reseed_from_scope()
    first = fastseed.random.uniform(bank, 3)
    bank.reseed_from_seeds(seeds, indices)
    return first, fastseed.random.normal(bank, 3)


def pairs(compiled):
    """(what, of eager code, of compiled code), tensors."""
    twin = {f: compiled(f) for f in (pure, draws, reseed_and_draw)}
    for low, high, n in PARAMETERS:
        arguments = (KEYS, low, high, n)
        yield "pure", pure(*arguments), twin[pure](*arguments)
    for low, high, n in PARAMETERS:
        banks = [fastseed.random.StreamBank(5, "bank", DEVICE) for _ in range(2)]
        for bank in banks:
            bank.reseed(1, n)
        for function, bank in zip((draws, twin[draws]), banks, strict=True):
            bank.first = function(bank, low, high, n), function(bank, low, high, n)
        yield "bank", sum(banks[0].first, ()), sum(banks[1].first, ())
        yield "positions", (banks[0].positions,), (banks[1].positions,)
    for epoch in range(2):
        banks = [fastseed.random.StreamBank(5, "bank", DEVICE) for _ in range(2)]
        fastseed.reseed(1, epoch)
        five = torch.arange(5, device=DEVICE)
        arguments = (five - 3, five + epoch)
        found = [reseed_and_draw(banks[0], *arguments), twin[reseed_and_draw](banks[1], *arguments)]
        yield "reseeds", *found
        for what in ("keys", "positions"):
            yield what, *((getattr(bank, what),) for bank in banks)
        expected = fastseed.random.StreamBank(5, "bank", DEVICE)
        expected.reseed(1, epoch)
        yield "reseed", (fastseed.random.uniform(expected, 3),), (found[1][0],)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


wrong, compared = [], 0
# By itself (None) the second size compiles for all sizes, which takes inductor a minute.
for dynamic in (None,) if sys.argv[1] == "inductor" else (None, True):
    torch._dynamo.reset()
    options = {"fullgraph": True, "backend": sys.argv[1], "dynamic": dynamic}
    for what, eager, compiled in pairs(lambda f, options=options: torch.compile(f, **options)):
        agree = [same(a, b) for a, b in zip(eager, compiled, strict=True)]
        compared += len(agree)
        if not all(agree):
            wrong.append([what, dynamic, [i for i, good in enumerate(agree) if not good]])
print(json.dumps({"wrong": wrong, "compared": compared}))

"""Digests of draws of every kind, from keys and from a bank, by what was drawn."""

import hashlib
import json

import torch

import fastseed

REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
found = {}


def note(what, tensor):
    data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    found[what] = hashlib.sha256(data).hexdigest()


fastseed.init(42, rank=3, world_size=8)
keys = fastseed.derive_keys("draws", 5, task=1)
bank = fastseed.random.StreamBank(5, "bank")
mask = torch.tensor([True, False, True, True, False])
seeds = torch.tensor([5, -1, 2**40, 0, -(2**63)])
fastseed.reseed(2, 3, 4)
reseeds = {
    "scope": lambda: bank.reseed(1, 2, 3),
    "device scope": bank.reseed_from_scope,
    "seeds": lambda: bank.reseed_from_seeds(seeds, range(5)),
}
draws = {
    **{f"uniform {d}": ("uniform", {"low": -0.3, "high": 0.7, "dtype": d}) for d in REALS},
    **{f"normal {d}": ("normal", {"mean": 1, "std": 0.02, "dtype": d}) for d in REALS},
    **{f"exponential {d}": ("exponential", {"rate": 3, "dtype": d}) for d in REALS},
    **{f"trunc_normal {d}": ("trunc_normal", {"b": 1.5, "dtype": d}) for d in REALS},
    **{f"bernoulli {d}": ("bernoulli", {"p": 0.3, "dtype": d}) for d in (torch.bool, *REALS)},
    "randint": ("randint", {"low": -5, "high": 3 * 10**9}),
    "randint wide": ("randint", {"low": -(2**63), "high": 2**62}),
    "randint int32": ("randint", {"low": -(2**31), "high": 2**31 - 1, "dtype": torch.int32}),
    "bits": ("bits", {}),
    "bits 64": ("bits", {"dtype": torch.uint64}),
}
for what, (name, parameters) in draws.items():
    note(what, getattr(fastseed.random, name)(keys, shape=(3, 11), **parameters))
for how, reseed in reseeds.items():
    reseed()
    for what, (name, parameters) in draws.items():
        draw = getattr(fastseed.random, name)
        note(f"{how} {what}", draw(bank, shape=7, **parameters))
        note(f"{how} {what} rows", draw(bank[mask], shape=7, **parameters))
    note(f"{how} keys", bank.keys)
    note(f"{how} positions", bank.positions)
for n in (17, 2**48):
    sampler = fastseed.data.ShuffleSampler(n)
    note(f"order {n}", sampler.indices(0, 17))
    found[f"number of {n}"] = sampler.index(3)
print(json.dumps(found))

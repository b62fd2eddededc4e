"""Reseed everything there is once, and print what every generator then draws."""

import hashlib
import json
import random

import numpy as np
import torch

import fastseed
import fastseed.debug
from fastseed._backend import derive

fastseed.init(42, rank=3, world_size=8)
pool = fastseed.GeneratorPool([torch.Generator() for _ in range(5)], "pool")
own, old, new = random.Random(1), np.random.RandomState(1), np.random.default_rng(1)
one, seeds = torch.Generator(), []
for gen in (pool, own, old, new, one, seeds.append):
    fastseed.register_generator(gen)
fastseed.register_generator(seeds.append, shared=True, name="shared", bits=128)
random.gauss(0, 1), np.random.standard_normal(), torch.randn(())
fastseed.reseed(1, 7, 8)
state = fastseed.state_dict(rng=True)


def numbers():
    drawn = random.random(), np.random.random(), torch.rand(2).tolist()
    return *drawn, pool.state_dict()["states"].sum().item()


before = numbers()
seeds.clear()
fastseed.load_state_dict(state)
after = numbers()
fastseed.reseed(1, 7, 9)
seeded = fastseed.GeneratorPool([torch.Generator() for _ in range(3)], "pool")
seeded.reseed_from_seeds([7, 2**63, -1])

at = {"task": 1, "epoch": 7, "step": 9}
keys = fastseed.derive_keys("bulk", 1001, start=5, worker=2, **at)
bank = fastseed.random.StreamBank(5, "bank")
mask = torch.tensor([True, False, True, True, False])
REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DRAWS = [
    *(("uniform", {"low": -0.3, "high": 0.7, "dtype": d}) for d in REALS),
    *(("normal", {"mean": 1, "std": 0.02, "dtype": d}) for d in REALS),
    *(("exponential", {"rate": 3, "dtype": d}) for d in REALS),
    *(("trunc_normal", {"b": 1.5, "dtype": d}) for d in REALS),
    *(("bernoulli", {"p": 0.3, "dtype": d}) for d in (torch.bool, *REALS)),
    ("randint", {"low": -5, "high": 3 * 10**9}),
    ("randint", {"low": -(2**63), "high": 2**62}),
    ("randint", {"low": -(2**31), "high": 2**31 - 1, "dtype": torch.int32}),
    *(("bits", {"dtype": d}) for d in (torch.uint32, torch.uint64)),
]


def drawn(*sources):
    """Digests of draws of every kind."""
    kinds = [(getattr(fastseed.random, name), more) for name, more in DRAWS]
    found = [draw(source, (3, 11), **more) for draw, more in kinds for source in sources]
    return [hashlib.sha256(t.contiguous().view(torch.uint8).numpy()).hexdigest() for t in found]


draws = [drawn(keys[:5])]
for reseed in (
    lambda: bank.reseed(1, 2, 3),
    bank.reseed_from_scope,
    lambda: bank.reseed_from_seeds(torch.tensor([5, -1, 2**40, 0, -(2**63)]), range(5)),
):
    reseed()
    draws.append([*drawn(bank, bank[mask]), str(bank.keys), str(bank.positions)])
orders = [fastseed.data.ShuffleSampler(n) for n in (17, 2**48)]
print(
    json.dumps(
        {
            "backend": fastseed.build_info()["backend"],
            "generators": fastseed.build_info()["generators"],
            "restored": before == after,
            "manual_seed": [torch.rand((), generator=g).item() for g in seeded],
            "draws": draws,
            "orders": [(one.indices(0, 17).tolist(), one.index(3)) for one in orders],
            "order": [derive.shuffle_index(2**127 + 1, 16, i) for i in range(16)],
            "digest": str(fastseed.debug.digest(torch.arange(1001))),
            "python": [random.random(), own.random(), random.gauss(0, 1)],
            "numpy": [np.random.random(), old.random_sample(), np.random.standard_normal()],
            "new": [new.random(), new.spawn(1)[0].random()],
            "torch": [torch.rand(()).item(), torch.rand((), generator=one).item()],
            "pool": [torch.randn((), generator=g).item() for g in pool],
            "states": [hashlib.sha256(g.get_state().numpy()).hexdigest() for g in pool],
            "seeds": seeds,
            "initial": [torch.initial_seed(), one.initial_seed()],
            "keys": hashlib.sha256(keys.numpy()).hexdigest(),
            "key": fastseed.derive_key("numpy", task=1, epoch=7),
            "cuda": f"{fastseed.derive_key('torch.cuda', task=1, epoch=7):032x}",
        }
    )
)

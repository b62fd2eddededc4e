"""Every public name of the top level, for type checkers: ``make lint`` checks this file."""

import torch

import fastseed
import fastseed.pyt

fastseed.init(42, rank=0, world_size=1)
fastseed.reseed(task=1, epoch=3, step=0)
seed: int = fastseed.get_master_seed()
key: int = fastseed.derive_key("a", task=1, rank=fastseed.SHARED)
low: int = fastseed.derive_seed("a", task=1, worker=1, index=2)
keys: torch.Tensor = fastseed.derive_keys("a", 3, task=1)
seeds: torch.Tensor = fastseed.derive_seeds("a", 3, task=1, start=4)
with fastseed.fork_rng("layer", index=3):
    pass
generators = [torch.Generator()]
pool = fastseed.GeneratorPool(generators, "pool")
fastseed.register_generator(pool, name="pool", bits=63)
fastseed.unregister_generator(pool)
state: dict[str, object] = dict(fastseed.state_dict(rng=True))
fastseed.load_state_dict(fastseed.state_dict())
seeder = fastseed.Seeder(1, rank=0, world_size=1)
other: int = seeder.derive_key("a", task=1, epoch=2)
many: torch.Tensor = seeder.derive_keys("a", 2, task=1)
fastseed.deterministic(warn_only=True)
used: int = fastseed.enforce_reproducibility()
info: dict[str, object] = dict(fastseed.build_info())
version: str = fastseed.__version__
try:
    fastseed.reseed(0)
except fastseed.ReseedError as error:
    print(error.failures)
old = fastseed.pyt.SeedGen(1, 2, 0)(task=1, epoch=3)
uniform: torch.Tensor = fastseed.random.uniform(keys, 2)

"""``resume.py save FILE`` stops in the middle of an epoch, ``resume.py load FILE`` goes on there.

Both print what all generators draw from that point on.
"""

import json
import random
import sys

import numpy as np
import torch

import fastseed

fastseed.init(42, rank=3, world_size=8)
kinds = (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)
new = [np.random.Generator(kind(1)) for kind in kinds]
old, own, one = np.random.RandomState(1), random.Random(1), torch.Generator()
pool = [torch.Generator() for _ in range(3)]
for i, gen in enumerate(new):
    fastseed.register_generator(gen, name=f"new{i}")
for gen, name in ((old, "old"), (own, "own"), (one, "one"), (pool, "pool")):
    fastseed.register_generator(gen, name=name)


def draws():
    """Uneven numbers, so that halves of words and of pairs of normals are left over."""
    return [
        [random.random(), random.gauss(0, 1), own.gauss(0, 1), own.getrandbits(70)],
        [np.random.standard_normal(), np.random.random(), old.standard_normal()],
        [(int(g.integers(0, 9, dtype=np.uint16)), g.standard_normal()) for g in new],
        [g.integers(0, 2**31, 3, dtype=np.uint32).tolist() for g in new],
        [torch.randn(()).item(), torch.randn((), dtype=torch.float64).item()],
        [torch.randn(3, generator=g).tolist() for g in (one, *pool)],
        [torch.rand(700, generator=g).sum().item() for g in (one, *pool)],
    ]


if sys.argv[1] == "save":
    fastseed.reseed(1, 7, 9)
    draws()
    torch.save(fastseed.state_dict(rng=True), sys.argv[2])
else:
    draws()
    fastseed.load_state_dict(torch.load(sys.argv[2], weights_only=True))
print(json.dumps([list(fastseed.derivation.context.seeder.scope), draws(), draws()]))

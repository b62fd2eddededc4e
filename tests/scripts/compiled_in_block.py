"""Import Dynamo in a block of ``random.keyed``; print which functions did not draw from keys.

Backend "eager" would not do: its graph calls torch's functions, which the block sees.
"""

import json
import sys

import torch

import fastseed

fastseed.init(42, rank=0, world_size=1)
fastseed.reseed(1)
ONES = torch.ones(3, 4)
CALLS = {
    "randn_like": lambda: torch.randn_like(ONES),
    "rand_like": lambda: torch.rand_like(ONES),
    "randint_like": lambda: torch.randint_like(ONES, 100),
    "normal": lambda: torch.normal(ONES, 2 * ONES),
    "bernoulli": lambda: torch.bernoulli(ONES / 2),
}
before = "torch._dynamo" in sys.modules
state, differ = torch.get_rng_state(), []
for name, call in CALLS.items():
    with fastseed.random.keyed("flow", 0):
        expected = call()
    with fastseed.random.keyed("flow", 0):
        found = torch.compile(call, backend="aot_eager", fullgraph=True)()
    if not torch.equal(found, expected):
        differ.append(name)
moved = not torch.equal(torch.get_rng_state(), state)
print(json.dumps({"dynamo before": before, "differ": differ, "generator moved": moved}))

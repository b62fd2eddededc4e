"""Print the digest of one training step's draws, for ``WAY`` and the first ``SIZES`` sizes.

keyed_step.py WAY SIZES    eager, an instruction set, recomputed, aot_eager, inductor
"""

import json
import sys

import torch
from helpers import keyed_step
from helpers.simd import set_simd
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed._backend import derive


def recomputed(part, make, n):
    """Draw in a checkpointed function, and return what its recomputation drew."""
    drawn = []

    def function(x):
        drawn.append(keyed_step.inside(part, make, n))
        return x * 2

    checkpoint(function, torch.ones(1, requires_grad=True), use_reentrant=True).backward()
    assert len(drawn) == 2
    return drawn[1]


def compiled(backend):
    """Draw in compiled code, which opens the block."""

    def draw(part, make, n):
        torch._dynamo.reset()
        run = torch.compile(keyed_step.inside, backend=backend, fullgraph=True, dynamic=False)
        return run(part, make, n)

    return draw


way, count = sys.argv[1], int(sys.argv[2])
fastseed.init(42, rank=0, world_size=1)
fastseed.reseed(1, 7, 3)
ways = {"recomputed": recomputed, "aot_eager": compiled("aot_eager")}
ways["inductor"] = compiled("inductor")
if way in derive.simd_paths():
    set_simd(way)
sizes = keyed_step.SIZES[:count]
state = torch.get_rng_state()
found, tensors, values = keyed_step.digest(sizes, ways.get(way, keyed_step.inside))
assert torch.equal(torch.get_rng_state(), state)
by = derive.backend, derive.simd()
print(json.dumps({"digest": found, "tensors": tensors, "values": values, "by": by}))

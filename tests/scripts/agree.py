"""One rank of a job of two: goes through every way to agree on a master seed, or not to.

Prints the results as JSON. Ranks come from the environment.
"""

import hashlib
import json
import logging
import os
import random
import time

import fwr13y.seeder.pyt as fwr13y
import numpy as np
import torch
import torch.distributed as dist

import fastseed

RANK = int(os.environ["RANK"])
found = {}


class Warnings(logging.Handler):
    """Collects the text of warnings."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


warnings = Warnings()
logging.getLogger("fastseed").addHandler(warnings)


def outcome(*arguments, init=fastseed.init, **more):
    """Return the result of a call of init, a master seed and rank or an error, and its warnings."""
    warnings.said.clear()
    try:
        init(*arguments, **more)
    except ValueError as error:
        return {"error": str(error), "warnings": list(warnings.said)}
    return {
        "master": fastseed.get_master_seed(),
        "rank": [
            fastseed.derivation.context.seeder.rank,
            fastseed.derivation.context.seeder.world_size,
        ],
        "warnings": list(warnings.said),
    }


def register_shared():
    """Return what a shared generator and a rank's own one get, or the error."""
    shared, own = [], []
    fastseed.register_generator(own.append)
    try:
        fastseed.register_generator(shared.append, shared=True)
        fastseed.reseed(1, 7)
        fastseed.unregister_generator(shared.append)
    except RuntimeError as error:
        return {"error": str(error)}
    finally:
        fastseed.unregister_generator(own.append)
    return {"shared": shared, "own": own}


def digest():
    """Return a digest of the states of the three global generators."""
    numpy = np.random.get_state()
    states = repr(random.getstate()).encode(), numpy[1].tobytes(), repr(numpy[2:]).encode()
    return hashlib.sha256(b"".join(states) + torch.get_rng_state().numpy().tobytes()).hexdigest()


found["alone/None"] = outcome(None)
found["alone/None/shared"] = register_shared()
found["alone/42"] = outcome(42)
found["alone/42/shared"] = register_shared()

found["states of both"] = []
for rank in range(2):
    fastseed.Seeder(42, rank=rank, world_size=2).reseed(1, 7)
    found["states of both"].append(digest())

dist.init_process_group("gloo")

found["None"] = outcome(None)
found["None/shared"] = register_shared()
found["None again"] = outcome()
found["None fwr13y"] = outcome(None, init=fastseed.pyt.init, scheme="fwr13y")
found["differing"] = outcome(40 + RANK)
found["only rank 0"] = outcome(42 if RANK == 0 else None)
found["only rank 1"] = outcome(42 if RANK == 1 else None)
found["negative"] = outcome(-1)
found["rank out of range"] = outcome(42, rank=2 * RANK, world_size=2)
found["wrong fork"] = outcome(42, on_os_fork="twice" if RANK == 0 else None)
found["wrong scheme"] = outcome(
    42, init=fastseed.pyt.init, scheme="x" if RANK == 1 else "philox-v1"
)
found["node-local rank"] = outcome(42, 2, 0)
found["one of one"] = outcome(42, 1, 0)
found["42"] = outcome(42, 2, RANK)
found["42/shared"] = register_shared()
fastseed.init(42)
fastseed.reseed(1, 7)
found["own states"] = digest()

dist.barrier()
time.sleep(0.01 * RANK)  # ranks that start in the same microsecond would agree by chance
fwr13y.init(None, 2, RANK)
found["fwr13y"] = fwr13y.get_master_seed()

dist.destroy_process_group()
print(json.dumps(found), flush=True)

"""Fork in the middle of a job; prints what parent and child have afterwards."""

import json
import logging
import os
import random
import signal

import numpy as np
import torch

import fastseed

logging.getLogger("fastseed").setLevel(logging.ERROR)  # scopes are repeated on purpose


def states():
    """The next draws of all generators of this process, after putting them at (1, 7)."""
    fastseed.reseed(1, 7)
    pool.reseed(1, 7)
    big = fastseed.derive_seeds("bulk", 200_000, task=1)
    drawn = random.random(), np.random.random(), torch.rand(()).item()
    return [*drawn, torch.rand((), generator=pool[-1]).item(), big[-1].item(), seen[-1]]


fastseed.init(42, rank=3, world_size=8)
seen = []
fastseed.register_generator(seen.append)
pool = fastseed.GeneratorPool([torch.Generator() for _ in range(500)], "pool")
parent = states()  # so that thread pools exist before the fork
fastseed.reseed(2, 5, 9)
inherited = torch.get_rng_state()

reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    seeder = fastseed.derivation.context.seeder
    found = {
        "repr": repr(seeder),
        "scope": list(seeder.scope),
        "place": [seeder.master_seed, seeder.rank, seeder.world_size],
        "untouched": torch.equal(inherited, torch.get_rng_state()),
        "states": states(),
        "pid": os.getppid(),
    }
    os.write(writer, json.dumps(found).encode())
    os._exit(0)
os.close(writer)
with os.fdopen(reader) as pipe:
    child = json.loads(pipe.read())
os.waitpid(pid, 0)
found = {"pid": os.getpid(), "repr": repr(fastseed.derivation.context.seeder), "states": parent}
print(json.dumps({"parent": found, "child": child}))

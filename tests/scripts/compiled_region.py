"""Reseed inside torch.compile: prints how each way to call it went."""

import json
import logging
import random
import sys
import warnings

import numpy as np
import torch

import fastseed
import fastseed.pyt

logging.getLogger("fastseed").setLevel(logging.ERROR)  # scopes are repeated on purpose
found = {"dynamo_at_start": "torch._dynamo" in sys.modules}
warnings.simplefilter("always")
warned: list[str] = []
warnings.showwarning = lambda message, *_: warned.append(str(message))

seeder = fastseed.Seeder(7, rank=0, world_size=1)
fastseed.init(7, rank=0, world_size=1)
pool = fastseed.GeneratorPool([torch.Generator(), torch.Generator()], "pool")
seen = []
seeder.register_generator(seen.append)
fastseed.register_generator(seen.append)
if sys.argv[1] == "eager first":
    seeder.reseed(0)
    fastseed.reseed(0)

WAYS = {
    "module function": fastseed.reseed,
    "Seeder method": seeder.reseed,
    "pyt function": fastseed.pyt.reseed,
}


def step(reseed):
    def function(x, epoch):
        x = x * 2
        reseed(1, epoch)
        x = x + torch.rand(3)
        reseed(2, epoch)
        return x + torch.rand(3)

    return function


def bare(x, epoch):
    fastseed.reseed(3, epoch)
    return x


def blocks(x, epoch):
    fastseed.reseed(4, epoch)
    with fastseed.fork_rng("block"):
        x = x + torch.rand(3)
    with fastseed.fork_rng("block", index=2):
        x = x + torch.rand(3)
    return x + torch.rand(3)


def block(x, epoch):
    with fastseed.fork_rng("whole", index=1):
        return x + torch.rand(3)


def pooled(x, epoch):
    x = x * 2
    pool.reseed(1, epoch)
    x = x + torch.rand(3, generator=pool[1])
    pool.reseed_from_seeds([epoch, epoch + 1])
    return x + torch.rand(3, generator=pool[1])


def observe(function, epoch):
    """Return a call's result, the callable's arguments, and the generators' states."""
    seen.clear()
    pool.reseed_from_seeds([1, 1])
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    value = function(torch.ones(3), epoch).tolist()
    drawn = [torch.rand(2, generator=g).tolist() for g in (torch.default_generator, *pool)]
    return value, list(seen), random.random(), np.random.random(), drawn


def compare(eager, backend):
    torch._dynamo.reset()
    compiled = torch.compile(eager, backend=backend)
    epochs = [1, 2, 1, 3, 3, 4]
    got = [observe(compiled, epoch) for epoch in epochs]
    expected = [observe(eager, epoch) for epoch in epochs]
    return "runs on every call" if got == expected else f"differs: {got} {expected}"


def fullgraph(eager, backend):
    torch._dynamo.reset()
    try:
        torch.compile(eager, backend=backend, fullgraph=True)(torch.ones(3), 1)
    except Exception as error:
        return type(error).__name__, str(error)
    return "no error", ""


for backend in ("eager", "aot_eager"):
    for way, reseed in WAYS.items():
        found[f"{backend}/{way}"] = compare(step(reseed), backend)
        found[f"{backend}/{way}/fullgraph"] = fullgraph(step(reseed), backend)
    found[f"{backend}/no tensor"] = compare(bare, backend)
    found[f"{backend}/pool"] = compare(pooled, backend)
    found[f"{backend}/fork_rng"] = compare(blocks, backend)
    found[f"{backend}/fork_rng/fullgraph"] = fullgraph(block, backend)
found["warnings"] = [text for text in warned if "does not know how to trace" in text]
print(json.dumps(found))

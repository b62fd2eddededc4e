"""Sampling under ``torch.compile(fullgraph=True)``, beside eager; what did not agree."""

import json
import sys

import torch

from fastseed.sampling import accept_equal, sample

BACKEND = sys.argv[1]
generator = torch.Generator().manual_seed(0)


def rows(n, size):
    x = torch.randn(n, size, generator=generator) * 3
    keys = torch.randint(-(2**63), 2**63 - 1, (n, 2), generator=generator).view(torch.uint64)
    return x, keys, torch.randint(0, 2**40, (n,), generator=generator)


def tokens(x, keys, positions, temperature, top_p):
    return (
        sample(x, keys, positions),
        sample(x, keys, positions, temperature=0.7, top_k=20, top_p=0.9, min_p=0.01),
        sample(x, keys, positions, temperature=temperature, top_p=top_p),
        sample(x, keys, 5, top_p=0.8),
        sample(x.bfloat16(), keys, positions, temperature=0.0),
    )


def verified(drafted, target, keys, positions):
    return accept_equal(drafted, target, keys, positions, top_p=0.8)


compared, wrong = 0, []


def compare(name, function, twin, *arguments):
    global compared
    pairs = zip(function(*arguments), twin(*arguments), strict=True)
    for i, (eager, compiled) in enumerate(pairs):
        compared += 1
        if not torch.equal(eager, compiled):
            wrong.append(f"{name} {i}")


twins = [torch.compile(f, fullgraph=True, backend=BACKEND) for f in (tokens, verified)]
# Each new shape compiles once more, which takes inductor a minute.
SHAPES = ((2, 80), (3, 90), (5, 200))
for n, size in SHAPES[:1] if BACKEND == "inductor" else SHAPES:
    heat, share = torch.linspace(0.5, 2, n), torch.linspace(0.3, 1, n).double()
    compare("sample", tokens, twins[0], *rows(n, size), heat, share)
    target = torch.randn(n, 4, size, generator=generator)
    drafted = torch.randint(0, size, (n, 3), generator=generator)
    compare("accept", verified, twins[1], drafted, target, *rows(n, size)[1:])
print(json.dumps({"compared": compared, "wrong": wrong}))

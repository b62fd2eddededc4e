"""Compile functions that call the operators, without a graph break; compare with eager."""

import json

import torch

import fastseed  # registers the operators


def seeds(n, start):
    out = torch.empty(n, dtype=torch.uint64)
    torch.ops.fastseed.derive_seeds(out, 11, -12, 13, 14, start)
    return out


def keys(n, start):
    out = torch.empty(n, 2, dtype=torch.uint64)
    torch.ops.fastseed.derive_keys(out, 11, -12, 13, 14, start)
    return out


assert fastseed.build_info()["backend"] == "native"
found = {}
for backend in ("eager", "aot_eager"):
    same = []
    for function in (seeds, keys):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        for n, start in ((5, 0), (5, 7), (33, -4), (1, 2**40)):
            same.append(torch.equal(compiled(n, start), function(n, start)))
    found[backend] = all(same)
print(json.dumps(found))

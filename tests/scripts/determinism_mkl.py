"""Multiply a matrix and a vector at several addresses, deterministic before or after MKL is used.

determinism_mkl.py early|late
"""

import json
import logging
import sys

import torch

import fastseed
from fastseed.determinism import variables


def main(order: str) -> None:
    logging.disable()
    if order == "late":
        torch.mm(torch.ones(3, 3), torch.ones(3, 3))
    report = fastseed.deterministic()
    generator = torch.Generator().manual_seed(0)
    matrix, vector = (torch.randn(*size, generator=generator) for size in ((65, 333), (1, 333)))
    memory = torch.empty(2, matrix.numel() + 16)
    products = set()
    for first in range(4):
        a, b = (
            row[first : first + x.numel()].view_as(x).copy_(x)
            for row, x in zip(memory, (matrix, vector), strict=True)
        )
        products.add(tuple(torch.nn.functional.linear(b, a).flatten().tolist()))
    found = {
        "status": report["MKL_CBWR"].status,
        "depends": variables.mkl_depends_on_alignment(),
        "products": len(products),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])

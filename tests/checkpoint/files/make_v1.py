"""Wrote ``v1.fastseed`` and ``v1.json``: a file of version 1, and what is drawn after loading it.

``python tests/checkpoint/files/make_v1.py FOLDER`` writes both anew; for the files to be those of a
release, run it with that release. They are never changed: whatever comes later has to load them.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import torch

import fastseed


def job() -> dict[str, object]:
    """A job of one rank, with a generator of each kind that keeps the same bits everywhere."""
    fastseed.init(0x0123456789ABCDEF, rank=0, world_size=1)
    generators = {
        "pcg": np.random.default_rng(1),
        "philox": np.random.Generator(np.random.Philox(1)),
        "old": np.random.RandomState(1),
        "own": random.Random(1),
        "one": torch.Generator(),
        "pool": fastseed.GeneratorPool([torch.Generator() for _ in range(2)]),
        "bank": fastseed.random.StreamBank(3),
    }
    for name, generator in generators.items():
        fastseed.register_generator(generator, name=name)
    return generators


def draws(generators: dict[str, object]) -> dict[str, object]:
    """Integers, and reals by their bits; an odd number, so that what was cached is used."""
    g = generators
    return {
        "python": [random.getrandbits(64), random.gauss(0, 1).hex(), random.getrandbits(32)],
        "numpy": [np.random.standard_normal().hex(), *np.random.randint(2**31, size=3).tolist()],
        "torch.cpu": torch.randint(2**31, (4,)).tolist(),
        "pcg": g["pcg"].integers(2**31, size=3, dtype=np.uint32).tolist(),
        "philox": g["philox"].integers(2**31, size=3, dtype=np.uint32).tolist(),
        "old": [g["old"].standard_normal().hex(), *g["old"].randint(2**31, size=2).tolist()],
        "own": [g["own"].gauss(0, 1).hex(), g["own"].getrandbits(64)],
        "one": torch.randint(2**31, (3,), generator=g["one"]).tolist(),
        "pool": [torch.randint(2**31, (2,), generator=m).tolist() for m in g["pool"]],
        "bank": g["bank"].bits(2).tolist(),
    }


def main(folder: Path) -> None:
    """Stop in the middle of things, save, and note what comes next."""
    generators = job()
    fastseed.reseed(3, 0x89ABCDEF, 0xFEDCBA9876543210)
    random.gauss(0, 1), np.random.standard_normal(), torch.randn(3)
    generators["old"].standard_normal(), generators["own"].gauss(0, 1)
    draws_before = draws(generators)
    random.gauss(0, 1), np.random.standard_normal()
    generators["old"].standard_normal(), generators["own"].gauss(0, 1)
    fastseed.checkpoint.save(folder / "v1.fastseed")
    held = {"before": draws_before, "after": draws(generators)}
    (folder / "v1.json").write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A job in the middle of an epoch, for the tests of checkpoints."""

import random

import numpy as np
import torch

import fastseed
from fastseed import GeneratorPool
from helpers.support import snapshot


def start(rank=3, world_size=8):
    """A job in the middle of epoch 7; its registered generators by name."""
    fastseed.init(42, rank=rank, world_size=world_size)
    generators = {
        "new": np.random.default_rng(1),
        "old": np.random.RandomState(1),
        "own": random.Random(1),
        "one": torch.Generator(),
        "pool": GeneratorPool([torch.Generator() for _ in range(3)], "pool"),
    }
    for name, generator in generators.items():
        fastseed.register_generator(generator, name=name)
    fastseed.reseed(1, 7, 9)
    draws(generators)
    return generators


def draws(generators):
    """An odd number of everything, so that something is cached everywhere."""
    return [
        [random.random(), random.gauss(0, 1), np.random.standard_normal(), np.random.random()],
        [torch.randn(3).tolist(), torch.randn((), dtype=torch.float64).item()],
        [generators["new"].integers(0, 9, dtype=np.uint16), generators["new"].random()],
        [generators["old"].standard_normal(), generators["own"].gauss(0, 1)],
        [torch.randn(3, generator=g).tolist() for g in (generators["one"], *generators["pool"])],
    ]


def everything(generators):
    """All states that a refused load might have changed."""
    return (
        snapshot(),
        repr(fastseed.derivation.context.seeder),
        fastseed.derivation.context.origin("test", "torch.cpu", "another call"),
        str(generators["new"].bit_generator.state),
        str(generators["old"].get_state(legacy=False)),
        generators["own"].getstate(),
        [g.get_state().tolist() for g in (generators["one"], *generators["pool"])],
    )

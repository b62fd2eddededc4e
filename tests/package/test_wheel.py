"""Check an installed wheel, with no source tree in the path: run by ``make test-wheel``."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

import fastseed

installed = pytest.mark.skipif(
    "site-packages" not in fastseed.__file__, reason="fastseed is not installed from a wheel"
)


@installed
def test_native_operators_are_used():
    info = fastseed.build_info()
    assert (info["backend"], info["generators"]) == ("native", "loaded"), info
    if torch.version.cuda is not None and list(Path(fastseed.__file__).parent.glob("_cuda*")):
        assert info["cuda"] == "loaded" or "driver" in info["cuda"], info


def test_quick_start_repeats():
    fastseed.init(42, rank=0, world_size=1)

    def draw():
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
        return model(torch.rand(8, 4)).tolist(), random.random(), np.random.random()

    fastseed.reseed(1, 3)
    first = draw()
    state = fastseed.state_dict(rng=True)
    after = draw()
    fastseed.load_state_dict(state)
    assert draw() == after
    fastseed.reseed(1, 4)
    assert draw() != first


def test_golden_key():
    fastseed.init(42, rank=0, world_size=1)
    key = fastseed.derive_key("torch.cuda", task=1, epoch=7, rank=3)
    assert int(key) == 0x9D357DE770F33F19_272F96A925B03F44


def test_pool_bank_and_digest():
    fastseed.init(42, rank=0, world_size=1)
    generators = [torch.Generator() for _ in range(3)]
    pool = fastseed.GeneratorPool(generators, "pool")
    pool.reseed(1, 2)
    drawn = [torch.rand(2, generator=g) for g in generators]
    pool.reseed(1, 2)
    assert all(
        torch.equal(torch.rand(2, generator=g), d) for g, d in zip(generators, drawn, strict=True)
    )
    bank = fastseed.random.StreamBank(8, "env")
    bank.reseed(task=1)
    rows = fastseed.random.normal(bank, 16)
    assert fastseed.debug.digest(rows) != fastseed.debug.digest(rows.flip(0))

"""An independent program, written from the specification, reproduces perturbed parameters."""

import sys
from fractions import Fraction

import pytest
import torch
from helpers.paths import VECTORS
from torch import nn

from fastseed._backend.ops.draws import REALS
from fastseed.nn import apply_log, perturb_

sys.path.insert(0, str(VECTORS))

import perturbed_numbers as program

NAME = "layers.0.\u03b1"
SHAPE = (5, 9)
KEY = 2**64 + 2**127 + 3


def model_of(dtype):
    model = nn.ParameterDict({"\u03b1": (torch.randn(SHAPE) * 0.02).to(dtype)})
    return model, [Fraction(x) for x in model["\u03b1"].detach().flatten().double().tolist()]


def expect(model, numbers, entries, noise, dtype, each=False):
    name = str(dtype).removeprefix("torch.")
    wanted = [program.moved(p, j, entries, noise, name, each) for j, p in enumerate(numbers)]
    found = model["\u03b1"].detach().flatten().double().tolist()
    assert found == [float(x) for x in wanted]


@pytest.mark.parametrize("noise", ["normal", "rademacher"])
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_steps_and_logs_are_those_of_the_specification(dtype, noise):
    seeds, scalars, lr = (0, 2**64 - 1, KEY), (0.3, -0.7, 1e-3), 0.0123
    keys = [program.key_of_seed(seed, noise, NAME) for seed in seeds[:2]]
    keys.append(program.key_of_key(KEY, noise, NAME))
    entries = list(zip(keys, (lr * scalar for scalar in scalars), strict=True))
    options = {"noise": noise, "prefix": "layers.0"}
    model, numbers = model_of(dtype)
    perturb_(model, KEY, 0.1, **options)
    expect(model, numbers, [(keys[2], 0.1)], noise, dtype)
    for each in (False, True):
        model, numbers = model_of(dtype)
        apply_log(model, zip(seeds, scalars, strict=True), lr, each=each, **options)
        expect(model, numbers, entries, noise, dtype, each)

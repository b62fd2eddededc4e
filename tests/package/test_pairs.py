"""What draws inside of what: the inner one as alone, the outer one as without it, or an error."""

import contextlib

import pytest
import torch
from helpers.support import restart
from torch import nn

import fastseed
from fastseed.nn import functional, initialize, perturbed
from fastseed.random import StreamBank, keyed, normal, uniform


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def model():
    found = nn.Module()
    found.weight = nn.Parameter(torch.ones(3, 2))
    return found


def drawn(block):
    with block:
        return torch.rand(3)


def from_bank(rows=slice(None)):
    bank = StreamBank(3, "bank")
    bank.reseed_from_scope()
    return uniform(bank if rows == slice(None) else bank[torch.tensor(rows)], 4)


def moved():
    found = model()
    with perturbed(found, 7, 0.1):
        weight = found.weight.detach().clone()
    assert torch.equal(found.weight, torch.ones(3, 2))
    return weight


def initialized():
    found = model()
    with initialize(found, task=1):
        return fill(found)


def fill(found):
    return nn.init.normal_(found.weight).detach().clone()


INNER = {
    "keyed": lambda: drawn(keyed("inner")),
    "fork_rng": lambda: drawn(fastseed.fork_rng("inner")),
    "a key": lambda: normal(fastseed.derive_key("key"), (3,)),
    "a bank": from_bank,
    "rows of a bank": lambda: from_bank([2, 0]),
    "a layer": lambda: fastseed.nn.Dropout(0.5, name="layer")(torch.ones(8)),
    "dropout by key": lambda: functional.dropout(
        torch.ones(8), 0.5, key=fastseed.derive_key("key")
    ),
    "tokens": lambda: fastseed.sampling.sample(torch.arange(60.0).view(3, 20) / 9, [7, 8, 9], 0),
    "perturbed": moved,
    "initialize": initialized,
}
OUTER = {
    "keyed": lambda: keyed("outer"),
    "fork_rng": lambda: fastseed.fork_rng("outer"),
    "perturbed": lambda: perturbed(model(), 8, 0.1),
    "rows": lambda: fastseed.nn.rows(0, 16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a default device": lambda: torch.device("cpu"),
}
REFUSED = {
    ("keyed", "fork_rng"): "must not be entered in a block of random.keyed",
    (initialize, "fork_rng"): "random numbers must go into a parameter or buffer of the model",
}


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_one_inside_of_another(outer, inner):
    check(inner, OUTER[outer], lambda: torch.rand(2), REFUSED.get((outer, inner)))


@pytest.mark.parametrize("inner", INNER)
def test_one_while_a_model_is_initialized(inner):
    filled = model()
    check(inner, lambda: initialize(filled), lambda: fill(filled), REFUSED.get((initialize, inner)))


def check(inner, outer, draw, why):
    restart()
    alone = INNER[inner]()
    restart()
    with outer():
        around = draw(), draw()
    restart()
    refused = pytest.raises(RuntimeError, match=why) if why else contextlib.nullcontext()
    with outer():
        before = draw()
        with refused:
            assert torch.equal(INNER[inner](), alone)
        after = draw()
    assert torch.equal(before, around[0]) and torch.equal(after, around[1])

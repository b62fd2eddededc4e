"""Slots that take random numbers from torch's generators: a warning, where they depend on ranks."""

from __future__ import annotations

import logging
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed.elastic import SlotGradients

V = 3


class Functional(nn.Linear):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.5, self.training)


def model_of(part):
    return nn.Sequential(nn.Linear(4, 4), part)


def run_steps(model, count=2, within=None):
    gradients = SlotGradients(model, V)
    for step in range(count):
        fastseed.reseed(1, 0, step=step)
        for slot, x in gradients.step(torch.ones(V, 2, 4)):
            if within is None:
                model(x).sum().backward()
            else:
                within(slot, x)
        model.zero_grad()


@pytest.fixture(autouse=True)
def log(caplog):
    fastseed.init(42)
    caplog.set_level(logging.WARNING, logger="fastseed")
    return caplog


OWN = torch.Generator()
REGISTERED = np.random.default_rng(1)
DRAWS = {
    "torch's generator": lambda: F.dropout(torch.ones(4), 0.5),
    "Python's random": random.random,
    "NumPy's global generator": np.random.rand,
    "the registered generator 'own'": REGISTERED.random,
    "a torch.Generator passed as generator=": lambda: torch.rand(4, generator=OWN),
}


@pytest.mark.parametrize("named", DRAWS)
def test_draws_of_a_slot_are_noticed_once(log, named):
    fastseed.register_generator(REGISTERED, name="own")

    def within(slot, x):
        DRAWS[named]()
        model(x).sum().backward()

    model = nn.Linear(4, 4)
    run_steps(model, within=within)
    (record,) = log.records
    text = f"fastseed.elastic.SlotGradients.step: slot 0 takes random numbers from {named}, which"
    assert record.getMessage().startswith(text)
    assert "call fastseed.nn.convert(model)" in record.getMessage()


@pytest.mark.parametrize("change", [fastseed.nn.convert, nn.Module.eval])
def test_converted_models_and_evaluation_are_no_warning(log, change):
    run_steps(change(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), Functional(4, 4))))
    assert not log.records


def test_draws_of_the_slot_are_no_warning(log):
    model = model_of(nn.Dropout(0.5))

    def within(slot, x):
        with fastseed.fork_rng("slot", index=slot.number, distinct_over=()):
            checkpoint(model, x, use_reentrant=False).sum().backward()

    run_steps(model, within=within)
    assert not log.records

"""Slots that take random numbers from torch's generators: a warning, where they depend on ranks."""

import logging
from types import SimpleNamespace

import pytest
import torch
from helpers import inside
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed.elastic import SlotGradients
from fastseed.elastic.slot import watch_draws

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
    inside.warn_once.cache_clear()
    caplog.set_level(logging.WARNING, logger="fastseed")
    return caplog


def warned(log):
    return [record.getMessage().partition(", which")[0] for record in log.records]


WARNING = "fastseed.elastic.SlotGradients.step: a slot takes random numbers from torch's generator"


def test_draws_of_a_slot_are_noticed_once(log):
    run_steps(model_of(nn.Dropout(0.5)))
    assert warned(log) == [WARNING]
    assert "call fastseed.nn.convert(model)" in log.text


@pytest.mark.parametrize(("drawing", "noticed"), [(1, [WARNING]), (V + 1, [])])
def test_draws_are_noticed_in_any_slot_of_the_first_step(log, drawing, noticed):
    model, slots = nn.Linear(4, 4), []

    def within(slot, x):
        if len(slots) == drawing:
            torch.rand(1)
        slots.append(slot.number)
        model(x).sum().backward()

    run_steps(model, within=within)
    assert warned(log) == noticed


def test_a_first_step_that_raises_ends_the_watch(log):
    model = nn.Linear(4, 4)
    gradients = SlotGradients(model, V)
    with pytest.raises(MemoryError):
        for _ in gradients.step(torch.ones(V, 2, 4)):
            raise MemoryError
    gradients.discard()
    log.clear()
    for _, x in gradients.step(torch.ones(V, 2, 4)):
        (model(x) * torch.rand(1)).sum().backward()
    assert not log.records


def test_the_generator_of_the_device_is_watched(log, monkeypatch):
    states = iter((torch.zeros(16), torch.ones(16)))
    module = SimpleNamespace(get_rng_state=lambda device: next(states))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    with watch_draws(torch.device("cuda")):
        pass
    assert warned(log) == [f"{WARNING} of the device"]


def test_a_compiled_model_is_compiled_once():
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    run_steps(torch.compile(nn.Linear(4, 4), backend=backend))
    assert len(graphs) == 1


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

"""Activation checkpointing recomputes a function in the backward pass: its blocks repeat."""

from __future__ import annotations

import logging
import threading
from functools import partial

import pytest
import torch
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed._backend import private_torch
from fastseed._utils.log import warn_once
from fastseed.seeder.process_lock import process

LAYERS = 3


@pytest.fixture
def weights():
    fastseed.init(42, rank=0, world_size=1)
    generator = torch.Generator().manual_seed(1)
    yield [torch.randn(8, 8, generator=generator, requires_grad=True) for _ in range(LAYERS)]
    assert process.blocks == ()


class Model:
    """Layers with dropout inside a block, twice, and outside of it; records every mask."""

    def __init__(self, weights, numbered):
        self.weights, self.numbered = weights, numbered
        self.masks = {layer: [] for layer in range(LAYERS)}

    def layer(self, x, i):
        masks = []
        for part in range(2):
            with fastseed.fork_rng("inside", index=2 * i + part if self.numbered else None):
                masks.append(dropout(torch.ones_like(x)))
        masks.append(dropout(torch.ones_like(x)))
        self.masks[i].append(torch.stack(masks).detach())
        for mask in masks:
            x = x * (1 + mask)
        return (x @ self.weights[i]).sin()

    def run(self, call):
        """Return all gradients, and random numbers after the forward and the backward pass."""
        fastseed.derivation.context.seeder._set_scope(1, 7, 0)
        x = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()
        h = x
        for i in range(LAYERS):
            h = call(self.layer, h, i)
        ends = [torch.rand(3)]
        h.square().sum().backward()
        with fastseed.fork_rng("inside"):
            ends.append(torch.rand(3))
        ends.append(torch.rand(3))
        gradients = [x.grad, *(w.grad.clone() for w in self.weights)]
        for w in self.weights:
            w.grad = None
        return gradients, ends

    def repeats(self):
        """Return whether each layer ran twice with the same masks."""
        assert all(len(masks) == 2 for masks in self.masks.values())
        return all(a.equal(b) for a, b in self.masks.values())


def plain(function, *arguments):
    return function(*arguments)


REENTRANT = partial(checkpoint, use_reentrant=True)
NEW = partial(checkpoint, use_reentrant=False)


def equal(a, b):
    return all(x.equal(y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("call", [REENTRANT, NEW])
def test_numbered_blocks_repeat_in_recomputation(weights, call, caplog):
    gradients, ends = Model(weights, numbered=True).run(plain)
    model = Model(weights, numbered=True)
    again, after = model.run(call)
    assert model.repeats()
    assert equal(again, gradients)
    assert equal(after, ends)  # the stream continues where the forward pass left it
    assert caplog.records == []


@pytest.mark.parametrize("call", [REENTRANT, NEW])
def test_continuing_blocks_differ_and_warn(weights, call, caplog):
    warn_once.cache_clear()
    gradients, _ = Model(weights, numbered=False).run(plain)
    model = Model(weights, numbered=False)
    with caplog.at_level(logging.WARNING):
        again, _ = model.run(call)
    assert not model.repeats() and not equal(again, gradients)
    (record,) = caplog.records  # once, not once a layer
    assert "'inside' was entered in a backward pass" in record.getMessage()
    assert "give fork_rng an index=" in record.getMessage()


@pytest.mark.parametrize("name", ["around", "inside"])
def test_blocks_around_a_checkpoint(weights, name):
    """Also the stream that the checkpointed function uses."""

    def around(call):
        def run(f, *arguments):
            with fastseed.fork_rng(name):
                return call(f, *arguments)

        return run

    gradients, ends = Model(weights, numbered=True).run(around(plain))
    model = Model(weights, numbered=True)
    again, after = model.run(around(NEW))
    assert model.repeats() and equal(again, gradients) and equal(after, ends)


def test_two_threads_of_a_backward_pass_do_not_mix_their_blocks(monkeypatch):
    """As with several devices: the engine runs one thread for each."""
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    monkeypatch.setattr(private_torch, "in_backward", lambda: True)
    errors = []

    def enter():
        try:
            with fastseed.fork_rng("y", index=1):
                pass
        except RuntimeError as error:
            errors.append(str(error))

    with fastseed.fork_rng("x", index=0):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(errors) == 1 and "another thread is inside fork_rng('x')" in errors[0]

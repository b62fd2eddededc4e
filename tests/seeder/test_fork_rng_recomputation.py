"""Activation checkpointing recomputes a function in the backward pass: its blocks repeat."""

import threading
from functools import partial

import pytest
import torch
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed._backend import private_torch
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
            number = 2 * i + part
            name, index = ("inside", number) if self.numbered else (f"inside/{number}", None)
            with fastseed.fork_rng(name, index=index):
                masks.append(dropout(torch.ones_like(x)))
        masks.append(dropout(torch.ones_like(x)))
        self.masks[i].append(torch.stack(masks).detach())
        for mask in masks:
            x = x * (1 + mask)
        return (x @ self.weights[i]).sin()

    def run(self, call):
        """Return all gradients, and random numbers after the forward and the backward pass."""
        fastseed.derivation.context.seeder.move(1, 7, 0)
        x = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()
        h = x
        for i in range(LAYERS):
            h = call(self.layer, h, i)
        ends = [torch.rand(3)]
        h.square().sum().backward()
        with fastseed.fork_rng("after"):
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


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("call", [REENTRANT, NEW])
def test_blocks_repeat_in_recomputation(weights, call, numbered, caplog):
    gradients, ends = Model(weights, numbered).run(plain)
    model = Model(weights, numbered)
    again, after = model.run(call)
    assert model.repeats()
    assert equal(again, gradients)
    assert equal(after, ends)
    assert caplog.records == []


@pytest.mark.parametrize("name", ["around", "inside"])
def test_blocks_around_a_checkpoint(weights, name):
    """Also the stream that the checkpointed function uses."""

    def around(call):
        def run(f, *arguments):
            with fastseed.fork_rng(name, index=1):
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

"""Activation checkpointing recomputes a function in the backward pass: its forks draw the same."""

from __future__ import annotations

import logging
from functools import partial

import pytest
import torch
from helpers.support import snapshot
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed.seeder import named_streams, stream_stack

LAYERS = 3


@pytest.fixture
def weights():
    fastseed.init(42, rank=0, world_size=1)
    generator = torch.Generator().manual_seed(1)
    yield [torch.randn(8, 8, generator=generator, requires_grad=True) for _ in range(LAYERS)]
    assert stream_stack._frames == [] and stream_stack._layers == []


class Model:
    """Layers with dropout inside a fork, twice, and outside of it; remembers every mask."""

    def __init__(self, weights, index):
        self.weights, self.index = weights, index
        self.masks = {layer: [] for layer in range(LAYERS)}

    def layer(self, x, i):
        masks = []
        for part in range(2):
            with fastseed.fork_rng("inside", index=2 * i + part if self.index else None):
                masks.append(dropout(torch.ones_like(x)))
        masks.append(dropout(torch.ones_like(x)))
        self.masks[i].append(torch.stack(masks).detach())
        for mask in masks:
            x = x * (1 + mask)
        return (x @ self.weights[i]).sin()

    def run(self, call):
        """All gradients, and what is drawn after the forward and the backward pass."""
        fastseed.derivation.context.seeder.restore(1, 7, 0)
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

    def draws_alike(self):
        """Whether each layer was run twice, with the same masks."""
        assert all(len(masks) == 2 for masks in self.masks.values())
        return all(a.equal(b) for a, b in self.masks.values())


def plain(function, *arguments):
    return function(*arguments)


def once(how):
    """A new ``recomputed`` for each call of checkpoint."""
    return lambda f, *a: checkpoint(named_streams.recomputed(f), *a, use_reentrant=how)


REENTRANT = partial(checkpoint, use_reentrant=True)
NEW = partial(checkpoint, use_reentrant=False)
WITH_CONTEXTS = partial(checkpoint, use_reentrant=False, context_fn=named_streams.fork_rng_contexts)


def alike(a, b):
    return all(x.equal(y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("call", [REENTRANT, NEW, WITH_CONTEXTS, once(True), once(False)])
def test_numbered_forks_repeat_by_themselves(weights, call, caplog):
    gradients, ends = Model(weights, index=True).run(plain)
    model = Model(weights, index=True)
    again, after = model.run(call)
    assert model.draws_alike()
    assert alike(again, gradients) and alike(after, ends)
    assert caplog.records == []


@pytest.mark.parametrize("call", [WITH_CONTEXTS, once(True), once(False)])
def test_continuing_forks_repeat_where_they_were(weights, call, caplog):
    gradients, ends = Model(weights, index=False).run(plain)
    model = Model(weights, index=False)
    again, after = model.run(call)
    assert model.draws_alike()
    assert alike(again, gradients)
    assert alike(after, ends)  # the stream goes on from where the forward pass left it
    assert caplog.records == []


@pytest.mark.parametrize("call", [REENTRANT, NEW])
def test_continuing_forks_alone_would_differ_and_say_so(weights, call, caplog):
    gradients, _ = Model(weights, index=False).run(plain)
    model = Model(weights, index=False)
    with caplog.at_level(logging.WARNING):
        again, _ = model.run(call)
    assert not model.draws_alike() and not alike(again, gradients)
    (record,) = caplog.records  # once, not once a layer
    assert "'inside' was entered in a backward pass" in record.getMessage()
    assert "context_fn" in record.getMessage()


def test_checkpoints_inside_of_checkpoints(weights):
    gradients, ends = Model(weights, index=False).run(plain)
    model = Model(weights, index=False)

    def nested(f, *arguments):
        def outer(*inner):
            with fastseed.fork_rng("other"):
                torch.rand(1)
            return WITH_CONTEXTS(f, *inner)

        return WITH_CONTEXTS(outer, *arguments)

    again, after = model.run(nested)
    assert alike(again, gradients) and alike(after, ends)
    for masks in model.masks.values():
        assert len(masks) >= 2 and all(mask.equal(masks[0]) for mask in masks)


def test_backward_twice(weights):
    """Each recomputation begins where the forward pass did."""
    fastseed.reseed(1, 7)
    model = Model(weights, index=False)
    loss = WITH_CONTEXTS(model.layer, torch.ones(4, 8, requires_grad=True), 0).sum()
    grads = []
    for _ in range(2):
        (found,) = torch.autograd.grad(loss, weights[0], retain_graph=True)
        grads.append(found)
    first, *others = model.masks[0]
    assert len(others) == 2 and all(mask.equal(first) for mask in others)
    assert grads[0].equal(grads[1])


def test_forks_around_a_checkpoint(weights):
    """What runs on a stream when it is checkpointed is torch's to put back, and it does."""
    model, base = Model(weights, index=False), snapshot()

    def around(f, *arguments):
        with fastseed.fork_rng("around"):
            return WITH_CONTEXTS(f, *arguments)

    gradients, _ = Model(weights, index=False).run(
        lambda f, *a: _around(f, *a)  # the same, without checkpoints
    )
    again, _ = model.run(around)
    assert model.draws_alike() and alike(again, gradients)
    assert snapshot()[:2] != base[:2]  # restore ran


def _around(f, *arguments):
    with fastseed.fork_rng("around"):
        return f(*arguments)


def test_a_recomputed_function_is_for_one_call(weights):
    fastseed.reseed(1)
    function = named_streams.recomputed(lambda x: x * 2)
    x = torch.ones(2, requires_grad=True)
    checkpoint(function, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"fastseed\.recomputed: must be called anew for each"):
        checkpoint(function, x, use_reentrant=True)


def test_an_error_in_a_checkpointed_function_leaves_nothing_behind(weights):
    fastseed.reseed(1)
    before = snapshot()

    def fail(x):
        with fastseed.fork_rng("inside"):
            torch.rand(1)
            raise KeyError

    for call in (WITH_CONTEXTS, once(True)):
        with pytest.raises(KeyError):
            call(fail, torch.ones(2, requires_grad=True))
    assert snapshot() == before

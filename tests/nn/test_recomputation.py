"""A recomputation has the scope, rows and label of its own forward pass."""

import functools
import itertools
import threading
from contextlib import nullcontext

import pytest
import torch
from helpers.support import restart
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed import nn
from fastseed.random import StreamBank, keyed, normal

pytestmark = pytest.mark.usefixtures("seeded")


class Kept(torch.autograd.Function):
    """A checkpoint as in guided-diffusion, which keeps the function before it calls it."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.x = x
        with torch.no_grad():
            return ctx.function(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.x.detach().requires_grad_()
        with torch.enable_grad():
            torch.autograd.backward(ctx.function(x), gradient)
        return None, x.grad


def plain(function, x):
    return function(x)


FORMS = {
    "reentrant": functools.partial(checkpoint, use_reentrant=True),
    "not reentrant": functools.partial(checkpoint, use_reentrant=False),
    "kept": Kept.apply,
}

# ---------------------------------------------------------------- what draws


def layers(name):
    layer = nn.Dropout(0.5, name=name)
    return lambda i: lambda x: layer(x).sin()


def last_layers(name):
    """Nothing behind the layer: torch stops a recomputation when its key is saved."""
    layer = nn.Dropout(0.5, name=name)
    return lambda i: lambda x: layer(x.sin())


def keyed_blocks(name):
    def draw(x, i):
        with keyed(f"{name}/{i}"):
            return (dropout(x, 0.5) * torch.randn_like(x)).sin()

    return lambda i: functools.partial(draw, i=i)


def fork_blocks(name):
    def draw(x, i):
        with fastseed.fork_rng(f"{name}/{i}"):
            x = dropout(x, 0.5)
        with fastseed.fork_rng(name, index=i):
            return (x * torch.randn_like(x)).sin()

    return lambda i: functools.partial(draw, i=i)


def keys(name):
    def draw(x, i):
        noise = normal(fastseed.derive_key(f"{name}/{i}"), (4, 8))
        noise += fastseed.derive_seed(name, bits=31) / 2**31
        return (x * noise + normal(fastseed.derive_keys(name, 4), 8)).sin()

    return lambda i: functools.partial(draw, i=i)


DRAWS = (layers, last_layers, keyed_blocks, fork_blocks, keys)

# ---------------------------------------------------------------- nesting


def once(form, a, b):
    return lambda x: form(a, x)


def twice(form, a, b):
    return lambda x: form(b, form(a, x))


def inside(form, a, b):
    return lambda x: form(lambda x: form(b, a(x)), x)


def mixed(form, a, b):
    """An outer checkpoint of the other form of torch."""
    outer = FORMS["not reentrant" if form is FORMS["reentrant"] else "reentrant"]
    return lambda x: (plain if form is plain else outer)(lambda x: a(form(b, x)), x)


def around_a_backward_pass(form, a, b):
    """Of another checkpoint, whose recomputation comes in that of the first."""

    def run(x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            form(b, y).sum().backward()
        return a(x + y.grad)

    return lambda x: form(run, x)


NESTINGS = (once, twice, inside, mixed, around_a_backward_pass)

# ---------------------------------------------------------------- what changes before backward


def steps(run, x):
    """Two steps and one backward pass."""
    losses = []
    for i in range(2):
        restart(step=i)
        losses.append(run(i)(x).sum())
    sum(losses).backward()


def passes(run, x, *blocks):
    """Passes in one step, each in its block, and one backward pass."""
    losses = []
    for i, block in enumerate(blocks):
        with block:
            losses.append(run(i)(x).sum())
    sum(losses).backward()


def labels(run, x):
    passes(run, x, nullcontext(), nn.label("second"))


def rows(run, x):
    passes(run, x, nn.rows(0, 8), nn.rows(4, 8))


def reseed(run, x):
    """A batch is fetched before the backward pass, which runs twice, and in other rows."""
    loss = run(0)(x).sum()
    restart(step=1)
    with nn.rows(4, 8), nn.label("other"):
        loss.backward(retain_graph=True)
    loss.backward()


CHANGES = (steps, labels, rows, reseed)


def in_a_thread(run, x):
    loss = run(0)(x).sum()
    restart(step=1)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()


def gradient(form, nesting, change, draw):
    first, second = draw("a"), draw("b")
    restart()
    x = torch.linspace(1, 2, 32).view(4, 8).requires_grad_()
    change(lambda i: nesting(form, first(i), second(i)), x)
    return x.grad


expected = functools.cache(functools.partial(gradient, plain))


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_recomputation_has_what_its_forward_pass_had(form, draw):
    for nesting, change in itertools.product(NESTINGS, (*CHANGES, in_a_thread)):
        found = gradient(form, nesting, change, draw)
        assert torch.allclose(found, expected(nesting, change, draw)), (nesting, change)


class Model(torch.nn.Module):
    """A module that runs parts of its forward under a checkpoint."""

    def __init__(self, form, inner=None):
        super().__init__()
        self.form, self.inner = form, inner

    def forward(self, x):
        x = self.form(self.part, dropout(x.cos(), 0.5))
        return self.form(self.last, dropout(x, 0.5))

    def part(self, x):
        return self.last(x if self.inner is None else self.inner(x))

    def last(self, x):
        scores = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        return dropout(dropout(scores, 0.5).sin(), 0.5)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_part_of_a_converted_module(form):
    def run(form):
        model = nn.convert(Model(form, Model(form)))
        restart()
        x = torch.linspace(1, 2, 32).view(4, 1, 8).requires_grad_()
        loss = model(x).sum()
        restart(step=1)
        before = torch.get_rng_state()
        loss.backward()
        assert torch.equal(torch.get_rng_state(), before)
        return x.grad

    torch.testing.assert_close(run(form), run(plain))


# ---------------------------------------------------------------- what else a backward pass draws


@pytest.mark.parametrize("place", ["inside", "outside"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_hooks_that_draw(form, place):
    def hook(gradient):
        bank = StreamBank(4, "bank")
        bank.reseed(1)
        with keyed("hook"):
            noise = torch.randn_like(gradient)
        with fastseed.fork_rng("hook"):
            noise = dropout(noise, 0.5)
        return gradient * noise + normal(fastseed.derive_key("hook"), (4, 8)) + normal(bank, 8)

    def part(x):
        with keyed("part"):
            y = x * torch.randn_like(x)
        if place == "inside" and y.requires_grad:
            y.register_hook(hook)
        return y.sin()

    def run(form):
        restart()
        x = torch.linspace(1, 2, 32).view(4, 8).requires_grad_()
        y = form(part, x)
        if place == "outside":
            y.register_hook(hook)
        loss = y.sum()
        restart(step=1)
        loss.backward()
        with pytest.raises(RuntimeError, match="entered once in a scope"):  # as any entry
            hook(y)
        return x.grad

    torch.testing.assert_close(run(form), run(plain))


@pytest.mark.parametrize("draw", [layers, keyed_blocks, fork_blocks, keys])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_use_that_the_forward_pass_did_not_have(form, draw):
    parts, calls = draw("a"), []

    def part(x):
        calls.append(None)
        for i in range(len(calls)):
            with nn.label(str(i)):
                x = parts(i)(x)
        return x.sin()

    loss = form(part, torch.ones(4, 8, requires_grad=True)).sum()
    with pytest.raises(RuntimeError, match="more often than its forward pass"):
        loss.backward()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_block_around_a_checkpoint_is_refused(form):
    def part(x):
        return x * torch.randn_like(x)

    wrong = "open the block inside the function"
    with keyed("around"), pytest.raises(RuntimeError, match=wrong):
        form(part, torch.ones(4, requires_grad=True))


class DrawsTwice(torch.autograd.Function):
    """No checkpoint: it draws in both passes."""

    @staticmethod
    def forward(ctx, draw, x):
        ctx.name = draw.__name__
        return x * draw()

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient * globals()[ctx.name]()


def by_key():
    return normal(fastseed.derive_key("noise"), 4)


def by_outer_block():
    return torch.randn(4)


def by_block():
    with keyed("noise"):
        return torch.randn(4)


def test_a_backward_function_that_draws():
    x = torch.ones(4, requires_grad=True)
    y = DrawsTwice.apply(by_key, x)
    y.sum().backward()
    assert torch.equal(x.grad, y)
    with keyed("around"):  # which a straight-through function may use
        DrawsTwice.apply(by_outer_block, x)
    y = DrawsTwice.apply(by_block, x)
    with pytest.raises(RuntimeError, match="entered once in a scope"):
        y.sum().backward()


class KeptLater(Kept):
    """A checkpoint as Unsloth's, which keeps the function after the call."""

    @staticmethod
    def forward(ctx, function, x):
        with torch.no_grad():
            y = function(x)
        ctx.function, ctx.x = function, x
        return y


@pytest.mark.parametrize("change", CHANGES)
def test_a_checkpoint_that_keeps_its_function_too_late(change):
    """One pass is right, and all else raises."""

    def simple(run, x):
        run(0)(x).sum().backward()

    found = gradient(KeptLater.apply, twice, simple, layers)
    assert torch.allclose(found, expected(twice, simple, layers))
    with pytest.raises(RuntimeError, match="must keep its function on ctx before"):
        gradient(KeptLater.apply, twice, change, layers)


# ---------------------------------------------------------------- what has a state


def draw_from_bank():
    bank = StreamBank(4, "noise")
    bank.reseed(1)
    return lambda x: (x * normal(bank, 8)).sin()


def perturb():
    model = torch.nn.Linear(8, 8)

    def run(x):
        with nn.perturbed(model, seed=1, scale=0.5):
            return model(x)

    return run


@pytest.mark.parametrize("make", [draw_from_bank, perturb])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_has_a_state_is_refused(form, make):
    part, x = make(), torch.ones(4, 8, requires_grad=True)
    wrong = "must not be called in a checkpointed function"
    with pytest.raises(RuntimeError, match=wrong):
        form(part, x)
    part(x)
    calls = []

    def later(x):  # in the recomputation alone
        calls.append(None)
        with keyed("part"):
            x = x * torch.randn_like(x)
        return part(x) if len(calls) > 1 else x.sin()

    loss = form(later, x).sum()
    with pytest.raises(RuntimeError, match=wrong):
        loss.backward()


# ---------------------------------------------------------------- compiled code


def test_reseed_is_a_write_that_autograd_sees():
    scope = fastseed.random.scope_tensors.process_state.devices[torch.device("cpu")].scope
    before = scope._version
    restart(step=1)
    assert scope._version > before


@pytest.mark.slow
def test_a_checkpoint_in_compiled_code():
    """Its graph keeps the tensor of the scope, so that a reseed before backward raises."""
    layer, bank = layers("a")(0), draw_from_bank()

    @torch.compile(backend="aot_eager")
    def run(x):
        return checkpoint(layer, x, use_reentrant=False)

    x = torch.linspace(1, 2, 32).view(4, 8).requires_grad_()
    run(x).sum().backward()
    restart()
    whole = x.detach().clone().requires_grad_()
    layer(whole).sum().backward()
    torch.testing.assert_close(x.grad, whole.grad)
    loss = run(x).sum()
    restart(step=1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with pytest.raises(Exception, match="must not be called in a checkpointed function"):
        torch.compile(lambda x: checkpoint(bank, x, use_reentrant=False), backend="aot_eager")(x)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_compiled_code_in_a_block_in_a_checkpoint(form):
    def noisy(x):
        return (x * torch.randn_like(x)).sin()

    compiled = torch.compile(noisy, backend="aot_eager")

    def run(form, function):
        def part(x):
            with keyed("noise"):
                return function(x)

        x = torch.linspace(1, 2, 32).requires_grad_()
        steps(lambda i: functools.partial(form, part), x)
        return x.grad

    torch.testing.assert_close(run(form, compiled), run(plain, noisy))

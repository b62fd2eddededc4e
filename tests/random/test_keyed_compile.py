"""Blocks of ``random.keyed`` in compiled code: the bits of eager code, one graph, one count."""

import os
import sys

import pytest
import torch
from helpers.keyed_calls import CALLS, HEADS, UNTRACEABLE
from helpers.processes import run_python
from helpers.support import restart, without_scope
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed._utils import log
from fastseed.random import keyed

ONES = torch.ones(64)
ATTENTION = nn.MultiheadAttention(4, 2, dropout=0.5)
TRACED = {name: call for name, call in CALLS.items() if name not in UNTRACEABLE}
TRACED["MultiheadAttention"] = lambda: ATTENTION(*[HEADS[0]] * 3)[0]
FEW = ("rand", "randn_like", "randint_like", "randperm", "normal of tensors", "dropout2d")
ROUNDED = ("attention", "gumbel_softmax", "MultiheadAttention")  # in sums that inductor reorders


class Backend:
    """A backend that counts what it is asked to compile."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, _):
        self.graphs += 1
        return graph


@pytest.fixture(autouse=True)
def _started():
    torch._dynamo.reset()
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 0, 3)


def compiled(function, backend="eager"):
    return torch.compile(function, backend=backend, fullgraph=True)


def layer(x):
    return functional.dropout(x, 0.5) * torch.rand_like(x)


# ---------------------------------------------------------------- bits


@pytest.mark.costly("compiles")
@pytest.mark.parametrize(
    ("backend", "names"),
    [
        ("aot_eager", FEW),
        pytest.param("aot_eager", tuple(TRACED), marks=pytest.mark.slow),
        pytest.param("inductor", tuple(TRACED), marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
    ids=["few", "aot_eager", "inductor"],
)
def test_compiled_functions_draw_the_bits_of_eager_ones(backend, names):
    def calls():
        return [TRACED[name]() for name in names]

    def opens():
        with keyed("flow", 1):
            return calls()

    with keyed("flow", 1):
        expected, following = calls(), torch.rand(2)
    state = torch.get_rng_state()
    with keyed("flow", 1):
        found = compiled(calls, backend)()
        assert torch.equal(torch.rand(2), following), "an eager call continues the count"
    within = backend if backend != "inductor" else "aot_eager"  # one graph takes it a minute
    for name, *values in zip(names, expected, found, compiled(opens, within)(), strict=True):
        for value in values[1:]:
            if name in ROUNDED and backend == "inductor":
                torch.testing.assert_close(value, values[0])
                assert torch.equal(value == 0, values[0] == 0), name
            else:
                assert torch.equal(value, values[0]), name
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_repeat_the_mask():
    weight, x = torch.randn(8, 8, requires_grad=True), torch.randn(4, 8)

    def gradient(run):
        with keyed("flow", 0):
            loss = run(x @ weight).square().sum()
        return torch.autograd.grad(loss, weight)[0]

    assert torch.equal(gradient(compiled(layer, "aot_eager")), gradient(layer))


@pytest.mark.costly("compiles")
def test_parts_of_a_broken_graph_share_the_count():
    def broken(x):
        first = layer(x)
        torch._dynamo.graph_break()
        return first, layer(x)

    def opens(x):
        with keyed("flow", 0):
            return broken(x)

    expected = opens(ONES)
    with keyed("flow", 0):
        found = torch.compile(broken, backend="eager")(ONES)
    for each in (found, torch.compile(opens, backend="eager")(ONES)):
        assert all(map(torch.equal, each, expected))


# ---------------------------------------------------------------- graphs


@pytest.mark.costly("compiles")
@pytest.mark.parametrize("calls", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_index_step_and_draws_do_not_compile_anew(calls):
    def opens(x, index):
        with keyed("flow", index):
            return layer(x)

    inner, outer = Backend(), Backend()
    run, run_opens = compiled(layer, inner), compiled(opens, outer)
    for call in range(calls):
        restart(call)
        index, before = call * 3 % 101, call % 4
        drawn = []
        for each in (layer, run):
            with keyed("flow", index):
                torch.rand(before), [torch.rand(1) for _ in range(before)]
                drawn.append((each(ONES), torch.rand(2)))
        assert all(map(torch.equal, *drawn)), call
        assert torch.equal(run_opens(ONES, index), opens(ONES, index)), call
    assert inner.graphs == 1 and outer.graphs <= 2


@pytest.mark.costly("compiles")
def test_a_graph_is_that_of_its_block():
    """Code that was compiled in one block is not run in another one, nor outside."""
    run = compiled(layer)

    def drawn(function):
        found = []
        for name in ("a", "b", "a"):
            with keyed(name, 0):
                found.append(function(ONES))
                with keyed(f"in {name}", 0):
                    found.append(function(ONES))
        torch.manual_seed(1)
        return [*found, function(ONES)]

    found, expected = drawn(run), drawn(layer)
    assert all(map(torch.equal, found, expected))
    assert len({value.sum().item() for value in found}) == 5


@pytest.mark.costly("compiles")
def test_a_graph_is_that_of_its_job():
    """Another rank or master seed, or another ``distinct_over``, is not that of the trace."""

    def opens(distinct_over):
        with keyed("flow", 0, distinct_over=distinct_over):
            return layer(ONES)

    run, found = compiled(opens), []
    for master, rank in ((42, 0), (42, 1), (7, 1)):
        fastseed.init(master, rank=rank, world_size=2)
        fastseed.reseed(1, 0, 3)
        for distinct_over in (None, ()):
            found.append(run(distinct_over))
            assert torch.equal(found[-1], opens(distinct_over)), (master, rank)
    assert len({value.sum().item() for value in found}) == 5, "two are the same on all ranks"


def test_one_graph_for_all_sizes():
    backend = Backend()
    run = torch.compile(layer, backend=backend, fullgraph=True, dynamic=True)
    for n in (5, 17, 33):
        with keyed("flow", 0):
            found = run(ONES[:n])
        with keyed("flow", 0):
            assert torch.equal(found, layer(ONES[:n]))
    assert backend.graphs == 1


# ---------------------------------------------------------------- errors


def test_reseed_in_a_block_before_a_compiled_call():
    run = compiled(layer)
    for before in (0, 1):
        with keyed("flow", 0):
            for _ in range(before):
                run(ONES)
            fastseed.reseed(1, 0, 4 + before)
            with pytest.raises(Exception, match=r"leave the block before fastseed\.reseed"):
                run(ONES)


def test_a_compiled_function_before_reseed():
    without_scope()

    def opens():
        with keyed("flow", 0):
            return torch.rand(2)

    with pytest.raises(Exception, match=r"call fastseed\.reseed\(task, epoch\) first"):
        compiled(opens)()


@pytest.mark.costly("compiles")
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_compiled_code_in_a_checkpoint(use_reentrant):
    """Inside a checkpointed function the block is opened; what is compiled may be either."""

    def inside(x):
        with keyed("flow", 0):
            return layer(x) * x

    def gradient(run):
        x = torch.ones(64, requires_grad=True)
        run(x).sum().backward()
        return x.grad

    def recomputed(function):
        return lambda x: checkpoint(function, x, use_reentrant=use_reentrant)

    expected, run = gradient(inside), compiled(inside, "aot_eager")
    assert torch.equal(gradient(recomputed(run)), expected)
    whole = torch.compile(recomputed(inside), backend="aot_eager")
    assert torch.equal(gradient(whole), expected)
    wrong = "open the block inside the function"
    with pytest.raises(Exception, match=wrong), keyed("flow", 0):
        recomputed(compiled(lambda x: layer(x) * x))(torch.ones(64, requires_grad=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [{"activation_memory_budget": 0.0}, {"aggressive_recomputation": True}]
)
def test_the_compiler_does_not_draw_again_in_a_block_around_it(setting):
    def noisy(x):
        return x * torch.randn_like(x)

    x = ONES.clone().requires_grad_()
    with torch._functorch.config.patch(setting):
        with keyed("flow", 0), pytest.raises(RuntimeError, match="activation_memory_budget"):
            compiled(noisy, "aot_eager")(x)
        with keyed("flow", 0):
            drawn = torch.compile(noisy, backend="aot_eager")(x)
        drawn.sum().backward()
        assert torch.equal(x.grad, drawn.detach())
        with torch.no_grad(), keyed("flow", 0):
            other = compiled(lambda x: x * torch.randn_like(x), "aot_eager")  # noisy is skipped now
            assert torch.equal(other(x), drawn)


def not_drawn_from_keys():
    """Import Dynamo in a block; return which functions did not draw from keys.

    Backend "eager" would not do: its graph calls torch's functions, which the block sees.
    """
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    ones = torch.ones(3, 4)
    calls = {
        "randn_like": lambda: torch.randn_like(ones),
        "rand_like": lambda: torch.rand_like(ones),
        "randint_like": lambda: torch.randint_like(ones, 100),
        "normal": lambda: torch.normal(ones, 2 * ones),
        "bernoulli": lambda: torch.bernoulli(ones / 2),
    }
    was_imported = "torch._dynamo" in sys.modules
    state, differ = torch.get_rng_state(), []
    for name, call in calls.items():
        found = []
        for function in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
            with keyed("flow", 0):
                found.append(function())
        if not torch.equal(*found):
            differ.append(name)
    return was_imported, differ, torch.equal(torch.get_rng_state(), state)


def test_dynamo_is_imported_in_the_block():
    """Its list of functions that modes see lacks some; a fresh interpreter imports it late."""
    call = "import test_keyed_compile as tests; print(tests.not_drawn_from_keys())"
    found = run_python("-c", call, PYTHONPATH=os.pathsep.join(sys.path))
    assert found == "(False, [], True)\n"


def test_vmap_in_compiled_code_does_not_repeat_numbers_unseen():
    def draw(x):
        with keyed("inside", 0):
            return torch.vmap(lambda row: row + torch.rand(2), randomness="different")(x)

    message = r"torch\.vmap would give all"
    if sys.version_info < (3, 11) and torch.__version__.startswith("2.10."):
        message = "Observed exception"  # all that Dynamo says there of an error inside
    with pytest.raises(Exception, match=message):
        torch.compile(draw, backend="eager", fullgraph=True)(torch.zeros(3, 2))


def test_export_is_refused_in_a_block_and_follows_the_job_around_one(caplog):
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.rand(64)

    class Opens(nn.Module):
        def forward(self, x):
            with keyed("flow", 0):
                return x + torch.rand(64)

    with keyed("flow", 0), pytest.raises(RuntimeError, match=r"torch\.export would keep its count"):
        torch.export.export(Noisy(), (ONES,))
    log.warn_once.cache_clear()
    program = torch.export.export(Opens(), (ONES,)).module()
    assert caplog.text.count("saved and loaded, it repeats the random numbers") == 1
    for step in (4, 5):
        restart(step)
        assert torch.equal(program(ONES), Opens()(ONES))

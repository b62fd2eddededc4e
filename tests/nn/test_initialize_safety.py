"""Initialization: refusals, outputs, blocks, threads, and the functions of torch."""

import contextlib
import inspect
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers.support import freed
from torch import nn

import fastseed
from fastseed.derivation import context
from fastseed.nn.initialization import mode
from fastseed.random import fills, normal_


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def key(name: str) -> int:
    return fastseed.derive_key(f"init/{name}", task=0, rank=fastseed.SHARED)


FILLED = {
    "trunc_normal_": (nn.init.trunc_normal_, torch.ones(6, 6)),
    "orthogonal_": (nn.init.orthogonal_, torch.ones(6, 6)),
    "sparse_": (lambda t: nn.init.sparse_(t, 0.5), torch.ones(6, 6)),
    "randperm": (lambda t: torch.randperm(t.numel(), out=t), torch.ones(6, dtype=torch.int64)),
    "uniform_": (lambda t: t.uniform_(1, 1), torch.ones(6, 6)),
}


@pytest.mark.parametrize(
    "change", [freed, lambda t: t[:1].expand(6, *t.shape[1:])], ids=["freed", "overlapping"]
)
@pytest.mark.parametrize("name", FILLED)
def test_outputs_that_cannot_be_written_are_refused(name, change):
    fill, whole = FILLED[name]
    model = nn.Module()
    model.register_buffer("weight", change(whole.clone()))
    refused = pytest.raises((TypeError, ValueError), match=r"^fastseed\..*: tensor must")
    with fastseed.nn.initialize(model), refused:
        fill(model.weight)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 3, 2)])
def test_weights_without_elements_are_left_as_they_are(shape):
    model = nn.Module()
    model.weight = nn.Parameter(torch.empty(shape))
    with fastseed.nn.initialize(model):
        nn.init.orthogonal_(model.weight)
        nn.init.kaiming_uniform_(model.weight)
    assert model.weight.shape == shape and not model.weight.numel()


@pytest.mark.parametrize(
    "draw",
    [
        lambda m, g: m.weight.data.normal_(generator=g),
        lambda m, g: nn.init.uniform_(m.weight, generator=g),
        lambda m, g: nn.init.trunc_normal_(m.weight, generator=g),
        lambda m, g: nn.init.orthogonal_(m.weight, generator=g),
        lambda m, g: nn.init.sparse_(m.weight, 0.5, generator=g),
        lambda m, g: torch.randperm(4, generator=g, out=m.order),
    ],
)
def test_a_generator_is_refused(draw):
    def build() -> nn.Module:
        model = nn.Linear(4, 4)
        model.register_buffer("order", torch.arange(4))
        return model

    model, generator = build(), torch.Generator()
    before = [model.weight.clone(), model.order.clone(), generator.get_state()]
    refused = r"^fastseed\.nn\.initialize: generator must be None, .* got <torch.*nothing was drawn"
    with pytest.raises(RuntimeError, match=refused), fastseed.nn.initialize(model):
        draw(model, generator)
    after = [model.weight, model.order, generator.get_state()]
    assert all(map(torch.equal, before, after))


def test_the_function_that_was_called_is_named(monkeypatch):
    """Before ``init``."""
    monkeypatch.setattr(context, "seeder", None)
    with pytest.raises(RuntimeError, match=r"^fastseed\.nn\.initialize: call fastseed.init\("):
        fastseed.nn.initialize(nn.Linear(1, 1)).__enter__()


def test_a_thread_without_the_block_is_noticed():
    model = nn.Linear(2, 2)
    moved = pytest.raises(RuntimeError, match=r"^fastseed.nn.initialize: .* generator of torch has")
    with ThreadPoolExecutor(1) as pool, moved, fastseed.nn.initialize(model):
        pool.submit(model.reset_parameters).result()
    with pytest.raises(ZeroDivisionError), fastseed.nn.initialize(model):
        torch.manual_seed(5)
        raise ZeroDivisionError


def test_reseed_in_a_block_leaves_it_open():
    model = nn.Linear(2, 2)
    with fastseed.nn.initialize(model):
        fastseed.reseed(1)
        nn.init.normal_(model.weight)
    assert torch.equal(model.weight, normal_(torch.empty(2, 2), key("weight")))


@pytest.mark.parametrize("fill", [nn.init.normal_, nn.init.trunc_normal_, nn.init.orthogonal_])
def test_the_innermost_of_initialize_and_a_block_draws(fill):
    fastseed.reseed(1)

    def filled(*blocks) -> torch.Tensor:
        weight = nn.Linear(3, 3, bias=False)
        with contextlib.ExitStack() as stack:
            for block in blocks:
                stack.enter_context(block(weight))
            fill(weight.weight)
        return weight.weight.detach()

    def names(model):
        return fastseed.nn.initialize(model)

    def block(_):
        return fastseed.random.keyed("x", 0)

    by_name, by_block = filled(names), filled(block)
    assert not torch.equal(by_name, by_block)
    assert torch.equal(filled(block, block, names), by_name)
    assert torch.equal(filled(block, names, block), by_block)
    model = nn.Linear(3, 3, bias=False)
    with block(model):
        with names(model):
            fill(model.weight)
        assert torch.equal(fill(torch.empty(3, 3)), by_block)  # the count of the block stayed


def test_threads_initialize_models_of_their_own():
    """Each as it is alone; a thread without a block draws from a generator of its own."""
    inside, done = threading.Barrier(3), threading.Barrier(3)
    models = [nn.Linear(6, 6) for _ in range(2)]

    def keyed(index: int) -> None:
        with fastseed.nn.initialize(models[index], prefix=f"{index}."):
            inside.wait()
            nn.init.orthogonal_(models[index].weight)
            nn.init.normal_(models[index].bias)
            done.wait()

    def unkeyed() -> torch.Tensor:
        inside.wait()
        generator = torch.Generator().manual_seed(3)
        found = nn.init.orthogonal_(torch.empty(5, 5), generator=generator)
        done.wait()
        return found

    with ThreadPoolExecutor(3) as threads:
        blocks = [threads.submit(keyed, i) for i in range(2)]
        plain = threads.submit(unkeyed).result(60)
        for block in blocks:
            block.result(60)
    for i, model in enumerate(models):
        wanted = torch.empty(6, 6)
        fills.orthogonal_(wanted, key(f"{i}.weight"))
        assert torch.equal(model.weight, wanted)
        assert torch.equal(model.bias, normal_(torch.empty(6), key(f"{i}.bias")))
    torch.manual_seed(3)
    assert torch.equal(plain, nn.init.orthogonal_(torch.empty(5, 5)))


SIGNATURES = {
    "trunc_normal_": ["tensor", "mean=0.0", "std=1.0", "a=-2.0", "b=2.0", "generator=None"],
    "orthogonal_": ["tensor", "gain=1", "generator=None"],
    "sparse_": ["tensor", "sparsity", "std=0.01", "generator=None"],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_torch_has_the_initializers_that_are_replaced_while_a_block_is_open(name):
    """Fails where torch changes them: see ``fastseed/nn/initialization/mode.py``."""
    function = inspect.unwrap(getattr(nn.init, name))
    assert isinstance(function, types.FunctionType) and function.__closure__ is None
    parameters = [
        p.name if p.default is p.empty else f"{p.name}={p.default}"
        for p in inspect.signature(function).parameters.values()
    ]
    assert parameters == SIGNATURES[name]
    files = [function.__code__.co_filename]
    with fastseed.nn.initialize(nn.Identity()):
        files.append(function.__code__.co_filename)
        with fastseed.nn.initialize(nn.Identity(), task=1):
            pass
        files.append(function.__code__.co_filename)
    files.append(function.__code__.co_filename)
    assert files == [nn.init.__file__, mode.__file__, mode.__file__, nn.init.__file__]


def test_torch_has_no_other_initializer_that_computes_with_random_numbers():
    """Each one is a fill in a block, so that its values are those of one element each."""
    drawing = {
        name
        for name, function in vars(nn.init).items()
        if name.endswith("_")
        and not name.startswith("_")
        and inspect.isfunction(function)
        and "generator" in inspect.signature(function).parameters
    }
    mapped = {"uniform_", "normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
              "kaiming_normal_", *SIGNATURES}  # fmt: skip
    assert drawing == mapped

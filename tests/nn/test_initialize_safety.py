"""Initialization: refusals, outputs, interrupts, threads, and the functions of torch."""

from __future__ import annotations

import inspect
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from helpers.interrupts import interruptions
from helpers.support import snapshot
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode

import fastseed
from fastseed.derivation import context
from fastseed.nn.init import torch_functions as torch_initializers
from fastseed.nn.init.names import weak_storage


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def key(name: str) -> int:
    return fastseed.derive_key(f"init/{name}", task=0, rank=fastseed.SHARED)


# ---------------------------------------------------------------- functions of a key

INITIALIZERS: dict[str, tuple[Any, ...]] = {
    "kaiming_uniform_": (),
    "kaiming_normal_": (),
    "xavier_uniform_": (),
    "xavier_normal_": (),
    "orthogonal_": (),
    "sparse_": (0.5,),
    "randperm_": (),
}


def freed(tensor: torch.Tensor) -> torch.Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


def output(function: str) -> torch.Tensor:
    return torch.ones(6, dtype=torch.int64) if function == "randperm_" else torch.ones(6, 6)


HOSTILE = {
    "freed": freed,
    "overlapping": lambda t: t[:1].expand(6, *t.shape[1:]),
    "sparse": torch.Tensor.to_sparse,
    "bool": torch.Tensor.bool,
    "complex": lambda t: t.to(torch.complex64),
    "zero tensor": lambda t: torch._efficientzerotensor(tuple(t.shape)),
    "scalar": lambda t: t.sum(),
    "no tensor": lambda t: None,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("function", INITIALIZERS)
def test_initializers_refuse_outputs_that_they_cannot_write(function, kind):
    call, tensor = getattr(fastseed.nn.init, function), HOSTILE[kind](output(function))
    before = tensor.clone() if kind in ("overlapping", "bool", "complex", "scalar") else None
    with pytest.raises(
        (TypeError, ValueError), match=rf"^fastseed\.nn\.init\.{function}: tensor must"
    ):
        call(tensor, 7, *INITIALIZERS[function])
    assert before is None or torch.equal(tensor, before)


BAD_KEYS = [None, "x", -1, 2**128, True, torch.tensor([1, 2]), torch.zeros(3, dtype=torch.uint64),
            torch.zeros(1, 2, dtype=torch.uint64), torch.empty(2, dtype=torch.uint64, device="meta")
            ]  # fmt: skip
BAD_PARAMETERS = [
    *(("xavier_uniform_", {"gain": g}) for g in (-1, float("nan"), "x", 10**400, torch.ones(3))),
    *(("orthogonal_", {"gain": g}) for g in (float("inf"), "x", 10**400, torch.ones(3))),
    ("xavier_normal_", {"gain": -1}),
    *(("kaiming_uniform_", {"a": a}) for a in ("x", float("nan"), 1e200)),
    *(("kaiming_normal_", {"nonlinearity": name}) for name in ("x", 3)),
    *(("kaiming_normal_", {"mode": mode}) for mode in ("x", 3)),
    *(("sparse_", {"sparsity": part}) for part in (2, -0.1, "x")),
    *(("sparse_", {"sparsity": 0.5, "std": std}) for std in (-1, "x", float("nan"))),
]


@pytest.mark.parametrize(
    ("function", "given"),
    [(f, {"key": k}) for f in INITIALIZERS for k in BAD_KEYS] + BAD_PARAMETERS,
    ids=lambda value: str(value)[:20],
)
def test_a_refused_initializer_has_not_changed_its_output(function, given):
    tensor = output(function)
    sparsity = {"sparsity": 0.5} if function == "sparse_" else {}
    name = next(reversed(given))
    with pytest.raises(
        (TypeError, ValueError), match=rf"^fastseed\.nn\.init\.{function}: {name} must"
    ):
        getattr(fastseed.nn.init, function)(tensor, **{"key": 7, **sparsity, **given})
    assert (tensor == 1).all()


def test_a_nonlinearity_is_a_name():
    """Torch would print a tensor without memory in its message."""
    freed = torch.ones(2)
    freed.untyped_storage().resize_(0)
    with pytest.raises(
        TypeError, match=r"nn\.init\.kaiming_normal_: nonlinearity must be a string"
    ):
        fastseed.nn.init.kaiming_normal_(torch.empty(3, 2), 7, nonlinearity=freed)


@pytest.mark.parametrize("function", INITIALIZERS)
def test_values_do_not_depend_on_how_the_tensor_and_the_key_are_given(function):
    call, parameters = getattr(fastseed.nn.init, function), INITIALIZERS[function]
    wanted = call(output(function), 7 | 2 << 64, *parameters)
    by_tensor = call(output(function), torch.tensor([7, 2], dtype=torch.uint64), *parameters)
    with torch.inference_mode():
        inference = output(function)
    call(inference, 7 | 2 << 64, *parameters)
    made_before = output(function)
    with torch.device("meta"):
        call(made_before, 7 | 2 << 64, *parameters)
    assert all(torch.equal(found, wanted) for found in (by_tensor, inference, made_before))
    with FakeTensorMode():
        fake = output(function)
        assert call(fake, 7, *parameters) is fake


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (0, 3, 2)])
@pytest.mark.parametrize("function", sorted({*INITIALIZERS} - {"randperm_", "sparse_"}))
def test_weights_without_elements_are_left_as_they_are(function, shape):
    tensor = torch.empty(shape)
    assert getattr(fastseed.nn.init, function)(tensor, 7) is tensor
    model = nn.Module()
    model.weight = nn.Parameter(tensor)
    if function.startswith("xavier") and not any(shape[:2]):
        return  # torch itself divides by zero
    with fastseed.nn.initialize(model):
        getattr(nn.init, function)(model.weight)


@pytest.mark.parametrize("function", ["xavier_uniform_", "xavier_normal_", "orthogonal_"])
def test_a_gain_of_zero_gives_zeros(function):
    assert not getattr(fastseed.nn.init, function)(torch.ones(3, 3), 7, gain=0).any()


# ---------------------------------------------------------------- blocks


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

    def factory() -> nn.Module:
        made = build()
        draw(made, generator)
        return made

    with pytest.raises(RuntimeError, match=r"^fastseed\.nn\.construct: .*generator"):
        fastseed.nn.construct(factory)


def initialize_nothing() -> None:
    with fastseed.nn.initialize(nn.Linear(1, 1)):
        pass


CALLS = {
    "initialize": initialize_nothing,
    "construct": lambda: fastseed.nn.construct(nn.Linear, 1, 1),
}


@pytest.mark.parametrize("function", CALLS)
def test_the_function_that_was_called_is_named(function, monkeypatch):
    """Before ``init``, and under a scheme that has no keys."""
    with monkeypatch.context() as patch:
        patch.setattr(context, "seeder", None)
        with pytest.raises(RuntimeError, match=rf"^fastseed\.nn\.{function}: call fastseed.init\("):
            CALLS[function]()
    fastseed.pyt.init(42, 1, 0, scheme="fwr13y")
    with pytest.raises(ValueError, match=rf"^fastseed\.nn\.{function}: scheme must be 'philox-v1'"):
        CALLS[function]()


def test_a_model_that_is_built_in_the_block_is_refused_with_what_to_do():
    refused = (
        r"got aten.uniform_.default on another tensor; nothing was drawn. Build modules before the "
        r"block, or use fastseed.nn.construct"
    )
    with pytest.raises(RuntimeError, match=refused), fastseed.nn.initialize(nn.Linear(2, 2)):
        nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("factory", "fill"),
    [
        (nn.Identity, lambda model: None),
        pytest.param(
            nn.Linear, lambda model: nn.init.orthogonal_(model.weight), marks=pytest.mark.slow
        ),
    ],
    ids=["empty", "filled"],
)
def test_an_interrupt_leaves_no_mode(factory, fill):
    model = factory(2, 2)

    def initialize() -> None:
        with fastseed.nn.initialize(model):
            fill(model)

    def construct() -> None:
        fastseed.nn.construct(factory, 2, 2, task=1)

    for call in (initialize, construct):
        call()  # modules are imported here, not between interrupts
        points = 0
        for where in interruptions(call):
            points += 1
            assert _get_current_dispatch_mode() is None, where
        assert points > 20
    before = snapshot()
    nn.init.orthogonal_(torch.empty(2, 2))
    assert snapshot() != before  # torch's generator draws again


def test_threads_initialize_models_of_their_own():
    """Each as it is alone; a thread without a block draws from torch's generators."""
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
        torch.manual_seed(3)
        found = nn.init.orthogonal_(torch.empty(5, 5))
        done.wait()
        return found

    with ThreadPoolExecutor(3) as threads:
        blocks = [threads.submit(keyed, i) for i in range(2)]
        plain = threads.submit(unkeyed).result(60)
        for block in blocks:
            block.result(60)
    for i, model in enumerate(models):
        wanted = fastseed.nn.init.orthogonal_(torch.empty(6, 6), key(f"{i}.weight"))
        assert torch.equal(model.weight, wanted)
        assert torch.equal(model.bias, fastseed.random.randn(key(f"{i}.bias"), 6))
    torch.manual_seed(3)
    assert torch.equal(plain, nn.init.orthogonal_(torch.empty(5, 5)))


# ---------------------------------------------------------------- functions of torch

SIGNATURES = {
    "trunc_normal_": ["tensor", "mean=0.0", "std=1.0", "a=-2.0", "b=2.0", "generator=None"],
    "orthogonal_": ["tensor", "gain=1", "generator=None"],
    "sparse_": ["tensor", "sparsity", "std=0.01", "generator=None"],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_torch_has_the_initializers_that_are_replaced(name):
    """Fails where torch changes them: see ``fastseed/nn/init/torch_functions.py``."""
    function = inspect.unwrap(getattr(nn.init, name))
    assert isinstance(function, types.FunctionType) and function.__closure__ is None
    assert function.__code__.co_filename == torch_initializers.__file__
    original = function.fastseed_original
    assert original.__code__.co_filename == nn.init.__file__
    for found in (inspect.signature(getattr(nn.init, name)), inspect.signature(original)):
        parameters = [
            p.name if p.default is p.empty else f"{p.name}={p.default}"
            for p in found.parameters.values()
        ]
        assert parameters == SIGNATURES[name]


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


def test_construction_releases_temporaries():
    """Each weight is made from four temporaries."""
    made: list[Any] = []
    alive: list[int] = []

    def factory() -> nn.Module:
        model = nn.Module()
        for i in range(4):
            parts = [torch.randn(50, 50) for _ in range(4)]
            made.extend(weak_storage(part) for part in parts)
            model.register_parameter(f"p{i}", nn.Parameter(sum(parts)))
        alive.append(sum(not reference.expired() for reference in made))
        return model

    model = fastseed.nn.construct(factory)
    assert alive == [4, 4]  # the last ones, which the factory still holds
    drawn = [
        fastseed.random.randn(
            fastseed.derive_key("init/p2", task=0, rank=fastseed.SHARED, index=i), (50, 50)
        )
        for i in range(4)
    ]
    assert torch.equal(model.p2, sum(drawn))


def test_construction_follows_numbers_through_tensors_that_are_gone():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.randn(7).data)
            self.b = nn.Parameter(torch.randn(3, 7)[1])

    model = fastseed.nn.construct(Model)
    assert torch.equal(model.a, fastseed.random.randn(key("a"), 7))
    assert torch.equal(model.b, fastseed.random.randn(key("b"), (3, 7))[1])

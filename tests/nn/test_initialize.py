"""Initialization by name: which key each tensor gets, what is mapped, and what is refused."""

import functools
import math
from collections import defaultdict
from typing import ClassVar

import pytest
import torch
from helpers.support import snapshot
from torch import nn

import fastseed
from fastseed.nn.module_names import strip_wrappers
from fastseed.random import fills, normal_, randint_, uniform_

# Models of this module are compared with each other.
pytestmark = pytest.mark.filterwarnings("ignore:.*random numbers of another model")


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42)


def key(name: str, count: int = 0, task: int = 0) -> int:
    return fastseed.derive_key(f"init/{name}", task=task, rank=fastseed.SHARED, index=count)


def normal(key: int, *shape: int) -> torch.Tensor:
    return normal_(torch.empty(shape), key)


def filled(fill, shape, key: int, *parameters, dtype=torch.float32) -> torch.Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    fill(tensor, key, *parameters)
    return tensor


def reset(model: nn.Module, **where) -> nn.Module:
    with fastseed.nn.initialize(model, **where):
        for module in model.modules():
            for name in ("reset_parameters", "_reset_parameters"):
                getattr(module, name, lambda: None)()
    return model


# name: (what torch runs, what a key gives) for a weight of 6 rows and 9 columns
XAVIER, KAIMING = 2 * math.sqrt(6 / 15), math.sqrt(3) * math.sqrt(2 / 6) / math.sqrt(9)
FILLS = {
    "normal_": (lambda t: t.normal_(1, 2), lambda t, k: normal_(t, k, 1, 2)),
    "uniform_": (lambda t: t.uniform_(-1, 2), lambda t, k: uniform_(t, k, -1, 2)),
    "exponential_": (
        lambda t: t.exponential_(3), lambda t, k: fastseed.random.exponential_(t, k, 3)),
    "bernoulli_": (
        lambda t: t.bernoulli_(0.2), lambda t, k: fastseed.random.bernoulli_(t, k, 0.2)),
    "trunc_normal_": (
        lambda t: nn.init.trunc_normal_(t, 0.1, 0.5, -1, 2),
        lambda t, k: fastseed.random.trunc_normal_(t, k, 0.1, 0.5, -1, 2)),
    "xavier_uniform_": (
        lambda t: nn.init.xavier_uniform_(t, 2), lambda t, k: uniform_(t, k, -XAVIER, XAVIER)),
    "kaiming_uniform_": (
        lambda t: nn.init.kaiming_uniform_(t, a=5**0.5),
        lambda t, k: uniform_(t, k, -KAIMING, KAIMING)),
    "kaiming_normal_": (
        lambda t: nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
        lambda t, k: normal_(t, k, 0, math.sqrt(2) / math.sqrt(6))),
    "orthogonal_": (
        lambda t: nn.init.orthogonal_(t, 2), lambda t, k: fills.orthogonal_(t, k, 2)),
    "log_normal_": (lambda t: t.log_normal_(1, 2), lambda t, k: fills.log_normal(t, k, 1, 2)),
    "cauchy_": (lambda t: t.cauchy_(), fills.cauchy),
    "geometric_": (lambda t: t.geometric_(0.5), lambda t, k: fills.geometric(t, k, 0.5)),
    "bernoulli_ of a tensor": (
        lambda t: t.bernoulli_(torch.full((6, 9), 0.2)),
        lambda t, k: fastseed.random.bernoulli_(t, k, 0.2)),
    "sparse_": (lambda t: nn.init.sparse_(t, 0.5, 3), lambda t, k: fills.sparse_(t, k, 0.5, 3)),
}  # fmt: skip
HELD_ELSEWHERE = {"trunc": nn.init.trunc_normal_, "orthogonal": nn.init.orthogonal_}


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("how", ["parameter", "data", "bfloat16"])
def test_initializers_are_fills_from_the_key_of_the_name(name, how):
    by_torch, by_key = FILLS[name]
    model = nn.Sequential(nn.Linear(9, 6), nn.Linear(9, 6))
    if how == "bfloat16":
        model.to(torch.bfloat16)
    before = snapshot()
    with fastseed.nn.initialize(model, task=3), torch.no_grad():
        weight = model[1].weight
        by_torch(weight.data if how == "data" else weight)
    assert snapshot() == before
    wanted = torch.empty(6, 9, dtype=weight.dtype)
    with torch.no_grad():
        by_key(wanted, key("1.weight", task=3))
    assert torch.equal(weight, wanted)


def test_integers_and_permutations():
    model = nn.Module()
    for i in range(4):
        model.register_buffer(f"b{i}", torch.zeros(50, dtype=torch.int64))
    with fastseed.nn.initialize(model):
        model.b0.random_(-3, 9)
        model.b1.random_(9)
        model.b2.random_()
        torch.randperm(50, out=model.b3)
    for name, low in (("b0", -3), ("b1", 0)):
        wanted = filled(randint_, 50, key(name), low, 9, dtype=torch.int64)
        assert torch.equal(getattr(model, name), wanted)
    assert model.b2.min() >= 0 and model.b2.max() > 2**60
    assert sorted(model.b3.tolist()) == list(range(50)) != model.b3.tolist()


def test_each_fill_of_a_name_has_its_own_numbers():
    model = nn.Linear(4, 4)
    with fastseed.nn.initialize(model):
        model.weight.data.normal_()
        first = model.weight.clone()
        model.bias.data.normal_()
        model.weight.data.normal_().normal_()
    for found, name, count in (
        (first, "weight", 0), (model.weight, "weight", 2), (model.bias, "bias", 0)
    ):  # fmt: skip
        assert torch.equal(found, normal(key(name, count), *found.shape))


def test_a_model_initialized_twice_is_the_same():
    build = lambda: nn.TransformerEncoderLayer(8, 2, 16)  # noqa: E731
    one, other = reset(build()), reset(build())
    assert fastseed.debug.digest(one) == fastseed.debug.digest(other)
    assert fastseed.debug.digest(one) != fastseed.debug.digest(reset(build(), task=1))
    torch.manual_seed(0)
    build().self_attn._reset_parameters()
    assert fastseed.debug.digest(one) != fastseed.debug.digest(build())


def test_other_modules_change_nothing():
    """A layer before and after, and one that is added in the block, as LoRA does."""
    small, large = nn.ModuleDict({"a": nn.Linear(5, 5)}), nn.ModuleDict()
    large["first"], large["a"], large["last"] = (nn.Linear(n, 5) for n in (3, 5, 8))
    reset(small)
    with fastseed.nn.initialize(large):
        large["a"].register_parameter("lora", nn.Parameter(torch.empty(5, 2)))
        nn.init.kaiming_uniform_(large["a"].lora)
        for module in large.values():
            module.reset_parameters()
    assert torch.equal(small["a"].weight, large["a"].weight)
    assert torch.equal(small["a"].bias, large["a"].bias)
    assert torch.equal(large["a"].lora, filled(uniform_, (5, 2), key("a.lora"), -(3**0.5), 3**0.5))


def test_tied_parameters_have_the_first_name():
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
    model[1].weight = model[0].weight
    with fastseed.nn.initialize(model):
        model[1].weight.data.normal_()
    assert torch.equal(model[0].weight, normal(key("0.weight"), 6, 4))


def test_meta_then_to_empty():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    with fastseed.nn.initialize(model):
        model[0].reset_parameters()  # has no effect, and no number is used up
        model.to_empty(device="cpu")
        for module in model:
            module.reset_parameters()
    alone = reset(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)))
    assert fastseed.debug.digest(model) == fastseed.debug.digest(alone)


@pytest.mark.parametrize("prefix", ["2", "2."])
def test_stages_of_a_pipeline_by_prefix(prefix):
    whole = reset(nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))))
    stage = reset(nn.Sequential(nn.Linear(4, 4)), prefix="")
    later = reset(nn.Linear(4, 4), prefix=prefix)
    assert torch.equal(stage[0].weight, whole[0].weight)
    assert torch.equal(later.weight, whole[2].weight)
    dropout = fastseed.nn.convert(nn.Sequential(nn.Dropout(0.5)), prefix=prefix)
    assert dropout[0].key_name.name == "2.0"


@pytest.mark.parametrize("prefix", [".", "a..", ".a"])
@pytest.mark.parametrize("function", ["initialize", "convert"])
def test_a_prefix_is_a_name(function, prefix):
    refused = rf"^fastseed\.nn\.{function}: prefix must be a name, as 'layers.3', got"
    with pytest.raises(ValueError, match=refused):
        getattr(fastseed.nn, function)(nn.Identity(), prefix=prefix).__enter__()


def test_names_without_wrappers():
    assert strip_wrappers("_orig_mod.a._checkpoint_wrapped_module.b.weight") == "a.b.weight"
    inner = nn.Linear(4, 4)
    wrapped = nn.Module()
    wrapped._orig_mod = inner
    assert torch.equal(reset(wrapped)._orig_mod.weight, reset(nn.Linear(4, 4)).weight)


def test_parameters_in_one_storage_are_told_apart():
    flat = torch.empty(20)
    model = nn.Module()
    model.a, model.b = nn.Parameter(flat[:8].view(2, 4)), nn.Parameter(flat[8:].view(3, 4))
    with fastseed.nn.initialize(model):
        model.b.data.normal_()
        model.a.data.normal_()
    assert torch.equal(model.a, normal(key("a"), 2, 4))
    assert torch.equal(model.b, normal(key("b"), 3, 4))


def test_scratch_tensors_of_initializers_have_the_name_of_their_source():
    """As in transformers' orthogonal_ of bfloat16, and in samplers that reject."""
    model = nn.Linear(6, 6)
    with fastseed.nn.initialize(model):
        scratch = torch.empty_like(model.weight, dtype=torch.float64)
        nn.init.orthogonal_(scratch)
        model.weight.data.copy_(scratch)
    wanted = filled(fills.orthogonal_, (6, 6), key("weight"), dtype=torch.float64)
    assert torch.equal(model.weight, wanted.float())


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (
            lambda m: torch.randn(3),
            "got aten.randn.default on another tensor; .* Build modules before",
        ),
        (lambda m: torch.empty(3).normal_(), "got aten.normal_.default on another tensor"),
        (
            lambda m: torch.randperm(5, out=m.weight.data),
            "got aten.randperm.* on weight; nothing w",
        ),
        (lambda m: torch.randperm(5), "got aten.randperm.default on another tensor"),
        (lambda m: torch.multinomial(torch.ones(3), 2), "got aten.multinomial.default on another"),
    ],
)
def test_what_cannot_be_mapped_is_an_error(draw, says):
    model, before = nn.Linear(2, 2), snapshot()
    was = model.weight.clone()
    refused = pytest.raises(RuntimeError, match=r"^fastseed\.nn\.initialize: random .*" + says)
    with refused, fastseed.nn.initialize(model):
        draw(model)
    assert snapshot() == before
    assert torch.equal(model.weight, was)


def test_arguments_that_a_fill_refuses_name_the_parameter():
    model = nn.Linear(2, 2)
    with fastseed.nn.initialize(model):
        with pytest.raises(
            ValueError, match=r"^fastseed\S*trunc_normal_: .*init.trunc_normal_ on wei"
        ):
            nn.init.trunc_normal_(model.weight, std=1, a=20, b=21)
        with pytest.raises(ValueError, match=r"gain must be in .*init.orthogonal_ on weight"):
            nn.init.orthogonal_(model.weight, gain=float("nan"))


def test_equal_bounds_give_them_without_a_negative_zero():
    model = nn.Linear(2, 2)
    with fastseed.nn.initialize(model):
        nn.init.xavier_uniform_(model.weight, gain=0)
        nn.init.uniform_(model.bias, -2, -2)
    assert not model.weight.any() and not model.weight.signbit().any()
    assert model.bias.tolist() == [-2, -2]


def test_functions_under_other_names_are_keyed_in_a_block_and_those_of_torch_afterwards():
    """Whatever name a library held them under before this one was imported."""
    model = nn.Linear(6, 6)
    with fastseed.nn.initialize(model):
        HELD_ELSEWHERE["trunc"](model.weight)
    wanted = fastseed.random.trunc_normal_(torch.empty(6, 6), key("weight"))
    assert torch.equal(model.weight, wanted)
    torch.manual_seed(3)
    found = HELD_ELSEWHERE["orthogonal"](torch.empty(5, 5))
    torch.manual_seed(3)
    flat = torch.empty(5, 5).normal_()
    q, r = torch.linalg.qr(flat)
    assert torch.equal(found, q * r.diag().sign())


def test_param_init_of_torchtitan():
    """Its contract (0.3.0): ``init_states`` of a module calls ``param_init[name](parameter)``."""

    class Module(nn.Module):
        def init_states(self):
            for child in self.children():
                child.init_states()
            for name, parameter in self.named_parameters(recurse=False):
                self.param_init[name](parameter)

    class Linear(nn.Linear, Module):
        param_init: ClassVar[dict] = {
            "weight": functools.partial(nn.init.trunc_normal_, std=0.02),
            "bias": nn.init.zeros_,
        }

    def build(*before):
        model = Module()
        for name in (*before, "wq"):
            model.register_module(name, Linear(4, 4))
        return model

    one, other = build(), build("wk")
    for model in (one, other):
        with fastseed.nn.initialize(model):
            model.init_states()
    assert torch.equal(one.wq.weight, other.wq.weight) and not one.wq.bias.any()


class Scaled(nn.Module):
    """Draws weights while it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.randn(3) * 0.5)
        self.register_buffer("order", torch.randperm(6))


def test_a_stage_that_draws_while_it_is_built_has_the_bits_of_the_whole():
    def build(layers: range, rank: int) -> dict[str, torch.Tensor]:
        fastseed.init(42, rank=rank, world_size=4)
        fastseed.reseed(task=0)
        model = nn.ModuleDict()
        for i in layers:
            with fastseed.random.keyed(f"init/layers.{i}", distinct_over=()):
                model[str(i)] = Scaled()
        return model.state_dict()

    whole = build(range(4), rank=0)
    stages = build(range(2), rank=1) | build(range(2, 4), rank=3)
    assert whole.keys() == stages.keys()
    assert all(torch.equal(whole[name], stages[name]) for name in whole)
    assert not torch.equal(whole["0.scale"], whole["1.scale"])


def test_orthogonal_and_sparse():
    for shape in ((5, 3), (3, 5), (4, 2, 3)):
        flat = filled(fills.orthogonal_, shape, 7, 2.0).reshape(shape[0], -1)
        small = flat if flat.size(0) <= flat.size(1) else flat.T
        assert torch.allclose(small @ small.T, 4 * torch.eye(len(small)), atol=1e-5)
    found = defaultdict(int)
    for i in range(300):
        zero = filled(fills.sparse_, (4, 2), i, 0.3) == 0
        words = fastseed.random.bits(i, (16,), dtype=torch.uint64)[
            8:
        ].tolist()  # behind the numbers
        for column in range(2):
            chosen = sorted(range(4), key=lambda row: words[2 * row + column])[:2]
            assert zero[:, column].nonzero()[:, 0].tolist() == sorted(chosen)
        for row, column in zero.nonzero().tolist():
            found[row, column] += 1
    assert len(found) == 8 and all(100 < n < 200 for n in found.values())  # of 300, half are zero

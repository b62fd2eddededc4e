"""Models that get the same weights because their parameters have the same names."""

import copy

import pytest
import torch
from torch import nn

import fastseed


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def reset(model: nn.Module, **where) -> nn.Module:
    with fastseed.nn.initialize(model, **where):
        for module in model.modules():
            getattr(module, "reset_parameters", lambda: None)()
    return model


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def test_a_second_model_with_equal_names_in_one_scope_is_a_warning(caplog):
    one, other = reset(build()), build()
    reset(other)
    assert torch.equal(one[0].weight, other[0].weight)
    (message,) = caplog.messages
    assert message == (
        "fastseed.nn.initialize: 4 tensors (0.weight, 0.bias, 1.weight, ...) have the random "
        "numbers of another model of the same names, at task 0, epoch 0, step 0: pass prefix= or "
        "another task="
    )


def test_reseed_in_between_does_not_change_the_names(caplog):
    one = reset(build())
    fastseed.reseed(task=0)
    reset(build())
    assert "have the random numbers of another model" in caplog.text
    assert one is not None


@pytest.mark.parametrize(
    "where", [{"prefix": "b."}, {"task": 1}, {"epoch": 1}, {"step": 1}], ids=str
)
def test_a_model_with_other_keys_is_no_warning(where, caplog):
    one = reset(build())
    other = reset(build(), **where)
    assert not caplog.messages
    assert not torch.equal(one[0].weight, other[0].weight)


def test_other_names_in_modules_of_one_name_are_no_warning(caplog):
    models = [nn.ModuleDict({"a": nn.Module()}) for _ in range(2)]
    for model, name in zip(models, ("x", "y"), strict=True):
        model["a"].register_parameter(name, nn.Parameter(torch.empty(3)))
        with fastseed.nn.initialize(model):
            nn.init.normal_(getattr(model["a"], name))
    assert not caplog.messages


def repeat_in_a_wrapper(model: nn.Module) -> None:
    wrapper = nn.Module()
    wrapper._orig_mod = model
    reset(wrapper)


def begin_a_new_job(model: nn.Module) -> None:
    fastseed.init(42, rank=0, world_size=1)
    reset(build())


AGAIN = {
    "the model": reset,
    "a part": lambda model: reset(model[1], prefix="1."),
    "in a wrapper": repeat_in_a_wrapper,
    "after a change of dtype": lambda model: reset(model.to(torch.float64).float()),
    "on new memory": lambda model: reset(model.to_empty(device="cpu")),
    "in a new job": begin_a_new_job,
}


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_the_same_model_again_has_the_same_weights_without_a_warning(again, caplog):
    model = reset(build())
    before = copy.deepcopy(model.state_dict())
    again(model)
    assert not caplog.messages
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_model_that_is_gone_is_no_warning(caplog):
    for _ in range(3):
        reset(build())
    assert not caplog.messages


def test_parameters_have_no_weak_references_afterwards():
    """Torch swaps no tensor that has one, as ``to_empty`` does with DTensors."""
    model = reset(build())
    weight, other = model[0].weight, nn.Parameter(torch.ones(4, 4))
    torch.utils.swap_tensors(weight, other)
    assert weight.sum() == 16


def test_a_block_that_fails_is_no_warning(caplog):
    one, other = reset(build()), build()
    with pytest.raises(ZeroDivisionError), fastseed.nn.initialize(other):
        other[0].reset_parameters()
        1 / 0  # noqa: B018
    assert not caplog.messages
    assert one is not None


def test_a_parameter_without_a_shape_is_left_until_it_has_one():
    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 3))
    with fastseed.nn.initialize(model):
        model[1].reset_parameters()
        model(torch.ones(1, 2))  # makes the parameters of the first, and fills them
    key = fastseed.derive_key("init/0.bias", task=0, rank=fastseed.SHARED)
    bound = 2**-0.5
    expected = fastseed.random.uniform_(torch.empty(3), key, -bound, bound)
    assert torch.equal(model[0].bias, expected)

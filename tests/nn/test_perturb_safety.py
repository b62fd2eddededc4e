"""Noise that is never stored: bad input, interrupts and writes change nothing else."""

import gc

import numpy as np
import pytest
import torch
from helpers.perturbations import equal, layers, state
from torch import nn

from fastseed._backend.ops import perturb as op
from fastseed.nn import apply_log, perturb_, perturbed
from fastseed.nn.perturbation import block as block_module
from fastseed.random import Shard

SHARDED = {"0.weight": Shard(global_shape=(8, 4), offsets=(6, 0))}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": 3}, "model must be a torch.nn.Module"),
        ({"seed": -1}, "seed must be in"),
        ({"seed": "7"}, "seed must be an integer"),
        ({"scale": float("nan")}, "scale must be in"),
        ({"scale": 1e39}, "scale must be in"),
        ({"scale": "1"}, "scale must be a number"),
        ({"noise": "uniform"}, "noise must be one of 'normal', 'rademacher'"),
        ({"params": "0"}, "params must be a function"),
        ({"params": lambda name: False}, "params must be true for a parameter"),
        ({"shards": SHARDED}, r"shard must hold a tensor of shape .*\(0.weight\)"),
        ({"shards": {"1.weight": None}}, "shards must be by names of selected parameters"),
        ({"prefix": "."}, "prefix must be a name"),
    ],
)
@pytest.mark.parametrize("function", [perturb_, perturbed], ids=["perturb_", "perturbed"])
def test_bad_input_changes_nothing(function, options, message):
    model = layers(4, 4)
    before = state(model)
    given = {"model": model, "seed": 7, "scale": 1e-3, **options}
    match = rf"fastseed\.nn\.{function.__name__}: {message}"
    with pytest.raises((TypeError, ValueError), match=match):
        found = function(**given)
        found.__enter__()
    assert equal(state(model), before)


def test_bad_parameters_and_logs_change_nothing():
    model = layers(4, 4)
    before = state(model)
    for log, message in (
        (3, "log must be pairs"),
        (torch.ones(2, 2), "log must be pairs"),
        ([7], r"log\[0\] must be a pair"),
        ([(7, 1.0), (7, 1.0, 2.0)], r"log\[1\] must be a pair"),
        ([(7, np.inf)], r"log\[0\]\[1\] must be in"),
        ([(7, 1e30)], r"lr \* log\[0\]\[1\] must be in"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            apply_log(model, log, 1e10)
    model.count = nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False)
    with pytest.raises(TypeError, match=r"the parameter 'count' must be of dtype"):
        perturb_(model, 7, 1e-3)
    del model.count
    model.extra = nn.Linear(2, 2, device="meta")
    with pytest.raises(ValueError, match=r"the parameter 'extra.weight' must have data"):
        perturb_(model, 7, 1e-3)
    del model.extra
    model._orig_mod = layers(4, 4)[0]
    twice = nn.Module()
    twice.a, twice._checkpoint_wrapped_module = layers(2, 2)[0], nn.Module()
    twice._checkpoint_wrapped_module.a = layers(2, 2)[0]
    with pytest.raises(ValueError, match=r"without two parameters of the name 'a.weight'"):
        perturb_(twice, 7, 1e-3)
    del model._orig_mod
    assert equal(state(model), before)
    model[0].bias = nn.Parameter(torch.zeros(4, 2)[:, 0])
    with pytest.raises(ValueError, match=r"the parameter '0.bias' must be without gaps"):
        perturb_(model, 7, 1e-3)


def moves(model):
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("mode", ["RECORD", "UNDO"])
@pytest.mark.parametrize("at", ["before", "after"])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_after_an_interrupt_parameters_are_restored(monkeypatch, mode, at, scale):
    model, calls = torch.nn.Linear(40, 30), []
    before, run = moves(model), op.perturb

    def interrupted(*arguments):
        is_it = arguments[-1] == getattr(op, mode) and not calls
        if is_it and at == "before":
            calls.append(1)
            raise KeyboardInterrupt
        run(*arguments)
        if is_it:
            calls.append(1)
            raise KeyboardInterrupt

    monkeypatch.setattr(op, "perturb", interrupted)
    with pytest.raises(KeyboardInterrupt), perturbed(model, seed=7, scale=scale) as block:
        try:
            block.flip()
        finally:  # the interrupt ended the block
            assert all(map(torch.equal, model.parameters(), before)) or not calls
    with perturbed(model, seed=7, scale=scale):
        pass
    assert all(map(torch.equal, model.parameters(), before))


@pytest.mark.parametrize("inside", ["versions_of", "_write_kept"])
def test_an_interrupt_while_a_block_restores_names_what_is_moved(monkeypatch, caplog, inside):
    model = torch.nn.Linear(4, 4)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        says = "interrupted before 'weight', 'bias' had their bits from before"
        with pytest.raises(KeyboardInterrupt, match=says), perturbed(model, seed=7, scale=1.0):
            patched.setattr(block_module, inside, interrupted)
    assert says in caplog.text
    before = moves(model)
    with perturbed(model, seed=7, scale=1.0):  # nothing is locked
        pass
    assert all(map(torch.equal, model.parameters(), before))


def test_a_block_that_was_never_left_is_named_and_locks_nothing(caplog):
    model = torch.nn.Linear(4, 4)
    perturbed(model, seed=7, scale=1.0).__enter__()
    gc.collect()
    assert "interrupted before 'weight', 'bias' had" in caplog.text
    with perturbed(model, seed=7, scale=1.0):
        pass


@pytest.mark.parametrize("shape", ["transposed", "channels last", "shard"])
def test_a_parameter_in_parts_may_need_a_gradient(shape):
    """The copy of a part is taken without one, as the parts are."""
    weight, shards = torch.randn(6, 4) * 1e-6, {}  # so small that a copy is kept
    if shape == "transposed":
        weight = weight.T
    elif shape == "channels last":
        weight = torch.ones(4, 3, 2, 2).mul(1e-6).contiguous(memory_format=torch.channels_last)
    else:
        shards = {"weight": Shard(global_shape=(6, 8), offsets=(0, 4))}
    model = torch.nn.ParameterDict({"weight": weight})
    before = moves(model)
    with perturbed(model, seed=7, scale=3.0, shards=shards):
        assert not torch.equal(weight, before[0])
    assert torch.equal(weight, before[0])


def test_autocast_sees_the_moved_weights():
    model, x = torch.nn.Linear(64, 64), torch.ones(1, 64)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = [model(x).sum().item()]
        with perturbed(model, seed=7, scale=0.1) as block:
            found.append(model(x).sum().item())
            block.flip()
            found.append(model(x).sum().item())
        found.append(model(x).sum().item())
    assert len(set(found)) == 3 and found[0] == found[3]


def test_overlapping_parameters_are_refused_and_equal_ones_move_once():
    memory = torch.zeros(8)
    model = torch.nn.ParameterDict({"a": memory[:5], "b": memory[3:]})
    with pytest.raises(ValueError, match=r"overlap in memory \(here: 'b'\)"):
        perturb_(model, 7, 1.0)
    model = torch.nn.ParameterDict({"a": memory, "b": memory.view(8)})
    perturb_(model, 7, 1.0, noise="rademacher")
    assert memory.abs().tolist() == [1.0] * 8
    with pytest.raises(ValueError, match="params must be true for a parameter or more"):
        perturb_(model, 7, 1.0, params=lambda name: name == "b")


def test_a_parameter_is_in_one_block_and_a_block_is_used_inside():
    model = torch.nn.Linear(4, 4)
    before = moves(model)
    block = perturbed(model, seed=7, scale=1.0)
    with pytest.raises(RuntimeError, match="call flip inside the block"):
        block.flip()
    with block:
        with perturbed(layers(2, 2), seed=7, scale=1.0):
            pass
        for other in (block, perturbed(model, seed=8, scale=1.0)):
            with pytest.raises(RuntimeError, match="in one block at a time"), other:
                pass
        block.flip()
    assert all(map(torch.equal, model.parameters(), before))
    with block:  # again, with the first sign
        once = moves(model)
    with perturbed(model, seed=7, scale=1.0):
        assert all(map(torch.equal, model.parameters(), once))


def test_a_parameter_of_another_shape_is_named_and_the_rest_restored():
    model = torch.nn.Linear(4, 4)
    bias = model.bias.detach().clone()
    with (
        pytest.raises(RuntimeError, match="got writes to 'weight'"),
        perturbed(model, seed=7, scale=1.0),
    ):
        model.weight.data = model.weight.data[:2]
    assert torch.equal(model.bias, bias)


def test_a_default_device_does_not_matter():
    model, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    other.load_state_dict(model.state_dict())
    perturb_(model, 7, 1.0)
    with torch.device("meta"):
        perturb_(other, 7, 1.0)
    assert all(map(torch.equal, model.parameters(), other.parameters()))

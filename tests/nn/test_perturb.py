"""Noise that is never stored: which numbers move where, exactly back, and bad input."""

import numpy as np
import pytest
import torch
from helpers.perturbations import INTEGERS, bits, copy_of, equal, layers, state
from torch import nn

import fastseed
from fastseed._backend.ops import perturb as op
from fastseed.nn import apply_log, perturb_, perturbed
from fastseed.random import Shard

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def with_specials(dtype):
    """A parameter that begins with every kind of number."""
    info = torch.finfo(dtype)
    tiny = info.smallest_normal
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.max, info.min, tiny / 4, -tiny / 2, tiny]
    model = nn.Module()
    numbers = torch.cat((torch.tensor(special), torch.randn(3000) * 0.02)).to(dtype)
    numbers.view(INTEGERS[numbers.element_size()])[1] ^= 3  # infinity to a NaN with a payload
    numbers[2] = np.inf
    model.weight = nn.Parameter(numbers)
    return model


def test_noise_is_that_of_random_normal_by_name():
    model = layers(5, 7)
    before = model[0].weight.detach().clone()
    perturb_(model, 7, 0.25, prefix="encoder")
    seeder = fastseed.Seeder(7, rank=0, world_size=1)
    name = "perturb/normal/encoder.0.weight"
    key = seeder.derive_key(name, task=0, rank=fastseed.SHARED)
    z = fastseed.random.normal(key, (7, 5))
    assert torch.equal(model[0].weight, before + np.float32(0.25) * z)


def test_layers_of_one_shape_are_not_correlated():
    def moves(model, move):
        before = [layer.weight.detach().clone() for layer in model]
        move(model)
        return [(a.weight - b).flatten() for a, b in zip(model, before, strict=True)]

    def usual(model):
        for p in model.parameters():
            p.data += torch.randn(p.shape, generator=torch.Generator().manual_seed(7))

    found = torch.corrcoef(torch.stack(moves(layers(64, 64, 64), lambda m: perturb_(m, 7, 1.0))))
    assert abs(found[0, 1]) < 4 / 64
    assert torch.corrcoef(torch.stack(moves(layers(64, 64, 64), usual)))[0, 1] > 0.99


@pytest.mark.cuda
@pytest.mark.parametrize("noise", ["normal", "rademacher"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 0.0, 1e38])
def test_block_leaves_the_bits_that_were_there(dtype, noise, scale, device):
    model = with_specials(dtype).to(device)
    before = state(model)
    with perturbed(model, 7, -scale, noise=noise):
        below = state(model)
    with pytest.raises(KeyError), perturbed(model, 7, scale, noise=noise) as block:
        above = state(model)
        block.flip()
        assert equal(state(model), below)
        raise KeyError
    assert equal(state(model), before)
    perturb_(model, 7, scale, noise=noise)
    assert equal(state(model), above)
    assert scale == 0.0 or not equal(above, below)


@pytest.mark.parametrize(("dtype", "part"), [(torch.bfloat16, 0.51), (torch.float32, 0.26)])
def test_block_keeps_less_than_a_copy(dtype, part):
    model = nn.Linear(512, 512, bias=False)
    nn.init.normal_(model.weight, std=0.02)
    model.to(dtype)
    with perturbed(model, 7, 1e-3) as block:
        (kept,) = block._kept.values()
        held = sum(t.untyped_storage().nbytes() for t in (*kept.steps, *kept.lists))
    assert len(kept.lists[0]) > 1 and held <= part * model.weight.nbytes


def test_block_keeps_a_copy_where_the_list_would_be_long():
    model = layers(40, 40)
    before = state(model)
    with perturbed(model, 7, 1e3) as block:
        assert block._kept["0.weight"].copies
    assert equal(state(model), before)


def test_block_names_what_was_written_and_restores_the_rest():
    model = layers(4, 4, 4)
    before = state(model)
    rest = pytest.raises(RuntimeError, match=r"written .*, got writes to '0.bias'; all others")
    with rest, torch.no_grad(), perturbed(model, 7, 1e-3) as block:
        model[0].bias.zero_()
        with pytest.raises(RuntimeError, match=r"got writes to '0.bias'; nothing was moved"):
            block.flip()
    after = state(model)
    assert not after.pop("0.bias").any() and before.pop("0.bias").any() and equal(after, before)


@pytest.mark.parametrize("noise", ["normal", "rademacher"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_log_is_the_sum_of_its_entries(dtype, noise):
    log = [(7, -0.3), (8, 0.1), (2**127 + 5, 2.0), (7, 0.5)]
    model = layers(33, 50, dtype=dtype)
    each, one, wide = (copy_of(model, 33, 50, dtype=d) for d in (dtype, dtype, torch.float32))
    for seed, scalar in log:
        perturb_(one, seed, 0.01 * scalar, noise=noise)
    apply_log(each, log, 0.01, each=True, noise=noise)
    assert equal(state(each), state(one))
    apply_log(model, log, 0.01, noise=noise)
    if dtype != torch.float64:
        apply_log(wide, log, 0.01, noise=noise)
        assert equal(state(model), state(wide.to(dtype)))


@pytest.mark.parametrize("at", ["before", "after"])
def test_an_interrupted_log_names_the_last_parameter_that_has_it(monkeypatch, at):
    model, calls, run = layers(4, 4, 4), [], op.perturb

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) < 3 or at == "after":
            run(*arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(op, "perturb", interrupted)
    before, done = state(model), 3 if at == "after" else 2
    with pytest.raises(KeyboardInterrupt, match=f"after {done} of 4 parameters, up to '[01]"):
        apply_log(model, [(1, 1.0)])
    after = state(model)
    assert [not torch.equal(after[n], before[n]) for n in after] == [i < done for i in range(4)]


def test_tied_parameters_move_once_under_their_first_name():
    tied, alone = layers(6, 6, 6), layers(6, 6)
    alone[0].load_state_dict(tied[0].state_dict())
    tied[1].weight = tied[0].weight
    tied[1].bias = nn.Parameter(tied[0].bias.data)  # the same memory
    perturb_(tied, 7, 1e-2)
    perturb_(alone, 7, 1e-2)
    assert equal(state(tied[0]), state(alone[0]))


@pytest.mark.parametrize("noise", ["normal", "rademacher"])
def test_parts_and_other_memory_get_the_noise_of_the_whole(noise):
    whole = nn.Conv2d(6, 10, 5)
    rows, columns, last = nn.Module(), nn.Module(), nn.Module()
    weight = whole.weight.detach()
    rows.weight = nn.Parameter(weight[3:7].clone())
    columns.weight = nn.Parameter(weight[:, 2:5].contiguous())
    last.weight = nn.Parameter(weight.clone(memory_format=torch.channels_last))
    gaps = nn.Module()
    gaps.weight = nn.Parameter(torch.stack((weight, weight), 1)[:, 0])
    perturb_(whole, 7, 1e-2, noise=noise)
    for part, offsets in ((rows, (3, 0, 0, 0)), (columns, (0, 2, 0, 0))):
        shard = Shard(global_shape=weight.shape, offsets=offsets)
        before = state(part)
        with perturbed(part, 7, 1e-2, noise=noise, shards={"weight": shard}):
            sizes = part.weight.shape
            box = tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))
            assert torch.equal(part.weight, whole.weight[box])
        assert equal(state(part), before)
    for other in (last, gaps):
        perturb_(other, 7, 1e-2, noise=noise)
        assert torch.equal(other.weight, whole.weight)


def test_names_have_no_wrappers_and_params_selects():
    model = layers(4, 4)
    plain = copy_of(model, 4, 4)
    before = state(model)
    perturb_(nn.DataParallel(torch.compile(model)), 7, 1e-2, params=lambda name: "bias" in name)
    perturb_(plain, 7, 1e-2)
    assert torch.equal(model[0].bias, plain[0].bias)
    assert torch.equal(bits(model[0].weight), before["0.weight"])


def test_keyed_block_does_not_replace_the_noise():
    outside, inside = layers(4, 4), layers(4, 4)
    inside.load_state_dict(outside.state_dict())
    perturb_(outside, 7, 1e-2)
    fastseed.init(42, rank=0, world_size=1)
    with fastseed.random.keyed("noise"):
        perturb_(inside, 7, 1e-2)
    assert equal(state(outside), state(inside))


@pytest.mark.slow
def test_compiled_functions_move_parameters_as_others_do():
    def step(model, x):
        with perturbed(model, 7, 1e-2) as block:
            above = model(x)
            block.flip()
            below = model(x)
        perturb_(model, 8, 1e-2)
        apply_log(model, [(9, 1e-2)])
        return above, below

    eager, compiled, x = layers(4, 4), layers(4, 4), torch.ones(2, 4)
    compiled.load_state_dict(eager.state_dict())
    with torch.no_grad():
        for _ in range(2):
            expected, found = step(eager, x), torch.compile(step)(compiled, x)
            assert all(map(torch.equal, expected, found))
            assert equal(state(eager), state(compiled))

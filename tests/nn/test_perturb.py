"""Noise that is never stored: which numbers move where, exactly back, and bad input."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import fastseed
from fastseed._backend.ops import perturb as op
from fastseed.derivation import context
from fastseed.nn import apply_log, perturb_, perturbed
from fastseed.nn.perturbation import block as block_module
from fastseed.random import Shard

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor):
    return tensor.detach().clone().contiguous().view(INTEGERS[tensor.element_size()])


def state(model):
    return {name: bits(tensor) for name, tensor in model.named_parameters()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def layers(*sizes, dtype=torch.float32):
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes)))
    return model.to(dtype)


def copy_of(model, *sizes, dtype=torch.float32):
    found = layers(*sizes, dtype=dtype)
    found.load_state_dict(model.state_dict())
    return found


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


def test_job_scope_takes_master_seed_and_task_alone():
    def noise_of(master, task, seed, epoch=0, **options):
        fastseed.init(master, rank=0, world_size=1)
        fastseed.reseed(task, epoch, step=epoch)
        model = nn.Linear(3, 3)
        nn.init.zeros_(model.weight)
        perturb_(model, seed, 1.0, **options)
        return model.weight.detach()

    job = noise_of(1, 2, 7, scope="job")
    assert torch.equal(job, noise_of(1, 2, 7, epoch=3, scope="job"))
    for other in ((2, 2, 7), (1, 3, 7), (1, 2, 8)):
        assert not torch.equal(job, noise_of(*other, scope="job"))
    assert torch.equal(noise_of(1, 2, 7), noise_of(2, 3, 7, epoch=1))
    key = torch.tensor([7, 9], dtype=torch.uint64)
    assert torch.equal(noise_of(1, 2, key, scope="job"), noise_of(2, 3, 7 | 9 << 64))


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
        ({"scope": "step"}, "scope must be one of 'seed', 'job'"),
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


def test_job_scope_needs_a_job(monkeypatch):
    monkeypatch.setattr(context, "seeder", None)
    with pytest.raises(RuntimeError, match=r"nn.perturb_: call fastseed.init"):
        perturb_(layers(4, 4), 7, 1e-3, scope="job")


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

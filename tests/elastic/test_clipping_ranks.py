"""Norms, clipping and means of one model have the same bits in any layout on real ranks."""

import functools
import hashlib

import pytest
import torch
import torch.distributed as dist
from helpers.parallel import layouts, mesh
from helpers.ranks import ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

from fastseed import elastic

SHAPES = [(37, 5), (13,), (8, 16), (64, 33), (1,), (129, 8)]


def gradients(seed=3):
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(shape, generator=generator) for shape in SHAPES]
    return [value * 2.0 ** (i % 3) for i, value in enumerate(drawn)]


def digest(tensors):
    """Return a digest of whole tensors, wherever their parts are."""
    whole = [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in whole)).hexdigest()


def clipped(place, clip=elastic.clip_grad_norm_):
    """Clip the gradients of some models, laid out by ``place``; return the bits that came out."""
    norms, found = [], []
    for seed in range(3, 5 if clip is elastic.clip_grad_norm_ else 9):  # torch may be right once
        laid_out = [place(gradient) for gradient in gradients(seed)]
        parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in laid_out]
        for parameter, gradient in zip(parameters, laid_out, strict=True):
            parameter.grad = gradient
        norms.append(clip(parameters, 0.5))
        found += laid_out
    return digest(norms), digest(found)


def laid_out(number, tensor):
    """The tensor in one of its layouts; 0 leaves vectors whole and cuts the rows of others."""
    ways = [*layouts(tensor.shape)]
    if number == 0:
        return tensor if tensor.dim() == 1 else distribute_tensor(tensor, *ways[1])
    return distribute_tensor(tensor, *ways[number % len(ways)])


def clip_all(world):
    places = [functools.partial(laid_out, number) for number in range(12 if world == 4 else 4)]
    line, by_torch = mesh(world), {clipped(lambda t: t, nn.utils.clip_grad_norm_)}
    for cut in (0, -1):
        sharded = functools.partial(distribute_tensor, device_mesh=line, placements=[Shard(cut)])
        by_torch.add(clipped(sharded, nn.utils.clip_grad_norm_))
    assert len(by_torch) > 1
    found = {clipped(place) for place in places}
    whole = torch.cat([gradient.reshape(-1) for gradient in gradients()])
    mine = whole.chunk(world)[dist.get_rank()]
    return found, elastic.get_total_norm([mine], group=dist.group.WORLD).item()


@pytest.mark.parametrize("world", [pytest.param(3, marks=pytest.mark.slow), 4])
def test_any_layout_gives_the_same_bits(world):
    """Torch's own norm depends on the layout."""
    expected, norm = clipped(lambda t: t), elastic.get_total_norm(gradients()).item()
    for found, of_shards in ranks(world, clip_all, world):
        assert found == {expected} and of_shards == norm


def clip_fsdp():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 33), nn.Linear(33, 5))
    fully_shard(model)
    model(torch.ones(3, 7)).sum().backward()
    norm = elastic.clip_grad_norm_(model.parameters(), 1e-3)
    return norm.item(), digest(p.grad for p in model.parameters())


def test_fsdp_gives_the_norm_of_one_process():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 33), nn.Linear(33, 5))
    model(torch.ones(3, 7)).sum().backward()
    ((norm, _),) = set(ranks(4, clip_fsdp))
    assert norm == pytest.approx(
        elastic.get_total_norm([p.grad for p in model.parameters()]).item()
    )


def mean_of_part(kind):
    """A mean of values that are dealt out unevenly: the last rank has none."""
    values, weights = gradients()[3].reshape(-1), torch.arange(64.0 * 33)
    cut = [i * values.numel() // 3 for i in range(4)] + [values.numel()]
    mine = slice(cut[dist.get_rank()], cut[dist.get_rank() + 1])
    if kind == "plain":
        return elastic.mean(values[mine]).item()
    return elastic.mean(values[mine].double(), weights=weights[mine]).item()


@pytest.mark.parametrize("kind", ["plain", "weighted"])
def test_means_over_ranks(kind):
    values, weights = gradients()[3].reshape(-1), torch.arange(64.0 * 33)
    if kind == "plain":
        expected = elastic.mean(values).item()
    else:
        expected = elastic.mean(values.double(), weights=weights).item()
    assert ranks(4, mean_of_part, kind) == [expected] * 4


def refused(case):
    first, one = dist.get_rank() == 0, torch.ones(1)
    partial = DTensor.from_local(torch.ones(2), init_device_mesh("cpu", (4,)), [Partial()])
    calls = {
        "partial": lambda: elastic.get_total_norm([partial]),
        "some weights": lambda: elastic.mean(one, weights=one if first else None),
    }
    with pytest.raises(ValueError) as raised:
        calls[case]()
    return str(raised.value)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("partial", "get_total_norm: tensors[0] must be without partial"),
        ("some weights", "mean: weights must be given on all ranks or on none, got '1 of 4'"),
    ],
)
def test_all_ranks_refuse_alike(case, says):
    assert all(found.startswith(f"fastseed.elastic.{says}") for found in ranks(4, refused, case))


def refused_by_the_first(case):
    mistaken, one = dist.get_rank() == 0, torch.ones(1)
    group = dist.group.WORLD
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    calls = {
        "values[0]": lambda: elastic.mean(["x" if mistaken else one]),
        "weights": lambda: elastic.mean(one, weights=-one if mistaken else one),
        "tensors[0]": lambda: elastic.get_total_norm([1 if mistaken else weight], group=group),
        "max_norm": lambda: elastic.clip_grad_norm_(weight, -1 if mistaken else 1, group=group),
    }
    with pytest.raises((TypeError, ValueError, RuntimeError)) as raised:
        calls[case]()
    return str(raised.value)


@pytest.mark.parametrize("case", ["values[0]", "weights", "tensors[0]", "max_norm"])
def test_what_one_rank_refuses_is_an_error_on_all(case):
    """No rank waits for one that raised before the sum."""
    own, *others = ranks(4, refused_by_the_first, case)
    assert f": {case} must be" in own
    assert all(found.endswith("rank 0 refused an argument: look there") for found in others)

"""Digests of what is spread over ranks are those of the whole; ranks that differ are named."""

import re

import pytest
import torch
import torch.distributed as dist
from helpers.parallel import fsdp, fsdp_over_tensor_parallel, hybrid, layouts, tensor_parallel
from helpers.ranks import ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from fastseed.debug.checkup import assert_ranks_agree
from fastseed.digest.trees import digest

# The last dimension in bytes: groups that stay whole, groups that are cut, rows of part of one.
SHAPES = [(13, 6), (3, 2), (8, 64), (5, 3, 22), (11,), (1,), (37, 1), (2, 7, 9)]
DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.float64]


def digest_layouts():
    """All layouts of all shapes and dtypes in one tree."""
    before = torch.get_rng_state()
    spread, whole = {}, {}
    for dtype in DTYPES:
        for shape in SHAPES:
            generator = torch.Generator().manual_seed(len(shape) + shape[0])
            value = (torch.randn(shape, generator=generator) * 60).to(dtype)
            for i, (mesh, layout) in enumerate(layouts(shape)):
                name = f"{shape} {dtype} {i} {layout}"
                whole[name] = value
                spread[name] = distribute_tensor(value, mesh, layout)
    one, other = digest(spread), digest(whole)
    assert [name for name in whole if one.table[name] != other.table[name]] == []
    assert one.hex == other.hex and len(whole) >= 8 * 4 * 3
    assert before.equal(torch.get_rng_state())


def test_layouts_of_all_kinds():
    ranks(4, digest_layouts)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(12, 22)
        self.norm = nn.LayerNorm(22)
        self.down = nn.Linear(22, 12)
        self.register_buffer("seen", torch.arange(3.0))

    def forward(self, x):
        return self.down(torch.relu(self.norm(self.up(x))))


def full(tree):
    """The same state with whole tensors in place of shards."""
    if isinstance(tree, DTensor):
        return tree.full_tensor()
    if isinstance(tree, dict):
        return {key: full(value) for key, value in tree.items()}
    return [full(value) for value in tree] if isinstance(tree, (list, tuple)) else tree


def digest_module(parallelise, train):
    """A parallel module, and if trained its gradients and its optimizer."""
    torch.manual_seed(5)
    alone, model = Block(), Block()
    model.load_state_dict(alone.state_dict())
    parallelise(model)
    assert any(isinstance(p, DTensor) for p in model.parameters())
    assert digest(model).value == digest(alone).value
    if not train:
        return
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(2):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        model(torch.randn(4, 12, generator=generator)).square().mean().backward()
        optimizer.step()
    state = optimizer.state_dict()
    assert any(isinstance(v, DTensor) for s in state["state"].values() for v in s.values())
    for tree in ({name: p.grad for name, p in model.named_parameters()}, state):
        assert digest(tree).value == digest(full(tree)).value
    assert digest(optimizer).value == digest(state).value
    assert digest(model).value != digest(alone).value


@pytest.mark.parametrize(
    ("parallelise", "train"),
    [(fsdp, True), (tensor_parallel, False), (fsdp_over_tensor_parallel, False), (hybrid, True)],
)
def test_modules_and_optimizers_that_are_sharded(parallelise, train):
    ranks(4, digest_module, parallelise, train)


def digest_sum():
    """A DTensor that is a sum of what the ranks hold."""
    local = torch.full((3,), dist.get_rank() + 1.0)
    tensor = DTensor.from_local(local, init_device_mesh("cpu", (4,)), [Partial()])
    assert digest(tensor).value == digest(torch.full((3,), 10.0)).value


def test_sums_over_ranks_are_summed_first():
    ranks(4, digest_sum)


def message_of(call, tree):
    try:
        call(tree)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def digest_other_names():
    """Ranks that hold DTensors of different names, or another number of them."""
    tensor = distribute_tensor(torch.zeros(8), init_device_mesh("cpu", (4,)), [Shard(0)])
    last = dist.get_rank() == 3
    trees = {"b" if last else "a": tensor}, {"a": tensor, **({"b": tensor} if last else {})}
    return [message_of(digest, tree) for tree in trees]


def test_ranks_with_other_names_raise_and_do_not_hang():
    start = "RuntimeError: fastseed.debug.digest: all ranks of a mesh must hold the same"
    for messages in ranks(4, digest_other_names):
        assert all(said.startswith(start) for said in messages)


def compare(case):
    """The error of assert_ranks_agree; the last rank differs, or the first."""
    rank = dist.get_rank()
    last, line = rank == 3, init_device_mesh("cpu", (4,))
    if case in ("equal replicas", "replicas"):
        model = Block()
        for parameter in model.parameters():
            nn.init.ones_(parameter)
        replica = nn.parallel.DistributedDataParallel(model)
        if last and case == "replicas":
            with torch.no_grad():
                model.down.bias[3] = -0.0
                model.up.weight.view(torch.int32)[2, 1] += 1
        return message_of(assert_ranks_agree, replica)
    if case == "replicas of shards":
        grid = init_device_mesh("cpu", (2, 2))
        local = torch.ones(3) * (1 + (rank >= 2))
        tree = {"w": DTensor.from_local(local, grid, [Replicate(), Shard(0)], run_check=False)}
    else:
        tree = {
            "sharded": {"w": distribute_tensor(torch.arange(9.0), line, [Shard(0)])},
            "names": {"a": torch.ones(2), **({"b": 1, "c": 2} if last else {"d": 3})},
            "lengths": {str(i): i for i in range(9 + rank)},
            "undigested on the last": {"x": object() if last else torch.ones(1)},
            "undigested on the first": {"x": object() if rank == 0 else torch.ones(1)},
            "undigested": object(),
            "tensor": torch.full((2,), float(rank > 1)),
        }[case]
    return message_of(assert_ranks_agree, tree)


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("equal replicas", "no error"),
        ("sharded", "no error"),
        (
            "replicas",
            "RuntimeError: fastseed.debug.check: all ranks must agree, but module.up.weight is "
            r"'\w+' on ranks 0, 1, 2 but '\w+' on rank 3",
        ),
        ("replicas of shards", r".*but w is '\w+' on ranks 0, 1 but '\w+' on ranks 2, 3"),
        ("names", ".*but number 1 of .* is 'd' on ranks 0, 1, 2 but 'b' on rank 3"),
        ("lengths", ".*number 9 of .* is '9' on ranks 1, 2, 3 but 'nothing' on rank 0"),
        ("tensor", r".*but \(the tensor\) is .* on ranks 0, 1 but .* on ranks 2, 3"),
        ("undigested on the last", ".*rank 3 failed: fastseed.debug.digest: the leaf at 'x'"),
        ("undigested on the first", ".*rank 0 failed: fastseed.debug.digest: the leaf at 'x'"),
        ("undigested", "TypeError: fastseed.debug.digest: the leaf at ''"),
    ],
)
def test_ranks_and_tensors_that_differ_are_named_on_every_rank(case, found):
    said = set(ranks(4, compare, case))
    if case.startswith("undigested on"):  # that rank raises its own error
        (own,) = {text for text in said if text.startswith("TypeError")}
        said.remove(own)
    (text,) = said
    assert re.match(found, text), text


def test_one_process_agrees_with_itself():
    assert assert_ranks_agree(torch.ones(2)) is None

"""DTensors of real ranks are filled, bit for bit, as one process fills the whole."""

import pytest
import torch
from helpers.parallel import fsdp, fsdp_over_tensor_parallel, hybrid, tensor_parallel
from helpers.ranks import ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import fastseed

KEY = 0x81B1E1C0FFEE0DD5_F00DCAFE12345678
FILLS = {
    "uniform_": (torch.float32, ()),
    "normal_": (torch.bfloat16, (0.5, 2.0)),
    "exponential_": (torch.float64, (3.0,)),
    "bernoulli_": (torch.uint8, (0.25,)),
    "randint_": (torch.int64, (-5, 2**40)),
}
# Ways to lay a matrix of 13 x 6 or 3 x 2 out, even and uneven, with empty shards.
PLACEMENTS = {
    (4,): [[Replicate()], [Shard(0)], [Shard(1)]],
    (2, 2): [
        [Replicate(), Shard(0)],
        [Shard(0), Replicate()],
        [Shard(0), Shard(0)],
        [Shard(1), Shard(0)],
        [Shard(1), Shard(1)],
        [_StridedShard(0, split_factor=2), Shard(0)],
    ],
}


def same(a, b):
    """Bit for bit: dtypes that have no equality of their own are compared as bytes."""
    a, b = (x.detach().contiguous().view(torch.uint8) for x in (a, b))
    return torch.equal(a, b)


def fill_layouts(mesh_shape):
    mesh = init_device_mesh("cpu", mesh_shape)
    for layout in PLACEMENTS[mesh_shape]:
        for shape in ((13, 6), (3, 2)):
            for name, (dtype, arguments) in FILLS.items():
                fill, zeros = getattr(fastseed.random, name), torch.zeros(shape, dtype=dtype)
                tensor = distribute_tensor(zeros, mesh, layout, src_data_rank=None)
                fill(tensor, KEY, *arguments)
                alone = fill(zeros.clone(), KEY, *arguments)
                assert same(tensor.full_tensor(), alone), (layout, shape, name)


@pytest.mark.parametrize("mesh", PLACEMENTS)
def test_gathered_tensors_are_those_of_one_process(mesh):
    ranks(4, fill_layouts, mesh)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(12, 22)
        self.down = nn.Linear(22, 12)


def fill_module(parallelise):
    alone, model = Block(), Block()
    parallelise(model)
    assert any(isinstance(p, DTensor) for p in model.parameters())
    for each in (alone, model):
        for i, (name, parameter) in enumerate(sorted(each.named_parameters())):
            assert fastseed.random.normal_(parameter, KEY + i, std=0.02) is parameter, name
    whole = dict(alone.named_parameters())
    for name, parameter in model.named_parameters():
        full = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        assert same(full, whole[name])


@pytest.mark.parametrize("parallelise", [fsdp, tensor_parallel, fsdp_over_tensor_parallel, hybrid])
def test_parameters_of_a_parallel_module_are_those_of_one_process(parallelise):
    ranks(4, fill_module, parallelise)


def fill_sum():
    tensor = DTensor.from_local(torch.zeros(3), init_device_mesh("cpu", (4,)), [Partial()])
    rule = r"random\.normal_: tensor must have no placements but Replicate"
    with pytest.raises(ValueError, match=rule):
        fastseed.random.normal_(tensor, KEY)
    assert not tensor.to_local().any()


def test_gathered_sums_are_refused_and_stay():
    ranks(4, fill_sum)


def initialize_by_torch():
    torch.manual_seed(1)
    tensor = distribute_tensor(torch.zeros(16, 4), init_device_mesh("cpu", (4,)), [Shard(0)])
    return nn.init.normal_(tensor).full_tensor()


def test_initialization_by_torch_itself_depends_on_the_mesh():
    """The reason for these fills: on the CPU, torch repeats the numbers of one shard on each."""
    torch.manual_seed(1)
    found = ranks(4, initialize_by_torch)[0]
    assert not found.equal(nn.init.normal_(torch.zeros(16, 4)))
    first, *others = found.chunk(4)
    assert all(other.equal(first) for other in others)

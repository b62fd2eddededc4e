"""Perturbations of sharded models, a rank of a job alone in this process."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import fastseed
from fastseed.nn import apply_log, perturb_, perturbed


def model_of(*shapes):
    model = nn.Module()
    for i, shape in enumerate(shapes):
        model.register_parameter(f"p{i}", nn.Parameter(torch.zeros(shape)))
    return model


@pytest.mark.parametrize("noise", ["normal", "rademacher"])
def test_dtensors_hold_their_part_of_the_noise(as_rank, noise):
    as_rank(3, 4)
    mesh = init_device_mesh("cpu", (2, 2))
    whole, sharded = model_of((7, 6), (5, 9), (6,)), nn.Module()
    perturb_(whole, 7, 1e-2, noise=noise)
    cuts = ([Shard(0), Shard(1)], [Replicate(), Shard(1)], [Shard(0), Shard(0)])
    for (name, p), placements in zip(whole.named_parameters(), cuts, strict=True):
        zeros = distribute_tensor(torch.zeros_like(p), mesh, placements, src_data_rank=None)
        sharded.register_parameter(name, nn.Parameter(zeros))
    with perturbed(sharded, 7, 1e-2, noise=noise):
        for (name, p), placements in zip(whole.named_parameters(), cuts, strict=True):
            part = distribute_tensor(p.detach(), mesh, placements, src_data_rank=None)
            assert torch.equal(sharded.get_parameter(name).to_local(), part.to_local())
    assert not any(p.to_local().any() for p in sharded.parameters())
    message = r"got writes to 'p1'; all others have their bits"
    rest = pytest.raises(RuntimeError, match=message)
    with rest, torch.no_grad(), perturbed(sharded, 7, 1e-2, noise=noise):
        sharded.p1.add_(1)
    assert [bool(p.to_local().any()) for p in sharded.parameters()] == [False, True, False]
    with pytest.raises(ValueError, match=r"shard must be None for a DTensor.*\(p0\)"):
        part = fastseed.random.Shard((7, 6), (0, 0))
        perturb_(sharded, 7, 1e-2, shards={"p0": part})


def test_fully_shard_is_resharded_before_it_moves(as_rank):
    as_rank(0, 1)
    plain = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    sharded = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    sharded.load_state_dict(plain.state_dict())
    for module in (*sharded, sharded):
        fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
    x = torch.ones(2, 6)

    def outputs():  # a forward pass without a backward leaves the root unsharded
        return plain(x), sharded(x)

    outputs()
    with perturbed(plain, 7, 0.1) as one, perturbed(sharded, 7, 0.1) as other:
        assert torch.equal(*outputs())
        one.flip()
        other.flip()
        assert torch.equal(*outputs())
    assert torch.equal(*outputs())
    for model in (plain, sharded):
        perturb_(model, 7, 0.1)
    assert torch.equal(*outputs())
    for model in (plain, sharded):
        apply_log(model, [(7, 0.1), (8, 0.1)])
    assert torch.equal(*outputs())


def test_fsdp1_is_refused():
    class FullyShardedDataParallel(nn.Linear):
        """By the name of torch's own."""

    with pytest.raises(TypeError, match="must be sharded by fully_shard, not by"):
        perturb_(nn.Sequential(FullyShardedDataParallel(2, 2)), 7, 1e-3)

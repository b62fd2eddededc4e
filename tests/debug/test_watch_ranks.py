"""Recordings of two ranks: a planted bit is found, and layouts have the digests of one process."""

import os

import pytest
import torch
import torch.distributed as dist
from helpers.exact_model import Net, batch, flip_output
from helpers.ranks import ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

from fastseed.debug import Watch, bisect
from fastseed.debug.watch_file import Recording


def make(how):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 11), nn.BatchNorm1d(11), nn.ReLU(), nn.Linear(11, 3))
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    return fully_shard(model) if how == "fsdp2" else model


def train(how, path, plant):
    """Record four steps; with ``plant``, a bit of the last weight changes on rank 1 in step 2."""
    model, rank = make(how), dist.get_rank()
    optimizer = torch.optim.Adam(model.parameters())
    with Watch(model, optimizer, path=path) as watch:
        for step in range(4):
            optimizer.zero_grad()
            x = torch.randn(5, 6, generator=torch.Generator().manual_seed(100 * step + rank))
            model(x).square().mean().backward()
            optimizer.step()
            if plant and step == 2 and rank == 1:
                *_, weight, _ = model.parameters()
                local = weight.to_local() if isinstance(weight, DTensor) else weight.detach()
                local.view(torch.int32)[-1, -1] ^= 1
            watch.record()


def train_all(folder):
    for how in ("ddp", "fsdp2"):
        train(how, folder / f"{how}-a", plant=False)
        train(how, folder / f"{how}-b", plant=True)
    Watch(make("alone"), path=folder / "alone").close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder in which two ranks recorded their training."""
    folder = tmp_path_factory.mktemp("runs")
    ranks(2, train_all, folder)
    return folder


@pytest.mark.parametrize(("how", "rank"), [("ddp", 1), ("fsdp2", 0)])
def test_a_bit_on_rank_1_is_found(runs, how, rank):
    """Under DDP in the file of rank 1; a shard's belongs to the whole, which all ranks record."""
    a, b = runs / f"{how}-a", runs / f"{how}-b"
    assert sorted(os.listdir(a)) == ["rank-0.watch", "rank-1.watch"]
    found = bisect(a, b)
    assert (found.step, found.rank) == (2, rank)
    assert [difference.name for difference in found.differences] == ["parameter 3.weight"]
    assert bisect(a / "rank-1.watch", b / "rank-1.watch").step == 2
    assert bisect(a / "rank-0.watch", b / "rank-0.watch").step == (3 if how == "ddp" else 2)


def test_shards_have_the_digests_of_the_whole(runs):
    for how in ("ddp-a", "fsdp2-a"):
        found = bisect(runs / "alone", runs / how)
        assert found.equal and found.compared == 1
        assert "rank 0: only b has steps 0 to 3" in found.notes


def test_ranks_that_only_one_run_has(runs, tmp_path, monkeypatch):
    assert "only a has ranks 1" in bisect(runs / "ddp-a", runs / "ddp-a" / "rank-0.watch").notes
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WORLD_SIZE", "8")
    Watch(nn.Linear(2, 2), path=tmp_path).close()
    with pytest.raises(ValueError, match=r"must have a rank in common, got 0 to 1 of .* and 7 of"):
        bisect(runs / "ddp-a", tmp_path)


def call(path, model, *, split=None, plant=None, **options):
    """Record the calls of one step."""
    x = batch() if split is None else batch().chunk(2)[dist.get_rank()]
    more = {"groups": (), "modules": True, "batch_mesh": split, **options}
    with Watch(model, path=path, **more) as watch:
        if plant is not None:  # after the hooks of the recording, before them in order
            flip_output(plant, element=5)
        model(x).sum().backward()
        watch.record()


def sharded(model, mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(model, mesh):
    plan = {}
    for i in range(2):
        plan |= {f"layers.{i}.up": ColwiseParallel(), f"layers.{i}.down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def recomputed(layer, x):
    return checkpoint(layer, x, use_reentrant=False)


def call_all(folder):
    mesh = init_device_mesh("cpu", (2,))
    ddp = nn.parallel.DistributedDataParallel
    call(folder / "alone", Net())
    call(folder / "fsdp2", sharded(Net(), mesh))
    call(folder / "fsdp2-batch", sharded(Net(), mesh), split=mesh)
    call(folder / "fsdp2-checkpoint", sharded(Net(recomputed), mesh), split=mesh)
    call(folder / "tp", tensor_parallel(Net(), mesh))
    call(folder / "ddp-batch", ddp(Net()), split=mesh)
    model = Net()
    plant = model.layers[1].up if dist.get_rank() == 1 else None
    planted = ddp(model)
    call(folder / "ddp-batch-planted", planted, split=mesh, plant=plant)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The folder in which two ranks recorded calls."""
    folder = tmp_path_factory.mktemp("calls")
    ranks(2, call_all, folder)
    return folder


@pytest.mark.parametrize("case", ["fsdp2", "fsdp2-batch", "fsdp2-checkpoint", "tp", "ddp-batch"])
def test_calls_on_one_rank_and_two_have_equal_digests(calls, case):
    found = bisect(calls / "alone", calls / case)
    assert found.equal, str(found)
    tables = [set(Recording(calls / c / "rank-1.watch").tables[-1]) for c in ("alone", case)]
    assert tables[0] == tables[1] and len(tables[0]) > 30


def test_an_element_of_another_rank_is_found(calls):
    found = bisect(calls / "alone", calls / "ddp-batch-planted")
    assert str(found.call) == ("step 0, layers.1.up, forward: inputs equal, output differs")

"""Meshes of four real ranks, FSDP2 and DTensor: which ranks draw the same."""

import os
import random
import re
import signal
import time
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
from helpers.meshes import expected_groups, shared_by
from helpers.paths import ROOT
from helpers.processes import alone
from helpers.ranks import answers_of_the_living, group_of_one, ranks
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, _random, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed import elastic
from fastseed._backend import private_distributed
from fastseed.debug.checkup import assert_ranks_agree
from fastseed.derivation import context
from fastseed.distributed import rendezvous

NAMES = ("dp", "tp", "pp")


def grid():
    """Two by two ranks."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def draws(shape, distinct_over):
    """The coordinates of this rank on a mesh, and a number of each kind of stream."""
    where = init_device_mesh("cpu", shape, mesh_dim_names=NAMES)
    fastseed.init(42, mesh=where, distinct_over=distinct_over)
    seeder = context.seeder
    coordinates = where.get_coordinate()
    assert [seeder.data_rank, seeder.data_world_size] == [coordinates[0], shape[0]]
    seeds = []
    fastseed.register_generator(seeds.append)
    fastseed.reseed(1, 7)
    key = fastseed.derive_key("torch.cpu", task=1, epoch=7)
    found = [random.random(), np.random.random(), torch.rand(()).item(), seeds[0], key]
    with fastseed.fork_rng("tensor-parallel", distinct_over=NAMES):
        forked = torch.rand(()).item()
    return dict(zip(NAMES, ((c, None) for c in coordinates), strict=True)), found, forked


@pytest.mark.parametrize("shape", [(2, 2, 1), (1, 2, 2)])
@pytest.mark.parametrize("distinct_over", [None, ("pp", "dp")])
def test_exactly_the_ranks_that_should_share_a_stream_share_it(shape, distinct_over):
    meshes, found, forked = zip(*ranks(4, draws, shape, distinct_over), strict=True)
    expected = expected_groups(meshes, NAMES if distinct_over is None else distinct_over)
    for stream in zip(*found, strict=True):
        assert shared_by(stream) == expected
    assert shared_by(forked) == [[0], [1], [2], [3]]


def of_reversed_ranks():
    where = DeviceMesh("cpu", torch.arange(4).flip(0).view(2, -1), mesh_dim_names=("a", "b"))
    fastseed.init(42, mesh=where, data_over=("a",))
    return context.seeder.rank, context.seeder.place.fields.default


def test_coordinates_count_where_a_mesh_orders_ranks_otherwise():
    assert ranks(4, of_reversed_ranks) == [(0, 3), (1, 2), (2, 1), (3, 0)]


def refused(kind):
    rank = dist.get_rank()
    meshes = {
        "unnamed": lambda: init_device_mesh("cpu", (4,)),
        "part": lambda: grid()["tp"],
        "wrong on one": lambda: {"dp": (rank, 4) if rank else (4, 4)},
    }
    with pytest.raises((ValueError, RuntimeError)) as raised:
        fastseed.init(42, mesh=meshes[kind]())
    return str(raised.value)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("unnamed", "a mesh with names: init_device_mesh("),
        ("part", "a mesh of the 4 ranks of the job"),
    ],
)
def test_wrong_meshes_are_refused_on_every_rank(kind, says):
    for found in ranks(4, refused, kind):
        assert found.startswith(f"fastseed.init: mesh must be {says}")


def test_a_mesh_that_is_wrong_on_one_rank_is_refused_on_every_rank():
    for rank, found in enumerate(ranks(4, refused, "wrong on one")):
        others = "fastseed.init: all ranks must agree, but rank 0 failed: "
        own = "fastseed.init: mesh['dp'][0] must be in [0, 3], got 4"
        assert found == (others if rank else "") + own


def filled(model):
    """Fill the parameters of a model in a fork; return them whole, and what is drawn around it."""
    fastseed.reseed(0)
    begin = torch.get_rng_state()
    with fastseed.fork_rng("parameters", distinct_over=()):
        key = fastseed.derive_key("parameters/torch.cpu", task=0, rank=fastseed.SHARED)
        for i, (_, parameter) in enumerate(sorted(model.named_parameters())):
            fastseed.random.normal_(parameter, key + i)
    whole = [getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters()]
    return [*whole, begin, torch.get_rng_state(), torch.rand(3)]


def wrap():
    """FSDP2 over tensor parallelism."""
    where = grid()
    fastseed.init(42, mesh=where, distinct_over=("dp",))
    alone, model = (nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6)) for _ in range(2))
    expected = filled(alone)
    fastseed.reseed(0)
    begin = torch.get_rng_state()
    parallelize_module(model, where["tp"], {"0": ColwiseParallel()})
    fully_shard(model, mesh=where["dp"])
    assert begin.equal(torch.get_rng_state()), "wrapping draws"
    assert all(map(torch.equal, filled(model), expected))


def test_wrapping_a_model_changes_no_random_number():
    ranks(4, wrap)


def draw_into_dtensors():
    where = grid()
    fastseed.init(42, mesh=where)
    fastseed.reseed(1, 7)
    begin = torch.get_rng_state()
    _random.manual_seed(1, where)
    assert _random._rng_tracker is None
    assert torch.get_rng_state().equal(begin)
    for placements in ([Replicate(), Replicate()], [Shard(0), Replicate()]):
        context.seeder.move(1, 7, 0)
        tensor = distribute_tensor(torch.zeros(8, 2), where, placements, src_data_rank=None)
        nn.init.uniform_(tensor)
        after = torch.get_rng_state()
        context.seeder.move(1, 7, 0)
        assert tensor.to_local().equal(torch.rand(tensor.to_local().shape))
        assert after.equal(torch.get_rng_state()) and _random._rng_tracker is None
    context.seeder.move(1, 7, 0)
    with fastseed.fork_rng("parameters", distinct_over=()):
        common = nn.init.uniform_(distribute_tensor(torch.zeros(4), where, [Replicate()] * 2))
    assert torch.get_rng_state().equal(begin)
    return common.to_local().tolist()


def test_dtensors_tracker_does_not_replace_the_generators():
    """On CPUs torch makes none: random operators draw from the generators that reseed set."""
    assert shared_by(map(str, ranks(4, draw_into_dtensors))) == [[0, 1, 2, 3]]


def run_page():
    page = (ROOT / "docs/several-ranks.md").read_text("utf-8")
    (program,) = re.findall(r"```py\n(import.*?)```", page, re.DOTALL)
    exec(compile(program, "several-ranks.md", "exec"), {})


def test_dtensors_of_the_page():
    ranks(2, run_page)
    with group_of_one():
        run_page()


def draw_in_checkpoint():
    """Dropout in a parallel region under activation checkpointing; the two masks of each rank."""
    fastseed.init(42, mesh=grid(), distinct_over=("dp",))
    fastseed.reseed(1, 7)
    masks = []

    def region(x):
        masks.append([nn.functional.dropout(torch.ones(16)).tolist()])
        with fastseed.fork_rng("tensor-parallel", index=0, distinct_over=("dp", "tp")):
            masks[-1].append(nn.functional.dropout(torch.ones(16)).tolist())
        return x * torch.tensor(masks[-1]).sum()

    y = checkpoint(region, torch.ones(1, requires_grad=True), use_reentrant=False)
    (y * y).sum().backward()
    forward, again = masks
    assert forward == again
    return [str(mask) for mask in forward]


def test_masks_of_a_parallel_region_repeat_in_recomputation():
    outside, inside = zip(*ranks(4, draw_in_checkpoint), strict=True)
    assert shared_by(outside) == [[0, 1], [2, 3]]
    assert shared_by(inside) == [[0], [1], [2], [3]]


PATHS = {
    "digest": "debug.digest",
    "mean": "elastic.mean",
    **dict.fromkeys(("replicated", "fully_shard"), "elastic.SlotGradients.step"),
}
# calls that meet in the store: the function in the message, and its time limit
MEETINGS = {
    "assert_ranks_agree": ("debug.check", 10),
    "first step": ("elastic.SlotGradients", 10),
    "verify_agreement": ("distributed.verify_agreement", 2),
    "init": ("init", 10),
}


def errors_of_calls(how):
    """Call whatever exchanges something between ranks; return the text of each error.

    Rank 2 ends (SIGKILL), stops (SIGSTOP), or leaves a step by an exception and lives on (RAISE).
    """
    rendezvous.GRACE = 2.0
    fastseed.init(42)
    torch.manual_seed(0)

    def group(seconds=60 if how == "RAISE" else 3):  # one for each call
        return dist.new_group(timeout=timedelta(seconds=seconds))

    def step(model, gradients):
        for _, x in gradients.step(torch.ones(1, 2, 4)):
            if how == "RAISE" and dist.get_rank() == 2 and gradients is not first:
                raise ValueError("of one rank")
            model(x).sum().backward()
        model.zero_grad()

    mesh = init_device_mesh("cpu", (3,))
    sharded = distribute_tensor(torch.arange(6.0), mesh, [Shard(0)])
    calls = {
        "digest": lambda: fastseed.debug.digest(sharded),
        "assert_ranks_agree": lambda: assert_ranks_agree(nn.Linear(2, 2)),
    }
    if how == "RAISE":
        calls = {}
    else:
        ranks = group()
        calls["mean"] = lambda: elastic.mean(torch.ones(1), group=ranks)
    first = None
    for name in ("replicated", "fully_shard"):
        of_model, model = group(), nn.Linear(4, 4)
        if name == "fully_shard":
            fully_shard(model, mesh=DeviceMesh.from_group(of_model, "cpu"))
        first = gradients = elastic.SlotGradients(model, 3, group=of_model)
        step(model, gradients)
        first = None
        calls[name] = lambda model=model, gradients=gradients: step(model, gradients)
    if how != "RAISE":
        calls["first step"] = lambda: step(model, elastic.SlotGradients(nn.Linear(4, 4), 3))
        calls["verify_agreement"] = lambda: fastseed.distributed.verify_agreement(timeout=2)
        calls["init"] = lambda: fastseed.init()
    dist.barrier()
    if dist.get_rank() == 2 and how != "RAISE":
        os.kill(os.getpid(), getattr(signal, how))
    time.sleep(0.5)
    found, start = {}, time.monotonic()
    for name, call in calls.items():
        try:
            call()
            found[name] = "no error"
        except (RuntimeError, TimeoutError, TypeError, ValueError) as error:
            found[name] = str(error)
    found["seconds"] = time.monotonic() - start
    return found


def errors_of_all_ways():
    ways = {"SIGKILL": (2, "SIGKILL"), "SIGSTOP": (2, "SIGSTOP"), "RAISE": (3, "RAISE")}
    return answers_of_the_living(3, errors_of_calls, ways, limit=10)


@pytest.fixture(scope="module")
def messages():
    """Return what the others raise for each way to be lost; the jobs wait at the same time."""
    return alone(errors_of_all_ways)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_rank_that_is_lost_is_named_by_every_collective_call(how, messages):
    assert messages[how].keys() == {0, 1}
    for found in messages[how].values():
        paths = {name: (path, 2) for name, path in PATHS.items()} | MEETINGS
        for name, (path, seconds) in paths.items():
            # The other rank may still wait for the time limit of the call before.
            late = rf"fastseed\.{path}: ranks? ([01], )?2 did not call it within {seconds} seconds"
            assert re.match(late, found[name]), found


@pytest.mark.slow
def test_a_rank_that_leaves_a_step_is_named_long_before_the_time_limit(messages):
    for rank in (0, 1):
        found = messages["RAISE"][rank]
        for name in ("replicated", "fully_shard"):
            assert "step: rank 2 left the step in slot 2, and this rank waits" in found[name]
        assert found["seconds"] < 30  # of 60


def failing_call():
    """Fail in one of two functions, on two ranks when the others have left; return the message."""
    rank, rendezvous.GRACE = dist.get_rank(), 3.0
    store = private_distributed.default_store()
    dist.barrier()
    if rank > 1:
        store.wait(["0 has left", "1 has left"])
    try:
        rendezvous.collective("ab"[rank % 2], fail)
    except RuntimeError as error:
        return str(error)
    finally:
        rendezvous.GRACE = 5.0
        store.set(f"{rank} has left", "")


def fail(group):
    raise RuntimeError("Connection closed by peer")


def test_ranks_in_several_functions_name_those_that_are_lost_and_not_themselves():
    named = ("ranks 2, 3", "ranks 2, 3", "rank 3", "rank 2")
    for rank, text in enumerate(ranks(4, failing_call)):
        late = f"fastseed.{'ab'[rank % 2]}: {named[rank]} did not call it within 3 seconds of the"
        assert text.startswith(late)

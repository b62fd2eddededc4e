"""Stop on some ranks, go on with others: every sample once, in one order, with one augmentation."""

import itertools
import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from helpers.loaders import Indexed, Plain, dealt, flat, same, start
from helpers.processes import alone, free_port
from torch.utils.data import DistributedSampler

import fastseed
from fastseed.data import Loader, per_sample


def make(n, batch, workers=0):
    return Loader(per_sample(Indexed(n)), batch, True, num_workers=workers, collate_fn=same)


def read_until_killed(rank, port, path):
    """Read four batches, with more fetched ahead; rank 0 saves a state."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    fastseed.init(42)
    fastseed.reseed(1, 5)
    loading = {"num_workers": 2, "prefetch_factor": 2, "collate_fn": same}
    batches = Loader(per_sample(Indexed(48)), 3, True, **loading)
    with open(f"{path}.{rank}", "w") as file:
        for batch in itertools.islice(batches, 4):
            print(json.dumps(batch), file=file, flush=True)
        dist.barrier()
        if rank == 0:
            torch.save({"job": fastseed.state_dict(), "batches": batches.state_dict()}, path)
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL)


def samples_of_killed_ranks(path):
    """Return what two ranks read, in the order of the job."""
    context, port = multiprocessing.get_context("fork"), free_port()
    ranks = [context.Process(target=read_until_killed, args=(rank, port, path)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, process.exitcode
    logs = [Path(f"{path}.{rank}").read_text().splitlines() for rank in (0, 1)]
    return dealt([[json.loads(line) for line in log] for log in logs])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_two_ranks_that_are_killed_then_one(tmp_path):
    path = tmp_path / "state.pt"
    stopped = alone(samples_of_killed_ranks, path)
    assert len(stopped) == 24
    saved = torch.load(path, weights_only=True)
    fastseed.init(7, rank=0, world_size=1)
    fastseed.load_state_dict(saved["job"])
    for workers in (0, 3):
        batches = make(48, 5, workers)
        batches.load_state_dict(saved["batches"])
        resumed = flat(batches)
        fastseed.reseed(1, 5)
        whole = flat(make(48, 4))
        assert [tuple(sample) for sample in stopped] + resumed == whole


def test_where_batches_of_any_size_are_counted_the_ranks_stay():
    start(2)
    batches = Loader(Plain(30), batch_sampler=[[0, 1, 2], [3]], collate_fn=same)
    next(iter(batches))
    batches.load_state_dict(batches.state_dict())
    start(2, world_size=2)
    with pytest.raises(RuntimeError, match="there must be 1 ranks, as when the state was saved"):
        iter(batches)


def test_a_distributed_sampler_goes_on_only_where_its_ranks_can():
    def make(world):
        start(2, world_size=world)
        sampler = DistributedSampler(range(48), num_replicas=world, rank=0)
        return Loader(Plain(48), 6, sampler=sampler, collate_fn=same)

    batches, other = make(2), make(5)
    start(2, world_size=2)
    next(iter(batches))
    start(2, world_size=5)
    other.load_state_dict(batches.state_dict())
    with pytest.raises(RuntimeError, match=r"must be a multiple of the 5 ranks, got 12"):
        iter(other)


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_after_a_resumed_one_are_whole(workers):
    def make():
        kept = {"num_workers": workers, "persistent_workers": workers > 0}
        return Loader(per_sample(Indexed(24)), 4, True, collate_fn=same, **kept)

    start(3)
    whole, expected = make(), {}
    batches = iter(whole)
    next(batches), next(batches)
    state = whole.state_dict()
    for epoch in (3, 4, 5):
        fastseed.reseed(1, epoch)
        expected[epoch] = list(whole)
    batches = make()
    batches.load_state_dict(state)
    for epoch in (3, 4, 5):
        fastseed.reseed(1, epoch)
        assert list(batches) == expected[epoch][2 * (epoch == 3) :]


def test_streams_of_workers_draw_nothing_again():
    """Without per_sample the augmentation after a resume is new: that of the stop's position."""
    for workers in (1, 2):
        start(3)
        batches = Loader(
            Indexed(24), batch_size=2, shuffle=True, num_workers=workers, collate_fn=same
        )
        log, position = [], None
        for k, batch in enumerate(batches):
            log.append(batch)
            if k == 5:
                position = batches.state_dict()
        batches.load_state_dict(position)
        rest = list(batches)
        flat = [[s for batch in part for s in batch] for part in (log[:6], log[6:], rest)]
        assert [s[0] for s in flat[1]] == [s[0] for s in flat[2]]
        assert not {n for s in flat[0] for n in s[1:]} & {n for s in flat[2] for n in s[1:]}
        batches.load_state_dict(position)
        assert list(batches) == rest, "and it is reproducible"

"""Stop on some ranks, go on with others: every sample once, in one order, with one augmentation."""

import pytest
import torch
from helpers.loaders import Indexed, flat, same
from helpers.support import run_script

import fastseed
from fastseed.data import Loader, per_sample


def make(n, batch, workers=0):
    return Loader(per_sample(Indexed(n)), batch, True, num_workers=workers, collate_fn=same)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_two_ranks_that_are_killed_then_one(tmp_path):
    path = tmp_path / "state.pt"
    stopped = run_script("killed_epoch.py", path, timeout=100)
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

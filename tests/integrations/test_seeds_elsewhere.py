"""Statements of docs/migration.md on seeding in Lightning and Accelerate, run on the packages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import fastseed

pytestmark = pytest.mark.proof
ARANGE = list(range(50))


def words() -> tuple[list[int], list[int]]:
    """31 bits of the next words of NumPy's and torch's global generators."""
    numpy = np.random.randint(0, 2**32, 4, dtype=np.uint32) & 0x7FFFFFFF
    return numpy.tolist(), torch.empty(4, dtype=torch.int32).random_().tolist()


@pytest.fixture
def lightning(monkeypatch):
    package = pytest.importorskip("lightning")
    for variable in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(variable, "")  # put back afterwards
        monkeypatch.delenv(variable)
    return package


def test_lightning_takes_zero_where_no_seed_is_given(lightning):
    with pytest.warns(UserWarning, match="seed set to 0"):
        assert lightning.seed_everything() == 0
    with pytest.raises(ValueError, match="not in bounds"):
        lightning.seed_everything(2**32)


def test_lightning_gives_every_rank_and_library_one_seed(lightning, monkeypatch):
    drawn = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        lightning.seed_everything(42, verbose=False)
        drawn.append(torch.rand(3).tolist())
    assert drawn[0] == drawn[1]
    lightning.seed_everything(42, verbose=False)
    numpy, torch_ = words()
    assert numpy == torch_
    ours = []
    for rank in (0, 1):
        fastseed.init(42, rank=rank, world_size=2)
        fastseed.reseed(1, 0)
        numpy, torch_ = words()
        assert numpy != torch_
        ours.append(torch_)
    assert ours[0] != ours[1]


def test_lightning_s_workers_follow_what_the_main_process_drew(lightning):
    from lightning.fabric.utilities.seed import pl_worker_init_function

    class Draws(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.rand(())

    def epoch(drawn_before: int, loader) -> list[float]:
        torch.rand(drawn_before)
        return [value for batch in loader for value in batch.tolist()]

    plain = DataLoader(Draws(), num_workers=1, worker_init_fn=pl_worker_init_function)
    found = []
    for drawn_before in (0, 1):
        lightning.seed_everything(42, verbose=False)
        found.append(epoch(drawn_before, plain))
    assert found[0] != found[1]
    ours = []
    for drawn_before in (0, 1):
        fastseed.init(42)
        fastseed.reseed(1, 0)
        ours.append(epoch(drawn_before, fastseed.data.Loader(Draws(), num_workers=1)))
    assert ours[0] == ours[1]


def test_accelerate_adds_the_rank_and_the_epoch():
    pytest.importorskip("accelerate")
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import set_seed

    AcceleratorState._reset_state(True)
    state = Accelerator(cpu=True).state
    drawn = {}
    try:
        for seed, rank in ((42, 1), (43, 0), (42, 0)):
            for shared in (AcceleratorState._shared_state, PartialState._shared_state):
                shared["process_index"] = rank
            assert state.process_index == rank
            set_seed(seed, device_specific=True)
            drawn[seed, rank] = torch.rand(3).tolist()
    finally:
        AcceleratorState._reset_state(True)
    assert drawn[42, 1] == drawn[43, 0] != drawn[42, 0]

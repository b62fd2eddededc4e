"""What docs/migration/ says of seeding in torch, Lightning and Accelerate, run on the packages."""

from itertools import chain

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import fastseed
from fastseed.data import ShuffleSampler

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore")]


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


def of(sampler, epoch=None):
    if epoch is not None:
        sampler.set_epoch(epoch)
    return list(sampler)


def test_distributed_sampler():
    def sampler(seed, rank=0, ranks=1):
        return DistributedSampler(range(12), ranks, rank, seed=seed)

    assert of(sampler(42), 1) == of(sampler(43), 0)
    forgetful = sampler(42)
    assert of(forgetful) == of(forgetful)
    for ranks in (2, 3):
        shares = [of(sampler(42, rank, ranks)) for rank in range(ranks)]
        assert [*chain(*zip(*shares, strict=True))] == of(sampler(42))

    def order(seed, epoch):
        fastseed.init(seed)
        return of(ShuffleSampler(12), epoch)

    assert order(42, 1) != order(43, 0)
    fastseed.init(42)
    with pytest.raises(RuntimeError, match="call fastseed.reseed"):  # noqa: RUF043
        of(ShuffleSampler(12))
    fastseed.reseed(task=0)
    assert of(ShuffleSampler(12)) == order(42, 0)
    shares = [of(ShuffleSampler(12, rank=rank, world_size=3), 0) for rank in range(3)]
    assert [*chain(*zip(*shares, strict=True))] == order(42, 0)


class Holding(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 32

    def __getitem__(self, i):
        return float(self.rng.random())


def test_a_generator_of_the_data_set(lightning):
    def drawn(batches):
        return len({x for batch in batches for x in batch.tolist()})

    from lightning.fabric.utilities.seed import pl_worker_init_function

    seeded = dict(num_workers=2, worker_init_fn=pl_worker_init_function)
    assert drawn(DataLoader(Holding(), 4, **seeded)) == 16
    fastseed.init(42)
    fastseed.reseed(1)
    assert drawn(fastseed.data.Loader(Holding(), 4, num_workers=2)) == 32


def test_a_lightning_run_that_is_resumed_without_us(lightning, tmp_path):
    seen = []

    class Writing(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch, index):
            seen.append(float(torch.rand(())))
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    def run(epochs, path=None):
        lightning.seed_everything(42, verbose=False)
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
        trainer.fit(Writing(), DataLoader(torch.rand(16, 3), 4), ckpt_path=path)
        trainer.save_checkpoint(tmp_path / "x.ckpt")

    run(2)
    whole = seen[:]
    seen.clear()
    run(1)
    seen.clear()
    held = torch.load(tmp_path / "x.ckpt", weights_only=True)
    assert not any("rng" in key or "random" in key or "seed" in key for key in held)
    run(2, tmp_path / "x.ckpt")
    assert seen != whole[4:] and seen == whole[:4]

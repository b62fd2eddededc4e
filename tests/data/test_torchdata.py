"""torchdata's StatefulDataLoader with our sampler and samples resumes exactly, as ours does."""

import pytest
from helpers.loaders import Indexed, same, start
from torch.utils.data import DataLoader

from fastseed.data import Loader, ShuffleSampler, per_sample, worker_init_fn

stateful = pytest.importorskip("torchdata.stateful_dataloader")

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

N, BATCH = 40, 4


def make(workers, persistent=False, epoch=0, **more):
    """A loader of torchdata; its workers get the epoch from the dataset."""
    samples = per_sample(Indexed(N))
    samples.set_scope(1, epoch)
    return stateful.StatefulDataLoader(
        samples,
        batch_size=BATCH,
        sampler=ShuffleSampler(N),
        num_workers=workers,
        persistent_workers=persistent,
        worker_init_fn=worker_init_fn,
        collate_fn=same,
        **more,
    )


def expected():
    return list(Loader(per_sample(Indexed(N)), BATCH, True, collate_fn=same))


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (2, True)])
def test_every_stop(workers, persistent):
    start(6)
    whole = expected()
    batches = make(workers, epoch=6)
    log, states = [], []
    for batch in batches:
        log.append(batch)
        states.append(batches.state_dict())
    assert log == whole
    for stop in range(1, len(whole)) if workers == 0 else range(1, len(whole), 3):
        start(6)
        batches = make(workers, persistent, epoch=6)
        batches.load_state_dict(states[stop - 1])
        assert list(batches) == whole[stop:], stop


def test_loader_refuses_a_stateful_data_loader():
    assert issubclass(stateful.StatefulDataLoader, DataLoader)
    with pytest.raises(TypeError, match=r"without its own __iter__.*, got .*StatefulDataLoader"):
        Loader(make(0))

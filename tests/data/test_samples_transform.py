"""per_sample(transform=): batches are read at once, and transformed sample by sample."""

import random

import pytest
import torch
from helpers.support import reference_sample_key, snapshot
from helpers.worker_cases import KINDS, draw_from, flat, options
from torch.utils.data import DataLoader, Dataset, Subset

import fastseed
from fastseed.data import Loader, Repeat, per_sample

GLOBALS = ("python", "numpy", "torch")


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=3, world_size=8)
    fastseed.reseed(1, 5)


class Table(Dataset):
    """Read a batch at a time, as a Hugging Face dataset; ``reads`` are the batches."""

    def __init__(self, n=12):
        self.n, self.reads = n, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.__getitems__([i])[0]

    def __getitems__(self, indices):
        self.reads.append(list(indices))
        return [10 * int(i) for i in indices]


class Rows(Dataset):
    """The same without __getitems__."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return 10 * int(i)


class Augment:
    """Draws from all globals and from generators that it holds."""

    def __init__(self):
        self.held = [make() for make in KINDS.values()]

    def __call__(self, value):
        return value, *map(draw_from, (*GLOBALS, *self.held))


def test_a_batch_is_read_at_once_and_has_the_numbers_of_its_samples():
    table = Table()
    data = per_sample(table, transform=Augment())
    found = data.__getitems__([3, 1, Repeat(3)])
    assert table.reads == [[3, 1, 3]]
    assert found == [data[3], data[1], data[Repeat(3)]]
    assert found[0][0] == found[2][0] == 30 and not {*found[0][1:]} & {*found[2][1:]}
    assert found[1][1] == random.Random(reference_sample_key("python", 1)).getrandbits(62)
    key = reference_sample_key("transform.held[2]", 1)
    assert found[1][6] == random.Random(key).getrandbits(62)
    assert per_sample(Rows(), transform=Augment()).__getitems__([3, 1]) == found[:2]


@pytest.mark.parametrize("dataset", [Table, Rows, lambda: Subset(Table(24), range(0, 24, 2))])
def test_workers_batches_and_order_do_not_matter(dataset):
    data = per_sample(dataset(), transform=Augment())
    before = snapshot()
    expected = [data[i] for i in range(12)]
    assert snapshot() == before
    for workers, batch in ((0, 5), (1, 4), (2, 3)):
        assert flat(Loader(data, **options(workers=workers) | {"batch_size": batch})) == expected
    assert len({x for sample in expected for x in sample[1:]}) == 12 * (3 + len(KINDS))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_transform_can_be_given_a_generator(kind):
    def augment(value, rng):
        return value, draw_from(rng)

    before = snapshot()
    data = per_sample(Table(), kind, transform=augment)
    found = data.__getitems__([3, Repeat(3)])
    assert snapshot() == before
    given = per_sample(Given(), kind)
    assert [x for _, x in found] == [given[3], given[Repeat(3)]]


class Given(Dataset):
    def __getitem__(self, index, rng):
        return draw_from(rng)


@pytest.mark.parametrize("name", GLOBALS)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_that_draws_is_an_error(name, workers):
    class Draws(Table):
        def __getitems__(self, indices):
            draw_from(name)
            return super().__getitems__(indices)

    data = per_sample(Draws(), transform=Augment())
    message = f"the dataset must draw no random numbers, .* it drew from '{name}"
    before = snapshot()
    with pytest.raises(RuntimeError, match=message):
        flat(Loader(data, **options(workers=workers)))
    assert snapshot() == before


def test_wrong_transforms_and_datasets_are_refused():
    class Short(Table):
        def __getitems__(self, indices):
            return [1]

    with pytest.raises(RuntimeError, match="must return a sample for each of 2 indices, got 1"):
        per_sample(Short(), transform=Augment()).__getitems__([1, 2])

    def stop(sample):
        raise StopIteration

    with pytest.raises(RuntimeError, match="must not raise StopIteration, got it for index 1"):
        per_sample(Rows(), transform=stop).__getitems__([1, 2])


@pytest.mark.integrations
def test_it_works_in_a_plain_loader_and_with_hugging_face_datasets():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": list(range(12))})

    def augment(row):
        return row["x"], int(torch.randint(2**62, ()))

    data = per_sample(rows, transform=augment)
    data.set_epoch(5)
    found = flat(DataLoader(data, **options(workers=2)))
    assert [x for x, _ in found] == list(range(12))
    assert found == [data[i] for i in range(12)] and len({r for _, r in found}) == 12
    drawing = rows.with_transform(lambda batch: batch | {"r": [random.random()]})
    with pytest.raises(RuntimeError, match="it drew from 'python'"):
        per_sample(drawing, transform=augment)[0]

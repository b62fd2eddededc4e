"""The random numbers of a sample depend on (master seed, task, epoch, index) alone."""

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from helpers.inside import context, derive, scopes
from helpers.support import holds_key, reference_sample_key, scramble, snapshot
from helpers.worker_cases import KINDS, Batched, Draws, DrawsAll, Epochs, draw_from, flat, options
from torch.utils.data import DataLoader, Dataset

import fastseed
from fastseed import GeneratorPool
from fastseed.data import Repeat, per_sample
from fastseed.random import StreamBank

GLOBALS = ("python", "numpy", "torch")


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=3, world_size=8)


def everything(n=12):
    """A dataset that draws from all globals and all kinds of held generators, twice each."""
    held = [make() for make in KINDS.values()]
    return DrawsAll([*GLOBALS, *held, *GLOBALS, *held], n)


class States(Dataset):
    """A sample is the state that everything had when it was fetched."""

    def __init__(self):
        self.rng = torch.Generator()
        self.before = None

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return (
            random.getstate(),
            np.random.get_state(legacy=False),
            torch.default_generator.clone_state(),
            self.rng.clone_state(),
        )


# ---------------------------------------------------------------- the keys


@pytest.mark.parametrize(
    "index, sample",
    [
        (0, (0, 0)),
        (2, (2, 0)),
        (-1, (2, 0)),
        (np.int64(1), (1, 0)),
        (torch.tensor(1), (1, 0)),
        (Repeat(1), (1, 1)),
        (Repeat(2, 7), (2, 7)),
        (scopes.MAX_INDEX, (2**64 - 1, 0)),
        (Repeat(scopes.MAX_INDEX, scopes.MAX_WORKER), (2**64 - 1, 2**32 - 1)),
    ],
)
def test_every_generator_has_the_key_of_the_sample(index, sample):
    fastseed.reseed(1, 5, 9)
    scramble()
    python, numpy, torch_cpu, held = per_sample(States())[index]
    assert python == random.Random(reference_sample_key("python", *sample)).getstate()
    words = derive.mt19937_state(reference_sample_key("numpy", *sample))
    assert np.array_equal(numpy["state"]["key"], words)
    assert numpy["state"]["pos"] == 624 and numpy["has_gauss"] == 0
    assert holds_key(torch_cpu, reference_sample_key("torch.cpu", *sample))
    assert holds_key(held, reference_sample_key("dataset.rng", *sample))


@pytest.mark.parametrize("bits", [31, 32, 63])
def test_a_function_with_few_bits_gets_the_lowest_of_the_samples_key(bits):
    seeds = []
    fastseed.register_generator(seeds.append, name="env", bits=bits)
    fastseed.reseed(1, 5)
    data = per_sample(States())
    seeds.clear()
    assert data[2] and data[Repeat(1, 3)]
    keys = [reference_sample_key("env", *sample) for sample in ((2, 0), (1, 3))]
    assert [seed for seed in seeds if seed in [key % 2**bits for key in keys]] == [
        key % 2**bits for key in keys
    ]


def test_a_batch_is_its_samples():
    fastseed.reseed(1, 5)
    data = per_sample(everything())
    assert data.__getitems__([3, 1, Repeat(3)]) == [data[3], data[1], data[Repeat(3)]]
    batched = per_sample(Batched(GLOBALS, 4))
    assert batched.__getitems__([2, 0]) == [batched[2], batched[0]]  # its own is not asked


@pytest.mark.parametrize("kind", ["task", "epoch", "master_seed", "index", "occurrence"])
def test_everything_that_names_a_sample_matters(kind):
    where = {"task": 1, "epoch": 5, "master_seed": 42, "index": 2, "occurrence": 0}
    found = []
    for value in (where[kind], where[kind] + 1):
        at = {**where, kind: value}
        fastseed.init(at["master_seed"], rank=3, world_size=8)
        fastseed.reseed(at["task"], at["epoch"])
        index = Repeat(at["index"], at["occurrence"]) if at["occurrence"] else at["index"]
        found.append(per_sample(everything())[index][1:])
    assert not set(found[0]) & set(found[1])


def test_rank_world_size_and_step_do_not_matter():
    found = []
    for rank, world_size, step in ((0, 1, 0), (3, 8, 0), (1, 2, 77)):
        fastseed.init(42, rank=rank, world_size=world_size)
        fastseed.reseed(1, 5, step)
        found.append([per_sample(everything())[i] for i in range(12)])
    assert found[0] == found[1] == found[2]


# ---------------------------------------------------------------- who fetches it


def test_workers_batches_and_prefetching_do_not_matter():
    fastseed.reseed(1, 0)
    expected = [per_sample(everything())[i] for i in range(12)]
    for workers, batch, more in (
        (0, 4, {}),
        (1, 1, {}),
        (2, 3, {"prefetch_factor": 8}),
        (2, 1, {"persistent_workers": True}),
    ):
        epochs = Epochs(per_sample(everything()), workers=workers, batch_size=batch, **more)
        assert epochs.run(0) == expected
        assert epochs.run(1) != expected
        assert epochs.run(0) == expected


@pytest.mark.slow
def test_workers_of_a_fork_server_give_the_same():
    fastseed.reseed(1, 0)
    registered = random.Random(0)
    fastseed.register_generator(registered, name="mine")
    fastseed.reseed(1, 0)
    expected = [per_sample(DrawsAll([*GLOBALS, registered], 6))[i] for i in range(6)]
    data = per_sample(DrawsAll([*GLOBALS, registered], 6))
    data.set_epoch(0)
    plain = DataLoader(data, persistent_workers=True, **options("forkserver", workers=1))
    assert flat(plain) == expected  # nothing but the dataset itself travels
    data.set_epoch(1)
    assert flat(plain) != expected
    data.set_scope(1, 0)
    assert flat(plain) == expected


def test_a_loader_of_ours_has_the_last_word():
    data = per_sample(Draws("python", 4))
    data.set_scope(7, 7)
    for workers in (0, 2):
        found = Epochs(data, workers=workers).run(5)
        assert found[1] == random.Random(reference_sample_key("python", 1)).getrandbits(62)
    assert data[1] == random.Random(reference_sample_key("python", 1, task=7, epoch=7)).getrandbits(
        62
    )


def test_set_epoch_has_the_task_of_the_last_reseed():
    data = per_sample(Draws("python"))
    data.set_epoch(5)
    assert data[1] == random.Random(reference_sample_key("python", 1, task=0, epoch=5)).getrandbits(
        62
    )
    fastseed.reseed(3, 0)
    data.set_epoch(5)
    assert data[1] == random.Random(reference_sample_key("python", 1, task=3, epoch=5)).getrandbits(
        62
    )


def test_without_any_scope_it_refuses():
    data = per_sample(Draws("python"))
    before = snapshot()
    with pytest.raises(RuntimeError, match=r"per_sample: the epoch is not known"):
        data[0]
    fastseed.reseed(1, 0)
    assert isinstance(data[0], int)
    with pytest.raises(RuntimeError, match=r"call its set_epoch\(epoch\) before each iteration"):
        flat(DataLoader(data, **options()))
    context.seeder = None
    with pytest.raises(RuntimeError, match=r"per_sample: call fastseed.init\(...\) first"):
        data[0]
    assert snapshot() != before  # by the reseed


# ---------------------------------------------------------------- the main process


def test_globals_come_back_exactly():
    fastseed.reseed(1, 0)
    registered = [make() for make in KINDS.values()]
    for generator in registered:
        fastseed.register_generator(generator)
    pool, bank = GeneratorPool([torch.Generator()], "pool"), StreamBank(2, "bank")
    fastseed.register_generator(pool)
    fastseed.register_generator(bank)
    fastseed.reseed(1, 1)
    scramble()
    held = [make() for make in KINDS.values()]
    data = per_sample(DrawsAll([*GLOBALS, *held, *registered], 4))
    twins = copy.deepcopy([*held, *registered, pool[0]])
    before = snapshot(), bank.state_dict()["states"].tolist()
    data[0], data.__getitems__([1, 2, 3])
    assert (snapshot(), bank.state_dict()["states"].tolist()) == before
    now = [draw_from(g) for g in (*held, *registered, pool[0])]
    assert now == [draw_from(g) for g in twins]


class Raises(Dataset):
    def __getitem__(self, index):
        draw_from("python"), draw_from("numpy"), torch.randn(3)
        raise KeyError(index)


@pytest.mark.parametrize("fetch", ["__getitem__", "__getitems__"])
def test_globals_come_back_after_an_exception(fetch):
    fastseed.reseed(1, 0)
    scramble()
    before = snapshot()
    with pytest.raises(KeyError):
        getattr(per_sample(Raises()), fetch)([1] if fetch == "__getitems__" else 1)
    assert snapshot() == before


def test_a_generator_made_on_first_use_is_known_from_the_second_sample_on():
    class Lazy(Draws):
        def __getitem__(self, i):
            if self.rng is None:
                self.rng = np.random.default_rng()
            return draw_from(self.rng)

    fastseed.reseed(1, 0)
    a, b = per_sample(Lazy(None)), per_sample(Lazy(None))
    a[0], b[3]
    assert [a[i] for i in range(5)] == [b[i] for i in range(5)]


LATE = random.Random(0)


class DrawsFromAVariable(Dataset):
    """Its generator is a global variable, which is not searched."""

    def __getitem__(self, index):
        return draw_from(LATE)


def test_generators_registered_later_are_set_too():
    fastseed.reseed(1, 5)
    data = per_sample(DrawsFromAVariable())
    expected = random.Random(reference_sample_key("late", 1)).getrandbits(62)
    assert data[1] != expected
    fastseed.register_generator(LATE, name="late")
    assert data[1] == expected
    fastseed.unregister_generator(LATE)
    assert data[1] != expected


def test_pools_and_banks_have_members_of_their_own():
    pool, bank = (
        GeneratorPool([torch.Generator(), torch.Generator()], "pool"),
        StreamBank(2, "bank"),
    )
    for generator in (pool, bank):
        fastseed.register_generator(generator)
    fastseed.reseed(1, 0)
    kept = pool.state_dict()["states"].tolist(), bank.state_dict()["states"].tolist()
    data = per_sample(DrawsAll([pool, bank, *pool], 4))
    found = [data[i][1:] for i in range(4)]
    assert len({x for sample in found for x in sample}) == 16
    assert [data[i][1:] for i in range(4)] == found
    assert (pool.state_dict()["states"].tolist(), bank.state_dict()["states"].tolist()) == kept


def test_it_passes_for_the_data_set():
    class Named(Draws):
        classes = ("a", "b")

    data = per_sample(Named("python", 5))
    assert len(data) == 5 and data.classes == ("a", "b") and "Named" in repr(data)
    with pytest.raises(AttributeError):
        data.nothing  # noqa: B018
    assert not hasattr(data, "__nothing__")


def test_copies_and_pickles():
    fastseed.reseed(1, 0)
    data = per_sample(Draws("python"))
    data.set_scope(1, 5)
    expected = data[3]
    for twin in (copy.deepcopy(data), pickle.loads(pickle.dumps(data))):
        assert twin[3] == expected
        twin.set_scope(1, 6)
        assert twin[3] != expected == data[3]

"""Which stream each generator has in a worker, and what the user's own set-up may do."""

import copy
import logging
import pickle
import random

import numpy as np
import pytest
import torch
from helpers.inside import adapter_for, context, derivation_streams, scope, scopes, warn_once
from helpers.loaders import Numbers, start
from helpers.support import Key, without_scope
from helpers.worker_cases import (
    KINDS,
    Draws,
    DrawsAll,
    Epochs,
    N,
    Stream,
    draw_from,
    epochs_of,
    flat,
    options,
)
from torch.utils.data import DataLoader, Subset, get_worker_info

import fastseed
from fastseed import GeneratorPool
from fastseed.data import Loader, ShuffleSampler, per_sample, worker_init_fn
from fastseed.random import StreamBank

GLOBALS = ("python", "numpy", "torch")
NAMES = ("python", "numpy", "torch.cpu")


@pytest.fixture(autouse=True)
def a_job():
    fastseed.init(42, rank=3, world_size=8)


def first_of(key, kind):
    """The first number of a generator that has just got this key."""
    generator = {
        "python": random.Random,
        "numpy": lambda: np.random.RandomState(0),
        "torch": torch.Generator,
        **KINDS,
    }[kind]()
    adapter_for(generator).reseed(Key(key))
    return draw_from(generator)


def key(name, worker, **where):
    return fastseed.derive_key(name, task=1, epoch=5, worker=worker + 1, **where)


def test_the_three_globals_have_the_streams_of_their_worker():
    samples = Epochs(DrawsAll(GLOBALS, 8), batch_size=1).run(5)
    for worker in range(2):
        expected = [first_of(key(n, worker), g) for n, g in zip(NAMES, GLOBALS, strict=True)]
        assert list(samples[worker]) == [worker, *expected]


def test_held_generators_have_their_paths_as_names():
    samples = Epochs(DrawsAll([make() for make in KINDS.values()], 2), batch_size=1).run(5)
    for worker in range(2):
        for i, kind in enumerate(KINDS):
            expected = first_of(key(f"dataset.rng[{i}]", worker), kind)
            assert samples[worker][1 + i] == expected


# ---------------------------------------------------------------- registered generators


def registered():
    """One of each kind, registered."""
    made = {name: make() for name, make in KINDS.items()}
    for name, generator in made.items():
        fastseed.register_generator(generator, name=name)
    return made


def test_registered_generators_have_their_streams_under_fork():
    made = registered()
    pool = GeneratorPool([torch.Generator() for _ in range(2)], name="pool")
    bank = StreamBank(2, "bank")
    for generator in (pool, bank):
        fastseed.register_generator(generator)
    samples = Epochs(DrawsAll([*made.values(), pool, bank], 2), batch_size=1).run(5)
    for worker in range(2):
        *singles, of_pool, of_bank = samples[worker][1:]
        assert singles == [first_of(key(name, worker), name) for name in made]
        assert of_pool == first_of(key("pool", worker, index=1), "torch.Generator")
        bank._reseed_members(derivation_streams.stream(42, scopes.Scope(1, 5, 0), "bank", 3))
        whole = key("bank", worker, index=1)
        bank.keys[1] = torch.tensor([whole & (2**64 - 1), whole >> 64], dtype=torch.uint64)
        assert of_bank == draw_from(bank)


def test_shared_registrations_are_the_same_on_all_ranks():
    found = []
    for rank in range(2):
        fastseed.init(42, rank=rank, world_size=2)
        generator = random.Random(0)
        fastseed.register_generator(generator, shared=True, name="both")
        found.append(Epochs(Draws(generator, 8)).run(5))
    assert found[0] == found[1]
    assert found[0][0] == first_of(key("both", 0, rank=fastseed.SHARED), "random.Random")


SEEN: list[int] = []


def remember(seed):
    SEEN.append(seed)


class Remembered(Draws):
    def __getitem__(self, i):
        return list(SEEN)


def test_registered_callables_are_called_in_workers():
    fastseed.register_generator(remember, name="call", bits=63)
    for worker, seen in enumerate(Epochs(Remembered(None, 2), batch_size=1).run(5)):
        assert seen[-1] == key("call", worker) & (2**63 - 1)
    assert SEEN == []


def test_a_callable_that_fails_is_named():
    fastseed.register_generator(lambda seed: 1 / 0, name="broken")
    with pytest.raises(RuntimeError, match="broken: ZeroDivisionError"):
        Epochs(Draws("python")).run(0)


@pytest.mark.slow
def test_registered_generators_keep_their_identity_under_spawn(caplog):
    """The worker's registered generators are the very objects that its dataset holds."""
    made = registered()
    bank = StreamBank(2, "bank")
    fastseed.register_generator(bank)
    fastseed.register_generator(lambda seed: None, name="unknown")
    fastseed.register_generator(remember, name="call")
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        held = [*made.values(), bank]
        found = [Epochs(DrawsAll(held, 2), m, batch_size=1).run(5) for m in ("spawn", "fork")]
    said = "without these registered generators"
    (record,) = (r for r in caplog.records if said in r.message)  # once, not for each worker
    assert record.message.count("'unknown'") == 1 and "call" not in record.message
    assert found[0] == found[1]
    assert found[0][1][1] == first_of(key("numpy.random.Generator", 1), "numpy.random.Generator")
    assert not bank._seeded  # the main process's has not moved


@pytest.mark.slow
def test_forkserver_gives_what_fork_gives():
    held = [make() for make in KINDS.values()]
    found = [
        epochs_of(DrawsAll([*GLOBALS, *held], 8), method, persistent_workers=True)
        for method in ("forkserver", "fork")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", [Draws, Stream])
def test_persistent_workers_follow_the_epoch(kind):
    epochs = Epochs(kind(np.random.default_rng(0)), persistent_workers=True)
    processes = None
    for epoch in (3, 0, 3, 3):
        found = epochs.run(epoch)
        assert found == Epochs(kind(np.random.default_rng(0))).run(epoch)
        now = [w.pid for w in epochs.loader._torch._torch._iterator._workers]
        processes = processes or now
        assert now == processes


# ---------------------------------------------------------------- the user's own set-up


def seeds_itself(worker_id):
    random.seed(worker_id)


class Shares(Stream):
    first = 0

    def __iter__(self):
        yield self.first


def cut(worker_id):
    """The documented way to share out an iterable dataset."""
    data = get_worker_info().dataset
    assert isinstance(data, Shares) and len(vars(data)) >= 0
    data.first = 100 + worker_id


def test_the_users_function_leaves_no_seed():
    data = Draws("python", 2)
    drawn = [Epochs(data, user_init=f, batch_size=1).run(0) for f in (seeds_itself, None)]
    assert drawn[0] == drawn[1]


def test_the_users_function_sees_its_data_set():
    assert sorted(Epochs(Shares(None), user_init=cut, batch_size=1).run(0)) == [100, 101]


# ---------------------------------------------------------------- worker_init_fn alone


@pytest.mark.parametrize(("first", "workers"), [(4, 2), (0, 2), (4, 0)])
@pytest.mark.parametrize(
    ("data", "draws"),
    [
        (Draws("python"), True),
        (Draws(random.Random(1)), True),
        (range(N), False),
        (per_sample(Draws("python")), False),
        (Subset(per_sample(Draws("numpy")), range(N)), False),
    ],
)
def test_draws_that_differ_after_a_resume_are_warned_of(data, draws, first, workers, caplog):
    warn_once.cache_clear()
    start(5)
    batches = Loader(data, 2, sampler=ShuffleSampler(N), num_workers=workers, collate_fn=list)
    batches.sampler.seek(first)
    list(batches)
    assert ("the dataset draws in workers" in caplog.text) == (draws and first > 0 and workers > 0)


@pytest.mark.parametrize(
    ("data", "workers", "is_twice"),
    [
        (Numbers(6), 2, True),
        (Numbers(6), 1, False),
        (Numbers(0), 2, False),
        (Stream(random.Random(1)), 2, False),
    ],
)
def test_an_iterable_dataset_that_comes_twice_is_warned_of(data, workers, is_twice, caplog):
    warn_once.cache_clear()
    start(5)
    list(Loader(data, 2, num_workers=workers))
    assert ("workers 0 and 1 begin with the same sample" in caplog.text) == is_twice


def test_worker_init_fn_needs_a_scope_and_init(monkeypatch):
    without_scope()
    with pytest.raises(RuntimeError, match=r"worker_init_fn: call fastseed.reseed\(task, epoch\)"):
        worker_init_fn(0)
    with pytest.raises(RuntimeError, match=r"call fastseed\.reseed"):
        flat(DataLoader(Draws("python"), worker_init_fn=worker_init_fn, **options()))
    monkeypatch.setattr(context, "seeder", None)
    with pytest.raises(RuntimeError, match=r"worker_init_fn: call fastseed.init\(...\) first"):
        worker_init_fn(0)


def test_worker_init_fn_takes_the_scope_with_it_where_a_fork_server_starts_workers():
    fastseed.reseed(1, 5)
    loader = DataLoader(
        DrawsAll(GLOBALS, 2),
        worker_init_fn=worker_init_fn,
        **options("forkserver", workers=1, batch_size=1),
    )
    expected = Epochs(DrawsAll(GLOBALS, 2), workers=1, batch_size=1).run(5)
    assert flat(loader) == expected


def test_worker_init_fn_in_a_plain_pickle_is_itself():
    assert pickle.loads(pickle.dumps(worker_init_fn)) is worker_init_fn


# ---------------------------------------------------------------- the cell


def test_cell_holds_the_widest_coordinates():
    cell = scope.ScopeInSharedMemory()
    assert tuple(cell.read()) == (0, 0, 0, 0)
    cell.write(scope.IterationScope(2**24 - 1, 2**32 - 1, 2**63 - 1, 1))
    assert tuple(cell.read()) == (2**24 - 1, 2**32 - 1, 2**63 - 1, 1)
    assert cell.number == 1


def test_cell_copies_are_cells_of_their_own():
    cell = scope.ScopeInSharedMemory()
    cell.write(scope.IterationScope(1, 2, 3, 1))
    for twin in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        assert twin.read() == cell.read()
        twin.write(scope.IterationScope(9, 9, 0, 2))
        assert cell.read().task == 1
        assert twin._tensor.is_shared()


def test_persistent_workers_follow_another_init():
    """Also where a generator was registered meanwhile, which the workers must have."""
    batches = fastseed.data.Loader(Draws("python", 4), num_workers=1, persistent_workers=True)

    def draws(seed):
        fastseed.init(seed, rank=0, world_size=1)
        fastseed.reseed(1, 0)
        return str(list(batches))

    assert draws(1) != draws(2) and draws(1) == draws(1)
    del batches._torch

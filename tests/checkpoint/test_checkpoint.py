"""state_dict and load_state_dict: the way back is exact, and what is damaged changes nothing."""

import logging
import random

import numpy as np
import pytest
import torch
from helpers.jobs import draws, start
from helpers.processes import alone
from helpers.support import (
    holds_key,
    reference_narrow_seed,
    saved_and_loaded,
    scramble,
    snapshot,
    without_scope,
)

import fastseed
from fastseed import GeneratorPool


@pytest.fixture
def job():
    return start()


def test_state_holds_ints_strings_and_bytes(job):
    fastseed.register_generator(print, name="callable")
    state = fastseed.state_dict(rng=True)
    coordinates = {"task": 1, "epoch": 7, "step": 9, "master_seed": 42, "world_size": 8}
    assert {k: state[k] for k in coordinates} == coordinates
    assert (state["format"], state["version"], state["derivation"]) == ("fastseed", 1, 1)
    exact = {name for name in state if name.startswith("rng.")}
    assert exact == {f"rng.3.{name}" for name in ("python", "numpy", "torch.cpu", *job)}
    for name, value in state.items():
        if name in exact:
            assert value.dtype == torch.uint8 and value.dim() == 1 and value.is_contiguous(), name
        else:
            assert type(value) in (int, str), name
    assert not any(name.startswith("rng.") for name in fastseed.state_dict())


def test_sizes_do_not_depend_on_what_is_held(job):
    """Distributed checkpoints are loaded into tensors of the same sizes."""
    kinds = (np.random.PCG64DXSM, np.random.Philox, np.random.SFC64, np.random.MT19937)
    for kind in kinds:
        fastseed.register_generator(np.random.Generator(kind(1)), name=kind.__name__)
    sizes = set()
    for epoch in range(20):
        fastseed.reseed(3, epoch)
        for _ in range(epoch):
            draws(job)
        exact = fastseed.state_dict(rng=True).items()
        sizes.add(tuple((k, v.shape) for k, v in exact if k.startswith("rng.")))
    assert len(sizes) == 1


def draws_of_a_job(file, saves):
    """Stop in the middle of an epoch, or resume there; return what all generators draw then."""
    fastseed.init(42, rank=3, world_size=8)
    kinds = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
    new = [np.random.Generator(getattr(np.random, kind)(1)) for kind in kinds]
    old, own, one = np.random.RandomState(1), random.Random(1), torch.Generator()
    pool = [torch.Generator() for _ in range(3)]
    for i, gen in enumerate((*new, old, own, one, pool)):
        fastseed.register_generator(gen, name=f"g{i}")

    def drawn():
        """Uneven numbers, so that halves of words and of pairs of normals are left over."""
        return [
            [random.random(), random.gauss(0, 1), own.gauss(0, 1), own.getrandbits(70)],
            [np.random.standard_normal(), np.random.random(), old.standard_normal()],
            [(int(g.integers(0, 9, dtype=np.uint16)), g.standard_normal()) for g in new],
            [g.integers(0, 2**31, 3, dtype=np.uint32).tolist() for g in new],
            [torch.randn(()).item(), torch.randn((), dtype=torch.float64).item()],
            [torch.randn(3, generator=g).tolist() for g in (one, *pool)],
            [torch.rand(700, generator=g).sum().item() for g in (one, *pool)],
        ]

    if saves:
        fastseed.reseed(1, 7, 9)
    drawn()
    if saves:
        torch.save(fastseed.state_dict(rng=True), file)
    else:
        fastseed.load_state_dict(torch.load(file, weights_only=True))
    return tuple(fastseed.derivation.context.seeder.scope), drawn(), drawn()


def test_another_process_goes_on_where_the_first_stopped(tmp_path):
    file = tmp_path / "state.pt"
    saved = alone(draws_of_a_job, file, True)
    assert alone(draws_of_a_job, file, False) == saved
    assert saved[0] == (1, 7, 9)


def test_coordinates_alone_resume_at_the_beginning_of_the_scope(job):
    fastseed.reseed(1, 8)
    expected = draws(job)
    state = saved_and_loaded(fastseed.state_dict())
    fastseed.reseed(2)
    scramble()
    fastseed.load_state_dict(state)
    assert draws(job) == expected
    assert tuple(fastseed.derivation.context.seeder.scope) == (1, 8, 0)


def test_state_before_the_first_reseed():
    without_scope()
    state = fastseed.state_dict()
    assert (state["reseeded"], state["task"], state["epoch"], state["step"]) == (0, 0, 0, 0)
    scramble()
    before = snapshot()
    without_scope(master_seed=43)
    fastseed.load_state_dict(state)
    assert snapshot() == before
    assert fastseed.get_master_seed() == 42 and fastseed.derivation.context.seeder.scope is None
    exact = fastseed.state_dict(rng=True)
    random.random(), np.random.random(), torch.rand(1)
    fastseed.load_state_dict(exact)
    assert snapshot() == before


def test_master_seed_comes_with_the_state():
    """A job that drew its seed resumes with that one, pools included."""
    fastseed.init(None)
    fastseed.reseed(1, 3)
    state, expected = fastseed.state_dict(), fastseed.derive_key("x", task=1)
    pool = GeneratorPool([torch.Generator()], name="x")
    fastseed.init(None)
    assert fastseed.derive_key("x", task=1) != expected
    fastseed.load_state_dict(state)
    assert fastseed.derive_key("x", task=1) == expected
    assert fastseed.get_master_seed() == state["master_seed"]
    pool.reseed(1)
    assert holds_key(pool[0], expected)


def test_on_another_rank_the_scope_begins_anew(job, caplog):
    """Its exact states are another rank's; what belongs to this one is known all the same."""
    state = fastseed.state_dict(rng=True)
    fastseed.init(42, rank=4, world_size=8)
    fastseed.reseed(1, 7, 9)
    expected = snapshot()
    scramble()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        fastseed.load_state_dict(state)
    assert snapshot() == expected
    assert fastseed.derivation.context.seeder.rank == 4
    (said,) = (record.getMessage() for record in caplog.records)
    assert "other ranks' and this is rank 4" in said


def test_generators_without_a_state_begin_the_scope(job, caplog):
    state = fastseed.state_dict(rng=True)
    added, seen = torch.Generator(), []
    fastseed.register_generator(added, name="added")
    fastseed.register_generator(seen.append, name="callable")
    with caplog.at_level(logging.INFO, logger="fastseed"):
        fastseed.load_state_dict(state)
    assert holds_key(added, fastseed.derive_key("added", task=1, epoch=7, step=9))
    assert seen == [
        reference_narrow_seed(
            "callable", epoch=7, step=9, rank=fastseed.derivation.context.seeder.rank
        )
    ]
    assert any("added" in record.getMessage() for record in caplog.records)


def test_views_into_one_buffer_are_read_where_they_are(job):
    """Formats that map a file hand out slices of it; torch's set_state misreads those by itself."""
    state = fastseed.state_dict(rng=True)
    expected = draws(job)
    for stride in (1, 2):
        sliced = dict(state)
        for name, value in state.items():
            if name.startswith("rng."):
                buffer = torch.zeros(16 + stride * len(value) * 40, dtype=torch.uint8)
                sliced[name] = buffer[16 : 16 + stride * len(value) : stride]
                sliced[name].copy_(value)
        fastseed.load_state_dict(sliced)
        assert draws(job) == expected


def test_global_numpy_generator_of_another_kind():
    fastseed.init(42)
    np.random.set_bit_generator(np.random.PCG64(1))
    fastseed.reseed(1)
    np.random.standard_normal()
    state = saved_and_loaded(fastseed.state_dict(rng=True))
    expected = np.random.standard_normal(3).tolist()
    fastseed.load_state_dict(state)
    assert np.random.standard_normal(3).tolist() == expected


def test_a_failing_callable_does_not_keep_others_from_their_states(job):
    state = fastseed.state_dict(rng=True)
    expected = draws(job)
    fastseed.register_generator(lambda seed: 1 / 0, name="bad")
    with pytest.raises(fastseed.ReseedError) as caught:
        fastseed.load_state_dict(state)
    assert list(caught.value.failures) == ["bad"]
    assert draws(job) == expected
    assert tuple(fastseed.derivation.context.seeder.scope) == (1, 7, 9)


def test_a_state_of_several_ranks_gives_each_its_own(job):
    """The union of all keys, as a distributed checkpoint forms it."""
    both = {}
    expected = {}
    for rank in (3, 4):
        fastseed.init(42, rank=rank, world_size=8)
        fastseed.reseed(1, 7, 9)
        torch.rand(rank), random.random(), np.random.standard_normal(3)
        both.update(fastseed.state_dict(rng=True))
        expected[rank] = snapshot()
    for rank in (3, 4):
        fastseed.init(42, rank=rank, world_size=8)
        fastseed.load_state_dict(both)
        assert snapshot() == expected[rank]

"""init: it seeds everything at task 0, replaces what an earlier call made, and shows its seed."""

import functools
import logging
import multiprocessing

import pytest
import torch
import torch.distributed as dist
from helpers.processes import in_child
from helpers.ranks import group_of_one
from helpers.support import scramble, seeder, snapshot

import fastseed
from fastseed.derivation import context
from fastseed.determinism.switches import deterministic
from fastseed.distributed import rendezvous
from fastseed.generators.accelerator import AcceleratorGenerators
from fastseed.seeder import generators as generators_module
from fastseed.seeder.seeder import Seeder


def said(caplog, level=logging.WARNING):
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


# ---------------------------------------------------------------- it seeds


def test_init_does_the_reseed_of_task_0(caplog):
    scramble()
    seeder(42).reseed(0)
    expected = snapshot()
    scramble()
    fastseed.init(42, rank=0, world_size=1)
    assert snapshot() == expected
    assert context.seeder.scope == (0, 0, 0)
    assert fastseed.state_dict()["reseeded"] == 1
    scramble()
    fastseed.reseed(task=0)  # of a script that calls both
    assert snapshot() == expected
    assert said(caplog) == []
    fastseed.reseed(task=0)
    (warning,) = said(caplog)
    assert "was used before in this process" in warning
    for _ in range(20):
        scramble()
        fastseed.reseed(task=0)
        assert snapshot() == expected
    warnings = said(caplog)
    assert len(warnings) == 10 and warnings[-1].endswith("further repetitions are not reported")
    assert not any("further" in warning for warning in warnings[:-1])


def test_init_under_fwr13y_changes_no_generator():
    """As fwr13y's own init, next to which it is run."""
    import fwr13y.seeder.pyt as original

    scramble()
    before = snapshot()
    original.init(42, 8, 3)
    assert snapshot() == before
    fastseed.pyt.init(42, 8, 3, scheme="fwr13y")
    assert snapshot() == before and context.seeder is None


def test_generators_registered_after_init_follow_the_next_reseed(caplog):
    fastseed.init(42, rank=0, world_size=1)
    seeds: list[int] = []
    fastseed.register_generator(seeds.append)
    assert seeds == []
    fastseed.reseed(task=0)
    assert len(seeds) == 1 and said(caplog) == []


@pytest.mark.skipif(torch.cuda.is_initialized(), reason="CUDA is initialized")
def test_an_accelerator_that_is_not_initialized_gets_its_seed_later(monkeypatch):
    waiting = AcceleratorGenerators("cuda")
    monkeypatch.setattr(waiting, "ready", lambda: False)
    monkeypatch.setattr(waiting, "_queue", lambda: None)
    monkeypatch.setattr(generators_module, "compiled_types", lambda: ["cuda"])
    monkeypatch.setattr(generators_module, "AcceleratorGenerators", lambda kind: waiting)
    fastseed.init(42, rank=0, world_size=1)
    key = fastseed.derive_key("torch.cuda", task=0)
    assert waiting._waiting is not None and waiting._waiting.key() == key


# ---------------------------------------------------------------- where it is refused


def refused(message):
    """Call init and check that it is refused and changes nothing."""
    old, before = context.seeder, snapshot()
    with pytest.raises(RuntimeError, match=message):
        fastseed.init(7, rank=0, world_size=1)
    assert context.seeder is old and snapshot() == before


def test_init_inside_a_block_is_refused():
    fastseed.init(42, rank=0, world_size=1)
    with fastseed.fork_rng("block"):
        refused(r"fastseed\.init: must not be called inside a fork_rng block")
    fastseed.init(7, rank=0, world_size=1)


def test_init_during_a_capture_is_refused(monkeypatch):
    def capturing(self, function):
        raise RuntimeError(f"fastseed.{function}: must not be called during a capture")

    fastseed.init(42, rank=0, world_size=1)
    monkeypatch.setattr(generators_module, "compiled_types", lambda: ["cuda"])
    monkeypatch.setattr(AcceleratorGenerators, "refuse_capture", capturing)
    refused(r"fastseed\.init: must not be called during a capture")


@pytest.mark.parametrize("call", ["reseed", "load_state_dict", "state_dict", "Seeder.reseed"])
def test_reseeding_in_a_dataloader_worker_is_refused(call):
    fastseed.init(42, rank=0, world_size=1)
    state = fastseed.state_dict()
    calls = {
        "reseed": lambda: fastseed.reseed(1),
        "load_state_dict": lambda: fastseed.load_state_dict(state),
        "state_dict": lambda: fastseed.state_dict(rng=True),
        "Seeder.reseed": lambda: seeder().reseed(1),
    }
    assert in_a_worker(calls[call]) == (
        f"fastseed.{call.split('.')[-1]}: must not be called in a DataLoader worker, where all "
        "workers would draw the same; workers have streams already "
        "(fastseed.data.worker_init_fn, fastseed.data.Loader)"
    )


def test_deriving_in_a_dataloader_worker_needs_a_task():
    """A worker does not hear of a later reseed of its parent."""
    fastseed.init(42, rank=0, world_size=1)
    for name in ("derive_key", "derive_seed"):
        derive = functools.partial(getattr(fastseed, name), "noise")
        assert in_a_worker(derive) == (
            f"fastseed.{name}: task must be given in a DataLoader worker, which does not know the "
            "last reseed of its parent"
        )
        assert in_a_worker(functools.partial(derive, task=1)) == "no error"


def test_init_in_a_dataloader_worker_leaves_its_generators(caplog):
    def start():
        before = snapshot()
        fastseed.init(42, rank=0, world_size=1)
        raise RuntimeError("as before" if snapshot() == before else "changed")

    assert in_a_worker(start) == "as before"


class Calls(torch.utils.data.Dataset):
    """Its sample is the text of the RuntimeError of a call in the worker."""

    def __init__(self, call):
        self.call = call

    def __len__(self):
        return 1

    def __getitem__(self, index):
        try:
            self.call()
        except RuntimeError as error:
            return str(error)
        return "no error"


def in_a_worker(call):
    """Return the text of the RuntimeError that a call raises in a forked worker."""
    context = multiprocessing.get_context("fork")
    loader = torch.utils.data.DataLoader(
        Calls(call), batch_size=None, num_workers=1, multiprocessing_context=context
    )
    (text,) = loader
    return text


def test_a_second_init_starts_again_and_names_the_registrations_that_it_drops(caplog):
    fastseed.init(42, rank=0, world_size=1)
    fastseed.init(42, rank=0, world_size=1)
    assert said(caplog) == []
    seen = []
    fastseed.register_generator(seen.append, name="augmentation")
    fastseed.register_generator(torch.Generator())
    fastseed.init(7, rank=0, world_size=1)
    (warning,) = said(caplog)
    assert "drops the registered generators ['augmentation', 'generator/0']" in warning
    fastseed.reseed(1)
    assert (seen, fastseed.get_master_seed()) == ([], 7)
    with pytest.raises(ValueError, match="must be a registered generator"):
        fastseed.unregister_generator(seen.append)


# ---------------------------------------------------------------- the seed is shown


def test_a_drawn_seed_is_shown_once(capsys, caplog):
    fastseed.init(rank=0, world_size=1)
    seed = fastseed.get_master_seed()
    line = f"fastseed.init: the master seed is {seed}; pass it to repeat this run"
    assert capsys.readouterr().err.splitlines() == [line]
    with caplog.at_level(logging.INFO, logger="fastseed"):
        fastseed.init(rank=0, world_size=1)
    seed = fastseed.get_master_seed()
    assert any(f"the master seed is {seed}" in text for text in said(caplog, logging.INFO))
    assert capsys.readouterr().err == ""


def test_a_given_seed_is_not_shown(capsys, caplog, monkeypatch):
    fastseed.init(42, rank=0, world_size=1)
    monkeypatch.setenv("FASTSEED_MASTER_SEED", str(2**64 - 1))
    with caplog.at_level(logging.INFO, "fastseed"):
        fastseed.init(rank=0, world_size=1)
    assert fastseed.get_master_seed() == 2**64 - 1
    assert f"master seed {2**64 - 1} of FASTSEED_MASTER_SEED" in caplog.text
    assert fastseed.Seeder(rank=0, world_size=1).master_seed != 2**64 - 1
    assert capsys.readouterr().err == ""


def test_a_drawn_seed_is_shown_by_rank_0_alone(capsys, caplog):
    with caplog.at_level(logging.CRITICAL, logger="fastseed"):
        fastseed.init(rank=1, world_size=2)
    assert capsys.readouterr().err == ""


def test_another_seed_than_that_of_fastseed_run_is_a_warning(monkeypatch, caplog):
    monkeypatch.setenv("FASTSEED_MASTER_SEED", "7")
    fastseed.init(7, rank=0, world_size=1)
    fastseed.init(rank=0, world_size=1)
    assert said(caplog) == []
    fastseed.init(42, rank=0, world_size=1)
    assert fastseed.get_master_seed() == 42
    (warning,) = said(caplog)
    assert "master seed 42 was given and is used, but FASTSEED_MASTER_SEED=7" in warning
    assert "call init() without a seed" in warning


@pytest.mark.parametrize("text", ["abc", "²", "٣", str(2**64), "-1"])
def test_a_master_seed_of_the_environment_that_is_none_names_the_variable(monkeypatch, text):
    monkeypatch.setenv("FASTSEED_MASTER_SEED", text)
    says = rf"^fastseed\.init: FASTSEED_MASTER_SEED must be an integer in .*, got '{text}'$"
    for module in (fastseed, fastseed.pyt):
        with pytest.raises(ValueError, match=says):
            module.init()


# ---------------------------------------------------------------- ranks


def test_ngpus_is_world_size_and_local_rank_is_rank():
    for place in ({"ngpus": 8, "rank": 3}, {"world_size": 8, "local_rank": 3},
                  {"ngpus": 8, "world_size": 8, "rank": 3, "local_rank": 3}):  # fmt: skip
        s = Seeder(42, **place)
        assert (s.rank, s.world_size) == (3, 8), place


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"ngpus": 4, "rank": 3, "world_size": 8}, r"ngpus must be world_size \(8\), or not given"),
        ({"local_rank": 1, "rank": 3, "world_size": 8}, r"local_rank must be rank \(3\), or not"),
        ({"rank": 3}, r"world_size must be given with rank=3, since default shows 1 rank"),
        ({"rank": 1}, r"world_size must be given with rank=1, since default shows 1 rank"),
        ({"ngpus": 2**24, "rank": 0}, r"ngpus must be in \[1, 16777215\], got 16777216"),
    ],
)
def test_ranks_that_contradict_each_other_are_refused(place, message):
    with pytest.raises(ValueError, match=rf"fastseed\.Seeder: {message}"):
        Seeder(42, **place)


def test_a_forked_child_never_enters_a_collective():
    """The connections are its parent's."""

    def refused():
        with pytest.raises(RuntimeError, match="forked child"):
            rendezvous.exchange_records("init", {}, lambda ranks, records: {})
        assert not rendezvous.has_group()

    with group_of_one():
        assert rendezvous.has_group()
        in_child(refused)


def test_a_seeder_does_not_communicate(monkeypatch):
    monkeypatch.setattr(rendezvous, "exchange_records", None)
    monkeypatch.setattr(rendezvous, "has_group", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    assert Seeder(7, rank=0, world_size=2).master_seed == 7
    assert Seeder(rank=0, world_size=2).master_seed < 2**63
    last = 2**24 - 2
    assert Seeder(7, last + 1, last).rank == Seeder(7, rank=last, world_size=last + 1).rank == last


def test_after_an_init_that_seeds_not_all_the_next_reseed_does(monkeypatch):
    fails = {"on": True}

    def reseed(self, stream):
        if fails["on"]:
            raise ValueError("broken")

    monkeypatch.setattr(generators_module, "compiled_types", lambda: ["cuda"])
    monkeypatch.setattr(AcceleratorGenerators, "reseed", reseed)
    monkeypatch.setenv("FASTSEED_DETERMINISTIC", "1")
    with deterministic():  # puts the switches back
        torch.use_deterministic_algorithms(False)
        with pytest.raises(fastseed.ReseedError, match="broken"):
            fastseed.init(42, rank=0, world_size=1)
        assert torch.are_deterministic_algorithms_enabled()
    fails["on"] = False
    fastseed.reseed(1)
    assert fastseed.get_master_seed() == 42


def test_an_init_that_is_refused_switches_nothing(monkeypatch):
    fastseed.init(42, rank=0, world_size=1)
    monkeypatch.setenv("FASTSEED_DETERMINISTIC", "1")
    fastseed.reseed(1)
    with fastseed.fork_rng("x"), pytest.raises(RuntimeError, match="inside a fork_rng block"):
        fastseed.init(1)
    assert not torch.are_deterministic_algorithms_enabled()

"""Ranks that do not agree, or are missing, are named on every rank, in time. Four gloo ranks."""

import contextlib
import re
import threading
import time
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from helpers.processes import run_ranks
from helpers.ranks import ranks
from helpers.support import seeder
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler, Subset

import fastseed
from fastseed._backend import private_distributed
from fastseed._utils import version
from fastseed.data import Loader, Seekable, ShuffleSampler, per_sample, steps
from fastseed.derivation import context
from fastseed.distributed import agreement, rendezvous

PREFIX = "fastseed.distributed.verify_agreement: "
ODD = 2  # the rank that differs


def verify(**arguments):
    """Return what verify_agreement raises, "agreed" if nothing."""
    try:
        fastseed.distributed.verify_agreement(**arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "agreed"


def start(**odd):
    """Start a job that is the same on every rank, but for these arguments on one."""
    rank = dist.get_rank()
    arguments = {"master_seed": 42, "rank": rank, "world_size": 4} | (odd if rank == ODD else {})
    with mock.patch.object(dist, "is_initialized", lambda: False):  # init would compare them
        fastseed.init(**arguments)
    fastseed.register_generator(str, name="everywhere")
    fastseed.reseed(1, 7)


def agree():
    """Agree thirty times; return the number of keys in the store after ten, twenty and thirty."""
    start()
    before, keys = torch.get_rng_state(), []
    for _ in range(3):
        assert [verify() for _ in range(10)] == ["agreed"] * 10
        dist.barrier()
        keys.append(private_distributed.default_store().num_keys())
        dist.barrier()
    assert before.equal(torch.get_rng_state())
    return keys


def test_ranks_that_agree_return():
    keys = ranks(4, agree)[0]
    assert max(keys) - min(keys) < 20, "the store fills up"


def disagree(case, store=None):
    start(**{name: value for name, value in ODD_ARGUMENTS.items() if name in case})
    is_odd = dist.get_rank() == ODD
    if case == "scope" and is_odd:
        fastseed.reseed(1, 8)
    if case == "registered" and is_odd:
        fastseed.register_generator(repr, name="only here")
        fastseed.unregister_generator(str)
    here = "0.0.9" if case == "version" and is_odd else "1"
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(version, "__version__", here))
        if store is not None:
            files = dist.FileStore(store, 4)
            patches.enter_context(
                mock.patch.object(private_distributed, "default_store", lambda: files)
            )
        return verify()


ODD_ARGUMENTS = {"master_seed": 43, "distinct_over": {"x": ()}, "rank": 0}


@pytest.mark.parametrize(
    ("case", "differences"),
    [
        ("master_seed", {"master_seed is 42": "43"}),
        ("scope", {"scope is epoch 7, step 0, task 1": "epoch 8, step 0, task 1"}),
        ("registered", {"registered is ['everywhere']": "['only here']"}),
        ("version", {"version is '1'": "'0.0.9'"}),
        (
            "master_seed, distinct_over",
            {
                "master_seed is 42": "43",
                "distinct_over is 'distinct over all dimensions'": (
                    "\"distinct over all dimensions, 'x' over ()\""
                ),
            },
        ),
    ],
)
def test_every_rank_names_the_ranks_that_differ(case, differences):
    (message,) = set(ranks(4, disagree, case))
    assert message.startswith(f"RuntimeError: {PREFIX}all ranks must agree, but ")
    for usual, odd in differences.items():
        assert f"{usual} on ranks 0, 1, 3 but {odd} on rank 2" in message
    assert message.count(" but ") == 1 + len(differences)


def test_a_store_in_a_file_serves_too(tmp_path):
    """It has no server, and only the basic operations."""
    assert set(ranks(4, disagree, "", str(tmp_path / "a"))) == {"agreed"}
    (message,) = set(ranks(4, disagree, "master_seed", str(tmp_path / "b")))
    assert "master_seed is 42 on ranks 0, 1, 3 but 43 on rank 2" in message


def have_equal_coordinates():
    start()
    record = agreement.record_of(context.seeder)
    record |= {"mesh coordinates": [dist.get_rank() % 2, 0]}
    with mock.patch.object(agreement, "record_of", lambda seeder: record):
        return verify()


def test_ranks_that_are_given_the_same_rank_or_coordinates_are_named():
    (message,) = set(ranks(4, disagree, "rank"))
    assert "rank must be unique, but 0 is that of ranks 0, 2 (call init after init_pr" in message
    (message,) = set(ranks(4, have_equal_coordinates))
    assert "mesh coordinates must be unique, but [0, 0] is that of ranks 0, 2 (" in message


def come_late(absent):
    start()
    is_late = dist.get_rank() == absent
    if is_late:
        time.sleep(1.2)
    since = time.monotonic()
    found = verify(timeout=30 if is_late else 0.5)
    assert is_late or 0.4 <= time.monotonic() - since < 10
    assert verify() == "agreed"
    return found


@pytest.mark.parametrize("absent", [2, 0])
def test_a_late_rank_is_named_after_the_timeout_also_to_itself(absent):
    assert set(ranks(4, come_late, absent)) == {
        f"TimeoutError: {PREFIX}rank {absent} did not call it within 0.5 seconds of the others; "
        "look there for the cause"
    }


def restart():
    """As torchrun's agent does, which keeps the store while it restarts the ranks."""
    start()
    variables = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    with mock.patch.dict("os.environ", variables):
        if dist.get_rank() != ODD:
            verify(timeout=0.5)
        dist.barrier()
    with mock.patch.dict("os.environ", variables | {"TORCHELASTIC_RESTART_COUNT": "1"}):
        return verify(timeout=20.0)


def test_restarted_ranks_do_not_read_the_keys_of_killed_ones():
    assert set(ranks(4, restart)) == {"agreed"}


def fail_on(odd, timeout):
    start()
    is_odd, held = dist.get_rank() == odd, context.seeder
    if timeout is None and is_odd:
        context.seeder = None
    since = time.monotonic()
    found = verify(timeout=timeout if is_odd and timeout is not None else 30.0)
    assert time.monotonic() - since < 25
    context.seeder = held
    assert verify() == "agreed"
    return found


@pytest.mark.parametrize(
    ("odd", "timeout", "own"),
    [
        (2, -1.0, f"ValueError: {PREFIX}timeout must be in [0.001, 86400], got -1.0"),
        (0, "1", f"TypeError: {PREFIX}timeout must be a number, got '1' of type str"),
        (2, None, f"RuntimeError: {PREFIX}call fastseed.init(...) first"),
    ],
)
def test_the_error_of_one_rank_reaches_the_others_at_once(odd, timeout, own):
    for rank, found in enumerate(ranks(4, fail_on, odd, timeout)):
        if rank == odd:
            assert found == own
        else:
            assert f"rank {odd} failed: {own.split(': ', 1)[1]}" in found


def verify_in_halves():
    start()
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if dist.get_rank() == ODD:
        fastseed.reseed(1, 9)
    mine = dist.get_rank() // 2
    assert verify(group=halves[1 - mine]) == "agreed"  # not in it
    assert "group must be a process group, a mesh of one dimension" in verify(
        group=init_device_mesh("cpu", (2, 2))
    )
    return verify(group=DeviceMesh.from_group(halves[mine], "cpu"))


def test_subgroups_agree_for_themselves():
    found = ranks(4, verify_in_halves)
    assert found[:2] == ["agreed"] * 2
    assert all("epoch 9, step 0, task 1" in message for message in found[2:])


def test_ended_and_stopped_processes_do_not_hang_the_others():
    """Rank 0 keeps the store. Other ranks: test_mesh_ranks.py."""
    found = run_ranks("store_ends.py", 2)[1]
    stopped, seconds = found["stopped"]
    assert stopped.startswith(f"TimeoutError: {PREFIX}the store of torch.distributed did not ")
    assert "rank 0" in stopped and seconds < 8
    for ended, seconds in (found["ended"], found["init"]):
        assert "that keeps it (rank 0, unless" in ended and seconds < 8


# ---------------------------------------------------------------- in one process


def loaders_of(rank):
    """Loaders that differ by rank, by what differs; the last six are right, in one task."""
    data, part = range(8), Subset(range(8), [rank, 5])
    divided = [DistributedSampler(data, 2, rank, seed=seed) for seed in (7, rank + 1)]
    both = per_sample(ConcatDataset([Subset(part, [0]), data]))
    return {
        "seed of the sampler": DataLoader(data, sampler=divided[1]),
        "indices of Subset": DataLoader(both, shuffle=True),
        "batch_size": DataLoader(data, rank + 1, shuffle=True),
        "n": Loader(range(8 + rank), shuffle=True),
        "order": Loader(data, sampler=ShuffleSampler(8, shuffle=rank == 0)),
        "drop_last": DataLoader(Seekable(lambda i: iter(data[i:])), drop_last=rank == 0),
        "nothing": DataLoader(data, sampler=divided[0]),
        "nothing of another loop here": DataLoader(data, 2, sampler=divided[0]),
        "its own order": DataLoader(part),
        "its own name": Loader(part, shuffle=True, name=f"of {rank}"),
        "a group of its own": Loader(part, sampler=ShuffleSampler(2, rank=0, world_size=1)),
        "alone": DataLoader(part, shuffle=True),
    }


def begin(check):
    """Return what the first batches of loaders raise, where rank 0 begins before rank 1."""
    fastseed.init(42)
    rank, said = dist.get_rank(), []
    for number, (what, loader) in enumerate(loaders_of(rank).items()):
        fastseed.reseed(task := min(number, 6))
        loop = loader
        if type(loader) is DataLoader or not check:
            loop = steps(loader, 1, task=task, check=check)
        for turn in (0,) if what == "alone" else (0, 1):
            try:
                if rank == turn:
                    next(iter(loop))
            except RuntimeError as error:
                said.append((what, str(error)))
            dist.barrier()
    return said


def test_ranks_that_share_an_order_are_compared_and_none_waits():
    first, second = ranks(2, begin, True)
    assert not first and [what for what, _ in second] == [*loaders_of(0)][:6]
    for what, error in second:
        assert re.fullmatch(
            rf"fastseed\.data\..*: all ranks .* but {what} is .* rank 0 but .* rank 1: .*", error
        )
    assert ranks(2, begin, False) == [[], []]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 86401, "1", None, True])
def test_an_invalid_timeout_is_an_error(timeout):
    fastseed.init(42)
    with pytest.raises((TypeError, ValueError), match=r"verify_agreement: timeout must be "):
        fastseed.distributed.verify_agreement(timeout=timeout)


def test_an_invalid_group_is_an_error():
    with pytest.raises(TypeError, match=r"verify_agreement: group must be a process group, a mesh"):
        fastseed.distributed.verify_agreement(group="world")


def test_several_ranks_without_a_group_are_an_error(monkeypatch):
    """It would return as if they agreed."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert verify().endswith("call fastseed.init(...) first")
    fastseed.init(42, rank=0, world_size=1)
    assert verify() == (
        f"RuntimeError: {PREFIX}call torch.distributed.init_process_group first: there are 4 "
        "ranks, and no process group in which to compare them"
    )


def test_a_thread_that_the_store_answers_late_posts_nothing_for_a_call_that_was_left(monkeypatch):
    """Its rank has raised: others must not read a verdict of it."""
    store, answers = dist.HashStore(), threading.Event()
    monkeypatch.setattr(private_distributed, "default_store", lambda: store)
    monkeypatch.setattr(dist.distributed_c10d, "PrefixStore", lambda _, store: store)
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: [0, 1])
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(rendezvous, "GRACE", 0.1)
    monkeypatch.setattr(rendezvous, "_wait", lambda *_: answers.wait(60))
    before = set(threading.enumerate())
    with pytest.raises(TimeoutError, match=r"test: the store of torch\.distributed did not answer"):
        rendezvous.exchange_records("test", {}, lambda *_: {}, seconds=0.1)
    (thread,) = set(threading.enumerate()) - before
    answers.set()
    thread.join(60)
    assert not store.check(["1/verdict"])
    left = threading.Event()
    left.set()  # while the store counted the call
    assert rendezvous._meet(store, [0, 1], 0.1, {}, lambda *_: {}, left) == {}
    assert not store.check(["2/0"])


def test_it_works_on_the_process_wide_seeder():
    with pytest.raises(RuntimeError, match=r"verify_agreement: call fastseed\.init"):
        fastseed.distributed.verify_agreement()
    fastseed.init(42)
    assert context.current("test") is fastseed.derivation.context.seeder
    fastseed.distributed.verify_agreement()


def test_every_field_is_compared():
    same = agreement.record_of(seeder())
    for field in set(same) - set(agreement._OWN):
        found = agreement.compare([3, 5, 8], [same, same, {**same, field: "another"}])
        assert len(found) == 1 and found[0].startswith(f"{field} is ")
        assert "on ranks 3, 5 but 'another' on rank 8" in found[0]
    assert agreement.compare([3, 5, 8], [same] * 3) == []


def test_distinct_over_can_be_written_in_any_way():
    sizes = {"dp": (0, 2), "tp": (0, 2), "pp": (0, 2)}
    ways = [("dp", "tp"), ["tp", "dp"], ["dp", "tp"], ("tp", "dp")]
    ways += [{"numpy": w, "a": ("pp",)} for w in ways] + [{"a": ["pp"], "numpy": ways[1]}]
    found = [
        seeder(world_size=8, mesh=sizes, distinct_over=way).place.fields.rules() for way in ways
    ]
    assert len(set(found[:4])) == len(set(found[4:])) == 1 and found[0] != found[4]


def test_the_value_of_most_ranks_comes_first_and_messages_are_short():
    records = [{"version": v} for v in ("a", "b", "b", "c", "a", "b")]
    (message,) = agreement.compare(list(range(6)), records)
    assert message.startswith(
        "version is 'b' on ranks 1, 2, 5 but 'a' on ranks 0, 4, 'c' on rank 3"
    )
    records = [{"version": "a" if k % 2 else "b"} for k in range(10_000)]
    (message,) = agreement.compare(list(range(10_000)), records)
    assert "and 4984 more" in message and len(message) < 400
    assert rendezvous.name_ranks([3]) == "rank 3"

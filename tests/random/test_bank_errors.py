"""Arguments that a StreamBank refuses, by the text of the error; nothing changes."""

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers.draws import bank_of, contents
from torch._subclasses.fake_tensor import FakeTensorMode

import fastseed
from fastseed._backend.compile import refuse_capture
from fastseed.derivation.shared_use import StreamUsers
from fastseed.random import StreamBank, bank, scope_tensors

MASK, ONE = torch.ones(3, dtype=torch.bool), torch.tensor([0])


def test_a_bank_without_keys_refuses():
    says = r"^fastseed\.random\.uniform: the bank has no keys yet; call reseed"
    bank = StreamBank(3, "bank")
    for streams in (bank, bank[ONE]):
        with pytest.raises(RuntimeError, match=says):
            fastseed.random.uniform(streams, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((-1, "b"), ValueError, r"n must be in \[0, 1099511627776\], got -1"),
        ((3, "torch.cuda"), ValueError, "name must be one that fastseed does not use itself"),
        ((3, "b", "xpu"), ValueError, "device must be on the CPU.*, got xpu"),
    ],
)
def test_bank_refuses(arguments, error, says):
    with pytest.raises(error, match=r"^fastseed\.random\.StreamBank: " + says):
        StreamBank(*arguments)


@pytest.mark.parametrize(
    ("rows", "error", "says"),
    [
        (0, TypeError, "rows must be a tensor, got 0"),
        ([0, 1], TypeError, r"rows must be a tensor, got \[0, 1\]"),
        (torch.zeros(2), TypeError, "rows must be of dtype torch.int64, .*float32"),
        (torch.tensor([0, 3]), ValueError, r"rows must be in \[0, 2\], got 3"),
        (torch.tensor(1), ValueError, r"rows must be of shape \(m,\), got \(\)"),
        (MASK[:2], ValueError, r"rows must be of shape \(3,\), got \(2,\)"),
        (ONE.to("meta"), ValueError, "rows must be on device cpu, got meta"),
    ],
)
def test_rows_are_refused(rows, error, says):
    with pytest.raises(error, match=r"^fastseed\.random\.StreamBank: " + says):
        bank_of(3)[rows]


def test_what_a_draw_refuses_moves_nothing():
    bank = bank_of(3)
    fastseed.random.uniform(bank, 2)
    before = contents(bank)
    rows = ONE.clone()
    chosen = bank[rows]
    rows.fill_(3)  # behind the check
    for error, says, streams, shape in (
        (TypeError, r"^fastseed\.random\.uniform: shape must be a tuple of integers", bank, 1.5),
        (TypeError, r"^fastseed\.random\.uniform: shape must be a tuple", bank[ONE], 1.5),
        (IndexError, "out of range", chosen, 2),
    ):
        with pytest.raises(error, match=says):
            fastseed.random.uniform(streams, shape)
        assert contents(bank) == before
    says = r"^fastseed\.random\.uniform_: key must be an integer or a tensor .*, got StreamBank"
    with pytest.raises(TypeError, match=says):
        fastseed.random.uniform_(torch.zeros(3), bank)


META = torch.zeros(3, dtype=torch.uint64, device="meta")


@pytest.mark.parametrize(
    ("seeds", "indices", "error", "says"),
    [
        ([1, 2], None, ValueError, r"seeds must be of shape \(3,\), got \(2,\)"),
        ([1, 2, 2**64], None, ValueError, rf"seeds\[2\] must be in \[.*\], got {2**64}"),
        (7, None, TypeError, "seeds must be a tensor or a sequence of integers, got 7 of type int"),
        (torch.zeros(3), None, TypeError, "seeds must be integers, got dtype torch.float32"),
        ([1, 2, 3], [1, 2], ValueError, r"indices must be of shape \(3,\), got \(2,\)"),
        ([1, 2, 3], [1, 2, 2**63], ValueError, r"indices\[2\] must be in \[0, 92233720368547758"),
        ([1, 2, 3], torch.tensor([0, -1, 2]), ValueError, r"indices must be in \[0, 9.*\], got -1"),
        (META, None, ValueError, "seeds must have data, got a meta tensor"),
    ],
)
def test_reseed_from_seeds_refuses_and_changes_nothing(seeds, indices, error, says):
    bank = bank_of(3)
    before = contents(bank)
    with pytest.raises(error, match=r"^fastseed\.random\.StreamBank\.reseed_from_seeds: " + says):
        bank.reseed_from_seeds(seeds, indices)
    assert contents(bank) == before


def test_reseeds_refuse_what_pools_refuse(monkeypatch):
    bank = StreamBank(3, "bank")
    for call in (lambda: bank.reseed(1), bank.reseed_from_scope):
        with pytest.raises(
            RuntimeError, match=r"^fastseed\.random\.StreamBank\.reseed\w*: call fastseed\.i"
        ):
            call()
    fastseed.init(42)
    monkeypatch.setattr(scope_tensors.process_state, "has_keys", False)  # as after a failed init
    with pytest.raises(RuntimeError, match=r"StreamBank\.reseed_from_scope: call fastseed\.rese"):
        bank.reseed_from_scope()
    assert "no keys yet" in repr(bank) and not bank.keys.any()


def test_reseed_is_refused_in_a_capture(monkeypatch):
    """As it looks from here: a graph would keep the key that is passed by value."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    refuse_capture("f", torch.device("cpu"), "x")
    with pytest.raises(
        RuntimeError,
        match=r"^fastseed\.f: must not be called while a CUDA graph is captured, .*; use y$",
    ):
        refuse_capture("f", torch.device("cuda:0"), "use y")


def test_two_banks_of_one_name_warn_once_in_one_scope(caplog, monkeypatch):
    monkeypatch.setattr(bank, "users", StreamUsers(bank.users._message))
    fastseed.init(42, rank=0, world_size=1)
    first, second, third = StreamBank(4, "bank"), StreamBank(2, "bank"), StreamBank(2, "another")
    first.reseed(0)
    first.reseed(0)
    third.reseed(0)
    second.reseed(0, step=1)
    StreamBank(4, "bank").reseed(0, step=2)  # which no longer exists
    first.reseed(0, step=2)
    second.reseed(0)  # where the first one was
    second.reseed(0, step=1)
    assert not caplog.messages
    first.reseed(0, step=1)
    (message,) = caplog.messages
    assert "another pool or bank with the name 'bank' has the same streams" in message
    second.reseed(0, step=2)
    first.reseed(0, step=2)
    assert len(caplog.messages) == 1


def test_threads_reseed_banks_of_their_own(monkeypatch, caplog):
    """The search for other banks of the name must not break while more of them come."""
    monkeypatch.setattr(bank, "users", StreamUsers(bank.users._message))
    fastseed.init(42, rank=0, world_size=1)
    interval = sys.getswitchinterval()

    def work(thread):
        banks = [StreamBank(1, f"bank {thread} {i}") for i in range(400)]
        for each in banks:
            each.reseed(0)

    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert not caplog.messages


@pytest.mark.parametrize("fake", [False, True])
def test_a_bank_without_data_draws_shapes(fake):
    with FakeTensorMode() if fake else contextlib.nullcontext():
        bank = StreamBank(3, "b", None if fake else "meta")
        bank.reseed_from_seeds(torch.zeros(3, dtype=torch.int64))
        assert fastseed.random.uniform(bank, 2).shape == (3, 2)
        tokens = fastseed.sampling.sample(torch.zeros(3, 5, device=bank.device), bank)
        assert tokens.shape == (3,)


@pytest.mark.parametrize("name", ["keys", "positions"])
def test_a_state_without_memory_is_neither_read_nor_written(name):
    bank = bank_of(1000)
    state = bank.state_dict()
    getattr(bank, name).untyped_storage().resize_(0)
    says = f"{name} must have memory for all of its elements"
    calls = {
        "StreamBank.state_dict": bank.state_dict,
        "StreamBank.load_state_dict": lambda: bank.load_state_dict(state),
        "uniform": lambda: fastseed.random.uniform(bank[ONE], 2),
    }
    for function, call in calls.items():
        with pytest.raises(ValueError, match=rf"^fastseed\.random\.{function}: {says}"):
            call()
    for call in (lambda: bank.reseed(1), lambda: fastseed.random.uniform(bank, 2)):
        with pytest.raises(RuntimeError, match=says):
            call()


def test_a_bank_on_the_meta_device_has_no_state():
    bank = StreamBank(3, "b", "meta")
    with pytest.raises(ValueError, match=r"StreamBank\.state_dict: keys must have data, got a m"):
        bank.state_dict()
    with pytest.raises(
        ValueError, match=r"StreamBank\.load_state_dict: keys must have data, got a m"
    ):
        bank.load_state_dict(bank_of(3).state_dict())


def test_a_bank_does_not_read_what_it_writes():
    bank = bank_of(3)
    before = contents(bank)
    itself = (
        ("rows", lambda: bank[bank.positions]),
        ("seeds", lambda: bank.reseed_from_seeds(bank.positions)),
    )
    for argument, call in itself:
        with pytest.raises(
            ValueError, match=f"{argument} must be a tensor that does not share mem"
        ):
            call()
        assert contents(bank) == before


def test_a_worker_cannot_reseed_a_bank(monkeypatch):
    """All workers would draw the same."""
    bank = bank_of(3)
    before = contents(bank)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: object())
    for call in (lambda: bank.reseed(1), bank.reseed_from_scope):
        with pytest.raises(RuntimeError, match="must not be called in a DataLoader worker"):
            call()
    assert contents(bank) == before
    bank.reseed_from_seeds([1, 2, 3])

"""fastseed on the device, beside memset and constant stores of the same bytes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import fastseed
from fastseed._backend.reference import philox, scalar

from ... import laws
from ...case import expect
from ...laws import NORMAL, RANDINT, UNIFORM, Law
from .. import targets
from ..bench_device import BenchDevice, ceilings
from ..timing import Call, Entry, WallClock
from . import Group

MASTER, NAME, TASK, EPOCH = 42, "bench", 1, 7
SLICE = 4096


def _keys(start: int, n: int, epoch: int = EPOCH) -> Any:
    """The reference's keys of indices ``start``, ..., (n, 2) uint64."""
    name = scalar.name_key(scalar.scope_key(MASTER, TASK, epoch, 0), scalar.name_words(NAME))
    return philox.derive_keys(name, 0, 0, start, n)


def _array(tensor: torch.Tensor) -> Any:
    return tensor.cpu().numpy()


# ---------------------------------------------------------------------------- keys and seeds


def _expect_derived(out: torch.Tensor, columns: int) -> None:
    """The ends and the middle, bit for bit."""
    n = len(out)
    length = min(n, SLICE)
    for at in (0, (n - length) // 2, n - length):
        right = _keys(at, length)
        right = right if columns == 2 else right[:, 0]
        expect(np.array_equal(_array(out[at : at + length]), right), f"what is at {at}")


def _derive(bench: BenchDevice, function: str, columns: int) -> list[Entry]:
    case, n = f"{function}/cuda/1e8", bench.size(10**8)
    seeder = fastseed.Seeder(MASTER, 1, 0)
    shape = (n, 2) if columns == 2 else (n,)
    outs = [
        torch.empty(shape, dtype=torch.uint64, device=bench.device)
        for _ in range(bench.buffers(8 * columns * n))
    ]
    derive = getattr(seeder, function)

    def call(out: torch.Tensor) -> Call:
        return lambda: derive(NAME, n, task=TASK, epoch=EPOCH, out=out)

    def check() -> None:
        for out in outs:
            laws.poison(out)
            call(out)()
            _expect_derived(out, columns)

    size = outs[0].nbytes
    calls = [call(out) for out in outs]
    entry = Entry(case, targets.FASTSEED, "out=", calls, check, bench.clock, size)
    return [entry, *ceilings(bench, case, size)]


# ---------------------------------------------------------------------------- one stream


def _fill(bench: BenchDevice, case: str, law: Law | None, fill: Callable[..., Any],
          dtype: torch.dtype = torch.float32) -> list[Entry]:  # fmt: skip
    """One stream into memory; without a law, only that every element is written is checked."""
    n = bench.size(10**8)
    key = torch.from_numpy(_keys(0, 1)[0]).to(bench.device)
    size = n * dtype.itemsize
    outs = [torch.empty(n, dtype=dtype, device=bench.device) for _ in range(bench.buffers(size))]

    def check() -> None:
        for out in outs:
            out.fill_(float("nan"))
            fill(out, key)
            expect(bool(torch.isfinite(out).all()), "an element is not written")
            if law is not None:
                laws.expect_stream(law, out, key)

    calls: list[Call] = [functools.partial(fill, out, key) for out in outs]
    entry = Entry(case, targets.FASTSEED, "in place", calls, check, bench.clock, size)
    return [entry, *ceilings(bench, case, size)]


# ---------------------------------------------------------------------------- banks


def _bank(n: int, device: str) -> Any:
    fastseed.init(MASTER, 1, 0)
    bank = fastseed.random.StreamBank(n, NAME, device)
    bank.reseed(TASK, EPOCH)
    return bank


def _randint(bank: Any, length: int) -> torch.Tensor:
    return fastseed.random.randint(bank, (length,), 0, laws.RANGE)


DRAWS: dict[str, tuple[Law, Callable[[Any, int], Any]]] = {
    "bank.uniform": (UNIFORM, fastseed.random.uniform),
    "bank.normal": (NORMAL, fastseed.random.normal),
    "bank.randint": (RANDINT, _randint),
}


def _draw(bench: BenchDevice, function: str, n: int, length: int, size: str) -> list[Entry]:
    """As users call it: the memory is the caching allocator's."""
    law, draw = DRAWS[function]
    bank = _bank(bench.size(n), bench.device)

    def check() -> None:
        for _ in range(2):  # from the beginning, and from where that has moved to
            before = bank.positions.clone()
            laws.expect_rows(law, draw(bank, length), bank.keys, before)
            expect(bool((bank.positions > before).all()), "the positions moved on")

    written = bench.size(n) * length * law.dtype.itemsize
    case = f"{function}/cuda/{size}"
    calls: list[Call] = [functools.partial(draw, bank, length)]
    entry = Entry(case, targets.FASTSEED, "bank", calls, check, bench.clock, written)
    return [entry, *ceilings(bench, case, written)]


def _draw_in_graph(bench: BenchDevice, function: str) -> list[Entry]:
    """The same replayed: what the host's part of a call costs is the difference."""
    law, draw = DRAWS[function]
    n, length = bench.size(65536), 1024
    bank, kept = _bank(n, bench.device), []

    def step() -> None:
        kept[:] = [draw(bank, length)]

    replay = bench.graph([step])

    def check() -> None:
        drawn = []
        for _ in range(2):
            before = bank.positions.clone()
            replay()
            laws.expect_rows(law, kept[0], bank.keys, before)
            drawn.append(kept[0].clone())
        expect(not torch.equal(*drawn), "a replay draws other numbers")

    case, size = f"{function}_in_graph/cuda/65536x1024", n * length * 4
    entry = Entry(case, targets.FASTSEED, "replay", [replay], check, bench.clock, size)
    return [entry, *ceilings(bench, case, size, graph=True, stores=False)]


def _reseed_in_graph(bench: BenchDevice) -> list[Entry]:
    """Several banks in one graph, so that none finds its keys in the cache."""
    n = bench.size(10**6)
    size = 24 * n  # two words of key and one of position
    banks = [_bank(n, bench.device) for _ in range(bench.buffers(size))]
    fastseed.reseed(TASK, EPOCH)  # makes the device's scope tensor: not in the capture
    calls: list[Call] = [bank.reseed_from_scope for bank in banks]
    replay = bench.graph(calls)

    def check() -> None:
        for epoch in (EPOCH + 1, EPOCH):  # the scope is read at each replay
            fastseed.reseed(TASK, epoch)
            for bank in banks:
                laws.poison(bank.keys)
                bank.positions.fill_(8)
            replay()
            for bank in banks:
                expect(np.array_equal(_array(bank.keys), _keys(0, n, epoch)), "a bank's keys")
                expect(not bool(bank.positions.any()), "a bank's positions")

    case = "bank.reseed_in_graph/cuda/1e6"
    entry = Entry(case, targets.FASTSEED, "replay", [replay], check, bench.clock, size, len(banks))
    return [entry, *ceilings(bench, case, size, graph=True)]


# ---------------------------------------------------------------------------- generators


def _pool(bench: BenchDevice) -> list[Entry]:
    """Host work: no device time is in it."""
    n = bench.size(10**4)
    fastseed.init(MASTER, 1, 0)
    generators = [torch.Generator(bench.device) for _ in range(n)]
    pool = fastseed.GeneratorPool(generators, NAME)
    epochs = itertools.count()

    def check() -> None:
        pool.reseed(TASK, EPOCH)
        seeds = [generator.initial_seed() for generator in generators]
        expect(seeds == _keys(0, n)[:, 0].tolist(), "the members' seeds")

    clock = WallClock(lambda: None)
    calls: list[Call] = [lambda: pool.reseed(TASK, next(epochs))]
    return [Entry("pool.reseed/cuda/1e4", targets.FASTSEED, "pool", calls, check, clock)]


# ---------------------------------------------------------------------------- all of them


def fastseed_bulk_groups(bench: BenchDevice) -> list[Group]:
    """Keys, seeds, and one long stream."""
    return [
        lambda: _derive(bench, "derive_keys", 2),
        lambda: _derive(bench, "derive_seeds", 1),
        lambda: _fill(bench, "uniform_/cuda/1e8", UNIFORM, fastseed.random.uniform_),
        lambda: _fill(bench, "normal_/cuda/1e8", NORMAL, fastseed.random.normal_),
    ]


def fastseed_banks_groups(bench: BenchDevice) -> list[Group]:
    """Banks, called one by one and in graphs."""
    return [
        lambda: _draw(bench, "bank.uniform", 65536, 1024, "65536x1024"),
        lambda: _draw(bench, "bank.normal", 65536, 1024, "65536x1024"),
        lambda: _reseed_in_graph(bench),
        lambda: _draw_in_graph(bench, "bank.uniform"),
        lambda: _draw_in_graph(bench, "bank.normal"),
        lambda: _draw(bench, "bank.uniform", 10**6, 4, "1e6x4"),
        lambda: _draw(bench, "bank.normal", 10**6, 4, "1e6x4"),
        lambda: _draw(bench, "bank.randint", 65536, 1024, "65536x1024"),
    ]


def fastseed_pool_groups(bench: BenchDevice) -> list[Group]:
    """torch's own generators."""
    return [lambda: _pool(bench)]


def fastseed_extra_groups(bench: BenchDevice) -> list[Group]:
    """Another law and other dtypes; that the values are right is the tests' business."""
    normal = fastseed.random.normal_
    return [
        lambda: _fill(bench, "exponential_/cuda/1e8", None, fastseed.random.exponential_),
        lambda: _fill(bench, "normal_.bfloat16/cuda/1e8", None, normal, torch.bfloat16),
        lambda: _fill(bench, "normal_.float64/cuda/1e8", None, normal, torch.float64),
    ]

"""torch's own: its random functions, and Python loops over its generators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ... import laws
from ...case import expect
from ...laws import NORMAL, UNIFORM, Law
from .. import targets
from ..bench_device import BenchDevice
from ..timing import Call, Entry, WallClock
from . import Group

STREAMS, LENGTH = 65536, 1024
SAMPLE = 512  # streams that the loop is timed over; a stream costs the same at any number


def _stream(bench: BenchDevice, case: str, law: Law, draw: Callable[..., Any]) -> list[Entry]:
    n = bench.size(10**8)
    outs = [torch.empty(n, device=bench.device) for _ in range(bench.buffers(4 * n))]

    def check() -> None:
        for out in outs:
            laws.poison(out)
            draw(n, out=out)
            laws.expect_baseline(law, out, (n,), targets.TORCH)

    calls: list[Call] = [functools.partial(draw, n, out=out) for out in outs]
    return [Entry(case, targets.TORCH, draw.__name__, calls, check, bench.clock, 4 * n)]


def torch_groups(bench: BenchDevice) -> list[Group]:
    """``torch.rand`` and ``torch.randn`` into memory."""
    return [
        lambda: _stream(bench, "uniform_/cuda/1e8", UNIFORM, torch.rand),
        lambda: _stream(bench, "normal_/cuda/1e8", NORMAL, torch.randn),
    ]


def _host_clock(bench: BenchDevice) -> WallClock:
    return WallClock(torch.cuda.synchronize if bench.device == "cuda" else lambda: None)


def _loop(bench: BenchDevice, case: str, law: Law, draw: Callable[..., Any]) -> list[Entry]:
    device = bench.device
    generators = [torch.Generator(device).manual_seed(i) for i in range(SAMPLE)]
    out = torch.empty(SAMPLE, LENGTH, device=device)
    rows = list(zip(generators, out.unbind(), strict=True))

    def call() -> None:
        for generator, row in rows:
            draw(LENGTH, generator=generator, out=row)

    def check() -> None:
        laws.poison(out)
        call()
        laws.expect_baseline(law, out, (SAMPLE, LENGTH), targets.LOOP)

    scale = STREAMS / SAMPLE
    note = f"timed over {SAMPLE} streams, times {scale:g}"
    form = f"torch.{draw.__name__}"
    return [
        Entry(case, targets.LOOP, form, [call], check, _host_clock(bench), scale=scale, note=note)
    ]


def loop_randn_groups(bench: BenchDevice) -> list[Group]:
    """A generator a stream."""
    return [
        lambda: _loop(bench, "bank.normal/cuda/65536x1024", NORMAL, torch.randn),
        lambda: _loop(bench, "bank.uniform/cuda/65536x1024", UNIFORM, torch.rand),
    ]


def _manual_seed(bench: BenchDevice) -> list[Entry]:
    n = bench.size(10**4)
    generators = [torch.Generator(bench.device) for _ in range(n)]
    seeds = [i * 0x9E3779B97F4A7C15 % 2**63 for i in range(1, n + 1)]

    def call() -> None:
        for generator, seed in zip(generators, seeds, strict=True):
            generator.manual_seed(seed)

    def check() -> None:
        call()
        expect([g.initial_seed() for g in generators] == seeds, "the generators' seeds")

    clock = WallClock(lambda: None)
    return [Entry("pool.reseed/cuda/1e4", targets.MANUAL_SEED, "loop", [call], check, clock)]


def loop_seed_groups(bench: BenchDevice) -> list[Group]:
    """``manual_seed`` on each generator."""
    return [lambda: _manual_seed(bench)]

"""torch's own: its random functions, and Python loops over its generators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ... import laws
from ...case import expect
from ...laws import NORMAL, UNIFORM, Law
from .. import bars
from ..place import Place
from ..timing import Call, Entry, WallClock
from . import Group

STREAMS, LENGTH = 65536, 1024
SAMPLE = 512  # streams that the loop is timed over; a stream costs the same at any number


def _stream(place: Place, case: str, law: Law, draw: Callable[..., Any]) -> list[Entry]:
    n = place.size(10**8)
    outs = [torch.empty(n, device=place.device) for _ in range(place.buffers(4 * n))]

    def check() -> None:
        for out in outs:
            laws.poison(out)
            draw(n, out=out)
            laws.expect_peer(law, out, (n,), bars.TORCH)

    calls: list[Call] = [functools.partial(draw, n, out=out) for out in outs]
    return [Entry(case, bars.TORCH, draw.__name__, calls, check, place.clock, 4 * n)]


def torch_groups(place: Place) -> list[Group]:
    """``torch.rand`` and ``torch.randn`` into memory."""
    return [
        lambda: _stream(place, "uniform_/cuda/1e8", UNIFORM, torch.rand),
        lambda: _stream(place, "normal_/cuda/1e8", NORMAL, torch.randn),
    ]


def _host_clock(place: Place) -> WallClock:
    return WallClock(torch.cuda.synchronize if place.device == "cuda" else lambda: None)


def _loop(place: Place, case: str, law: Law, draw: Callable[..., Any]) -> list[Entry]:
    device = place.device
    generators = [torch.Generator(device).manual_seed(i) for i in range(SAMPLE)]
    out = torch.empty(SAMPLE, LENGTH, device=device)
    rows = list(zip(generators, out.unbind(), strict=True))

    def call() -> None:
        for generator, row in rows:
            draw(LENGTH, generator=generator, out=row)

    def check() -> None:
        laws.poison(out)
        call()
        laws.expect_peer(law, out, (SAMPLE, LENGTH), bars.LOOP)

    scale = STREAMS / SAMPLE
    note = f"timed over {SAMPLE} streams, times {scale:g}"
    form = f"torch.{draw.__name__}"
    return [Entry(case, bars.LOOP, form, [call], check, _host_clock(place), scale=scale, note=note)]


def loop_randn_groups(place: Place) -> list[Group]:
    """A generator a stream."""
    return [
        lambda: _loop(place, "bank.randn/cuda/65536x1024", NORMAL, torch.randn),
        lambda: _loop(place, "bank.rand/cuda/65536x1024", UNIFORM, torch.rand),
    ]


def _manual_seed(place: Place) -> list[Entry]:
    n = place.size(10**4)
    generators = [torch.Generator(place.device) for _ in range(n)]
    seeds = [i * 0x9E3779B97F4A7C15 % 2**63 for i in range(1, n + 1)]

    def call() -> None:
        for generator, seed in zip(generators, seeds, strict=True):
            generator.manual_seed(seed)

    def check() -> None:
        call()
        expect([g.initial_seed() for g in generators] == seeds, "the generators' seeds")

    clock = WallClock(lambda: None)
    return [Entry("pool.reseed/cuda/1e4", bars.MANUAL_SEED, "loop", [call], check, clock)]


def loop_seed_groups(place: Place) -> list[Group]:
    """``manual_seed`` on each generator."""
    return [lambda: _manual_seed(place)]

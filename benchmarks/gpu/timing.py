"""Clocks, and how often to look at them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Call = Callable[[], object]


class Clock(Protocol):
    """Times calls made one after another."""

    method: str

    def __call__(self, calls: Sequence[Call], repeats: int) -> float:
        """Seconds a call, over ``repeats`` calls that take ``calls`` in turns."""


def _in_turns(calls: Sequence[Call], repeats: int) -> None:
    for i in range(repeats):
        calls[i % len(calls)]()


class EventClock:
    """Device time between two CUDA events on torch's current stream."""

    method = "events"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __call__(self, calls: Sequence[Call], repeats: int) -> float:
        """See :class:`Clock`."""
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._torch.cuda.synchronize()
        begin.record()
        _in_turns(calls, repeats)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / repeats


class WallClock:
    """Host time until the device has finished."""

    method = "wall clock"

    def __init__(self, finish: Callable[[], object]) -> None:
        self._finish = finish

    def __call__(self, calls: Sequence[Call], repeats: int) -> float:
        """See :class:`Clock`."""
        self._finish()
        begun = time.perf_counter()
        _in_turns(calls, repeats)
        self._finish()
        return (time.perf_counter() - begun) / repeats


@dataclass(frozen=True)
class Effort:
    """How long to look."""

    rounds: int = 15
    sample: float = 0.02  # seconds that one sample should take
    group: float = 6.0  # seconds for all entries of a case, after which no round begins
    least: int = 3  # rounds that are made anyway


@dataclass(frozen=True)
class Entry:
    """The calls of one contender for one case.

    ``calls`` do the same on different buffers, so that none finds the last one's output in the
    cache. ``unit`` is how many times a call does what the case names (a graph holds several);
    ``scale`` what the time is multiplied by when only a part of the case was run, as ``note`` says.
    """

    case: str
    contender: str
    form: str
    calls: Sequence[Call]
    check: Call  # raises WrongAnswer
    clock: Clock
    size: int | None = None  # bytes written
    unit: int = 1
    scale: float = 1.0
    note: str = ""
    samples: list[float] = field(default_factory=list)

    def look(self, repeats: int) -> float:
        """Seconds for what the case names."""
        return self.clock(self.calls, repeats) / self.unit * self.scale


def repeats_for(seconds: float, sample: float, most: int = 1000) -> int:
    """How many calls of so many ``seconds`` make a sample."""
    return max(1, min(most, round(sample / max(seconds, 1e-9))))


def measure(entries: Sequence[Entry], effort: Effort) -> None:
    """Take samples of all entries in turns; what was warmed up and calibrated does not count."""
    begun = time.perf_counter()
    repeats = []
    for entry in entries:
        entry.clock(entry.calls, len(entry.calls))
        once = entry.clock(entry.calls, len(entry.calls))
        repeats.append(repeats_for(once, effort.sample))
    for number in range(effort.rounds):
        if number >= effort.least and time.perf_counter() - begun > effort.group:
            return
        order = range(len(entries)) if number % 2 == 0 else reversed(range(len(entries)))
        for k in order:
            entries[k].samples.append(entries[k].look(repeats[k]))


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Median, quartiles and the number of samples."""
    if len(samples) < 2:
        return {"median_s": samples[0], "quartiles_s": [samples[0]] * 2, "samples": len(samples)}
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return {
        "median_s": statistics.median(samples), "quartiles_s": [low, high],
        "samples": len(samples),
    }  # fmt: skip

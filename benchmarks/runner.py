"""Checking and timing: answers first, then all sides in turns, in one process."""

from __future__ import annotations

import _thread
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import machine
from .case import Case, Contest, Side, Unavailable, WrongAnswer, torch_threads

Row = dict[str, Any]
LOOKS = 3  # at each way of a contender, to find the fastest


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    turns: int
    seconds: float  # of each side in each turn


FULL = {"cpu": Effort(turns=9, seconds=0.1), "cuda": Effort(turns=7, seconds=0.012)}
QUICK = Effort(turns=2, seconds=0.002)


# ---------------------------------------------------------------------------- the clock


def stack_depth() -> int:
    """How many frames the caller's stack has, its own included."""
    depth, frame = 0, sys._getframe(1)
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    return depth


def _dig(extra: int, call: Callable[[], float]) -> float:
    return call() if extra == 0 else _dig(extra - 1, call)


def _on_a_new_stack(extra: int, call: Callable[[], float]) -> float:
    """Call in a thread, so many frames below its first."""
    outcome: list[Any] = []
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            outcome.extend((_dig(extra, call), None))
        except BaseException as error:
            outcome.extend((None, error))
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    with done:
        value, error = outcome
    if error is not None:
        raise error
    return float(value)


class Clock:
    """Seconds of a side's statement: the host's, or between events of the device."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"

    def __call__(self, side: Side, repeats: int) -> float:
        """Return the seconds of one of so many runs."""
        if side.frames is None:
            return self._seconds(side, repeats)
        probe = Side("probe", "seen.append(depth())", {"seen": [], "depth": stack_depth})
        _on_a_new_stack(0, lambda: self._seconds(probe, 1))
        extra = side.frames - probe.names["seen"][0]
        return _on_a_new_stack(extra, lambda: self._seconds(side, repeats))

    def _seconds(self, side: Side, repeats: int) -> float:
        timer = timeit.Timer(side.statement, timer=side.clock, globals=side.names)
        with torch_threads(side.threads):
            if not self._cuda:
                return timer.timeit(repeats) / repeats
            torch.cuda.synchronize()
            if not side.is_kernel:
                begun = time.perf_counter()
                timer.timeit(repeats)
                torch.cuda.synchronize()
                return (time.perf_counter() - begun) / repeats
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            timer.timeit(repeats)
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3 / repeats

    def repeats(self, side: Side, seconds: float) -> int:
        """Return how many runs take so long; the first one warms up."""
        self(side, 1)
        repeats = 1
        while (taken := repeats * self(side, repeats)) < seconds / 10:
            repeats *= 10
        return max(1, round(repeats * seconds / taken))

    def in_turns(self, sides: Sequence[Side], effort: Effort) -> list[list[float]]:
        """Return the seconds of each side in each turn; every second turn goes backwards."""
        repeats = [self.repeats(side, effort.seconds) for side in sides]
        times: list[list[float]] = [[] for _ in sides]
        for turn in range(effort.turns):
            order = range(len(sides))
            for k in order if turn % 2 == 0 else reversed(order):
                times[k].append(self(sides[k], repeats[k]))
        return times


def ceilings(clock: Clock, device: str, effort: Effort, size: int) -> dict[bool, float]:
    """Return the bytes a second of a copy (True) and of memset."""
    a, b = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
    sides = (
        Side("memset", "a.zero_()", {"a": a}, is_kernel=True),
        Side("copy", "a.copy_(b)", {"a": a, "b": b}, is_kernel=True),
    )
    fill, copy = map(statistics.median, clock.in_turns(sides, effort))
    return {False: size / fill, True: 2 * size / copy}


# ---------------------------------------------------------------------------- a case


def outcome(error: Exception) -> Row:
    """Return what a row says of what kept it from being timed."""
    reason = " ".join(str(error).split())[:160]
    if isinstance(error, Unavailable):
        return {"status": "unavailable", "reason": reason}
    if isinstance(error, WrongAnswer):
        return {"status": "wrong", "reason": reason}
    return {"status": "failed", "reason": f"{type(error).__name__}: {reason}"}


def _fastest(ways: Sequence[Side], clock: Clock, effort: Effort) -> Side:
    """The one with the lowest median, of a few short looks in turns."""
    if len(ways) == 1:
        return ways[0]
    looks = clock.in_turns(ways, Effort(LOOKS, effort.seconds / 4))
    return min(zip(map(statistics.median, looks), ways, strict=True), key=lambda pair: pair[0])[1]


def _contend(contest: Contest, rows: dict[str, Row], clock: Clock, effort: Effort) -> None:
    """Check the answers, then time all sides that gave a right one."""
    contest.check(contest.fastseed)
    effort = Effort(effort.turns, effort.seconds * contest.share)
    sides: dict[str, Side] = {}
    for label, ways in contest.beside.items():
        try:
            made = ways()
            for way in made:
                contest.check_beside(way)
            sides[label] = _fastest(made, clock, effort)
        except Exception as error:  # no contender keeps another from running
            rows[label] |= outcome(error)
    ours, *others = clock.in_turns((contest.fastseed, *sides.values()), effort)
    seconds = statistics.median(ours)
    shared: Row = {"status": "ok", "us": 1e6 * seconds}
    if contest.traffic:
        shared["tbs"] = contest.traffic / seconds / 1e12
    for label, theirs in zip(sides, others, strict=True):
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        median = statistics.median(theirs)
        rows[label] |= {
            **shared, "beside_us": 1e6 * median, "ratio": median / seconds,
            "range": [min(ratios), max(ratios)],
        }  # fmt: skip
    for label in rows.keys() - sides.keys():
        rows[label] = shared | rows[label]


def run_case(
    case: Case, device: str, effort: Effort, limits: dict[bool, float] | None = None
) -> list[Row]:
    """Return the rows of a case, one for each contender.

    A row's ``status`` is ``"ok"``, ``"unavailable"``, ``"wrong"`` or ``"failed"``.

    Args:
        case: what to run.
        device: where.
        effort: how long.
        limits: what :func:`ceilings` found: kernels say which share of it they reach.
    """
    rows: dict[str, Row] = {
        label: {"case": case.name(device), "beside": label, "headline": case.headline or None}
        for label in case.beside or ("",)
    }
    load = machine.OtherLoad()
    try:
        contest = case.build(device)
        with contest.context():
            _contend(contest, rows, Clock(device), effort)
    except Exception as error:  # no case keeps another from running
        for row in rows.values():
            row |= outcome(error)
    for label, row in rows.items():
        row["load"] = load.processes()
        if row["status"] != "ok":
            continue
        row["target"] = case.beside.get(label)
        if limits is not None and "tbs" in row:
            row |= {"share": row["tbs"] * 1e12 / limits[contest.reads], "share_target": case.share}
    return [{k: v for k, v in row.items() if v is not None} for row in rows.values()]

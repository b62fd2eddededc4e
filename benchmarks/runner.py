"""Checking and timing: answers first, then both sides in turns, in one process."""

from __future__ import annotations

import _thread
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.benchmark import Measurement, Timer

from .case import Case, Contest, Side, Unavailable, WrongAnswer


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    seconds: float  # of each side in each round


FULL = Effort(rounds=9, seconds=0.2)
QUICK = Effort(rounds=2, seconds=0.01)


# ---------------------------------------------------------------------------- depth of the stack


def _on_a_new_stack(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call in a thread, whose stack holds no frame of this module below ``run``."""
    outcome: list[Any] = []
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            outcome.extend((call(*arguments), None))
        except BaseException as error:
            outcome.extend((None, error))
        finally:
            done.release()

    _thread.start_new_thread(run, ())
    with done:
        value, error = outcome
    if error is not None:
        raise error
    return value


def _dig(extra: int, timer: Timer, seconds: float) -> Measurement:
    if extra == 0:
        return timer.blocked_autorange(min_run_time=seconds)
    return _dig(extra - 1, timer, seconds)


def stack_depth() -> int:
    """How many frames the caller's stack has, its own included."""
    depth, frame = 0, sys._getframe(1)
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    return depth


def _frames_of_the_timer() -> int:
    """The depth at which a statement is timed when nothing is dug."""
    seen: list[int] = []
    probe = Timer("seen.append(stack_depth())", globals={"seen": seen, "stack_depth": stack_depth})
    _on_a_new_stack(_dig, 0, probe, 1e-4)
    return seen[-1]


def measure(side: Side, seconds: float, frames: int | None = None) -> Measurement:
    """Time one side; with ``frames``, from a stack of exactly that depth."""
    timer = Timer(side.statement, timer=side.clock, globals=side.names, num_threads=side.threads)
    if frames is None:
        return timer.blocked_autorange(min_run_time=seconds)
    extra = frames - _frames_of_the_timer()
    if extra < 0:
        raise ValueError(f"frames must be at least {frames - extra}, got {frames}")
    return _on_a_new_stack(_dig, extra, timer, seconds)


# ---------------------------------------------------------------------------- a case


def _summary(side: Side, rounds: list[Measurement]) -> dict[str, Any]:
    medians = [m.median for m in rounds]
    return {
        "label": side.label,
        "statement": side.statement,
        "threads": side.threads,
        "median_s": statistics.median(medians),
        "iqr_s": statistics.median(m.iqr for m in rounds),
        "rounds_s": medians,
    }


def fastest(sides: tuple[Side, ...], effort: Effort, frames: int | None) -> Side:
    """The one with the lowest median, of a few short looks in turns."""
    if len(sides) == 1:
        return sides[0]
    looks: dict[str, list[float]] = {side.label: [] for side in sides}
    for _ in range(3):
        for side in sides:
            looks[side.label].append(measure(side, effort.seconds / 4, frames).median)
    return min(sides, key=lambda side: statistics.median(looks[side.label]))


def contend(contest: Contest, effort: Effort) -> dict[str, Any]:
    """Check the answers, then time both sides in turns; WrongAnswer before anything is timed."""
    with contest.context():
        contest.check(contest)
        effort = Effort(effort.rounds, effort.seconds * contest.share)
        baseline = fastest(contest.baselines, effort, contest.frames)
        sides = (contest.fastseed, baseline)
        times: tuple[list[Measurement], list[Measurement]] = ([], [])
        for number in range(effort.rounds):
            for k in (0, 1) if number % 2 == 0 else (1, 0):
                times[k].append(measure(sides[k], effort.seconds, contest.frames))
    first, second = (_summary(side, rounds) for side, rounds in zip(sides, times, strict=True))
    each = [b / a for a, b in zip(first["rounds_s"], second["rounds_s"], strict=True)]
    return {
        "fastseed": first,
        "baseline": second,
        "frames": contest.frames,
        "ratio": second["median_s"] / first["median_s"],
        "ratio_range": [min(each), max(each)],
    }


def run_case(case: Case, effort: Effort) -> dict[str, Any]:
    """The row of a case: its ``status`` is ok, unavailable or wrong."""
    row: dict[str, Any] = {"name": case.name, "against": case.baseline, "target": case.target}
    try:
        row |= contend(case.build(), effort)
    except Unavailable as reason:
        return row | {"status": "unavailable", "reason": str(reason)}
    except WrongAnswer as what:
        return row | {"status": "wrong", "reason": str(what)}
    met = None if case.target is None else row["ratio"] >= case.target
    return row | {"status": "ok", "met": met}

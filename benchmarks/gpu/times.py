"""``python -m benchmarks.gpu.times``: each kernel's bits beside the CPU's, then its time.

A line of JSON for each case, written as soon as it is known. The first lines are the machine and
its ceilings. Cases call operators, so that a time is a kernel's; ``host`` cases are calls as users
make them, by the host's clock. ``--capture`` compares bits of first launches in a CUDA graph alone.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from . import card, host_calls, others
from .case import Case, differing, moved
from .cases import cases

Call = Callable[[], Any]
RESERVE = 15.0  # seconds before the end in which no case begins
REHEARSED = 200_000  # values of a case on the CPU


class Clock:
    """Seconds of a call: between events of a device, else of the host."""

    def __init__(self, device: str, by_events: bool = True) -> None:
        self._device, self._by_events = device, by_events and device == "cuda"

    def finish(self) -> None:
        """Wait for the device."""
        if self._device == "cuda":
            torch.cuda.synchronize()

    def __call__(self, calls: Sequence[Call], repeats: int) -> float:
        """Return the seconds of one of so many calls, taken in turns."""
        self.finish()
        if not self._by_events:
            begun = time.perf_counter()
            for i in range(repeats):
                calls[i % len(calls)]()
            self.finish()
            return (time.perf_counter() - begun) / repeats
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for i in range(repeats):
            calls[i % len(calls)]()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / repeats

    def medians(self, sides: Sequence[Sequence[Call]], quick: bool) -> list[float]:
        """Return the median of each side's times, which are taken in turns."""
        repeats = []
        for calls in sides:
            self(calls, len(calls))
            once = self(calls, len(calls))
            wanted = (0.001 if quick else 0.012) / max(once, 1e-7)
            repeats.append(max(2, min(500, round(wanted))))
        found: list[list[float]] = [[] for _ in sides]
        for _ in range(2 if quick else 7):
            for k, calls in enumerate(sides):
                found[k].append(self(calls, repeats[k]))
        return [statistics.median(times) for times in found]


class Lines:
    """The file of JSON lines; each is on the disk when :meth:`keep` returns."""

    def __init__(self, out: Path) -> None:
        self._out, self._begun = out, time.monotonic()

    @property
    def seconds(self) -> float:
        """How long this process has run."""
        return time.monotonic() - self._begun

    def keep(self, **line: Any) -> None:
        """Write a line, and print its case."""
        with self._out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        shown = {k: line[k] for k in ("case", "us", "ratio", "bits", "error") if k in line}
        print(f"{self.seconds:6.1f} s", *shown.values(), flush=True)


def timing(
    case: str, seconds: float, size: float, ceiling: float, against: str, other: float | None
) -> dict[str, Any]:
    """Return what a line has of a case that was timed. ``size`` is bytes, 0 for calls."""
    line: dict[str, Any] = {"case": case, "us": round(seconds * 1e6, 3)}
    if size:
        line |= {"tbs": size / seconds / 1e12, "share": size / seconds / 1e12 / ceiling}
    if other is not None:
        line |= {"against": against, "other_us": other * 1e6, "ratio": other / seconds}
    return line


def ceilings(clock: Clock, device: str, quick: bool, lines: Lines) -> tuple[float, float]:
    """Return TB/s of memset and of a copy."""
    size = 1 << 20 if quick else 1 << 29
    a, b = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
    fill, copy = clock.medians([[a.zero_], [functools.partial(a.copy_, b)]], quick)
    write, both = size / fill / 1e12, 2 * size / copy / 1e12
    lines.keep(**timing("ceiling: memset", fill, size, write, "", None), bits="")
    lines.keep(**timing("ceiling: copy", copy, 2 * size, both, "", None), bits="")
    return write, both


def bits(case: Case, device: str) -> str:
    """Return whether a small call has the bits of the CPU."""
    here = case.inputs(case.small)
    there = tuple(moved(v, device) for v in here)
    expected = case.call(*here)
    return differing((there, case.call(*there)), (here, expected))


def captured_bits(case: Case) -> str:
    """The same of a launch in a CUDA graph, which is the first of its kernel in this process."""
    here = case.inputs(case.small)
    there = tuple(moved(v, "cuda") for v in here)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = case.call(*there)
    graph.replay()
    torch.cuda.synchronize()
    expected = case.call(*here)
    return differing((there, made), (here, expected))


def time_case(
    case: Case, device: str, clock: Clock, ceiling: tuple[float, float], rehearse: bool
) -> dict[str, Any]:
    """Return the line of a case: compare its bits, then time it beside its baseline."""
    same = bits(case, device)
    n = case.n
    if rehearse and n > REHEARSED:
        n = max(REHEARSED // case.small, 1) * case.small
    cache = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 1 << 16
    count = case.sets or max(2, min(16, -(-4 * cache // max(1, int(n * case.traffic)))))
    made = case.inputs(n)
    sets = [tuple(moved(v, device) for v in made) for _ in range(count)]
    sides: list[list[Call]] = [[functools.partial(case.call, *given) for given in sets]]
    if case.beside is not None:
        sides.append([functools.partial(case.beside, *given) for given in sets])
    times = clock.medians(sides, rehearse)
    limit = ceiling[1] if case.reads else ceiling[0]
    other = times[1] if case.beside is not None else None
    line = timing(case.name, times[0], n * case.traffic, limit, case.against, other)
    line["ceiling"] = "copy" if case.reads else "memset"
    for target in ("share", "ratio"):
        if (least := getattr(case, target)) is not None and not rehearse:
            line[f"{target}_target"] = least
    return line | {"headline": case.headline, "bits": same}


def run(options: argparse.Namespace, lines: Lines) -> None:
    """Compare and time every case, as far as the time goes."""
    device = "cpu" if options.rehearse else "cuda"
    clock = Clock(device)
    chosen = [case for case in cases() if options.only in case.name]
    if options.capture:
        for case in (case for case in chosen if case.captured):
            line = {"case": f"in a graph: {case.name}", "capture": True}
            attempt(lines, line, lambda case=case: {"bits": captured_bits(case)})
        return
    lines.keep(case="machine", **card.describe(options.rehearse))
    ceiling = ceilings(clock, device, options.rehearse, lines)
    for case in chosen:
        if lines.seconds > options.seconds - RESERVE:
            lines.keep(case=case.name, error="no time left", bits="NOT COMPARED")
            continue
        attempt(
            lines, {"case": case.name},
            lambda case=case: time_case(case, device, clock, ceiling, options.rehearse),
        )  # fmt: skip
    for name, ours, against, theirs in host_calls.calls(device):
        if options.only in name:
            attempt(lines, {"case": f"host: {name}"}, functools.partial(
                host_calls.line, name, ours, against, theirs, Clock(device, False),
                options.rehearse))  # fmt: skip
    if not options.rehearse:
        for name, make in others.BASELINES:
            if options.only in name and lines.seconds < options.seconds - RESERVE:
                attempt(lines, {"case": name}, functools.partial(make, clock))


def attempt(lines: Lines, line: dict[str, Any], make: Callable[[], dict[str, Any]]) -> None:
    """Keep the line that is made, or the error that kept it from being made."""
    try:
        line |= make()
    except Exception as error:  # no case keeps another from running
        reason = " ".join(str(error).split())[:160]
        line |= {"error": f"{type(error).__name__}: {reason}", "bits": "FAILED"}
    lines.keep(**line)


def main() -> int:
    """0 where there was a device to run on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    parser.add_argument("--seconds", type=float, default=260)
    parser.add_argument("--rehearse", action="store_true", help="small, on the CPU")
    parser.add_argument("--capture", action="store_true", help="first launches in graphs, untimed")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="of a case's name")
    options = parser.parse_args()
    if not options.rehearse and not torch.cuda.is_available():
        print("there is no CUDA device", file=sys.stderr)
        return 1
    run(options, Lines(options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The runs of a verification: their commands, folders, variables, losses; when one is killed."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..._utils import environ
from ...determinism import launch
from .processes import OUT, run_program

WHOLE, STOPPED, RESUMED, OTHER = "whole", "stopped", "resumed", "other"
EXPERIMENTS = (WHOLE, STOPPED, RESUMED, OTHER)
"""Run to the end; killed or stopped in the middle; started again; run with another seed."""

# torchrun, with the program as it is.
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python")
_WATCH = "rank-*.watch"
STEP_KEYS = ("step", "global_step", "iteration", "iter")


class Losses(NamedTuple):
    """The losses of a run."""

    values: dict[str, float]  # by step, "17" or "3/120" with an epoch; the last one of a step
    left_out: int  # how many lines are broken, without a number or a step, or repeat a step


@dataclass(frozen=True)
class Run:
    """One start of the program, with what it printed and its losses."""

    experiment: str  # one of EXPERIMENTS, or "ranks"
    number: int  # from 0; the number of ranks
    folder: Path  # with its output and recordings
    place: Path  # what {run} was
    command: tuple[str, ...]
    seconds: float
    killed: bool
    written: tuple[str, ...]  # files of the working folder
    lines: tuple[str, ...]  # of the output, without an incomplete last one of a killed run
    losses: Losses  # none if they are not in a form that has steps

    @property
    def name(self) -> str:
        """Experiment and number, ``resumed-3``."""
        return f"{self.experiment}-{self.number}"

    @property
    def recording(self) -> Path | None:
        """The folder in which ``fastseed.debug.Watch`` recorded."""
        return next((file.parent for file in sorted(self.folder.rglob(_WATCH))), None)


@dataclass
class Starter:
    """Starts runs below a folder; the arguments are those of ``verify``."""

    root: Path
    seed: int | None
    other_seeds: Sequence[int]
    deterministic: bool | str
    log: str | None
    value: str
    timeout: float | None
    progress: Callable[[Run], object]

    def start(
        self,
        experiment: str,
        number: int,
        command: Sequence[str],
        *,
        place: Path | None = None,
        kill_when: Callable[[Path], bool] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Run:
        """Run a command; ``{run}`` is an empty folder, or ``place`` of an earlier run."""
        name = f"{experiment}-{number}"
        folder = self.root / name
        place = place or folder / "run"
        for one in (folder, place):
            one.mkdir(exist_ok=True)
        seed = self.seed or 0
        if experiment == OTHER:
            seed = self.other_seeds[number]
        words = tuple(w.replace("{run}", str(place)).replace("{seed}", str(seed)) for w in command)
        new = dict(os.environ)
        own = seed if self.seed is not None or experiment == OTHER else None
        if own is not None or self.deterministic:
            new |= launch.variables(new, seed=own, deterministic=self.deterministic)
        new |= {environ.RUN_DIR: str(folder), "PYTHONUNBUFFERED": "1", **(variables or {})}
        before, begin = _listed(), time.perf_counter()
        killed = run_program(
            name, words, new, folder, self.timeout, lambda: bool(kill_when and kill_when(folder))
        )
        seconds = time.perf_counter() - begin
        written = tuple(sorted(name for name, at in _listed().items() if before.get(name) != at))
        lines = _lines(folder, place, killed)
        losses = Losses({}, 0)
        if experiment in EXPERIMENTS:
            losses = self._losses(name, place, is_whole=experiment in (WHOLE, OTHER))
        run = Run(
            experiment, number, folder, place, words, seconds, killed, written, lines, losses
        )  # fmt: skip
        self.progress(run)
        return run

    def _losses(self, name: str, place: Path, is_whole: bool) -> Losses:
        if self.log is None:
            return read_losses(self.root / name / OUT, self.value)
        files = [one for one in place.glob(self.log) if one.is_file()]
        found = read_losses(files[0], self.value) if len(files) == 1 else Losses({}, 0)
        if not found.values and is_whole:  # others may not have begun their log
            raise ValueError(
                f"fastseed.verify: log must be one file below {{run}} with JSON lines that have "
                f"{self.value!r} and a step, got {self.log!r}, which matches {len(files)} files "
                f"in {name}"
            )
        return found


def _lines(folder: Path, place: Path, killed: bool) -> tuple[str, ...]:
    with open(folder / OUT, encoding="utf-8", errors="replace") as file:
        lines = [line.replace(str(place), "{run}") for line in file]
    if killed and lines and not lines[-1].endswith("\n"):
        del lines[-1]
    return tuple(line.rstrip("\n") for line in lines)


def _listed() -> dict[str, int]:
    with os.scandir() as entries:
        return {one.name: one.stat(follow_symlinks=False).st_mtime_ns for one in entries}


def half_of(run: Run) -> Callable[[Path], bool] | None:
    """Return whether a run has half of the records or lines of ``run``; None if it has no two."""
    pattern = OUT if run.recording is None else _WATCH
    total = _count(run.folder, pattern)
    return None if total < 2 else lambda folder: _count(folder, pattern) >= total / 2


def _count(folder: Path, pattern: str) -> int:
    """Return the number of lines, or of recorded steps, of the first file that matches."""
    mark = b'"step": ' if pattern == _WATCH else b"\n"
    for path in sorted(folder.rglob(pattern)):
        with open(path, "rb") as file:
            return sum(mark in line for line in file)
    return 0


def read_losses(path: Path, value: str) -> Losses:
    """Return the values in JSON objects, one a line, which may stand among other output."""
    values: dict[str, float] = {}
    left_out = 0
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            if not line.startswith("{"):
                continue
            try:
                row = json.loads(line)
                if row.get(value) is None:
                    continue
                name, loss = _step_of(row), float(row[value])
            except (ValueError, TypeError, OverflowError, RecursionError):
                left_out += 1
                continue
            left_out += name in values
            values.pop(name, None)  # the last one counts, at its place
            values[name] = loss
    return Losses(values, left_out)


def _step_of(row: dict[str, Any]) -> str:
    """Return the name of a row's step; ValueError without one."""
    steps = [key for key in STEP_KEYS if row.get(key) is not None][:1]
    parts = [row[key] for key in ("epoch", *steps) if row.get(key) is not None]
    if not parts:
        raise ValueError("there is no step")
    return "/".join(str(part).removesuffix(".0") for part in parts)  # 3.0 is step 3


def printed(lines: Sequence[str], value: str) -> dict[str, float]:
    """Return the numbers that follow the name of the value in lines of text, for a picture."""
    number = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
    pattern = re.compile(rf"\b{re.escape(value)}\b\W{{0,3}}?({number})\b")
    found = [match[1] for line in lines if (match := pattern.search(line))]
    return {str(i): float(text) for i, text in enumerate(found)}

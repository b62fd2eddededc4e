"""The runs of a verification: their commands, folders, variables, losses; when one is killed."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..._utils import environ
from ...debug.watch_file import PATTERN
from ...determinism import hash_seed, launch
from ..logs import step_of
from .processes import OUT, run_program

WHOLE, STOPPED, RESUMED, OTHER = "whole", "stopped", "resumed", "other"
EXPERIMENTS = (WHOLE, STOPPED, RESUMED, OTHER)
"""Run to the end; killed or stopped in the middle; started again; run with another seed."""

# torchrun, with the program as it is.
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python")
_SHARES = {"1/2": 0.5, "1/4": 0.25, "3/4": 0.75}  # the first for a single kill
_EPOCH = re.compile(r"\bepoch\W{0,4}(\d+)", re.IGNORECASE)
_MAX_FILES = 10_000  # of the working folder that are looked at


class Losses(NamedTuple):
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
    seed: int = 0

    @property
    def name(self) -> str:
        """Experiment and number, ``resumed-3``."""
        return f"{self.experiment}-{self.number}"

    @property
    def recording(self) -> Path | None:
        """The folder in which ``fastseed.debug.Watch`` recorded."""
        return next((file.parent for file in sorted(self.folder.rglob(PATTERN))), None)


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
    progress: Callable[[str | Run], object]
    fixed_hashes: bool = False  # whether a whole run got another PYTHONHASHSEED than this process

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
        name = f"{experiment}-{number}"
        folder = self.root / name
        place = place or folder / "run"
        for one in (folder, place):
            one.mkdir(exist_ok=True)
        seed = self.other_seeds[number] if experiment == OTHER else self.seed or 0
        words = tuple(w.replace("{run}", str(place)).replace("{seed}", str(seed)) for w in command)
        new = dict(os.environ)
        own = seed if self.seed is not None or experiment == OTHER else None
        if own is not None or self.deterministic:
            given = launch.variables(new, seed=own, deterministic=self.deterministic)
            if "{seed}" in " ".join(command) and not self.deterministic:
                given.pop(hash_seed.VARIABLE, None)  # such a program is started without `run`
            self.fixed_hashes |= experiment == WHOLE and hash_seed.VARIABLE in given
            new |= given
        new |= {environ.RUN_DIR: str(folder), "PYTHONUNBUFFERED": "1", **(variables or {})}
        self.progress(name)
        earlier = b"".join(one.read_bytes() for one in self._logs(place))
        before, begin = _listed(self.root), time.perf_counter()
        killed = run_program(name, words, new, folder, self.timeout, kill_when)
        seconds = time.perf_counter() - begin
        after = _listed(self.root)
        written = tuple(sorted(name for name, at in after.items() if before.get(name) != at))
        lines = _lines(folder, place, killed)
        losses = Losses({}, 0)
        if experiment in EXPERIMENTS:
            losses = self._losses(name, place, earlier, is_whole=experiment in (WHOLE, OTHER))
        run = Run(
            experiment, number, folder, place, words, seconds, killed, written, lines, losses, seed
        )  # fmt: skip
        self.progress(run)
        return run

    def _logs(self, place: Path) -> list[Path]:
        return [one for one in place.glob(self.log) if one.is_file()] if self.log else []

    def _losses(self, name: str, place: Path, earlier: bytes, is_whole: bool) -> Losses:
        if self.log is None:
            return read_losses(self.root / name / OUT, self.value)
        files, found = self._logs(place), Losses({}, 0)
        if len(files) == 1:
            found = read_losses(files[0], self.value, earlier)
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


def _listed(root: Path) -> dict[str, int]:
    """Return when each file below the working folder was written, but for hidden ones and runs."""
    found: dict[str, int] = {}
    for folder, folders, names in os.walk("."):
        folders[:] = [
            one for one in folders
            if not one.startswith((".", "__pycache__")) and root != Path(folder, one).absolute()
        ]  # fmt: skip
        for name in names:
            path = os.path.normpath(os.path.join(folder, name))
            with contextlib.suppress(OSError):  # it was removed
                found[path] = os.stat(path, follow_symlinks=False).st_mtime_ns
        if len(found) > _MAX_FILES:
            break
    return found


def kill_points(run: Run) -> dict[str, Callable[[Path], bool]]:
    """Return where to kill a run like ``run``, by names; a folder is asked whether it is there.

    At shares of its records, else of its lines, if it has two, and at the end of its first epoch.
    """
    pattern = OUT if run.recording is None else PATTERN
    total = _Progress(pattern).count(run.folder)
    names: dict[int, str] = {}
    for name, share in _SHARES.items() if total >= 2 else ():
        names.setdefault(math.ceil(total * share), name)
    found = {name: _reaches(pattern, wanted) for wanted, name in names.items()}
    epochs = [(i, match[1]) for i, line in enumerate(run.lines) if (match := _EPOCH.search(line))]
    ends = [i for i, epoch in epochs if epoch != epochs[0][1]]
    if found and ends:
        found["the end of an epoch"] = _reaches(OUT, ends[0])
    return found


def _reaches(pattern: str, wanted: int) -> Callable[[Path], bool]:
    progress = _Progress(pattern)
    return lambda folder: progress.count(folder) >= wanted


class _Progress:
    """Counts the lines, or the recorded steps, of growing files; it reads each byte once."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._mark = b'"step": ' if pattern == PATTERN else b"\n"
        self._seen: dict[Path, tuple[int, int]] = {}  # where to read on, and the count so far

    def count(self, folder: Path) -> int:
        total = 0
        for path in folder.rglob(self._pattern):
            start, count = self._seen.get(path, (0, 0))
            with open(path, "rb") as file:
                file.seek(start)
                data = file.read()
            count += data.count(self._mark)
            overlap = min(len(data), len(self._mark) - 1)  # half a mark may stand at the end
            self._seen[path] = start + len(data) - overlap, count
            total += count
        return total


def read_losses(path: Path, value: str, earlier: bytes = b"") -> Losses:
    """Return the values in JSON objects, one a line, after what the file had ``earlier``."""
    values: dict[str, float] = {}
    left_out = 0
    text = path.read_bytes().removeprefix(earlier).decode("utf-8-sig", "replace")
    for line in io.StringIO(text, newline=None):
        if not line.startswith("{"):
            continue
        try:
            row = json.loads(line)
            if row.get(value) is None:
                continue
            name, loss = step_of(row), float(row[value])
            if name is None:
                raise ValueError("there is no step")
        except (ValueError, TypeError, OverflowError, RecursionError):
            left_out += 1
            continue
        left_out += name in values
        values.pop(name, None)  # the last one counts, at its place
        values[name] = loss
    return Losses(values, left_out)


def printed(lines: Sequence[str], value: str) -> dict[str, float]:
    """Return the numbers that follow the name of the value in lines of text, for a picture."""
    number = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
    pattern = re.compile(rf"\b{re.escape(value)}\b\W{{0,3}}?({number})\b")
    found = [match[1] for line in lines if (match := pattern.search(line))]
    return {str(i): float(text) for i, text in enumerate(found)}

"""The runs of a verification: their commands, folders, variables, and when one is killed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..._utils import environ
from ...determinism import launch
from .processes import OUT, run_program

WHOLE, STOPPED, RESUMED, OTHER = "whole", "stopped", "resumed", "other"
EXPERIMENTS = (WHOLE, STOPPED, RESUMED, OTHER)
"""Run to the end; killed or stopped in the middle; started again; run with another seed."""

_WATCH = "rank-*.watch"


@dataclass(frozen=True)
class Run:
    """One start of the program.

    Attributes:
        experiment: one of ``EXPERIMENTS``, or ``ranks``.
        number: from 0; the number of ranks.
        folder: with its output and recordings.
        place: what ``{run}`` was.
        command: the words that were started.
        seconds: its duration.
        killed: whether it was killed.
        written: files of the working folder that it wrote.
    """

    experiment: str
    number: int
    folder: Path
    place: Path
    command: tuple[str, ...]
    seconds: float
    killed: bool
    written: tuple[str, ...]

    @property
    def name(self) -> str:
        """Experiment and number, ``resumed-3``."""
        return f"{self.experiment}-{self.number}"

    @property
    def recording(self) -> Path | None:
        """The folder in which ``fastseed.debug.Watch`` recorded."""
        return next((file.parent for file in sorted(self.folder.rglob(_WATCH))), None)

    def lines(self) -> list[str]:
        """The lines of the standard output, without an incomplete last one of a killed run."""
        with open(self.folder / OUT, encoding="utf-8", errors="replace") as file:
            lines = [line.replace(str(self.place), "{run}") for line in file]
        if self.killed and lines and not lines[-1].endswith("\n"):
            del lines[-1]
        return [line.rstrip("\n") for line in lines]


class Starter:
    """Starts runs below a folder.

    Args:
        root: the folder.
        seed: of all runs but those of ``OTHER``; None: the program's own.
        deterministic: as for ``launch.variables``.
        timeout: seconds of a run, or None.
        progress: called with each run that has ended.
    """

    def __init__(
        self,
        root: Path,
        seed: int | None,
        deterministic: bool | str,
        timeout: float | None,
        progress: Callable[[Run], object],
    ) -> None:
        self.root, self.seed = root, seed
        self._deterministic, self._timeout, self._progress = deterministic, timeout, progress

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
        folder = self.root / f"{experiment}-{number}"
        folder.mkdir()
        if place is None:
            place = folder / "run"
            place.mkdir()
        seed = self.seed
        if experiment == OTHER:
            seed = 0 if seed is None else seed
            seed = (seed + 1 + number) % 2**64
        values = {"{run}": str(place), "{seed}": str(0 if seed is None else seed)}
        words = tuple(_filled(word, values) for word in command)
        new = dict(os.environ)
        if seed is not None or self._deterministic:
            new |= launch.variables(new, seed=seed, deterministic=self._deterministic)
        new |= {environ.RUN_DIR: str(folder), "PYTHONUNBUFFERED": "1", **(variables or {})}
        before, begin = _listed(), time.perf_counter()
        killed = run_program(
            f"{experiment}-{number}", words, new, folder, self._timeout,
            (lambda: kill_when(folder)) if kill_when else lambda: False,
        )  # fmt: skip
        written = tuple(sorted(name for name, at in _listed().items() if before.get(name) != at))
        seconds = time.perf_counter() - begin
        run = Run(experiment, number, folder, place, words, seconds, killed, written)
        self._progress(run)
        return run


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _listed() -> dict[str, int]:
    """Return the files and folders of the working folder with their times."""
    with os.scandir() as entries:
        return {one.name: one.stat(follow_symlinks=False).st_mtime_ns for one in entries}


def half_of(run: Run) -> Callable[[Path], bool] | None:
    """Return whether a run has made half of the records, else half of the lines, of ``run``.

    None if ``run`` has no two of them.
    """
    if run.recording is not None:
        pattern, total = _WATCH, _count(run.folder, _WATCH)
    else:
        pattern, total = OUT, _count(run.folder, OUT)
    if total < 2:
        return None
    return lambda folder: _count(folder, pattern) >= total / 2


def _count(folder: Path, pattern: str) -> int:
    """Return the number of lines of the first file that matches."""
    for path in sorted(folder.rglob(pattern)):
        with open(path, "rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return 0


# torchrun, with the program as it is.
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python")

"""Start the runs, several at a time, and read their losses."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .logs import read_curve
from .options import CHECKPOINT, placeholders
from .result import Curve, Run, Steps
from .run_directory import RunDirectory
from .subprocesses import Processes, last_lines


class Event(NamedTuple):
    """The progress of a verification.

    Attributes:
        name: the run.
        what: ``started``, ``done``, or ``kept`` for a run that already existed.
        seconds: the duration of the run.
        done, total: the number of runs that are done, and of all runs.
    """

    name: str
    what: str
    seconds: float
    done: int
    total: int


def run_all(directory: RunDirectory, progress: Callable[[Event], object]) -> list[Run]:
    """Run what is missing; return all runs, experiment by experiment.

    Raises:
        RuntimeError: a run failed or timed out. The others are ended; finished runs are kept.
        ValueError: a log cannot be read.
    """
    runner = _Runner(directory, progress)
    options = directory.options
    chains = [("uninterrupted",), ("truncated", "resumed"), *[("unseeded",)] * options.baseline]
    with ThreadPoolExecutor(options.jobs) as pool:
        futures: list[Future[list[Run]]] = []
        try:
            for k in range(options.runs):
                futures += (pool.submit(runner.run_chain, chain, k) for chain in chains)
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # also after an interrupt
            runner.processes.stop()
            for future in futures:
                future.cancel()
    failed = [error for one in done if not one.cancelled() and (error := one.exception())]
    if failed:
        raise next((error for error in failed if not isinstance(error, _Stopped)), failed[0])
    runs = [run for future in futures for run in future.result()]
    return sorted(runs, key=lambda run: (options.experiments.index(run.experiment), run.number))


class _Stopped(Exception):
    """A run was ended because another one failed."""


class _Runner:
    """The state shared by the threads that start runs."""

    def __init__(self, directory: RunDirectory, progress: Callable[[Event], object]) -> None:
        self.directory = directory
        self.options = directory.options
        self.processes = Processes()
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()
        self._steps: list[Steps] = []
        self._records = {
            f"{experiment}-{k}": directory.record(f"{experiment}-{k}")
            for experiment in self.options.experiments
            for k in range(self.options.runs)
        }
        for k in range(self.options.runs):
            if self._records[f"truncated-{k}"] is None:
                # A resumed run started from a checkpoint that is about to be replaced.
                (directory.folder(f"resumed-{k}") / "run.json").unlink(missing_ok=True)
                self._records[f"resumed-{k}"] = None

    def run_chain(self, experiments: tuple[str, ...], number: int) -> list[Run]:
        """Run experiments of which each needs the one before it."""
        return [self._run(experiment, number) for experiment in experiments]

    def _run(self, experiment: str, number: int) -> Run:
        if self.processes.stopped:
            raise _Stopped
        name = f"{experiment}-{number}"
        record = self._records[name]
        what = "kept" if record else "done"
        if record is None:
            record = self._execute(experiment, number, name)
        folder = self.directory.folder(name)
        curve = self._read(name, folder)
        with self._lock:
            self._done += 1
        self._report(name, what, record["seconds"])
        command = tuple(record["command"])
        return Run(name, experiment, number, command, record["seconds"], str(folder), curve)

    def _execute(self, experiment: str, number: int, name: str) -> dict[str, Any]:
        with self._lock:  # the first one captures the environment
            folder = self.directory.start(name)
        if experiment == "resumed":
            self._copy_checkpoint(f"truncated-{number}", folder)
        command = self.options.fill(experiment, folder)
        variables = self.options.variables(experiment, folder)
        self._report(name, "started", 0.0)
        begin = time.perf_counter()
        try:
            code = self.processes.run(command, variables, folder, self.options.timeout)
        except OSError as error:
            raise RuntimeError(
                f"fastseed.tools.verify: {command[0]!r} cannot be started: {error.strerror}"
            ) from None
        if self.processes.stopped:
            raise _Stopped
        if code != 0:
            timeout = f"did not end within {self.options.timeout} seconds"
            reason = timeout if code is None else f"ended with exit code {code}"
            raise RuntimeError(f"fastseed.tools.verify: run {name} {reason}{last_lines(folder)}")
        return self.directory.finish(name, command, time.perf_counter() - begin)

    def _copy_checkpoint(self, truncated: str, folder: Path) -> None:
        """Copy the checkpoint of a truncated run, which keeps its own."""
        source = self.directory.folder(truncated)
        found = sorted(source.glob(CHECKPOINT + "*"))
        if not found and {"checkpoint", "resume"} & placeholders(self.options.command):
            raise RuntimeError(
                f"fastseed.tools.verify: run {truncated} wrote no checkpoint to {{checkpoint}}: no "
                f"name in {source} begins with {CHECKPOINT!r}"
            )
        for path in found:
            # Links are followed: a resumed run must not write through one to the original.
            if path.is_dir():
                shutil.copytree(path, folder / path.name, ignore_dangling_symlinks=True)
            else:
                shutil.copy2(path, folder / path.name)

    def _read(self, name: str, folder: Path) -> Curve:
        options = self.options
        pattern = options.log or "stdout.txt"
        found = [folder / pattern] if (folder / pattern).exists() else sorted(folder.glob(pattern))
        if len(found) != 1 or not found[0].is_file():
            files = ", ".join(sorted(one.name for one in folder.iterdir())[:20])
            raise ValueError(
                f"fastseed.tools.verify: log must be one file below {{run}}, got {pattern!r}, "
                f"which matches {len(found)} paths in {name}, with the files {files}"
            )
        curve = read_curve(
            found[0], value=options.value, step=options.step, pattern=options.pattern
        )
        with self._lock:  # most runs have the same steps: keep them once
            for known in self._steps:
                if np.array_equal(known, curve.steps):
                    return replace(curve, steps=known)
            self._steps.append(curve.steps)
        return curve

    def _report(self, name: str, what: str, seconds: float) -> None:
        with self._lock:
            total = self.options.runs * len(self.options.experiments)
            self._progress(Event(name, what, seconds, self._done, total))

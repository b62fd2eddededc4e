"""Start the runs, several at a time, and read their losses."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .command import Template
from .logs import read_curve
from .options import CHECKPOINT
from .result import Curve, Run
from .run_directory import RunDirectory
from .subprocesses import Processes

_OUTPUT_LINES = 12  # of a failed run, in the error
_LISTED = 20  # names of files in an error
_WORK = {"uninterrupted": 1.0, "truncated": 0.5, "resumed": 0.5, "unseeded": 1.0}


class Event(NamedTuple):
    """The progress of a verification."""

    name: str
    """The run."""
    what: str
    """``started``, ``done``, or ``kept`` for a run that already existed."""
    seconds: float
    """The duration of the run."""
    done: float
    """The work that is done, in uninterrupted runs."""
    total: float
    """The total work."""


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
        self._total = self.options.runs * sum(_WORK[one] for one in self.options.experiments)
        self._done = 0.0
        self._reporting = threading.Lock()
        self._starting = threading.Lock()
        self._steps: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._records = self._find_records()

    def _find_records(self) -> dict[str, dict[str, Any] | None]:
        """Return the records of existing runs, read before any run can change a file."""
        found = {
            f"{experiment}-{k}": self.directory.record(f"{experiment}-{k}")
            for experiment in self.options.experiments
            for k in range(self.options.runs)
        }
        for k in range(self.options.runs):
            if found[f"truncated-{k}"] is None and found[f"resumed-{k}"] is not None:
                # It resumed from a checkpoint that is about to be replaced.
                self.directory.discard(f"resumed-{k}")
                found[f"resumed-{k}"] = None
        return found

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
        self._report(name, what, record["seconds"], _WORK[experiment])
        return Run(
            name, experiment, number, tuple(record["command"]), record["seconds"],
            str(folder.relative_to(self.directory.path)), curve,
        )  # fmt: skip

    def _execute(self, experiment: str, number: int, name: str) -> dict[str, Any]:
        with self._starting:  # the first one captures the environment
            folder = self.directory.start(name)
        if experiment == "resumed":
            self._copy_checkpoint(f"truncated-{number}", folder)
        command = self.options.fill(experiment, folder)
        variables = self.options.variables(experiment, folder)
        self._report(name, "started", 0.0, 0.0)
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
            raise RuntimeError(f"fastseed.tools.verify: run {name} {reason}{_last_lines(folder)}")
        return self.directory.finish(name, command, time.perf_counter() - begin)

    def _copy_checkpoint(self, truncated: str, folder: Path) -> None:
        """Copy the checkpoint of a truncated run, which keeps its own."""
        source = self.directory.folder(truncated)
        found = sorted(source.glob(CHECKPOINT + "*"))
        if not found and {"checkpoint", "resume"} & Template(self.options.command).names:
            raise RuntimeError(
                f"fastseed.tools.verify: run {truncated} wrote no checkpoint to {{checkpoint}}: no "
                f"name in {source} begins with {CHECKPOINT!r}"
            )
        try:
            for path in found:
                # Links are followed: a resumed run must not write through one to the original.
                if path.is_dir():
                    shutil.copytree(path, folder / path.name, ignore_dangling_symlinks=True)
                elif path.exists():
                    shutil.copy2(path, folder / path.name)
        except OSError as error:  # includes shutil.Error
            raise RuntimeError(
                f"fastseed.tools.verify: the checkpoint of {truncated} cannot be copied: {error}"
            ) from None

    def _read(self, name: str, folder: Path) -> Curve:
        options = self.options
        curve = read_curve(
            self._log(name, folder), format=options.format, value=options.value,
            step=options.step, pattern=options.pattern,
        )  # fmt: skip
        # Most runs have the same steps: keep them once.
        return replace(curve, steps=self._steps.setdefault(curve.steps, curve.steps))

    def _log(self, name: str, folder: Path) -> Path:
        pattern = str(self.options.log or "stdout.txt")
        found = [folder / pattern] if (folder / pattern).exists() else sorted(folder.glob(pattern))
        if len(found) != 1 or not found[0].is_file():
            files = sorted(one.name for one in folder.iterdir())
            listed = ", ".join(files[:_LISTED]) + (", ..." if len(files) > _LISTED else "")
            raise ValueError(
                f"fastseed.tools.verify: log must be one file below {{run}}, got {pattern!r}, "
                f"which matches {len(found)} paths in {name}, with the files {listed}"
            )
        if not found[0].resolve().is_relative_to(folder.resolve()):
            # A file shared by all runs would hold the losses of the last one only.
            raise ValueError(
                f"fastseed.tools.verify: log must be one file below {{run}}, got {pattern!r}, a "
                f"link to {str(found[0].resolve())!r} in {name}"
            )
        return found[0]

    def _report(self, name: str, what: str, seconds: float, work: float) -> None:
        with self._reporting:
            self._done += work
            self._progress(Event(name, what, seconds, self._done, self._total))


def _last_lines(folder: Path) -> str:
    """Return the end of a failed run's output."""
    for path in (folder / "stderr.txt", folder / "stdout.txt"):
        with contextlib.suppress(OSError):  # the run may have removed it
            if path.is_file() and (size := path.stat().st_size):
                with open(path, "rb") as file:
                    file.seek(max(0, size - 4096))
                    lines = file.read().decode("utf-8", "replace").splitlines()[-_OUTPUT_LINES:]
                return f"; the end of {path}:\n" + "\n".join(f"  {line}" for line in lines)
    return f"; it printed nothing (in {folder})"

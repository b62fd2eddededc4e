"""Starting the runs of a plan, some at a time, and reading what they wrote."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .command import Template
from .log_readers import read_curves
from .plan import CHECKPOINT, Plan
from .result import Curve, Run
from .run_directory import RunDirectory
from .subprocesses import Processes

_SHOWN = 12  # lines of a failed run's output
_LISTED = 20  # names of files in an error

_UNREAD = Curve((), np.zeros(0))


class Event(NamedTuple):
    """How far the runs are."""

    name: str
    """The run that it is about."""
    what: str
    """``started``, ``done``, or ``kept``: it was there already."""
    seconds: float
    """How long it took."""
    done: float
    """The work that is behind, in whole runs."""
    total: float
    """All of it."""


Progress = Callable[[Event], None]


def run_all(
    directory: RunDirectory, *, jobs: int, timeout: float | None, progress: Progress
) -> list[Run]:
    """Run what has not been run, ``jobs`` at a time; all runs, experiment by experiment.

    Raises:
        RuntimeError: a run failed or took too long. The others are ended; what is done is kept.
        ValueError: what one wrote cannot be read.
    """
    work = _Work(directory, timeout, progress)
    plan = directory.plan
    chains = [("whole",), ("half", "resumed"), *[("unseeded",)] * plan.control]
    units = [(chain, k) for k in range(plan.runs) for chain in chains]
    with ThreadPoolExecutor(jobs) as pool:
        futures: list[Future[list[Run]]] = []
        try:
            futures += (pool.submit(work.chain, *unit) for unit in units)
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # also when interrupted
            work.processes.stop()
            for future in futures:
                future.cancel()
    failed = [error for one in done if not one.cancelled() and (error := one.exception())]
    if failed:
        # What was ended because another failed says nothing.
        raise next((e for e in failed if not isinstance(e, _Stopped)), failed[0])
    order = {name: i for i, name in enumerate(plan.experiments())}
    found = [run for future in futures for run in future.result()]
    found.sort(key=lambda run: (order[run.experiment], run.number))
    curves = work.read([work.log(run.name, directory.folder(run.name)) for run in found])
    return [replace(run, curve=curve) for run, curve in zip(found, curves, strict=True)]


class _Stopped(Exception):
    """Another run failed."""


class _Work:
    """What the threads that start runs share."""

    def __init__(self, directory: RunDirectory, timeout: float | None, progress: Progress) -> None:
        self.directory = directory
        self.plan: Plan = directory.plan
        self.timeout = timeout
        self.progress = progress
        self.total = self.plan.runs * sum(map(self.plan.weight, self.plan.experiments()))
        self.done = 0.0
        self.lock = threading.Lock()
        self.capturing = threading.Lock()
        self.processes = Processes()
        self.kept = self.find()

    def find(self) -> dict[str, dict[str, Any]]:
        """The runs that are there, before any is started that may write where it should not."""
        found = {}
        for experiment in self.plan.experiments():
            for number in range(self.plan.runs):
                record = self.directory.kept(f"{experiment}-{number}")
                if record is not None:
                    found[f"{experiment}-{number}"] = record
        for number in range(self.plan.runs):
            if f"half-{number}" not in found and f"resumed-{number}" in found:
                # It went on from a half run that will be another one, and must not be taken for
                # the new one's should this session end between the two.
                self.directory.forget(f"resumed-{number}")
                del found[f"resumed-{number}"]
        return found

    def chain(self, experiments: tuple[str, ...], number: int) -> list[Run]:
        """Runs that need one another, in order."""
        return [self.one(experiment, number) for experiment in experiments]

    def one(self, experiment: str, number: int) -> Run:
        """One run, or what is there of it."""
        if self.processes.stopped:
            raise _Stopped
        name = f"{experiment}-{number}"
        record = self.kept.get(name)
        what = "kept" if record else "done"
        if record is None:
            with self.capturing:  # the first one captures the environment
                session = self.directory.session()
            record = {**self.start(experiment, number, name), "session": session}
            self.directory.finish(name, record)
        folder = self.directory.folder(name)
        self.read([self.log(name, folder)])  # so that a log that cannot be read shows at once
        self.tell(name, what, record["seconds"], self.plan.weight(experiment))
        return Run(
            name, experiment, number, tuple(record["command"]), record["seconds"],
            str(folder.relative_to(self.directory.path)), _UNREAD,
        )  # fmt: skip

    def start(self, experiment: str, number: int, name: str) -> dict[str, Any]:
        """Run it to its end."""
        folder = self.directory.begin(name)
        if experiment == "resumed":
            self.copy_checkpoint(f"half-{number}", folder)
        command = self.plan.arguments(experiment, folder)
        environment = self.plan.environment(experiment, folder, dict(os.environ))
        self.tell(name, "started", 0.0, 0.0)
        begin = time.perf_counter()
        try:
            code = self.processes.run(command, environment, folder, self.timeout)
        except OSError as error:
            raise RuntimeError(
                f"fastseed.tools.verify: command must be a program that can be started, "
                f"got {command[0]!r}: {error.strerror}"
            ) from None
        if self.processes.stopped:
            raise _Stopped
        if code != 0:
            got = f"exit code {code}" if code is not None else f"none after {self.timeout:g} s"
            raise RuntimeError(
                f"fastseed.tools.verify: run {name} must end with exit code 0, got {got}"
                f"{_last_lines(folder)}"
            )
        return {"command": list(command), "seconds": time.perf_counter() - begin}

    def copy_checkpoint(self, half: str, folder: Path) -> None:
        """What the half run left under the name of its checkpoint; that run keeps its own."""
        used = {"checkpoint", "resume"} & Template(self.plan.command).places
        found = sorted(self.directory.folder(half).glob(CHECKPOINT + "*"))
        if used and not found:
            raise RuntimeError(
                f"fastseed.tools.verify: run {half} must write a checkpoint to {{checkpoint}}, "
                f"but there is nothing in {self.directory.folder(half)} whose name begins with "
                f"{CHECKPOINT!r}"
            )
        try:
            for path in found:
                if path.is_dir():
                    # Not the links in it: through one the half run's own files might be written.
                    shutil.copytree(path, folder / path.name, ignore_dangling_symlinks=True)
                elif path.exists():
                    shutil.copy2(path, folder / path.name)
        except OSError as error:  # shutil's own errors are of this kind
            raise RuntimeError(
                f"fastseed.tools.verify: the checkpoint of run {half} must be files and folders that can "
                f"be copied, got {error}"
            ) from None

    def log(self, name: str, folder: Path) -> Path:
        """Where a run wrote its losses."""
        pattern = self.plan.log or "stdout.txt"
        literal = folder / pattern
        found = [literal] if literal.exists() else sorted(folder.glob(pattern))
        if len(found) != 1:
            there = sorted(one.name for one in folder.iterdir())
            shown = ", ".join(there[:_LISTED]) + (", …" if len(there) > _LISTED else "")
            raise ValueError(
                f"fastseed.tools.verify: log must be one path below {{run}}, got {pattern!r}, of which "
                f"{name} has {len(found)}: there are {shown}"
            )
        (path,) = found
        if not path.resolve().is_relative_to(folder.resolve()):
            # Runs that write to one file all hold what the last one wrote.
            raise ValueError(
                f"fastseed.tools.verify: log must be a path below {{run}}, got {pattern!r}, which leads "
                f"to {str(path.resolve())!r} in {name}"
            )
        if not (path.is_file() or path.is_dir()):
            raise ValueError(
                f"fastseed.tools.verify: log must be a file or a folder, got {pattern!r}, which is "
                f"neither in {name}"
            )
        return path

    def read(self, paths: Sequence[Path]) -> list[Curve]:
        """What runs wrote; together, since one alone may not show how its steps are counted."""
        plan = self.plan
        return read_curves(
            paths, format=plan.format, value=plan.value, step=plan.step, pattern=plan.pattern
        )

    def tell(self, name: str, what: str, seconds: float, weight: float) -> None:
        """Say how far it is."""
        with self.lock:
            self.done += weight
            self.progress(Event(name, what, seconds, self.done, self.total))


def _last_lines(folder: Path) -> str:
    """The end of what a failed run printed."""
    for path in (folder / "stderr.txt", folder / "stdout.txt"):
        with contextlib.suppress(OSError):  # whatever the run made of them
            if path.is_file() and (size := path.stat().st_size):
                with open(path, "rb") as file:
                    file.seek(max(0, size - 4096))
                    lines = file.read().decode("utf-8", "replace").splitlines()[-_SHOWN:]
                return f"; the end of {path}:\n" + "\n".join(f"  {line}" for line in lines)
    return f"; it printed nothing (in {folder})"

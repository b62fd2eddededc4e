"""Starting the runs of a plan, some at a time, and reading what they wrote."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .directory import RunDirectory
from .experiments import CHECKPOINT, Plan
from .readers import read_curves
from .result import Curve, Run
from .template import Template

_GRACE = 5.0  # seconds between asking a run to end and killing it
_SHOWN = 12  # lines of a failed run's output


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
        futures = [pool.submit(work.chain, *unit) for unit in units]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # also when interrupted
            work.stop()
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
        self.stopped = threading.Event()
        self.living: set[subprocess.Popen[bytes]] = set()

    def chain(self, experiments: tuple[str, ...], number: int) -> list[Run]:
        """Runs that need one another, in order."""
        found: list[Run] = []
        anew = False  # what is there after a run that has to be made (again) is not its result
        for experiment in experiments:
            run, kept = self.one(experiment, number, anew=anew)
            found.append(run)
            anew = not kept
        return found

    def one(self, experiment: str, number: int, *, anew: bool) -> tuple[Run, bool]:
        """One run, or what is there of it; and whether it was there."""
        if self.stopped.is_set():
            raise _Stopped
        name = f"{experiment}-{number}"
        with self.lock:  # the first one captures the environment
            record = None if anew else self.directory.kept(name)
            session = None if record else self.directory.session()
        what = "kept" if record else "done"
        if record is None:
            record = self.start(experiment, number, name)
        folder = self.directory.folder(name)
        self.read([self.log(name, folder)])  # so that a log that cannot be read shows at once
        if session is not None:
            self.directory.finish(name, {**record, "session": session})
        self.tell(name, what, record["seconds"], self.plan.weight(experiment))
        run = Run(
            name, experiment, number, tuple(record["command"]), record["seconds"],
            str(folder.relative_to(self.directory.path)), _UNREAD,
        )  # fmt: skip
        return run, what == "kept"

    def start(self, experiment: str, number: int, name: str) -> dict[str, Any]:
        """Run it to its end."""
        folder = self.directory.begin(name)
        if experiment == "resumed":
            self.copy_checkpoint(f"half-{number}", folder)
        command = self.plan.arguments(experiment, folder)
        environment = self.plan.environment(experiment, folder, dict(os.environ))
        self.tell(name, "started", 0.0, 0.0)
        begin = time.perf_counter()
        with open(folder / "stdout.txt", "wb") as out, open(folder / "stderr.txt", "wb") as err:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    env=environment, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise RuntimeError(
                    f"fastseed.verify: command must be a program that can be started, "
                    f"got {command[0]!r}: {error.strerror}"
                ) from None
            with self.lock:
                self.living.add(process)
            if self.stopped.is_set():
                _end(process)
            try:
                code: int | None = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                _end(process)
                code = None
            finally:
                with self.lock:
                    self.living.discard(process)
        if self.stopped.is_set():
            raise _Stopped
        if code != 0:
            got = f"exit code {code}" if code is not None else f"none after {self.timeout:g} s"
            raise RuntimeError(
                f"fastseed.verify: run {name} must end with exit code 0, got {got}"
                f"{_last_lines(folder)}"
            )
        return {"command": list(command), "seconds": time.perf_counter() - begin}

    def copy_checkpoint(self, half: str, folder: Path) -> None:
        """What the half run left under the name of its checkpoint; that run keeps its own."""
        used = {"checkpoint", "resume"} & Template(self.plan.command).places
        found = sorted(self.directory.folder(half).glob(CHECKPOINT + "*"))
        if used and not found:
            raise RuntimeError(
                f"fastseed.verify: run {half} must write a checkpoint to {{checkpoint}}, "
                f"but there is nothing in {self.directory.folder(half)} whose name begins with "
                f"{CHECKPOINT!r}"
            )
        for path in found:
            if path.is_dir():
                shutil.copytree(path, folder / path.name, symlinks=True)
            else:
                shutil.copy2(path, folder / path.name)

    def log(self, name: str, folder: Path) -> Path:
        """Where a run wrote its losses."""
        pattern = self.plan.log
        if pattern is None:
            return folder / "stdout.txt"
        found = sorted(folder.glob(pattern))
        if len(found) != 1:
            there = sorted(one.name for one in folder.iterdir())
            raise ValueError(
                f"fastseed.verify: log must be one path below {{run}}, got {pattern!r}, of which "
                f"{name} has {len(found)}: there are {', '.join(there)}"
            )
        return found[0]

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

    def stop(self) -> None:
        """Start nothing more, and end what runs."""
        self.stopped.set()
        with self.lock:
            living = list(self.living)
        for process in living:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run and what it has started."""
    for how in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        try:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, how)  # its session's leader, so its group has its number
            else:
                process.terminate()
        except (ProcessLookupError, PermissionError):
            return
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            continue


def _last_lines(folder: Path) -> str:
    """The end of what a failed run printed."""
    for name in ("stderr.txt", "stdout.txt"):
        path = folder / name
        size = path.stat().st_size
        if size:
            with open(path, "rb") as file:
                file.seek(max(0, size - 4096))
                lines = file.read().decode("utf-8", "replace").splitlines()[-_SHOWN:]
            return f"; the end of {path}:\n" + "\n".join(f"  {line}" for line in lines)
    return f"; it printed nothing (in {folder})"

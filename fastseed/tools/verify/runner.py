"""Start the runs, several at a time, and read their losses."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container
from pathlib import Path
from typing import NamedTuple

from ..._utils import StateDict
from .logs import read_curve
from .options import CHECKPOINT, Options, placeholders
from .result import Curve, Run
from .run_directory import RunDirectory
from .subprocesses import Process, any_ended, end

_Key = tuple[str, int]  # experiment and number
_CHECKPOINTS = {"checkpoint", "resume"}  # placeholders


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
    options = directory.options
    todo = [(name, k) for k in range(options.runs) for name in options.experiments]
    kept = {one: directory.record(_name(one)) for one in todo}
    for k in range(options.runs):
        if kept["truncated", k] is None:
            # A resumed run started from a checkpoint that is about to be replaced.
            (directory.folder(f"resumed-{k}") / "run.json").unlink(missing_ok=True)
            kept["resumed", k] = None
    total, runs = len(todo), dict[_Key, Run]()
    running: dict[Process, _Key] = {}
    try:
        while todo or running:
            ready = next((one for one in todo if _can_start(one, runs)), None)
            if ready is None or len(running) >= options.jobs:
                process = any_ended(running)
                end([process])
                one, what = running.pop(process), "done"
                record: StateDict = {"command": list(process.command), "seconds": process.seconds}
                directory.finish(process.name, record)
            elif (found := kept[ready]) is not None:
                one, what, record = ready, "kept", found
                todo.remove(one)
            else:
                todo.remove(ready)
                running[_start(directory, ready)] = ready
                progress(Event(_name(ready), "started", 0.0, len(runs), total))
                continue
            folder = directory.folder(_name(one))
            command, seconds = tuple(record["command"]), record["seconds"]
            runs[one] = Run(*one, command, seconds, str(folder), _read(options, one, folder))
            progress(Event(_name(one), what, seconds, len(runs), total))
    finally:  # also after an interrupt
        end(list(running))
    return [runs[name, k] for name in options.experiments for k in range(options.runs)]


def _name(one: _Key) -> str:
    return f"{one[0]}-{one[1]}"


def _can_start(one: _Key, runs: Container[_Key]) -> bool:
    """Return whether the checkpoint from which a run starts has been written."""
    return one[0] != "resumed" or ("truncated", one[1]) in runs


def _start(directory: RunDirectory, one: _Key) -> Process:
    options, (experiment, number) = directory.options, one
    folder = directory.start(_name(one))
    if experiment == "resumed":
        source = directory.folder(f"truncated-{number}")
        if not _copy_checkpoint(source, folder) and _CHECKPOINTS & placeholders(options.command):
            raise RuntimeError(
                f"fastseed.tools.verify: run {source.name} wrote no checkpoint to {{checkpoint}}: "
                f"no name in {source} begins with {CHECKPOINT!r}"
            )
    command = options.fill(experiment, folder)
    variables = options.variables(experiment, folder)
    return Process("tools.verify", _name(one), command, variables, folder, options.timeout)


def _copy_checkpoint(source: Path, folder: Path) -> bool:
    """Copy the checkpoint of a truncated run, which keeps its own; return False without one."""
    found = sorted(source.glob(CHECKPOINT + "*"))
    for path in found:
        # Links are followed: a resumed run must not write through one to the original.
        if path.is_dir():
            shutil.copytree(path, folder / path.name, ignore_dangling_symlinks=True)
        else:
            shutil.copy2(path, folder / path.name)
    return bool(found)


def _read(options: Options, one: _Key, folder: Path) -> Curve:
    pattern = options.log or "stdout.txt"
    found = [folder / pattern] if (folder / pattern).exists() else sorted(folder.glob(pattern))
    if len(found) != 1 or not found[0].is_file():
        files = ", ".join(sorted(path.name for path in folder.iterdir())[:20])
        raise ValueError(
            f"fastseed.tools.verify: log must be one file below {{run}}, got {pattern!r}, "
            f"which matches {len(found)} paths in {_name(one)}, with the files {files}"
        )
    return read_curve(found[0], value=options.value, step=options.step)

"""Proving that a training command repeats, resumes, and depends on its seed alone.

    from fastseed import verify

    report = verify.verify(
        "python train.py --epochs {epochs} --checkpoint {checkpoint} "
        "[ --resume {resume} or --seed {seed} ]".split(),
        directory="verification", epochs=8, log="metrics.jsonl",
    )
    assert report, report.says

The experiments, the places of the command and the verdicts: ``docs/verify.md``.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..._utils import validation
from ...derivation import streams
from ...seeder import api
from . import audit_run, diagnosis, recordings, verdict
from .command import PLACES
from .log_readers import read_curves
from .log_text import compiled
from .plan import LONGEST, check_flag, plan
from .result import (
    EXPERIMENTS,
    Band,
    Check,
    Curve,
    Difference,
    Finding,
    Interval,
    Paired,
    Report,
    Run,
)
from .run_directory import RunDirectory, opened
from .runner import Event, Progress, run_all

__all__ = [
    "EXPERIMENTS",
    "PLACES",
    "Band",
    "Check",
    "Curve",
    "Difference",
    "Event",
    "Finding",
    "Interval",
    "Paired",
    "Report",
    "Run",
    "verify",
]


def verify(
    command: Sequence[str],
    *,
    directory: str | os.PathLike[str],
    epochs: int,
    runs: int = 8,
    jobs: int = 1,
    seed: int = 0,
    control: bool = True,
    deterministic: bool | str = False,
    log: str | os.PathLike[str] | None = None,
    format: str | None = None,
    value: str = "loss",
    step: str | None = None,
    pattern: str | None = None,
    require: str = "bit-identical",
    probe: bool = True,
    timeout: float | None = None,
    restart: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Run a training command whole, half, resumed and unseeded, some times each, and compare.

    Whole runs have to repeat; half runs (X/2 epochs, with a checkpoint) have to be the same up to
    there; those resumed from it have to go on as the whole ones do; and runs without a seed have to
    differ, or the losses say nothing about seeds. What was run is kept in ``directory``, and is not
    run again by the next call.

    Args:
        command: the program and its arguments, with places (:data:`PLACES`); never shown to a
            shell. Seeded runs also get ``FASTSEED_MASTER_SEED`` and ``PYTHONHASHSEED``, and all of
            them ``FASTSEED_RUN_DIR``, where :class:`fastseed.debug.Watch` records by default.
        directory: of the runs; new, empty, or that of a verification of the same command.
        epochs: X, from 2.
        runs: how many of each experiment, [1, 10000]; one cannot show that runs repeat.
        jobs: how many at a time, from 1.
        seed: the master seed, [0, 2**64).
        control: run the unseeded experiment.
        deterministic: start all runs as `fastseed run --deterministic` does; or ``"warn"``.
        log: where a run writes its losses, below its folder (``{run}``); a pattern that matches one
            path. Its standard output by default.
        format: ``jsonl``, ``dlll``, ``csv``, ``tensorboard`` or ``regex``; found out by default.
        value: the name of the loss in it.
        step: the name of the step, or several with commas; found out by default.
        pattern: a regular expression for a line, with a group ``value`` and perhaps ``step``.
        require: what it takes to pass: ``bit-identical``; or ``variance``: that at least the seed
            makes the variance smaller (F test at 5%) and resuming changes nothing that can be told
            (the 99% interval holds 0).
        probe: where something differs, run once more under an audit of who draws what.
        timeout: seconds for a run.
        restart: throw away the runs that are there.
        progress: called with an :class:`Event` whenever a run begins or has ended, from the thread
            that runs it, one call at a time.

    Raises:
        TypeError, ValueError: an argument is wrong, or what a run wrote cannot be read.
        RuntimeError: a run failed or took too long; or another process is at work in ``directory``.
        OSError: ``directory`` cannot be written.
    """
    asked = plan(
        command, epochs=epochs, runs=runs, seed=seed, control=control, deterministic=deterministic,
        log=log, format=format, value=value, step=step, pattern=pattern,
    )  # fmt: skip
    _check_reading(format, value, step, pattern)
    for name, flag in (("probe", probe), ("restart", restart)):
        check_flag(name, flag)
    if progress is not None and not callable(progress):
        raise TypeError(
            f"fastseed.tools.verify: progress must be callable, got {validation.describe(progress)}"
        )
    jobs = validation.check_int("verify", "jobs", jobs, 1, 4096)
    _check_choice("require", require, tuple(verdict.REQUIRED))
    if timeout is not None:
        timeout = _check_seconds(timeout)
    with opened(directory, asked, restart=restart) as place:
        found = verdict.placed(
            run_all(place, jobs=jobs, timeout=timeout, progress=progress or (lambda _: None))
        )
        judged = verdict.judge(found, recordings.check(found, place.path))
        suspects = diagnosis.read_script(asked.command)
        notes = [*judged.notes, *place.notes]
        notes += [f"{file} changed while it was verified" for file in place.changed()]
        watched = False
        if probe and judged.verdict in (verdict.REDUCED, verdict.NOT):
            seen, why = audit_run.probe(place, timeout)
            suspects += seen
            notes += [why] * bool(why)
            watched = not why
        around = _environment(place, notes)
        if not all(check.identical for check in (*judged.checks[:3], judged.checks[4])):
            suspects += diagnosis.read_environment(around)
        findings = diagnosis.explain(judged.checks, found, place.path, suspects, watched)
        passed = judged.verdict in verdict.REQUIRED[require]
        return Report(
            passed=passed,
            verdict=judged.verdict,
            required=require,
            says=judged.says,
            runs=tuple(found),
            checks=verdict.not_required(judged.checks) if passed else judged.checks,
            findings=tuple(findings),
            bands=judged.bands,
            paired=judged.paired,
            variance_ratio=judged.variance_ratio,
            environment=around,
            plan=asked.document(),
            seconds=sum(run.seconds for run in found),
            versions=_versions(),
            notes=tuple(notes),
        )


def _environment(place: RunDirectory, notes: list[str]) -> tuple[tuple[Any, ...], ...]:
    """What differs between the first and the last time that runs were started."""
    from .. import environment

    sessions = place.sessions()
    if len(sessions) < 2:
        return ()
    try:
        found = environment.diff(sessions[0], sessions[-1])
    except (OSError, ValueError) as error:
        notes.append(f"the environments were not compared: {error}")
        return ()
    return tuple(tuple(one) for one in found)


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "fastseed": api.__version__,
    }


def _check_reading(format: str | None, value: str, step: str | None, pattern: str | None) -> None:
    """What reading a log would refuse, before a run has taken hours to write one."""
    read_curves((), format=format, value=value, step=step, pattern=pattern)
    if pattern is not None:
        compiled(pattern)
    if format is not None and (format == "regex") != (pattern is not None):
        must = "given with 'regex'" if pattern is None else f"None with {format!r}"
        raise ValueError(
            f"fastseed.tools.verify: pattern must be {must}, got {validation.describe(pattern)}"
        )
    named = "regex" if pattern is not None else format
    if named in ("dlll", "tensorboard", "regex") and step is not None:
        raise ValueError(
            f"fastseed.tools.verify: step must be None with {named!r}, which names its steps, "
            f"got {validation.describe(step)}"
        )


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        choices = " or ".join(map(repr, allowed))
        raise ValueError(
            f"fastseed.tools.verify: {name} must be {choices}, got {validation.describe(value)}"
        )


def _check_seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(
            "fastseed.tools.verify: timeout must be a number of seconds, "
            f"got {validation.describe(value)} of type {type(value).__name__}"
        )
    if not (0 < value <= LONGEST and math.isfinite(value)):
        raise ValueError(
            f"fastseed.tools.verify: timeout must be in (0, {LONGEST:g}] seconds, "
            f"got {validation.describe(value)}"
        )
    return float(value)

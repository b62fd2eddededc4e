"""Verify that a program repeats, survives a kill, and depends on its seed."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ..._utils import validation
from ...debug.reach import check_arguments
from ...determinism import hash_seed
from . import comparison, report, runs
from .report import Check, Report
from .runs import Run, Starter

__all__ = ["Check", "Report", "Run", "verify"]

_FUNCTION = "verify"
_MAX_TIMES, _MAX_RANKS, _MONTH = 10_000, 1024, 30 * 24 * 3600.0
_THREADS = "OMP_NUM_THREADS"
_SAME_SEED = (
    "the seed comes from elsewhere, or has no effect; call init() without a number, or put {seed} "
    "into the command"
)
_ANEW = (
    "began anew, so that nothing was resumed: write checkpoints to {run} before the middle of the "
    "run, and continue from them"
)
_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # docs/restarts.md


def verify(
    command: Sequence[str],
    *,
    times: int = 2,
    kill: bool = True,
    other_seed: bool = True,
    ranks: Sequence[int] | None = None,
    seed: int | None = None,
    seeds: Sequence[int] | None = None,
    allow: Mapping[str, str] = MappingProxyType({}),
    deterministic: bool | str = False,
    log: str | None = None,
    value: str = "loss",
    timeout: float | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[str | Run], object] = lambda event: None,
) -> Report:
    """Run a program whole, killed and started again, and with another seed; compare the runs.

    ``cli/verify.py`` says what the arguments mean. ``progress`` is called with what begins, in
    words, and with each run that has ended; ``out`` keeps the runs, the report and a picture.
    """
    validation.check_int(_FUNCTION, "times", times, 1, _MAX_TIMES)
    if seed is not None:
        validation.check_int(_FUNCTION, "seed", seed, 0, 2**64 - 1)
    others = [((seed or 0) + 1 + k) % 2**64 for k in range(times if other_seed else 0)]
    if seeds is not None:
        if seed is not None or ranks is not None or not other_seed:
            raise ValueError("fastseed.verify: seeds must be given without seed, ranks, other_seed")
        seed, *others = check_arguments(_FUNCTION, seeds, allow)
    elif allow:
        raise ValueError("fastseed.verify: allow must be given with seeds")
    if timeout is not None:
        timeout = validation.check_float(_FUNCTION, "timeout", timeout, 1e-3, _MONTH)
    if log is not None and (not log or Path(log).is_absolute() or ".." in Path(log).parts):
        rule = "a path below {run}, such as metrics/rank0.jsonl"
        raise validation.value_error(_FUNCTION, "log", rule, log)
    with tempfile.TemporaryDirectory(prefix="fastseed-verify-") as temporary:
        root = Path(temporary if out is None else out).absolute()
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise validation.value_error(_FUNCTION, "out", "a new or empty folder", str(root))
        root.mkdir(parents=True, exist_ok=True)
        given = (seed, others, deterministic, log, value, timeout, progress)
        starter = Starter(root, *given)
        if ranks is not None:
            found = _run_ranks(starter, command, ranks)
        else:
            found = _run_experiments(starter, command, times, kill)
            if seeds is not None:
                found = report.with_reach(found, seeds, allow)
        if out is not None:
            report.write(found, root)
    return found


def _run_experiments(starter: Starter, command: Sequence[str], times: int, kill: bool) -> Report:
    whole = [starter.start(runs.WHOLE, k, command) for k in range(times)]
    first = whole[0]
    if not (first.lines or first.losses.values or first.recording):
        rule = "a program that prints something, or records with fastseed.debug.Watch"
        got = "got no output (standard error, as of logging, is not compared)"
        raise ValueError(f"fastseed.{_FUNCTION}: command must be {rule}, {got}")
    notes: list[str] = []
    points = runs.kill_points(first) if kill else {}
    kills = max(times, len(points)) if points and times > 1 else min(1, len(points))
    count = 2 * kills + len(starter.other_seeds)
    seconds = first.seconds * (1.25 * kills + len(starter.other_seeds))
    starter.progress(f"{count} more runs, about {seconds:.0f} s")
    pairs = _kill_and_restart(starter, command, kills, points, notes) if kill else []
    other = [starter.start(runs.OTHER, k, command) for k in range(len(starter.other_seeds))]
    repeats = [comparison.compare_whole(first, one) for one in whole[1:]]
    anew = sum(comparison.began_anew(rest, first, starter.value) for _, rest in pairs)
    starts = [
        comparison.compare_stopped(one, first)
        for one, _ in pairs
        if one.recording or (one.losses.values if first.losses.values else one.lines)
    ]
    rests = [comparison.compare_resumed(*pair, first) for pair in pairs]
    changes = [comparison.compare_whole(first, one) for one in other]
    checks = [_check("repeat", "whole runs are equal", repeats)]
    if starter.seed is None and any(repeats):
        notes.append("runs got no seed: pass --seed N if the program calls init() without a number")
    if kill:
        checks.append(_check("stop", "a run that stops is equal up to there", starts))
        resumed = _check("resume", "a run that is started again gives the rest", rests)
        if anew and anew == len(pairs) and resumed.passed:
            resumed = resumed._replace(passed=None, message=f"{anew} of {len(pairs)} {_ANEW}")
        elif anew:
            text = "runs began anew after the kill, as without a checkpoint"
            notes.append(f"{anew} of {len(pairs)} {text}")
        checks.append(resumed)
    if starter.other_seeds:
        checks.append(_check("seed", "runs with another seed differ", changes))
    every = (*whole, *(one for one, _ in pairs), *(one for _, one in pairs), *other)
    if starter.fixed_hashes:
        notes.append(f"the runs had {hash_seed.VARIABLE} set, as `fastseed run` sets it")
    notes += comparison.notes_about(every)
    return Report(tuple(checks), every, starter.value, tuple(notes))


def _kill_and_restart(
    starter: Starter,
    command: Sequence[str],
    kills: int,
    points: Mapping[str, Callable[[Path], bool]],
    notes: list[str],
) -> list[tuple[Run, Run]]:
    if not points:
        notes.append("no run was killed: the whole run printed and recorded too little")
        return []
    pairs = []
    for k, point in zip(range(kills), itertools.cycle(points.values()), strict=False):
        stopped = starter.start(runs.STOPPED, k, command, kill_when=point)
        if stopped.killed:
            again = starter.start(runs.RESUMED, k, command, place=stopped.place)
            pairs.append((stopped, again))
        else:
            notes.append(f"run {stopped.name} ended before it was killed, so it is left out")
    notes.append(f"runs were killed at {', '.join([*points][:kills])}")
    return pairs


def _check(name: str, title: str, found: Sequence[str | None]) -> Check:
    """Return whether all comparisons found no difference, or for another seed whether all did."""
    must_differ = name == "seed"
    wrong = [text for text in found if (text is None) == must_differ]
    message = f"{len(found)} comparison(s), all {'differ' if must_differ else 'equal'}"
    if not found:
        return Check(name, title, None, "not checked")
    if wrong:
        how = f"are equal: {_SAME_SEED}" if must_differ else f"differ: {wrong[0]}"
        message = f"{len(wrong)} of {len(found)} {how}"
    return Check(name, title, not wrong, message)


def _run_ranks(starter: Starter, command: Sequence[str], counts: Sequence[int]) -> Report:
    for i, count in enumerate(counts):
        validation.check_int(_FUNCTION, f"ranks[{i}]", count, 1, _MAX_RANKS)
    if len(counts) < 2 or len(set(counts)) < len(counts):
        raise validation.value_error(_FUNCTION, "ranks", "at least two different numbers", counts)
    variables, notes = {_STORE: "1"}, []
    if not os.environ.get(_THREADS):
        variables[_THREADS] = "1"
        notes.append(
            f"all runs had {_THREADS}=1; set it in a job of one rank too: torchrun sets it for "
            "several processes only, and the number of threads changes bits"
        )
    started = []
    for count in counts:
        logs = ("--redirects", "3", "--log-dir", str(starter.root / f"ranks-{count}" / "ranks"))
        words = (*runs.TORCHRUN, "--nproc-per-node", str(count), *logs, *command)
        started.append(starter.start("ranks", count, words, variables=variables))
        comparison.recordings(started[-1])  # or an error, before the next run
    found, more = comparison.compare_ranks(started)
    different = [run.difference for run in found if run.difference]
    message = f"first difference: {different[0]}" if different else "the same bits on every number"
    check = Check("ranks", "the number of ranks changes no bit", not different, message)
    return Report((check,), tuple(started), notes=(*notes, *more), ranks=tuple(found))

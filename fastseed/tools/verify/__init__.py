"""Verify that a program repeats, survives a kill, and depends on its seed.

The experiments are those of the methodology of framework-reproducibility, with a real kill: whole
runs, runs that are killed in the middle and started again with the same command, and runs with
another seed, which must differ.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..._utils import validation
from ...debug.bisection import Bisection
from . import causes, comparison, report, runs
from .comparison import Measured
from .ranks import compare_ranks
from .report import Check, Report
from .runs import EXPERIMENTS, Run, Starter

__all__ = ["EXPERIMENTS", "Check", "Measured", "Report", "Run", "verify"]

_FUNCTION = "verify"
_MAX_TIMES, _MAX_RANKS, _MONTH = 10_000, 1024, 30 * 24 * 3600.0
_THREADS = "OMP_NUM_THREADS"
_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # docs/elastic.md

_Found = tuple[str | None, Bisection | None]


def verify(
    command: Sequence[str],
    *,
    times: int = 2,
    stop: Sequence[str] | None = None,
    resume: Sequence[str] | None = None,
    kill: bool = True,
    other_seed: bool = True,
    ranks: Sequence[int] | None = None,
    seed: int | None = None,
    deterministic: bool | str = False,
    log: str | None = None,
    value: str = "loss",
    step: str | None = None,
    timeout: float | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[Run], object] = lambda run: None,
) -> Report:
    """Run a program whole, killed and started again, and with another seed; compare the runs.

    Whole runs must be equal. A run that gets SIGKILL when half of the whole run's records of
    ``fastseed.debug.Watch``, else half of its lines of output, are there, and that is started again
    with the same command, must give the rest of the whole run. Runs with another seed must differ.
    Compared are losses, if a log or the output has them as JSON; else the lines of the output; and
    recordings. In the words of commands ``{run}`` is an empty folder for a run's output (the same
    one for a run that is started again) and ``{seed}`` the seed.

    Args:
        command: the program and its arguments, never passed to a shell. All runs get
            ``FASTSEED_RUN_DIR``, where ``fastseed.debug.Watch`` records by default.
        times: runs of each experiment, [1, 10000]; one cannot show that runs repeat.
        stop, resume: whole commands in place of the kill, for programs that need other arguments
            to stop in the middle and to resume.
        kill: whether to run this experiment.
        other_seed: whether to run with another seed.
        ranks: in place of all this, run a script under torchrun with each of these numbers of
            ranks, and compare what it records after every step.
        seed: the seed that ``init()`` without a number takes, [0, 2**64); None: the program's own.
        deterministic: start the program as ``fastseed run --deterministic`` does.
        log: the path of a log below ``{run}``, or a glob pattern that matches one path.
        value: the name of the loss; dots lead into JSON objects. In event files, the tag.
        step: the name of the step, or several names separated by commas.
        timeout: seconds for each run, at most 30 days; None for no limit.
        out: a new or empty folder that keeps the runs, the report and a picture of the losses.
        progress: called with each run that has ended.

    Raises:
        TypeError, ValueError: an argument is invalid, or there is nothing to compare.
        RuntimeError: a run cannot be started, failed or timed out.
        OSError: ``out`` cannot be written.

    Examples:
        >>> import sys
        >>> from fastseed.tools.verify import verify
        >>> program = [sys.executable, "-S", "-c", "import os; print(os.getpid())"]
        >>> report = verify(program, kill=False, other_seed=False)
        >>> report.verdict, report.checks[0].passed
        ('failed', False)
    """
    words = _check_command("command", command)
    validation.check_int(_FUNCTION, "times", times, 1, _MAX_TIMES)
    if (stop is None) != (resume is None):
        raise ValueError("fastseed.verify: stop and resume must be given together")
    if seed is not None:
        validation.check_int(_FUNCTION, "seed", seed, 0, 2**64 - 1)
    if timeout is not None:
        timeout = validation.check_float(_FUNCTION, "timeout", timeout, 1e-3, _MONTH)
    if log is not None and (Path(log).is_absolute() or ".." in Path(log).parts):
        rule = "a path below {run}, such as metrics/rank0.jsonl"
        raise validation.value_error(_FUNCTION, "log", rule, log)
    counts = None if ranks is None else _check_ranks(ranks)
    with tempfile.TemporaryDirectory(prefix="fastseed-verify-") as temporary:
        root = Path(temporary)
        if out is not None:
            root = Path(validation.check_path(_FUNCTION, "out", out)).absolute()
            if root.exists() and (not root.is_dir() or any(root.iterdir())):
                raise validation.value_error(_FUNCTION, "out", "a new or empty folder", str(root))
            root.mkdir(parents=True, exist_ok=True)
        starter = Starter(root, seed, deterministic, timeout, progress)
        if counts is not None:
            found = _run_ranks(starter, words, counts)
        else:
            middle = None
            if stop is not None and resume is not None:
                middle = _check_command("stop", stop), _check_command("resume", resume)
            experiments = _Experiments(starter, (log, value, step), words, times)
            found = experiments.run(middle, kill or middle is not None, other_seed)
        if out is not None:
            report.write(found, root)
    return found


def _check_command(argument: str, command: object) -> tuple[str, ...]:
    if isinstance(command, (str, bytes)) or not isinstance(command, Sequence) or not command:
        raise validation.type_error(_FUNCTION, argument, "a list of strings", command)
    return tuple(
        validation.check_instance(_FUNCTION, f"{argument}[{i}]", word, str, "a string")
        for i, word in enumerate(command)
    )


def _check_ranks(given: Sequence[int]) -> list[int]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise validation.type_error(_FUNCTION, "ranks", "a list of integers", given)
    counts = [
        validation.check_int(_FUNCTION, f"ranks[{i}]", one, 1, _MAX_RANKS)
        for i, one in enumerate(given)
    ]
    if len(counts) < 2 or len(set(counts)) < len(counts):
        raise validation.value_error(_FUNCTION, "ranks", "at least two different numbers", given)
    return counts


# ---------------------------------------------------------------- the four experiments


class _Experiments:
    """The runs of a verification, and their comparison."""

    def __init__(
        self,
        starter: Starter,
        log: tuple[str | None, str, str | None],
        command: tuple[str, ...],
        times: int,
    ) -> None:
        self._starter, self._log, self._command, self._times = starter, log, command, times
        self._measured: dict[str, list[Measured]] = {name: [] for name in EXPERIMENTS}
        self._notes: list[str] = []
        self._causes: list[str] = []

    def run(
        self, middle: tuple[tuple[str, ...], tuple[str, ...]] | None, stops: bool, other_seed: bool
    ) -> Report:
        """Run the experiments, and compare."""
        for k in range(self._times):
            self._start(runs.WHOLE, k, self._command)
        whole = self._measured[runs.WHOLE]
        if not (whole[0].lines or whole[0].curve or whole[0].run.recording):
            rule = "a program that prints something, or records with fastseed.debug.Watch"
            raise ValueError(f"fastseed.{_FUNCTION}: command must be {rule}, got no output")
        for k in range(self._times if stops else 0):
            self._stop_and_resume(k, middle)
        for k in range(self._times if other_seed else 0):
            self._start(runs.OTHER, k, self._command)
        checks = self._checks()
        every = [one for name in EXPERIMENTS for one in self._measured[name]]
        if any(check.passed is False for check in checks if check.name != "seed"):
            self._causes += causes.shared_files(self._command, every)
        notes = (*comparison.notes_about(every), *self._notes)
        unique = tuple(dict.fromkeys(self._causes))
        return Report(checks, tuple(every), self._log[1], unique, notes)

    def _start(self, experiment: str, number: int, command: Sequence[str], **how: object) -> Run:
        run = self._starter.start(experiment, number, command, **how)  # type: ignore[arg-type]
        self._measured[experiment].append(comparison.measure(run, *self._log))
        return run

    def _stop_and_resume(
        self, number: int, middle: tuple[tuple[str, ...], tuple[str, ...]] | None
    ) -> None:
        if middle is not None:
            place = self._start(runs.STOPPED, number, middle[0]).place
            self._start(runs.RESUMED, number, middle[1], place=place)
            return
        half = runs.half_of(self._measured[runs.WHOLE][0].run)
        if half is None:
            self._notes = ["no run was killed: the whole run printed and recorded too little"]
            return
        run = self._start(runs.STOPPED, number, self._command, kill_when=half)
        if not run.killed:
            self._measured[runs.STOPPED].pop()
            self._notes.append(f"run {run.name} ended before it was killed, so it is left out")
            return
        self._start(runs.RESUMED, number, self._command, place=run.place)

    def _checks(self) -> tuple[Check, ...]:
        whole, stopped, resumed, other = (self._measured[name] for name in EXPERIMENTS)
        repeats = [comparison.compare_whole(whole[0], one) for one in whole[1:]]
        starts = [comparison.compare_stopped(one, whole[0]) for one in stopped]
        pairs = zip(stopped, resumed, strict=True)
        rests = [comparison.compare_resumed(*pair, whole[0]) for pair in pairs]
        changed = [comparison.compare_whole(whole[0], one) for one in other]
        checks = (
            self._check("repeat", "whole runs are equal", repeats),
            self._check("stop", "a run that stops is equal up to there", starts),
            self._check("resume", "a run that is started again gives the rest", rests, True),
        )
        return (*checks, _check_seed(changed))

    def _check(
        self, name: str, title: str, found: Sequence[_Found], resumed: bool = False
    ) -> Check:
        if not found:
            return Check(name, title, None, "not checked")
        wrong = [text for text, _ in found if text is not None]
        for text, recorded in found:
            if text is not None and recorded is not None:
                self._causes.append(causes.explain(recorded, resumed))
                break
        message = f"{len(found)} comparison(s), all equal"
        if wrong:
            message = f"{len(wrong)} of {len(found)} differ: {wrong[0]}"
        return Check(name, title, not wrong, message)


def _check_seed(found: Sequence[_Found]) -> Check:
    title = "runs with another seed differ"
    if not found:
        return Check("seed", title, None, "not checked")
    same = sum(text is None for text, _ in found)
    if not same:
        return Check("seed", title, True, f"{len(found)} comparison(s), all differ")
    how = "call init() without a number, or put {seed} into the command"
    message = f"{same} of {len(found)} are equal: the seed comes from elsewhere, or has no effect"
    return Check("seed", title, False, f"{message}; {how}")


# ---------------------------------------------------------------- several numbers of ranks


def _run_ranks(starter: Starter, words: tuple[str, ...], counts: Sequence[int]) -> Report:
    """Run under torchrun with each number of ranks, and compare what is recorded.

    All runs have the same number of threads: torchrun sets it for several processes and not for
    one, and it changes bits.
    """
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
        command = (*runs.TORCHRUN, "--nproc-per-node", str(count), *logs, *words)
        started.append(starter.start("ranks", count, command, variables=variables))
    found, more = compare_ranks(started)
    different = [run.difference for run in found if run.difference]
    message = f"first difference: {different[0]}" if different else "the same bits on every number"
    check = Check("ranks", "the number of ranks changes no bit", not different, message)
    measured = tuple(Measured(run, run.lines(), None) for run in started)
    return Report((check,), measured, notes=(*notes, *more), ranks=tuple(found))

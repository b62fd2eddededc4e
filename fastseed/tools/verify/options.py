"""The options of a verification: checked once, stored with its runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..._utils import environ, validation
from ...derivation import streams
from ...determinism import launch
from . import logs
from .command import Template
from .result import EXPERIMENTS

CHECKPOINT = "checkpoint"
"""The start of the names that are copied from a truncated run to the resumed one."""
REQUIREMENTS = ("bit-identical", "variance")

_FUNCTION = "tools.verify"
_MONTH = 30 * 24 * 3600.0  # the longest time-out
_SEEDS = ("PYTHONHASHSEED", "PL_GLOBAL_SEED")  # Python's and Lightning's


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of :func:`fastseed.tools.verify.verify`.

    Args:
        command: the program and its arguments, with placeholders (:data:`PLACEHOLDERS`). It is
            never passed to a shell. Seeded runs also get the variables ``FASTSEED_MASTER_SEED``
            and ``PYTHONHASHSEED``; all runs get ``FASTSEED_RUN_DIR``, the folder where
            :class:`fastseed.debug.Watch` records by default.
        directory: folder of the runs: new, empty, or that of a verification of the same command.
        epochs: X, [2, 2**31).
        runs: number of runs of each experiment, [1, 10000]; 1 cannot show that runs repeat.
        jobs: number of runs at a time, [1, 4096].
        seed: master seed, [0, 2**64).
        baseline: also run the unseeded baseline.
        deterministic: start all runs as ``fastseed run --deterministic`` does; or ``"warn"``.
        log: the path of a run's log below the run's folder (``{run}``), or a glob pattern that
            matches one path. None reads the standard output.
        format: ``jsonl``, ``dlll``, ``csv`` or ``regex``; None detects it.
        value: the name of the loss; dots lead into JSON objects.
        step: the name of the step, or several names separated by commas. None uses the first of
            ``step``, ``global_step``, ``iteration`` and ``iter`` after the ``epoch``.
        pattern: a regular expression with a group ``value`` and optional groups ``step...``,
            searched in each line.
        require: ``bit-identical``, or ``variance``: it is enough that the seed reduces the
            variance (F test, 5%) and that resuming has no significant effect (the 99% interval
            contains 0).
        audit: if runs differ, run the command once more to detect unseeded random numbers.
        timeout: seconds for each run, at most 30 days; None for no limit.
        restart: discard the runs that are in ``directory``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has the wrong value.

    Example:
        >>> from fastseed.tools.verify import Options
        >>> command = ["train.py", "{epochs}", "{checkpoint}", "[", "{resume}", "]"]
        >>> options = Options(command=command, directory="runs", epochs=8)
        >>> options.fill("truncated", "/runs/truncated-0")
        ('train.py', '4', '/runs/truncated-0/checkpoint')
    """

    command: Sequence[str]
    directory: str | os.PathLike[str]
    epochs: int
    runs: int = 8
    jobs: int = 1
    seed: int = 0
    baseline: bool = True
    deterministic: bool | str = False
    log: str | os.PathLike[str] | None = None
    format: str | None = None
    value: str = "loss"
    step: str | None = None
    pattern: str | None = None
    require: str = "bit-identical"
    audit: bool = True
    timeout: float | None = None
    restart: bool = False

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "directory": _check_directory(self.directory),
            "epochs": validation.check_int(_FUNCTION, "epochs", self.epochs, 2, 2**31 - 1),
            "runs": validation.check_int(_FUNCTION, "runs", self.runs, 1, 10_000),
            "jobs": validation.check_int(_FUNCTION, "jobs", self.jobs, 1, 4096),
            "seed": validation.check_int(_FUNCTION, "seed", self.seed, 0, streams.MAX_MASTER),
            "log": _check_log(self.log),
        }
        for name in ("baseline", "audit", "restart"):
            checked[name] = validation.check_bool(_FUNCTION, name, getattr(self, name))
        choices = (True, False, "warn")
        validation.check_choice(_FUNCTION, "deterministic", self.deterministic, choices)
        validation.check_choice(_FUNCTION, "require", self.require, REQUIREMENTS)
        if self.timeout is not None:
            checked["timeout"] = validation.check_float(
                _FUNCTION, "timeout", self.timeout, 1e-3, _MONTH
            )
        self._check_reading()
        _check_placeholders(Template(self.command), self.baseline)
        checked["command"] = tuple(self.command)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.fill("truncated", "/") == self.fill("uninterrupted", "/"):
            raise validation.value_error(
                _FUNCTION, "command", "different for truncated runs, by {epochs} or [ {stop} ]",
                list(self.command),
            )  # fmt: skip

    def _check_reading(self) -> None:
        """Check how logs are read, before a run takes hours to write one."""
        validation.check_text(_FUNCTION, "value", self.value)
        for name in ("step", "pattern"):
            if getattr(self, name) is not None:
                validation.check_text(_FUNCTION, name, getattr(self, name))
        if self.format is not None:
            validation.check_choice(_FUNCTION, "format", self.format, logs.FORMATS)
        if self.pattern is not None:
            logs.compile_pattern(self.pattern)
        if self.format is not None and (self.format == "regex") != (self.pattern is not None):
            rule = "given if and only if format is 'regex'"
            raise validation.value_error(_FUNCTION, "pattern", rule, self.pattern)
        if self.step is not None and (self.pattern is not None or self.format == "dlll"):
            rule = "None with 'regex' and 'dlll', which name their steps"
            raise validation.value_error(_FUNCTION, "step", rule, self.step)

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments to run."""
        return EXPERIMENTS if self.baseline else EXPERIMENTS[:3]

    def fill(self, experiment: str, folder: str | os.PathLike[str]) -> tuple[str, ...]:
        """Return the command of a run in ``folder``."""
        truncated, checkpoint = experiment == "truncated", os.path.join(folder, CHECKPOINT)
        stop = str(self.epochs // 2)
        values = {
            "epochs": stop if truncated else str(self.epochs),
            "total": str(self.epochs),
            "run": os.fspath(folder),
            "checkpoint": checkpoint,
        }
        if truncated:
            values["stop"] = stop
        if experiment == "resumed":
            values["resume"] = checkpoint
        if experiment != "unseeded":
            values["seed"] = str(self.seed)
        return Template(self.command).fill(values)

    def variables(self, experiment: str, folder: Path) -> dict[str, str]:
        """Return the environment variables of a run in ``folder``."""
        seeded = experiment != "unseeded"
        remove = {environ.MASTER_SEED, environ.RUN_DIR, *(() if seeded else _SEEDS)}
        new = {name: value for name, value in os.environ.items() if name not in remove}
        seed = self.seed if seeded else None
        new |= launch.variables(new, seed=seed, deterministic=self.deterministic)
        if not seeded:
            new["PYTHONHASHSEED"] = "random"
        return {**new, environ.RUN_DIR: str(folder)}

    def document(self) -> dict[str, Any]:
        """Return the options as plain values, for JSON."""
        return {**asdict(self), "command": list(self.command), "directory": str(self.directory)}


def _check_directory(directory: Any) -> Path:
    rule = "a path"
    validation.check_instance(_FUNCTION, "directory", directory, (str, os.PathLike), rule)
    text = os.fsdecode(directory)
    if not text or "\0" in text:
        raise validation.value_error(_FUNCTION, "directory", rule, directory)
    return Path(text).absolute()


def _check_log(log: Any) -> str | None:
    """Return a path below a run's folder, with ``/``."""
    if log is None:
        return None
    rule = "a path below {run}, such as metrics/rank0.jsonl"
    validation.check_instance(_FUNCTION, "log", log, (str, os.PathLike), rule)
    path = PurePosixPath(Path(os.fsdecode(log)).as_posix())
    try:
        next(Path(os.devnull).glob(str(path)), None)  # "**x" and "" are not patterns
        valid = not path.is_absolute() and ".." not in path.parts and "\0" not in str(path)
    except (ValueError, NotImplementedError, IndexError):
        valid = False
    if not valid or not path.parts:
        raise validation.value_error(_FUNCTION, "log", rule, log)
    return str(path)


def _check_placeholders(template: Template, baseline: bool) -> None:
    required, names = template.required, template.names
    rules = [
        (bool({"epochs", "stop"} & names), "{epochs} or [ {stop} ], to stop half-way"),
        (bool({"checkpoint", "resume", "run"} & names), "{checkpoint} and [ {resume} ], to resume"),
        ("stop" not in required, "{stop} between [ and ], since only truncated runs have it"),
        ("resume" not in required, "{resume} between [ and ], since only resumed runs have it"),
        (
            not baseline or "seed" not in required,
            "{seed} between [ and ], since unseeded runs lack it (or baseline=False)",
        ),
    ]
    for fulfilled, rule in rules:
        if not fulfilled:
            raise ValueError(f"fastseed.{_FUNCTION}: command must have {rule}")

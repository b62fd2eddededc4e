"""The four experiments, and what is asked of them: a plan that a run directory keeps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..._utils import validation
from ...derivation import streams
from ...determinism import launch
from .command import Template
from .result import EXPERIMENTS

CHECKPOINT = "checkpoint"
"""The start of the names of what is copied from a half run to the resumed one."""
LONGEST = 30 * 24 * 3600.0  # seconds of a run

_SEEDS = ("PYTHONHASHSEED", "PL_GLOBAL_SEED")  # Python's and Lightning's
_WEIGHTS = {"whole": 1.0, "half": 0.5, "resumed": 0.5, "unseeded": 1.0}


@dataclass(frozen=True)
class Plan:
    """What is run, and how its losses are read. Checked by :func:`plan`."""

    command: tuple[str, ...]
    epochs: int
    runs: int
    seed: int
    control: bool
    deterministic: bool | str
    log: str | None
    format: str | None
    value: str
    step: str | None
    pattern: str | None

    @property
    def half(self) -> int:
        """X/2."""
        return self.epochs // 2

    def experiments(self) -> tuple[str, ...]:
        """Those that are run."""
        return EXPERIMENTS if self.control else EXPERIMENTS[:3]

    def weight(self, experiment: str) -> float:
        """How long a run takes, where a whole one takes 1."""
        return _WEIGHTS[experiment]

    def values(self, experiment: str, folder: Path) -> dict[str, str]:
        """What the places of the command become in a run of an experiment."""
        half = experiment == "half"
        values = {
            "epochs": str(self.half if half else self.epochs),
            "total": str(self.epochs),
            "run": str(folder),
            "checkpoint": str(folder / CHECKPOINT),
        }
        if half:
            values["stop"] = str(self.half)
        if experiment == "resumed":
            values["resume"] = str(folder / CHECKPOINT)
        if experiment != "unseeded":
            values["seed"] = str(self.seed)
        return values

    def arguments(self, experiment: str, folder: Path) -> tuple[str, ...]:
        """The command of a run of an experiment."""
        return Template(self.command).fill(self.values(experiment, folder))

    def environment(self, experiment: str, folder: Path, base: dict[str, str]) -> dict[str, str]:
        """The environment variables of one, on top of ``base``."""
        ours = (launch.MASTER_SEED, launch.RUN_DIR)
        new = {name: value for name, value in base.items() if name not in ours}
        seeded = experiment != "unseeded"
        if not seeded:
            new = {name: value for name, value in new.items() if name not in _SEEDS}
        new |= launch.variables(
            new, seed=self.seed if seeded else None, deterministic=self.deterministic
        )
        if not seeded:
            new["PYTHONHASHSEED"] = "random"
        new[launch.RUN_DIR] = str(folder)
        return new

    def document(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return {**asdict(self), "command": list(self.command)}


def plan(
    command: Sequence[str],
    *,
    epochs: int,
    runs: int = 8,
    seed: int = 0,
    control: bool = True,
    deterministic: bool | str = False,
    log: str | os.PathLike[str] | None = None,
    format: str | None = None,
    value: str = "loss",
    step: str | None = None,
    pattern: str | None = None,
) -> Plan:
    """A checked plan; the arguments are those of :func:`fastseed.tools.verify.verify`."""
    template = Template(command)
    epochs = validation.check_int("verify", "epochs", epochs, 2, 2**31 - 1)
    runs = validation.check_int("verify", "runs", runs, 1, 10_000)
    seed = validation.check_int("verify", "seed", seed, 0, streams.MAX_MASTER)
    check_flag("control", control)
    if not isinstance(deterministic, bool) and not (
        isinstance(deterministic, str) and deterministic == "warn"
    ):
        raise ValueError(
            "fastseed.tools.verify: deterministic must be True, False or 'warn', "
            f"got {validation.describe(deterministic)}"
        )
    _check_places(template, control)
    asked = Plan(
        template.command, epochs, runs, seed, control, deterministic, _inside(log),
        format, value, step, pattern,
    )  # fmt: skip
    somewhere = Path(os.sep)
    if asked.arguments("half", somewhere) == asked.arguments("whole", somewhere):
        raise ValueError(
            "fastseed.tools.verify: command must have {epochs} or {stop} where half runs take it, "
            f"got the same command for them: {validation.describe(list(template.command))}"
        )
    return asked


def check_flag(name: str, value: object) -> None:
    """TypeError for what is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(
            f"fastseed.tools.verify: {name} must be True or False, "
            f"got {validation.describe(value)} of type {type(value).__name__}"
        )


def _check_places(template: Template, control: bool) -> None:
    needs = [
        (
            {"epochs", "stop"},
            "{epochs} or [ … {stop} ]: a half run would be a whole one",
        ),
        (
            {"checkpoint", "resume", "run"},
            "{checkpoint} or [ … {resume} ]: a resumed run would begin anew",
        ),
    ]
    for some, rule in needs:
        if not some & template.places:
            raise ValueError(f"fastseed.tools.verify: command must have {rule}, got neither")
    for place, experiment in (("stop", "half"), ("resume", "resumed")):
        if place in template.fixed:
            raise ValueError(
                f"fastseed.tools.verify: command must have {{{place}}} between [ and ], since only "
                f"{experiment} runs have one, got it outside"
            )
    if control and "seed" in template.fixed:
        raise ValueError(
            "fastseed.tools.verify: command must have {seed} between [ and ], since unseeded runs have "
            "none (or control=False, for a script that always has one), got it outside"
        )


def _inside(log: str | os.PathLike[str] | None) -> str | None:
    """A path below a run's folder, with ``/``."""
    if log is None:
        return None
    if not isinstance(log, (str, os.PathLike)):
        raise TypeError(
            "fastseed.tools.verify: log must be a path, "
            f"got {validation.describe(log)} of type {type(log).__name__}"
        )
    path = PurePosixPath(Path(os.fsdecode(log)).as_posix())
    if path.is_absolute() or ".." in path.parts or not path.parts or not _is_pattern(str(path)):
        raise ValueError(
            "fastseed.tools.verify: log must be a path below {run}, as metrics/rank0.jsonl, "
            f"got {validation.describe(os.fspath(log))}"
        )
    return str(path)


def _is_pattern(text: str) -> bool:
    try:
        next(Path(os.devnull).glob(text), None)
    except (ValueError, NotImplementedError):  # "**" beside other characters, a NUL
        return False
    return "\0" not in text

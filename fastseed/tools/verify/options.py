"""The options of a verification, and the command with its placeholders (``docs/verify.md``)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..._utils import StateDict, environ, validation
from ...determinism import launch

EXPERIMENTS = ("uninterrupted", "truncated", "resumed", "unseeded")
"""X epochs; X/2 epochs with a checkpoint; from that checkpoint to X; X epochs without a seed."""

CHECKPOINT = "checkpoint"
"""The start of the names that are copied from a truncated run to the resumed one."""

PLACEHOLDERS = {
    "epochs": "number of epochs of this run: X, or X/2 in truncated runs",
    "total": "X in every run, for schedules that depend on it",
    "stop": "X/2; in truncated runs only",
    "seed": "the master seed; not in unseeded runs",
    "run": "the folder of this run",
    "checkpoint": "a path in it for the checkpoint (a file, a folder, or the start of a name)",
    "resume": "the same path, with a copy of the truncated run's checkpoint; in resumed runs only",
}
"""The names allowed in braces, and what replaces them."""

_FUNCTION = "tools.verify"
MONTH = 30 * 24 * 3600.0  # the longest time-out
_SEEDS = ("PYTHONHASHSEED", "PL_GLOBAL_SEED")  # Python's and Lightning's
_PLACEHOLDER = re.compile(r"\{(\{\w+\})\}|\{([A-Za-z_]\w*)\}")

_Groups = list[tuple[bool, list[list[str]]]]  # True for words in brackets; their alternatives


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of ``fastseed.tools.verify.verify``.

    Args:
        command: the program and its arguments, with placeholders (``PLACEHOLDERS``). It is
            never passed to a shell. Seeded runs also get the variables ``FASTSEED_MASTER_SEED``
            and ``PYTHONHASHSEED``; all runs get ``FASTSEED_RUN_DIR``, the folder where
            ``fastseed.debug.Watch`` records by default.
        directory: folder of the runs: new, empty, or that of a verification of the same command.
        epochs: X, [2, 2**31).
        runs: number of runs of each experiment, [1, 10000]; 1 cannot show that runs repeat.
        jobs: number of runs at a time, [1, 4096].
        seed: master seed, [0, 2**64).
        baseline: also run the unseeded baseline.
        deterministic: start all runs as ``fastseed run --deterministic`` does.
        log: the path of a run's log below the run's folder (``{run}``), or a glob pattern that
            matches one path. None reads the standard output.
        value: the name of the loss; dots lead into JSON objects. In event files, the tag.
        step: the name of the step, or several names separated by commas. None uses the first of
            ``step``, ``global_step``, ``iteration`` and ``iter`` after the ``epoch``.
        timeout: seconds for each run, at most 30 days; None for no limit.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has the wrong value.

    Examples:
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
    deterministic: bool = False
    log: str | None = None
    value: str = "loss"
    step: str | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        directory = validation.check_path(_FUNCTION, "directory", self.directory)
        checked: StateDict = {
            "directory": Path(directory).absolute(),
            "epochs": validation.check_int(_FUNCTION, "epochs", self.epochs, 2, 2**31 - 1),
            "runs": validation.check_int(_FUNCTION, "runs", self.runs, 1, 10_000),
            "jobs": validation.check_int(_FUNCTION, "jobs", self.jobs, 1, 4096),
            "seed": validation.check_int(_FUNCTION, "seed", self.seed, 0, 2**64 - 1),
        }
        for name in ("baseline", "deterministic"):
            checked[name] = validation.check_bool(_FUNCTION, name, getattr(self, name))
        for name in ("value", "step", "log"):
            if getattr(self, name) is not None or name == "value":
                validation.check_text(_FUNCTION, name, getattr(self, name))
        if self.log is not None and (Path(self.log).is_absolute() or ".." in Path(self.log).parts):
            rule = "a path below {run}, such as metrics/rank0.jsonl"
            raise validation.value_error(_FUNCTION, "log", rule, self.log)
        if self.timeout is not None:
            timeout = validation.check_float(_FUNCTION, "timeout", self.timeout, 1e-3, MONTH)
            checked["timeout"] = timeout
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "command", _check_command(self.command, self.baseline))

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
        return fill(self.command, values)

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

    def document(self) -> StateDict:
        """Return the options as plain values, for JSON."""
        return {**asdict(self), "command": list(self.command), "directory": str(self.directory)}


# ---------------------------------------------------------------- the command


def fill(command: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return ``command`` with ``values`` in place of its placeholders."""
    filled: list[str] = []
    for optional, alternatives in _parse(command):
        complete = [words for words in alternatives if placeholders(words) <= values.keys()]
        if complete or not optional:
            filled += (
                _PLACEHOLDER.sub(lambda found: found[1] or values[found[2]], word)
                for word in (complete or alternatives)[0]
            )
    return tuple(filled)


def placeholders(words: Sequence[str]) -> set[str]:
    """Return the names of the placeholders in words of a command."""
    return {found[2] for word in words for found in _PLACEHOLDER.finditer(word) if found[2]}


def check_words(function: str, command: object) -> tuple[str, ...]:
    """Return a command as a tuple; TypeError unless it is a list of strings."""
    if isinstance(command, (str, bytes)) or not isinstance(command, Sequence):
        raise validation.type_error(function, "command", "a list of strings", command)
    return tuple(
        validation.check_instance(function, f"command[{i}]", word, str, "a string")
        for i, word in enumerate(command)
    )


def _check_command(given: object, baseline: bool) -> tuple[str, ...]:
    command = check_words(_FUNCTION, given)
    names = placeholders(command)
    required = placeholders([word for optional, (words, *_) in _parse(command) if not optional
                       for word in words])  # fmt: skip
    rules = (
        (command and command[0] != "[", "begin with a program"),
        (names <= PLACEHOLDERS.keys(), f"have placeholders of {', '.join(PLACEHOLDERS)} only"),
        ({"epochs", "stop"} & names, "have {epochs} or [ {stop} ], to stop half-way"),
        ({"checkpoint", "resume", "run"} & names, "have {checkpoint} and [ {resume} ], to resume"),
        ("stop" not in required, "have {stop} between [ and ], since only truncated runs have it"),
        ("resume" not in required, "have {resume} between [ and ], since only resumed runs do"),
        (
            not baseline or "seed" not in required,
            "have {seed} between [ and ], since unseeded runs lack it (or baseline=False)",
        ),
    )
    for fulfilled, rule in rules:
        if not fulfilled:
            raise ValueError(f"fastseed.{_FUNCTION}: command must {rule}, got {list(command)!r}")
    return command


def _parse(command: Sequence[str]) -> _Groups:
    """Return the words one by one, and the groups in brackets with their alternatives."""
    groups: _Groups = []
    inside = False
    for word in command:
        if word in ("[", "]"):
            if inside == (word == "["):
                break
            inside = word == "["
            groups += [(True, [[]])] if inside else []
        elif not inside:
            groups.append((False, [[word]]))
        elif word == "or":
            groups[-1][1].append([])
        else:
            groups[-1][1][-1].append(word)
    else:
        if not inside:
            return groups
    rule = "a list with [ and ] in pairs, not nested"
    raise validation.value_error(_FUNCTION, "command", rule, list(command))

"""The result of a verification as plain values; the reports are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IDENTICAL, INCONCLUSIVE, DIFFERENT = "bit-identical", "inconclusive", "not reproducible"

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[Any]
"""Names of steps: int64, or text such as ``3/120``."""


@dataclass(frozen=True, eq=False)
class Curve:
    """The losses of one run.

    Attributes:
        steps: (n,) the name of each step, in order and without repeats; int64 or text.
        values: (n,) float64; the loss at each step.
        labelled: True if the log names its steps, False if they were counted from 0.
        digits: the largest number of significant digits of a value; 17 identify every double.
        notes: remarks about the log.
    """

    steps: Steps
    values: Floats
    labelled: bool = True
    digits: int = 17
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """The first step at which two runs have different losses.

    Attributes:
        a, b: the names of the runs, for example ``uninterrupted-0``.
        step: the step; None where the runs have no step in common.
        value_a, value_b: the losses at that step; None where a run lacks it.
        differing: the number of common steps with different losses.
        compared: the number of common steps.
    """

    a: str
    b: str
    step: str | None
    value_a: float | None
    value_b: float | None
    differing: int
    compared: int

    def __str__(self) -> str:
        if self.step is None:
            return f"{self.a} and {self.b} have no step in common"
        values = ("no loss" if one is None else repr(one) for one in (self.value_a, self.value_b))
        return (
            f"first difference between {self.a} and {self.b} at step {self.step}: "
            f"{' and '.join(values)} ({self.differing} of {self.compared} steps differ)"
        )


@dataclass(frozen=True)
class Check:
    """One question and its answer.

    Attributes:
        name: ``repeat``, ``truncate``, ``resume``, ``baseline`` or ``tensors``.
        title: the property that is checked: "runs with the same seed are identical".
        passed: the answer; None if it was not checked.
        message: the answer in a sentence.
        differences: the first difference of each pair that differs, at most 100.
        pairs: the number of pairs compared.
    """

    name: str
    title: str
    passed: bool | None
    message: str
    differences: tuple[Difference, ...] = ()
    pairs: int = 0


@dataclass(frozen=True, eq=False)
class Band:
    """Mean and standard deviation of one experiment, at the steps that all its runs have.

    Attributes:
        runs: the number of runs.
        steps: (n,) names of the steps.
        mean: (n,) float64.
        std: (n,) float64; sample standard deviation (n - 1); zeros for a single run.
    """

    runs: int
    steps: Steps
    mean: Floats
    std: Floats


@dataclass(frozen=True)
class Finding:
    """A cause, or a likely cause, of a difference.

    Attributes:
        kind: ``generator``, ``resume``, ``arithmetic``, ``tensor``, ``environment`` or
            ``baseline``.
        certain: True if it was observed; False if the script's text makes it likely.
        message: the cause in a sentence.
        where: file and line, run, or step; may be empty.
        fix: how to fix it; may be empty.
    """

    kind: str
    certain: bool
    message: str
    where: str = ""
    fix: str = ""


@dataclass(frozen=True, eq=False)
class Run:
    """One run of the command.

    Attributes:
        name: experiment and number, ``resumed-3``.
        experiment: one of ``fastseed.tools.verify.EXPERIMENTS``.
        number: from 0.
        command: the arguments it was started with.
        seconds: its duration.
        folder: its folder.
        curve: its losses.
    """

    name: str
    experiment: str
    number: int
    command: tuple[str, ...]
    seconds: float
    folder: str
    curve: Curve


@dataclass(frozen=True, eq=False)
class Report:
    """The result of a verification; true if it passed.

    Attributes:
        verdict: ``bit-identical``, which passes, ``not reproducible`` or ``inconclusive``.
        summary: the verdict in a sentence.
        runs: all runs, experiment by experiment.
        checks: the questions and their answers.
        findings: causes of differences, the most important first.
        bands: experiment -> mean and standard deviation.
        environment: differences between the environments of the first and the last session, as
            rows of ``fastseed.tools.environment.diff``.
        options, versions, notes: the options as plain values, those of Python, torch, NumPy and
            fastseed, and further remarks.
    """

    verdict: str
    summary: str
    runs: tuple[Run, ...]
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]
    bands: dict[str, Band]
    environment: tuple[tuple[Any, ...], ...]
    options: dict[str, Any]
    versions: dict[str, str]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.passed

    @property
    def passed(self) -> bool:
        """True if the verdict is ``bit-identical``."""
        return self.verdict == IDENTICAL

    @property
    def seconds(self) -> float:
        """The duration of all runs together."""
        return sum(run.seconds for run in self.runs)

    def of(self, experiment: str) -> tuple[Run, ...]:
        """Return the runs of one experiment."""
        return tuple(run for run in self.runs if run.experiment == experiment)

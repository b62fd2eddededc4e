"""The result of a verification as plain values; the reports are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

EXPERIMENTS = ("uninterrupted", "truncated", "resumed", "unseeded")
"""X epochs; X/2 epochs with a checkpoint; from that checkpoint to X; X epochs without a seed."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The losses of one run.

    Attributes:
        steps: the name of each step, in order and without repeats (``"7"``, ``"3/120"``).
        values: (n,) float64; the loss at each step.
        labelled: True if the log names its steps, False if they were counted from 0.
        digits: the largest number of significant digits of a value; 17 identify every double.
        notes: remarks about the log.
    """

    steps: tuple[str, ...]
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


@dataclass(frozen=True)
class Band:
    """Mean and standard deviation of one experiment, at the steps that all its runs have.

    Attributes:
        runs: the number of runs.
        steps: (n,) names of the steps.
        mean: (n,) float64.
        std: (n,) float64; sample standard deviation (n - 1); zeros for a single run.
    """

    runs: int
    steps: tuple[str, ...]
    mean: Floats
    std: Floats


@dataclass(frozen=True)
class Interval:
    """Student's t interval of a mean."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Paired:
    """Run by run, the loss of experiment ``b`` minus that of ``a``, at the steps that all have.

    Attributes:
        a, b: the experiments.
        pairs: the number of pairs of runs.
        steps: (n,) names of the steps.
        mean: (n,) float64; mean difference at each step.
        low95, high95, low99, high99: (n,) float64; its intervals of 95% and 99%; None with fewer
            than two pairs, or without SciPy.
        overall: the mean over all steps and pairs.
        interval95, interval99: its intervals, from one mean per pair; None as above.
        correlation: Pearson's, of the two mean curves; None where one is constant or not finite.
    """

    a: str
    b: str
    pairs: int
    steps: tuple[str, ...]
    mean: Floats
    low95: Floats | None
    high95: Floats | None
    low99: Floats | None
    high99: Floats | None
    overall: float
    interval95: Interval | None
    interval99: Interval | None
    correlation: float | None


@dataclass(frozen=True)
class Check:
    """One question and its answer.

    Attributes:
        name: ``repeat``, ``truncate``, ``resume``, ``baseline`` or ``tensors``.
        title: the property that is checked: "runs with the same seed are identical".
        passed: the answer; None if it was not checked.
        identical: True if all pairs that were compared are bit-identical.
        message: the answer in a sentence.
        differences: the first difference of each pair that differs, at most 100.
        pairs: the number of pairs compared.
    """

    name: str
    title: str
    passed: bool | None
    identical: bool
    message: str
    differences: tuple[Difference, ...] = ()
    pairs: int = 0


@dataclass(frozen=True)
class Finding:
    """A cause, or a likely cause, of a difference.

    Attributes:
        kind: ``generator``, ``worker``, ``resume``, ``arithmetic``, ``tensor``, ``environment``,
            ``baseline``, ``audit`` or ``lint``.
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


@dataclass(frozen=True)
class Run:
    """One run of the command.

    Attributes:
        name: experiment and number, ``resumed-3``.
        experiment: one of :data:`EXPERIMENTS`.
        number: from 0.
        command: the arguments it was started with.
        seconds: its duration.
        folder: its folder, relative to the run directory.
        curve: its losses.
    """

    name: str
    experiment: str
    number: int
    command: tuple[str, ...]
    seconds: float
    folder: str
    curve: Curve


@dataclass(frozen=True)
class Report:
    """The result of a verification; true if it passed.

    Attributes:
        passed: True if the verdict meets what was required.
        verdict: ``bit-identical``, ``variance reduced``, ``not reproducible`` or ``inconclusive``.
        required: ``bit-identical`` or ``variance``.
        summary: the verdict in a sentence.
        runs: all runs, experiment by experiment.
        checks: the questions and their answers.
        findings: causes of differences, the most important first.
        bands: experiment -> mean and standard deviation.
        paired: ``uninterrupted`` against truncated and resumed joined (``resumed``), and against
            ``unseeded``.
        variance_ratio: pooled variance of the seeded runs over that of the unseeded ones, at the
            steps that both have; None without unseeded runs, or where these do not vary.
        environment: differences between the environments of the first and the last session, as
            rows of :func:`fastseed.tools.environment.diff`.
        options: the options as plain values.
        seconds: the duration of all runs together.
        versions: of Python, torch, NumPy and fastseed.
        notes: further remarks.
    """

    passed: bool
    verdict: str
    required: str
    summary: str
    runs: tuple[Run, ...]
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]
    bands: dict[str, Band]
    paired: tuple[Paired, ...]
    variance_ratio: float | None
    environment: tuple[tuple[Any, ...], ...]
    options: dict[str, Any]
    seconds: float
    versions: dict[str, str]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.passed

    def of(self, experiment: str) -> tuple[Run, ...]:
        """Return the runs of one experiment."""
        return tuple(run for run in self.runs if run.experiment == experiment)

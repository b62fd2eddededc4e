"""What a verification finds out, as plain values: what the reports are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

EXPERIMENTS = ("whole", "half", "resumed", "unseeded")
"""X epochs; X/2 epochs with a checkpoint; from there to X; X epochs without a seed."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The losses that one run wrote.

    Attributes:
        steps: what each was called, in order and without repeats (``"7"``, ``"3/120"``).
        values: (n,) float64; the loss of each.
        labelled: whether the log names its steps; if not they were counted from 0.
        digits: the most significant digits that a value was written with; 17 tell all doubles.
        notes: what else is to be said about the log.
    """

    steps: tuple[str, ...]
    values: Floats
    labelled: bool = True
    digits: int = 17
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """The first step in which two runs have another loss.

    Attributes:
        a: the name of a run, as ``whole-0``.
        b: the other one's.
        step: where; None where one has steps that the other should have and has not.
        value_a: the loss of ``a`` there; None where it has none.
        value_b: that of ``b``.
        differing: in how many steps of both the losses differ.
        compared: how many steps both have.
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
    """What the runs of one experiment have in common, step by step (those that all of them have).

    Attributes:
        runs: how many there are.
        steps: (n,) names of the steps.
        mean: (n,) float64.
        std: (n,) float64; of the sample (divided by runs - 1); zeros for a single run.
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
    """Run by run, the loss of ``b`` less that of ``a``, over the steps that all have.

    Attributes:
        a: an experiment.
        b: the other one.
        pairs: how many pairs of runs.
        steps: (n,) names of the steps.
        mean: (n,) float64; the mean difference of each step.
        low95, high95, low99, high99: (n,) float64; its intervals of 95% and 99%.
        overall: the mean over all steps and pairs.
        interval95: of that, from one mean a pair; None with fewer than two pairs, or where SciPy
            is missing (as are then the arrays).
        interval99: the same.
        correlation: Pearson's, of the two mean curves; None where one of them is constant.
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
    """One question, and its answer.

    Attributes:
        name: ``repeat``, ``prefix``, ``resume``, ``control`` or ``tensors``.
        title: what is asked: "runs of the same seed repeat".
        passed: the answer; None where it was not asked.
        identical: whether all pairs that were compared are equal to the last bit.
        says: the answer in a sentence.
        differences: where pairs part; one a pair that differs, at most 100.
        pairs: how many pairs were compared.
    """

    name: str
    title: str
    passed: bool | None
    identical: bool
    says: str
    differences: tuple[Difference, ...] = ()
    pairs: int = 0


@dataclass(frozen=True)
class Finding:
    """Why runs differ, or what may make them.

    Attributes:
        kind: ``generator``, ``worker``, ``resume``, ``arithmetic``, ``tensor``, ``environment``,
            ``lint``, ``audit``, ``log`` or ``control``.
        certain: whether it was observed; if not it is what the script's text makes likely.
        says: what.
        where: the file and line, the run, or the step; may be empty.
        mend: what to do about it; may be empty.
    """

    kind: str
    certain: bool
    says: str
    where: str = ""
    mend: str = ""


@dataclass(frozen=True)
class Run:
    """One run of the command.

    Attributes:
        name: experiment and number, ``resumed-3``.
        experiment: one of :data:`EXPERIMENTS`.
        number: from 0.
        command: the arguments that it was started with.
        seconds: how long it took.
        folder: its folder, relative to the run directory.
        curve: what it wrote.
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
    """All that a verification found.

    Attributes:
        passed: what the exit code says.
        verdict: ``bit-identical``, ``variance reduced``, ``not reproducible`` or ``no control``.
        required: what had to be shown to pass: ``bit-identical`` or ``variance``.
        says: the verdict in a sentence.
        runs: all of them, experiment by experiment.
        checks: the questions, and their answers.
        findings: why not, what matters most first.
        bands: for each experiment that was run.
        paired: ``whole`` against half and resumed put together (``resumed``), and against
            ``unseeded``.
        variance_ratio: pooled variance of the seeded runs over that of the unseeded ones, over the
            steps that both have; None without unseeded runs, or where these do not vary.
        environment: what differs between the environments of two runs, as rows of
            :func:`fastseed.tools.environment.diff`.
        plan: command, epochs, runs, seed and the rest of what was asked for, as plain values.
        seconds: of all runs together.
        versions: of Python, torch, NumPy and fastseed.
        notes: what else is to be said.
    """

    passed: bool
    verdict: str
    required: str
    says: str
    runs: tuple[Run, ...]
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]
    bands: dict[str, Band]
    paired: tuple[Paired, ...]
    variance_ratio: float | None
    environment: tuple[tuple[Any, ...], ...]
    plan: dict[str, Any]
    seconds: float
    versions: dict[str, str]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.passed

    def of(self, experiment: str) -> tuple[Run, ...]:
        """The runs of one experiment."""
        return tuple(run for run in self.runs if run.experiment == experiment)

"""The result of a verification as plain values; the reports are made from it."""

from __future__ import annotations

from dataclasses import dataclass

from ..._utils import StateDict

IDENTICAL, INCONCLUSIVE, DIFFERENT = "bit-identical", "inconclusive", "not reproducible"


@dataclass(frozen=True)
class Curve:
    """The losses of one run.

    Attributes:
        values: name of the step (``17``, ``3/120``) -> the loss, in the order of the log.
        digits: the largest number of significant digits of a value; 17 identify every double.
        notes: remarks about the log.
    """

    values: dict[str, float]
    digits: int = 17
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One question and its answer.

    Attributes:
        name: ``repeat``, ``truncate``, ``resume``, ``baseline`` or ``tensors``.
        title: the property that is checked: "runs with the same seed are identical".
        passed: the answer; None if it was not checked.
        message: the answer in a sentence, with the first difference.
    """

    name: str
    title: str
    passed: bool | None
    message: str


@dataclass(frozen=True)
class Run:
    """One run of the command.

    Attributes:
        experiment: one of ``fastseed.tools.verify.EXPERIMENTS``.
        number: from 0.
        command: the arguments it was started with.
        seconds: its duration.
        folder: its folder.
        curve: its losses.
    """

    experiment: str
    number: int
    command: tuple[str, ...]
    seconds: float
    folder: str
    curve: Curve

    @property
    def name(self) -> str:
        """Experiment and number, ``resumed-3``."""
        return f"{self.experiment}-{self.number}"


@dataclass(frozen=True)
class Report:
    """The result of a verification; true if it passed.

    Attributes:
        verdict: ``bit-identical``, which passes, ``not reproducible`` or ``inconclusive``.
        summary: the verdict in a sentence.
        runs: all runs, experiment by experiment.
        checks: the questions and their answers.
        causes: why seeded runs differ, as far as recordings, checkpoints and environments say.
        options: the options as plain values.
        notes: further remarks.
    """

    verdict: str
    summary: str
    runs: tuple[Run, ...]
    checks: tuple[Check, ...]
    causes: tuple[str, ...]
    options: StateDict
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.passed

    @property
    def passed(self) -> bool:
        """True if the verdict is ``bit-identical``."""
        return self.verdict == IDENTICAL

    def of(self, experiment: str) -> tuple[Run, ...]:
        """Return the runs of one experiment."""
        return tuple(run for run in self.runs if run.experiment == experiment)

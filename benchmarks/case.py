"""The types of a benchmark: sides, contests, cases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch


class Unavailable(Exception):
    """The case cannot run here; the message says why, and the row shows it."""


class WrongAnswer(Exception):
    """The statement to be timed gives a wrong answer."""


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Let torch use ``n`` threads inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Side:
    """A statement, timed as it is written.

    The statement is compiled by :class:`torch.utils.benchmark.Timer` with ``names`` as its
    globals, so nothing stands between the timer and what is timed. ``clock`` is what it reads: one
    that stops leaves out part of the statement.
    """

    label: str
    statement: str
    names: dict[str, Any]
    threads: int = 1
    clock: Callable[[], float] = time.perf_counter

    def run(self, **overrides: Any) -> Any:
        """Run the statement once, with some names replaced; its value if it has one."""
        names = {**self.names, **overrides}
        with torch_threads(self.threads):
            try:
                code = compile(self.statement, self.label, "eval")
            except SyntaxError:
                exec(self.statement, names)
                return None
            return eval(code, names)


@dataclass(frozen=True)
class Contest:
    """A case made ready on this machine."""

    fastseed: Side
    baselines: tuple[Side, ...]  # ways to get the same from the baseline: the fastest counts
    check: Callable[[Contest], None]  # raises WrongAnswer
    frames: int | None = None  # how deep the stack is at the statement, where that matters
    context: Callable[[], AbstractContextManager[None]] = nullcontext  # around check and timing
    share: float = 1.0  # of the time to measure, where a clock leaves out most of the statement


@dataclass(frozen=True)
class Case:
    """One row: ``<operation>/<device>/<size>`` against a baseline.

    ``target`` is how many times faster than the baseline fastseed should be; None where there is no
    target, because the baseline does less, or is faster.
    """

    name: str
    baseline: str
    target: float | None
    build: Callable[[], Contest]  # may raise Unavailable

    @property
    def id(self) -> str:
        """The text that ``--only`` searches, unique among all cases."""
        return f"{self.name} vs {self.baseline}"


def expect(condition: object, what: str) -> None:
    """WrongAnswer unless the condition holds."""
    if not condition:
        raise WrongAnswer(what)

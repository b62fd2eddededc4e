"""The types of a benchmark: sides, contests, cases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch


class Unavailable(Exception):
    """Something cannot run here; the message says why, and the row shows it."""


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

    The statement is compiled with ``names`` as its globals, so nothing stands between the clock and
    what is timed.
    """

    label: str
    statement: str
    names: dict[str, Any]
    threads: int = 1
    clock: Callable[[], float] = time.perf_counter
    """What the host reads: a clock that stops leaves out part of the statement."""
    frames: int | None = None
    """How deep the stack is at the statement, where that matters."""
    is_kernel: bool = False
    """Whether it is timed between events of the device, where there is one."""

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


Ways = Callable[[], Sequence[Side]]
"""The ways to get the same from a contender, of which the fastest counts; may raise Unavailable."""


@dataclass(frozen=True)
class Contest:
    """A case made ready on this machine."""

    fastseed: Side
    check: Callable[[Side], object]
    """Raises WrongAnswer for the answer of ``fastseed``."""
    beside: Mapping[str, Ways] = field(default_factory=dict)
    """The contenders by the labels of the case."""
    check_beside: Callable[[Side], object] = Side.run
    """The same for each way of a contender."""
    context: Callable[[], AbstractContextManager[None]] = nullcontext
    """What is around checks and timing."""
    share: float = 1.0
    """Of the time to measure, where a clock leaves out most of the statement."""
    traffic: float = 0.0
    """The bytes that a kernel reads and writes."""
    reads: bool = False
    """Whether the ceiling of a kernel is a copy, else memset."""


@dataclass(frozen=True)
class Case:
    """An operation of one size; each of its contenders is a row."""

    operation: str
    size: str
    beside: Mapping[str, float | None]
    """The contenders, and how many times as fast as each of them fastseed should be, where it is
    known. Without contenders the case is one row."""
    build: Callable[[str], Contest]
    """Makes the contest on a device; may raise Unavailable."""
    threads: str = ""
    """Of the name: ``"2t"``, or ``"all"``."""
    devices: tuple[str, ...] = ("cpu",)
    headline: bool = False
    """Whether ``make bench`` runs it."""
    share: float | None = None
    """What share of its ceiling a kernel should reach."""

    def name(self, device: str) -> str:
        """Return the name on a device, unique among all cases."""
        where = f"{device}-{self.threads}" if self.threads else device
        return f"{self.operation}/{where}/{self.size}"


def expect(condition: object, what: str) -> None:
    """WrongAnswer unless the condition holds."""
    if not condition:
        raise WrongAnswer(what)

"""``deterministic()``: all that PyTorch needs to give the same bits twice, and what came of it."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from .._utils import validation
from . import hash_seed, settings
from .report import ABSENT, ALREADY, LATE, SEEN, SET, Report, Row
from .settings import KEEP, REPEATABLE, Switch, Variable

logger = logging.getLogger("fastseed")

VARIABLE = "FASTSEED_DETERMINISTIC"
MODES = {"1": False, "warn": True}  # of VARIABLE: warn_only


class Deterministic(Report):
    """The report of :func:`deterministic`, which knows the way back.

    Leaving it as a context, or :meth:`restore`, puts everything back as it was before the call,
    whatever has changed it since. Nested ones have to end in the reverse of their order.
    """

    def __init__(self, rows: list[Row], undo: list[Callable[[], None]]) -> None:
        super().__init__(rows)
        self._undo: list[Callable[[], None]] | None = undo

    def restore(self) -> None:
        """Put everything back; a second call does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            _run_all(undo)

    def __enter__(self) -> Deterministic:
        if self._undo is None:
            raise RuntimeError(
                "fastseed.deterministic: its settings were put back; call it again for new ones"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()


def deterministic(
    *,
    warn_only: bool = False,
    fill_uninitialized_memory: bool = True,
    attention: str = REPEATABLE,
) -> Deterministic:
    """Make this process deterministic as far as torch can, and report what took effect.

    A call, or a context that puts everything back: ``with fastseed.deterministic() as report:``.
    Seeds nothing. Settings are those of the process, for all threads.

    Args:
        warn_only: operations without a deterministic algorithm warn, rather than raise.
        fill_uninitialized_memory: ``torch.empty`` and its kin are filled, which costs time.
        attention: ``"repeatable"``: kernels of scaled_dot_product_attention that do not repeat are
            switched off (with ``warn_only`` flash and memory-efficient attention are among them);
            ``"keep"``: they are left alone.

    Returns:
        One row a setting: wanted, found before, now, and what became of it. What is read once and
        came too late is not set; it is reported, and logged as a warning. With CUDA running, torch
        is asked by a small product whether cuBLAS is deterministic.

    Raises:
        TypeError, ValueError: an argument is none of these.
        RuntimeError: a setting cannot be changed here (``torch.backends`` can freeze its flags).
            Everything is as it was.
    """
    for name, value in (
        ("warn_only", warn_only),
        ("fill_uninitialized_memory", fill_uninitialized_memory),
    ):
        if not isinstance(value, bool):
            raise TypeError(
                f"fastseed.deterministic: {name} must be a bool, got {validation.describe(value)} "
                f"of type {type(value).__name__}"
            )
    if attention not in settings.ATTENTION:
        raise ValueError(
            f"fastseed.deterministic: attention must be one of {settings.ATTENTION}, "
            f"got {validation.describe(attention)}"
        )
    switches = settings.switches(warn_only, fill_uninitialized_memory, attention)
    undo: list[Callable[[], None]] = []
    try:
        rows = [*_set_switches(switches, undo), *_set_variables(undo), _hash_row()]
    except BaseException:
        _run_all(undo)
        raise
    if not warn_only and attention != KEEP:
        rows += _flash_rows()
    rows += [Row(name, None, value, value, SEEN, why) for name, value, why in settings.seen()]
    report = Deterministic(rows, undo)
    for row in report.late:
        logger.warning("fastseed.deterministic: %s is too late: %s", row.setting, row.why)
    return report


def from_environment() -> Deterministic | None:
    """What ``fastseed run --deterministic`` asked of this process; None if it did not.

    Raises:
        ValueError: the variable holds something else.
    """
    mode = os.environ.get(VARIABLE)
    if mode is None or mode in ("", "0"):
        return None
    if mode not in MODES:
        raise ValueError(
            f"fastseed.init: {VARIABLE} must be one of {('0', *MODES)}, "
            f"got {validation.describe(mode)}"
        )
    return deterministic(warn_only=MODES[mode])


def _run_all(undo: list[Callable[[], None]]) -> None:
    """Run all of them, and raise the first error afterwards."""
    with contextlib.ExitStack() as stack:
        for step in undo:
            stack.callback(step)


# ---------------------------------------------------------------- switches


def _set_switches(switches: list[Switch], undo: list[Callable[[], None]]) -> Iterator[Row]:
    before = [switch.read() for switch in switches]  # all of them first: one may set another
    # They go back in the order in which they were set, for the same reason.
    undo.append(lambda: _put_back(switches, before))
    for switch, found in zip(switches, before, strict=True):
        try:
            if switch.read() != switch.wanted:
                switch.write(switch.wanted)
        except RuntimeError as error:
            raise RuntimeError(
                f"fastseed.deterministic: {switch.name} must be free to change, "
                f"got {validation.describe(found)} and {error}"
            ) from error
    for switch, found in zip(switches, before, strict=True):
        now = switch.read()
        if now != switch.wanted:
            raise RuntimeError(
                f"fastseed.deterministic: {switch.name} must become {switch.wanted}, "
                f"got {validation.describe(now)}"
            )
        status = ALREADY if found == now else SET
        yield Row(switch.name, switch.wanted, found, now, status, switch.why)


def _put_back(switches: list[Switch], before: list[Any]) -> None:
    def put_back(switch: Switch, found: Any) -> None:
        if switch.read() != found:
            switch.write(found)

    pairs = zip(switches, before, strict=True)
    # One that cannot be changed any more does not keep the others.
    _run_all([functools.partial(put_back, *pair) for pair in reversed([*pairs])])


def _flash_rows() -> Iterator[Row]:
    """What strict mode makes of the two kernels that it leaves on."""
    why = "strict mode takes its deterministic backward"
    for switch in settings.attention_kernels(warn_only=True)[1:3]:
        found = switch.read()
        yield Row(switch.name, None, found, found, SEEN, why)


# ---------------------------------------------------------------- variables


def _set_variables(undo: list[Callable[[], None]]) -> Iterator[Row]:
    for variable in settings.VARIABLES:
        before = os.environ.get(variable.name)
        missing = variable.absent()
        if missing is not None:
            yield Row(variable.name, variable.wanted, before, before, ABSENT, missing)
            continue
        undo.append(_putting_back(variable.name, before))
        yield _set_variable(variable, before)


def _set_variable(variable: Variable, before: str | None) -> Row:
    good = before is not None and variable.accepts(before)
    if not good:
        os.environ[variable.name] = variable.wanted
    # Asked with the value in place: a library that has not looked yet looks now.
    late = variable.late()
    if late is not None and (not good or variable.certain):
        _putting_back(variable.name, before)()
        return Row(variable.name, variable.wanted, before, before, LATE, _too_late(late))
    now = os.environ[variable.name]
    return Row(variable.name, variable.wanted, before, now, ALREADY if good else SET, variable.why)


def _too_late(why: str) -> str:
    return f"{why}; start with `fastseed run --deterministic`"


def _putting_back(name: str, value: str | None) -> Callable[[], None]:
    def put_back() -> None:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    return put_back


def _hash_row() -> Row:
    value, seed = hash_seed.found()
    wanted = "a number"
    if seed is not None:
        why = "the order of sets of strings repeats"
        return Row(hash_seed.VARIABLE, wanted, value, str(seed), ALREADY, why)
    why = "Python reads it before a script's first line"
    if value is not None:
        why += f", and does not hash with {validation.describe(value)}"
    return Row(hash_seed.VARIABLE, wanted, value, "random", LATE, _too_late(why))

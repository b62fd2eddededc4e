"""``fastseed.deterministic()``: what PyTorch needs to give the same bits twice, and its report.

``docs/determinism.md`` has the source of each setting.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch

from .._backend.private_torch import INDUCTOR
from .._utils import environ, validation
from .._utils.log import logger
from . import hash_seed
from .variables import VARIABLES, Variable

Value: TypeAlias = bool | int | str | None
"""The value of a setting; None: a variable that is not set."""

SET, UNCHANGED, TOO_LATE, UNAVAILABLE = "set", "unchanged", "too late", "unavailable"

KEEP, REPEATABLE = "keep", "repeatable"
MODES = {"1": False, "warn": True}  # values of FASTSEED_DETERMINISTIC: warn_only
_START = "; start with `fastseed run --deterministic`"


class Row(NamedTuple):
    """One setting, as ``torch.backends.cudnn.benchmark`` or ``PYTHONHASHSEED``, and its status.

    ``why`` is what the setting does, or why it has no effect.
    """

    setting: str
    wanted: Value
    before: Value
    now: Value
    status: str
    why: str


class Switch(NamedTuple):
    """A setting of this process that takes effect whenever it is set."""

    name: str
    wanted: Value
    read: Callable[[], Value]
    write: Callable[[Any], None]
    why: str

    def set(self, value: Value) -> None:
        if self.read() != value:
            self.write(value)


class Deterministic:
    """The report of ``deterministic``, and a context that restores all settings when left.

    ``rows`` has a row for each setting, and prints as a table. Settings belong to the process:
    threads that change them at once undo each other's changes.
    """

    def __init__(self, before: list[tuple[Switch, Value]]) -> None:
        self.rows: tuple[Row, ...] = ()
        self._before: list[tuple[Switch, Value]] | None = before  # None: all have been restored

    @property
    def ok(self) -> bool:
        """True if no setting was too late."""
        return all(row.status != TOO_LATE for row in self.rows)

    def __getitem__(self, setting: str) -> Row:
        """Return the row of a setting; KeyError if the report has no such row."""
        return {row.setting: row for row in self.rows}[setting]

    def __str__(self) -> str:
        lines = [["-" if cell is None else str(cell) for cell in row] for row in self.rows]
        lines.insert(0, list(Row._fields))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        form = "  ".join(f"{{:{width}}}" for width in widths)
        return "\n".join(form.format(*line).rstrip() for line in lines)

    def restore(self) -> None:
        """Restore every setting that was changed, even if it has changed again since."""
        errors = []
        for switch, found in self._before or ():  # in the order of setting
            try:
                switch.set(found)
            except Exception as error:  # a flag that torch.backends has frozen
                errors.append(error)
        if errors:
            raise errors[0]
        self._before = None

    def __enter__(self) -> Deterministic:
        if self._before is None:
            raise RuntimeError("fastseed.deterministic: call it again: the settings are restored")
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()


def deterministic(
    *,
    warn_only: bool = False,
    fill_uninitialized_memory: bool = True,
    attention: str = REPEATABLE,
) -> Deterministic:
    """Make PyTorch deterministic in this process, and report which settings took effect.

    It is a call, or a context that restores everything, as ``restore()`` of the report does. It
    seeds nothing.

    Args:
        warn_only: operations without a deterministic algorithm warn instead of raising.
        fill_uninitialized_memory: ``torch.empty`` and its like fill the memory, which costs time.
        attention: ``"repeatable"`` switches off kernels of ``scaled_dot_product_attention`` that do
            not repeat (with ``warn_only`` also flash and memory-efficient ones); or ``"keep"``.

    Returns:
        The report: for each setting the wanted value, the values before and now, and a status. A
        variable that its library has read already is not set: its status is ``"too late"``, and a
        warning is logged. If CUDA is initialized, a small product tests cuBLAS.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: ``torch.backends`` has frozen a flag. All settings are as before the call.

    Examples:
        >>> import torch, fastseed
        >>> with fastseed.deterministic() as report:
        ...     torch.are_deterministic_algorithms_enabled()
        True
        >>> report["torch.backends.cudnn.benchmark"].now
        False
    """
    fill = fill_uninitialized_memory
    validation.check_bool("deterministic", "warn_only", warn_only)
    validation.check_bool("deterministic", "fill_uninitialized_memory", fill)
    validation.check_choice("deterministic", "attention", attention, (REPEATABLE, KEEP))
    every = (*switches(warn_only, fill, attention), *map(_as_switch, VARIABLES))
    before = [(switch, switch.read()) for switch in every]  # of all first: one may set another
    report = Deterministic(before)
    try:
        set_now = _set_switches(before[: -len(VARIABLES)])
        report.rows = (*set_now, *map(_set_variable, VARIABLES), _hash_row())
        for row in report.rows:
            if row.status == TOO_LATE:
                logger.warning("fastseed.deterministic: %s is too late: %s", row.setting, row.why)
    except BaseException:
        report.restore()
        raise
    return report


def requested(function: str) -> bool | None:
    """Return ``warn_only`` if ``FASTSEED_DETERMINISTIC`` requests determinism; else None."""
    mode = environ.get(environ.DETERMINISTIC) or "0"
    validation.check_choice(function, environ.DETERMINISTIC, mode, ("0", *MODES))
    return MODES.get(mode)


def _set_switches(before: list[tuple[Switch, Value]]) -> list[Row]:
    for switch, _ in before:
        try:
            switch.set(switch.wanted)
        except RuntimeError as error:
            rule = f"must be free to change: {error}"
            raise RuntimeError(f"fastseed.deterministic: {switch.name} {rule}") from error
    status = {True: UNCHANGED, False: SET}
    return [
        Row(one.name, one.wanted, found, one.read(), status[found == one.wanted], one.why)
        for one, found in before
    ]


def _set_variable(variable: Variable) -> Row:
    name, wanted = variable.name, variable.wanted
    before = os.environ.get(name)
    missing = variable.unavailable()
    if missing is not None:
        return Row(name, wanted, before, before, UNAVAILABLE, missing)
    good = before is not None and variable.accepts(before)
    if not good:
        os.environ[name] = wanted
    late = variable.late()  # with the value in place: a library that has not read it does so now
    if late is not None and (not good or variable.certain):
        write_variable(name, before)
        return Row(name, wanted, before, before, TOO_LATE, late + _START)
    return Row(name, wanted, before, os.environ[name], UNCHANGED if good else SET, variable.why)


def _hash_row() -> Row:
    value, seed = hash_seed.found()
    if seed is not None:
        why = "the order of sets of strings repeats"
        return Row(hash_seed.VARIABLE, "a number", value, str(seed), UNCHANGED, why)
    why = "Python reads it before the script starts" + _START
    return Row(hash_seed.VARIABLE, "a number", value, "random", TOO_LATE, why)


def _as_switch(variable: Variable) -> Switch:
    name = variable.name
    write = functools.partial(write_variable, name)
    return Switch(name, variable.wanted, lambda: os.environ.get(name), write, variable.why)


def write_variable(name: str, value: str | None) -> None:
    """Set an environment variable; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def switches(warn_only: bool, fill: bool, attention: str) -> list[Switch]:
    """Return the switches in the order in which to set them: the first also sets Inductor's."""
    mode, result = ("warn only", "warn") if warn_only else (True, "raise RuntimeError")
    why = f"operations use a deterministic algorithm, or {result}"
    name = "torch.use_deterministic_algorithms"
    found = [Switch(name, mode, _read_algorithms, _write_algorithms, why)]
    attributes = (
        ("utils.deterministic.fill_uninitialized_memory", fill, "torch.empty returns known values"),
        ("backends.cudnn.deterministic", True, "cuDNN uses deterministic algorithms only"),
        ("backends.cudnn.benchmark", False, "the convolution algorithm is not chosen by timing"),
        ("backends.mkldnn.deterministic", True, "oneDNN uses deterministic primitives"),
        (f"{INDUCTOR}.deterministic", True, "compiled code is not chosen by timing"),
    )
    found += [_attribute(*attribute) for attribute in attributes]
    # With warnings only, the flash and memory-efficient kernels keep a faster backward, which adds
    # in any order: then the kernel in plain operations is the one that repeats.
    if attention != KEEP:
        found.append(_kernel("cudnn", False, "its backward is not deterministic"))
    if attention != KEEP and warn_only:
        why = "with warnings only its backward is not deterministic"
        found += [_kernel("flash", False, why), _kernel("mem_efficient", False, why)]
        found.append(_kernel("math", True, "the remaining kernel"))
    return found


def _read_algorithms() -> bool | str:
    if not torch.are_deterministic_algorithms_enabled():
        return False
    return "warn only" if torch.is_deterministic_algorithms_warn_only_enabled() else True


def _write_algorithms(value: bool | str) -> None:
    torch.use_deterministic_algorithms(bool(value), warn_only=value == "warn only")


def _attribute(path: str, wanted: bool, why: str) -> Switch:
    module, _, name = path.rpartition(".")
    holder = operator.attrgetter(module)(torch)
    read = functools.partial(getattr, holder, name)
    write = functools.partial(setattr, holder, name)
    return Switch(f"torch.{path}", wanted, read, write, why)


def _kernel(name: str, wanted: bool, why: str) -> Switch:
    cuda = torch.backends.cuda
    read = getattr(cuda, f"{name}_sdp_enabled")
    write = getattr(cuda, f"enable_{name}_sdp")
    return Switch(f"scaled_dot_product_attention: {name}", wanted, read, write, why)

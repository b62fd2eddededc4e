"""``fastseed.deterministic()``: what PyTorch needs to give the same bits twice, and its report."""

from __future__ import annotations

import os

from .._utils import environ, validation
from .._utils.log import logger
from . import hash_seed, settings
from .settings import REPEATABLE, SET, TOO_LATE, UNAVAILABLE, UNCHANGED, Deterministic, Row, Switch
from .variables import VARIABLES, Variable

MODES = {"1": False, "warn": True}  # values of FASTSEED_DETERMINISTIC: warn_only
_START = "; start with `fastseed run --deterministic`"


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
    validation.check_choice("deterministic", "attention", attention, settings.ATTENTION)
    switches = settings.switches(warn_only, fill, attention)
    report = Deterministic([*switches, *map(settings.variable, VARIABLES)])
    try:
        report.rows = (*_set_switches(switches), *map(_set_variable, VARIABLES), _hash_row())
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


def _set_switches(switches: list[Switch]) -> list[Row]:
    before = [switch.read() for switch in switches]  # of all first: one may set another
    for switch in switches:
        try:
            switch.set(switch.wanted)
        except RuntimeError as error:
            rule = f"must be free to change: {error}"
            raise RuntimeError(f"fastseed.deterministic: {switch.name} {rule}") from error
    status = {True: UNCHANGED, False: SET}
    return [
        Row(one.name, one.wanted, found, one.read(), status[found == one.wanted], one.why)
        for one, found in zip(switches, before, strict=True)
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
        settings.write_variable(name, before)
        return Row(name, wanted, before, before, TOO_LATE, late + _START)
    return Row(name, wanted, before, os.environ[name], UNCHANGED if good else SET, variable.why)


def _hash_row() -> Row:
    value, seed = hash_seed.found()
    if seed is not None:
        why = "the order of sets of strings repeats"
        return Row(hash_seed.VARIABLE, "a number", value, str(seed), UNCHANGED, why)
    why = "Python reads it before the script starts" + _START
    return Row(hash_seed.VARIABLE, "a number", value, "random", TOO_LATE, why)

"""Checks of states that come from files."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ..._utils import StateDict, validation


def check_state(
    function: str,
    noun: str,
    state: StateDict,
    expected: Mapping[str, str | int],
    others: Collection[str],
) -> None:
    """Raise TypeError or ValueError unless ``state`` has ``expected`` and the fields ``others``.

    Tensors are never read, since their memory may have been freed. ``noun`` is what loads the
    state, for the messages.
    """
    validation.check_instance(function, "state", state, dict, "a dict from state_dict()")
    fields, kind = sorted({*expected, *others}), expected["format"]
    if set(state) != set(fields):
        rule = f"a dict of {', '.join(fields)}"
        inner = [key for key, part in state.items() if type(key) is str and _format(part) == kind]
        if inner:
            rule = f"what state_dict() returned: pass state[{inner[0]!r}]"
        elif _format(state) not in (None, kind):
            rule = f"of format {kind!r}, but this is a state of {_format(state)!r}"
        keys = sorted(key if type(key) is str else validation.short_repr(key) for key in state)
        raise validation.value_error(function, "state", rule, keys)
    for field, value in expected.items():
        given = state[field]
        is_of_type = isinstance(given, (type(value), np.integer)) and not isinstance(given, bool)
        if not is_of_type or given != value:
            rule = f"{value!r}, as for this {noun}"
            raise validation.value_error(function, f"state[{field!r}]", rule, given)


def _format(state: object) -> str | None:
    """Return the format that a dict names; None for anything else."""
    given = state.get("format") if isinstance(state, dict) else None
    return given if isinstance(given, str) else None

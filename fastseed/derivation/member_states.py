"""The saved state of an object with many members: a pool of generators, a bank of streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from .._backend.reference import scalar
from .._utils import StateDict
from .._utils.validation import check_instance, value_error

Parsed = TypeVar("Parsed")


def save(kind: str, name: str, n: int, states: torch.Tensor) -> StateDict:
    """Return the members' states, as bytes, with what identifies the object they belong to."""
    return {
        "format": f"fastseed.{kind}",
        "version": 1,
        "derivation": scalar.DERIVATION_VERSION,
        "name": name,
        "n": n,
        "states": states,
    }


def parse(
    function: str,
    own: StateDict,
    state: StateDict,
    parse_states: Callable[[torch.Tensor], Parsed],
) -> Parsed:
    """Return the states in ``state`` as ``parse_states`` returns them.

    Args:
        own: what ``save`` returns for the object now.

    Raises:
        TypeError, ValueError: ``state`` is damaged, or that of another object.
    """
    check_instance(function, "state", state, dict, "a dict from state_dict()")
    if set(state) != set(own):
        rule = f"a dict of {', '.join(own)}"
        raise value_error(function, "state", rule, ", ".join(map(str, state)) or "nothing")
    for field, value in own.items():
        is_same = type(state[field]) is type(value) and field != "states" and state[field] == value
        if not is_same and field != "states":
            raise value_error(function, f"state[{field!r}]", repr(value), state[field])
    states = check_instance(function, "state['states']", state["states"], torch.Tensor, "a tensor")
    try:
        return parse_states(states)
    except (TypeError, ValueError) as error:
        raise ValueError(f"fastseed.{function}: state['states'] is invalid: {error}") from error

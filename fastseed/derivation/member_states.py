"""The saved state of an object with many members: a pool of generators, a bank of streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from .._backend.reference import scalar
from .._utils import StateDict
from .._utils.validation import check_instance, value_error

Parsed = TypeVar("Parsed")


class Members:
    """An object with many members, whose member i has the key of index i."""


def header(kind: str, name: str, n: int) -> StateDict:
    """Return what a state holds beside the members' states: which object it belongs to."""
    identity: StateDict = {"format": f"fastseed.{kind}", "version": 1}
    return identity | {"derivation": scalar.DERIVATION_VERSION, "name": name, "n": n}


def parse(
    function: str, own: StateDict, state: StateDict, parse_states: Callable[[torch.Tensor], Parsed]
) -> Parsed:
    """Return what ``parse_states`` makes of the states in ``state``; ``own`` is the header.

    TypeError or ValueError if ``state`` is damaged, or that of another object.
    """
    check_instance(function, "state", state, dict, "a dict from state_dict()")
    if set(state) != {*own, "states"}:
        rule = f"a dict of {', '.join(own)}, states"
        raise value_error(function, "state", rule, list(state))
    for field, value in own.items():
        if type(state[field]) is not type(value) or state[field] != value:
            raise value_error(function, f"state[{field!r}]", repr(value), state[field])
    states = check_instance(function, "state['states']", state["states"], torch.Tensor, "a tensor")
    try:
        return parse_states(states)
    except (TypeError, ValueError) as error:
        raise ValueError(f"fastseed.{function}: state['states'] is invalid: {error}") from error

"""The state of a :class:`~fastseed.random.StreamBank`: as a dictionary, and as bytes."""

from __future__ import annotations

from typing import Any

import torch

from .._backend import derive_ops, tensors
from .._utils.validation import check_instance, check_int, value_error
from . import distributions

FORMAT, VERSION = "fastseed.StreamBank", 1
_POSITION = "a multiple of 4 in [0, 2**56]"

State = tuple[torch.Tensor, torch.Tensor, bool]  # keys, positions, whether they are set


def state_dict(
    name: str, keys: torch.Tensor, positions: torch.Tensor, seeded: bool
) -> dict[str, Any]:
    """Return a state with copies of the tensors."""
    copies = {"keys": keys.clone(), "positions": positions.clone()}
    return {**_identity(name, len(keys)), "seeded": int(seeded), **copies}


def check_state(name: str, n: int, state: Any) -> State:
    """Return the contents of a state of a bank of this name and size."""
    function = "StreamBank.load_state_dict"
    check_instance(function, "state", state, dict, "a dict from state_dict()")
    expected = _identity(name, n)
    fields = (*expected, "seeded", "keys", "positions")
    if set(state) != set(fields):
        found = ", ".join(map(str, state)) or "nothing"
        raise ValueError(f"fastseed.{function}: state must hold {', '.join(fields)}, got {found}")
    for field, value in expected.items():
        if type(state[field]) is not type(value) or state[field] != value:
            raise value_error(function, f"state[{field!r}]", repr(value), state[field])
    seeded = check_int(function, "state['seeded']", state["seeded"], 0, 1)
    keys, positions = state["keys"], state["positions"]
    tensors.check_tensor(function, "state['keys']", keys, torch.uint64, (n, 2))
    tensors.check_tensor(function, "state['positions']", positions, torch.int64, (n,))
    bad = _invalid_position(positions)
    if bad is not None:
        raise value_error(function, f"state['positions'][{bad[0]}]", _POSITION, bad[1])
    return keys, positions, bool(seeded)


def pack(keys: torch.Tensor, positions: torch.Tensor, seeded: bool) -> torch.Tensor:
    """Return a state as uint8 on the CPU: keys, positions, and one byte for ``seeded``."""
    parts = (keys, positions, torch.tensor([seeded], device="cpu"))
    return torch.cat([part.cpu().view(torch.uint8).reshape(-1) for part in parts])


def unpack(states: torch.Tensor, n: int) -> State:
    """Return the contents of the bytes of n streams; ValueError if they are damaged."""
    tensors.check_tensor("StreamBank.load_states", "states", states, torch.uint8)
    if states.numel() != 24 * n + 1:
        raise ValueError(f"it must be {24 * n + 1} bytes, got {states.numel()}")
    states = states.to("cpu", copy=True, memory_format=torch.contiguous_format)
    keys = states[: 16 * n].view(torch.uint64).view(n, 2)
    positions = states[16 * n : 24 * n].view(torch.int64)
    seeded = int(states[-1])
    if seeded > 1:
        raise ValueError(f"its last byte must be 0 or 1, got {seeded}")
    bad = _invalid_position(positions)
    if bad is not None:
        raise ValueError(f"the position of stream {bad[0]} must be {_POSITION}, got {bad[1]}")
    return keys, positions, bool(seeded)


def _identity(name: str, n: int) -> dict[str, Any]:
    """Return the fields in which a state must agree with the bank."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "derivation": derive_ops.DERIVATION_VERSION,
        "name": name,
        "n": n,
    }


def _invalid_position(positions: torch.Tensor) -> tuple[int, int] | None:
    """Return the index of the first invalid position, and its value."""
    bad = (positions < 0) | (positions % 4 != 0) | (positions > distributions.MAX_WORDS)
    found = bad.nonzero()
    if found.numel() == 0:
        return None
    first = int(found[0])
    return first, int(positions[first])

"""The state of a ``fastseed.random.StreamBank``: as bytes, and as a dictionary of them."""

from __future__ import annotations

import torch

from .._backend import derive_ops, tensors
from .._utils import StateDict
from .._utils.validation import check_instance, value_error
from . import distributions

State = tuple[torch.Tensor, torch.Tensor, bool]  # keys, positions, whether they are set


def pack(keys: torch.Tensor, positions: torch.Tensor, seeded: bool) -> torch.Tensor:
    """Return a state as uint8 on the CPU: keys, positions, and one byte for ``seeded``."""
    if not tensors.has_data(keys):
        raise RuntimeError(
            "fastseed.random.StreamBank.states: the bank must have data, which meta and fake "
            "tensors do not"
        )
    parts = (keys, positions, torch.tensor([seeded], device="cpu"))
    return torch.cat([part.cpu().view(torch.uint8).reshape(-1) for part in parts])


def unpack(states: torch.Tensor, n: int) -> State:
    """Return the contents of the bytes of n streams; ValueError if they are damaged."""
    tensors.check_tensor("random.StreamBank.load_states", "states", states, torch.uint8)
    if states.numel() != 24 * n + 1:
        raise ValueError(f"it must be {24 * n + 1} bytes, got {states.numel()}")
    if not tensors.has_data(states):
        raise ValueError("it must have data, got a meta or fake tensor")
    states = states.to("cpu", copy=True, memory_format=torch.contiguous_format)
    keys = states[: 16 * n].view(torch.uint64).view(n, 2)
    positions = states[16 * n : 24 * n].view(torch.int64)
    seeded = int(states[-1])
    if seeded > 1:
        raise ValueError(f"its last byte must be 0 or 1, got {seeded}")
    bad = (positions < 0) | (positions % 4 != 0) | (positions > distributions.MAX_WORDS)
    for i in bad.nonzero()[:1].flatten().tolist():
        rule = "a multiple of 4 in [0, 2**56]"
        raise ValueError(f"the position of stream {i} must be {rule}, got {int(positions[i])}")
    return keys, positions, bool(seeded)


def unpack_states(states: torch.Tensor, n: int) -> State:
    """Return the contents of what ``StreamBank.states`` returned."""
    try:
        return unpack(states, n)
    except ValueError as error:
        function = "fastseed.random.StreamBank.load_states"
        raise ValueError(f"{function}: states is invalid: {error}") from error


def state_dict(name: str, n: int, states: torch.Tensor) -> StateDict:
    """Return the bytes with what identifies the bank that they belong to."""
    return {
        "format": "fastseed.StreamBank",
        "version": 1,
        "derivation": derive_ops.DERIVATION_VERSION,
        "name": name,
        "n": n,
        "states": states,
    }


def unpack_dict(name: str, n: int, state: StateDict) -> State:
    """Return the contents of a state of a bank of this name and size."""
    function = "random.StreamBank.load_state_dict"
    check_instance(function, "state", state, dict, "a dict from state_dict()")
    expected = state_dict(name, n, torch.empty(0))
    if set(state) != set(expected):
        rule = f"a dict of {', '.join(expected)}"
        raise value_error(function, "state", rule, ", ".join(map(str, state)) or "nothing")
    del expected["states"]
    for field, value in expected.items():
        if type(state[field]) is not type(value) or state[field] != value:
            raise value_error(function, f"state[{field!r}]", repr(value), state[field])
    check_instance(function, "state['states']", state["states"], torch.Tensor, "a tensor")
    try:
        return unpack(state["states"], n)
    except (TypeError, ValueError) as error:
        raise ValueError(f"fastseed.{function}: state['states'] is invalid: {error}") from error

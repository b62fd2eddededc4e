"""What a bank of streams is given: numbers for its streams, and states; checked."""

from __future__ import annotations

from typing import Any

import torch

from .._backend import draw_ops
from .._utils import validation
from . import distributions, functional

_INTEGERS = (
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
)
_POSITION = "a multiple of 4 in [0, 2**56]"


def signed(value: int) -> int:
    """The same 64 bits as the signed integer that an operator's schema has."""
    return value - 2**64 if value >= 2**63 else value


def check_values(function: str, argument: str, values: torch.Tensor, top: int) -> None:
    """Integers of [0, top], where looking at them costs no synchronisation."""
    if values.device.type != "cpu" or torch.compiler.is_compiling() or values.numel() == 0:
        return
    least, most = (int(v) for v in values.aminmax())
    if least < 0 or most > top:
        raise ValueError(
            f"fastseed.{function}: {argument} must be in [0, {top + 1}), "
            f"got {least if least < 0 else most}"
        )


def integers(
    function: str, argument: str, values: Any, n: int, device: torch.device, low: int, high: int
) -> torch.Tensor:
    """n integers modulo 2**64 as contiguous int64, where they were; they shall go to ``device``.

    Those of a sequence are checked to be in [low, high]; those of a tensor are not looked at.
    """
    if not isinstance(values, torch.Tensor):
        values = listed(function, argument, values, low, high)
    elif values.dtype not in _INTEGERS:
        raise TypeError(
            f"fastseed.{function}: {argument} must be integers, got dtype {values.dtype}"
        )
    if tuple(values.shape) != (n,):
        raise ValueError(
            f"fastseed.{function}: {argument} must be of shape ({n},), got {tuple(values.shape)}"
        )
    if values.device != device:
        draw_ops.refuse_capture(function, device, f"give {argument} as a tensor on {device}")
    values = values.contiguous()
    found: torch.Tensor = (
        values.view(torch.int64) if values.dtype == torch.uint64 else values.to(torch.int64)
    )
    return found


def listed(function: str, argument: str, values: Any, low: int, high: int) -> torch.Tensor:
    """A sequence of ints of [low, high] as int64 with the same 64 bits."""
    try:
        values = list(values)
    except TypeError as error:
        raise TypeError(
            f"fastseed.{function}: {argument} must be a tensor or a sequence of integers, "
            f"got {validation.describe(values)} of type {type(values).__name__}"
        ) from error
    checked = [
        signed(validation.check_int(function, f"{argument}[{i}]", value, low, high))
        for i, value in enumerate(values)
    ]
    return torch.tensor(checked, dtype=torch.int64, device="cpu")


def bad_position(positions: torch.Tensor) -> tuple[int, int] | None:
    """Where the first is that cannot be, and what it is."""
    bad = (positions < 0) | (positions % 4 != 0) | (positions > distributions.MAX_WORDS)
    found = bad.nonzero()
    if found.numel() == 0:
        return None
    first = int(found[0])
    return first, int(positions[first])


def split_states(states: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Keys, positions and whether they are set, of the bytes of n streams."""
    if states.numel() != 24 * n + 1:
        raise ValueError(f"it must be {24 * n + 1} bytes, got {states.numel()}")
    states = states.to("cpu", copy=True, memory_format=torch.contiguous_format)
    keys = states[: 16 * n].view(torch.uint64).view(n, 2)
    positions = states[16 * n : 24 * n].view(torch.int64)
    seeded = int(states[-1])
    if seeded > 1:
        raise ValueError(f"its last byte must be 0 or 1, got {seeded}")
    bad = bad_position(positions)
    if bad is not None:
        raise ValueError(f"of stream {bad[0]}, the position must be {_POSITION}, got {bad[1]}")
    return keys, positions, bool(seeded)


def check_state(facts: dict[str, Any], state: Any) -> None:
    """Refuse what ``StreamBank.state_dict`` did not write, or wrote for another bank."""
    function = "StreamBank.load_state_dict"
    if not isinstance(state, dict):
        raise TypeError(
            f"fastseed.{function}: state must be a dict from state_dict(), "
            f"got {validation.describe(state)} of type {type(state).__name__}"
        )
    fields = (*facts, "seeded", "keys", "positions")
    if set(state) != set(fields):
        raise ValueError(
            f"fastseed.{function}: state must hold {', '.join(fields)}, "
            f"got {', '.join(map(str, state)) or 'nothing'}"
        )
    for field, value in facts.items():
        if type(state[field]) is not type(value) or state[field] != value:
            raise ValueError(
                f"fastseed.{function}: state[{field!r}] must be {value!r}, "
                f"got {validation.describe(state[field])}"
            )
    validation.check_int(function, "state['seeded']", state["seeded"], 0, 1)
    n = facts["n"]
    tensors = (("keys", torch.uint64, (n, 2)), ("positions", torch.int64, (n,)))
    for field, dtype, shape in tensors:
        value, where = state[field], f"state[{field!r}]"
        functional.check_tensor(function, where, value, dtype)
        functional.check_place(function, where, value, shape, value.device)  # on any device
    bad = bad_position(state["positions"])
    if bad is not None:
        raise ValueError(
            f"fastseed.{function}: state['positions'][{bad[0]}] must be {_POSITION}, got {bad[1]}"
        )

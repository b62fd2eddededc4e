"""The state of a ``fastseed.random.StreamBank`` as bytes."""

from __future__ import annotations

import torch

from .._backend import tensors
from . import distributions

State = tuple[torch.Tensor, torch.Tensor, bool]  # keys, positions, whether they are set


def pack(keys: torch.Tensor, positions: torch.Tensor, seeded: bool) -> torch.Tensor:
    """Return a state as uint8 on the CPU: keys, positions, and one byte for ``seeded``."""
    if not tensors.has_data(keys):
        raise RuntimeError(
            "fastseed.random.StreamBank.state_dict: the bank must have data, which meta and fake "
            "tensors do not"
        )
    parts = (keys, positions, torch.tensor([seeded], device="cpu"))
    return torch.cat([part.cpu().view(torch.uint8).reshape(-1) for part in parts])


def unpack(states: torch.Tensor, n: int) -> State:
    """Return the contents of the bytes of n streams; ValueError if they are damaged."""
    tensors.check_tensor("random.StreamBank.load_state_dict", "states", states, torch.uint8)
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

"""Noticing that torch's default generators move, where all should be drawn from keys."""

from __future__ import annotations

import torch

from .._backend import native, private_torch


def positions() -> list[object]:
    """Return where torch's default generators are."""
    found: list[object] = []
    if native.generators is not None:
        found.append(native.generators.cpu_position())
    elif private_torch.is_plain_eager() and not private_torch.is_transformed():
        found.append(torch.default_generator.get_state().numpy().tobytes())
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
        found += [(g.initial_seed(), g.get_offset()) for g in torch.cuda.default_generators]
    return found


def have_moved(before: list[object]) -> bool:
    """Return whether a generator is elsewhere than ``positions()`` said before."""
    return positions()[: len(before)] != before

"""Noticing that torch's default generators move, where all should be drawn from keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .._backend import native, private_torch
from .fills import Arguments, Keywords

if TYPE_CHECKING:
    from .._backend.private_torch import OpOverload


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


class Checker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names the operator that moves a default generator."""

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        kwargs = kwargs or {}
        is_seeded = torch.Tag.nondeterministic_seeded in func.tags
        if not is_seeded or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        before = positions()
        found = func(*args, **kwargs)
        if have_moved(before):
            raise RuntimeError(
                f"fastseed.random.keyed: {func} drew from torch's generator, where Python calls no "
                "function that has a keyed form"
            )
        return found

"""The default generators of the accelerators of this process.

A device's member index is its ordinal relative to the rank's current device, modulo the number of
devices, so that a rank's own device has the same stream whether it sees one device or eight.

Nothing here initialises an accelerator. Where torch has not initialised one yet, the seeding is
queued: torch runs what is queued when it initialises, so the generators then start as they should.
"""

from __future__ import annotations

from typing import Any

import torch

from . import _native
from .streams import Stream

LAZY = ("cuda", "xpu")


def compiled_types() -> list[str]:
    """The accelerator types that this torch was built for: the same on every call."""
    found = []
    if torch.cuda._is_compiled():
        found.append("cuda")
    if torch.xpu._is_compiled():
        found.append("xpu")
    if torch.backends.mps.is_built():
        found.append("mps")
    return found


def relative_index(ordinal: int, current: int, count: int) -> int:
    """The member index of device ``ordinal`` of ``count``, seen from device ``current``."""
    return (ordinal - current) % count


def _default_generators(kind: str) -> list[torch.Generator]:
    if _native.generators is not None:
        return list(_native.generators.default_generators(kind))
    if kind == "mps":
        return [torch.mps._get_default_mps_generator()]
    return list(getattr(torch, kind).default_generators)


class AcceleratorSink:
    """The default generators of every visible device of one type: seed ``lo``, offset 0."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = f"torch.{kind}"
        self._waiting: Stream | None = None  # what the queued call will use: the latest

    def ready(self) -> bool:
        """Whether torch has initialised the accelerator in this process."""
        if self.kind == "mps":
            return torch.backends.mps.is_available()
        return bool(getattr(torch, self.kind).is_initialized())

    def refuse_capture(self, function: str) -> None:
        """RuntimeError while a CUDA graph is being captured on the current stream."""
        if self.kind == "cuda" and self.ready() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"fastseed.{function}: must not be called while a CUDA graph is captured, which "
                "would keep one seed for ever; call it between replays: each reads the seed anew"
            )

    def generators(self) -> list[torch.Generator]:
        """The default generators by ordinal; none before the accelerator is initialised."""
        return _default_generators(self.kind) if self.ready() else []

    def reseed_members(self, stream: Stream) -> None:
        """Give each device the key of its relative ordinal, now or when torch initialises."""
        if self.ready():
            self._apply(stream)
            return
        self._waiting = stream
        if self.kind in LAZY:
            self._queue()

    def _apply(self, stream: Stream) -> None:
        generators = _default_generators(self.kind)
        current = 0 if self.kind == "mps" else int(getattr(torch, self.kind).current_device())
        for ordinal, generator in enumerate(generators):
            key = stream.key(relative_index(ordinal, current, len(generators)))
            generator.manual_seed(key & (2**64 - 1))

    def _apply_waiting(self) -> None:
        if self._waiting is not None:
            self._apply(self._waiting)

    def _queue(self) -> None:
        """Queue the seeding once more, in place of our last one, so that whoever seeded last wins.

        torch's tracker holds one call that seeds all devices, with a traceback for its error
        message; formatting that would cost more than all the rest of a reseed, so it is left out.
        """
        module: Any = getattr(torch, self.kind)
        tracker = getattr(module, "_lazy_seed_tracker", None)
        if tracker is None:
            module._lazy_call(self._apply_waiting, seed_all=True)
        else:
            tracker.queue_seed_all(self._apply_waiting, ["fastseed.reseed\n"])

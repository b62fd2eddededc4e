"""The default generators of the accelerators of this process.

Nothing here initializes an accelerator: torch runs what is queued when it initializes one.
"""

from __future__ import annotations

from typing import Any

import torch

from .._backend import native, private_torch
from .._backend.compile import BETWEEN_REPLAYS, refuse_capture
from ..derivation.streams import Stream
from .adapter import LOW64
from .torch_rng import pack_states, parse_states


def compiled_types() -> list[str]:
    """Return the accelerator types that this torch was built for, and that of a plug-in."""
    is_built = {
        "cuda": torch.version.cuda is not None or torch.version.hip is not None,
        "xpu": torch.version.xpu is not None,
        "mps": torch.backends.mps.is_available(),
    }
    kinds = [kind for kind in is_built if is_built[kind]]
    current = torch.accelerator.current_accelerator()
    if current is not None and current.type not in kinds:
        kinds.append(current.type)
    return kinds


def relative_index(ordinal: int, current: int, count: int) -> int:
    """Return the member index of a device: 0 for the rank's own, however many devices it sees."""
    return (ordinal - current) % count


class AcceleratorGenerators:
    """The default generators of every visible device of one type: seed ``lo``, offset 0."""

    in_one_call = native.generators is not None
    """True if native code seeds all devices; otherwise a loop in Python does."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = f"torch.{kind}"
        self._waiting: Stream | None = None  # what the queued call will use

    @property
    def _module(self) -> Any:
        return getattr(torch, self.kind, None)

    def ready(self) -> bool:
        """Return whether torch has initialized the accelerator in this process."""
        is_initialized = getattr(self._module, "is_initialized", None)
        return is_initialized is None or bool(is_initialized())

    def refuse_capture(self, function: str) -> None:
        """Raise RuntimeError while the current stream captures a CUDA graph."""
        if self.kind == "cuda" and self.ready():
            refuse_capture(function, torch.device("cuda"), BETWEEN_REPLAYS)

    def generators(self) -> list[torch.Generator]:
        """Return the default generators by ordinal; an empty list before initialization."""
        return self._default_generators() if self.ready() else []

    def reseed(self, stream: Stream) -> None:
        """Give each device the key of its relative ordinal, now or when torch initializes."""
        if self.ready():
            self._apply(stream)
        else:
            self._waiting = stream
            self._queue()

    def state(self) -> torch.Tensor | None:
        """Return the states of all devices; None before the accelerator is initialized."""
        generators = self.generators()
        return pack_states(generators) if generators else None

    def parse_state(self, state: torch.Tensor) -> list[torch.Tensor]:
        """Return the state of each device; ValueError if they are not those of these devices."""
        if not self.ready():
            raise ValueError("its accelerator must be initialized first")
        return parse_states("load_state_dict", self.generators(), state)

    def save(self) -> list[torch.Tensor] | Stream | None:
        """Return the states by ordinal; before initialization the stream that it starts with."""
        if self.ready():
            return [generator.get_state() for generator in self.generators()]
        return self._waiting

    def restore(self, saved: list[torch.Tensor] | Stream | None) -> None:
        """Restore what ``save`` returned, also if torch initialized the accelerator since."""
        if isinstance(saved, list):
            for generator, state in zip(self.generators(), saved, strict=True):
                generator.set_state(state)
        elif saved is not None:
            self.reseed(saved)
        elif not self.ready():
            self._waiting = None

    def _default_generators(self) -> list[torch.Generator]:
        if native.generators is not None:
            return list(native.generators.default_generators(self.kind))
        if self.kind == "mps":
            return [private_torch.mps_generator()]
        return list(getattr(self._module, "default_generators", ()))

    def current_device(self) -> int:
        """Return the ordinal of the device that torch uses by default."""
        if self.kind == "mps":
            return 0
        if native.generators is not None:
            return int(native.generators.current_device(self.kind))
        return int(self._module.current_device())

    def _apply(self, stream: Stream) -> None:
        if self.in_one_call:
            native.generators.reseed_defaults(
                self.kind, self.current_device(), *stream.name_key, stream.rank_word, stream.worker
            )
            return
        generators = self._default_generators()
        current = self.current_device() if generators else 0
        for ordinal, generator in enumerate(generators):
            key = stream.key(relative_index(ordinal, current, len(generators)))
            generator.manual_seed(key & LOW64)

    def _apply_waiting(self) -> None:
        if self._waiting is not None:
            self._apply(self._waiting)

    def _queue(self) -> None:
        """Queue the seeding instead of the previous one, so that the last seeding wins."""
        if not private_torch.queue_seeding(self._module, self._apply_waiting, "fastseed.reseed"):
            raise RuntimeError(
                f"torch.{self.kind} queues no seed before it is initialized: initialize it first"
            )

"""The scope of the job in memory, for compiled models and captured graphs, which read it there.

It lies in a tensor on each device that is in use; ``reseed`` writes it in place.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from .._backend.reference.scalar import signed
from ..derivation import context
from ..derivation.place import Place

CPU = torch.device("cpu")


class ScopeTensor(NamedTuple):
    """Key and tweak of the scope on one device."""

    scope: torch.Tensor  # (2,) uint64
    words: tuple[torch.Tensor, torch.Tensor]  # its elements, as int64
    process_id: int

    @property
    def is_usable(self) -> bool:
        """Return whether this process can use it: a child of fork cannot use an accelerator's."""
        return self.scope.device.type == "cpu" or self.process_id == os.getpid()


class _ProcessState:
    """The state of the process: one object, whose attributes compiled code guards."""

    def __init__(self) -> None:
        self.devices: dict[torch.device, ScopeTensor] = {}
        self.has_keys = False  # whether there is a scope to take keys from
        self.current: torch.device | None = None  # that of CUDA, where it was in use at `reseed`


process_state = _ProcessState()


def on_device(function: str, device: torch.device) -> torch.Tensor:
    """Return the scope on a device, (2,) uint64, made at its first use or by a ``reseed``."""
    held = process_state.devices.get(device)
    if held is None:
        check_not_compiling(function, device)
        with torch.inference_mode(False):
            held = _add(process_state.devices[CPU].scope.to(device))
    return held.scope


def _add(scope: torch.Tensor) -> ScopeTensor:
    words = scope.view(torch.int64)
    held = process_state.devices[scope.device] = ScopeTensor(
        scope, (words[0], words[1]), os.getpid()
    )
    return held


def words() -> tuple[int, ...]:
    """Return key and tweak of the scope, as they are on the CPU."""
    return tuple(_memory)


def check_not_compiling(function: str, device: torch.device) -> None:
    if torch.compiler.is_compiling():
        raise RuntimeError(
            f"fastseed.{function}: call fastseed.reseed when {device} is in use, in the thread of "
            "the compiled model and before it runs for the first time"
        )


def _write() -> None:
    place: Place | None = None if context.seeder is None else context.seeder.place
    process_state.has_keys = place is not None and place.scope is not None
    words = (0, 0) if place is None else place.scope_key
    process_state.current = None
    if torch.cuda.is_initialized() and torch.cuda.is_available():  # type: ignore[no-untyped-call]
        process_state.current = torch.device("cuda", torch.cuda.current_device())
        on_device("reseed", process_state.current)
    _memory[0], _memory[1] = words  # in a tenth of the time that copy_ from a new tensor takes
    torch.autograd.graph.increment_version(_on_cpu)
    for held in tuple(process_state.devices.values()):
        if held.scope is not _on_cpu and held.is_usable:
            for target, word in zip(held.words, words, strict=True):
                target.fill_(signed(word))  # by value: a copy from memory would wait for the device


with torch.inference_mode(False):
    _on_cpu = _add(torch.zeros(2, dtype=torch.uint64, device=CPU)).scope
_memory: memoryview[int] = memoryview(_on_cpu.numpy())  # type: ignore[arg-type]
_write()  # a name may be loaded at its first use, after reseed
context.observe_scope(_write)

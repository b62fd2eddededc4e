"""Pickles that start a worker."""

from __future__ import annotations

import multiprocessing.context
import multiprocessing.reduction
from typing import Any

import torch

from ...generators.adapter import pack


def is_spawning() -> bool:
    """Return True while objects are pickled to start a process."""
    return multiprocessing.context.get_spawning_popen() is not None


def send_generators() -> None:
    """Let ``multiprocessing`` send a ``torch.Generator`` by its bytes, from now on.

    torch (2.10 to 2.13) sends its state as a tensor in shared memory, which is gone before the
    spawned process opens it.
    """
    multiprocessing.reduction.ForkingPickler.register(torch.Generator, _reduce_generator)


def _reduce_generator(generator: torch.Generator) -> tuple[Any, ...]:
    return _rebuild_generator, (str(generator.device), generator.get_state().numpy().tobytes())


def _rebuild_generator(device: str, state: bytes) -> torch.Generator:
    generator = torch.Generator(device)
    generator.set_state(pack(state))
    return generator

"""The exact states of random generators, read through their adapters; nothing is changed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch

from ..generators.accelerator import AcceleratorGenerators, compiled_types
from ..generators.adapter import unpack
from ..generators.default import DefaultGenerators
from ..seeder.registry import adapter_for


def bytes_of(generator: object) -> bytes:
    """Return the exact state of a generator; nothing if it cannot be read."""
    if isinstance(generator, random.Random) and type(generator) is not random.Random:
        return repr(generator.getstate()).encode()  # of any form
    try:
        state = adapter_for(generator).state()
    except Exception:  # of a bit generator of another library
        state = None
    return b"" if state is None else unpack(state)


def states_of_defaults() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and state of each default generator, of accelerators once initialized."""
    for name, adapter in DefaultGenerators().adapters.items():
        state = adapter.state()
        assert state is not None
        yield name, state
    for kind in compiled_types():
        for ordinal, generator in enumerate(AcceleratorGenerators(kind).generators()):
            yield f"torch.{kind}:{ordinal}", generator.get_state()

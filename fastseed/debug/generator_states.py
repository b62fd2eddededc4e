"""Read the exact states of random generators; nothing is drawn and no state is set."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ..generators.accelerator import AcceleratorGenerators, compiled_types


def state_of(generator: Any) -> torch.Tensor:
    """Return the exact state of a generator, with what it has cached, as 1-D uint8."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if type(generator) is random.Random:
        version, words, gauss = generator.getstate()
        data = np.array(words, np.uint32).tobytes() + repr((version, gauss)).encode()
    elif isinstance(generator, random.Random):
        data = repr(generator.getstate()).encode()
    else:
        if isinstance(generator, np.random.RandomState):
            state: dict[str, Any] = dict(generator.get_state(legacy=False))
        else:
            state = dict(generator.bit_generator.state)
        inner = state.pop("state")
        if state["bit_generator"] == "MT19937":  # its 624 words take long to print
            data = inner["key"].tobytes() + repr((inner["pos"], state)).encode()
        else:
            data = repr((inner, state)).encode()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def states_of_defaults() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and the state of each default generator.

    An accelerator is read after torch has initialised it.
    """
    yield "python", state_of(random._inst)
    yield "numpy", state_of(np.random.mtrand._rand)
    yield "torch", state_of(torch.default_generator)
    for kind in compiled_types():
        for ordinal, generator in enumerate(AcceleratorGenerators(kind).generators()):
            yield f"{kind}:{ordinal}", generator.get_state()

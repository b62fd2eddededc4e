"""The exact states of a process's generators, as rows that :class:`fastseed.debug.Watch` digests.

Nothing is drawn and nothing set: states are read, and packed as a checkpoint holds them, with what
is cached of a Gaussian. An accelerator counts once torch has initialised it: nothing here does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from .._utils.validation import describe
from ..derivation.streams import check_name
from ..generators.accelerator import AcceleratorGenerators, compiled_types
from ..generators.adapter import GeneratorAdapter
from ..generators.default import DefaultGenerators
from ..generators.numpy_rng import NumpyGenerator, NumpyRandomState
from ..generators.python_rng import PythonRandom
from ..generators.torch_rng import TorchGenerator

_OURS = re.compile(r"python|numpy|torch|[a-z]\w*:\d+")  # the rows that need no name from a user


class Generators:
    """The global generators, and those that a user names.

    Args:
        given: generators by name; None for none.

    Raises:
        TypeError: it is no mapping of names to generators.
        ValueError: a name is one of the global generators', or none.
    """

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(
                "fastseed.Watch: generators must be a mapping of names to generators, None or "
                f"False, got {describe(given)} of type {type(given).__name__}"
            )
        self._given = {_name(name): _sink(name, one) for name, one in (given or {}).items()}
        self._process = DefaultGenerators()
        self._accelerators = [AcceleratorGenerators(kind) for kind in compiled_types()]

    def rows(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The name of each and its state, 1-D uint8: the global ones first."""
        states = self._process.states()
        yield from zip(("python", "numpy", "torch"), states.values(), strict=True)
        for accelerator in self._accelerators:
            for ordinal, generator in enumerate(accelerator.generators()):
                yield f"{accelerator.kind}:{ordinal}", generator.get_state()
        for name, sink in self._given.items():
            yield name, _state(sink)


def _name(name: Any) -> str:
    checked = check_name("Watch", name)
    if _OURS.fullmatch(checked):
        raise ValueError(
            "fastseed.Watch: generators must not have the name of a global generator (python, "
            f"numpy, torch, cuda:0, ...), got {checked!r}"
        )
    return checked


def _sink(name: str, generator: Any) -> GeneratorAdapter:
    """How its state is read; TypeError for what has none that can be."""
    found: GeneratorAdapter | None = None
    if isinstance(generator, torch.Generator):
        found = TorchGenerator(generator)
    elif isinstance(generator, np.random.Generator):
        found = NumpyGenerator(generator)
    elif isinstance(generator, np.random.RandomState):
        found = NumpyRandomState(generator)
    elif isinstance(generator, random.Random):
        found = PythonRandom(generator)
    try:
        if found is not None:
            _state(found)
            return found
    except Exception:  # of SystemRandom, or of somebody's subclass
        pass
    raise TypeError(
        "fastseed.Watch: generators must be torch.Generator, numpy.random.Generator, "
        "numpy.random.RandomState or random.Random whose state can be read, got "
        f"{describe(generator)} of type {type(generator).__name__} at {name!r}"
    )


def _state(sink: GeneratorAdapter) -> torch.Tensor:
    found = sink.state()
    assert found is not None
    return found

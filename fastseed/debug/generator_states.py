"""Read the exact states of random generators; nothing is drawn and no state is set."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from .._utils.validation import type_error, value_error
from ..derivation.streams import check_name
from ..generators.accelerator import AcceleratorGenerators, compiled_types

_RESERVED = re.compile(r"python|numpy|torch|[a-z]\w*:\d+")  # the names of default generators


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


class Generators:
    """The default generators, and those that a user names, for :class:`fastseed.debug.Watch`.

    An accelerator is read after torch has initialised it.

    Args:
        given: generators by name, or None.

    Raises:
        TypeError: it is not a mapping of names to generators.
        ValueError: a name is empty, or that of a default generator.
    """

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        if given is not None and not isinstance(given, Mapping):
            rule = "a mapping of names to generators, None or False"
            raise type_error("debug.Watch", "generators", rule, given)
        for name, generator in (given or {}).items():
            _check(name, generator)
        self._by_name: dict[str, Any] = {
            "python": random._inst,
            "numpy": np.random.mtrand._rand,
            "torch": torch.default_generator,
        }
        self._given = dict(given or {})
        self._accelerators = [AcceleratorGenerators(kind) for kind in compiled_types()]

    def rows(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the name and the state of each generator, the default generators first."""
        for name, generator in self._by_name.items():
            yield name, state_of(generator)
        for accelerator in self._accelerators:
            for ordinal, generator in enumerate(accelerator.generators()):
                yield f"{accelerator.kind}:{ordinal}", generator.get_state()
        for name, generator in self._given.items():
            yield name, state_of(generator)


def _check(name: Any, generator: Any) -> None:
    """Refuse a name that is in use, and a generator whose state cannot be read."""
    if _RESERVED.fullmatch(check_name("debug.Watch", name)):
        rule = "not the name of a default generator (python, numpy, torch, cuda:0, ...)"
        raise value_error("debug.Watch", "the name of a generator", rule, name)
    kinds = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
    try:
        if isinstance(generator, kinds):
            state_of(generator)
            return
    except Exception:  # SystemRandom, or a subclass of the user
        pass
    rule = (
        "a torch.Generator, numpy.random.Generator, numpy.random.RandomState or random.Random "
        "whose state can be read"
    )
    raise type_error("debug.Watch", f"generators[{name!r}]", rule, generator)

"""Notice random numbers that a slot takes from generators, which then depend on the ranks."""

from __future__ import annotations

import contextlib
import logging
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ..derivation import context
from .peers import FUNCTION

logger = logging.getLogger("fastseed")


class DrawWatch:
    """Warns, once, of a slot that moves a generator: its numbers depend on the number of ranks.

    It compares the states of the global generators of Python, NumPy and torch and of those that are
    registered, and in the first slot notices those that functions of torch get as ``generator=``.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._has_warned, self._is_first = False, True

    @contextlib.contextmanager
    def slot(self, number: int | None) -> Iterator[None]:
        """Compare the states of generators before and after the passes of a slot."""
        readers = {} if self._has_warned else self._readers()
        before = {name: read() for name, read in readers.items()}
        arguments = _GeneratorArguments()
        with arguments if self._is_first else contextlib.nullcontext():
            yield
        self._is_first = False
        moved = [name for name, read in readers.items() if read() != before[name]]
        if arguments.found:
            moved.append("a torch.Generator passed as generator=")
        if moved:
            self._has_warned = True
            logger.warning(
                "fastseed.%s.step: slot %s takes random numbers from %s, which depend on the "
                "number of ranks: call fastseed.nn.convert(model) for dropout, or run the slot "
                "within fastseed.fork_rng('slot', index=slot.number, distinct_over=()), and seed "
                "a generator of your own in it",
                *(FUNCTION, number, ", ".join(moved)),
            )

    def _readers(self) -> dict[str, Callable[[], Any]]:
        """Return how the states of generators are read, as values to compare."""
        found: dict[str, Callable[[], Any]] = {
            "torch's generator": lambda: _bytes(torch.get_rng_state()),
            "Python's random": random.getstate,
            "NumPy's global generator": lambda: pickle.dumps(np.random.get_state()),
        }
        if self._device.type not in ("cpu", "meta"):
            module, device = torch.get_device_module(self._device), self._device
            found["torch's generator of the device"] = lambda: _bytes(module.get_rng_state(device))
        for entry in context.seeder._registry if context.seeder is not None else ():
            if (read := _reader(getattr(entry, "generator", None))) is not None:
                found[f"the registered generator {entry.name!r}"] = read
        return found


class _GeneratorArguments(TorchFunctionMode):
    """Notes whether a function of torch gets a generator other than the default one."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("generator") not in (None, torch.default_generator):
            self.found = True
        return func(*args, **kwargs)


def _reader(generator: Any) -> Callable[[], Any] | None:
    """Return how the state of a registered generator is read; None if it has none to read."""
    if isinstance(generator, torch.Generator):
        return lambda: _bytes(generator.get_state())
    if isinstance(generator, random.Random):
        return generator.getstate
    if isinstance(generator, np.random.Generator):
        return lambda: pickle.dumps(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return lambda: pickle.dumps(generator.get_state())
    return None


def _bytes(state: torch.Tensor) -> bytes:
    return state.numpy().tobytes()

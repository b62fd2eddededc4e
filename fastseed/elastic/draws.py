"""Notice random numbers that a slot takes from generators, which then depend on the ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .._utils.log import logger
from ..derivation import context
from ..generators.numpy_rng import NumpyGlobal
from ..generators.python_rng import PythonRandom
from ..generators.setters import EpochSetter
from ..generators.torch_rng import TorchGenerator
from .peers import FUNCTION


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
        before = self._states()
        arguments = _GeneratorArguments()
        with arguments if self._is_first else contextlib.nullcontext():
            yield
        self._is_first = False
        after = self._states()
        moved = [name for name, state in before.items() if after.get(name, state) != state]
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

    def _states(self) -> dict[str, bytes]:
        """Return the states of generators, to compare."""
        if self._has_warned:
            return {}
        states = {
            "torch's generator": TorchGenerator().state(),
            "Python's random": PythonRandom().state(),
            "NumPy's global generator": NumpyGlobal().state(),
        }
        if self._device.type not in ("cpu", "meta"):
            module = torch.get_device_module(self._device)
            states["torch's generator of the device"] = module.get_rng_state(self._device)
        for entry in context.seeder._registry if context.seeder is not None else ():
            if not isinstance(entry.adapter, EpochSetter):
                states[f"the registered generator {entry.name!r}"] = entry.adapter.state()
        return {name: s.numpy().tobytes() for name, s in states.items() if s is not None}


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

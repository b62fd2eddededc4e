"""Notice random numbers that a slot takes from torch's generators: they depend on the ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .._utils.log import logger
from .peers import FUNCTION


class DrawWatch:
    """Warns, once, of a slot of the first step that moves a generator of torch.

    It reads the states of the default generators of the CPU and of the device, around a slot. No
    mode is active in a slot, so that a model under ``torch.compile`` is compiled once.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.is_over = False

    @contextlib.contextmanager
    def slot(self, number: int | None) -> Iterator[None]:
        """Compare the states of generators before and after the passes of a slot."""
        before = {} if self.is_over else self._states()
        yield
        after = self._states() if before else {}
        moved = [name for name in before if not torch.equal(before[name], after[name])]
        if moved:
            self.is_over = True
            logger.warning(
                "fastseed.%s.step: slot %s takes random numbers from %s, which depend on the "
                "number of ranks: call fastseed.nn.convert(model) for dropout, or run the slot "
                "within fastseed.fork_rng('slot', index=slot.number, distinct_over=())",
                *(FUNCTION, number, " and ".join(moved)),
            )

    def _states(self) -> dict[str, torch.Tensor]:
        states = {"torch's generator": torch.get_rng_state()}
        if self._device.type not in ("cpu", "meta"):
            module = torch.get_device_module(self._device)
            states["torch's generator of the device"] = module.get_rng_state(self._device)
        return states

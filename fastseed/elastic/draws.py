"""Notice random numbers that a slot takes from torch's generators."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..nn import Dropout
from .arguments import FUNCTION

logger = logging.getLogger("fastseed")

_TORCH = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout),
)


class DrawWatch:
    """Warns, once, of a slot that moves torch's generators: they depend on the number of ranks."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model, self._device = model, device
        self._has_warned = False

    @contextmanager
    def slot(self, number: int | None) -> Iterator[None]:
        """Compare the states of torch's generators before and after the passes of a slot."""
        before = [] if self._has_warned else self._states()
        yield
        if before and not all(map(torch.equal, before, self._states())):
            self._has_warned = True
            logger.warning(
                "fastseed.%s.step: slot %s takes random numbers from torch's generator, which "
                "depend on the number of ranks (dropout of torch in training: %s): call "
                "fastseed.nn.convert(model), or run the slot within "
                "fastseed.fork_rng('slot', index=slot.number, distinct_over=())",
                *(FUNCTION, number, self._dropout()),
            )

    def _states(self) -> list[torch.Tensor]:
        states = [torch.get_rng_state()]
        if self._device.type not in ("cpu", "meta"):
            states.append(torch.get_device_module(self._device).get_rng_state(self._device))
        return states

    def _dropout(self) -> str:
        """Return the names of modules that draw, as far as modules say so."""
        found = [repr(name) for name, part in self._model.named_modules() if _draws(part)]
        return ", ".join(found[:3]) + (", ..." if len(found) > 3 else "") or "in functions"


def _draws(part: nn.Module) -> bool:
    if not part.training or isinstance(part, Dropout):
        return False
    if isinstance(part, (nn.RNNBase, nn.MultiheadAttention)):
        return part.dropout > 0
    return isinstance(part, nn.RReLU) or (isinstance(part, _TORCH) and part.p > 0)

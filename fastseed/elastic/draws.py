"""Notice random numbers that a slot takes from torch's generators: they depend on the ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .._utils.log import warn_once
from .peers import FUNCTION


@contextlib.contextmanager
def watch_draws(device: torch.device) -> Iterator[None]:
    """Warn, once, if a slot moves the default generator of the CPU or of the device.

    No mode is active in it, so that a model under ``torch.compile`` is compiled once.
    """
    before = _states(device)
    yield
    after = _states(device)
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    if moved:
        warn_once(
            "fastseed.%s.step: a slot takes random numbers from %s, which depend on the "
            "number of ranks: call fastseed.nn.convert(model) for dropout, or run the slot "
            "within fastseed.fork_rng('slot', index=slot.number, distinct_over=())",
            *(FUNCTION, " and ".join(moved)),
        )


def _states(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"torch's generator": torch.get_rng_state()}
    if device.type not in ("cpu", "meta"):
        module = torch.get_device_module(device)
        states["torch's generator of the device"] = module.get_rng_state(device)
    return states

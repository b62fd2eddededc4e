"""Loaders that Hugging Face Accelerate takes apart: errors and a warning for what it cannot know.

Accelerate is never imported here: a job that uses it has imported it.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, NoReturn

from .order.nested import samplers_in

_HOW = (
    "give accelerator.prepare a torch DataLoader with shuffle=True, and iterate its result with "
    "AcceleratedJob.train(loader, epoch) of fastseed.integrations.accelerate"
)


def refuse_preparation(loader: Any) -> NoReturn:
    """Raise the error of a loader that Accelerate would replace by one of its own."""
    raise TypeError(
        f"fastseed.data.{type(loader).__name__}: accelerator.prepare must not be given a loader of "
        f"fastseed, whose division into ranks and whose position it would lose: {_HOW}"
    )


def refuse_second_division(sampler: Any, world_size: int) -> None:
    """Raise RuntimeError if the loader that Accelerate iterates now divides ``sampler`` again."""
    active = _active_loader() if world_size > 1 else None
    if active is None or not any(sampler is one for one in samplers_in(active)):
        return
    if sys.modules["accelerate.state"].PartialState().num_processes > 1:
        raise RuntimeError(
            f"fastseed.data.ShuffleSampler: rank must be 0 and world_size 1 in a loader that "
            f"Accelerate has prepared and divides itself, got {sampler!r} on {world_size} ranks: "
            f"{_HOW}"
        )


def warn_of_unprepared(loader: Any, has_slots: bool) -> None:
    """Warn if a loop under Accelerate iterates a loader that Accelerate does not know."""
    state = _gradient_state()
    if state is None:
        return
    active = state.active_dataloader
    if active is not None and active.dataset is loader.dataset:  # AcceleratedJob iterates it
        return
    # The Trainer of transformers counts by itself, and has 1 step of accumulation here; slots are
    # dealt out without Accelerate on purpose.
    is_known = has_slots or "transformers.trainer" in sys.modules
    ranks = sys.modules["accelerate.state"].PartialState().num_processes
    if state.num_steps > 1 or (ranks > 1 and not is_known):
        warnings.warn(
            "fastseed.data.loader: Accelerate does not know this loader: accumulate() misses its "
            "last batches, gather_for_metrics() keeps repeated samples, and a prepared scheduler "
            f"makes a step for each rank; {_HOW}",
            stacklevel=5,
        )


def _gradient_state() -> Any:
    """Return Accelerate's state of the loops, if the process has an Accelerator."""
    module = sys.modules.get("accelerate.state")
    is_used = module is not None and module.is_initialized()
    return module.GradientState() if module is not None and is_used else None


def _active_loader() -> Any:
    state = _gradient_state()
    return None if state is None else state.active_dataloader

"""The samplers of a loader, also those inside others, and loaders that Accelerate takes apart."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

RANDOM_SAMPLERS = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def samplers_in(*samplers: object) -> list[object]:
    """Return samplers, or loaders, and what they wrap, once each, the outermost first."""
    found: list[object] = []
    left = list(samplers)
    for sampler in left:  # which grows
        if sampler is not None and not any(sampler is other for other in found):
            found.append(sampler)
            left += [getattr(sampler, name, None) for name in ("batch_sampler", "sampler")]
    return found


def without_generator(samplers: list[object]) -> list[Any]:
    """Return torch's own samplers that have no generator: the loader lends them one."""
    return [s for s in samplers if isinstance(s, RANDOM_SAMPLERS) and s.generator is None]


# A job that uses Accelerate has imported it.
HOW = (
    "give accelerator.prepare a torch DataLoader with shuffle=True, and iterate its result with "
    "AcceleratedJob.train(loader, epoch) of fastseed.integrations.accelerate"
)


def refuse_second_division(sampler: Any, world_size: int) -> None:
    """Raise RuntimeError if the loader that Accelerate iterates now divides ``sampler`` again."""
    state = _state_of_loops() if world_size > 1 else None
    if state is None or _ranks() == 1:
        return
    if any(sampler is one for one in samplers_in(state.active_dataloader)):
        raise RuntimeError(
            "fastseed.data.ShuffleSampler: rank must be 0 and world_size 1 in a loader that "
            f"Accelerate has prepared and divides itself, got {sampler!r} on {world_size} ranks: "
            f"{HOW}"
        )


def warn_of_unprepared(loader: Any, has_slots: bool) -> None:
    """Warn if a loop under Accelerate iterates a loader that Accelerate does not know."""
    state = _state_of_loops()
    if state is None:
        return
    active = state.active_dataloader
    is_active = active is not None and active.dataset is loader.dataset  # of AcceleratedJob
    # The Trainer counts by itself; slots are dealt out without Accelerate on purpose.
    is_known = has_slots or "transformers.trainer" in sys.modules
    if not is_active and (state.num_steps > 1 or (_ranks() > 1 and not is_known)):
        warnings.warn(
            "fastseed.data.Loader: Accelerate does not know this loader: accumulate() misses its "
            "last batches, gather_for_metrics() keeps repeated samples, and a prepared scheduler "
            f"makes a step for each rank; {HOW}",
            stacklevel=4,
        )


def _state_of_loops() -> Any:
    module = sys.modules.get("accelerate.state")
    is_used = module is not None and module.is_initialized()
    return module.GradientState() if module is not None and is_used else None


def _ranks() -> int:
    return int(sys.modules["accelerate.state"].PartialState().num_processes)

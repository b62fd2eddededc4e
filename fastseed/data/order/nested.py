"""The samplers of a loader, those inside others as well."""

from __future__ import annotations

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

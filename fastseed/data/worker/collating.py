"""What ``collate_fn`` draws belongs to no sample: it is noticed in the first batch of a process."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

from torch.utils.data import default_collate, default_convert

from .seeding import GENERATORS
from .streams import find_draws

logger = logging.getLogger("fastseed")


class CheckedCollate:
    """The ``collate_fn`` of a loader of ``per_sample``; it warns once if the user's own draws.

    Its numbers are those of the worker, or of the main process, so they depend on the number of
    workers, and come again neither with it nor after a job resumes.
    """

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate, self._checked_in = collate, 0

    @staticmethod
    def of(collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a checked function, where it is not torch's own."""
        return collate if collate in (default_collate, default_convert) else CheckedCollate(collate)

    def __call__(self, samples: Any) -> Any:
        """Return the batch."""
        if self._checked_in == os.getpid():
            return self._collate(samples)
        call = functools.partial(self._collate, samples)
        batch, names = find_draws(call, GENERATORS.adapters.items())
        self._checked_in = os.getpid()
        if names:
            logger.warning(
                "fastseed.data.Loader: collate_fn draws from %s, which per_sample sets for samples "
                "only: its numbers depend on the number of workers, and differ after a resume; "
                "draw them in the dataset, or in per_sample(transform=)",
                ", ".join(map(repr, names)),
            )
        return batch

"""Detect training that never leaves the scope of ``fastseed.init``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..seeder.seeder import process_seeder
from .generator_states import states_of_defaults


class OptimizerSteps:
    """The optimizer steps of a block, and whether random numbers were drawn between them."""

    def __init__(self) -> None:
        self.count = 0
        self._reseeded = False
        self._states: dict[str, torch.Tensor] | None = None
        self._has_drawn = False

    @property
    def never_reseeded(self) -> bool:
        """True if random numbers were drawn between the steps, and nothing reseeded since ``init``.

        Then a run that resumes draws what the first steps drew.
        """
        return self.count > 1 and self._has_drawn and not self._reseeded

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count the steps of every optimizer inside the block."""
        handle = register_optimizer_step_post_hook(self._stepped)
        try:
            yield
        finally:
            handle.remove()

    def _stepped(self, *_: object) -> None:
        self.count += 1
        seeder = process_seeder()
        if seeder is None or seeder.scope not in (None, (0, 0, 0)) or seeder.recent_scopes.used:
            self._reseeded = True  # or never seeded by fastseed, which has a finding of its own
        if self._reseeded or self._has_drawn:
            return
        states = dict(states_of_defaults())
        before, self._states = self._states, states
        if before is not None:
            self._has_drawn = any(
                name in before and not torch.equal(state, before[name])
                for name, state in states.items()
            )

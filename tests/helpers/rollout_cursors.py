"""How two frameworks account for rollouts, modelled on their code and descriptions.

- TRL 1.16.0, ``experimental/async_grpo/async_grpo_trainer.py``: the checkpoint has one number, the
  first prompt that was not trained; a rollout that is too old is left out and never trained.
- NeMo-RL before its pull request 3599: the checkpoint has the data loader's position, which is
  ahead of what was trained, and the rollouts that are complete; those under way are in neither.
- NeMo-RL after it: rollouts have ordinals; the checkpoint has the lowest one that is under way or
  complete and not trained, and which above it were trained. The same for a restart.
"""

from __future__ import annotations

import json
from typing import Any

PROMPTS_AHEAD = 24


class Cursor:
    """Rollouts in the order of the data, trained in the order of completion."""

    MAX_STALENESS: int | None = None

    def __init__(self, prompts: int, batch_size: int, state: str | None) -> None:
        self.prompts, self.batch_size = prompts, batch_size
        self.version, self.cursor = 0, 0
        self.under_way: set[int] = set()
        self.complete: list[tuple[int, int, str]] = []  # prompt, version, text
        self.trained: set[int] = set()
        self.batch: list[tuple[int, int, str]] = []
        if state is not None:
            self.restore(**json.loads(state))

    @property
    def done(self) -> bool:
        return self.cursor >= self.prompts and not self.under_way and not self.complete

    def take(self) -> tuple[int, int, Cursor] | None:
        while self.cursor < self.prompts and self.is_covered(self.cursor):
            self.cursor += 1
        ahead = len(self.under_way) + len(self.complete)
        if self.cursor >= self.prompts or ahead >= PROMPTS_AHEAD:
            return None
        self.under_way.add(self.cursor)
        self.cursor += 1
        return self.cursor - 1, self.version, self

    def is_covered(self, prompt: int) -> bool:
        return False

    def put(self, work: tuple[int, int, Cursor], text: str) -> None:
        prompt, version, of = work
        if of is self:  # else its process went down with the trainer
            self.under_way.remove(prompt)
            self.complete.append((prompt, version, text))

    def leave(self, work: Any) -> None:
        raise AssertionError("no producer leaves")

    def next_batch(self) -> list[tuple[int, str]] | None:
        if self.MAX_STALENESS is not None:
            oldest = self.version - self.MAX_STALENESS
            self.complete = [entry for entry in self.complete if entry[1] >= oldest]
        is_last = self.cursor >= self.prompts and not self.under_way
        if not self.complete or (len(self.complete) < self.batch_size and not is_last):
            return None
        self.batch = self.complete[: self.batch_size]
        return [(prompt, text) for prompt, _, text in self.batch]

    def mark_trained(self) -> None:
        del self.complete[: len(self.batch)]
        self.trained.update(prompt for prompt, _, _ in self.batch)
        self.version += 1

    def state(self) -> str:
        return json.dumps({"version": self.version, **self.position()})

    def position(self) -> dict[str, Any]:
        raise NotImplementedError

    def restore(self, version: int, **position: Any) -> None:
        self.version = version


class TrlCursor(Cursor):
    """One number; the trained prompts behind it are generated and trained again."""

    MAX_STALENESS = 4

    def position(self) -> dict[str, Any]:
        first = next(p for p in range(self.prompts + 1) if p not in self.trained)
        return {"cursor": first}

    def restore(self, version: int, **position: Any) -> None:
        super().restore(version)
        self.cursor = position["cursor"]
        self.trained = set(range(self.cursor))


class NemoLiveCursor(Cursor):
    """The loader's position and the complete rollouts."""

    def position(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "complete": self.complete}

    def restore(self, version: int, **position: Any) -> None:
        super().restore(version)
        self.cursor = position["cursor"]
        self.complete = [tuple(entry) for entry in position["complete"]]


class NemoFrontier(NemoLiveCursor):
    """The lowest ordinal that is not trained, and which above it are covered."""

    def position(self) -> dict[str, Any]:
        held = {prompt for prompt, _, _ in self.complete}
        cut = min([len(self.trained), *self.under_way, *held])
        covered = sorted(p for p in self.trained if p >= cut)
        return {"cursor": cut, "complete": self.complete, "covered": covered}

    def restore(self, version: int, **position: Any) -> None:
        super().restore(version, **position)
        self.trained = {*range(self.cursor), *position["covered"]}

    def is_covered(self, prompt: int) -> bool:
        return prompt in self.trained or any(prompt == entry[0] for entry in self.complete)

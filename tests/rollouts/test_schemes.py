"""The table of docs/rollouts.md: how many different seeds each way of making them gives."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest
from helpers.paths import ROOT

from fastseed.rollouts import table

CHUNKS, PROMPTS, SAMPLES, STEPS = 4, 12, 16, 100


class Position(NamedTuple):
    """The position of a rollout in its batch."""

    chunk: int
    prompt: int
    sample: int

    @property
    def in_chunk(self) -> int:
        return self.prompt * SAMPLES + self.sample

    @property
    def in_batch(self) -> int:
        return self.chunk * PROMPTS * SAMPLES + self.in_chunk


POSITIONS = [
    Position(*at) for at in itertools.product(range(CHUNKS), range(PROMPTS), range(SAMPLES))
]
BY_POSITION: dict[str, Callable[[int, int, Position], int]] = {
    "`seed`, one for the batch": lambda seed, step, at: seed,
    "`seed + i`, i of the prompt in the chunk": lambda seed, step, at: seed + at.prompt,
    "`seed + i`, i of the rollout in the chunk": lambda seed, step, at: seed + at.in_chunk,
    "`seed + step + i`, i of the rollout in the batch": (
        lambda seed, step, at: seed + step + at.in_batch
    ),
    "`seed + 1000 * step + i`, i of the rollout in the batch": (
        lambda seed, step, at: seed + 1000 * step + at.in_batch
    ),
    "`seed + 1000 * chunk + 16 * step + i`, i of the rollout in the chunk": (
        lambda seed, step, at: seed + 1000 * at.chunk + 16 * step + at.in_chunk
    ),
}


def seeds(way: str, seed: int, step: int) -> Iterable[int]:
    if way in BY_POSITION:
        return (BY_POSITION[way](seed, step, at) for at in POSITIONS)
    prompts = range(CHUNKS * PROMPTS)
    return itertools.chain(*table(step, prompts, SAMPLES, master_seed=seed))


@pytest.mark.parametrize("way", [*BY_POSITION, "`rollouts.table`"])
def test_row(way):
    found = (
        len({*seeds(way, 42, 59)}),
        len({*itertools.chain(*(seeds(way, 42, step) for step in range(STEPS)))}),
        len({*seeds(way, 42, 59), *seeds(way, 43, 59)}),
    )
    page = (ROOT / "docs" / "rollouts.md").read_text()
    row = re.search(rf"^\| {re.escape(way)} \| (.*) \|$", page, re.M)
    assert row is not None
    assert [f"{count:,}" for count in found] == row[1].split(" | ")

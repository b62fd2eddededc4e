"""Pack sequences of any length into blocks of one length, with an order on any number of ranks.

Block j has the tokens j * length to (j + 1) * length - 1 of all sequences, one after another. So
packing draws no random number, and a map-style dataset of blocks resumes like any other.

    python examples/pack_sequences.py
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch.utils.data import DataLoader, Dataset

import fastseed


class Packed(Dataset[dict[str, torch.Tensor]]):
    """Blocks of ``length`` tokens; an incomplete last block is left out."""

    def __init__(self, sequences: Sequence[Sequence[int]], length: int) -> None:
        self.sequences, self.length = sequences, length
        self.starts = [0, *accumulate(map(len, sequences))]

    def __len__(self) -> int:
        return self.starts[-1] // self.length

    def __getitem__(self, block: int) -> dict[str, torch.Tensor]:
        first, end = block * self.length, (block + 1) * self.length
        tokens: list[int] = []
        positions: list[int] = []  # they begin again with each sequence and each block
        number = bisect_right(self.starts, first) - 1
        while len(tokens) < self.length:
            start = max(first - self.starts[number], 0)
            stop = min(end - self.starts[number], len(self.sequences[number]))
            tokens += self.sequences[number][start:stop]
            positions += range(stop - start)
            number += 1
        return {"input_ids": torch.tensor(tokens), "position_ids": torch.tensor(positions)}


def main() -> None:
    """Read half of an epoch, resume with another batch size, and count each token once."""
    fastseed.init(42)
    sequences = [list(range(start, start + 3 + start % 7)) for start in range(0, 200, 10)]
    blocks = Packed(sequences, length=8)
    loop = fastseed.data.steps(DataLoader(blocks, 2, shuffle=True), epochs=1)
    seen: list[int] = []
    for _, step, batch in loop:
        seen += batch["input_ids"].flatten().tolist()
        if step == 2:
            break
    resumed = fastseed.data.steps(DataLoader(blocks, 3, shuffle=True), epochs=1)
    resumed.load_state_dict(loop.state_dict())
    for _, _, batch in resumed:
        seen += batch["input_ids"].flatten().tolist()
    assert len(seen) == len(set(seen)) == len(blocks) * 8
    print(f"{len(blocks)} blocks, {len(seen)} tokens, each once")


if __name__ == "__main__":
    main()

"""Join sequences of any length and cut them into blocks of one length, so that no token is lost.

    python examples/pack_sequences.py

A block is a function of its index. So a loop over blocks resumes from the position that
``fastseed.data.steps`` saves, on any number of ranks, and nothing of the packing is saved.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

import fastseed


class PackedSequences(torch.utils.data.Dataset):
    """Blocks of ``length`` tokens, as one sequence after the other fills them.

    A block is a dict of ``input_ids``, ``position_ids`` (the place of each token in its sequence)
    and ``sequence_ids``, three int64 tensors of shape (length,); the last block is padded.
    """

    def __init__(self, sequences: Sequence[Sequence[int]], length: int, pad: int = 0) -> None:
        self.sequences, self.length, self.pad = sequences, length, pad
        self.ends = torch.tensor([len(one) for one in sequences]).cumsum(0)

    def __len__(self) -> int:
        return -(-int(self.ends[-1]) // self.length)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        first = index * self.length
        tokens, places, owners = [], [], []
        number = int(torch.searchsorted(self.ends, first, right=True))
        while len(tokens) < self.length and number < len(self.sequences):
            sequence = self.sequences[number]
            begin = max(first - (int(self.ends[number]) - len(sequence)), 0)
            part = sequence[begin : begin + self.length - len(tokens)]
            tokens += part
            places += range(begin, begin + len(part))
            owners += [number] * len(part)
            number += 1
        missing = self.length - len(tokens)
        return {
            "input_ids": torch.tensor(tokens + [self.pad] * missing),
            "position_ids": torch.tensor(places + [0] * missing),
            "sequence_ids": torch.tensor(owners + [-1] * missing),
        }


if __name__ == "__main__":
    fastseed.init(42)
    texts = [[n] * (n % 7 + 1) for n in range(40)]
    blocks = PackedSequences(texts, length=16)
    loader = torch.utils.data.DataLoader(blocks, batch_size=2, shuffle=True)
    seen = []
    for _, step, batch in fastseed.data.steps(loader, epochs=1, task=1):
        print(f"step {step}: sequences {sorted(set(batch['sequence_ids'].flatten().tolist()))}")
        seen += batch["input_ids"][batch["sequence_ids"] >= 0].tolist()
    assert sorted(seen) == sorted(token for text in texts for token in text)

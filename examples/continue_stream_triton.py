"""A custom Triton kernel continues a bank's streams.

    python continue_stream_triton.py                        on a CUDA device
    TRITON_INTERPRET=1 python continue_stream_triton.py     anywhere, in Triton's interpreter

The bank draws, a kernel takes the next words of every stream with ``tl.philox`` and moves the
positions, and the bank draws again: no word is used twice, and each is the one that the bank would
have drawn itself.
"""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

import fastseed

BLOCKS = 8  # Philox blocks of four words that the kernel takes from each stream; a power of two


@triton.jit
def next_words(out, keys, positions, BLOCKS: tl.constexpr):
    row = tl.program_id(0)
    position = tl.load(positions + row)
    blocks = (position + 3) // 4 + tl.arange(0, BLOCKS).to(tl.int64)
    lo = tl.load(keys + 2 * row)
    hi = tl.zeros_like(blocks) + tl.load(keys + 2 * row + 1)
    a, b, c, d = tl.philox(
        lo,
        blocks.to(tl.uint32),
        (blocks >> 32).to(tl.uint32),
        hi.to(tl.uint32),
        (hi >> 32).to(tl.uint32),
    )
    at = out + 4 * (row * BLOCKS + tl.arange(0, BLOCKS))
    tl.store(at, a.to(tl.int32, bitcast=True))
    tl.store(at + 1, b.to(tl.int32, bitcast=True))
    tl.store(at + 2, c.to(tl.int32, bitcast=True))
    tl.store(at + 3, d.to(tl.int32, bitcast=True))
    tl.store(positions + row, 4 * ((position + 3) // 4 + BLOCKS))


def continue_in_a_kernel(bank: fastseed.random.StreamBank) -> torch.Tensor:
    """The next 4 * BLOCKS words of every stream, (n, 4 * BLOCKS) torch.uint32."""
    out = torch.empty(len(bank), 4 * BLOCKS, dtype=torch.int32, device=bank.device)
    if len(bank):
        next_words[(len(bank),)](out, bank.keys.view(torch.int64), bank.positions, BLOCKS)
    return out.view(torch.uint32)


def main() -> None:
    fastseed.init(42, rank=0, world_size=1)
    device = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
    ours, plain = (fastseed.random.StreamBank(100, "environments", device) for _ in range(2))
    ours.reseed(1, 0)
    fastseed.random.normal(ours[torch.arange(0, 100, 3, device=device)], 5)  # positions 0 and 8
    plain.load_state_dict(ours.state_dict())

    words = continue_in_a_kernel(ours)
    expected = fastseed.random.bits(plain, 4 * BLOCKS)
    assert torch.equal(words.view(torch.int32), expected.view(torch.int32))
    assert torch.equal(ours.positions, plain.positions)
    assert torch.equal(fastseed.random.uniform(ours, 7), fastseed.random.uniform(plain, 7))
    print(
        f"{words.numel()} words of {len(ours)} streams by a Triton kernel, as the bank draws them"
    )


if __name__ == "__main__":
    main()

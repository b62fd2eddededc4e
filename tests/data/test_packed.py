"""Sequences in blocks: each token once, whatever the lengths, on any ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.loaders import dealt, on_ranks, same
from torch.utils.data import ConcatDataset

from fastseed.data import MixtureSampler, PackedDataset, ResumableLoader


def texts(count, seed=1):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 30, count)
    ends = np.cumsum(lengths)
    return [list(range(end - n + 1, end + 1)) for n, end in zip(lengths, ends, strict=True)]


def tokens(blocks):
    return [token for block in blocks for token in block["input_ids"].tolist()]


@pytest.mark.parametrize("length", [1, 7, 64, 5000])
@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_every_token_is_in_one_block(length, kind):
    data = texts(100)
    total = sum(map(len, data))
    data = [kind(text) if text else [] for text in data]
    blocks = PackedDataset(data, length, lengths=[len(text) for text in data])
    assert len(blocks) == total // length
    assert tokens(blocks) == list(range(1, len(blocks) * length + 1))
    padded = PackedDataset(data, length, pad=-7)
    found = tokens(padded)
    assert found[:total] == list(range(1, total + 1)) and set(found[total:]) <= {-7}
    assert len(found) == len(padded) * length and len(found) - total < length
    sequences = [s for block in padded for s in block["sequence_ids"].tolist()]
    expected = [s for s, text in enumerate(data) for _ in range(len(text))]
    assert sequences == expected + [-1] * (len(found) - total)


def test_positions_begin_again_with_each_sequence_and_block():
    block = PackedDataset([[1, 2, 3], [], [4], [5, 6, 7, 8]], 5)[0]
    assert block["position_ids"].tolist() == [0, 1, 2, 0, 0]
    assert block["sequence_ids"].tolist() == [0, 0, 0, 2, 3]
    last = PackedDataset([[1, 2, 3], [], [4], [5, 6, 7, 8]], 5, pad=0)[1]
    assert last["input_ids"].tolist() == [6, 7, 8, 0, 0]
    assert last["position_ids"].tolist() == [0, 1, 2, 0, 0]
    assert all(value.dtype == torch.int64 for value in last.values())


def test_a_mixture_of_packed_sources_changes_ranks():
    sources = {name: PackedDataset(texts(60, seed), 8) for seed, name in enumerate(("a", "b"))}
    data = ConcatDataset(sources.values())

    def ranks(world, batch, state=None, stop=None):
        def make(rank):
            sampler = MixtureSampler(sources, {"a": 1, "b": 2}, n=120)
            return ResumableLoader(data, batch, sampler=sampler, collate_fn=same)

        shares, saved = on_ranks(make, world, state=state, stop=stop)
        return [tokens([block]) for block in dealt(shares)], saved

    whole, _ = ranks(1, 4)
    before, state = ranks(4, 2, stop=9)
    after, _ = ranks(3, 1, state)
    assert before + after == whole and len(whole) == 120


def test_lengths_and_indices_are_checked():
    blocks = PackedDataset([[1, 2], [3]], 2, lengths=[1, 1])
    with pytest.raises(ValueError, match=r"dataset\[0\] must be of shape \(1,\), as lengths says"):
        blocks[0]
    assert len(PackedDataset([], 3)) == 0
    assert len(PackedDataset({0: [1, 2], 1: [3]}, 3)) == 1
    assert len(PackedDataset([[1, 2], [3]], 3, lengths=np.array([2, 1], np.uint16))) == 1
    with pytest.raises(IndexError, match=r"index must be in \[0, 1\), got -1"):
        blocks[-1]


@pytest.mark.parametrize(
    ("item", "kind", "message"),
    [
        ([2.7, 1.0], TypeError, "must be of an integer dtype, got tensor of .* torch.float32"),
        (torch.tensor([1j, 2]), TypeError, "must be of an integer dtype"),
        (np.array([True, False]), TypeError, "must be of an integer dtype"),
        (["a", "b"], TypeError, "must be a sequence of integers of 64 bits, got \\['a', 'b'\\]"),
        ([2**64, 1], TypeError, "must be a sequence of integers of 64 bits"),
        (np.array([2**63, 1], dtype=np.uint64), ValueError, r"must be below 2\*\*63"),
    ],
)
def test_tokens_that_are_no_integers_are_refused(item, kind, message):
    blocks = PackedDataset([[5, 6], item], 2)
    assert blocks[0]["input_ids"].tolist() == [5, 6]
    with pytest.raises(kind, match=rf"data\.PackedDataset: dataset\[1\] {message}"):
        blocks[1]


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint64])
def test_tokens_of_any_integer_dtype_are_kept(kind):
    assert PackedDataset([np.array([200, 7]).astype(kind)], 2)[0]["input_ids"].dtype == torch.int64


def test_a_block_has_an_integer_index():
    blocks = PackedDataset([[1, 2]], 1)
    assert blocks[np.int64(1)]["input_ids"].tolist() == [2]
    with pytest.raises(TypeError, match=r"data\.PackedDataset: index must be an integer, got 0.5"):
        blocks[0.5]

"""Sequences of any length, packed into blocks of one length."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, IterableDataset

from .._backend import tensors
from .._utils import validation

_CLASS = "data.PackedDataset"
_MAX_LENGTH = 2**31 - 1


class PackedDataset(Dataset[dict[str, torch.Tensor]]):
    """Blocks of ``length`` tokens of all sequences of a dataset, one after another.

    Block j has the tokens j * length to (j + 1) * length - 1 of the concatenation, so each token is
    in one block, and a sequence may continue in the next block. It is a map-style dataset without
    a state: with a ``ShuffleSampler`` or ``MixtureSampler`` the blocks have the same order on any
    number of ranks, and ``ResumableLoader`` resumes at any of them. A block reads the sequences
    that it contains; a sequence in two blocks is read for each.

    Args:
        dataset: map-style; each item is a sequence of integers: a list, an array or a tensor, 1-D.
        length: the number of tokens of a block, [1, 2**31 - 1].
        lengths: the number of tokens of each item, (len(dataset),); None: all items are read once.
        pad: the token that fills up the last block; None: an incomplete last block is left out.

    Raises:
        TypeError, ValueError: an argument has the wrong type or is out of range; also when a block
            is read, if an item has no integers of 64 bits, or another length than ``lengths`` says.

    Examples:
        >>> from fastseed.data import PackedDataset
        >>> blocks = PackedDataset([[1, 2, 3], [4], [5, 6, 7, 8]], length=3)
        >>> len(blocks), blocks[1]["input_ids"], blocks[1]["position_ids"]
        (2, tensor([4, 5, 6]), tensor([0, 0, 1]))
        >>> blocks[1]["sequence_ids"]
        tensor([1, 2, 2])
    """

    def __init__(
        self,
        dataset: Any,
        length: int,
        *,
        lengths: Iterable[int] | None = None,
        pad: int | None = None,
    ) -> None:
        n = _check_dataset(dataset)
        self.dataset = dataset
        self.length = validation.check_int(_CLASS, "length", length, 1, _MAX_LENGTH)
        limit = 2**63 - 1
        self.pad = None if pad is None else validation.check_int(_CLASS, "pad", pad, -limit, limit)
        found = [_length(dataset, i) for i in range(n)] if lengths is None else lengths
        self._ends = _check_ends(found, n)

    def __repr__(self) -> str:
        return f"PackedDataset({self.dataset!r}, length={self.length}, pad={self.pad})"

    def __len__(self) -> int:
        """Return the number of blocks."""
        tokens = int(self._ends[-1]) if len(self._ends) else 0
        return tokens // self.length if self.pad is None else -(-tokens // self.length)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return a block.

        Args:
            index: [0, len(self)).

        Returns:
            Tensors of shape (length,) and dtype torch.int64: ``"input_ids"``, the tokens;
            ``"position_ids"``, the number of each token in its part of a sequence, from 0;
            ``"sequence_ids"``, the index of its sequence in the dataset. Padding has position 0
            and sequence -1.

        Raises:
            TypeError: ``index`` is not an integer.
            IndexError: ``index`` is out of range.
        """
        if isinstance(index, torch.Tensor):
            tensors.check_dense(_CLASS, "index", index)
        try:
            index = operator.index(index)
        except TypeError as error:
            raise validation.type_error(_CLASS, "index", "an integer", index) from error
        if not 0 <= index < len(self):
            raise IndexError(f"fastseed.{_CLASS}: index must be in [0, {len(self)}), got {index}")
        shape = (self.length,)
        block = {
            "input_ids": torch.full(shape, self.pad or 0, dtype=torch.int64),
            "position_ids": torch.zeros(shape, dtype=torch.int64),
            "sequence_ids": torch.full(shape, -1, dtype=torch.int64),
        }
        start, done = index * self.length, 0
        item = int(np.searchsorted(self._ends, start, side="right"))
        while done < self.length and item < len(self._ends):
            first = int(self._ends[item - 1]) if item else 0
            here = min(int(self._ends[item]) - start - done, self.length - done)
            if here:
                tokens = self._read(item, int(self._ends[item]) - first)
                begin, part = start + done - first, slice(done, done + here)
                block["input_ids"][part] = tokens[begin : begin + here]
                block["position_ids"][part] = torch.arange(here)
                block["sequence_ids"][part] = item
            done, item = done + here, item + 1
        return block

    def parts(self, index: int) -> list[tuple[int, int, int]]:
        """Return which tokens of which sequences a block has, without reading them.

        Args:
            index: the block, [0, len(self)).

        Returns:
            (sequence, first token, token after the last), in the order of the block.

        Raises:
            TypeError, ValueError: ``index`` is no integer, or out of range.
        """
        function = f"{_CLASS}.parts"
        index = validation.check_int(function, "index", index, 0, len(self) - 1)
        start, end = index * self.length, (index + 1) * self.length
        item, found = int(np.searchsorted(self._ends, start, side="right")), []
        while item < len(self._ends) and start < end:
            first = int(self._ends[item - 1]) if item else 0
            stop = min(int(self._ends[item]), end)
            if stop > start:
                found.append((item, start - first, stop - first))
            start, item = stop, item + 1
        return found

    def blocks_of(self, sequence: int) -> range:
        """Return the blocks that have tokens of a sequence.

        Args:
            sequence: its index in the dataset.

        Raises:
            TypeError, ValueError: ``sequence`` is no integer, or out of range.
        """
        function, last = f"{_CLASS}.blocks_of", len(self._ends) - 1
        sequence = validation.check_int(function, "sequence", sequence, 0, last)
        first = int(self._ends[sequence - 1]) if sequence else 0
        end = min(int(self._ends[sequence]), len(self) * self.length)
        return range(first // self.length, -(-end // self.length) if end > first else 0)

    def _read(self, item: int, expected: int) -> torch.Tensor:
        argument, given = f"dataset[{item}]", self.dataset[item]
        try:
            tokens = torch.as_tensor(given)
        except (TypeError, ValueError, RuntimeError) as error:
            rule = "a sequence of integers of 64 bits"
            raise validation.type_error(_CLASS, argument, rule, given) from error
        if tokens.shape != (expected,):
            rule = f"of shape ({expected},), as lengths says"
            raise validation.value_error(_CLASS, argument, rule, tokens)
        if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
            raise validation.type_error(_CLASS, argument, "of an integer dtype", tokens)
        if tokens.dtype == torch.uint64 and bool((tokens.view(torch.int64) < 0).any()):
            raise validation.value_error(_CLASS, argument, "below 2**63", tokens)
        return tokens


def _check_dataset(dataset: Any) -> int:
    """Return the number of items."""
    rule = "a map-style dataset of known length, whose items have the numbers from 0 on"
    if isinstance(dataset, torch.Tensor):
        tensors.check_dense(_CLASS, "dataset", dataset)
        tensors.check_data(_CLASS, "dataset", dataset)
    try:
        n = len(dataset)
    except TypeError as error:
        raise validation.type_error(_CLASS, "dataset", rule, dataset) from error
    is_map = hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset)
    if not is_map or (isinstance(dataset, Mapping) and not all(i in dataset for i in range(n))):
        raise validation.type_error(_CLASS, "dataset", rule, dataset)
    return n


def _length(dataset: Any, i: int) -> int:
    item = dataset[i]
    try:
        return len(item)
    except TypeError as error:
        rule = "a sequence of integers"
        raise validation.type_error(_CLASS, f"dataset[{i}]", rule, item) from error


def _check_ends(lengths: Iterable[int], n: int) -> npt.NDArray[np.int64]:
    """Return where each item ends, in tokens."""
    if isinstance(lengths, np.ndarray) and lengths.dtype.kind in "iu":
        lengths = torch.from_numpy(lengths.astype(np.int64, order="C"))
    cpu = torch.device("cpu")
    sizes = tensors.as_int64(_CLASS, "lengths", lengths, n, 0, 2**63 - 1, cpu)
    tokens = sizes.to(cpu).numpy()
    ends: npt.NDArray[np.int64] = np.cumsum(tokens)
    if (tokens < 0).any() or (ends < 0).any():  # the first sum that does not fit is negative
        rule = "integers of at least 0, with a sum below 2**63"
        raise validation.value_error(_CLASS, "lengths", rule, lengths)
    return ends

"""The ``with`` blocks that set the rows and the label of layers, for one thread."""

from __future__ import annotations

import hashlib

from ..._utils import validation
from ...derivation import context
from .scope import Block, RowRange

_MOST_ROWS = 2**53


class rows(Block):
    """Set which rows of the global batch the inputs hold, in a ``with`` block.

    Row i of an input is row ``start + i * step`` of the global batch. A recomputation has the rows
    of its forward pass. Blocks may be nested; the inner one counts, in the thread that enters it
    and the backward passes that this thread runs.

    Args:
        start: the first row, [0, 2**53].
        total: the number of rows of the global batch.
        step: the distance of the rows: the number of ranks where they take turns.
        count: the number of rows in this block; inputs of a multiple of it, such as (batch * time,
            features), have so many equal parts a row. None: the size of each input.

    Raises:
        TypeError, ValueError: an argument is invalid, or the rows are not below ``total``.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1)
        >>> layer = fastseed.nn.Dropout(0.5, name="block")
        >>> whole = layer(torch.ones(4, 8))
        >>> fastseed.reseed(task=1)
        >>> with fastseed.nn.rows(2, total=4):
        ...     part = layer(torch.ones(2, 8))
        >>> torch.equal(part, whole[2:])
        True
    """

    def __init__(self, start: int, total: int, *, step: int = 1, count: int | None = None) -> None:
        function = "nn.rows"
        total = validation.check_int(function, "total", total, 1, _MOST_ROWS)
        start = validation.check_int(function, "start", start, 0, total - 1)
        step = validation.check_int(function, "step", step, 1, _MOST_ROWS)
        if count is not None:
            most = (total - 1 - start) // step + 1
            count = validation.check_int(function, "count", count, 1, most)
        self.value: RowRange = RowRange(start, total, step, count)

    def __repr__(self) -> str:
        here = self.value
        return f"rows({here.start}, {here.total}, step={here.step}, count={here.count})"

    @classmethod
    def of_micro_batch(cls, count: int, micro_batch: int = 0, micro_batches: int = 1) -> rows:
        """Return the rows of a micro-batch of this rank, as fastseed's loaders cut the data.

        Sample k of rank r of the w that divide the data has position k w + r in the step.

        Args:
            count: the number of samples in the micro-batch of this rank.
            micro_batch: the number of the micro-batch in its step, [0, micro_batches).
            micro_batches: how many micro-batches of ``count`` samples a step has.

        Raises:
            TypeError, ValueError: an argument is invalid.
            RuntimeError: before ``init``.

        Examples:
            >>> fastseed.init(42, rank=1, world_size=2)
            >>> fastseed.nn.rows.of_micro_batch(4, micro_batch=1, micro_batches=2)
            rows(9, 16, step=2, count=4)
        """
        function = "nn.rows.of_micro_batch"
        seeder = context.current(function)
        rank, ranks = seeder.data_rank, seeder.data_world_size
        count = validation.check_int(function, "count", count, 1, _MOST_ROWS)
        parts = validation.check_int(function, "micro_batches", micro_batches, 1, _MOST_ROWS)
        part = validation.check_int(function, "micro_batch", micro_batch, 0, parts - 1)
        return cls(part * count * ranks + rank, parts * count * ranks, step=ranks, count=count)


class label(Block):
    """Draw other dropout masks in a ``with`` block: for a second pass over the same rows.

    A block counts as one of ``fastseed.nn.rows`` does.

    Args:
        text: a non-empty string, such as "teacher"; else TypeError or ValueError.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1)
        >>> layer = fastseed.nn.Dropout(0.5, name="block")
        >>> student = layer(torch.ones(64))
        >>> with fastseed.nn.label("teacher"):
        ...     teacher = layer(torch.ones(64))
    """

    def __init__(self, text: str) -> None:
        text = validation.check_text("nn.label", "text", text)
        digest = hashlib.sha256(text.encode()).digest()
        self.value = int.from_bytes(digest[:8], "little") >> 1

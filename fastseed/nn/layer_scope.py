"""The scope, the rows and the label, on which the key of a layer depends besides its name.

Scope and first row lie in tensors, one pair a device, that are written in place: a compiled model
or a captured graph reads what is there when it runs. ``reseed`` writes the scope, through
``fastseed.derivation.context.observe_scope``, and ``rows`` the first row.
"""

from __future__ import annotations

import hashlib
import os
from types import TracebackType
from typing import Any, NamedTuple

import torch

from .._backend import derive_ops
from .._backend.derive_ops import signed
from .._utils import validation
from ..derivation import context

_MOST_ROWS = 2**53


class LayerName:
    """The name of a layer, and the words that the derivation takes of it."""

    def __init__(self, name: str) -> None:
        self.name = validation.check_text("nn.Dropout", "name", name)
        # kept, because compiled code cannot hash
        self.words = tuple(map(signed, derive_ops.name_words(f"dropout/{name}")))

    def __repr__(self) -> str:
        return f"LayerName({self.name!r})"


class _DeviceScope(NamedTuple):
    scope: torch.Tensor  # (2,) uint64
    first_row: torch.Tensor  # (1,) int64
    process_id: int


class _Current:
    """The state of the process: one object, whose attributes compiled code guards."""

    def __init__(self) -> None:
        self.rows: rows | None = None
        self.data_ranks = 0  # of the seeder; 0 where there is no scope to take keys from
        self.label: label | None = None
        self.label_index = 0
        self.devices: dict[torch.device, _DeviceScope] = {}
        self.used: dict[tuple[str, int], list[_Use]] = {}


current = _Current()


_CPU = torch.device("cpu")


def _write_scope() -> None:
    """Write the new scope to every device, for the next use of each layer."""
    current.used.clear()
    seeder, words, current.data_ranks = context.seeder, (0, 0), 0
    if seeder is not None and seeder.scope is not None and seeder.scheme == "philox-v1":
        words = derive_ops.scope_key(seeder.master_seed, *seeder.scope)
        current.data_ranks = seeder.data_world_size
    if torch.cuda.is_initialized() and torch.cuda.is_available():  # type: ignore[no-untyped-call]
        device_scope(torch.device("cuda", torch.cuda.current_device()))
    on_cpu = current.devices[_CPU].scope
    on_cpu.numpy()[:] = words  # in a tenth of the time that copy_ from a new tensor takes
    for held in current.devices.values():
        # what a parent of os.fork has on an accelerator cannot be used here
        if held.scope is not on_cpu and held.process_id == os.getpid():
            held.scope.copy_(on_cpu)


def device_scope(device: torch.device) -> _DeviceScope:
    """Return the tensors of a device; made at its first use, or by a ``reseed`` before it."""
    found = current.devices.get(device)
    if found is None:
        if torch.compiler.is_compiling():
            raise RuntimeError(
                f"fastseed.nn.Dropout: call fastseed.reseed when {device} is in use, before the "
                "compiled model runs for the first time"
            )
        with torch.inference_mode(False):
            scope, first_row, _ = current.devices[_CPU]
            found = _DeviceScope(scope.to(device), first_row.to(device), os.getpid())
        current.devices[device] = found
    return found


with torch.inference_mode(False):
    current.devices[_CPU] = _DeviceScope(
        torch.zeros(2, dtype=torch.uint64, device=_CPU),
        torch.zeros(1, dtype=torch.int64, device=_CPU),
        os.getpid(),
    )
_write_scope()  # a name may be loaded at its first use, after reseed
context.observe_scope(_write_scope)


# ---------------------------------------------------------------- rows and labels


class rows:
    """Say which rows of the global batch the inputs of this process hold, in a ``with`` block.

    Row i of an input is row ``start + i * step`` of the global batch. The backward pass belongs
    into the block too where activations are recomputed. Blocks may be nested; the inner one counts.

    Args:
        start: the first row, [0, 2**53].
        total: the number of rows of the global batch.
        step: the distance of the rows: the number of ranks where they take turns, as those of
            ``fastseed.data.ShuffleSampler`` do.
        count: the number of rows in this block. Inputs of a multiple of it, such as (batch * time,
            features), then count as so many equal parts a row. None: the size of each input.

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
        self.total = validation.check_int(function, "total", total, 1, _MOST_ROWS)
        self.start = validation.check_int(function, "start", start, 0, self.total - 1)
        self.step = validation.check_int(function, "step", step, 1, _MOST_ROWS)
        self.count = count
        if count is not None:
            most = (self.total - 1 - self.start) // self.step + 1
            self.count = validation.check_int(function, "count", count, 1, most)
        self._outer: list[rows | None] = []

    def __repr__(self) -> str:
        return f"rows({self.start}, {self.total}, step={self.step}, count={self.count})"

    def __enter__(self) -> None:
        self._outer.append(current.rows)
        self._become(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._become(self._outer.pop())

    @staticmethod
    def _become(chosen: rows | None) -> None:
        current.rows = chosen
        for held in current.devices.values():
            if held.first_row.device.type == "cpu" or held.process_id == os.getpid():
                held.first_row.fill_(0 if chosen is None else chosen.start)


def data_rows(count: int, micro_batch: int = 0, micro_batches: int = 1) -> rows:
    """Return the ``rows`` of a micro-batch of this rank, as fastseed's loaders cut the data.

    The ranks that divide the data (all of them, or those along the ``dp...`` dimensions of the mesh
    of ``fastseed.init``) take turns: sample k of rank r of w has position k w + r in the step.

    Args:
        count: the number of samples in the micro-batch of this rank.
        micro_batch: the number of the micro-batch in its step, [0, micro_batches).
        micro_batches: how many micro-batches of ``count`` samples a step has.

    Returns:
        A ``rows`` for a ``with`` statement.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: before ``init``.

    Examples:
        >>> fastseed.init(42, rank=1, world_size=2)
        >>> fastseed.nn.data_rows(4, micro_batch=1, micro_batches=2)
        rows(9, 16, step=2, count=4)
    """
    function = "nn.data_rows"
    seeder = context.current(function)
    rank, ranks = seeder.data_rank, seeder.data_world_size
    count = validation.check_int(function, "count", count, 1, _MOST_ROWS)
    parts = validation.check_int(function, "micro_batches", micro_batches, 1, _MOST_ROWS)
    part = validation.check_int(function, "micro_batch", micro_batch, 0, parts - 1)
    return rows(part * count * ranks + rank, parts * count * ranks, step=ranks, count=count)


class label:
    """Give the layers other masks in a ``with`` block: for a second pass over the same rows.

    Args:
        text: a non-empty string, such as "teacher".

    Raises:
        TypeError, ValueError: ``text`` is not a non-empty string.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1)
        >>> layer = fastseed.nn.Dropout(0.5, name="block")
        >>> student = layer(torch.ones(64))
        >>> with fastseed.nn.label("teacher"):
        ...     teacher = layer(torch.ones(64))
        >>> torch.equal(student, teacher)
        False
    """

    def __init__(self, text: str) -> None:
        self.text = validation.check_text("nn.label", "text", text)
        digest = hashlib.sha256(self.text.encode()).digest()
        self.index = int.from_bytes(digest[:8], "little") >> 1
        self._outer: list[label | None] = []

    def __enter__(self) -> None:
        self._outer.append(current.label)
        current.label, current.label_index = self, self.index

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        current.label = self._outer.pop()
        current.label_index = 0 if current.label is None else current.label.index


# ---------------------------------------------------------------- one use of each row


class _Use(NamedTuple):
    """Which rows a layer was used for, and the size of a row."""

    taken: range
    row_elements: int


def check_use(layer: LayerName, taken: range, row_elements: int) -> None:
    """RuntimeError where a layer takes rows again in one scope, outside of a recomputation.

    A recomputation, in a backward pass, must be of rows that were used in this scope.
    """
    uses = current.used.setdefault((layer.name, current.label_index), [])
    use = _Use(taken, row_elements)
    if torch._C._current_graph_task_id() != -1:  # in a backward pass
        if use not in uses:
            raise RuntimeError(
                f"fastseed.nn.Dropout: {layer.name!r} is recomputed in a backward pass for "
                f"{_named(taken)}, which it was not used for in this scope: run the backward pass "
                "before the next fastseed.reseed, and in the same fastseed.nn.rows and "
                "fastseed.nn.label blocks as the forward pass"
            )
        return
    if any(_overlap(taken, other.taken) for other in uses):
        raise RuntimeError(
            f"fastseed.nn.Dropout: {layer.name!r} is used a second time in this scope for "
            f"{_named(taken)}, and its mask would repeat: call fastseed.reseed(task, epoch, "
            "step=...) before each step, or wrap a second pass of the same step in "
            "`with fastseed.nn.label(...)`; other rows of the batch belong into "
            "`with fastseed.nn.rows(start, total)`"
        )
    uses.append(use)


def _named(taken: range) -> str:
    return f"rows {taken.start} to {taken[-1]}" if taken else "no rows"


def _overlap(a: range, b: range) -> bool:
    if not a or not b or a[-1] < b.start or b[-1] < a.start:
        return False
    if a.step == b.step:
        return (a.start - b.start) % a.step == 0
    return any(i in b for i in a)


def check_scope(function: str) -> Any:
    """Return the process-wide seeder; RuntimeError before ``init`` or the first ``reseed``."""
    seeder = context.current(function)
    if seeder.scheme != "philox-v1":
        raise validation.value_error(function, "scheme", "'philox-v1'", seeder.scheme)
    if seeder.scope is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.reseed(task, epoch) first")
    return seeder

"""The draws of a block of ``random.keyed``: the number of the next one, and its key.

What changes from call to call reaches a compiled graph in tensors: the scope, and that number.
"""

from __future__ import annotations

import contextlib
import os

import numpy as np
import torch

from .._backend import native, private_torch, recomputation
from .._backend.compile import is_exporting
from .._backend.ops.dropout import layer_key
from .._backend.reference.scalar import SHARED_RANK
from ..derivation import blocks, streams
from ..derivation.place import Place
from . import layout, scope_tensors
from .fills import Fill
from .functional import Key
from .scope_tensors import CPU

FUNCTION = "random.keyed"
DRAW_BITS = 24  # of the index of a key, below the index of the block
NOT_COMPILED = (
    f"fastseed.{FUNCTION}: compiled code must not draw in a DataLoader worker or a sample, whose "
    "streams it does not have: call the function without torch.compile there"
)


class Draws:
    """Where the draws of a block are, and which of them is next."""

    def __init__(self, name: str, words: tuple[int, int], index: int | None) -> None:
        self.name, self.words = name, words
        self.is_once, self.index = index is None, index or 0
        self.rank_field = 0
        self.next: torch.Tensor | None = None  # (1,) int64: the index of the key of the next draw
        self.scope: torch.Tensor | None = None  # (2,) uint64: of the forward pass, if another one
        self.has_moved = False  # to another scope, since the block was entered
        self.is_eager = False

    def begin(self, place: Place, rank_field: int) -> None:
        """Begin at a place, in this task of this thread and process."""
        if place.scope_key != scope_tensors.words():
            self.scope = torch.tensor(place.scope_key, dtype=torch.uint64, device=CPU)
        self._place, self._streams = place, dict[int, streams.Stream]()  # by rank field
        self.rank_field = int(rank_field)  # torch.compile of 2.10 knows no other integers
        self.process, self._task = os.getpid(), blocks.current_task()
        self._checkpoint = recomputation.innermost()
        array = np.array([self.index << DRAW_BITS], np.int64)
        self.number: memoryview[int] = memoryview(array)  # type: ignore[arg-type]
        is_inference = torch.is_inference_mode_enabled()
        with torch.inference_mode(False) if is_inference else contextlib.nullcontext():
            self.next = torch.from_numpy(array)  # which compiled code may write in any mode
        self.is_eager = True

    def draw(
        self, fill: Fill, tensor: torch.Tensor, *parameters: object, **named: object
    ) -> torch.Tensor:
        """Fill a tensor from the key of the next draw."""
        is_compiling = torch.compiler.is_compiling()
        key = self.next_key(tensor, is_compiling)
        spares = contextlib.nullcontext if is_compiling else private_torch.WITHOUT_FUNCTION_MODES
        with spares():
            found = fill(tensor, key, *parameters, **named)
        if found is not False and tensor.numel():
            self.count(is_compiling)
        return tensor

    def next_key(self, tensor: torch.Tensor, is_compiling: bool) -> Key:
        """Return the key of the next draw, which is of this tensor or like it."""
        self._check_place(is_compiling)
        rank_field = SHARED_RANK if layout.is_dtensor(tensor) else self.rank_field
        if is_compiling:
            return self._key_in_graph(rank_field)
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return self._key_in_capture(tensor.device, rank_field)
        stream = self._streams.get(rank_field)
        if stream is None:
            at = self._place.scope_key, f"keyed/{self.name}", rank_field, self._place.worker
            stream = self._streams[rank_field] = streams.stream_in(*at)
        return stream.key(self.number[0])

    def count(self, is_compiling: bool) -> None:
        """Go on to the next draw."""
        if is_compiling:
            self.next.add_(1)  # type: ignore[union-attr]
        else:
            self.number[0] += 1

    def _key_in_graph(self, rank_field: int) -> torch.Tensor:
        if self.is_eager and self._place.worker:
            raise RuntimeError(NOT_COMPILED)
        if not scope_tensors.process_state.has_keys:
            raise RuntimeError(f"fastseed.{FUNCTION}: call fastseed.reseed(task, epoch) first")
        scope = scope_tensors.on_device(FUNCTION, CPU) if self.scope is None else self.scope
        keys = torch.empty(3, dtype=torch.uint64, device=CPU)
        layer_key(keys, scope, self.next, *self.words, 0, 1, 0, rank_field)
        return keys[:2]

    def _key_in_capture(self, device: torch.device, rank_field: int) -> torch.Tensor:
        """Return a key for a CUDA graph: of this draw, in the scope of each replay."""
        if self.is_once:
            raise self.needs_index("while a CUDA graph is captured")
        if self.scope is not None:
            wrong = "a backward pass must be captured before the next fastseed.reseed"
            raise RuntimeError(f"fastseed.{FUNCTION}: {wrong}")
        keys = torch.empty(3, dtype=torch.uint64, device=device)
        zero = torch.zeros(1, dtype=torch.int64, device=device)
        scope = scope_tensors.on_device(FUNCTION, device)
        layer_key(keys, scope, zero, *self.words, self.number[0], 0, 0, rank_field)
        return keys[:2]

    def _check_place(self, is_compiling: bool) -> None:
        """RuntimeError where a draw of this block could not be repeated."""
        if self.has_moved:
            wrong = "the scope is another one now: leave the block before fastseed.reseed"
        elif private_torch.is_vmapped():
            wrong = (
                "torch.vmap would give all of its examples the same numbers: draw them outside of "
                "it, or pass it randomness='same'"
            )
        elif is_compiling and self.is_eager and is_exporting():
            wrong = "torch.export would keep its count: open the block in the exported function"
        elif not is_compiling and self.process != os.getpid():
            wrong = "os.fork was called in the block: open one in the child"
        elif not is_compiling and blocks.current_task() is not self._task:
            wrong = f"another asyncio task draws: {blocks.ONE_TASK}"
        elif self._is_recomputed(is_compiling):
            wrong = (
                "a function is recomputed (by a checkpoint, or by the compiler for the sake of "
                "activation_memory_budget), which would run without the block: open the block "
                "inside the function"
            )
        else:
            return
        raise RuntimeError(f"fastseed.{FUNCTION}: in the block {self.name!r}, {wrong}")

    def _is_recomputed(self, is_compiling: bool) -> bool:
        """Return whether a checkpointed function draws outside of which the block was opened."""
        if is_compiling:
            return self.is_eager and (
                private_torch.is_drawn_again()
                or (self._checkpoint is None and private_torch.is_checkpointed())
            )
        return recomputation.innermost() != self._checkpoint

    def needs_index(self, where: str) -> RuntimeError:
        """Return the error of a block without an index where nobody can look."""
        return RuntimeError(
            f"fastseed.{FUNCTION}: the block {self.name!r} must have an index= {where}, where "
            "nothing notices that it is entered a second time in a scope"
        )


def positions() -> list[object]:
    """Return where torch's default generators are."""
    found: list[object] = []
    if native.generators is not None:
        found.append(native.generators.cpu_position())
    elif private_torch.is_plain_eager() and not private_torch.is_transformed():
        found.append(torch.default_generator.get_state().numpy().tobytes())
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
        found += [(g.initial_seed(), g.get_offset()) for g in torch.cuda.default_generators]
    return found


def have_moved(before: list[object]) -> bool:
    """Return whether a generator is elsewhere than ``positions()`` said before."""
    return positions()[: len(before)] != before

"""``fork_rng(name)``: torch's default generators on a named stream inside a ``with`` block.

A named stream has one generator on the CPU and one on each device: the streams
``<name>/torch.cpu``, ``<name>/torch.cuda`` and so on, at the rank field that the name has under
``distinct_over``. Their index is ``slot << 8 | device``: slot 0 without an index, else
``index + 1``; the device is 0 on the CPU, else relative to the current one.

torch's default generators belong to the process, so its blocks form one stack. The innermost block
runs; each entry holds a snapshot of what ran before it.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._backend import private_torch, recomputation
from .._backend.compile import eager
from .._utils import validation
from ..derivation import blocks, context, scopes, streams
from ..derivation.place import Place
from ..generators.accelerator import AcceleratorGenerators
from ..generators.torch_rng import TorchGenerator
from .generators import Generators
from .process_lock import process

_FUNCTION = "fork_rng"
MAX_INDEX = 2**56 - 2  # the low 8 bits of a member's index are the device


class ForkBlock(contextlib.ContextDecorator):
    """A switch to a named stream: a context manager that can be entered again, and a decorator."""

    def __init__(self, seeder: Any, name: str, index: int | None, distinct_over: object) -> None:
        # None: that of the process, when it is entered; decorators are made before init.
        self._seeder, self._distinct_over = seeder, distinct_over
        self._name = scopes.check_name(_FUNCTION, name)
        self._slot = 0
        if index is not None:
            self._slot = validation.check_int(_FUNCTION, "index", index, 0, MAX_INDEX) + 1
        self.entries: tuple[ForkEntry, ...] = ()

    def __call__(self, function: Callable[..., Any]) -> Any:
        kinds = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
        if any(is_kind(function) for is_kind in kinds):
            rule = "one that returns what it drew: open the block in a generator or coroutine"
            raise validation.type_error(_FUNCTION, "the decorated function", rule, function)
        return super().__call__(function)

    @eager
    def __enter__(self) -> None:
        seeder = self._seeder or context.current(_FUNCTION)
        generators: Generators = seeder.generators
        use = f"{_FUNCTION}/{self._name}/{self._slot}"
        found: tuple[Place, int] | None = recomputation.had(use)
        is_once = not self._slot and found is None
        if found is None:
            context.refuse_worker(_FUNCTION)
            blocks.refuse_in_keyed(_FUNCTION)
            path = f"{self._name}/torch.cpu"
            found = blocks.place_of_block(_FUNCTION, path, self._distinct_over, seeder.place)
        generators.refuse_capture(_FUNCTION)
        entry = ForkEntry(self, self._name, generators.accelerators)
        if is_once:
            found[0].note_entry(_FUNCTION, _FUNCTION, self._name)
        self.entries = (*self.entries, entry)
        try:
            entry.enter(lambda: self._begin(generators, *found))
        except BaseException:
            self.entries = self.entries[:-1]
            if is_once:
                found[0].entries.pop(f"{_FUNCTION}/{self._name}", None)
            raise
        recomputation.keep(use, found)

    def _begin(self, generators: Generators, place: Place, rank_field: int) -> None:
        """Set torch's generators to the beginning of the stream."""

        def on(kind: str) -> streams.Stream:
            stream = streams.stream_in(place.scope_key, f"{self._name}/{kind}", rank_field)
            return stream.offset_by(self._slot << 8)

        TorchGenerator().reseed(on("torch.cpu"))
        for accelerator in generators.accelerators:
            accelerator.reseed(on(accelerator.name))

    @eager
    def __exit__(self, error: object = None, *_: object) -> None:
        entry = self.entries[-1]
        try:
            entry.leave(in_order=error is None)
        finally:
            self.entries = self.entries[:-1]


class ForkEntry:
    """One entry of a block by this thread."""

    def __init__(
        self, block: ForkBlock, name: str, accelerators: Sequence[AcceleratorGenerators]
    ) -> None:
        self._block = weakref.ref(block)
        self.name, self._accelerators = name, accelerators
        self.thread, self.task = threading.get_ident(), blocks.current_task()
        self.in_backward = private_torch.in_backward()

    def save(self) -> None:
        """Keep what torch's default generators are now."""
        self._cpu = torch.default_generator.get_state()
        self._devices = [accelerator.save() for accelerator in self._accelerators]

    def restore(self) -> None:
        """Put torch's default generators back to what they were before the entry."""
        torch.default_generator.set_state(self._cpu)
        for accelerator, held in zip(self._accelerators, self._devices, strict=True):
            accelerator.restore(held)

    @property
    def is_abandoned(self) -> bool:
        """Whether an interrupt kept it from being left: its block is gone, or no longer has it."""
        block = self._block()
        return block is None or self not in block.entries

    def enter(self, begin: Callable[[], None]) -> None:
        """Switch to the stream of the block; ``begin`` sets the generators to its beginning."""
        with process.lock:
            process.refuse_nested("fork_rng")
            self._check_thread()
            self.save()
            try:
                begin()
            except BaseException:
                self.restore()
                raise
            process.blocks = (*process.blocks, self)

    def leave(self, *, in_order: bool = False) -> None:
        """Switch back to what ran before, if an outer block or ``os.fork`` has not left it.

        Blocks inside it that were not left are left, too: a RuntimeError under ``in_order``.
        """
        with process.lock:
            entries = process.blocks
            if self not in entries:
                return
            at = entries.index(self)
            inside = [inner.name for inner in entries[at + 1 :]]
            self.restore()
            process.blocks = entries[:at]
        if inside and in_order:
            raise RuntimeError(
                "fastseed.fork_rng: blocks must be left in the reverse order of entering, but "
                f"{self.name!r} was left before {inside}; the generators are now as they "
                "were before it. Do not suspend a generator or coroutine inside a block"
            )

    def _check_thread(self) -> None:
        """Raise RuntimeError in another's block, unless its thread waits for this backward pass."""
        running = process.blocks[-1] if process.blocks else self
        if running.thread == self.thread:
            if running.task is self.task:
                return
            raise RuntimeError(
                "fastseed.fork_rng: must not be entered while another asyncio task is inside "
                f"fork_rng({running.name!r}): {blocks.ONE_TASK}"
            )
        if self.in_backward and not running.in_backward:  # it called backward() inside its block
            return
        raise RuntimeError(
            "fastseed.fork_rng: must not be entered while another thread is inside "
            f"fork_rng({running.name!r}): torch's default generators belong to the "
            "whole process; leave that block first, or give each thread its own torch.Generator"
        )


def open_blocks() -> list[object]:
    """Return the blocks of both kinds that this thread is in."""
    own = [entry for entry in process.blocks if entry.thread == threading.get_ident()]
    return [*blocks.open_keyed(), *own]

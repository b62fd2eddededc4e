"""``fork_rng(name)``: torch's default generators on a named stream inside a ``with`` block.

A named stream has one generator on the CPU and one on each device: the streams
``<name>/torch.cpu``, ``<name>/torch.cuda`` and so on, at the rank field that the name has under
``distinct_over``. Their index is ``slot << 8 | device``: slot 0 is the continuing form, slot
``index + 1`` the numbered one; the device is 0 on the CPU, else relative to the current one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch

from ..._backend.compile import eager
from ..._utils import validation
from ..._utils.log import warn_once
from ...derivation import context, scopes, streams
from ...distributed.mesh import RankFields
from ...generators.accelerator import AcceleratorGenerators
from ...generators.torch_rng import TorchGenerator
from ..registry import Registry
from . import stack
from .stack import ForkEntry, GeneratorState, NamedStream

if TYPE_CHECKING:
    from ..seeder import Seeder

CPU = "torch.cpu"

MAX_INDEX = 2**56 - 2  # of a numbered block: the low 8 bits of a member's index are the device
MOST_NAMES = 4096  # streams in use in one scope; each takes 9 KB
Parsed: TypeAlias = torch.Tensor | list[torch.Tensor]  # a state of the CPU, or of a kind of device


class ForkRng:
    """The named streams of a seeder."""

    def __init__(
        self,
        registry: Registry,
        rank_fields: RankFields,
        accelerators: Sequence[AcceleratorGenerators],
    ) -> None:
        self._registry, self._rank_fields = registry, rank_fields
        self._accelerators = accelerators
        self._streams: dict[str, NamedStream] = {}
        # States that were loaded and not used since, and whether this rank saved each.
        self._loaded: dict[str, tuple[GeneratorState, bool]] = {}

    def enter(
        self, block: ForkBlock, seeder: Seeder, name: str, slot: int, distinct_over: object
    ) -> None:
        """Switch to the stream."""
        function = "fork_rng"
        scopes.require_keys(function, seeder.scheme)
        if seeder.scope is None:
            raise RuntimeError("fastseed.fork_rng: call fastseed.reseed(task, epoch) first")
        context.refuse_worker(function)
        for accelerator in self._accelerators:
            accelerator.refuse_capture(function)
        stream = self._stream(name, distinct_over)
        rank_field = stream.rank_field
        scope = seeder._scope_key(stream.rank_field, seeder.scope)

        def on(kind: str) -> streams.Stream:
            return streams.stream_in(scope, f"{name}/{kind}", rank_field).offset_by(slot << 8)

        def begin() -> None:
            TorchGenerator().reseed(on(CPU))
            for accelerator in self._accelerators:
                accelerator.reseed(on(accelerator.name))

        if slot:
            stream = NamedStream(name, rank_field)
        elif stream.state is not None:  # devices that were not there when it was saved
            devices = zip(self._accelerators, stream.state.devices, strict=True)
            held = [on(a.name) if state is None else state for a, state in devices]
            stream.state = stream.state._replace(devices=held)
        entry = ForkEntry(block, stream, self._accelerators)
        block.entries = (*block.entries, entry)
        try:
            stack.enter(entry, begin)
        except BaseException:
            block.entries = block.entries[:-1]
            raise
        if entry.in_backward and not slot:
            warn_once(
                "fastseed.fork_rng: %r was entered in a backward pass, where it continues instead "
                "of repeating: recomputation by torch.utils.checkpoint draws other numbers than "
                "the forward pass did; give fork_rng an index=",
                name,
            )

    def _stream(self, name: str, distinct_over: object) -> NamedStream:
        """Return the stream of this name; declare it if this is its first use in the scope."""
        stream = self._streams.get(name)
        if stream is None:
            if len(self._streams) >= MOST_NAMES:
                rule = f"one of at most {MOST_NAMES} names between two reseeds (or give index=)"
                raise validation.value_error("fork_rng", "name", rule, name)
            rank_field = self._rank_fields.of_block("fork_rng", name, distinct_over)
            names = self._full_names(name)
            self._registry.check_free("fork_rng", names)
            stream = self._streams[name] = NamedStream(name, rank_field)
            self._registry.reserve(names, rank_field)
        elif distinct_over is not None and (
            self._rank_fields.of_block("fork_rng", name, distinct_over) != stream.rank_field
        ):
            rule = f"what it was when {name!r} was first used in this scope"
            raise validation.value_error("fork_rng", "distinct_over", rule, distinct_over)
        self._take_loaded(stream)
        return stream

    def _full_names(self, name: str) -> list[str]:
        return [f"{name}/{kind}" for kind in (CPU, *(a.name for a in self._accelerators))]

    def _take_loaded(self, stream: NamedStream) -> None:
        state, own = self._loaded.pop(stream.name, (None, False))
        if state is not None and (own or stream.rank_field == scopes.SHARED):
            stream.state = state

    def restart(self) -> None:
        """Forget every stream, after a reseed: each begins again."""
        for name in self._streams:
            self._registry.release(self._full_names(name))
        self._streams, self._loaded = {}, {}

    def states(self) -> dict[str, torch.Tensor]:
        """Return where each continuing stream is, as uint8 tensors by ``<name>/torch.<kind>``."""
        found = {name: state for name, (state, own) in self._loaded.items() if own}
        found.update((s.name, s.state) for s in self._streams.values() if s.state is not None)
        entries = {}
        for name, state in sorted(found.items()):
            entries[f"{name}/{CPU}"] = state.cpu
            for accelerator, devices in zip(self._accelerators, state.devices, strict=True):
                if isinstance(devices, list) and devices:
                    entries[f"{name}/{accelerator.name}"] = torch.cat(devices)
        return entries

    def parser(self, full_name: str) -> TorchGenerator | AcceleratorGenerators | None:
        """Return what parses a state of ``states``; None for the name of another stream."""
        name, _, kind = full_name.rpartition("/")
        if name and kind == CPU:
            return TorchGenerator(torch.Generator())
        return next((a for a in self._accelerators if name and a.name == kind), None)

    def load_states(self, parsed: Mapping[str, tuple[Parsed, bool]]) -> None:
        """Let streams continue from parsed states, given whether this rank saved each of them."""
        self._loaded = {}
        for full_name, (state, own) in parsed.items():
            name, _, kind = full_name.rpartition("/")
            if kind == CPU:
                assert isinstance(state, torch.Tensor)
                found = [parsed.get(f"{name}/{a.name}", (None,))[0] for a in self._accelerators]
                devices = [held if isinstance(held, list) else None for held in found]
                self._loaded[name] = GeneratorState(state, devices), own
        for stream in self._streams.values():
            self._take_loaded(stream)


class ForkBlock(contextlib.ContextDecorator):
    """A switch to a named stream: a context manager that can be entered again, and a decorator."""

    def __init__(
        self, owner: Callable[[], Seeder], name: str, index: int | None, distinct_over: object
    ) -> None:
        self._owner, self._distinct_over = owner, distinct_over
        self._name = scopes.check_name("fork_rng", name)
        self._slot = 0
        if index is not None:
            self._slot = validation.check_int("fork_rng", "index", index, 0, MAX_INDEX) + 1
        self.entries: tuple[ForkEntry, ...] = ()

    @eager
    def __enter__(self) -> None:
        seeder = self._owner()
        seeder._forks.enter(self, seeder, self._name, self._slot, self._distinct_over)

    @eager
    def __exit__(self, error: object = None, *_: object) -> None:
        entry = self.entries[-1]
        try:
            stack.leave(entry, in_order=error is None)
        finally:
            self.entries = self.entries[:-1]

"""The generators that users registered: their names, and what kind of sink each one is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from .._utils import validation
from ..derivation import streams
from ..distributed.mesh import RankFields
from ..generators.adapters import BITS, CallableSink, PythonSink, Sink, TorchSink
from ..generators.epoch_setters import Follower, is_follower
from ..generators.numpy_rng import NumpyLegacySink, NumpySink
from ..generators.pool import GeneratorPool
from ..random.bank import StreamBank

Bulk: TypeAlias = GeneratorPool | StreamBank
"""Many streams behind one handle: reseeded as members, and states in the plural."""


class Registration(NamedTuple):
    """A registered generator, held strongly until it is unregistered."""

    name: str
    name_id: int
    generator: Any
    sink: Sink | Bulk
    shared: bool
    place: int | None = None
    """Its rank field in the main process; None: the rank, or SHARED."""

    def reseed(self, stream: streams.Stream) -> None:
        """Give the generator, or each member of a pool or bank, its key of ``stream``."""
        if isinstance(self.sink, Bulk):
            self.sink.reseed_members(stream)
        else:
            self.sink.reseed(stream.key())


def sink_for(generator: Any, bits: int = 31) -> Sink | Bulk:
    """The sink of a generator of any supported kind; TypeError for anything else."""
    if isinstance(generator, Bulk):
        return generator
    if isinstance(generator, torch.Generator):
        return TorchSink(generator)
    if isinstance(generator, np.random.Generator):
        return NumpySink(generator)
    if isinstance(generator, np.random.RandomState):
        return NumpyLegacySink(generator)
    if isinstance(generator, random.Random) and not isinstance(generator, random.SystemRandom):
        return PythonSink(generator)
    if isinstance(generator, (list, tuple)) and generator:
        return GeneratorPool(generator)
    if is_follower(generator):
        return Follower(generator)
    if callable(generator):
        return CallableSink(generator, bits)
    raise TypeError(
        "fastseed.register_generator: gen must be a callable, torch.Generator, "
        "numpy.random.Generator, numpy.random.RandomState, random.Random, GeneratorPool, "
        "StreamBank, non-empty list of torch.Generator, or something with set_scope or set_epoch, "
        f"got {validation.describe(generator)} "
        f"of type {type(generator).__name__}"
    )


class Registry:
    """Registrations in order, under names whose ids all differ."""

    def __init__(self, reserved: tuple[str, ...], rank_fields: RankFields) -> None:
        self._rank_fields = rank_fields
        self._names = {streams.name_id(name): name for name in reserved}
        self._entries: list[Registration] = []
        self._unnamed = 0

    def __iter__(self) -> Iterator[Registration]:
        return iter(tuple(self._entries))  # whatever they do to it meanwhile

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self, generator: Any, shared: bool, name: str | None, bits: int, distinct_over: Any = None
    ) -> Registration:
        """Register; nothing has changed when this raises."""
        if not isinstance(shared, (bool, np.bool_)):
            raise TypeError(
                "fastseed.register_generator: shared must be a bool, "
                f"got {validation.describe(shared)} of type {type(shared).__name__}"
            )
        if type(bits) is not int or bits not in BITS:
            raise ValueError(
                f"fastseed.register_generator: bits must be one of {BITS}, "
                f"got {validation.describe(bits)}"
            )
        sink = sink_for(generator, bits)
        unnamed = name is None and not isinstance(generator, Bulk)
        if unnamed:
            while streams.name_id(f"generator/{self._unnamed}") in self._names:
                self._unnamed += 1  # somebody gave that name
            name = f"generator/{self._unnamed}"
        elif name is None:
            name = generator.name
        name = streams.check_name("register_generator", name)
        name_id = self._free_id("register_generator", name)
        shared = bool(shared) or (isinstance(sink, Follower) and sink.shared)
        place = self._rank_fields.of_registered(name, shared, distinct_over)
        entry = Registration(name, name_id, generator, sink, place == streams.SHARED, place)
        self._unnamed += unnamed
        self._names[name_id] = name
        self._entries.append(entry)
        return entry

    def _free_id(self, function: str, name: str) -> int:
        name_id = streams.name_id(name)
        if name_id in self._names:
            other = self._names[name_id]
            why = "is taken" if name == other else f"has the id {name_id:08x} of {other!r}"
            raise ValueError(
                f"fastseed.{function}: name must have an id of its own, got {name!r}, which {why}"
            )
        return name_id

    def reserve(self, function: str, names: tuple[str, ...]) -> None:
        """Keep these names, all of them or none, from being registered; ValueError if one is."""
        ids = [self._free_id(function, name) for name in names]
        self._names.update(zip(ids, names, strict=True))

    def remove(self, generator: Any) -> None:
        """Forget the first registration of this very generator, or of an equal callable."""
        matches = [e for e in self._entries if e.generator is generator]
        matches = matches or [e for e in self._entries if _equal(e.generator, generator)]
        if matches:
            entry = matches[0]
            self._entries = [e for e in self._entries if e is not entry]
            del self._names[entry.name_id]
            return
        raise ValueError(
            "fastseed.unregister_generator: gen must be a registered generator, "
            f"got {validation.describe(generator)}"
        )

    def find(self, name: str) -> Registration | None:
        """The registration under this name."""
        for entry in self._entries:
            if entry.name == name:
                return entry
        return None


def _equal(a: Any, b: Any) -> bool:
    """Bound methods are made anew by each attribute access: equal, but not the same object."""
    return callable(a) and callable(b) and type(a) is type(b) and bool(a == b)

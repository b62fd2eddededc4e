"""Registered generators with their adapters, and epoch setters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from .._utils import validation
from .._utils.log import logger
from ..derivation import reserved, scopes
from ..derivation.scopes import SHARED
from ..distributed.mesh import RankFields
from ..generators.adapter import ADAPTERS, GeneratorAdapter, adapter_of
from ..generators.default import global_generators
from ..generators.pool import GeneratorPool, MembersAdapter, check_generators
from ..generators.setters import BITS, EpochSetter, SeedFunction, is_epoch_setter
from ..random.bank import StreamBank

_FUNCTION = "register_generator"


class Registration(NamedTuple):
    """A registered generator, sampler or dataset, held strongly until it is unregistered."""

    name: str
    generator: Any
    adapter: Any  # a `GeneratorAdapter`, or an `EpochSetter`
    rank_field: int

    @property
    def shared(self) -> bool:
        """Return whether all ranks share its stream."""
        return self.rank_field == SHARED


def adapter_for(generator: object, bits: int = 31) -> GeneratorAdapter:
    """Return the adapter of a generator of any supported kind; TypeError for anything else."""
    if isinstance(generator, (GeneratorPool, StreamBank)):
        return MembersAdapter(generator)
    adapter = adapter_of(type(generator))
    if adapter is not None:
        return adapter(generator)
    if isinstance(generator, (list, tuple)) and generator:
        members = check_generators(_FUNCTION, generator)
        return MembersAdapter(GeneratorPool(members, "list"))
    if callable(generator) and not isinstance(generator, torch.nn.Module):
        return SeedFunction(generator, bits)
    rule = (
        "a callable, generator of torch, NumPy or Python, GeneratorPool, StreamBank, non-empty "
        "list of torch.Generator, or an object with set_scope or set_epoch"
    )
    raise validation.type_error(_FUNCTION, "generator", rule, generator)


class Registry:
    """Registrations in order, under names that all differ.

    ``process.lock`` is held while it changes. A generator may register another one while it is
    reseeded: the tuples are replaced, never changed.
    """

    def __init__(self, reserved: tuple[str, ...], rank_fields: RankFields) -> None:
        self._rank_fields = rank_fields
        self._names: dict[str, int | None] = dict.fromkeys(reserved)  # None: as `rank_fields` says
        self.generators: tuple[Registration, ...] = ()
        self.epoch_setters: tuple[Registration, ...] = ()
        self._unnamed = 0

    def __iter__(self) -> Iterator[Registration]:
        yield from self.generators
        yield from self.epoch_setters

    def __len__(self) -> int:
        return len(self.generators) + len(self.epoch_setters)

    def add(
        self,
        generator: object,
        shared: bool,
        name: str | None,
        bits: int,
        distinct_over: object = None,
    ) -> str:
        """Register, and return the name; nothing has changed when this raises."""
        shared = validation.check_bool(_FUNCTION, "shared", shared)
        bits = validation.check_choice(_FUNCTION, "bits", bits, BITS)
        adapter = self._adapter(generator, bits)
        draws = True
        if isinstance(adapter, EpochSetter):
            draws = adapter.takes_seed
            shared = shared or draws
        number, name = self._name(generator, name)
        if draws:
            reserved.check_free(_FUNCTION, name)
        if name in self._names:
            rule = "one that is not registered yet (pass another, or unregister that one first)"
            raise validation.value_error(_FUNCTION, "name", rule, name)
        rank_field = self._rank_fields.of_registered(name, shared, distinct_over)
        if self._unnamed == 1 < number:
            logger.warning(
                "fastseed.register_generator: %r has no name=, as one before it has none: they get "
                "their streams by the order in which they are registered; give each a name, so "
                "that a run that registers them in another order does not swap the streams",
                name,
            )
        self._unnamed = number
        self._names[name] = rank_field if draws else None
        entry = Registration(name, generator, adapter, rank_field)
        if isinstance(adapter, EpochSetter):
            self.epoch_setters = (*self.epoch_setters, entry)
        else:
            self.generators = (*self.generators, entry)
        return name

    def _adapter(self, generator: object, bits: int) -> GeneratorAdapter | EpochSetter:
        """Return the adapter; an error for what is no generator, or registered already."""
        is_setter = is_epoch_setter(generator)
        classes = (*ADAPTERS, GeneratorPool, StreamBank)
        if isinstance(generator, type) and (is_setter or issubclass(generator, classes)):
            rule = f"an instance, as {generator.__name__}()"  # the class would make new ones
            raise validation.type_error(_FUNCTION, "generator", rule, generator)
        if _is_reseeded(generator):
            rule = "one that reseed does not set already, as it does the process's own"
            raise validation.value_error(_FUNCTION, "generator", rule, generator)
        adapter = EpochSetter(generator) if is_setter else adapter_for(generator, bits)
        old = next((entry for entry in self if entry.generator is generator), None)
        if old is not None and not isinstance(adapter, SeedFunction):  # the last name would win
            rule = f"registered once: it is already, as {old.name!r}; unregister it first"
            raise validation.value_error(_FUNCTION, "generator", rule, generator)
        return adapter

    def _name(self, generator: object, name: object) -> tuple[int, str]:
        """Return the number of the next unnamed generator, and the name of this one."""
        number = self._unnamed
        if isinstance(generator, (GeneratorPool, StreamBank)):
            if name not in (None, generator.name):
                rule = f"left out, or {generator.name!r}, the name of the generator itself"
                raise validation.value_error(_FUNCTION, "name", rule, name)
            return number, generator.name
        if name is not None:
            return number, scopes.check_name(_FUNCTION, name)
        while f"generator/{number}" in self._names:
            number += 1
        return number + 1, f"generator/{number}"

    def remove(self, generator: object) -> None:
        """Forget the first registration of this very generator, or of an equal callable."""
        matches = [entry for entry in self if entry.generator is generator]
        matches = matches or [entry for entry in self if _equal(entry.generator, generator)]
        if not matches:
            rule = "a registered generator"
            raise validation.value_error("unregister_generator", "generator", rule, generator)
        entry = matches[0]
        self.generators = tuple(e for e in self.generators if e is not entry)
        self.epoch_setters = tuple(e for e in self.epoch_setters if e is not entry)
        del self._names[entry.name]

    def find(self, name: str) -> Registration | None:
        """Return the registration of this name."""
        return next((entry for entry in self if entry.name == name), None)

    def rank_field_of(self, name: str) -> int:
        """Return the rank field of any stream on this rank."""
        rank_field = self._names.get(name)
        return self._rank_fields.of(name) if rank_field is None else rank_field


def _is_reseeded(generator: object) -> bool:
    """Return whether this is a global generator of the process, or its function of a seed."""
    owner: Any = getattr(generator, "__self__", generator)
    torchs = torch.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all
    known = (*global_generators(), np.random.seed, *map(inspect.unwrap, torchs))
    owner = inspect.unwrap(owner) if callable(owner) else owner  # Dynamo wraps torch's functions
    return any(one is owner for one in known)


def _equal(a: Any, b: Any) -> bool:
    """Compare callables: each access to a bound method makes a new object."""
    return callable(a) and callable(b) and type(a) is type(b) and bool(a == b)

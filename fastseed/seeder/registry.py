"""Registered generators with their adapters, and epoch setters."""

from __future__ import annotations

import inspect
import types
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from .._utils import validation
from .._utils.log import logger
from ..derivation import reserved, scopes
from ..derivation.member_states import Members
from ..derivation.rank_fields import RankFields
from ..derivation.scopes import SHARED
from ..generators.adapter import ADAPTERS, GeneratorAdapter, MembersAdapter, adapter_of
from ..generators.default import global_generators
from ..generators.setters import BITS, EpochSetter, SeedFunction, is_epoch_setter

_FUNCTION = "register_generator"


class Registration(NamedTuple):
    """A registered generator, sampler or dataset, held strongly until it is unregistered."""

    name: str
    generator: Any
    adapter: Any  # a `GeneratorAdapter`, or an `EpochSetter`
    rank_field: int
    owner: object = None  # the module that holds it and was registered

    @property
    def shared(self) -> bool:
        """Return whether all ranks share its stream."""
        return self.rank_field == SHARED


def adapter_for(generator: object, bits: int = 31) -> GeneratorAdapter:
    """Return the adapter of a generator of any supported kind; TypeError for anything else."""
    if isinstance(generator, Members):
        return MembersAdapter(generator)
    adapter = adapter_of(type(generator))
    if adapter is not None:
        return adapter(generator)
    if isinstance(generator, (list, tuple)) and generator:
        from ..generators.pool import GeneratorPool, check_generators

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
    """Registrations in order, by names that all differ; ``process.lock`` is held for a change."""

    def __init__(self, reserved: tuple[str, ...], rank_fields: RankFields) -> None:
        self._rank_fields = rank_fields
        self._reserved = reserved
        self.entries: dict[str, Registration] = {}
        self._named: dict[Hashable, dict[str, None]] = {}  # names by `_key` of what has them
        self._unnamed = 0

    def __iter__(self) -> Iterator[Registration]:
        return iter(self.generators + self.epoch_setters)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def generators(self) -> tuple[Registration, ...]:
        """All but the samplers and datasets; one may register another while it is reseeded."""
        return tuple(e for e in [*self.entries.values()] if not isinstance(e.adapter, EpochSetter))

    @property
    def epoch_setters(self) -> tuple[Registration, ...]:
        """The samplers and datasets."""
        return tuple(e for e in [*self.entries.values()] if isinstance(e.adapter, EpochSetter))

    def add(
        self,
        generator: object,
        shared: bool,
        name: str | None,
        bits: int,
        distinct_over: object = None,
    ) -> str:
        """Register, and return the name; nothing has changed when this raises."""
        if isinstance(generator, torch.nn.Module) and not is_epoch_setter(generator):
            return self._add_module(generator, shared, name, distinct_over)
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
        if name in self.entries or name in self._reserved:
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
        self.entries[name] = Registration(name, generator, adapter, rank_field)
        if draws:
            self._rank_fields.registered[name] = rank_field
        self._named.setdefault(_key(generator), {})[name] = None
        return name

    def _add_module(
        self, module: torch.nn.Module, shared: bool, name: str | None, distinct_over: object
    ) -> str:
        """Register what a module and its parts hold, by qualified names; return these."""
        from ..generators.discovery import discover, generators_of

        prefix = "" if name is None else f"{scopes.check_name(_FUNCTION, name)}."
        held = types.SimpleNamespace()  # all attributes of all parts, so that the nearest are found
        for path, part in module.named_modules(prefix=prefix.removesuffix(".")):
            own = {key: value for key, value in vars(part).items() if key != "_modules"}
            vars(held).update({f"{path}.{key}".lstrip("."): own[key] for key in own})
        known = [one for e in self.entries.values() for one in generators_of(e.generator)]
        added: list[str] = []
        try:
            for path, found in discover(held, "", known):
                added.append(self.add(found, shared, path[1:], 31, distinct_over))
                self.entries[added[-1]] = self.entries[added[-1]]._replace(owner=module)
        except BaseException:
            for path in added:
                self.remove(self.entries[path].generator)
            raise
        if not added:
            rule = "a module that holds generators in attributes, which are not registered yet"
            raise validation.value_error(_FUNCTION, "generator", rule, module)
        return ", ".join(added)

    def _adapter(self, generator: object, bits: int) -> GeneratorAdapter | EpochSetter:
        """Return the adapter; an error for what is no generator, or registered already."""
        is_setter = is_epoch_setter(generator)
        classes = (*ADAPTERS, Members)
        if isinstance(generator, type) and (is_setter or issubclass(generator, classes)):
            rule = f"an instance, as {generator.__name__}()"  # the class would make new ones
            raise validation.type_error(_FUNCTION, "generator", rule, generator)
        if _is_reseeded(generator):
            rule = "one that reseed does not set already, as it does the process's own"
            raise validation.value_error(_FUNCTION, "generator", rule, generator)
        adapter = EpochSetter(generator) if is_setter else adapter_for(generator, bits)
        if isinstance(adapter, SeedFunction):
            return adapter
        old = self._registered(generator)
        if old is not None and old.generator is generator:  # the last name would win
            rule = f"registered once: it is already, as {old.name!r}; unregister it first"
            raise validation.value_error(_FUNCTION, "generator", rule, generator)
        return adapter

    def _name(self, generator: Any, name: object) -> tuple[int, str]:
        """Return the number of the next unnamed generator, and the name of this one."""
        number, has_a_name = self._unnamed, isinstance(generator, Members)
        if has_a_name:
            if name not in (None, generator.name):
                rule = f"left out, or {generator.name!r}, the name of the generator itself"
                raise validation.value_error(_FUNCTION, "name", rule, name)
            return number, generator.name
        if name is not None:
            return number, scopes.check_name(_FUNCTION, name)
        while f"generator/{number}" in self.entries:
            number += 1
        return number + 1, f"generator/{number}"

    def remove(self, generator: object) -> None:
        """Forget the first registration of this very generator, or of an equal callable.

        Of a module that was registered, those of its generators.
        """
        if isinstance(generator, torch.nn.Module):
            owned = [e.generator for e in self.entries.values() if e.owner is generator]
            for one in owned:
                self.remove(one)
            if owned:
                return
        entry = self._registered(generator)
        if entry is None:
            rule = "a registered generator"
            raise validation.value_error("unregister_generator", "generator", rule, generator)
        del self.entries[entry.name], self._named[_key(generator)][entry.name]
        self._rank_fields.registered.pop(entry.name, None)
        if not self._named[_key(generator)]:
            del self._named[_key(generator)]  # it holds the generator

    def _registered(self, generator: object) -> Registration | None:
        """Return the first registration of this very generator, else of an equal callable."""
        entries = [self.entries[name] for name in self._named.get(_key(generator), ())]
        same = (entry for entry in entries if entry.generator is generator)
        return next(same, entries[0] if entries else None)


def _is_reseeded(generator: object) -> bool:
    """Return whether this is a global generator of the process, or its function of a seed."""
    owner: Any = getattr(generator, "__self__", generator)
    torchs = torch.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all
    known = (*global_generators(), np.random.seed, *map(inspect.unwrap, torchs))
    owner = inspect.unwrap(owner) if callable(owner) else owner  # Dynamo wraps torch's functions
    return any(one is owner for one in known)


def _key(generator: object) -> Hashable:
    """Return what finds it again: each access to a bound method makes a new, equal object."""
    if not callable(generator):
        return id(generator)
    try:
        hash(generator)
    except TypeError:
        return id(generator)
    return type(generator), generator

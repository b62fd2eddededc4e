"""Find the random generators that a dataset holds.

Only memory is searched: instance dictionaries, slots, class attributes, lists, tuples, deques,
dictionaries, and what functions, methods and partial functions have bound. Properties and
``__getattr__`` of the dataset are not called. Sets have no order and global variables do not belong
to the dataset, so neither is searched.

The path of a generator is the name of its stream, so the paths are part of the derivation:

    dataset.rng                     an attribute, a slot, or an attribute of the class
    dataset.transforms[1].rng       in a list, a tuple or a deque
    dataset.by_name['flip'].rng     in a dictionary under a plain key; [#0] under any other
    dataset.transform.flip.rng      a child of a torch.nn.Module; [0] for those with numbers
    dataset.transform.keywords['rng']        of a functools.partial; .func and .args[0] as well
    dataset.transform.__closure__['rng']     of a function; also __defaults__ and __kwdefaults__
    dataset.draw.__self__           of a bound method

A generator with several paths gets the shortest one, the first in the order of attributes.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import logging
import random
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ...derivation import scopes
from ...generators.accelerator import KNOWN
from ...generators.pool import GeneratorPool
from ...seeder.registry import Registration, adapter_for
from .scope import DatasetWrapper

logger = logging.getLogger("fastseed")

MAX_OBJECTS = 100_000
_LONG = 1000  # a longer container may be plain data; this many of its elements are looked at

_RESERVED = (*scopes.OWN_NAMES, *(f"torch.{kind}" for kind in KNOWN))
_LEAVES: tuple[type, ...] = (
    *(str, bytes, bytearray, int, float, complex, type(None), range, slice, memoryview, type),
    *(types.ModuleType, types.CodeType, np.ndarray, np.generic, np.dtype, logging.Logger),
    *(torch.Tensor, torch.UntypedStorage, torch.dtype, torch.device),
)
_PLAIN_KEYS = (str, int, float, bool, bytes, type(None))
_SEQUENCES = (list, tuple, collections.deque)
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


class Found(NamedTuple):
    """A generator and the path to it."""

    path: str
    generator: object


def discover(dataset: object, name: str = "dataset", known: Iterable[object] = ()) -> list[Found]:
    """Return the generators that ``dataset`` holds, once each, nearest first.

    The process's global generators and those in ``known`` are left out. The search ends with a
    warning after ``MAX_OBJECTS`` objects. A container of more than 1000 elements is skipped if
    1000 of them, evenly spaced, are plain data.
    """
    found: list[Found] = []
    done = {identity(generator) for generator in (*global_generators(), *known)}
    seen: set[int] = set()
    layout_of = functools.cache(_layout)
    queue = collections.deque([(name, dataset)])
    while queue:
        path, held = queue.popleft()
        while issubclass(type(held), DatasetWrapper):  # ScopedDataset has another __class__
            held = held.__dict__["dataset"]
        if id(held) in seen:
            continue
        if len(seen) >= MAX_OBJECTS:
            _warn_incomplete(name, path)
            break
        seen.add(id(held))
        if is_generator(held):
            if identity(held) not in done:
                done.add(identity(held))
                found.append(Found(path, held))
            continue
        for step, child in (*_elements(held), *_bound(held), *_attributes(held, layout_of)):
            if not issubclass(type(child), _LEAVES):
                queue.append((path + step, child))
    return found


def found_in(
    dataset: object, entries: tuple[Registration, ...], name: str = "dataset"
) -> tuple[Registration, ...]:
    """Return what ``discover`` finds, as if it were registered under its path.

    Generators of ``entries`` are left out. A path that is already a name gets a prime.
    """
    taken = {*_RESERVED, *(entry.name for entry in entries)}
    known = itertools.chain.from_iterable(generators_of(entry.generator) for entry in entries)
    made = []
    for path, generator in discover(dataset, name, known):
        while path in taken:
            path += "'"
        taken.add(path)
        made.append(Registration(path, generator, adapter_for(generator), 0))
    return tuple(made)


def is_generator(value: object) -> bool:
    """Return True for a generator that can take a key."""
    kind = type(value)
    return issubclass(kind, _GENERATORS) and not issubclass(kind, random.SystemRandom)


def identity(generator: Any) -> int:
    """Return a number that is equal for two objects that share one state."""
    kind = type(generator)
    if issubclass(kind, np.random.Generator):
        return id(np.random.Generator.bit_generator.__get__(generator))
    if issubclass(kind, np.random.RandomState):
        return id(generator._bit_generator)
    return id(generator)


def global_generators() -> tuple[object, ...]:
    """Return the process's global generators; those of CUDA once it is initialized."""
    cuda = torch.cuda.default_generators
    return (np.random.mtrand._rand, random._inst, torch.default_generator, *cuda)


def generators_of(registered: object) -> list[object]:
    """Return the generators behind what was registered."""
    if isinstance(registered, (GeneratorPool, list, tuple)):
        return [registered[i] for i in range(len(registered))]
    owner = getattr(registered, "__self__", None)  # of rng.seed, for example
    return [g for g in (registered, owner) if is_generator(g)]


@functools.cache
def _warn_incomplete(name: str, path: str) -> None:
    logger.warning(
        "fastseed: %s is too large to be searched for random generators: the search ended at %s; "
        "if it holds some there, pass them to fastseed.register_generator",
        name,
        path[:200],
    )


# ------------------------------------------------------------------ children of an object

_Children = Iterator[tuple[str, object]]  # the step from the parent, and the child
# Slots; generators that are class attributes.
_Layout = tuple[dict[str, types.MemberDescriptorType], dict[str, object]]


def _elements(held: Any) -> _Children:
    """Yield the elements of a list, tuple, deque or dictionary that may hold generators."""
    is_dict = issubclass(type(held), dict)
    if not (is_dict or issubclass(type(held), _SEQUENCES)):
        return
    n, values = len(held), held.values() if is_dict else held
    if n > _LONG and all(map(_is_data, itertools.islice(values, 0, None, n // _LONG))):
        return
    for i, (key, value) in enumerate(zip(held if is_dict else range(n), values, strict=True)):
        yield f"[{key!r}]" if type(key) in _PLAIN_KEYS else f"[#{i}]", value


def _is_data(value: Any, levels: int = 3) -> bool:
    kind = type(value)
    if issubclass(kind, _LEAVES):
        return True
    if kind not in (list, tuple, dict) or levels == 0:
        return False
    inner = value.values() if kind is dict else value
    return all(_is_data(v, levels - 1) for v in itertools.islice(inner, _LONG))


def _bound(held: Any) -> _Children:
    """Yield what a function, a method or a partial function has bound."""
    kind = type(held)
    if kind is types.FunctionType:
        for name, cell in zip(held.__code__.co_freevars, held.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # the cell is empty
                yield f".__closure__[{name!r}]", cell.cell_contents
        yield ".__defaults__", held.__defaults__
        yield ".__kwdefaults__", held.__kwdefaults__
    elif kind in (types.MethodType, types.BuiltinMethodType):
        yield ".__self__", held.__self__
        yield ".__func__", getattr(held, "__func__", None)
    elif issubclass(kind, functools.partial):
        for name in ("func", "args", "keywords"):
            yield f".{name}", getattr(held, name)


def _attributes(held: Any, layout_of: Callable[[type], _Layout]) -> _Children:
    """Yield the attributes of an object, and generators among those of its class."""
    try:
        attributes: dict[str, object] = object.__getattribute__(held, "__dict__")
    except AttributeError:
        attributes = {}
    for name, value in tuple(attributes.items()):
        if name == "_modules" and issubclass(type(held), torch.nn.Module):
            modules: Any = value
            for child, module in modules.items():
                yield f".{child}" if child.isidentifier() else f"[{child}]", module
        else:
            yield f".{name}", value
    slots, generators = layout_of(type(held))
    for name, slot in slots.items():
        with contextlib.suppress(AttributeError):  # the slot is empty
            yield f".{name}", slot.__get__(held)
    for name, value in generators.items():
        if name not in attributes:
            yield f".{name}", value


def _layout(kind: type) -> _Layout:
    slots: dict[str, types.MemberDescriptorType] = {}
    generators: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        for name, value in base.__dict__.items():
            generators.pop(name, None)
            if type(value) is types.MemberDescriptorType and "__slots__" in base.__dict__:
                slots[name] = value
            elif is_generator(value):
                generators[name] = value
    return slots, generators

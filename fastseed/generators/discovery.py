"""Find the random generators that a dataset holds, and the states of default ones.

Only memory is searched: properties and ``__getattr__`` of the dataset are not called. The path of a
generator is the name of its stream, so the paths are part of the derivation:

    dataset.rng                     an attribute
    dataset.transforms[1].rng       in a list or a tuple
    dataset.by_name['flip'].rng     in a dictionary under a plain key; [#0] under any other
    dataset.transform.flip.rng      a child of a torch.nn.Module; [0] for those with numbers
    dataset.transform.keywords['rng']        of a functools.partial; .func and .args[0] as well

A generator with several paths gets the shortest one, the first in the order of attributes. One in
any other place gets no stream; the search warns of it where a function, a method, a slot or a class
refers to it directly.
"""

from __future__ import annotations

import collections
import functools
import gc
import logging
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from .._utils.log import warn_once
from .accelerator import AcceleratorGenerators, compiled_types
from .adapter import adapter_of
from .default import DefaultGenerators, global_generators
from .pool import GeneratorPool

MAX_OBJECTS = 100_000
_LONG = 1000  # a longer container may be plain data

_LEAVES: tuple[type, ...] = (
    *(str, bytes, bytearray, int, float, complex, type(None), range, slice, memoryview, type),
    *(types.ModuleType, types.CodeType, np.ndarray, np.generic, np.dtype, logging.Logger),
    *(torch.Tensor, torch.UntypedStorage, torch.dtype, torch.device),
)
_PLAIN_KEYS = (str, int, float, bool, bytes, type(None))
_CONTAINERS = (list, tuple, dict)


def discover(
    dataset: object,
    name: str = "dataset",
    known: Iterable[object] = (),
    wrapped: Callable[[Any], Any] = lambda held: held,
) -> list[tuple[str, Any]]:
    """Return the generators that ``dataset`` holds, once each, nearest first, after their paths.

    The global generators of the process and those in ``known`` are left out. ``wrapped`` returns
    what is inside a wrapper without a step of its own, and any other object itself.
    """
    done = {identity(generator) for generator in (*global_generators(), *known)}
    seen: set[int] = set()
    found, rest = _search([(name, dataset)], done, seen, wrapped)
    hidden = [(path, child) for path, held in rest for child in _referents(held)]
    missed, _ = _search(hidden, done, seen, wrapped)
    if missed:
        warn_once(
            "fastseed: %s refer(s) to a random generator in a place that is not searched (a slot, "
            "a closure, a default, a bound method, a class attribute or a deque), so it gets no "
            "stream: make it an attribute of the dataset, or use fastseed.register_generator",
            ", ".join(dict.fromkeys(path[:200] for path, _ in missed[:8])),
        )
    if len(seen) >= MAX_OBJECTS:
        warn_once(
            "fastseed: %s is too large to be searched for random generators: the search ended "
            "after %d objects; if it holds some, use fastseed.register_generator",
            name,
            MAX_OBJECTS,
        )
    return found


def _search(
    begin: list[tuple[str, Any]],
    done: set[int],
    seen: set[int],
    wrapped: Callable[[Any], Any],
) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Return the generators that are not ``done``, and objects that may refer to more."""
    found: list[tuple[str, Any]] = []
    rest: list[tuple[str, Any]] = []
    queue = collections.deque(begin)
    while queue and len(seen) < MAX_OBJECTS:
        path, held = queue.popleft()
        held = wrapped(held)
        if id(held) in seen or issubclass(type(held), _LEAVES):
            continue
        seen.add(id(held))
        if is_generator(held):
            if identity(held) not in done:
                done.add(identity(held))
                found.append((path, held))
            continue
        for step, child in _children(held):
            if not issubclass(type(child), _LEAVES):
                queue.append((path + step, child))
        if not issubclass(type(held), _CONTAINERS):
            rest.append((path, held))
    return found, rest


def _children(held: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds, with the step of the path to it."""
    kind = type(held)
    if issubclass(kind, _CONTAINERS):
        is_dict = issubclass(kind, dict)
        keys, values = (held, held.values()) if is_dict else (range(len(held)), held)
        if not _is_plain_data(values):
            for i, (key, value) in enumerate(zip(keys, values, strict=True)):
                yield f"[{key!r}]" if type(key) in _PLAIN_KEYS else f"[#{i}]", value
    if kind is types.CellType:  # of a closure
        yield from (("", child) for child in gc.get_referents(held))
    if issubclass(kind, functools.partial):
        for name in ("func", "args", "keywords"):
            yield f".{name}", getattr(held, name)
    try:
        attributes = dict(object.__getattribute__(held, "__dict__"))
    except AttributeError:
        return
    for name, value in attributes.items():
        if name == "_modules" and issubclass(kind, torch.nn.Module):
            for child, module in value.items():
                yield f".{child}" if child.isidentifier() else f"[{child}]", module
        else:
            yield f".{name}", value


def _is_plain_data(values: Any) -> bool:
    """Return True for many numbers, texts and lists of them, which hold no generators."""
    return len(values) > _LONG and all(
        issubclass(kind, _LEAVES + _CONTAINERS) for kind in {*map(type, values)}
    )


def _referents(held: object) -> Iterator[object]:
    """Yield what an object, or its class, refers to without a path."""
    kind: Any = type(held)
    if _has_unnamed(kind):
        for child in gc.get_referents(held):
            if not (type(child) is dict and "__builtins__" in child):  # of a module
                yield child
    for base in kind.__mro__:
        yield from filter(is_generator, vars(base).values())


@functools.cache
def _has_unnamed(kind: type) -> bool:
    """Return True for functions, for types without ``__dict__``, and for those with slots."""
    has_slots = any(vars(base).get("__slots__") for base in kind.__mro__)
    return kind is types.FunctionType or not kind.__dictoffset__ or has_slots


def is_generator(value: object) -> bool:
    """Return True for a generator that can take a key."""
    return adapter_of(type(value)) is not None


def identity(generator: Any) -> int:
    """Return a number that is equal for two objects that share one state."""
    kind = type(generator)
    if issubclass(kind, np.random.Generator):
        return id(np.random.Generator.bit_generator.__get__(generator))
    if issubclass(kind, np.random.RandomState):
        return id(generator._bit_generator)
    return id(generator)


def generators_of(registered: object) -> list[object]:
    """Return the generators behind what was registered."""
    if isinstance(registered, (GeneratorPool, list, tuple)):
        return [registered[i] for i in range(len(registered))]
    owner = getattr(registered, "__self__", None)  # of rng.seed, for example
    return [g for g in (registered, owner) if is_generator(g)]


def states_of_defaults() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and state of each default generator, of accelerators once initialized."""
    for name, adapter in DefaultGenerators().adapters.items():
        state = adapter.state()
        assert state is not None
        yield name, state
    for kind in compiled_types():
        for ordinal, generator in enumerate(AcceleratorGenerators(kind).generators()):
            yield f"torch.{kind}:{ordinal}", generator.get_state()

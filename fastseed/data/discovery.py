"""Finding the random generators that a data set holds, without running any of its code.

Only what lies in memory is looked at: instance dictionaries, slots, class attributes, lists,
tuples, deques, dictionaries, what functions and partial functions have bound. Properties,
``__getattr__``, ``__iter__`` and the like are never called. Sets are left out, because they have no
order, and so are global variables.

A generator's path is the name of its stream, so paths are part of what a data set draws:

    dataset.rng                     an attribute, or a slot, or an attribute of the class
    dataset.transforms[1].rng       in a list, a tuple or a deque
    dataset.by_name['flip'].rng     in a dictionary, under a plain key; else by its place: [#0]
    dataset.transform.flip.rng      a child of a torch.nn.Module; [0] for those with numbers
    dataset.transform.keywords['rng']        of a functools.partial; .func and .args[0] as well
    dataset.transform.__closure__['rng']     of a function; also __defaults__ and __kwdefaults__
    dataset.draw.__self__           of a bound method

Of several paths the shortest counts, and of equally long ones the first in the order of attributes.
"""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import random
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ..generators.pool import GeneratorPool
from ..seeder.registry import Registration, adapter_for
from .shared_scope import Wrapper, unwrap
from .worker_seeding import RESERVED

logger = logging.getLogger("fastseed")

DEEPEST = 64  # steps from the data set
MOST = 100_000  # objects that are looked into
_LONG = 1000  # from here on a container may be data, of which so many are looked at

_LEAVES: tuple[type, ...]
_LEAVES = (str, bytes, bytearray, int, float, complex, type(None), range, slice, memoryview, type)
_LEAVES += (types.ModuleType, types.CodeType, np.ndarray, np.generic, np.dtype)
_LEAVES += (torch.Tensor, torch.UntypedStorage, torch.dtype, torch.device, logging.Logger)
_PLAIN_KEYS = (str, int, float, bool, bytes, type(None))
_SEQUENCES = (list, tuple, collections.deque)
_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


class Found(NamedTuple):
    """A generator and where it is."""

    path: str
    generator: Any


class _Node(NamedTuple):
    """An object on the way, and how it was reached."""

    held: Any
    depth: int
    parent: _Node | None
    step: str

    def path(self) -> str:
        steps, node = [], self
        while node.parent is not None:
            steps.append(node.step)
            node = node.parent
        return "".join((node.step, *reversed(steps)))


def discover(dataset: Any, name: str = "dataset", known: Iterable[Any] = ()) -> list[Found]:
    """The generators that ``dataset`` holds, once each, nearest first.

    Those are ``numpy.random.Generator`` and ``RandomState``, ``random.Random`` and
    ``torch.Generator``. The process's global generators and those of ``known`` are not among them.

    Where it is larger than :data:`MOST` objects or deeper than :data:`DEEPEST` steps, the rest is
    not looked at, and a warning says where that was. A container of more than 1000 elements is not
    either if those that are tried, evenly spaced, are plain data; that is not worth a warning.
    """
    found: list[Found] = []
    done = {identity(generator) for generator in (*_globals(), *known)}
    seen: set[int] = set()
    layouts: dict[type, _Layout] = {}
    cut: _Node | None = None
    queue = collections.deque([_Node(dataset, 0, None, name)])
    while queue:
        node = queue.popleft()
        held = unwrap(node.held) if issubclass(type(node.held), Wrapper) else node.held
        if id(held) in seen:
            continue
        if len(seen) >= MOST or node.depth > DEEPEST:
            cut = cut or node
            if len(seen) >= MOST:
                break
            continue
        seen.add(id(held))
        if is_generator(held):
            if identity(held) not in done:
                done.add(identity(held))
                found.append(Found(node.path(), held))
            continue
        for step, child in _children(held, layouts):
            if not issubclass(type(child), _LEAVES):
                queue.append(_Node(child, node.depth + 1, node, step))
    if cut is not None:
        _warn_cut(name, cut)
    return found


def found_in(dataset: Any, entries: tuple[Registration, ...]) -> tuple[Registration, ...]:
    """What :func:`discover` finds, as if it were registered under its path.

    What ``entries`` hold stays with them. A path that is a name in use gets a prime.
    """
    taken = {*RESERVED, *(entry.name for entry in entries)}
    known = itertools.chain.from_iterable(_held_by(entry.generator) for entry in entries)
    made = []
    for name, generator in discover(dataset, known=known):
        while name in taken:
            name += "'"
        taken.add(name)
        made.append(Registration(name, generator, adapter_for(generator), 0))
    return tuple(made)


def is_generator(value: Any) -> bool:
    """Whether it is a generator that can take a key."""
    kind = type(value)
    return issubclass(kind, _KINDS) and not issubclass(kind, random.SystemRandom)


def identity(generator: Any) -> int:
    """Equal for two that draw the same numbers in turn."""
    kind = type(generator)
    if issubclass(kind, np.random.Generator):
        return id(np.random.Generator.bit_generator.__get__(generator))
    if issubclass(kind, np.random.RandomState):
        return id(generator._bit_generator)
    return id(generator)


def _globals() -> Iterator[Any]:
    yield np.random.mtrand._rand
    yield random._inst
    yield torch.default_generator
    yield from torch.cuda.default_generators  # empty before CUDA is initialised


def _held_by(registered: Any) -> list[Any]:
    """The generators behind one registration."""
    if isinstance(registered, (GeneratorPool, list, tuple)):
        return [registered[i] for i in range(len(registered))]
    owner = getattr(registered, "__self__", None)  # of rng.seed, say
    return [g for g in (registered, owner) if is_generator(g)]


_said: set[str] = set()


def _warn_cut(name: str, at: _Node) -> None:
    path = at.path()
    if path in _said:
        return
    _said.add(path)
    logger.warning(
        "fastseed: %s is too large to be searched for random generators: the search ended at %s; "
        "if it holds some there, pass them to fastseed.register_generator",
        name,
        path if len(path) < 200 else f"{path[:200]}...",
    )


# ------------------------------------------------------------------ what an object holds


class _Layout(NamedTuple):
    """Where the instances of a class keep what they hold."""

    has_dict: bool
    slots: tuple[tuple[str, Any], ...]
    own: tuple[tuple[str, Any], ...]  # generators that are attributes of the class


def _layout(kind: type) -> _Layout:
    has_dict = False
    slots: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        for name, value in base.__dict__.items():
            own.pop(name, None)
            if name == "__dict__":
                has_dict = type(value) is types.GetSetDescriptorType  # else it is a user's
            elif type(value) is types.MemberDescriptorType and "__slots__" in base.__dict__:
                slots[name] = value
            elif is_generator(value):
                own[name] = value
    return _Layout(has_dict, tuple(slots.items()), tuple(own.items()))


def _children(held: Any, layouts: dict[type, _Layout]) -> Iterator[tuple[str, Any]]:
    """Each object that ``held`` holds, and the step to it."""
    kind = type(held)
    if kind in _CALLABLES:
        yield from _CALLABLES[kind](held)
    elif issubclass(kind, functools.partial):
        yield from _bound_by_partial(held)
    elif issubclass(kind, dict):
        yield from _entries(dict.items(held))
    elif issubclass(kind, _SEQUENCES):
        yield from _items(held)
    layout = layouts.get(kind)
    if layout is None:
        layout = layouts[kind] = _layout(kind)
    attributes: dict[Any, Any] = (
        object.__getattribute__(held, "__dict__") if layout.has_dict else {}
    )
    for name, value in tuple(attributes.items()):
        if name == "_modules" and issubclass(kind, torch.nn.Module):
            yield from _modules(value)
        else:
            yield f".{name}" if type(name) is str else "[?]", value
    for name, slot in layout.slots:
        try:
            yield f".{name}", slot.__get__(held, kind)
        except AttributeError:  # it is empty
            continue
    for name, value in layout.own:
        if name not in attributes:
            yield f".{name}", value


def _modules(children: Any) -> Iterator[tuple[str, Any]]:
    if issubclass(type(children), dict):
        for name, child in dict.items(children):
            yield f".{name}" if str(name).isidentifier() else f"[{name}]", child


def _items(held: Any) -> Iterator[tuple[str, Any]]:
    base: Any = next(kind for kind in _SEQUENCES if issubclass(type(held), kind))
    n = base.__len__(held)
    if n > _LONG:
        if base is collections.deque:
            probe = itertools.islice(base.__iter__(held), _LONG)
        else:
            probe = base.__getitem__(held, slice(None, None, -(-n // _LONG)))
        if all(_is_data(value) for value in probe):
            return
    for i, value in enumerate(base.__iter__(held)):
        yield f"[{i}]", value


def _entries(items: Any) -> Iterator[tuple[str, Any]]:
    if len(items) > _LONG and all(_is_data(v) for _, v in itertools.islice(items, _LONG)):
        return
    for i, (key, value) in enumerate(items):
        yield f"[{key!r}]" if type(key) in _PLAIN_KEYS else f"[#{i}]", value


def _is_data(value: Any, levels: int = 3) -> bool:
    """Whether there is no generator in it, at a glance."""
    kind = type(value)
    if issubclass(kind, _LEAVES):
        return True
    if kind not in (list, tuple, dict) or levels == 0:
        return False
    inner = value.values() if kind is dict else value
    return all(_is_data(v, levels - 1) for v in itertools.islice(inner, _LONG))


def _bound_by_partial(held: Any) -> Iterator[tuple[str, Any]]:
    for name in ("func", "args", "keywords"):
        yield f".{name}", functools.partial.__dict__[name].__get__(held)


def _bound_by_function(held: Any) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(held.__code__.co_freevars, held.__closure__ or (), strict=True):
        try:
            yield f".__closure__[{name!r}]", cell.cell_contents
        except ValueError:  # it is empty
            continue
    yield ".__defaults__", held.__defaults__
    yield ".__kwdefaults__", held.__kwdefaults__


def _bound_by_method(held: Any) -> Iterator[tuple[str, Any]]:
    yield ".__self__", held.__self__
    if type(held) is types.MethodType:
        yield ".__func__", held.__func__


_CALLABLES = {
    types.FunctionType: _bound_by_function,
    types.MethodType: _bound_by_method,
    types.BuiltinMethodType: _bound_by_method,
}

"""Who draws from what, and who seeds again: watched for a while, without changing any draw."""

from __future__ import annotations

import gc
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from . import api
from .data import discovery

_HERE = __file__
_AT_ONCE = 1 << 14  # objects that are looked through in one call
_KINDS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


class Finding(NamedTuple):
    """Something that an audit saw."""

    kind: str
    """``unregistered``: a generator that nobody registered was drawn from. ``unseeded``: the same,
    and it was made without a seed. ``seeded``: a global generator was seeded by a call that is not
    ours. ``repeated``: a scope was used again."""
    what: str
    """The generator or the call."""
    where: str
    """Who holds it, or which line called."""


class Audit:
    """What was seen; complete when the block of :func:`audit` is left."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def __bool__(self) -> bool:
        return bool(self.findings)


@contextmanager
def audit() -> Iterator[Audit]:
    """Watch the random numbers of this process inside the block.

        with fastseed.audit.audit() as seen:
            train_one_epoch()
        for finding in seen.findings: ...

    Reported are draws from NumPy's, Python's and torch's generators that are neither global nor
    registered; calls of ``random.seed``, ``numpy.random.seed``, ``torch.manual_seed`` and
    ``torch.seed``; and scopes that were reseeded twice. Generators are found among the objects
    that live when the block ends, and among those that ``numpy.random.default_rng`` made inside of
    it: one of another kind that was made and dropped inside is not seen. Nothing draws, and no
    state changes.

    Yields:
        An :class:`Audit`, which is false if there is nothing to report.
    """
    seen = Audit()
    held: list[_Held] = []  # what was made in the block, so that it lives to its end
    before = {id(found): _Held(found, _state(found)) for found in _living()}
    repeats = _repeats()
    with _calls_watched(seen, held):
        yield seen
    known = {id(generator) for generator in _known()}
    made = {id(generator): note for generator, note in held}
    kinds = {True: "unseeded", False: "unregistered"}
    for generator in _living(generator for generator, _ in held):
        if id(generator) in known:
            continue
        where, state, unseeded = made.get(id(generator), (None, None, False))
        if id(generator) in before:
            state = before[id(generator)].note
        if _was_used(generator) if state is None else _state(generator) != state:
            where = where or _holder(generator)
            seen.findings.append(Finding(kinds[unseeded], _kind(generator), where))
    if _repeats() > repeats:
        again = _repeats() - repeats
        seen.findings.append(Finding("repeated", f"{again} scopes", "fastseed.reseed"))


# ---------------------------------------------------------------- generators


def _known() -> list[Any]:
    """The global generators, and those that were registered."""
    known = list(discovery._globals())
    if api._seeder is not None:
        for entry in api._seeder._registry:
            known += discovery._held_by(entry.generator)
    return known


class _Held(NamedTuple):
    """A generator that we hold, which does not count as somebody's."""

    generator: Any
    note: Any


def _living(more: Iterable[Any] = ()) -> list[Any]:
    """Every generator that can be reached from what the garbage collector knows, and ``more``."""
    found = {id(one): one for one in more}
    objects = gc.get_objects()
    for first in range(0, len(objects), _AT_ONCE):
        # torch's generators are not known to the collector themselves: they hang on others.
        part = objects[first : first + _AT_ONCE]
        kinds = [one for one in (*part, *gc.get_referents(*part)) if issubclass(type(one), _KINDS)]
        found.update((id(one), one) for one in kinds if discovery.is_generator(one))
    return list(found.values())


def _holder(generator: Any) -> str:
    """Who holds a generator, in words; not counting what is ours, and frames."""
    ours = (types.FrameType, types.GeneratorType, types.CellType, _Held, list)
    holders = [holder for holder in gc.get_referrers(generator) if type(holder) not in ours]
    return _name(holders[0], generator) if holders else "a local variable"


def _name(holder: Any, held: Any) -> str:
    """Who holds a generator, in words."""
    if isinstance(holder, dict):
        key = next((key for key, value in holder.items() if value is held), "?")
        module = holder.get("__name__")
        if isinstance(module, str):
            return f"{module}.{key}"
        for owner in gc.get_referrers(holder):
            if getattr(owner, "__dict__", None) is holder:
                return f"{type(owner).__name__}.{key}"
        return f"a dict, under {key!r}"
    for name, value in getattr(holder, "__dict__", {}).items():
        if value is held:
            return f"{type(holder).__name__}.{name}"
    return f"a {type(holder).__name__}"


def _kind(generator: Any) -> str:
    kind = type(generator)
    return f"{kind.__module__}.{kind.__qualname__}".replace("torch._C.", "torch.")


def _state(generator: Any) -> Any:
    """What it holds, to be compared."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        held: Any = generator.get_state(legacy=False)
        return repr(held), held["state"]["key"].tobytes()
    state = generator.bit_generator.state
    inner = state["state"]
    words = inner.get("key") if isinstance(inner, dict) else None
    return repr(state), None if words is None else np.asarray(words).tobytes()


def _was_used(generator: Any) -> bool:
    """Whether one that was made meanwhile was drawn from, as far as it can be told."""
    if isinstance(generator, torch.Generator) and generator.device.type == "cpu":
        fresh = torch.Generator()
        fresh.manual_seed(generator.initial_seed())
        return not torch.equal(fresh.get_state(), generator.get_state())
    return True


def _repeats() -> int:
    return 0 if api._seeder is None else api._seeder._repeats


# ---------------------------------------------------------------- calls


def _calls() -> list[tuple[Any, str, str]]:
    """The functions that seed a global generator: owner, attribute, name."""
    return [
        (random, "seed", "random.seed"),
        (np.random, "seed", "numpy.random.seed"),
        (torch, "manual_seed", "torch.manual_seed"),
        (torch, "seed", "torch.seed"),
    ]


@contextmanager
def _calls_watched(seen: Audit, held: list[_Held]) -> Iterator[None]:
    originals: list[tuple[Any, str, Any]] = []

    def watch(owner: Any, attribute: str, around: Callable[[Any], Any]) -> None:
        original = getattr(owner, attribute)
        originals.append((owner, attribute, original))
        setattr(owner, attribute, around(original))

    def seeding(name: str) -> Callable[[Any], Any]:
        def around(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                seen.findings.append(Finding("seeded", name, _caller()))
                return original(*args, **kwargs)

            return call

        return around

    def making(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            unseeded = (args[0] if args else kwargs.get("seed")) is None
            held.append(_Held(made, (_caller(), _state(made), unseeded)))
            return made

        return call

    try:
        for owner, attribute, name in _calls():
            watch(owner, attribute, seeding(name))
        watch(np.random, "default_rng", making)
        yield
    finally:
        for owner, attribute, original in reversed(originals):
            setattr(owner, attribute, original)


def _caller() -> str:
    """File and line of the call that is watched."""
    for frame in reversed(traceback.extract_stack(sys._getframe(1))):
        if frame.filename != _HERE:
            return f"{frame.filename}:{frame.lineno}"
    return "?"

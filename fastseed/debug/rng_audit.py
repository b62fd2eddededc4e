"""Who draws from what, and who seeds again: watched for a while, without changing any draw."""

from __future__ import annotations

import builtins
import gc
import os
import random
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from ..data import discovery
from ..derivation import context
from ..seeder.seeder import Seeder
from .rng_audit_defaults import Unseeded

_HERE = os.path.join(os.path.dirname(__file__), "")
_AT_ONCE = 1 << 14  # objects that are looked through in one call
_KINDS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


class Finding(NamedTuple):
    """Something that an audit saw."""

    kind: str
    """``unregistered``: a generator that nobody registered was drawn from. ``unseeded``: the same,
    and it was made without a seed. ``early``: a global generator was drawn from before anything
    had seeded it. ``seeded``: a global generator was seeded by a call that is not ours.
    ``repeated``: a scope was used again."""
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
def audit(*, fresh: bool = False) -> Iterator[Audit]:
    """Watch the random numbers of this process inside the block.

        with fastseed.debug.audit() as seen:
            train_one_epoch()
        for finding in seen.findings: ...

    Reported are draws from NumPy's, Python's and torch's generators that are neither global nor
    registered; calls of ``random.seed``, ``numpy.random.seed``, ``torch.manual_seed`` and
    ``torch.seed``; and scopes that were reseeded twice. Generators are found among the objects
    that live when the block ends, and among those that ``numpy.random.default_rng`` made inside of
    it: one of another kind that was made and dropped inside is not seen, and one that an installed
    package made for itself, which cannot be told to have been drawn from, is left out. Nothing
    draws, and no state changes.

    Args:
        fresh: nothing has been seeded in this process yet, as where a script begins: draws from
            the global generators before anything seeds them are reported, too.

    Yields:
        An :class:`Audit`, which is false if there is nothing to report.
    """
    seen = Audit()
    held: list[_Held] = []  # what was made in the block, so that it lives to its end
    before = {id(found): _Held(found, _state(found)) for found in _living()}
    repeats = _repeats()
    unseeded = Unseeded() if fresh and not _reseeded() else None
    with _calls_watched(seen, held, unseeded):
        yield seen
    if unseeded is not None:
        _early(seen, unseeded, (), "nothing has seeded it")
    known = {id(generator) for generator in _known()}
    made = {id(generator): note for generator, note in held}
    kinds = {True: "unseeded", False: "unregistered"}
    for generator in _living(generator for generator, _ in held):
        if id(generator) in known:
            continue
        where, state, no_seed = made.get(id(generator), (None, None, False))
        if id(generator) in before:
            state = before[id(generator)].note
        if _was_used(generator) if state is None else _state(generator) != state:
            holder, module = _holder(generator)
            if state is None and _is_installed(module):
                continue  # made by its import, as a rule
            seen.findings.append(Finding(kinds[no_seed], _kind(generator), where or holder))
    if _repeats() > repeats:
        again = _repeats() - repeats
        seen.findings.append(Finding("repeated", f"{again} scopes", "fastseed.reseed"))


# ---------------------------------------------------------------- generators


def _known() -> list[Any]:
    """The global generators, and those that were registered."""
    known = list(discovery._globals())
    if context.seeder is not None:
        for entry in context.seeder.registry:
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


def _holder(generator: Any) -> tuple[str, str]:
    """Who holds a generator, in words, and the module of that; not counting ours, and frames."""
    ours = (types.FrameType, types.GeneratorType, types.CellType, _Held, list)
    holders = [holder for holder in gc.get_referrers(generator) if type(holder) not in ours]
    return _name(holders[0], generator) if holders else ("a local variable", "")


def _name(holder: Any, held: Any) -> tuple[str, str]:
    """One holder, in words, and its module."""
    if not isinstance(holder, dict):
        owner, name = holder, _key(getattr(holder, "__dict__", {}), held)
    else:
        name, module = _key(holder, held), holder.get("__name__")
        if isinstance(module, str):
            return f"{module}.{name}", module
        owner = next((one for one in gc.get_referrers(holder) if _is_of(one, name, held)), None)
        if owner is None:
            return f"a dict, under {name!r}", ""
    kind = owner if isinstance(owner, type) else type(owner)
    text = f"a {kind.__name__}" if name is None else f"{kind.__name__}.{name}"
    return text, str(kind.__module__)


def _key(names: Any, held: Any) -> Any:
    return next((key for key, value in names.items() if value is held), None)


def _is_of(owner: Any, name: Any, held: Any) -> bool:
    """Whether an object or a class has it as its attribute."""
    names = getattr(owner, "__dict__", None)
    return isinstance(names, (dict, types.MappingProxyType)) and names.get(name) is held


def _is_installed(module: str) -> bool:
    """Whether it is the standard library's, or an installed package's."""
    top = module.partition(".")[0]
    if not top or top == "__main__":
        return False
    if top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is not None and _is_library(file)


def _is_library(file: str) -> bool:
    """Whether a file of source is the standard library's, or an installed package's."""
    if file.startswith("<frozen "):
        return True
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    real = os.path.realpath(file)
    return any(real.startswith(os.path.join(os.path.realpath(one), "")) for one in folders)


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
    return 0 if context.seeder is None else context.seeder.repeats


def _reseeded() -> bool:
    return context.seeder is not None and context.seeder.scope is not None


def _early(seen: Audit, unseeded: Unseeded, names: tuple[str, ...], where: str) -> None:
    """Globals that were drawn from before they are seeded now."""
    found = unseeded.settle(names)
    seen.findings += [Finding("early", said, where) for said in found]


# ---------------------------------------------------------------- calls


_SEEDED_BY = (
    (random, "seed", "random.seed", "python"),
    (np.random, "seed", "numpy.random.seed", "numpy"),
    (torch, "manual_seed", "torch.manual_seed", "torch"),
    (torch, "seed", "torch.seed", "torch"),
)
"""The functions that seed a global generator: owner, attribute, name, generator."""
_PUT_BACK_BY = (
    (random, "setstate", "python"),
    (np.random, "set_state", "numpy"),
    (torch, "set_rng_state", "torch"),
)


@contextmanager
def _calls_watched(seen: Audit, held: list[_Held], unseeded: Unseeded | None) -> Iterator[None]:
    originals: list[tuple[Any, str, Any]] = []

    def watch(owner: Any, attribute: str, around: Callable[[Any], Any]) -> None:
        original = getattr(owner, attribute)
        originals.append((owner, attribute, original))
        setattr(owner, attribute, around(original))

    def seeding(name: str, *generators: str) -> Callable[[Any], Any]:
        """Around a call that seeds these generators, or all; a finding if it has a name."""

        def around(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if unseeded is not None:
                    _early(seen, unseeded, generators, f"before {_caller()} seeds it")
                if name:
                    seen.findings.append(Finding("seeded", name, _caller()))
                return original(*args, **kwargs)

            return call

        return around

    def importing(original: Any) -> Any:
        """What packages draw while they are imported is theirs, and decides nothing."""
        depth = 0

        def call(name: str, *args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth or name in sys.modules or unseeded is None:
                return original(name, *args, **kwargs)
            unseeded.look()
            depth, made = depth + 1, len(held)
            try:
                return original(name, *args, **kwargs)
            finally:
                depth -= 1
                if _is_installed(name):
                    unseeded.skip()
                    for at, (one, (where, _, no_seed)) in enumerate(held[made:], made):
                        held[at] = _Held(one, (where, _state(one), no_seed))

        return call

    def making(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            unseeded = (args[0] if args else kwargs.get("seed")) is None
            held.append(_Held(made, (_caller(), _state(made), unseeded)))
            return made

        return call

    try:
        for owner, attribute, name, generator in _SEEDED_BY:
            watch(owner, attribute, seeding(name, generator))
        if unseeded is not None:
            for owner, attribute, generator in _PUT_BACK_BY:
                watch(owner, attribute, seeding("", generator))
            for attribute in ("reseed", "load_state_dict"):
                watch(Seeder, attribute, seeding(""))
            watch(builtins, "__import__", importing)
        watch(np.random, "default_rng", making)
        yield
    finally:
        for owner, attribute, original in reversed(originals):
            setattr(owner, attribute, original)


def _caller() -> str:
    """File and line of the call that is watched: of the job's own code, if it is in the stack."""
    stack = traceback.extract_stack(sys._getframe(1))
    frames = [frame for frame in reversed(stack) if not frame.filename.startswith(_HERE)]
    own = [frame for frame in frames if not _is_library(frame.filename)]
    frame = next(iter(own or frames), None)
    return "?" if frame is None else f"{frame.filename}:{frame.lineno}"

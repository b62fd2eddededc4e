"""Read the exact states of generators, and find those of a block that nothing controls."""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..derivation import context
from ..generators import discovery
from ..generators.adapter import ADAPTERS, unpack
from ..generators.default import global_generators
from ..generators.setters import SeedFunction
from ..seeder import start
from ..seeder.registry import adapter_for

FINE, NOTE, WRONG = "fine", "note", "wrong"

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_CHUNK = 1 << 14  # objects that are examined in one call
_SEEDING_CALLS = (
    (random, "random.seed"),
    (np.random, "numpy.random.seed"),
    (torch, "torch.manual_seed"),
    (torch, "torch.seed"),
)

T = TypeVar("T")


class Row(NamedTuple):
    """One thing that ``check`` examined."""

    topic: str
    """``build``, ``job``, ``streams``, ``ranks``, ``process``, or ``use`` for what ran."""
    item: str
    status: str
    """``fine``, ``note`` (worth knowing) or ``wrong`` (to be fixed)."""
    detail: str


def bytes_of(generator: object) -> bytes:
    """Return the exact state of a generator; nothing if it cannot be read."""
    if isinstance(generator, random.Random) and type(generator) is not random.Random:
        return repr(generator.getstate()).encode()  # of any form
    try:
        state = adapter_for(generator).state()
    except Exception:  # of a bit generator of another library
        state = None
    return b"" if state is None else unpack(state)


@contextmanager
def watched_use() -> Iterator[list[Row]]:
    """Yield a list that has, after the block, what it used and fastseed does not control."""
    rows: list[Row] = []
    made = {id(found): _Made(found, "", bytes_of(found), False) for found in _living()}
    repeats = _repeats()
    with _watched_calls(rows, made), _watched_steps(rows):
        yield rows
    controlled = {discovery.identity(generator) for generator in _controlled()}
    for generator in _living(one.generator for one in made.values()):
        known = made.get(id(generator))
        if discovery.identity(generator) not in controlled and not (known and known.by_reseed):
            rows += _used_outside(generator, known)
    if again := _repeats() - repeats:
        detail = "used again by fastseed.reseed; pass each step its number, each phase a task"
        rows.append(Row("use", f"{again} scopes", WRONG, detail))


class _Made(NamedTuple):
    """A generator with an earlier state; held, so that it exists to the end of the block."""

    generator: object
    where: str  # of the call that made it; empty if it is older than the block
    state: bytes
    unseeded: bool
    by_reseed: bool = False  # made by a registered function, in place of another one


def _used_outside(generator: object, known: _Made | None) -> list[Row]:
    used = _was_used(generator) if known is None else bytes_of(generator) != known.state
    if not used:
        return []
    holder, module, is_global = _holder(generator)
    is_installed = _is_installed(module)
    if is_installed and (is_global or (known is None and _is_standard(module))):
        return []
    # Packages shuffle names and wait for random times by Python's generators.
    minor = is_installed and known is None and isinstance(generator, random.Random)
    why = "made without a seed" if known and known.unseeded else "not registered"
    name = f"{type(generator).__module__.removesuffix('._C')}.{type(generator).__qualname__}"
    where = known.where if known and known.where else holder
    status = NOTE if minor else WRONG
    todo = "" if minor else "; pass it to fastseed.register_generator"
    return [Row("use", name, status, f"drawn from, {why}: {where}{todo}")]


def _controlled() -> list[object]:
    found = list(global_generators())
    for entry in () if context.seeder is None else context.seeder.generators.registry:
        found += discovery.generators_of(entry.generator)
        owner = getattr(entry.generator, "__self__", None)  # of a method that reseeds its own
        found += filter(discovery.is_generator, getattr(owner, "__dict__", {}).values())
    return found


def _living(more: Iterable[object] = ()) -> list[object]:
    found = {id(one): one for one in more}
    objects, classes = gc.get_objects(), tuple(ADAPTERS)
    for first in range(0, len(objects), _CHUNK):
        # The collector does not track torch's generators, nor a dict or tuple that holds no more,
        # but the objects that refer to them.
        part = objects[first : first + _CHUNK]
        held = gc.get_referents(*part)
        bare = [one for one in held if type(one) in (dict, tuple) and not gc.is_tracked(one)]
        near = (*part, *held, *gc.get_referents(*bare))
        kinds = [one for one in near if issubclass(type(one), classes)]
        found.update((id(one), one) for one in kinds if discovery.is_generator(one))
    return list(found.values())


def _holder(generator: object) -> tuple[str, str, bool]:
    """Return the holder in words, its module, and whether it is that module, or a class in it."""
    holders = gc.get_referrers(generator)
    for holder in holders:
        if isinstance(holder, dict) and isinstance(holder.get("__name__"), str):
            return f"{holder['__name__']}.{_key(holder, generator)}", holder["__name__"], True
    for holder in holders:
        for owner in gc.get_referrers(holder) if isinstance(holder, dict) else [holder]:
            name = _key(getattr(owner, "__dict__", None), generator)
            if name is not None:
                kind = owner if isinstance(owner, type) else type(owner)
                return f"{kind.__name__}.{name}", str(kind.__module__), kind is owner
    return "a local variable or a container", "", False


def _key(names: object, held: object) -> object:
    items = names.items() if isinstance(names, (dict, types.MappingProxyType)) else ()
    return next((key for key, value in items if value is held), None)


def _is_installed(module: str) -> bool:
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    is_package = top != "__main__" and file is not None and is_library(file)
    return is_package or _is_standard(module)


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def is_library(file: str) -> bool:
    if file.startswith("<frozen ") or "site-packages" in file or "dist-packages" in file:
        return True  # also those of the user, and of an environment below this one
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    real = os.path.realpath(file)
    return any(real.startswith(os.path.join(os.path.realpath(one), "")) for one in folders)


def _was_used(generator: object) -> bool:
    """Return whether a generator that was made in the block was used, as far as can be known."""
    if isinstance(generator, torch.Generator) and generator.device.type == "cpu":
        fresh = torch.Generator()
        fresh.manual_seed(generator.initial_seed())
        return not torch.equal(fresh.get_state(), generator.get_state())
    return True


def _repeats() -> int:
    return 0 if context.seeder is None else context.seeder.recent_scopes.repeats


@contextmanager
def _watched_calls(rows: list[Row], made: dict[int, _Made]) -> Iterator[None]:
    """Record seeding calls, draws before ``init`` and generators of ``default_rng``."""
    first = dict(discovery.states_of_defaults())

    def seeding(name: str, original: Callable[..., T], *args: object, **kwargs: object) -> T:
        if not sys._getframe(1).f_code.co_filename.startswith(_PACKAGE):
            detail = f"seeds a default generator: {_caller()}; leave it out, reseed does that"
            rows.append(Row("use", name, WRONG, detail))
        return original(*args, **kwargs)

    def making(original: Callable[..., T], seed: object = None) -> T:
        generator = original(seed)
        code = SeedFunction.reseed.__code__
        by_reseed = any(frame.f_code is code for frame, _ in traceback.walk_stack(None))
        new = _Made(generator, _caller(), bytes_of(generator), seed is None, by_reseed)
        made.setdefault(id(generator), new)  # one that is passed in is returned
        return generator

    def initializing(original: Callable[..., T], *arguments: object, **options: object) -> T:
        if context.seeder is None:
            now = dict(discovery.states_of_defaults())
            detail = f"drawn from before init: {_caller()}; call init first"
            for name in (name for name in first if not torch.equal(first[name], now[name])):
                status = NOTE if name == "python" else WRONG  # imports draw from Python's
                rows.append(Row("use", name, status, detail))
        return original(*arguments, **options)

    def replace(owner: object, attribute: str, call: Callable[..., object]) -> None:
        original = getattr(owner, attribute)
        stack.callback(setattr, owner, attribute, original)
        setattr(owner, attribute, functools.partial(call, original))

    with ExitStack() as stack:
        for owner, name in _SEEDING_CALLS:
            replace(owner, name.rpartition(".")[2], functools.partial(seeding, name))
        replace(np.random, "default_rng", making)
        replace(start, "join_job", initializing)
        yield


@contextmanager
def _watched_steps(rows: list[Row]) -> Iterator[None]:
    """Report training inside the block that draws and never leaves the scope of ``init``."""
    before: dict[str, torch.Tensor] = {}
    count, reseeded, drawn = 0, False, False

    def stepped(*_: object) -> None:
        nonlocal before, count, reseeded, drawn
        count, seeder = count + 1, context.seeder
        if seeder is None or seeder.scope not in (None, (0, 0, 0)) or seeder.recent_scopes.used:
            reseeded = True  # or never seeded by fastseed, which has a finding of its own
        if not (reseeded or drawn):
            states = dict(discovery.states_of_defaults())
            drawn = any(not torch.equal(states[name], before[name]) for name in before)
            before = states

    handle = register_optimizer_step_post_hook(stepped)
    try:
        yield
    finally:
        handle.remove()
    if drawn and not reseeded:
        detail = "draw in the scope of init: call fastseed.reseed in the loop"
        rows.append(Row("use", f"{count} optimizer steps", WRONG, detail))


def _caller() -> str:
    """Return the file and line of a watched call, in code that is not installed if there is any."""
    stack = traceback.extract_stack(sys._getframe(1))
    frames = [frame for frame in reversed(stack) if not frame.filename.startswith(_PACKAGE)]
    own = [frame for frame in frames if not is_library(frame.filename)]
    frame = next(iter(own or frames), None)
    return "?" if frame is None else f"{frame.filename}:{frame.lineno}"

"""Rules about generators that are made without a seed (FS102, FS103).

Where a generator goes is followed through one variable. What could seed it unseen (a function of
another object's, a return) ends the matter for a torch.Generator, which is often made first and
seeded later; one of NumPy's or Python's has taken its seed from the system by then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ..module import Arguments, Module, Violation, is_none
from .manual_seed import MAKERS, last_name

_SEEDS = frozenset(
    ("seed", "manual_seed", "set_state", "setstate", "graphsafe_set_state", "clone_state")
)
_REGISTERS = {"register_generator"}
_POOLS = ("fastseed.GeneratorPool", "fastseed.generators.pool.GeneratorPool")
_THROUGH = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.Starred)
_BIT_GENERATORS = {"numpy.random.Generator", "numpy.random.RandomState"}


class _Fate(NamedTuple):
    """The fate of a generator."""

    seeded: bool = False
    """Seeded, given a state, or registered."""
    unknown: bool = False
    """Given to something that may do so."""


def unseeded(module: Module) -> Iterator[Violation]:
    """FS102."""
    for call in module.calls:
        origin = module.origin(call)
        if origin == "random.SystemRandom" and not _used_up(module, call):
            yield Violation("FS102", call, "`random.SystemRandom` cannot be seeded")
        if origin not in MAKERS or _given_seed(module, call, MAKERS[origin]):
            continue
        if not _fate(module, call).seeded and not _stand_in(module, call):
            yield Violation("FS102", call, f"`{origin}()` without a seed")


def unseeded_torch(module: Module) -> Iterator[Violation]:
    """FS103."""
    for call in module.calls:
        if module.origin(call) == "torch.Generator" and not Arguments(module, call).hidden:
            fate = _fate(module, call)
            if not fate.seeded and not fate.unknown:
                yield Violation(
                    "FS103", call, "this `torch.Generator` is neither seeded nor registered"
                )


def _used_up(module: Module, call: ast.Call) -> bool:
    """Return whether a generator is made for one number, such as a port or a password."""
    return isinstance(module.parents.get(call), ast.Attribute)


def _given_seed(module: Module, call: ast.Call, name: str) -> bool:
    arguments = Arguments(module, call)
    if arguments.hidden:
        return True
    return arguments.get(name, 0) is not None or any(
        not is_none(value) for key, value in arguments.keywords.items() if key != "pool_size"
    )


# ---------------------------------------------------------------- where it goes


def _fate(module: Module, call: ast.expr) -> _Fate:
    node: ast.AST = call
    while True:
        holder = module.parents.get(node)
        if isinstance(holder, ast.Attribute):
            return _method(module, holder)
        if isinstance(holder, (ast.keyword, *_THROUGH, ast.BoolOp, ast.IfExp)):
            node = holder
        elif isinstance(holder, ast.Call):
            if module.origin(holder) in _BIT_GENERATORS:
                node = holder  # Generator(PCG64()): the whole of it may be registered
                continue
            return _passed(module, holder, node)
        else:
            break
    targets = _targets(holder)
    if targets is None:
        return _Fate(unknown=not isinstance(holder, ast.Expr))
    inside = isinstance(node, _THROUGH)  # in a list: what happens to its members is not seen
    fates = [_later(module, target) for target in targets]
    return _Fate(any(f.seeded for f in fates), inside or any(f.unknown for f in fates))


def _targets(holder: ast.AST | None) -> list[ast.expr] | None:
    """Return the targets of an assignment, if all of them are variables."""
    if isinstance(holder, ast.Assign):
        targets = holder.targets
    elif isinstance(holder, (ast.AnnAssign, ast.NamedExpr)):
        targets = [holder.target]
    else:
        return None
    return targets if all(isinstance(t, (ast.Name, ast.Attribute)) for t in targets) else None


def _later(module: Module, target: ast.expr) -> _Fate:
    """Return the fate of a variable's generator."""
    uses = module.uses_of(target)
    if not uses:  # an attribute of something else: rng.inner = Generator()
        return _Fate(unknown=True)
    seeded, unknown = False, False
    for use in uses:
        if not isinstance(use.ctx, ast.Load):  # type: ignore[attr-defined]
            continue
        node: ast.AST = use
        holder = module.parents.get(node)
        while isinstance(holder, (ast.keyword, *_THROUGH)):
            node, holder = holder, module.parents.get(holder)
        if isinstance(holder, ast.Attribute):
            fate = _method(module, holder)
        elif isinstance(holder, ast.Call) and node is not holder.func:
            fate = _passed(module, holder, node)
        else:
            fate = _Fate(unknown=_leaves(holder))
        seeded, unknown = seeded or fate.seeded, unknown or fate.unknown
    public = isinstance(target, ast.Attribute) or _is_module_level(module, target)
    return _Fate(seeded, unknown or (public and not seeded and _seeded_elsewhere(module, target)))


def _leaves(holder: ast.AST | None) -> bool:
    """Return whether something else may hold it from here on."""
    plain = (ast.Expr, ast.Compare, ast.If, ast.IfExp, ast.UnaryOp, ast.BoolOp, ast.Assert)
    return not isinstance(holder, plain)


def _method(module: Module, attribute: ast.Attribute) -> _Fate:
    """The generator is used as `it.attr`."""
    if attribute.attr in _SEEDS:
        return _Fate(seeded=True)
    if attribute.attr == "bit_generator":  # rng.bit_generator.state = …
        holder = module.parents.get(attribute)
        if isinstance(holder, ast.Attribute) and isinstance(holder.ctx, ast.Store):
            return _Fate(seeded=True)
    if attribute.attr == "state" and isinstance(attribute.ctx, ast.Store):
        return _Fate(seeded=True)
    return _Fate()


def _passed(module: Module, call: ast.Call, as_what: ast.AST) -> _Fate:
    """The generator is an argument of a call."""
    origin = module.origin(call) or ""
    name = last_name(call.func)
    if name in _REGISTERS or origin in _POOLS:
        return _Fate(seeded=True)
    draws = origin.startswith(("torch.", "numpy.", "random."))
    if isinstance(as_what, ast.keyword) and as_what.arg == "generator":
        seeds = any(keyword.arg == "seed" for keyword in call.keywords)
        draws = draws or (name.endswith(("Loader", "Sampler")) and not seeds)
    return _Fate(unknown=not draws)


def _is_module_level(module: Module, target: ast.expr) -> bool:
    key = module.names.key(target)
    return key is not None and key[0] is module.names.module


def _seeded_elsewhere(module: Module, target: ast.expr) -> bool:
    """Return whether such a name is seeded through another object: `job.rng.seed(0)`."""
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return name in module.attributes_of(_SEEDS)


# ---------------------------------------------------------------- for want of a better one


def _stand_in(module: Module, call: ast.Call) -> bool:
    """Return whether a generator is only the default: `rng = rng or default_rng()`."""
    for holder in module.ancestors(call):
        if isinstance(holder, (ast.BoolOp, ast.IfExp)):
            return True
        if isinstance(holder, ast.stmt):
            break
    targets = _targets(module.parents.get(call)) or []
    for target in targets:
        if any(_brought(module, use) for use in module.uses_of(target)):
            return True
        found = module.names.lookup(target) if isinstance(target, ast.Name) else None
        if found and any(binding.kind == "parameter" for binding in found[1]):
            return True
        if found and getattr(target, "id", "") in found[0].attributes:
            return True  # a class's, which instances replace by their own
    return False


def _brought(module: Module, use: ast.expr) -> bool:
    """Return whether a variable is also assigned something better than an unseeded generator."""
    holder = module.parents.get(use)
    if isinstance(use.ctx, ast.Load) or not isinstance(holder, (ast.Assign, ast.AnnAssign)):  # type: ignore[attr-defined]
        return False
    value = holder.value
    if isinstance(value, ast.Call):
        origin = module.origin(value)
        return origin not in MAKERS or _given_seed(module, value, MAKERS[origin])
    return not is_none(value)


CHECKS = (unseeded, unseeded_torch)

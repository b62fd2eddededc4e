"""Rules about generators that are made without a seed (FS102, FS103).

Where a generator goes is followed through one variable. What could seed it unseen (a function of
another object's, a return) ends the matter for a torch.Generator, which is often made first and
seeded later; one of NumPy's or Python's has taken its seed from the system by then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ..module import Arguments, Module, Violation
from ..syntax import is_none, last_name, targets_of
from .manual_seed import MAKERS

_SEEDS = ("seed", "manual_seed", "set_state", "setstate", "graphsafe_set_state", "clone_state")
_POOLS = ("fastseed.GeneratorPool", "fastseed.generators.pool.GeneratorPool")
_LISTS = (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.Starred)
_THROUGH = (*_LISTS, ast.keyword, ast.BoolOp, ast.IfExp)
_STAYS = (ast.Expr, ast.Compare, ast.If, ast.IfExp, ast.UnaryOp, ast.BoolOp, ast.Assert)
"""Uses of an expression after which nothing else holds it."""
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
        # As the holder of a method it is made for one number, such as a port or a password.
        passing = isinstance(module.parents.get(call), ast.Attribute)
        if origin == "random.SystemRandom" and not passing:
            yield Violation("FS102", call, "`random.SystemRandom` cannot be seeded")
        if (
            _takes_no_seed(module, call)
            and not _fate(module, call).seeded
            and not _is_default(module, call)
        ):
            yield Violation("FS102", call, f"`{origin}()` without a seed")


def unseeded_torch(module: Module) -> Iterator[Violation]:
    """FS103."""
    message = "this `torch.Generator` is neither seeded nor registered"
    for call in module.calls:
        is_torch = module.origin(call) == "torch.Generator"
        if is_torch and not Arguments(module, call).hidden and not any(_fate(module, call)):
            yield Violation("FS103", call, message)


def _takes_no_seed(module: Module, node: ast.AST | None) -> bool:
    """Return whether a node is a call of NumPy's or Python's that makes an unseeded generator."""
    if not isinstance(node, ast.Call) or not MAKERS.fullmatch(module.origin(node) or ""):
        return False
    arguments = Arguments(module, node)
    given = [*arguments.positional, *arguments.keywords.values()]
    return not arguments.hidden and all(map(is_none, given))


def _is_default(module: Module, call: ast.Call) -> bool:
    """Return whether a generator is for want of a better one: `rng = rng or default_rng()`."""
    for holder in module.ancestors(call):
        if isinstance(holder, (ast.BoolOp, ast.IfExp)):
            return True
        if isinstance(holder, ast.stmt):
            break
    for target in targets_of(module.parents.get(call)):
        for binding in module.names.bindings(target):
            better = not is_none(binding.node) and not _takes_no_seed(module, binding.node)
            if binding.kind == "parameter" or (binding.kind == "value" and better):
                return True
        if f"self.{last_name(target)}" in module.names.scopes[target].names:
            return True  # a class's, which instances replace by their own
    return False


# ---------------------------------------------------------------- where it goes


def _fate(module: Module, call: ast.Call) -> _Fate:
    holder, node = _holder(module, call)
    targets = targets_of(holder)
    if not targets:
        return _used(module, holder, node)
    fates = [_later(module, target) for target in targets]
    inside = isinstance(node, _LISTS)  # what happens to the members of a list is not seen
    return _Fate(any(f.seeded for f in fates), inside or any(f.unknown for f in fates))


def _holder(module: Module, node: ast.AST) -> tuple[ast.AST | None, ast.AST]:
    """Return what holds an expression beyond lists and `or`, and the part that it holds."""
    while True:
        holder = module.parents.get(node)
        # Generator(PCG64()): the whole of it may be registered
        wrapped = isinstance(holder, ast.Call) and module.origin(holder) in _BIT_GENERATORS
        if holder is None or not (wrapped or isinstance(holder, _THROUGH)):
            return holder, node
        node = holder


def _later(module: Module, target: ast.expr) -> _Fate:
    """Return the fate of a variable's generator."""
    uses = module.uses_of(target)
    if not uses:  # an attribute of something else: rng.inner = Generator()
        return _Fate(unknown=True)
    loads = [use for use in uses if isinstance(use.ctx, ast.Load)]  # type: ignore[attr-defined]
    fates = [_used(module, *_holder(module, use)) for use in loads]
    seeded = any(fate.seeded for fate in fates)
    key = module.names.key(target)
    if isinstance(target, ast.Attribute) or (key and key[0] is module.names.module):
        # It may be seeded through another object: `job.rng.seed(0)`.
        elsewhere = any((last_name(target), name) in module.methods for name in _SEEDS)
    else:
        elsewhere = False
    return _Fate(seeded, elsewhere or any(fate.unknown for fate in fates))


def _used(module: Module, holder: ast.AST | None, node: ast.AST) -> _Fate:
    """Return what one use of a generator does."""
    if isinstance(holder, ast.Attribute):
        outer = module.parents.get(holder)
        if holder.attr == "bit_generator" and isinstance(outer, ast.Attribute):
            holder = outer  # rng.bit_generator.state = …
        sets_state = holder.attr == "state" and isinstance(holder.ctx, ast.Store)
        return _Fate(seeded=holder.attr in _SEEDS or sets_state)
    if isinstance(holder, ast.Call) and node is not holder.func:
        return _passed(module, holder, node)
    return _Fate(unknown=not isinstance(holder, _STAYS))


def _passed(module: Module, call: ast.Call, argument: ast.AST) -> _Fate:
    """Return what a call does with a generator that is its argument."""
    origin, name = module.origin(call) or "", last_name(call.func)
    if name == "register_generator" or origin in _POOLS:
        return _Fate(seeded=True)
    draws = origin.startswith(("torch.", "numpy.", "random."))
    if isinstance(argument, ast.keyword) and argument.arg == "generator":
        seeds = any(keyword.arg == "seed" for keyword in call.keywords)
        draws = draws or (name.endswith(("Loader", "Sampler")) and not seeds)
    return _Fate(unknown=not draws)


CHECKS = (unseeded, unseeded_torch)

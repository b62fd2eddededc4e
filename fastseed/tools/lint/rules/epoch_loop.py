"""Rules about the loop over epochs: what has to be called in each (FS204, FS301, FS302)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

from ..module import Arguments, Module, Violation, constant

_Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While

_EPOCH = re.compile(r"(?:^|_)epochs?(?:_|$|\d)|^ep$|^[nN]_?epochs?$|^max_?epochs?$", re.IGNORECASE)
_TRAINS = re.compile(
    r"^(?:do_|_)?train(?!ing$|ed$|er$|able$|_?set|_?data|_?load|_?dl$)", re.IGNORECASE
)
_OPTIMIZER = re.compile(r"opt|scaler|fabric|accelerator|engine", re.IGNORECASE)


def set_epoch_missing(module: Module) -> Iterator[Violation]:
    """FS204."""
    loops = list(_epoch_loops(module))
    if not loops or any(_called(call) == "set_epoch" for call in module.calls):
        return
    for call in module.calls:
        if module.origin(call) == "torch.utils.data.DistributedSampler":
            arguments = Arguments(module, call)
            shuffles = constant(module, arguments.get("shuffle", 3)) is not False
            if shuffles and not arguments.hidden and not _ours(module, call):
                yield Violation("FS204", call, "no call of this DistributedSampler's `set_epoch`")


def _ours(module: Module, sampler: ast.Call) -> bool:
    """Return whether a sampler is given to fastseed, which sets its epoch."""
    holder = module.parents.get(sampler)
    places: list[ast.expr] = [sampler]
    if isinstance(holder, ast.Assign):
        places = [use for target in holder.targets for use in module.uses_of(target)]
    for place in places:
        taker = module.parents.get(place)
        if isinstance(taker, ast.keyword):
            taker = module.parents.get(taker)
        name = _called(taker) if taker is not None else ""
        if name == "register_generator" or (module.origin(taker) or "").startswith("fastseed."):
            return True
    return False


def reseed_missing(module: Module) -> Iterator[Violation]:
    """FS301."""
    if any(name.startswith("fastseed.integrations") for name in module.imports):
        return  # the callbacks reseed
    for loop in _epoch_loops(module):
        if not any(_called(node) == "reseed" for node in module.reached([loop])):
            yield Violation("FS301", loop, "this loop over epochs never calls `reseed`")


def reseed_constant(module: Module) -> Iterator[Violation]:
    """FS302."""
    for loop in _epoch_loops(module):
        calls = [node for node in ast.walk(loop) if _called(node) == "reseed"]
        for call in calls:
            assert isinstance(call, ast.Call)
            arguments = Arguments(module, call)
            passed = [*call.args, *arguments.keywords.values()]
            fixed = all(isinstance(constant(module, value), int) for value in passed)
            if fixed and passed and not arguments.hidden and len(calls) == 1:
                yield Violation("FS302", call, "`reseed` here does not depend on the epoch")


def _called(node: ast.AST) -> str:
    """The last part of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _epoch_loops(module: Module) -> Iterator[_Loop]:
    """The outermost loops over epochs in which something is trained."""
    for node in module.nodes:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and _counts_epochs(node):
            outer = any(
                isinstance(one, (ast.For, ast.AsyncFor, ast.While)) and _counts_epochs(one)
                for one in module.ancestors(node)
            )
            if not outer and any(_trains(module, one) for one in module.reached([*node.body])):
                yield node


def _counts_epochs(loop: _Loop) -> bool:
    """Return whether the names in a loop's head speak of epochs."""
    if isinstance(loop, ast.While):
        return any(_EPOCH.search(name) for name in _words(loop.test))
    if any(_EPOCH.search(name) for name in _words(loop.target)):
        return True
    return isinstance(loop.iter, ast.Call) and any(_EPOCH.search(n) for n in _words(loop.iter))


def _words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def _trains(module: Module, node: ast.AST) -> bool:
    """Return whether a call trains: a backward pass, an optimizer's step, `train…`."""
    name = _called(node)
    if name == "backward":
        return True
    if name == "step" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return any(_OPTIMIZER.search(word) for word in _words(node.func.value))
    if not _TRAINS.search(name) or not isinstance(node, ast.Call):
        return False
    # model.train() switches a mode; train(model, loader) and trainer.train_epoch(loader) train.
    return bool(node.args or node.keywords) and not _switches_mode(node)


def _switches_mode(call: ast.Call) -> bool:
    return (
        _called(call) == "train"
        and isinstance(call.func, ast.Attribute)
        and len(call.args) + len(call.keywords) == 1
    )


CHECKS = (set_epoch_missing, reseed_missing, reseed_constant)

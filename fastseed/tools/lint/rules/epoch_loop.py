"""Rules about the loop over epochs: what has to be called in each (FS204, FS301, FS302)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

from ..module import Arguments, Module, Violation, constant
from ..syntax import called, names_in

_Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While
_LOOPS = (ast.For, ast.AsyncFor, ast.While)

_EPOCH = re.compile(r"(?:^|_)epochs?(?:_|$|\d)|^ep$|^[nN]_?epochs?$|^max_?epochs?$", re.IGNORECASE)
_TRAINS = re.compile(
    r"^(?:do_|_)?train(?!ing$|ed$|er$|able$|_?set|_?data|_?load|_?dl$)", re.IGNORECASE
)
_OPTIMIZER = re.compile(r"opt|scaler|fabric|accelerator|engine", re.IGNORECASE)
_LOOPS_OF_OURS = ("fastseed.data.steps", "fastseed.data.Steps")


def set_epoch_missing(module: Module) -> Iterator[Violation]:
    """FS204."""
    loops = list(_epoch_loops(module))
    if not loops or any(called(call) == "set_epoch" for call in module.calls):
        return
    for call in module.calls:
        if module.origin(call) == "torch.utils.data.DistributedSampler":
            arguments = Arguments(module, call)
            shuffles = constant(module, arguments.get("shuffle", 3)) is not False
            if shuffles and not arguments.hidden and not _is_ours(module, call):
                yield Violation("FS204", call, "no call of this DistributedSampler's `set_epoch`")


def _is_ours(module: Module, sampler: ast.Call) -> bool:
    """Return whether a sampler is given to fastseed, which sets its epoch."""
    return any(
        called(taker) == "register_generator"
        or (module.origin(taker) or "").startswith("fastseed.")
        for taker in module.takers(sampler)
    )


def reseed_missing(module: Module) -> Iterator[Violation]:
    """FS301."""
    callbacks = any(name.startswith("fastseed.integrations") for name in module.imports)
    if callbacks or any(module.origin(call) in _LOOPS_OF_OURS for call in module.calls):
        return  # these reseed
    for loop in _epoch_loops(module):
        if not any(called(node) == "reseed" for node in module.reached([loop])):
            head = loop.test if isinstance(loop, ast.While) else loop.iter
            yield Violation("FS301", head, "this loop over epochs never calls `reseed`")


def reseed_constant(module: Module) -> Iterator[Violation]:
    """FS302."""
    for loop in _epoch_loops(module):
        calls = [
            node
            for node in ast.walk(loop)
            if isinstance(node, ast.Call) and called(node) == "reseed"
        ]
        if len(calls) == 1:
            arguments = Arguments(module, calls[0])
            passed = [*arguments.positional, *arguments.keywords.values()]
            fixed = all(isinstance(constant(module, value), int) for value in passed)
            if fixed and passed and not arguments.hidden:
                yield Violation("FS302", calls[0], "`reseed` here does not depend on the epoch")


def _epoch_loops(module: Module) -> Iterator[_Loop]:
    """The outermost loops over epochs in which something is trained."""
    for node in module.nodes:
        if (
            isinstance(node, _LOOPS)
            and _counts_epochs(node)
            and not any(map(_counts_epochs, module.ancestors(node)))
            and any(map(_trains, module.reached([*node.body])))
        ):
            yield node


def _counts_epochs(node: ast.AST) -> bool:
    """Return whether a node is a loop whose head has a name that speaks of epochs."""
    heads: list[ast.expr] = []
    if isinstance(node, ast.While):
        heads = [node.test]
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        heads = [node.target, node.iter] if isinstance(node.iter, ast.Call) else [node.target]
    return any(_EPOCH.search(name) for head in heads for name in names_in(head))


def _trains(node: ast.AST) -> bool:
    """Return whether a call trains: a backward pass, an optimizer's step, `train…`."""
    if not isinstance(node, ast.Call):
        return False
    name, is_method = called(node), isinstance(node.func, ast.Attribute)
    if name == "backward":
        return True
    if name == "step" and is_method:
        return any(_OPTIMIZER.search(word) for word in names_in(node.func))
    # model.train() switches a mode; train(model, loader) and trainer.train_epoch(loader) train.
    arguments = len(node.args) + len(node.keywords)
    switches_mode = name == "train" and is_method and arguments == 1
    return bool(_TRAINS.search(name)) and arguments > 0 and not switches_mode


CHECKS = (set_epoch_missing, reseed_missing, reseed_constant)

"""A rule about checkpoints: resuming without random number generators (FS303)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..module import Module, Violation
from ..syntax import last_name

_LOADS = {"torch.load", "torch.distributed.checkpoint.load"}
_OPTIMIZER = re.compile(r"optim|^opt$|scaler", re.IGNORECASE)
_RESTORES = {"set_rng_state", "set_rng_state_all", "setstate", "set_state", "reseed", "seed_all"}
_SAVED_NAMES = re.compile(r"rng|random_state|generator_state", re.IGNORECASE)


def resume_without_generators(module: Module) -> Iterator[Violation]:
    """FS303: once a file, where the state of an optimizer is loaded."""
    if module.has("fastseed") or not any(module.origin(call) in _LOADS for call in module.calls):
        return
    trains, loaded = False, []
    for call in module.calls:
        function = call.func
        if not isinstance(function, ast.Attribute):
            continue
        if function.attr in _RESTORES:
            return
        trains = trains or function.attr == "backward"
        if function.attr == "load_state_dict" and _OPTIMIZER.search(last_name(function.value)):
            loaded.append(call)
    if trains and loaded and not _mentions_generators(module):
        first = min(loaded, key=lambda call: (call.lineno, call.col_offset))
        yield Violation("FS303", first, "a checkpoint is loaded without the states of generators")


def _mentions_generators(module: Module) -> bool:
    """Return whether keys of a checkpoint are named like states of generators."""
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and len(node.value) < 40
        and _SAVED_NAMES.search(node.value)
        for node in module.nodes
    )


CHECKS = (resume_without_generators,)

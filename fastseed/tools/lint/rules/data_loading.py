"""Rules about loading data: shuffling, splitting, workers (FS201, FS202, FS203)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..module import Arguments, Module, Violation, constant
from ..syntax import is_none
from . import manual_seed

_LOADERS = re.compile(
    r"torch\.utils\.data\.DataLoader|torch_geometric\.(loader|data)\.DataLoader|"
    r"torchdata\.stateful_dataloader\.(stateful_dataloader\.)?StatefulDataLoader"
)
"""Loaders with the arguments of torch's, which draw as it does."""

_SHUFFLE = 2  # DataLoader(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, …)
_SAMPLER, _BATCH_SAMPLER, _WORKERS, _INIT, _GENERATOR = 3, 4, 5, 10, 12
_PREPARES = (
    *("fastseed.data.prepare", "fastseed.data.plain_loader.prepare"),
    *("fastseed.data.steps", "fastseed.data.Steps"),
)

_SAMPLERS = {
    "torch.utils.data.random_split": 2,
    "torch.utils.data.RandomSampler": 3,
    "torch.utils.data.SubsetRandomSampler": 1,
    "torch.utils.data.WeightedRandomSampler": 3,
}
"""Functions that draw from a generator, and the position of that argument."""


def shuffle_without_generator(module: Module) -> Iterator[Violation]:
    """FS201, and once a file FS205 where the file seeds the global generator."""
    ordered = (("sampler", _SAMPLER), ("batch_sampler", _BATCH_SAMPLER))
    found = [
        call
        for call, arguments in _loaders(module)
        if constant(module, arguments.get("shuffle", _SHUFFLE)) is True
        and not any(arguments.get(*one) for one in (*ordered, ("generator", _GENERATOR)))
    ]
    message = "`shuffle=True` without a generator or sampler"
    if found and manual_seed.seeds_globally(module):
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        first = min(found, key=lambda call: (call.lineno, call.col_offset))
        yield Violation("FS205", first, message + more)
        return
    for call in found:
        yield Violation("FS201", call, message)


def split_without_generator(module: Module) -> Iterator[Violation]:
    """FS202."""
    for call in module.calls:
        origin = module.origin(call) or ""
        if origin in _SAMPLERS:
            arguments = Arguments(module, call)
            if not arguments.hidden and not arguments.get("generator", _SAMPLERS[origin]):
                name = origin.rpartition(".")[2]
                yield Violation("FS202", call, f"`{name}` without a generator")


def workers_without_init(module: Module) -> Iterator[Violation]:
    """FS203."""
    for call, arguments in _loaders(module):
        workers = arguments.get("num_workers", _WORKERS)
        if is_none(workers) or constant(module, workers) == 0:
            continue
        init = arguments.get("worker_init_fn", _INIT)
        if init is None:
            yield Violation("FS203", call, "workers without `fastseed.data.worker_init_fn`")
        elif _is_another(module, init):
            message = "the `worker_init_fn` here does not call `fastseed.data.worker_init_fn`"
            yield Violation("FS203", call, message)


def _loaders(module: Module) -> Iterator[tuple[ast.Call, Arguments]]:
    """Calls that make a loader, where all their arguments are known and we do not take over."""
    if any(name.startswith("fastseed.integrations") for name in module.imports):
        return  # the callbacks prepare the loaders
    for call in module.calls:
        if _LOADERS.fullmatch(module.origin(call) or ""):
            arguments = Arguments(module, call)
            prepared = any(module.origin(taker) in _PREPARES for taker in module.takers(call))
            if not arguments.hidden and not prepared:
                yield call, arguments


def _is_another(module: Module, init: ast.expr) -> bool:
    """Return whether a function of this file that does not call fastseed's."""
    function = module.names.function(init)
    value = module.names.value(init)
    body: list[ast.AST] = []
    if function is not None:
        body = list(function.body)
    elif isinstance(value, ast.Lambda):
        body = [value.body]
    if not body:
        return False  # a function of another file: unknown
    return not any(
        isinstance(node, ast.Call) and (module.origin(node) or "").startswith("fastseed.")
        for node in module.reached(body)
    )


CHECKS = (shuffle_without_generator, split_without_generator, workers_without_init)

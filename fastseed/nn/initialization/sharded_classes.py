"""The classes that modules have before FSDP2 shards them, for the time of a block.

``fully_shard`` gives a module a generated class. Initializers ask for classes, as torch's example
of ``Module.apply`` for ``type(m) == nn.Linear``, and leave out weights whose class is another one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from torch import nn


class _Apply:
    """``Module._apply`` of a sharded module, which ``to_empty`` and ``to`` call, in the block."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.thread = module, threading.get_ident()
        self.sharded: Any = type(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it as the class of FSDP2, which keeps account of the sharded parameters."""
        original = type(self.module)
        self.module.__class__ = self.sharded
        try:
            return self.sharded._apply(self.module, *args, **kwargs)
        finally:
            self.module.__class__ = original


@contextlib.contextmanager
def original_classes(function: str, model: nn.Module) -> Iterator[None]:
    """Give the modules of ``model`` the classes from before ``fully_shard``, for a block.

    They are resharded first: what is written to gathered parameters would be lost.
    """
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    modules = list(model.modules()) if fsdp is not None else []
    for module in modules:
        held = vars(module).get("_apply")
        if isinstance(held, _Apply) and held.thread != threading.get_ident():
            raise RuntimeError(
                f"fastseed.{function}: a model must be initialized by one thread at a time, "
                f"got a {type(module).__name__} that another thread is initializing"
            )
    sharded: list[Any] = [m for m in modules if isinstance(m, fsdp.FSDPModule)]
    try:
        for module in sharded:
            module.reshard()
            vars(module)["_apply"] = _Apply(module)
            before = [c for c in type(module).__mro__ if not issubclass(c, fsdp.FSDPModule)]
            module.__class__ = before[0]
        yield
    finally:
        _restore(sharded)


def _restore(modules: list[Any]) -> None:
    for module in modules:
        held = vars(module).get("_apply")
        if isinstance(held, _Apply):
            module.__class__ = held.sharded
            vars(module).pop("_apply", None)

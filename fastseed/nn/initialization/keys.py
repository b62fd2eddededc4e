"""The key of a fill, by scope, name and count, and a warning where two models share keys."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Hashable

from torch import nn

from ...derivation import scopes
from ...derivation.scopes import SHARED, Scope
from ...derivation.shared_use import job
from ...seeder.seeder import current_seeder
from .names import Owner

logger = logging.getLogger("fastseed")
KeyOf = Callable[[str, int], int]
_modules: weakref.WeakValueDictionary[Hashable, nn.Module] = weakref.WeakValueDictionary()
"""By job, scope and name, the module whose parameter was filled from them first."""


def keys_at(function: str, task: int, epoch: int, step: int) -> tuple[Scope, KeyOf]:
    """Return a checked scope, and the function of name and count that gives the key of a fill."""
    seeder = current_seeder(function)
    scopes.require_keys(function, seeder.scheme)
    scope = scopes.check_scope(function, task, epoch, step)

    def key_of(name: str, count: int) -> int:
        return seeder.derive_key(f"init/{name}", **scope._asdict(), rank=SHARED, index=count)

    return scope, key_of


class EqualNames:
    """The names of one block from which other models were filled before: wrong in an ensemble."""

    def __init__(self, function: str, scope: Scope) -> None:
        self._function, self._scope = function, scope
        self._names: dict[str, None] = {}

    def note(self, owner: Owner) -> None:
        """Record that a parameter or buffer was filled from its qualified name."""
        first = _modules.setdefault((job(), self._scope, owner.name), owner.module)
        if first is not owner.module:
            self._names[owner.name] = None

    def warn(self) -> None:
        """Warn of names from which a tensor of another model was filled that exists."""
        if self._names:
            names = list(self._names)
            logger.warning(
                "fastseed.%s: %d tensors (%s) have the random numbers of another model of the same "
                "names, at task %d, epoch %d, step %d: pass prefix= or another task=",
                *(self._function, len(names)),
                ", ".join(names[:3]) + (", ..." if len(names) > 3 else ""),
                *self._scope,
            )

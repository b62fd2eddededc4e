"""Notice models that get the same weights because their parameters have the same names.

Weights depend on scope and name. Two models with equal names that are initialized in one scope
have equal weights: right where one repeats the other, wrong in an ensemble.
"""

from __future__ import annotations

import gc
import logging
import weakref
from typing import TYPE_CHECKING

from torch import nn

from ...derivation import context
from ...derivation.scopes import Scope

if TYPE_CHECKING:
    from ...seeder.seeder import Seeder

logger = logging.getLogger("fastseed")
_Names = weakref.WeakValueDictionary[tuple[Scope, str], nn.Module]
_filled: weakref.WeakKeyDictionary[Seeder, _Names] = weakref.WeakKeyDictionary()
"""For each seeder: by scope and name, the first module whose parameter was filled from them.

``fastseed.init`` makes a new seeder, so a new job has no names yet. Threads share the table: two
that fill the same name at the same time may both be first, and get no warning.
"""


class EqualNames:
    """The names of one block from which parameters of other modules were filled before."""

    def __init__(self, function: str, scope: Scope, remedy: str) -> None:
        self._function, self._scope, self._remedy = function, scope, remedy
        self._first = _filled.setdefault(context.current(function), _Names())
        self._repeated: dict[str, weakref.ref[nn.Module]] = {}

    def note(self, name: str, module: nn.Module) -> None:
        """Record that a parameter or buffer of ``module`` was filled from its qualified name."""
        first = self._first.setdefault((self._scope, name), module)
        if first is not module and name not in self._repeated:
            self._repeated[name] = weakref.ref(first)

    def warn(self) -> None:
        """Warn of names whose earlier module still exists."""
        if not self._living():
            return
        gc.collect()  # a model that is gone may wait for the collector: say the same at each run
        names = self._living()
        if names:
            logger.warning(
                "fastseed.%s: %d tensors (%s) have the random numbers of another model, whose "
                "tensors of the same names were initialized at the same task %d, epoch %d, "
                "step %d: pass %s for weights of its own",
                *(self._function, len(names)),
                ", ".join(names[:3]) + (", ..." if len(names) > 3 else ""),
                *self._scope,
                self._remedy,
            )

    def _living(self) -> list[str]:
        return [name for name, reference in self._repeated.items() if reference() is not None]

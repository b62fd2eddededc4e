"""Notice models that get the same weights because their parameters have the same names.

Weights depend on scope and name. Two models with equal names that are initialised in one scope
have equal weights: right where one repeats the other, wrong in an ensemble.
"""

from __future__ import annotations

import gc
import logging
import weakref

from torch import nn

from ...derivation.equal_streams import StreamUsers

logger = logging.getLogger("fastseed")
_owners: StreamUsers[nn.Module] = StreamUsers()


class EqualNames:
    """The names of one block from which parameters of other modules were filled before."""

    def __init__(self, function: str, scope: tuple[int, int, int], remedy: str) -> None:
        self._function, self._scope, self._remedy = function, scope, remedy
        self._repeated: dict[str, weakref.ref[nn.Module]] = {}

    def note(self, name: str, module: nn.Module) -> None:
        """Record that a parameter or buffer of ``module`` was filled from its qualified name."""
        first = _owners.find_other(module, self._scope, name.rpartition(".")[0])
        if first is not None and name not in self._repeated:
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

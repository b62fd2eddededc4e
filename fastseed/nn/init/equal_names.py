"""Notice models that get the same weights because their parameters have the same names.

Weights depend on scope and name. Two models with equal names that are initialised in one scope
have equal weights: right where one repeats the other, wrong in an ensemble.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

from torch import nn

from ...derivation import context

_filled: weakref.WeakKeyDictionary[
    Any, weakref.WeakValueDictionary[tuple[tuple[int, int, int], str], nn.Module]
] = weakref.WeakKeyDictionary()
"""For each seeder: by scope and name, the first module whose parameter was filled from them.

``fastseed.init`` makes a new seeder, so a new job has no names yet. Threads share the table: two
that fill the same name at the same time may both be first, and get no warning.
"""


class EqualNames:
    """The names of one block from which parameters of other modules were filled before."""

    def __init__(self, function: str, scope: tuple[int, int, int], remedy: str) -> None:
        self._function, self._scope, self._remedy = function, scope, remedy
        self._first = _filled.setdefault(context.current(function), weakref.WeakValueDictionary())
        self._repeated: dict[str, weakref.ref[nn.Module]] = {}

    def note(self, name: str, module: nn.Module) -> None:
        """Record that a parameter or buffer of ``module`` was filled from its qualified name."""
        first = self._first.setdefault((self._scope, name), module)
        if first is not module and name not in self._repeated:
            self._repeated[name] = weakref.ref(first)

    def warn(self, stacklevel: int) -> None:
        """Warn of names whose earlier module still exists."""
        if not self._living():
            return
        gc.collect()  # a model that is gone may wait for the collector: say the same at each run
        names = self._living()
        if names:
            task, epoch, step = self._scope
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            warnings.warn(
                f"fastseed.{self._function}: {len(names)} tensors ({shown}) have the random "
                "numbers of another model, whose tensors of the same names were initialised at the "
                f"same task {task}, epoch {epoch}, step {step}: pass {self._remedy} for weights of "
                "its own",
                stacklevel=stacklevel + 1,
            )

    def _living(self) -> list[str]:
        return [name for name, reference in self._repeated.items() if reference() is not None]

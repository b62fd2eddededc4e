"""Rollouts: a seed for each one, by its global identity, and the ledger that trains each once.

Importing it loads neither torch nor NumPy: each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from .._utils import lazy

if TYPE_CHECKING:
    from .arrays import seeds
    from .identity import seed
    from .ledger import Ledger
    from .units import Batch, LeaseError, Unit

__all__ = ["Batch", "LeaseError", "Ledger", "Unit", "seed", "seeds"]

_HOME = {  # name: the module that defines it
    "Ledger": "ledger",
    "seed": "identity",
    "seeds": "arrays",
    **dict.fromkeys(("Batch", "LeaseError", "Unit"), "units"),
}

__getattr__, __dir__ = lazy.attributes(__name__, _HOME)

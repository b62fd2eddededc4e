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

_NAMES = {  # by the module that defines them
    "ledger": "Ledger",
    "identity": "seed",
    "arrays": "seeds",
    "units": "Batch LeaseError Unit",
}

__getattr__, __dir__ = lazy.attributes(__name__, _NAMES)

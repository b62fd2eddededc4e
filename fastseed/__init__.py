"""Reproducible, resumable randomness for PyTorch.

    import fastseed

    fastseed.init(master_seed=42)               # seeds everything, at task 0: initialization
    for epoch in range(epochs):
        fastseed.reseed(task=1, epoch=epoch)    # task 1: training

Importing fastseed imports neither torch nor NumPy: each name is loaded when it is first used.
"""

from __future__ import annotations

from ._utils import lazy

TYPE_CHECKING = False  # known to type checkers; importing `typing` takes longer than all else here
if TYPE_CHECKING:  # `x as x` exports a name to type checkers
    # isort: off
    from . import checkpoint as checkpoint
    from . import data as data
    from . import debug as debug
    from . import determinism as determinism
    from . import distributed as distributed
    from . import elastic as elastic
    from . import integrations as integrations
    from . import nn as nn
    from . import pyt as pyt
    from . import random as random
    from . import rollouts as rollouts
    from . import sampling as sampling
    from ._backend.build import build_info as build_info
    from ._utils.version import __version__ as __version__
    from .derivation.scopes import SHARED as SHARED
    from .determinism.switches import deterministic as deterministic
    from .generators.pool import GeneratorPool as GeneratorPool
    from .seeder.api import (
        fork_rng as fork_rng,
        get_master_seed as get_master_seed,
        init as init,
        load_state_dict as load_state_dict,
        register_generator as register_generator,
        reseed as reseed,
        state_dict as state_dict,
        unregister_generator as unregister_generator,
    )
    from .derivation.derive import (
        derive_key as derive_key,
        derive_keys as derive_keys,
        derive_seed as derive_seed,
        derive_seeds as derive_seeds,
    )
    from .seeder.errors import ReseedError as ReseedError
    from .seeder.seeder import Seeder as Seeder
    from .seeder.start import enforce_reproducibility as enforce_reproducibility

_NAMES = {  # by the module that defines them
    "_backend.build": "build_info",
    "_utils.version": "__version__",
    "derivation.scopes": "SHARED",
    "determinism.switches": "deterministic",
    "generators.pool": "GeneratorPool",
    "seeder.api": "fork_rng get_master_seed init load_state_dict register_generator reseed "
    "state_dict unregister_generator",
    "derivation.derive": "derive_key derive_keys derive_seed derive_seeds",
    "seeder.errors": "ReseedError",
    "seeder.seeder": "Seeder",
    "seeder.start": "enforce_reproducibility",
}
__all__ = sorted(" ".join(_NAMES.values()).replace("__version__", "").split())
_MODULES = (
    "checkpoint", "data", "debug", "determinism", "distributed", "elastic", "integrations", "nn",
    "pyt", "random", "rollouts", "sampling",
)  # fmt: skip
_SEED = "call fastseed.init(master_seed), which seeds every generator of this process"
_KEYED = "after fastseed.init(...), or fastseed.random."
_INSTEAD = {
    "seed": f"{_SEED}; or fastseed.derive_seed(name) for the seed of one stream",
    **dict.fromkeys(("manual_seed", "set_seed", "seed_everything"), _SEED),
    "rand": f"call torch.rand {_KEYED}uniform(key, shape)",
    "randn": f"call torch.randn {_KEYED}normal(key, shape)",
    "randint": f"call torch.randint {_KEYED}randint(key, shape, low, high)",
    "bernoulli": f"call torch.bernoulli {_KEYED}bernoulli(key, shape, p)",
    **dict.fromkeys(("SeedGen", "generate_master_seed_randomly"), "use fastseed.pyt, which has it"),
    "DataLoader": "use torch.utils.data.DataLoader, and iterate fastseed.data.steps(loader, ...); "
    "or fastseed.data.Loader, which takes the same arguments",
}
"""Names that users of other libraries try, and the call that does it here."""

_get, __dir__ = lazy.attributes(__name__, _NAMES, _MODULES)


def __getattr__(name: str) -> object:
    if name in _INSTEAD:
        raise AttributeError(f"fastseed.{name}: {_INSTEAD[name]}")
    return _get(name)

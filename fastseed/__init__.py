"""Reproducible, resumable randomness for PyTorch.

    import fastseed

    fastseed.init(master_seed=42)               # seeds everything, at task 0: initialization
    for epoch in range(epochs):
        fastseed.reseed(task=1, epoch=epoch)    # task 1: training

Importing fastseed imports neither torch nor NumPy: each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # known to type checkers; importing `typing` takes longer than all else here
if TYPE_CHECKING:
    from typing import Any

    from . import checkpoint as checkpoint
    from . import data as data
    from . import debug as debug
    from . import distributed as distributed
    from . import elastic as elastic
    from . import integrations as integrations
    from . import nn as nn
    from . import random as random
    from . import rollouts as rollouts
    from . import sampling as sampling
    from ._backend.build import build_info
    from ._utils.version import __version__
    from .derivation.scopes import SHARED
    from .determinism.switches import deterministic
    from .generators.pool import GeneratorPool
    from .integrations.enforce import enforce_reproducibility
    from .seeder.api import (
        fork_rng,
        get_master_seed,
        init,
        load_state_dict,
        register_generator,
        reseed,
        state_dict,
        unregister_generator,
    )
    from .seeder.derive_api import (
        derive_key,
        derive_keys,
        derive_scope_key,
        derive_seed,
        derive_seeds,
    )
    from .seeder.errors import ReseedError
    from .seeder.seeder import Seeder

__all__ = [
    "SHARED",
    "GeneratorPool",
    "ReseedError",
    "Seeder",
    "__version__",
    "build_info",
    "derive_key",
    "derive_keys",
    "derive_scope_key",
    "derive_seed",
    "derive_seeds",
    "deterministic",
    "enforce_reproducibility",
    "fork_rng",
    "get_master_seed",
    "init",
    "load_state_dict",
    "register_generator",
    "reseed",
    "state_dict",
    "unregister_generator",
]

_SUBPACKAGES = (
    "checkpoint", "data", "debug", "distributed", "elastic", "integrations", "nn", "random",
    "rollouts", "sampling",
)  # fmt: skip
_HOME = {
    "SHARED": "derivation.scopes",
    "GeneratorPool": "generators.pool",
    "ReseedError": "seeder.errors",
    "__version__": "_utils.version",
    "build_info": "_backend.build",
    **dict.fromkeys(
        ("derive_key", "derive_keys", "derive_scope_key", "derive_seed", "derive_seeds"),
        "seeder.derive_api",
    ),
    "Seeder": "seeder.seeder",
    "deterministic": "determinism.switches",
    "enforce_reproducibility": "integrations.enforce",
}
_SEED = "call fastseed.init(master_seed), which seeds every generator of this process"
_INSTEAD = {
    "seed": f"{_SEED}; or fastseed.derive_seed(name, task=...) for the seed of one stream",
    **dict.fromkeys(("manual_seed", "set_seed", "seed_everything"), _SEED),
    **{
        name: f"call torch.{name} after fastseed.init(...), or fastseed.random.{keyed}(key, shape)"
        for name, keyed in {
            "rand": "uniform",
            "randn": "normal",
            "randint": "randint",
            "bernoulli": "bernoulli",
        }.items()
    },
    "DataLoader": "use torch.utils.data.DataLoader, and iterate fastseed.data.steps(loader, ...); "
    "or fastseed.data.Loader, which takes the same arguments",
}
"""Names that users of other libraries try, and the call that does it here."""


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__:
        if name in _INSTEAD:
            raise AttributeError(f"fastseed.{name}: {_INSTEAD[name]}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME.get(name, "seeder.api")
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})

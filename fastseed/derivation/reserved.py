"""Names of streams that fastseed uses itself, so that no two features share random numbers.

No registered generator, pool or bank can have one. To derive a key under one reproduces a key of
fastseed's own.
"""

from __future__ import annotations

from .._utils import validation
from .scopes import OWN_NAMES

NAMES = {
    *OWN_NAMES,
    *("loader", "loader.python", "loader.numpy", "loader.torch.cpu"),  # what torch's samplers draw
    *("sample", "batch"),  # per_sample and per_batch
    *("shuffle", "mixture", "rollout", "sampling"),
    *("process.mesh", "process.blocks"),  # in exact states
    *("accelerate.order", "transformers.order"),  # of integrations
}
PREFIXES = ("init/", "dropout/", "keyed/", "perturb/")
_OF_BLOCKS = tuple(f"/{name}" for name in OWN_NAMES if name.startswith("torch."))  # fork_rng


def is_reserved(name: str) -> bool:
    """Return whether fastseed uses a name."""
    return name in NAMES or name.startswith(PREFIXES) or name.endswith(_OF_BLOCKS)


def block_of(name: str) -> str:
    """Return the name of the block that a stream belongs to, and any other name as it is."""
    name = name.removeprefix("keyed/")
    return name.rpartition("/")[0] if name.endswith(_OF_BLOCKS) else name


def check_free(function: str, name: str) -> str:
    """Return a name that is not reserved; ValueError if it is."""
    if is_reserved(name):
        raise validation.value_error(
            function, "name", "one that fastseed does not use itself", name
        )
    return name

"""Names of streams that fastseed uses itself, so that no two features share random numbers.

No registered generator, pool or bank can have one. To derive a key under one reproduces a key of
fastseed's own.
"""

from __future__ import annotations

from .._utils import validation
from .scopes import OWN_NAMES

NAMES = {
    **dict.fromkeys(OWN_NAMES, "a default generator"),
    "loader": "the order of torch's samplers under fastseed's loaders",
    **dict.fromkeys(
        ("loader.python", "loader.numpy", "loader.torch.cpu"),
        "the order of other libraries' samplers under fastseed's loaders",
    ),
    "sample": "the generators that data.per_sample passes to datasets",
    "batch": "what collate_fn draws under data.per_batch",
    "shuffle": "data.ShuffleSampler",
    "mixture": "data.MixtureSampler",
    "rollout": "fastseed.rollouts",
    "sampling": "sampling.sample with seeds as keys",
    "process.mesh": "the mesh in exact states",
    "process.blocks": "the names of entered blocks in exact states",
    "accelerate.order": "integrations.AcceleratedJob",
    "transformers.order": "the Trainer's FastseedCallback",
}
"""Each reserved name, and what uses it."""

PREFIXES = {
    "init/": "nn.initialize",
    "dropout/": "nn.Dropout",
    "keyed/": "random.keyed",
    "perturb/": "nn.perturb_",
}
"""The beginnings of reserved names."""

_OF_BLOCKS = tuple(f"/{name}" for name in OWN_NAMES if name.startswith("torch."))


def user_of(name: str) -> str | None:
    """Return what uses a name; None if it is not reserved."""
    if name in NAMES:
        return NAMES[name]
    if name.endswith(_OF_BLOCKS):
        return "fork_rng"
    return next((user for prefix, user in PREFIXES.items() if name.startswith(prefix)), None)


def block_of(name: str) -> str:
    """Return the name of the block that a stream belongs to, and any other name as it is."""
    name = name.removeprefix("keyed/")
    return name.rpartition("/")[0] if name.endswith(_OF_BLOCKS) else name


def check_free(function: str, name: str) -> str:
    """Return a name that is not reserved; ValueError if it is."""
    user = user_of(name)
    if user is not None:
        rule = f"one that fastseed does not use itself (this one is for {user})"
        raise validation.value_error(function, "name", rule, name)
    return name

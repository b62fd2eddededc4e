"""The module that replaces ``fwr13y.seeder.pyt``: ``import fastseed.pyt as seeder``.

It has the names of that module of NVIDIA's framework-reproducibility 0.6.0. The seeds of ``init``
and ``reseed`` are fastseed's own, unless ``init`` is given ``scheme="fwr13y"``; ``SeedGen``
always gives those of fwr13y.
"""

from .seeder.api import get_master_seed, register_generator, reseed, unregister_generator
from .seeder.schemes.fwr13y import SeedGen, generate_master_seed_randomly
from .seeder.seeder import Seeder
from .seeder.start import start

__all__ = [
    "SeedGen",
    "Seeder",
    "generate_master_seed_randomly",
    "get_master_seed",
    "init",
    "register_generator",
    "reseed",
    "unregister_generator",
]


def init(
    master_seed: int | None = None,
    ngpus: int | None = None,
    local_rank: int | None = None,
    *,
    scheme: str = "philox-v1",
) -> None:
    """Seed this process, as ``fastseed.init``, which describes the other arguments.

    Args:
        scheme: ``"philox-v1"``, or ``"fwr13y"`` for the seeds of fwr13y bit for bit. Under that
            scheme ``init`` changes no generator, as fwr13y's, and nothing of fastseed that needs
            keys can be used.

    Raises:
        TypeError, ValueError, RuntimeError, TimeoutError: as ``fastseed.init``.

    Examples:
        >>> import fastseed.pyt as seeder
        >>> seeder.init(42)
        >>> seeder.get_master_seed()
        42
    """
    start(master_seed, ngpus, local_rank, scheme=scheme)

"""Load data in an order, and with random numbers, that depend on neither workers nor ranks.

- The order: ``ShuffleSampler``, ``MixtureSampler`` (named sources by weight).
- ``Loader``: a DataLoader that follows ``reseed``, stops and resumes mid-epoch. ``Seekable``:
  iterable datasets for it.
- The loop: ``steps`` reseeds before each step and resumes after any of them.
- ``Lineage``: which step had which sample.
- Random numbers: ``per_sample`` (by sample; ``Repeat`` and ``count_occurrences`` for indices that
  come again), ``per_batch`` (of ``collate_fn``), ``worker_init_fn`` (by worker).
"""

from .lineage import Lineage
from .loader.loader import Loader
from .loader.seekable import Seekable
from .order.mixture_sampler import MixtureSampler
from .order.repeats import Repeat, count_occurrences
from .order.samplers import ShuffleSampler
from .steps import steps
from .worker.samples import per_batch, per_sample
from .worker.seeding import worker_init_fn

__all__ = [
    "Lineage",
    "Loader",
    "MixtureSampler",
    "Repeat",
    "Seekable",
    "ShuffleSampler",
    "count_occurrences",
    "per_batch",
    "per_sample",
    "steps",
    "worker_init_fn",
]

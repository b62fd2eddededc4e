"""Load data in an order, and with random numbers, that depend on neither workers nor ranks.

- The order: ``ShuffleSampler``, ``MixtureSampler`` (named sources by weight).
- Datasets: ``PackedDataset`` (sequences in blocks of one length).
- Loaders that follow ``reseed``: ``loader``, ``prepare``, ``ResumableLoader`` (stops
  and resumes mid-epoch), ``Seekable`` (iterable datasets).
- The loop: ``steps`` reseeds before each step and resumes after any of them.
- Which step had which sample: ``lineage``.
- Random numbers: ``per_sample`` (by sample), ``worker_init_fn`` (by worker).
"""

from . import lineage
from .loaders.loader import Loader, loader, prepare
from .loaders.resumable import ResumableLoader
from .loaders.seekable import Seekable
from .loaders.steps import Steps, steps
from .order.mixture import MixtureSampler
from .order.occurrences import Repeat, count_occurrences
from .order.shuffle import ShuffleSampler
from .packed import PackedDataset
from .worker.per_sample import per_sample
from .worker.seeding import worker_init_fn

__all__ = [
    "Loader",
    "MixtureSampler",
    "PackedDataset",
    "Repeat",
    "ResumableLoader",
    "Seekable",
    "ShuffleSampler",
    "Steps",
    "count_occurrences",
    "lineage",
    "loader",
    "per_sample",
    "prepare",
    "steps",
    "worker_init_fn",
]

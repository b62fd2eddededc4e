"""Load data in an order, and with random numbers, that depend on neither workers nor ranks.

- The order: ``ShuffleSampler``, ``MixtureSampler`` (named sources by weight).
- Datasets: ``PackedDataset`` (sequences in blocks of one length).
- Loaders that follow ``reseed``: ``loader``, ``prepare``, ``ResumableLoader`` (stops
  and resumes mid-epoch), ``Seekable`` (iterable datasets).
- The loop: ``steps`` reseeds before each step and resumes after any of them.
- Random numbers: ``per_sample`` (by sample), ``worker_init_fn`` (by worker).
"""

from .mixture_sampler import MixtureSampler
from .occurrences import Repeat, count_occurrences
from .packed import PackedDataset
from .plain_loader import Loader, loader, prepare
from .resumable_loader import ResumableLoader
from .sample_rng import per_sample
from .sampler import ShuffleSampler
from .seekable import Seekable
from .step_loop import Steps, steps
from .worker_seeding import worker_init_fn

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
    "loader",
    "per_sample",
    "prepare",
    "steps",
    "worker_init_fn",
]

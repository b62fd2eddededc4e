"""Randomness in data loading: an order, workers and samples that do not depend on how many."""

from .iterable import Seekable
from .permutation import shuffled_index, shuffled_indices, shuffled_position
from .plain_loader import Loader, loader, prepare
from .resumable_loader import ResumableLoader
from .sample_rng import Repeat, count_occurrences, per_sample
from .sampler import ShuffleSampler
from .workers import worker_init_fn

__all__ = [
    "Loader",
    "Repeat",
    "ResumableLoader",
    "Seekable",
    "ShuffleSampler",
    "count_occurrences",
    "loader",
    "per_sample",
    "prepare",
    "shuffled_index",
    "shuffled_indices",
    "shuffled_position",
    "worker_init_fn",
]

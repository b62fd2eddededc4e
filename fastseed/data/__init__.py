"""Randomness in data loading: an order, workers and samples that do not depend on how many."""

from .iterable import Seekable
from .loading import Loader, loader, prepare
from .order import shuffled_index, shuffled_indices, shuffled_position
from .resume import ResumableLoader
from .sampler import ShuffleSampler
from .samples import Repeat, count_occurrences, per_sample
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

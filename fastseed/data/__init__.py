"""Randomness in data loading: an order, workers and samples that do not depend on how many."""

from .samples import Repeat, count_occurrences, per_sample
from .workers import worker_init_fn

__all__ = [
    "Repeat",
    "count_occurrences",
    "per_sample",
    "worker_init_fn",
]

"""torch's private names that fastseed reads: an upgrade of torch is one diff here.

A name that a version of torch lacks is an error that says so, never a default.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader


def current_iterator(loader: DataLoader[Any]) -> Any:
    """Return the iterator that a loader keeps while its workers persist; None otherwise."""
    return _read(loader, "_iterator")


def workers_of(iterator: Any) -> list[Any]:
    """Return the processes of a loader's iterator, whose exit codes torch does not show."""
    return list(_read(iterator, "_workers")) if _has_workers(iterator) else []


def received_batches(iterator: Any) -> int | None:
    """Return how many batches, and errors in their place, came from workers; None without them."""
    return int(_read(iterator, "_rcvd_idx")) if _has_workers(iterator) else None


def _has_workers(iterator: Any) -> bool:
    return iterator is not None and _read(iterator, "_num_workers") > 0


def _read(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError as error:
        raise RuntimeError(
            f"fastseed: torch {torch.__version__} has no {type(owner).__name__}.{name}: install a "
            "version of torch that fastseed was tested with, or a newer fastseed"
        ) from error

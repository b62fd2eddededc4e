"""The process-wide context: the Seeder that ``fastseed.init`` made.

Everything that uses the seeder of the process gets it here, also from folders below ``seeder``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

seeder: Any = None
"""The process-wide Seeder; None before ``fastseed.init``."""


class Origin(NamedTuple):
    """The numbers that the keys of this process's own streams are derived from."""

    master_seed: int
    rank: int
    scheme: str


def set_current(new: Any) -> None:
    """Make ``new`` the process-wide seeder."""
    global seeder
    seeder = new


def current(function: str) -> Any:
    """Return the process-wide seeder; RuntimeError before ``fastseed.init``."""
    if seeder is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.init(...) first")
    return seeder


def origin(function: str) -> Origin:
    """Return what the keys of this process's own streams are derived from."""
    found = current(function)
    return Origin(found.stream_master, found.rank_fields.default, found.scheme)

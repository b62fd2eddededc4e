"""The process-wide context: the ``Seeder`` that ``fastseed.init`` made.

Everything that works on the process's seeder gets it here, also from folders below ``seeder``.
"""

from __future__ import annotations

from typing import Any

seeder: Any = None
"""The process-wide Seeder; None before ``fastseed.init``."""


def set_current(new: Any) -> None:
    """Make ``new`` the process-wide seeder."""
    global seeder
    seeder = new


def current(function: str) -> Any:
    """Return the process-wide seeder; RuntimeError, naming ``function``, before ``init``."""
    if seeder is None:
        raise RuntimeError(f"fastseed.{function}: call fastseed.init(...) first")
    return seeder

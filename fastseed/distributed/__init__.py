"""Ranks of a job: rank discovery, meshes, and the check that all ranks agree.

- ``discover_rank``: rank and world size of this process.
- ``verify_agreement``: raise on every rank if ranks differ or are missing.
"""

from .agreement import verify_agreement
from .discovery import discover_rank

__all__ = ["discover_rank", "verify_agreement"]

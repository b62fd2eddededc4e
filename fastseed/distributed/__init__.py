"""Ranks of a job: rank discovery, meshes, and the check that all ranks agree."""

from .agreement import verify_agreement
from .discovery import discover_rank

__all__ = ["discover_rank", "verify_agreement"]

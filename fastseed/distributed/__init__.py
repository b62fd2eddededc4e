"""Ranks of a job: rank discovery, meshes, and the check that all ranks agree.

- ``discover_rank``: rank and world size of this process.
- ``Mesh``, and the presets ``tensor_parallel``, ``pipeline_parallel``,
  ``context_parallel``, ``expert_parallel`` for the argument ``distinct_over`` of
  ``fastseed.init``.
- ``verify_agreement``: raise on every rank if ranks differ or are missing.
"""

from .agreement import verify_agreement
from .discovery import ProcessRank, discover_rank
from .mesh import Mesh
from .presets import context_parallel, expert_parallel, pipeline_parallel, tensor_parallel

__all__ = [
    "Mesh",
    "ProcessRank",
    "context_parallel",
    "discover_rank",
    "expert_parallel",
    "pipeline_parallel",
    "tensor_parallel",
    "verify_agreement",
]

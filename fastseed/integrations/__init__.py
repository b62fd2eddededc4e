"""Callbacks for training frameworks; their phases are tasks 0 to 4 of a job.

    from fastseed.integrations.lightning import FastseedCallback      # extra: lightning
    from fastseed.integrations.accelerate import attach               # extra: accelerate
    from fastseed.integrations.transformers import FastseedCallback   # extra: transformers
    from fastseed.integrations.trl import SeededGRPOTrainer           # extra: trl

Each module imports its framework; ``jax_key`` imports none.
"""

from ._common import run_in_task
from .jax import jax_key

__all__ = ["jax_key", "run_in_task"]

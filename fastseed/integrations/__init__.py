"""Callbacks for training frameworks, and the tasks that their phases are.

    from fastseed.integrations.lightning import FastseedCallback      # extra: lightning
    from fastseed.integrations.accelerate import AcceleratedJob       # extra: accelerate
    from fastseed.integrations.transformers import FastseedCallback   # extra: transformers
    from fastseed.integrations.slot_trainer import SlotTrainer        # extra: transformers
    from fastseed.integrations.trl import SeededGRPOTrainer           # extra: trl

Each module imports its framework; ``jax_key`` imports none.
"""

from ._common import Tasks, run_in_task
from .jax import jax_key

__all__ = ["Tasks", "jax_key", "run_in_task"]

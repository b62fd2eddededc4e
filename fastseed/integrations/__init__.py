"""Callbacks for training frameworks, and the tasks that their phases are.

    from fastseed.integrations.lightning import FastseedCallback      # extra: lightning
    from fastseed.integrations.accelerate import AcceleratedJob       # extra: accelerate
    from fastseed.integrations.transformers import FastseedCallback   # extra: transformers
    from fastseed.integrations.slot_trainer import SlotTrainer        # extra: transformers
    from fastseed.integrations.trl import SeededGRPOTrainer           # extra: trl

Each is in a module of its own, which imports its framework. Keys for JAX and the seed
functions of TensorFlow and CuPy are here as well; they import no framework.
"""

from ._common import Tasks, run_in_task
from .frameworks import jax_key
from .frameworks import register as register_frameworks

__all__ = ["Tasks", "jax_key", "register_frameworks", "run_in_task"]

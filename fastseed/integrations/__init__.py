"""Callbacks for training frameworks, and the tasks that their phases are.

    from fastseed.integrations.lightning import FastseedCallback      # extra: lightning
    from fastseed.integrations.accelerate import AcceleratedJob       # extra: accelerate
    from fastseed.integrations.transformers import FastseedCallback   # extra: transformers
    from fastseed.integrations.slot_trainer import SlotTrainer        # extra: transformers
    from fastseed.integrations.trl import SeededGRPOTrainer           # extra: trl

Each is in a module of its own, which imports its framework. Keys for JAX are here as well; they
import no framework. The generators of TensorFlow and CuPy are registered by their seed functions:
``fastseed.register_generator(tensorflow.random.set_seed, name="tensorflow")``.
"""

from ._common import Tasks, run_in_task
from .jax import jax_key

__all__ = ["Tasks", "jax_key", "run_in_task"]

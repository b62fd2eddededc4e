"""Generators' states and journals in checkpoints of any framework; their code is not run."""

from .inspection import Inspection, compare_states, inspect, locate, rows_of
from .states import Found

__all__ = ["Found", "Inspection", "compare_states", "inspect", "locate", "rows_of"]

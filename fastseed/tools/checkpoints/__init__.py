"""Generators' states and journals in checkpoints of any framework; their code is not run.

from fastseed.tools import checkpoints

a, b = map(checkpoints.inspect, ("checkpoint", "after-resume"))
print(a.findings)
for one in checkpoints.compare_states(a, b):
    print(one)
print(a.lineage().at(1, 0).sample)
"""

from .inspection import Inspection, compare_states, inspect
from .jobs import locate, rows_of
from .states import Found

__all__ = [
    "Found",
    "Inspection",
    "compare_states",
    "inspect",
    "locate",
    "rows_of",
]

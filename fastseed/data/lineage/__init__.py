"""Which step of a job has which sample, from a journal of a few integers.

- ``Lineage``: the samples ``at`` a step, and ``where`` a sample is, over the whole history.
- ``read``: the lineage of a journal, a contract or the state of ``fastseed.data.steps``.
- ``Visits``: the answers, in columns.
"""

from .answers import Lineage, Visit, Visits
from .reading import read

__all__ = ["Lineage", "Visit", "Visits", "read"]

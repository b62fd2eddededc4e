"""Which steps of a job had which samples, from a contract or any checkpoint.

    from fastseed.tools import journals

    lineage = journals.read("checkpoint")
    print(lineage.at(*journals.locate(lineage, 48123)).sample)
    print(journals.diff(lineage, journals.read("another")).first)

``docs/lineage.md`` has the command ``fastseed data`` and the recipe.
"""

from .comparison import Comparison, diff
from .counting import locate
from .finding import read
from .rows import rows

__all__ = ["Comparison", "diff", "locate", "read", "rows"]

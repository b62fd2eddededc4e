"""The answers of a lineage, as rows for printing."""

from __future__ import annotations

from ..._utils import JSON
from ...data import Lineage
from ...data.lineage import Visits


def rows(lineage: Lineage, visits: Visits, name: str = "sample") -> list[dict[str, JSON]]:
    """Return the fields of each visit, its source, and the key of its random numbers.

    Args:
        lineage: of the job.
        visits: what ``at`` or ``where`` of it returned.
        name: as of ``Lineage.keys``.

    Returns:
        Dicts of the fields of a visit; ``source`` and ``index``, that of the sample in the
        source, or None if the orders of the job are not all mixtures; ``key``, 128 bits in
        hexadecimal.

    Raises:
        TypeError, ValueError: an argument has the wrong type, or ``name`` is no name.
    """
    keys = lineage.keys(visits, name).tolist()
    is_mixed = all(spec.sources for spec in lineage.history.orders)
    return [
        {
            **{field: visit[field].item() for field in visits.dtype.names},
            "source": str(visit.source) if is_mixed else None,
            "index": int(visit.index) if is_mixed else None,
            "key": f"{high << 64 | low:032x}",
        }
        for visit, (low, high) in zip(visits, keys, strict=True)
    ]

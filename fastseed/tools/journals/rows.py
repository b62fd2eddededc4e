"""The answers of a lineage, as rows for printing."""

from __future__ import annotations

from ..._utils import JSON
from ...data.lineage import Lineage, Visits


def rows(lineage: Lineage, visits: Visits, name: str = "sample") -> list[dict[str, JSON]]:
    """Return the fields of each visit, its source, and the key of its random numbers.

    Args:
        lineage: of the job.
        visits: what ``at`` or ``where`` of it returned.
        name: as of ``Visits.keys``.

    Returns:
        Dicts of the fields of ``Visit``; ``source`` and ``index``, that of the sample in the
        source, or None if the orders of the job are not all mixtures; ``key``, 128 bits in
        hexadecimal.

    Raises:
        TypeError, ValueError: an argument has the wrong type, or ``name`` is no name.
    """
    keys = visits.keys(name).tolist()
    sources: list[tuple[str | None, int | None]] = [(None, None)] * len(visits)
    if all(spec.sources for spec in lineage.journal.orders):
        sources = [*lineage.sources(visits)]
    return [
        {**visit._asdict(), "source": source, "index": index, "key": f"{high << 64 | low:032x}"}
        for visit, (source, index), (low, high) in zip(visits, sources, keys, strict=True)
    ]

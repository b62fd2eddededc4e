"""What became of each setting that makes a run deterministic: rows to print and to store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

SET, ALREADY, LATE, ABSENT, SEEN = "set", "already", "too late", "not there", "seen"
STATUSES = (SET, ALREADY, LATE, ABSENT, SEEN)


class Row(NamedTuple):
    """One setting.

    ``wanted``, ``before`` and ``now`` are bools, ints, strings or None (for a variable: not set).
    """

    setting: str
    wanted: Any
    before: Any
    now: Any
    status: str
    """``set``, ``already`` (it was as wanted), ``too late`` (it is read once and was read before),
    ``not there`` (this installation has none) or ``seen`` (reported, and left as it is)."""
    why: str


class Report:
    """Rows, for people (``print``) and for programs (:meth:`as_dict`)."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)

    @property
    def late(self) -> tuple[Row, ...]:
        """What came too late to take effect."""
        return tuple(row for row in self.rows if row.status == LATE)

    @property
    def ok(self) -> bool:
        """Whether nothing came too late."""
        return not self.late

    def __getitem__(self, setting: str) -> Row:
        """The row of a setting, by its name; KeyError if there is none."""
        for row in self.rows:
            if row.setting == setting:
                return row
        raise KeyError(setting)

    def as_dict(self) -> dict[str, Any]:
        """What :func:`json.dumps` takes: ``{"ok": …, "rows": [{"setting": …, …}, …]}``."""
        return {"ok": self.ok, "rows": [row._asdict() for row in self.rows]}

    def __str__(self) -> str:
        head = ("setting", "wanted", "before", "now", "status", "why")
        lines = [head, *((r[0], *map(_show, r[1:4]), *r[4:]) for r in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
        return "\n".join(
            "  ".join([*(c.ljust(w) for c, w in zip(line[:-1], widths, strict=True)), line[-1]])
            for line in lines
        )

    def __repr__(self) -> str:
        counts = {s: sum(row.status == s for row in self.rows) for s in STATUSES}
        shown = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        return f"{type(self).__name__}({shown})"


def _show(value: Any) -> str:
    return "-" if value is None else str(value)

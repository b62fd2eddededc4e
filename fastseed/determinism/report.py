"""The result of a request for determinism: one row for each setting, to print or to store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

Value: TypeAlias = bool | int | str | None
"""The value of a setting; None: a variable that is not set."""

SET, UNCHANGED, TOO_LATE, UNAVAILABLE, INFO = "set", "unchanged", "too late", "unavailable", "info"
STATUSES = (SET, UNCHANGED, TOO_LATE, UNAVAILABLE, INFO)


class Row(NamedTuple):
    """One setting.

    Attributes:
        setting: its name, as ``torch.backends.cudnn.benchmark`` or ``PYTHONHASHSEED``.
        wanted, before, now: bools, ints, strings or None (a variable that is not set).
        status: ``"set"``; ``"unchanged"`` (it had the wanted value); ``"too late"`` (it is read
            once and was read before); ``"unavailable"`` (not installed); ``"info"`` (only shown).
        why: what the setting does, or why it has no effect.
    """

    setting: str
    wanted: Value
    before: Value
    now: Value
    status: str
    why: str


class Report:
    """The rows of a request. ``print`` shows a table; ``as_dict`` is for JSON."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)

    @property
    def late(self) -> tuple[Row, ...]:
        """The rows of settings that could no longer take effect."""
        return tuple(row for row in self.rows if row.status == TOO_LATE)

    @property
    def ok(self) -> bool:
        """True if no setting was too late."""
        return not self.late

    def __getitem__(self, setting: str) -> Row:
        """Return the row of a setting; KeyError if the report has no such row."""
        for row in self.rows:
            if row.setting == setting:
                return row
        raise KeyError(setting)

    def as_dict(self) -> dict[str, object]:
        """Return what ``json.dumps`` takes: ``{"ok": …, "rows": [{"setting": …, …}, …]}``."""
        return {"ok": self.ok, "rows": [row._asdict() for row in self.rows]}

    def __str__(self) -> str:
        lines = [Row._fields] + [
            tuple("-" if cell is None else str(cell) for cell in row) for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        form = "  ".join(f"{{:{width}}}" for width in widths)
        return "\n".join(form.format(*line).rstrip() for line in lines)

"""The result of a request for determinism: one row for each setting, and the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from .settings import Switch

Value: TypeAlias = bool | int | str | None
"""The value of a setting; None: a variable that is not set."""

SET, UNCHANGED, TOO_LATE, UNAVAILABLE, INFO = "set", "unchanged", "too late", "unavailable", "info"


class Row(NamedTuple):
    """One setting, as ``torch.backends.cudnn.benchmark`` or ``PYTHONHASHSEED``, and its status.

    ``why`` is what the setting does, or why it has no effect.
    """

    setting: str
    wanted: Value
    before: Value
    now: Value
    status: str
    why: str


class Deterministic:
    """The report of ``deterministic``, and a context that restores all settings when left.

    ``rows`` has a row for each setting; ``print`` shows them as a table. The settings belong to the
    process: threads that change them at once undo each other's changes.
    """

    def __init__(self, switches: list[Switch]) -> None:
        self.rows: tuple[Row, ...] = ()
        # Read all of them first: one may set another. None: they have been restored.
        self._before: list[tuple[Switch, Value]] | None = [(s, s.read()) for s in switches]

    @property
    def ok(self) -> bool:
        """True if no setting was too late."""
        return all(row.status != TOO_LATE for row in self.rows)

    def __getitem__(self, setting: str) -> Row:
        """Return the row of a setting; KeyError if the report has no such row."""
        return {row.setting: row for row in self.rows}[setting]

    def __str__(self) -> str:
        lines = [["-" if cell is None else str(cell) for cell in row] for row in self.rows]
        lines.insert(0, list(Row._fields))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        form = "  ".join(f"{{:{width}}}" for width in widths)
        return "\n".join(form.format(*line).rstrip() for line in lines)

    def restore(self) -> None:
        """Restore every setting that was changed, even if it has changed again since."""
        errors = []
        for switch, found in self._before or ():  # in the order of setting
            try:
                switch.set(found)
            except Exception as error:  # a flag that torch.backends has frozen
                errors.append(error)
        if errors:
            raise errors[0]
        self._before = None

    def __enter__(self) -> Deterministic:
        if self._before is None:
            raise RuntimeError("fastseed.deterministic: call it again: the settings are restored")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.restore()
        except BaseException:  # an interrupt
            self.restore()
            raise

"""torch's switches for determinism, and the report.

``docs/determinism.md`` has the source of each.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch

from .._backend.private_torch import INDUCTOR
from .variables import Variable

Value: TypeAlias = bool | int | str | None
"""The value of a setting; None: a variable that is not set."""

SET, UNCHANGED, TOO_LATE, UNAVAILABLE = "set", "unchanged", "too late", "unavailable"

KEEP, REPEATABLE = "keep", "repeatable"
ATTENTION = (REPEATABLE, KEEP)


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


class Switch(NamedTuple):
    """A setting of this process that takes effect whenever it is set."""

    name: str
    wanted: Value
    read: Callable[[], Value]
    write: Callable[[Any], None]
    why: str

    def set(self, value: Value) -> None:
        if self.read() != value:
            self.write(value)


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
        self.restore()


def variable(found: Variable) -> Switch:
    """Return an environment variable as a switch, whose values are those of ``os.environ``."""
    name = found.name
    write = functools.partial(write_variable, name)
    return Switch(name, found.wanted, lambda: os.environ.get(name), write, found.why)


def write_variable(name: str, value: str | None) -> None:
    """Set an environment variable; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def switches(warn_only: bool, fill: bool, attention: str) -> list[Switch]:
    """Return the switches in the order in which to set them: the first also sets Inductor's."""
    mode, result = ("warn only", "warn") if warn_only else (True, "raise RuntimeError")
    why = f"operations use a deterministic algorithm, or {result}"
    name = "torch.use_deterministic_algorithms"
    found = [Switch(name, mode, _read_algorithms, _write_algorithms, why)]
    attributes = (
        ("utils.deterministic.fill_uninitialized_memory", fill, "torch.empty returns known values"),
        ("backends.cudnn.deterministic", True, "cuDNN uses deterministic algorithms only"),
        ("backends.cudnn.benchmark", False, "the convolution algorithm is not chosen by timing"),
        ("backends.mkldnn.deterministic", True, "oneDNN uses deterministic primitives"),
        (f"{INDUCTOR}.deterministic", True, "compiled code is not chosen by timing"),
    )
    found += [_attribute(*attribute) for attribute in attributes]
    # With warnings only, the flash and memory-efficient kernels keep a faster backward, which adds
    # in any order: then the kernel in plain operations is the one that repeats.
    if attention != KEEP:
        found.append(_kernel("cudnn", False, "its backward is not deterministic"))
    if attention != KEEP and warn_only:
        why = "with warnings only its backward is not deterministic"
        found += [_kernel("flash", False, why), _kernel("mem_efficient", False, why)]
        found.append(_kernel("math", True, "the remaining kernel"))
    return found


def _read_algorithms() -> bool | str:
    if not torch.are_deterministic_algorithms_enabled():
        return False
    return "warn only" if torch.is_deterministic_algorithms_warn_only_enabled() else True


def _write_algorithms(value: bool | str) -> None:
    torch.use_deterministic_algorithms(bool(value), warn_only=value == "warn only")


def _attribute(path: str, wanted: bool, why: str) -> Switch:
    module, _, name = path.rpartition(".")
    holder = operator.attrgetter(module)(torch)
    read = functools.partial(getattr, holder, name)
    write = functools.partial(setattr, holder, name)
    return Switch(f"torch.{path}", wanted, read, write, why)


def _kernel(name: str, wanted: bool, why: str) -> Switch:
    cuda = torch.backends.cuda
    read = getattr(cuda, f"{name}_sdp_enabled")
    write = getattr(cuda, f"enable_{name}_sdp")
    return Switch(f"scaled_dot_product_attention: {name}", wanted, read, write, why)

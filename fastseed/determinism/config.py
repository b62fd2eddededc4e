"""The section ``determinism`` of a job's configuration file, as NVIDIA Clara has it, and more.

    {"determinism": {"python_seed": "20191015", "random_seed": 123456,
                     "numpy_seed": 654321, "tf_seed": 11111}}

Clara's own four keys mean what they mean there
(https://docs.nvidia.com/clara/clara-train-archive/3.1/nvmidl/additional_features/determinism.html).
The rest of the file is the job's, and left alone.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .._utils.validation import describe
from ..derivation.streams import MAX_MASTER
from . import config_files, hash_seed

SECTION = "determinism"
VARIABLE = "FASTSEED_CONFIG"


class _Key(NamedTuple):
    """What a key of the section may hold."""

    low: int
    high: int
    digits: bool = False
    """Whether a string of digits will do, as in Clara."""


_INTEGERS = {
    "python_seed": _Key(0, hash_seed.MAX_SEED, digits=True),
    "random_seed": _Key(0, 2**64 - 1),
    "numpy_seed": _Key(0, 2**32 - 1),
    "torch_seed": _Key(0, 2**64 - 1),
    "tf_seed": _Key(0, 2**63 - 1),
    "master_seed": _Key(0, MAX_MASTER),
    "workers": _Key(0, 2**16),
}
_DETERMINISTIC = "true, false or 'warn'"


@dataclasses.dataclass(frozen=True)
class Config:
    """The section, checked. What it does not name is None.

    ``fastseed.determinism.apply_config`` takes them in this order; each one after ``master_seed`` sets one
    generator, once, and holds until ``reseed`` sets it again.
    """

    python_seed: int | None = None
    """``PYTHONHASHSEED``, [0, 2**32): has to be there before Python starts (`fastseed run`)."""
    deterministic: bool | str | None = None
    """True: ``fastseed.deterministic()``; ``"warn"``: with ``warn_only=True``."""
    master_seed: int | None = None
    """``fastseed.init(master_seed)``, [0, 2**64)."""
    random_seed: int | None = None
    """``random.seed``, [0, 2**64)."""
    numpy_seed: int | None = None
    """``numpy.random.seed``, [0, 2**32)."""
    torch_seed: int | None = None
    """``torch.manual_seed``, all devices, [0, 2**64)."""
    tf_seed: int | None = None
    """``tensorflow.random.set_seed``, [0, 2**63), where TensorFlow is imported already."""
    workers: int | None = None
    """How many DataLoader workers the script is to make, [0, 2**16]; read, and set nowhere."""

    def as_dict(self) -> dict[str, Any]:
        """The keys that the section has."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}


def load(path: str | os.PathLike[str]) -> Config:
    """Read the section from a JSON, YAML (extra ``yaml``) or TOML file.

    Raises:
        TypeError, ValueError: no such section, or a key of it is unknown, there twice, or has a
            wrong type or value; the file is too large, too deep or damaged. Messages name the
            key's path: ``fastseed.determinism.config.load: determinism.numpy_seed must be …``.
        OSError: the file cannot be read.
        ImportError: YAML (TOML on Python 3.10) without the library that reads it.
    """
    function = "fastseed.determinism.config.load"
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"{function}: path must be a path, got {describe(path)} of type {type(path).__name__}"
        )
    return _parse(function, config_files.read(function, path))


def parse(document: Mapping[str, Any]) -> Config:
    """The section of a document that was read already: ``{"determinism": {…}, …}``.

    Raises:
        TypeError, ValueError: as for :func:`load`.
    """
    return _parse("fastseed.determinism.config.parse", document)


def from_environment(function: str) -> Config:
    """The file that ``fastseed run --config`` names to its child; RuntimeError if it does not."""
    path = os.environ.get(VARIABLE)
    if not path:
        raise RuntimeError(
            f"{function}: pass a configuration, or start with `fastseed run --config FILE`"
        )
    return load(Path(path))


def _parse(function: str, document: Any) -> Config:
    section = document.get(SECTION) if isinstance(document, Mapping) else None
    if not isinstance(section, Mapping):
        got = document if section is None else section
        raise ValueError(
            f"{function}: {SECTION} must be a section of keys and values, got {describe(got)}"
        )
    names = [field.name for field in dataclasses.fields(Config)]
    found: dict[str, Any] = {}
    for key, value in section.items():
        if key not in names:
            where = config_files.dotted((SECTION, key))
            raise ValueError(
                f"{function}: {where} must be one of {', '.join(names)}, got {describe(key)}"
            )
        found[key] = _check(function, key, value)
    return Config(**found)


def _check(function: str, name: str, value: Any) -> Any:
    where = f"{function}: {SECTION}.{name}"
    if name == "deterministic":
        if not isinstance(value, bool) and value != "warn":
            raise _error(where, _DETERMINISTIC, value, isinstance(value, str))
        return value
    rule = _INTEGERS[name]
    shown = f"an integer in [{rule.low}, {rule.high}]"
    if rule.digits:
        shown += ", or a string of its digits"
        if isinstance(value, str):
            number = hash_seed.parse(value)
            if number is None:
                raise _error(where, shown, value, True)
            return number
    if isinstance(value, bool) or not isinstance(value, int):
        raise _error(where, shown, value, False)
    if not rule.low <= value <= rule.high:
        raise _error(where, shown, value, True)
    return value


def _error(where: str, rule: str, value: Any, right_type: bool) -> TypeError | ValueError:
    if right_type:
        return ValueError(f"{where} must be {rule}, got {describe(value)}")
    kind = type(value).__name__
    return TypeError(f"{where} must be {rule}, got {describe(value)} of type {kind}")

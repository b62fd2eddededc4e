"""The section ``determinism`` of a job's configuration file: JSON, YAML or TOML.

    {"determinism": {"python_seed": "20191015", "random_seed": 123456,
                     "numpy_seed": 654321, "tf_seed": 11111}}

The four keys of NVIDIA Clara have Clara's meaning
(https://docs.nvidia.com/clara/clara-train-archive/3.1/nvmidl/additional_features/determinism.html).
The rest of the file belongs to the job and is not checked.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import os
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._utils import environ, small_file, strict_json, validation
from . import hash_seed
from .report import SET, TOO_LATE, UNAVAILABLE, UNCHANGED, Report, Row

logger = logging.getLogger("fastseed")

SECTION = "determinism"

_HIGHEST = {
    "python_seed": hash_seed.MAX_SEED,
    "master_seed": 2**64 - 1,
    "random_seed": 2**64 - 1,
    "numpy_seed": 2**32 - 1,
    "torch_seed": 2**64 - 1,
    "tf_seed": 2**63 - 1,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """A checked section. Keys that it does not have are None.

    Args:
        python_seed: ``PYTHONHASHSEED``, [0, 2**32), also as a string of digits.
        deterministic: True: ``fastseed.deterministic()``; ``"warn"``: with ``warn_only=True``.
        master_seed: the seed of ``fastseed.init()``, [0, 2**64).
        random_seed: ``random.seed``, [0, 2**64).
        numpy_seed: ``numpy.random.seed``, [0, 2**32).
        torch_seed: ``torch.manual_seed`` (all devices), [0, 2**64).
        tf_seed: ``tensorflow.random.set_seed``, [0, 2**63), if TensorFlow has been imported.

    Raises:
        TypeError, ValueError: a value has the wrong type or is out of range.

    Examples:
        >>> Config(python_seed="20191015", numpy_seed=7).python_seed
        20191015
    """

    python_seed: int | None = None
    deterministic: bool | str | None = None
    master_seed: int | None = None
    random_seed: int | None = None
    numpy_seed: int | None = None
    torch_seed: int | None = None
    tf_seed: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.python_seed, str) and hash_seed.parse(self.python_seed) is not None:
            object.__setattr__(self, "python_seed", int(self.python_seed))
        for name, highest in _HIGHEST.items():
            value = getattr(self, name)
            if value is not None:
                validation.check_int("config", f"{SECTION}.{name}", value, 0, highest)
        modes = (True, False, "warn", None)
        validation.check_choice("config", f"{SECTION}.deterministic", self.deterministic, modes)


def load_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> Config:
    """Read and check the section.

    Args:
        source: a ``.json``, ``.yaml``, ``.yml`` or ``.toml`` file, or the document of one that has
            been read already.

    Returns:
        The section, without the rest of the document.

    Raises:
        TypeError, ValueError: the section is missing, or has an unknown key or a wrong value (the
            message has its path: ``determinism.numpy_seed must be …``); the file is damaged.
        OSError: the file cannot be read.
        ImportError: YAML without PyYAML (``fastseed[yaml]``), or TOML on Python 3.10 without tomli
            (``fastseed[toml]``).

    Examples:
        >>> load_config({"determinism": {"random_seed": 3}, "epochs": 10}).random_seed
        3
    """
    document = source if isinstance(source, Mapping) else _read(source)
    section = document.get(SECTION) if isinstance(document, Mapping) else None
    if not isinstance(section, Mapping):
        raise validation.value_error("config", SECTION, "a section of keys and values", section)
    names = [field.name for field in dataclasses.fields(Config)]
    for key, value in section.items():
        validation.check_choice("config", f"a key of {SECTION}", key, names)
        if value is None:  # null: in a Config it would mean that there is no such key
            raise validation.type_error("config", f"{SECTION}.{key}", "a value", value)
    return Config(**section)


def _read(path: Any) -> Any:
    validation.check_instance("config", "source", path, (str, os.PathLike), "a path or a document")
    suffix = Path(path).suffix.lower()
    rule = f"a file that ends in {', '.join(_READERS)}"
    if suffix not in _READERS:
        raise validation.value_error("config", "source", rule, str(path))
    try:
        data = small_file.read(path)
    except ValueError as error:
        raise ValueError(f"fastseed.config: {str(path)!r} must be {error}") from None
    try:
        return _READERS[suffix](data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"fastseed.config: {str(path)!r} cannot be read: {error}") from None


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f'fastseed.config: {extra} needs {name}: pip install "fastseed[{extra}]"'
        raise ImportError(message) from error


def _yaml(text: str) -> Any:
    yaml = _library("yaml", "yaml")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _toml(text: str) -> Any:
    return _library("tomllib" if sys.version_info >= (3, 11) else "tomli", "toml").loads(text)


_READERS: dict[str, Callable[[str], Any]] = {
    ".json": strict_json.parse,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".toml": _toml,
}


def apply_config(source: Config | str | os.PathLike[str] | None = None) -> Report:
    """Apply a configuration to this process, before ``fastseed.init()``.

    The seeds of single libraries hold until ``fastseed.init`` or ``reseed`` sets all generators
    from the master seed. ``master_seed`` is left for ``fastseed.init()``, in the variable
    ``FASTSEED_MASTER_SEED``.

    Args:
        source: a configuration, a file, or None: the file of ``fastseed run --config FILE``.

    Returns:
        One row for each key of the section, and those of ``fastseed.deterministic()``.

    Raises:
        TypeError, ValueError, OSError, ImportError: as ``load_config``; nothing has changed.
        RuntimeError: no source, and not started by ``fastseed run --config``; or as
            ``fastseed.deterministic``.

    Examples:
        >>> import random
        >>> apply_config(Config(random_seed=9))["random_seed"].status
        'set'
        >>> random.random() == random.Random(9).random()
        True
    """
    if source is None:
        source = environ.get(environ.CONFIG)
        if source is None:
            raise RuntimeError(
                "fastseed.apply_config: start with `fastseed run --config FILE`, or pass a file"
            )
    config = source if isinstance(source, Config) else load_config(source)
    functions = _seed_functions(config)
    rows: list[Row] = []
    if config.python_seed is not None:
        rows.append(_python_seed(config.python_seed))
    if config.deterministic:
        from .switches import deterministic

        rows += deterministic(warn_only=config.deterministic == "warn").rows
    if config.master_seed is not None:
        before, value = os.environ.get(environ.MASTER_SEED), str(config.master_seed)
        os.environ[environ.MASTER_SEED] = value
        rows.append(Row("master_seed", value, before, value, SET, "the seed of fastseed.init()"))
    for name, function in functions.items():
        value = getattr(config, name)
        if function is None:
            why = "TensorFlow is not imported"
            rows.append(Row(name, value, None, None, UNAVAILABLE, why))
        else:
            function(value)
            rows.append(Row(name, value, None, value, SET, "the seed of this library"))
    return Report(rows)


def _seed_functions(config: Config) -> dict[str, Callable[[Any], Any] | None]:
    """Return the function that sets each library's seed in ``config``; None: not imported."""
    import numpy as np
    import torch

    tensorflow: Any = sys.modules.get("tensorflow")
    functions = {
        "random_seed": random.seed,
        "numpy_seed": np.random.seed,
        "torch_seed": torch.manual_seed,
        "tf_seed": tensorflow and tensorflow.random.set_seed,
    }
    return {name: call for name, call in functions.items() if getattr(config, name) is not None}


def _python_seed(wanted: int) -> Row:
    value, seed = hash_seed.found()
    if seed == wanted:
        return Row("python_seed", wanted, value, seed, UNCHANGED, hash_seed.VARIABLE)
    why = "Python reads PYTHONHASHSEED before a script starts: start with `fastseed run`"
    logger.warning("fastseed.apply_config: python_seed is too late: %s", why)
    return Row("python_seed", wanted, value, "random" if seed is None else seed, TOO_LATE, why)

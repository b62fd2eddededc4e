"""The seeds in the section ``determinism`` of NVIDIA Clara's configuration files.

    {"determinism": {"python_seed": "20191015", "random_seed": 123456,
                     "numpy_seed": 654321, "tf_seed": 11111}}

The keys have Clara's meaning
(https://docs.nvidia.com/clara/clara-train-archive/3.1/nvmidl/additional_features/determinism.html).
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Mapping

from .._utils import validation
from . import hash_seed
from .report import SET, TOO_LATE, UNAVAILABLE, UNCHANGED, Report, Row

logger = logging.getLogger("fastseed")

_FUNCTION, _SECTION = "determinism.apply_config", "determinism"
_HIGHEST = {
    "python_seed": hash_seed.MAX_SEED,
    "random_seed": 2**64 - 1,
    "numpy_seed": 2**32 - 1,
    "tf_seed": 2**63 - 1,
}


def apply_config(document: Mapping[str, object]) -> Report:
    """Seed each library that a configuration names, once, before ``fastseed.init()``.

    The seeds hold until ``init`` or ``reseed`` sets all generators from the master seed.

    Args:
        document: the configuration as ``json.load`` returns it. Its section ``determinism`` has
            any of ``python_seed`` ([0, 2**32), also as a string of digits; Python reads it from
            ``PYTHONHASHSEED`` before a script starts, so that it is only compared),
            ``random_seed`` ([0, 2**64)), ``numpy_seed`` ([0, 2**32)) and ``tf_seed`` ([0, 2**63),
            for TensorFlow if it has been imported). The rest of it belongs to the job.

    Returns:
        One row for each key of the section.

    Raises:
        TypeError, ValueError: the section is missing, or has an unknown key or a wrong value;
            nothing has changed.

    Examples:
        >>> import random
        >>> from fastseed.determinism import apply_config
        >>> apply_config({"determinism": {"random_seed": 9}})["random_seed"].status
        'set'
        >>> random.random() == random.Random(9).random()
        True
    """
    import numpy as np  # the command line imports this module, without NumPy

    seeds = _read(document)
    tensorflow = sys.modules.get("tensorflow") if "tf_seed" in seeds else None
    functions: dict[str, Callable[[int], object]] = {
        "random_seed": random.seed,
        "numpy_seed": np.random.seed,
    }
    if tensorflow is not None:
        functions["tf_seed"] = tensorflow.random.set_seed
    rows = []
    for key, seed in seeds.items():
        if key == "python_seed":
            rows.append(_python_seed(seed))
        elif key in functions:
            functions[key](seed)
            rows.append(Row(key, seed, None, seed, SET, "the seed of this library"))
        else:
            rows.append(Row(key, seed, None, None, UNAVAILABLE, "TensorFlow is not imported"))
    return Report(rows)


def _read(document: Mapping[str, object]) -> dict[str, int]:
    """Return the seeds of the section, checked."""
    section = document.get(_SECTION) if isinstance(document, Mapping) else None
    if not isinstance(section, Mapping):
        raise validation.value_error(_FUNCTION, _SECTION, "a section of keys and values", section)
    seeds = {}
    for key, value in section.items():
        key = validation.check_choice(_FUNCTION, f"a key of {_SECTION}", key, tuple(_HIGHEST))
        if key == "python_seed" and isinstance(value, str) and hash_seed.parse(value) is not None:
            value = int(value)
        name = f"{_SECTION}.{key}"
        seeds[key] = validation.check_int(_FUNCTION, name, value, 0, _HIGHEST[key])
    return seeds


def _python_seed(wanted: int) -> Row:
    value, seed = hash_seed.found()
    if seed == wanted:
        return Row("python_seed", wanted, value, seed, UNCHANGED, hash_seed.VARIABLE)
    why = f"Python reads it before a script starts: start with PYTHONHASHSEED={wanted} set"
    logger.warning("fastseed.%s: python_seed is too late: %s", _FUNCTION, why)
    return Row("python_seed", wanted, value, "random" if seed is None else seed, TOO_LATE, why)

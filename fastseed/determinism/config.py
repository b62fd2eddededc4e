"""The four seeds in the section ``determinism`` of a configuration (NVIDIA Clara's keys)."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

from .._utils import validation
from . import hash_seed

_FUNCTION, _SECTION = "determinism.apply_config", "determinism"
_END = {"python_seed": 2**32, "random_seed": 2**64, "numpy_seed": 2**32, "tf_seed": 2**63}


def apply_config(document: Mapping[str, object]) -> dict[str, bool]:
    """Seed each library that a configuration names, until ``init`` or ``reseed`` seeds all.

    Args:
        document: with ``python_seed``, ``random_seed``, ``numpy_seed``, ``tf_seed`` in a section.

    Returns:
        For each key, whether the seed is in use; ``python_seed`` is only compared with Python's.

    Raises:
        TypeError, ValueError: a section, key or value is invalid; nothing has changed.

    Examples:
        >>> import fastseed
        >>> fastseed.determinism.apply_config({"determinism": {"random_seed": 9}})
        {'random_seed': True}
    """
    import numpy as np  # the command line imports this package without NumPy

    section = document.get(_SECTION) if isinstance(document, Mapping) else None
    if not isinstance(section, Mapping):
        raise validation.value_error(_FUNCTION, _SECTION, "a section of keys and values", section)
    seeds: dict[str, int] = {}
    for key, value in section.items():
        key = validation.check_choice(_FUNCTION, f"a key of {_SECTION}", key, tuple(_END))
        if key == "python_seed" and isinstance(value, str) and hash_seed.parse(value) is not None:
            value = int(value)
        seeds[key] = validation.check_int(_FUNCTION, f"{_SECTION}.{key}", value, 0, _END[key] - 1)
    functions: dict[str, Any] = {"random_seed": random.seed, "numpy_seed": np.random.seed}
    if "tensorflow" in sys.modules:
        functions["tf_seed"] = sys.modules["tensorflow"].random.set_seed
    for key in seeds.keys() & functions.keys():
        functions[key](seeds[key])
    is_hashed = seeds.get("python_seed") == hash_seed.found()[1]
    return {key: key in functions or (key == "python_seed" and is_hashed) for key in seeds}

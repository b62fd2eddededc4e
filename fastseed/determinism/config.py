"""The four seeds in the section ``determinism`` of a configuration (NVIDIA Clara's keys)."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping

from .._utils import validation
from . import hash_seed

_FUNCTION, _SECTION = "determinism.apply_config", "determinism"
_BITS = {"python_seed": 32, "random_seed": 64, "numpy_seed": 32, "tf_seed": 63}


def apply_config(document: Mapping[str, object]) -> dict[str, bool]:
    """Seed each library that a configuration names, until ``init`` or ``reseed`` seeds all.

    Args:
        document: the configuration as ``json.load`` returns it. Its section ``determinism`` has
            any of ``python_seed`` ([0, 2**32), also as a string of digits), ``random_seed`` ([0,
            2**64)), ``numpy_seed`` ([0, 2**32)) and ``tf_seed`` ([0, 2**63)).

    Returns:
        For each key, whether the seed is in use. Python reads ``PYTHONHASHSEED`` before a script
        starts, so ``python_seed`` is only compared; TensorFlow has to be imported already.

    Raises:
        TypeError, ValueError: the section is missing, or has an unknown key or a wrong value;
            nothing has changed.

    Examples:
        >>> import fastseed, random
        >>> fastseed.determinism.apply_config({"determinism": {"random_seed": 9}})
        {'random_seed': True}
        >>> random.random() == random.Random(9).random()
        True
    """
    import numpy as np  # the command line imports this module's package, without NumPy

    section = document.get(_SECTION) if isinstance(document, Mapping) else None
    if not isinstance(section, Mapping):
        raise validation.value_error(_FUNCTION, _SECTION, "a section of keys and values", section)
    seeds = {}
    for key, value in section.items():
        key = validation.check_choice(_FUNCTION, f"a key of {_SECTION}", key, tuple(_BITS))
        if key == "python_seed" and isinstance(value, str) and hash_seed.parse(value) is not None:
            value = int(value)
        name, top = f"{_SECTION}.{key}", 2 ** _BITS[key] - 1
        seeds[key] = validation.check_int(_FUNCTION, name, value, 0, top)
    tensorflow = sys.modules.get("tensorflow")
    functions: dict[str, Callable[[int], object]] = {
        "random_seed": random.seed,
        "numpy_seed": np.random.seed,
    }
    if tensorflow is not None:
        functions["tf_seed"] = tensorflow.random.set_seed
    for key in seeds.keys() & functions.keys():
        functions[key](seeds[key])
    found = hash_seed.found()[1]
    return {k: k in functions or (k == "python_seed" and found == seeds[k]) for k in seeds}

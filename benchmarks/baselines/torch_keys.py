"""torch's own functions of keys, ``torch.func._random``, new in 2.13."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ..case import Side, Unavailable


def side(device: str, statement: str, threads: int = 1, **names: Any) -> Side:
    """A statement of ``stateless``, the module, and ``key``, one key; tried once."""
    try:
        stateless = importlib.import_module("torch.func._random")
        names |= {"stateless": stateless, "key": stateless.key(42).to(device)}
        made = Side("torch.func._random", statement, names, threads)
        made.run()
    except (ImportError, NotImplementedError) as error:
        missing = "no such module" if isinstance(error, ImportError) else f"no kernel for {device}"
        raise Unavailable(f"{missing} in torch {torch.__version__}") from None
    return made

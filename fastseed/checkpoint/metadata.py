"""The sizes of the tensors in a folder of ``torch.distributed.checkpoint``, without running code.

Its file ``.metadata`` is a pickle. Every class and function that it names is replaced by one that
does nothing; what is left are the attributes of objects as plain values.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from .._utils import regular_file
from .._utils.validation import value_error

_NAME = ".metadata"
_PLAIN = {("collections", "OrderedDict"): dict, ("torch", "Size"): tuple}


class _Inert:
    """An object that was not created, with its attributes."""

    state: Any = None

    def __new__(cls, *_: object, **__: object) -> _Inert:
        return object.__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, *_: object) -> None:
        pass

    def append(self, _: object) -> None:
        """Ignore an element."""

    extend = add = append


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _PLAIN.get((module, name), _Inert)

    def persistent_load(self, _: object) -> None:
        """Ignore an object that is stored elsewhere."""


def read_sizes(function: str, folder: str | os.PathLike[str]) -> dict[str, int]:
    """Return the first size of each tensor by its name; ValueError if that cannot be read."""
    path = Path(folder, _NAME)
    if not path.exists():
        rule = f"a folder of torch.distributed.checkpoint, with a file {_NAME}"
        raise value_error(function, "source", rule, os.fspath(folder))
    try:
        with regular_file.open_file(path) as file:
            entries = _Unpickler(file).load().state["state_dict_metadata"]
        found = {key: getattr(one, "state", None) for key, one in entries.items()}
        sizes = {key: one["size"] for key, one in found.items() if one and one.get("size")}
        return {key: int(size[0]) for key, size in sizes.items()}
    except Exception as error:  # of many types, for a damaged pickle
        reason = str(error) or type(error).__name__
        raise ValueError(
            f"fastseed.{function}: cannot read {os.fspath(path)!r} ({reason})"
        ) from error

"""The state of a job in files and in the formats of other libraries."""

from .api import (
    Stateful,
    from_tensors,
    load,
    load_state_dict,
    save,
    state_dict,
    to_tensors,
)

__all__ = [
    "Stateful",
    "from_tensors",
    "load",
    "load_state_dict",
    "save",
    "state_dict",
    "to_tensors",
]

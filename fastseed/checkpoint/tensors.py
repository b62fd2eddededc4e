"""The state of a job as uint8 tensors, for safetensors and torch.distributed.checkpoint."""

from __future__ import annotations

import os
from typing import Any

import torch

from .._utils import StateDict
from .._utils.validation import check_bool, check_instance, type_error, value_error
from ..generators.adapter import pack, unpack
from ..seeder import api
from ..seeder.seeder import current_seeder
from ..seeder.state import is_bytes
from . import format as file_format

_STATEFUL = "checkpoint.Stateful"
_JOB, _RANK = "fastseed_job", "fastseed_rank_"


def to_tensors(state: StateDict) -> dict[str, torch.Tensor]:
    """Convert a state to uint8 tensors, for formats that hold nothing else.

    Args:
        state: from ``fastseed.state_dict``.

    Returns:
        ``fastseed_job`` (master seed and scope) and, for each rank with exact states,
        ``fastseed_rank_<rank>``: 1-D, on the CPU, each with a checksum.

    Raises:
        TypeError, ValueError: ``state`` is not a state.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> list(fastseed.checkpoint.to_tensors(fastseed.state_dict(rng=True)))
        ['fastseed_job', 'fastseed_rank_0']
    """
    function = "checkpoint.to_tensors"
    check_instance(function, "state", state, dict, "a dict from fastseed.state_dict()")
    if state.get("format") != "fastseed":
        raise value_error(function, "state", "a dict from fastseed.state_dict()", state)
    return {
        f"{_RANK}{rank}" if rank else _JOB: pack(file_format.encode(function, part))
        for rank, part in file_format.by_rank(state).items()
    }


def from_tensors(tensors: StateDict) -> StateDict:
    """Convert tensors of ``to_tensors`` back to a state.

    Args:
        tensors: a dict; other entries, those of a model for example, are ignored.

    Returns:
        A state for ``fastseed.load_state_dict``.

    Raises:
        TypeError: ``tensors`` is not a dict.
        ValueError: the entries are missing, damaged or not of one save.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> state = fastseed.state_dict()
        >>> fastseed.checkpoint.from_tensors(fastseed.checkpoint.to_tensors(state)) == state
        True
    """
    function = "checkpoint.from_tensors"
    check_instance(function, "tensors", tensors, dict, "a dict")
    if _JOB not in tensors:
        raise value_error(function, "tensors", f"a dict with {_JOB!r}", list(tensors))
    parts = []
    try:
        for key in (_JOB, *(k for k in tensors if isinstance(k, str) and k.startswith(_RANK))):
            held = tensors[key]
            if not is_bytes(held):
                raise value_error(
                    function, f"tensors[{key!r}]", "a 1-D uint8 tensor with data", held
                )
            parts.append((key, file_format.decode(unpack(held))))
        return file_format.merge(parts)
    except file_format.Damaged as error:
        raise ValueError(f"fastseed.{function}: cannot convert {key}: {error}") from error


class Stateful:
    """The state of this job as tensors, for ``torch.distributed.checkpoint``.

    Args:
        rng: whether to save exact states, as in ``fastseed.checkpoint.save``.
        source: for loading: the checkpoint, as a path or a ``StorageReader``. The number of ranks
            may have changed: new ranks start at the beginning of the scope. torch's own loading
            unpickles a folder's ``.metadata`` and runs what it names, so load only what you trust.
            After loading, the object saves as one without a source.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> list(fastseed.checkpoint.Stateful(rng=True).state_dict())
        ['fastseed_job', 'fastseed_rank_0']
    """

    def __init__(self, *, rng: bool = False, source: Any = None) -> None:
        self._rng, self._source = check_bool(_STATEFUL, "rng", rng), source
        is_source = hasattr(source, "read_metadata") or isinstance(source, (str, os.PathLike))
        if source is not None and not is_source:
            raise type_error(_STATEFUL, "source", "a path, a StorageReader or None", source)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the tensors to save; with ``source``, tensors of the sizes that will be loaded."""
        seeder = current_seeder("checkpoint.Stateful.state_dict")
        if self._source is None:
            return to_tensors(seeder.state_dict(rng=self._rng))
        sizes = self._saved_sizes()
        own, first = f"{_RANK}{seeder.rank}", f"{_RANK}0"
        keys = {_JOB, own if own in sizes else first}  # the first has the states that ranks share
        held = sorted(keys & sizes.keys())
        return {key: torch.zeros(sizes[key], dtype=torch.uint8, device="cpu") for key in held}

    def _saved_sizes(self) -> dict[str, int]:
        """Return the sizes of the tensors in the checkpoint, by their names without prefix."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader

        is_reader = hasattr(self._source, "read_metadata")
        reader = self._source if is_reader else FileSystemReader(self._source)
        try:
            entries = reader.read_metadata().state_dict_metadata
        except Exception as error:  # of many types, for a damaged pickle
            problem = f"cannot read {str(self._source)!r} ({error!r})"
            raise ValueError(f"fastseed.{_STATEFUL}: {problem}") from error
        found = {key: getattr(entry, "size", None) for key, entry in entries.items()}
        sizes = {key: int(size[0]) for key, size in found.items() if size}
        prefixes = sorted(key.removesuffix(_JOB) for key in sizes if key.endswith(_JOB))
        if len(prefixes) != 1:
            rule = f"a checkpoint with the entry of one Stateful (it has {prefixes or 'no entry'})"
            raise value_error(_STATEFUL, "source", rule, self._source)
        return {key.removeprefix(prefixes[0]): size for key, size in sizes.items()}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore every generator; errors name ``from_tensors`` or ``load_state_dict``."""
        api.load_state_dict(from_tensors(tensors))
        self._source = None  # from now on state_dict() is for saving

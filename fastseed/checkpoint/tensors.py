"""The state of a job as uint8 tensors, for safetensors and torch.distributed.checkpoint."""

from __future__ import annotations

import os
from typing import Any

import torch

from .._utils import StateDict
from .._utils.validation import check_bool, check_instance, type_error, value_error
from ..seeder import api
from ..seeder.seeder import current_seeder
from ..seeder.state import is_bytes
from . import format as file_format
from . import metadata

_JOB, _RANK = "fastseed_job", "fastseed_rank_"


def to_tensors(state: StateDict) -> dict[str, torch.Tensor]:
    """Convert a state to uint8 tensors, for formats that hold nothing else.

    Args:
        state: from ``fastseed.state_dict``.

    Returns:
        ``fastseed_job`` (master seed, scope and the like) and, for each rank with exact states,
        ``fastseed_rank_<rank>``: 1-D, on the CPU, each with a checksum over itself.

    Raises:
        TypeError, ValueError: ``state`` is not a state.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> list(fastseed.checkpoint.to_tensors(fastseed.state_dict(rng=True)))
        ['fastseed_job', 'fastseed_rank_0']
    """
    function = "checkpoint.to_tensors"
    check_instance(function, "state", state, dict, "a dict from fastseed.state_dict()")
    if state.get("format") != "fastseed":
        raise value_error(function, "state", "a dict from fastseed.state_dict()", state)
    return {
        f"{_RANK}{rank}" if rank else _JOB: torch.frombuffer(
            bytearray(file_format.encode(function, part)), dtype=torch.uint8
        )
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
        ValueError: the entries are missing, damaged, of another version or not of one save.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> state = fastseed.state_dict()
        >>> tensors = fastseed.checkpoint.to_tensors(state)
        >>> fastseed.checkpoint.from_tensors(tensors) == state
        True
    """
    function = "checkpoint.from_tensors"
    check_instance(function, "tensors", tensors, dict, "a dict")
    if tensors.get("format") == "fastseed":
        rule = "of to_tensors; this is a state of fastseed.state_dict: pass it to load_state_dict"
        raise value_error(function, "tensors", rule, sorted(map(str, tensors)))
    if _JOB not in tensors:
        raise value_error(function, "tensors", f"a dict with {_JOB!r}", sorted(map(str, tensors)))
    parts = []
    for key in (_JOB, *(k for k in tensors if isinstance(k, str) and k.startswith(_RANK))):
        held = tensors[key]
        if not is_bytes(held):
            raise value_error(function, f"tensors[{key!r}]", "a 1-D uint8 tensor", held)
        try:
            part = file_format.decode(held.contiguous().cpu().numpy().tobytes())
        except file_format.Damaged as error:
            raise ValueError(
                f"fastseed.{function}: tensors[{key!r}] is damaged: {error}"
            ) from error
        ranks = [f"{_RANK}{rank}" for rank in file_format.by_rank(part) if rank]
        if ranks != [key] * (key != _JOB):
            rule = "exact states of that rank alone"
            raise value_error(function, f"tensors[{key!r}]", rule, ranks)
        parts.append((key, part))
    try:
        return file_format.merge(parts)
    except file_format.Damaged as error:
        raise ValueError(f"fastseed.{function}: cannot combine tensors: {error}") from error


class Stateful:
    """The state of this job as tensors, for ``torch.distributed.checkpoint``.

    Args:
        rng: whether to save exact states, as in ``fastseed.checkpoint.save``.
        source: for loading: the checkpoint, as a path or a ``StorageReader``. Only entries that it
            holds are requested, so the number of ranks may have changed: new ranks start at the
            beginning of the scope. Without it torch refuses to load on a rank that the saved job
            did not have. After loading, the object saves as one without a source. The names and
            sizes in a folder's ``.metadata`` are read as data: no code in it runs.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> list(fastseed.checkpoint.Stateful(rng=True).state_dict())
        ['fastseed_job', 'fastseed_rank_0']

        To save and load (``dcp`` is ``torch.distributed.checkpoint``)::

            dcp.save({"model": model, "fastseed": Stateful()}, checkpoint_id=path)
            dcp.load({"model": model, "fastseed": Stateful(source=path)}, checkpoint_id=path)
    """

    def __init__(self, *, rng: bool = False, source: Any = None) -> None:
        self._rng, self._source = check_bool("checkpoint.Stateful", "rng", rng), source
        is_reader = hasattr(source, "read_metadata")
        if not (source is None or is_reader or isinstance(source, (str, os.PathLike))):
            rule = "a path, a StorageReader or None"
            raise type_error("checkpoint.Stateful", "source", rule, source)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the tensors to save; with ``source``, tensors of the sizes that will be loaded."""
        seeder = current_seeder("checkpoint.Stateful.state_dict")
        if self._source is None:
            return to_tensors(seeder.state_dict(rng=self._rng))
        sizes = self._saved_sizes()
        own = f"{_RANK}{seeder.rank}"
        # rank 0's entry has the states that all ranks share, for a new rank
        keys = [_JOB, *(key for key in (own if own in sizes else f"{_RANK}0",) if key in sizes)]
        return {key: torch.zeros(sizes[key], dtype=torch.uint8, device="cpu") for key in keys}

    def _saved_sizes(self) -> dict[str, int]:
        source = self._source
        if not isinstance(source, (str, os.PathLike)):
            source = getattr(source, "path", source)  # that of a FileSystemReader
        if isinstance(source, (str, os.PathLike)):
            saved = metadata.read_sizes("checkpoint.Stateful", source)
        else:
            held = source.read_metadata().state_dict_metadata
            saved = {key: int(one.size[0]) for key, one in held.items() if getattr(one, "size", ())}
        prefixes = sorted(key.removesuffix(_JOB) for key in saved if key.endswith(_JOB))
        if len(prefixes) != 1:
            rule = f"a checkpoint with the entry of one Stateful (it has {prefixes or 'no entry'})"
            raise value_error("checkpoint.Stateful", "source", rule, self._source)
        return {key.removeprefix(prefixes[0]): size for key, size in saved.items()}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore every generator; the errors are those of ``fastseed.load_state_dict``."""
        api.load_state_dict(from_tensors(tensors))
        self._source = None  # from now on state_dict() is for saving

"""Checkpoints: a file of our own that is whole or not there, and the state in others' formats.

    fastseed.checkpoint.save("rng.fastseed")         # anywhere in an epoch
    fastseed.checkpoint.load("rng.fastseed")         # goes on exactly there

The files are described in :mod:`fastseed.checkpoint.format`. There is no pickle in them, and
nothing in them is ever executed.
"""

from __future__ import annotations

import os
import re
from typing import Any

import torch

from .._utils import validation
from ..derivation import streams
from ..distributed.agreement import verify_agreement
from ..seeder import api
from ..seeder import state as states
from ..seeder.api import load_state_dict, state_dict
from ..seeder.seeder import Seeder
from . import file_io as files
from . import format as form
from . import gather as ranks

__all__ = [
    "Stateful",
    "from_tensors",
    "load",
    "load_state_dict",
    "save",
    "state_dict",
    "to_tensors",
    "verify_agreement",
]

_RANK = re.compile(r"\{rank(?::0(\d)d)?\}")
_JOB_KEY, _RANK_KEY = "fastseed_job", "fastseed_rank_"


# ------------------------------------------------------------------------------- files


def save(path: str | os.PathLike[str], *, rng: bool = True) -> None:
    """Write where this job is to ``path``: after a crash at any point, the old file or the new.

    Args:
        path: a file in a folder that exists. In a job of several ranks every rank has to call
            this: rank 0 writes one file for all, and all return once it is on the disk. With
            ``{rank}`` (or ``{rank:05d}``) in it, each rank writes a file of its own and waits for
            nobody.
        rng: the exact state of every generator, to go on anywhere; else coordinates alone, to go
            on at the beginning of the scope.

    Raises:
        TypeError, ValueError: the path is none, or not a regular file.
        OSError: it cannot be written. The file is what it was.
        RuntimeError: before ``init``; or there are several ranks and neither a process group of
            all of them nor ``{rank}``; or another rank failed.
    """
    function = "checkpoint.save"
    seeder = api.current(function)
    text = files.checked_path(function, path)
    if seeder.world_size == 1 or _RANK.search(text):
        files.replace(function, _of_rank(text, seeder.rank), _encoded(seeder, rng))
        return
    ranks.check_group(function, seeder.world_size)
    ranks.together(
        function,
        lambda: _encoded(seeder, rng),
        lambda parts: files.replace(function, text, _joined(parts)),
    )


def _encoded(seeder: Seeder, rng: bool) -> bytes:
    return form.encode(seeder.state_dict(rng=rng), api.__version__)


def _joined(parts: list[bytes]) -> bytes:
    decoded = [(f"rank {rank}", form.decode(part)) for rank, part in enumerate(parts)]
    return form.encode(form.merge(decoded), api.__version__)


def _of_rank(path: str, rank: int) -> str:
    return _RANK.sub(lambda found: f"{rank:0{int(found[1] or 0)}d}", path)


def load(path: str | os.PathLike[str]) -> None:
    """Put every generator where :func:`save` found it.

    A rank that the job did not have then, or whose states were not saved, is set to the beginning
    of the scope; states of ranks that no longer exist are dropped. Both are logged as warnings.

    Args:
        path: what :func:`save` was given; every rank reads it by itself.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, foreign, of another version or scheme, or of generators or
            devices that are not here; the text says which. No generator has changed.
        RuntimeError: before ``init``.
    """
    function = "checkpoint.load"
    seeder = api.current(function)
    text = files.checked_path(function, path)
    found = _of_ranks(text, seeder.rank) if _RANK.search(text) else _decoded(text)
    load_state_dict(found)


def _decoded(path: str) -> dict[str, Any]:
    function = "checkpoint.load"
    try:
        return form.decode(files.read(function, path, form.FRAME.size, form.check_frame))
    except files.Damaged as error:
        raise ValueError(
            f"fastseed.{function}: path must be a checkpoint of fastseed, got {path!r}: {error}"
        ) from error


def _of_ranks(path: str, rank: int) -> dict[str, Any]:
    """This rank's file, or of rank 0's, where that can be seen, what holds for any rank."""
    own, first = _of_rank(path, rank), _of_rank(path, 0)
    if rank == 0 or not os.path.exists(first):
        return _decoded(own)
    shared = _decoded(first)
    if rank >= shared["world_size"]:  # a file of its own would be of an earlier, larger job
        return shared
    try:
        return form.merge([(first, form.job_of(shared)), (own, _decoded(own))])
    except files.Damaged as error:
        raise ValueError(f"fastseed.checkpoint.load: path must be of one save: {error}") from error


# ------------------------------------------------------------------------------- tensors


def to_tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A state as uint8 tensors, for formats that hold nothing else (safetensors).

    Args:
        state: from :func:`fastseed.state_dict`.

    Returns:
        ``fastseed_job`` (the coordinates) and, for each rank with exact states,
        ``fastseed_rank_<rank>``: 1-D, on the CPU, each with a checksum over itself.

    Raises:
        TypeError, ValueError: it is no state.
    """
    scheme = state.get("scheme") if isinstance(state, dict) else None
    states.check(state, scheme if scheme in streams.SCHEMES else streams.SCHEMES[0])
    parts = {_JOB_KEY: form.job_of(state)}
    parts.update((f"{_RANK_KEY}{r}", form.of_rank(state, r)) for r in form.ranks_of(state))
    return {key: _tensor(form.encode(part, api.__version__)) for key, part in parts.items()}


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def from_tensors(tensors: Any) -> dict[str, Any]:
    """The inverse of :func:`to_tensors`; other entries, a model's say, are passed over.

    Raises:
        TypeError: it is no dict.
        ValueError: they are damaged, of another version, or not of one save.
    """
    function = "checkpoint.from_tensors"
    if not isinstance(tensors, dict):
        raise TypeError(
            f"fastseed.{function}: tensors must be a dict, "
            f"got {validation.describe(tensors)} of type {type(tensors).__name__}"
        )
    if _JOB_KEY not in tensors:
        raise ValueError(
            f"fastseed.{function}: tensors must hold {_JOB_KEY!r}, "
            f"got {validation.describe(sorted(map(str, tensors)))}"
        )
    keys = [k for k in tensors if isinstance(k, str) and k.startswith(_RANK_KEY)]
    parts = []
    for key in (_JOB_KEY, *keys):
        held = tensors[key]
        if not states.is_bytes(held):
            raise ValueError(
                f"fastseed.{function}: tensors[{key!r}] must be a 1-D uint8 tensor, "
                f"got {validation.describe(held)}"
            )
        try:
            part = form.decode(held.contiguous().cpu().numpy().tobytes())
            of = [str(rank) for rank in form.ranks_of(part)]
            if of != [key.removeprefix(_RANK_KEY)] * (key != _JOB_KEY):
                raise files.Damaged(f"it must hold that rank's states, got those of ranks {of}")
            parts.append((key, part))
        except ValueError as error:
            raise ValueError(
                f"fastseed.{function}: tensors[{key!r}] must be as to_tensors made it: {error}"
            ) from error
    try:
        return form.merge(parts)
    except files.Damaged as error:
        raise ValueError(f"fastseed.{function}: tensors must be of one save: {error}") from error


class Stateful:
    """The state of this job for ``torch.distributed.checkpoint``, as tensors alone.

        dcp.save({"model": model, "fastseed": Stateful()}, checkpoint_id=path)
        dcp.load({"model": model, "fastseed": Stateful(source=path)}, checkpoint_id=path)

    Args:
        rng: with exact states, or coordinates alone.
        source: for loading: the checkpoint (its path, or a ``StorageReader``). What it has is
            asked of it, and nothing else, so that the number of ranks may have changed: new ones
            are set to the beginning of the scope. Without it, torch refuses to load what a rank
            that the job did not have asks for.
    """

    def __init__(self, *, rng: bool = True, source: Any = None) -> None:
        self._rng, self._source = rng, source

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What is saved; or, with ``source``, tensors of the sizes that will be loaded."""
        seeder = api.current("checkpoint.Stateful.state_dict")
        if self._source is None:
            return to_tensors(seeder.state_dict(rng=self._rng))
        sizes = self._saved_sizes()
        keys, own = [_JOB_KEY], f"{_RANK_KEY}{seeder.rank}"
        if self._rng:  # a new rank finds in rank 0's what all ranks share
            keys += [key for key in (own if own in sizes else f"{_RANK_KEY}0",) if key in sizes]
        return {key: torch.zeros(sizes[key], dtype=torch.uint8, device="cpu") for key in keys}

    def _saved_sizes(self) -> dict[str, int]:
        from torch.distributed.checkpoint.filesystem import FileSystemReader

        reader = self._source
        if isinstance(reader, (str, os.PathLike)):
            reader = FileSystemReader(reader)
        saved = reader.read_metadata().state_dict_metadata
        prefixes = sorted(k.removesuffix(_JOB_KEY) for k in saved if k.endswith(_JOB_KEY))
        if len(prefixes) != 1:
            raise ValueError(
                "fastseed.checkpoint.Stateful: source must be a checkpoint that one Stateful was "
                f"saved to, got {validation.describe(self._source)} with {prefixes or 'none'}"
            )
        prefix = prefixes[0]
        ours = {k.removeprefix(prefix): held for k, held in saved.items() if k.startswith(prefix)}
        return {key: int(held.size[0]) for key, held in ours.items() if hasattr(held, "size")}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go where the state was: see :func:`fastseed.load_state_dict`."""
        load_state_dict(from_tensors(tensors))

"""Save the state of a job to a file, and load it: a file for each rank."""

from __future__ import annotations

import os
import re

from .._utils import StateDict, atomic_file, regular_file
from .._utils.validation import check_bool, check_path, value_error
from ..seeder import api
from ..seeder.seeder import current_seeder
from . import format as file_format

_RANK = re.compile(r"\{rank(?::0(\d)d)?\}")


def save(path: str | os.PathLike[str], *, rng: bool = False) -> None:
    """Write the state of this job to a file; after a crash the file is the old or the new one.

    Args:
        path: a file in a folder that exists. In a job of several ranks it has ``{rank}`` (or
            ``{rank:05d}``) in it, and every rank writes its own file: put the step into the path,
            too, since ``load`` refuses files of two saves.
        rng: also save the exact state of every generator, to resume anywhere; without them a job
            resumes at the beginning of the scope (task, epoch, step).

    Raises:
        TypeError, ValueError: an argument is invalid.
        OSError: the file cannot be written; its content is what it was.
        RuntimeError: before ``init``.

    Examples:
        >>> import os, tempfile, fastseed
        >>> fastseed.init(42)
        >>> fastseed.checkpoint.save(os.path.join(tempfile.mkdtemp(), "rng.fastseed"))
    """
    function = "checkpoint.save"
    seeder = current_seeder(function)
    text = check_path(function, "path", path)
    check_bool(function, "rng", rng)
    if seeder.world_size > 1 and not _RANK.search(text):
        rule = (
            f"with {{rank}} in it in a job of {seeder.world_size} ranks, as 'rng-{{rank}}.fastseed'"
        )
        raise value_error(function, "path", rule, text)
    data = file_format.encode(function, seeder.state_dict(rng=rng))
    _write(function, _of_rank(text, seeder.rank), data)


def load(path: str | os.PathLike[str]) -> None:
    """Restore every generator to the state that ``save`` wrote.

    A rank that the saved job did not have, or whose exact states were not saved, starts at the
    beginning of the scope; states of ranks that no longer exist are dropped. Both log a warning.

    Args:
        path: the path that was given to ``save``. Each rank reads it by itself.

    Raises:
        FileNotFoundError: there is no such file.
        TypeError, ValueError: the file is damaged, from another tool or version, or of generators
            or devices that do not exist here; no generator has changed.
        RuntimeError: before ``init``.

    Examples:
        >>> import os, tempfile, torch, fastseed
        >>> path = os.path.join(tempfile.mkdtemp(), "rng.fastseed")
        >>> fastseed.init(42)
        >>> fastseed.checkpoint.save(path, rng=True)
        >>> first = torch.rand(3)
        >>> fastseed.checkpoint.load(path)
        >>> torch.equal(torch.rand(3), first)
        True
    """
    function = "checkpoint.load"
    seeder = current_seeder(function)
    text = check_path(function, "path", path)
    own, first = _of_rank(text, seeder.rank), _of_rank(text, 0)
    has_first = own != first and os.path.exists(first)
    state = _read(function, first if has_first else own)
    # Of a rank that the saved job did not have, its own file is of an earlier, larger job.
    if has_first and seeder.rank < state["world_size"]:
        parts = [(first, file_format.by_rank(state)[""]), (own, _read(function, own))]
        try:
            state = file_format.merge(parts)
        except file_format.Damaged as error:
            rule = f"cannot load {own!r}: {error}; put the step into the path"
            raise ValueError(f"fastseed.{function}: {rule}") from error
    api.load_state_dict(state)


def _of_rank(path: str, rank: int) -> str:
    return _RANK.sub(lambda found: f"{rank:0{int(found[1] or 0)}d}", path)


def _write(function: str, path: str, data: bytes) -> None:
    """Replace a file, or the file that a symbolic link leads to."""
    target = os.path.realpath(path)
    if not os.path.isdir(os.path.dirname(target)):
        rule = "path must be in a folder that exists"
        raise FileNotFoundError(f"fastseed.{function}: {rule}, got {path!r}")
    atomic_file.replace(target, data, durable=True)


def _read(function: str, path: str) -> StateDict:
    try:
        with regular_file.open_file(path) as file:
            return file_format.decode(file.read())
    except file_format.Damaged as error:
        raise ValueError(f"fastseed.{function}: cannot load {path!r}: {error}") from error
    except ValueError as error:
        raise value_error(function, "path", str(error), path) from error

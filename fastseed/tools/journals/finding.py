"""Find the journal of ``fastseed.data.steps`` in a file, without running code of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..._utils import regular_file, strict_json, validation
from ...data import Lineage
from ...derivation import scopes
from ..rng_states.finding import Path, walk
from ..rng_states.folders import noted, parts_of

_FUNCTION = "tools.journals.read"
_START = '{"format":"fastseed.lineage",'  # of the text that states of steps contain
_MOST_BYTES = 1 << 24  # of a JSON file
_NAMES = 6  # in a list


def read(path: str | os.PathLike[str], *, task: int | None = None) -> Lineage:
    """Return the lineage of the job whose journal a file or a folder has.

    No code of a checkpoint is run: pickles are read as data. The state of ``fastseed.data.steps``
    may be anywhere in it.

    Args:
        path: what ``Lineage.save`` wrote; the state of ``fastseed.data.steps`` as JSON; a file of
            torch.save or a plain pickle; or the folder of one checkpoint, also of
            ``torch.distributed.checkpoint``.
        task: the task of the loop, if a checkpoint has the states of several; None: there is one.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: there is no journal, or more than one; or it is damaged or of another version.
        OSError: the file cannot be read.

    Examples:
        >>> import os, tempfile, fastseed, torch
        >>> from fastseed.tools import journals
        >>> fastseed.init(42, rank=0, world_size=1)
        >>> batches = torch.utils.data.DataLoader(range(10), batch_size=4, shuffle=True)
        >>> steps = fastseed.data.steps(batches, epochs=2)
        >>> epoch, step, batch = next(iter(steps))
        >>> path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
        >>> torch.save({"model": {}, "steps": steps.state_dict()}, path)
        >>> journals.read(path).at(0, 0).sample.tolist()
        [2, 7, 6, 4]
    """
    path = validation.check_path(_FUNCTION, "path", path)
    if task is not None:
        task = validation.check_int(_FUNCTION, "task", task, 0, scopes.MAX_TASK)
    problems: list[str] = []
    if _is_json(path):
        try:
            found = [("", _parsed(regular_file.read(path, _MOST_BYTES)))]
        except ValueError as error:
            raise _error("a contract, or a state of fastseed.data.steps", path, error) from error
    else:
        found = _of_checkpoint(path, problems)
    chosen = {one.history: (name, one) for name, one in found if task in (None, one.history.task)}
    if len(chosen) == 1:
        ((_, one),) = chosen.values()
        return one
    if chosen:
        names = [f"{name} (task {one.history.task})" for name, one in chosen.values()]
        problem = f"it has several: {', '.join(names[:_NAMES])}; give one file, or the task"
    else:
        held = f"its tasks: {sorted({one.history.task for _, one in found})}" if found else ""
        problem = held or "; ".join(problems[:_NAMES]) or "it has none"
    of = "" if task is None else f" of task {task}"
    rule = f"a contract, or a checkpoint with one journal of fastseed.data.steps{of}"
    raise _error(rule, path, problem)


def _error(rule: str, path: str, problem: object) -> ValueError:
    return ValueError(f"fastseed.{_FUNCTION}: path must be {rule}, got {path!r} ({problem})")


def _is_json(path: str) -> bool:
    """Return True for a file that begins as an object of JSON, which no pickle does."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(64).lstrip().startswith(b"{")


def _of_checkpoint(path: str, problems: list[str]) -> list[tuple[str, Lineage]]:
    """Return each journal with where it is; what cannot be read is added to ``problems``."""
    texts = []
    for part in parts_of(path, problems):
        with noted(part.source, problems):
            for keys, text in walk(part, _journals):
                where = ".".join(filter(None, keys))
                name = f"{part.source}: {where}" if where else part.source
                texts.append((name, text))
    found = []
    for name, text in texts:
        try:
            found.append((name, _parsed(text)))
        except ValueError as error:
            raise _error("a checkpoint without damage", path, f"{name}: {error}") from error
    return found


def _journals(_: Path, node: object) -> Iterator[str]:
    """Yield the journal that a state is, or contains.

    A checkpoint of torch.distributed has the fields of a state as entries of their own.
    """
    fields = [node.get("journal")] if isinstance(node, dict) else [node]
    for text in fields:
        if isinstance(text, str) and text.startswith(_START):
            yield text


def _parsed(text: str | bytes) -> Lineage:
    try:
        given = strict_json.parse(text)
    except strict_json.Invalid as error:
        raise ValueError(f"it must be {error}") from error
    return Lineage.load(given)

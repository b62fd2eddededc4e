"""What ranks learn from each other beside gradients: that they agree, and who left a step."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import uuid
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .._backend import private_torch
from .._utils import StateDict, validation
from ..distributed import agreement, rendezvous

FUNCTION = "elastic.SlotGradients"
_LOOK = 1.0  # seconds between two looks for ranks that left the step


def check_group(function: str, group: object) -> dist.ProcessGroup | None:
    """Return a process group, or that of a mesh of one dimension; None stays None."""
    rule = "a process group, a mesh of one dimension or None"
    kinds = (dist.ProcessGroup, DeviceMesh, type(None))
    validation.check_instance(function, "group", group, kinds, rule)
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise validation.value_error(function, "group", rule, group)
        return group.get_group()
    return group if isinstance(group, dist.ProcessGroup) else None


class Peers:
    """The ranks of a group, which wait for each other unless one of them has left the step."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._store: Any = None
        self._step = ""  # the key of the step under way
        self._news = ""  # which rank left it, and where

    def connect(self, name: str) -> None:
        """Take a name that these ranks have in common, and no others; an empty one if alone."""
        if name:
            store = private_torch.default_store()
            self._store = dist.distributed_c10d.PrefixStore(f"fastseed.{FUNCTION}/{name}", store)

    def enter(self, step: int) -> None:
        """Begin a step, which all ranks number alike."""
        self._step, self._news = str(step), ""

    def leave(self, where: str) -> None:
        """Tell ranks that wait for this one that it left the step; none of them may answer."""
        if self._step and self._store is not None:
            text = f"{rendezvous.name_ranks([dist.get_rank()])} left the step {where}"
            with contextlib.suppress(RuntimeError):  # the store is gone, and the job with it
                self._store.compare_set(self._step, "", text)  # the first one counts
        self._step = ""

    def finish(self) -> None:
        """End a step that is complete."""
        self._step = ""

    def wait(self, work: dist.Work, device: torch.device) -> None:
        """Wait for a collective; on an accelerator its stream waits, and the host goes on.

        Raises:
            RuntimeError: a rank left the step, ended, or did not answer in time: with its name.
        """
        if device.type != "cpu":
            work.wait()
            return
        rendezvous.collective(f"{FUNCTION}.step", self._wait, work, group=self._group)
        if self._news and not work.is_completed():
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: {self._news}, and this rank waits for it: end the job"
            )

    def _wait(self, work: dist.Work, group: dist.ProcessGroup) -> None:
        ended = threading.Event()
        try:
            if not _is_done(work) and self._step and self._store is not None:
                threading.Thread(target=self._listen, args=(ended,), daemon=True).start()
            while not self._news and not _is_done(work):
                pass
        finally:
            ended.set()

    def _listen(self, ended: threading.Event) -> None:
        """Look for news; a thread of its own, because a store that is stopped never answers."""
        step = self._step
        with contextlib.suppress(RuntimeError):
            while not ended.is_set():
                if self._store.check([step]):
                    self._news = self._store.get(step).decode()
                    return
                ended.wait(_LOOK)


def _is_done(work: dist.Work) -> bool:
    """Wait a moment for a collective; False if it still runs, RuntimeError if it failed."""
    try:
        work.wait(timedelta(seconds=_LOOK))
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()
    return True


def agree(group: dist.ProcessGroup | None, record: StateDict, problem: Exception | None) -> str:
    """Raise on every rank, naming the ranks, where records differ or a rank has a problem.

    Args:
        record: what all ranks must have in common. The rows (name, value) under "tensors", in
            their order, are compared by a digest first.
        problem: the error of this rank, which is raised here and reported to the others.

    Returns:
        A name that these ranks have in common, and no others.
    """
    verdict: StateDict = {}
    if group is not None and dist.get_world_size(group) > 1:
        tensors = record.get("tensors", [])
        own = {**record, "tensors": hashlib.sha256(json.dumps(tensors).encode()).hexdigest()}
        try:
            verdict = _meet(group, own if problem is None else {"problem": str(problem)})
            if "tensors" in verdict:
                verdict = _meet(group, {"rows": tensors})
        except (TimeoutError, RuntimeError):
            if problem is not None:
                raise problem from None
            raise
        if problem is None and "error" in verdict:
            raise RuntimeError(verdict["error"])
    if problem is not None:
        raise problem
    return str(verdict.get("name", ""))


def _meet(group: dist.ProcessGroup, record: StateDict) -> StateDict:
    return rendezvous.exchange_records(FUNCTION, record, _judge, group=group)


def _judge(ranks: list[int], records: list[StateDict]) -> StateDict:
    """Return a name for these ranks if the records agree; else the error for every rank."""
    rows = list(zip(ranks, records, strict=True))
    found = [
        f"{rendezvous.name_ranks([rank])} failed: {row['problem']}"
        for rank, row in rows
        if "problem" in row
    ]
    if not found and "rows" in records[0]:
        found = _first_difference(ranks, [record["rows"] for record in records])
    elif not found:
        found = agreement.compare(ranks, records)
    if not found:
        return {"name": uuid.uuid4().hex}
    if all(sentence.startswith("tensors is") for sentence in found):
        return {"tensors": "differ"}
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return {"error": f"fastseed.{FUNCTION}: all ranks must agree, but {'; '.join(found[:3])}{more}"}


def _first_difference(ranks: list[int], tables: list[list[list[str]]]) -> list[str]:
    """Return a sentence about the first row in which tables of (name, value) differ."""
    for number in range(max(map(len, tables))):
        rows = [table[number] if number < len(table) else ["nothing", ""] for table in tables]
        if len({name for name, _ in rows}) > 1:
            field = f"number {number} of the parameters and buffers, in order,"
            return agreement.compare(ranks, [{field: name} for name, _ in rows])
        if len({value for _, value in rows}) > 1:
            return agreement.compare(ranks, [{name: value} for name, value in rows])
    return []

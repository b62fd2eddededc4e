"""Exchange one record per rank through the store of torch.distributed, within a time limit.

A collective does not serve here: it hangs on a rank that never comes, and after a time-out its
process group cannot be used (measured with gloo: ``monitored_barrier`` closes the connections, and
names the missing rank on rank 0 only). The store works with every backend and needs no device.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

import torch.distributed as dist
from torch.utils.data import get_worker_info

from .._backend import private_distributed
from .._utils import StateDict

Record: TypeAlias = StateDict  # of one rank, in JSON's types
Decide: TypeAlias = Callable[[list[int], list[Record]], Record]

GRACE = 5.0
"""Seconds beyond the time limit in which the store has to answer."""

_NAMED = 16  # ranks, at most, in one part of a message

_posted: dict[str, list[str]] = {}  # the records of this process, by name

_of_parent: object = None  # the process group that was there when this process was forked


def _keep_group_of_parent() -> None:
    global _of_parent
    if dist.is_available() and dist.is_initialized():
        _of_parent = dist.group.WORLD


os.register_at_fork(after_in_child=_keep_group_of_parent)


def has_group() -> bool:
    """Return whether this process has joined a process group.

    A forked child has not: the connections are its parent's, whose calls it would disturb.
    """
    if not (dist.is_available() and dist.is_initialized()) or get_worker_info() is not None:
        return False
    return dist.group.WORLD is not _of_parent


def group_size(group: dist.ProcessGroup | None = None) -> int:
    """Return the number of ranks in a process group; 1 where there is none."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def exchange_records(
    function: str,
    record: Record,
    decide: Decide,
    *,
    group: dist.ProcessGroup | None = None,
    seconds: float | None = None,
    name: str | None = None,
) -> Record:
    """Return the verdict of ``decide`` on the records of all ranks of ``group``, the same on each.

    ``decide`` is called with the ranks and their records on the first rank of the group. A record
    with a text under ``"problem"`` is decided alone at once; no rank waits for that one. Calls of
    several functions meet under one ``name``. TimeoutError names ranks that did not come in time.
    """
    if dist.is_available() and dist.is_initialized() and not has_group():
        raise RuntimeError(
            f"fastseed.{function}: must not be called in a forked child of a rank, such as a "
            "DataLoader worker: the process group is its parent's; call it in the parent"
        )
    store = private_distributed.default_store()
    limit = store.timeout.total_seconds() if seconds is None else seconds
    ranks = dist.get_process_group_ranks(group)
    digest = hashlib.sha256(json.dumps(ranks).encode()).hexdigest()[:16]
    prefix = f"fastseed.{name or function}/{_attempt()}{digest}"
    store = dist.distributed_c10d.PrefixStore(prefix, store)
    left = threading.Event()
    try:
        result = _ask(function, lambda: _meet(store, ranks, limit, record, decide, left), limit)
    finally:
        left.set()  # the thread posts nothing more
    if lost := result.get("missing"):
        lost = [rank for rank in lost if rank != dist.get_rank()] or lost  # this one is late only
        raise TimeoutError(
            f"fastseed.{function}: {name_ranks(lost)} did not call it within "
            f"{result['seconds']:g} seconds of the others; look there for the cause"
        )
    return dict(result)


def first_record(function: str, name: str, record: Record) -> Record:
    """Return what the first rank posted that came to this call of a name; ``record`` if it is this.

    No rank is waited for. A process may post several records under one name, one after another.
    """
    store, text = private_distributed.default_store(), json.dumps(record)
    own = _posted.get(name, [])
    own = _posted[name] = own if text in own else [*own, text]
    key = f"fastseed.{function}/{_attempt()}{name}/{own.index(text)}"
    return dict(json.loads(_ask(function, lambda: store.compare_set(key, "", text), GRACE)))


def _ask(function: str, call: Callable[[], Any], limit: float) -> Any:
    """Return what ``call``, which asks the store, returns."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    # A client waits for ever for a store whose process is stopped, so another thread waits there.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit + 2 * GRACE)
    keeper = "the process that keeps it (rank 0, unless a launcher does)"
    if not results:
        raise TimeoutError(
            f"fastseed.{function}: the store of torch.distributed did not answer within {limit:g} "
            f"seconds; {keeper} is stopped or cannot be reached; look there for the cause"
        )
    result = results[0]
    if isinstance(result, dist.DistError):
        raise RuntimeError(
            f"fastseed.{function}: the store of torch.distributed does not answer; {keeper} has "
            f"ended: {result}"
        ) from result
    if isinstance(result, Exception):
        raise result
    return result


def collective(
    function: str,
    operation: Callable[..., object],
    *args: object,
    group: dist.ProcessGroup | None = None,
    **more: object,
) -> Any:
    """Call a collective of torch; where it fails, RuntimeError names ranks that do not answer.

    A rank that is stopped is noticed at the time limit of the process group; others that wait for
    it in the call cannot answer either. The first ranks that fail decide who is named, also by
    those that fail later, as their peers have left by then.
    """
    try:
        return operation(*args, group=group, **more)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        try:
            exchange_records(function, {}, lambda *_: {}, group=group, seconds=GRACE, name="failed")
        except (TimeoutError, RuntimeError) as lost:
            raise RuntimeError(f"{lost} ({reason})") from error
        raise RuntimeError(
            f"fastseed.{function}: a collective call failed, and all ranks answer ({reason})"
        ) from error


def _meet(
    store: Any,
    ranks: list[int],
    seconds: float,
    record: Record,
    decide: Decide,
    left: threading.Event,
) -> Record:
    """Return the verdict of one call; nothing is posted once this rank has ``left`` it."""
    me, until = ranks.index(dist.get_rank()), time.monotonic() + seconds
    # Counted in the store: a rank that missed a call finds the verdict of that one first.
    call = store.add(f"calls/{me}", 1)
    keys = [f"{call}/{i}" for i in range(len(ranks))]
    verdict_key = f"{call}/verdict"
    if left.is_set():
        return {}
    store.set(keys[me], json.dumps(record))
    if record.get("problem"):  # nothing to wait for: the other ranks hear of it at once
        store.compare_set(verdict_key, "", json.dumps(decide([ranks[me]], [record])))
    # The first rank decides, so that the work of the others does not grow with their number. If
    # there is no verdict in time, each rank decides; compare_set keeps the first verdict.
    if not store.check([verdict_key]):
        _wait(store, keys if me == 0 else [verdict_key], until)
    if not store.check([verdict_key]):
        absent = [rank for rank, key in zip(ranks, keys, strict=True) if not store.check([key])]
        if absent:
            verdict: Record = {"missing": absent, "seconds": seconds}
        else:
            verdict = decide(ranks, [json.loads(text) for text in store.multi_get(keys)])
            if call > 1:  # every rank has come to this call: the previous one's keys may go
                for key in (*range(len(ranks)), "verdict", "read"):
                    store.delete_key(f"{call - 1}/{key}")
        if left.is_set():
            return {}
        store.compare_set(verdict_key, "", json.dumps(verdict))
    verdict = dict(json.loads(store.get(verdict_key)))
    readers = store.add(f"{call}/read", 1)
    until = time.monotonic() + GRACE
    # An error may end the first process, and with it the store, before the others have read it.
    while me == 0 and verdict.keys() & {"missing", "error"} and time.monotonic() < until:
        if readers >= len(ranks) - len(verdict.get("missing", ())):
            break
        time.sleep(0.01)
        readers = store.add(f"{call}/read", 0)
    return verdict


def _wait(store: Any, keys: list[str], until: float) -> None:
    """Return when all ``keys`` exist or the time is over."""
    try:
        store.wait(keys, timedelta(seconds=max(0.001, until - time.monotonic())))
    except RuntimeError as error:  # a FileStore's "Wait timeout" is no DistError
        if isinstance(error, dist.DistError) and not isinstance(error, dist.DistStoreError):
            raise


def _attempt() -> str:
    """Return a prefix for the keys of this start of the job in a store that outlives it.

    torchrun's agent keeps such a store: restarted workers find the keys of killed ones there.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return ""
    return f"restart {os.environ.get('TORCHELASTIC_RESTART_COUNT')}/"


def name_ranks(ranks: list[int]) -> str:
    """Return "rank 3" or "ranks 0, 1, 3", at most 16 of them by number."""
    shown = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"

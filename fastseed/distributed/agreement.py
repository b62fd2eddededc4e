"""Check that all ranks are at the same point of the same job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch.distributed as dist

from .._backend.reference import scalar
from .._utils import validation, version
from ..derivation import context
from .discovery import find_rank
from .rendezvous import GRACE, Record, exchange_records, name_ranks

if TYPE_CHECKING:
    from ..seeder.seeder import Seeder

_NAME = "distributed.verify_agreement"
_OWN = ("rank", "mesh coordinates")  # which no two ranks may have in common
_SHOWN = 16  # values, at most, in one part of a message

_ADVICE = {
    "version": "install one version everywhere",
    "master_seed": "give init the same one, or None with a process group",
    "scope": "some rank is ahead: call reseed with the same arguments on every rank",
    "threads": "set OMP_NUM_THREADS, or call torch.set_num_threads, alike on every rank",
}


def verify_agreement(*, timeout: float = 60.0, group: dist.ProcessGroup | None = None) -> None:
    """Raise on every rank, naming the ranks, unless all ranks agree about the job.

    It compares the versions of fastseed and of the derivation, the scheme, the master seed, the
    world size, the scope, the sizes of the mesh, ``data_over``, ``distinct_over``, ``on_os_fork``
    and the names of registered generators; ranks and coordinates in the mesh must be unique. Every
    rank of the group has to make the call. No generator changes. In a job of one rank, and on a
    rank that is not in ``group``, it returns at once.

    Args:
        timeout: seconds in [0.001, 86400] to wait for the other ranks; give every rank the same.
        group: the ranks to compare, of any backend; all ranks if None.

    Raises:
        TypeError, ValueError: an argument is invalid; the other ranks raise RuntimeError.
        RuntimeError: ranks differ, a rank has an error of its own, ``fastseed.init`` was not
            called, there are several ranks and no process group to compare them, the process that
            keeps the store of torch.distributed has ended, or this is a forked child of a rank.
        TimeoutError: some ranks, which the message names, did not call it in time, or the store did
            not answer, as when rank 0 is stopped.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> fastseed.distributed.verify_agreement(timeout=5)
    """
    if group is not None:
        if isinstance(group, int) and group == dist.GroupMember.NON_GROUP_MEMBER:
            return
        rule = "a torch.distributed process group"
        validation.check_instance(_NAME, "group", group, dist.ProcessGroup, rule)
    problem: Exception | None = None
    record: Record = {}
    seconds, size = GRACE, find_rank(_NAME).world_size
    try:
        seconds = validation.check_float(_NAME, "timeout", timeout, 1e-3, 86400)
        seeder = context.current(_NAME)
        record, size = record_of(seeder), max(size, seeder.world_size)
    except (TypeError, ValueError, RuntimeError) as error:
        problem, record = error, {"problem": str(error)}
    if dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1:
        try:
            found = exchange_records(_NAME, record, _judge, group=group, seconds=seconds)
        except (TimeoutError, RuntimeError):
            if problem is not None:
                raise problem from None
            raise
        if problem is None and "error" in found:
            problem = RuntimeError(found["error"])
    elif problem is None and group is None and size > 1:
        problem = RuntimeError(
            f"fastseed.{_NAME}: call torch.distributed.init_process_group first: there are {size} "
            "ranks, and no process group in which to compare them"
        )
    if problem is not None:
        raise problem


def record_of(seeder: Seeder) -> Record:
    """Return what ranks compare of their seeders, in JSON's types."""
    mesh = seeder.mesh
    return {
        "version": version.__version__,
        "derivation": scalar.DERIVATION_VERSION,
        "scheme": seeder.scheme,
        "master_seed": seeder.master_seed,
        "world_size": seeder.world_size,
        "scope": None if seeder.scope is None else seeder.scope._asdict(),
        "mesh": None if mesh is None else dict(zip(mesh.names, mesh.sizes, strict=True)),
        "data_over": list(seeder._job.data_over),
        "distinct_over": seeder._rank_fields.rules(),
        "on_os_fork": seeder.on_os_fork or "inherit",
        "registered": sorted(
            f"{entry.name} (shared)" if entry.shared else entry.name for entry in seeder._registry
        ),
        "rank": seeder.rank,
        "mesh coordinates": None if mesh is None else list(mesh.ranks),
    }


def _judge(ranks: list[int], records: list[Record]) -> Record:
    """Return an empty verdict if the records agree; else the error for every rank."""
    rows = zip(ranks, records, strict=True)
    failed = [f"{name_ranks([r])} failed: {row['problem']}" for r, row in rows if "problem" in row]
    found = failed or [*compare(ranks, records), *find_duplicates(ranks, records)]
    if not found:
        return {}
    return {"error": f"fastseed.{_NAME}: all ranks must agree, but {'; '.join(found)}"}


def _holders(ranks: list[int], records: list[Record], field: str) -> dict[str, list[int]]:
    """Return the ranks that hold each value of a field, by the value's JSON text."""
    holders: dict[str, list[int]] = {}
    for rank, record in zip(ranks, records, strict=True):
        holders.setdefault(json.dumps(record.get(field), sort_keys=True), []).append(rank)
    return holders


def compare(ranks: list[int], records: list[Record]) -> list[str]:
    """Return a sentence for each field that differs, the value of most ranks first."""
    found = []
    fields = dict.fromkeys(name for record in records for name in record)
    for field in (name for name in fields if name not in _OWN):
        holders = _holders(ranks, records, field)
        if len(holders) == 1:
            continue
        first, *others = sorted(holders, key=lambda text: (-len(holders[text]), holders[text][0]))
        advice = f" ({_ADVICE[field]})" if field in _ADVICE else ""
        usual, *parts = (
            f"{_show(json.loads(text))} on {name_ranks(holders[text])}"
            for text in (first, *others[:_SHOWN])
        )
        found.append(f"{field} is {usual} but {', '.join(parts)}{advice}")
    return found


def find_duplicates(ranks: list[int], records: list[Record]) -> list[str]:
    """Return a sentence for each rank, or coordinates in the mesh, that several ranks have."""
    advice = "(call init after init_process_group, or give each rank its own rank= or mesh=)"
    for field in _OWN:
        found = [
            f"{field} must be unique, but {text} is that of {name_ranks(holders)} {advice}"
            for text, holders in _holders(ranks, records, field).items()
            if len(holders) > 1 and text != "null"
        ]
        if found:
            return found[:_SHOWN]
    return []


def _show(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    return validation.short_repr(value)

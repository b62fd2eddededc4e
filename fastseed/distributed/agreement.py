"""Check that all ranks are at the same point of the same job."""

from __future__ import annotations

import functools
import hashlib
import json
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch.distributed as dist

from .._backend.reference import scalar
from .._utils import validation, version
from .._utils.log import logger, warn_once
from ..derivation import context
from . import rendezvous
from .discovery import find_rank, process_group_size
from .rendezvous import GRACE, Record, group_size, name_ranks

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Rows: TypeAlias = Sequence[Sequence[str]]  # (name, value)

_NAME = "distributed.verify_agreement"
_OWN = ("rank", "mesh coordinates")  # which no two ranks may have in common
_SHOWN = 16  # values, at most, in one part of a message

_ADVICE = {
    "version": "install one version everywhere",
    "master_seed": "give init the same one, or None with a process group",
    "scope": "some rank is ahead: call reseed with the same arguments on every rank",
    "threads": "set OMP_NUM_THREADS, or call torch.set_num_threads, alike on every rank",
    "MKL_CBWR": "set it, or call fastseed.deterministic(), on every rank or on none",
}


def verify_agreement(
    *, timeout: float = 60.0, group: dist.ProcessGroup | DeviceMesh | None = None
) -> None:
    """Raise on every rank, naming the ranks, unless all ranks agree about the job.

    It compares versions, the arguments of ``init``, the scope and the names of registered
    generators; ranks and coordinates in the mesh must be unique. Every rank of the group has to
    make the call. On a rank that is not in ``group`` it returns at once.

    Args:
        timeout: seconds in [0.001, 86400] to wait for the other ranks; give every rank the same.
        group: the ranks to compare, a process group of any backend or a mesh of one dimension; all
            ranks if None.

    Raises:
        TypeError, ValueError: an argument is invalid; the other ranks raise RuntimeError.
        RuntimeError: ranks differ, or one has an error of its own; there are several ranks and no
            process group; the process that keeps the store of torch.distributed has ended.
        TimeoutError: some ranks, which the message names, did not call it in time, or the store did
            not answer, as when rank 0 is stopped.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> fastseed.distributed.verify_agreement(timeout=5)
    """
    if isinstance(group, int) and group == dist.GroupMember.NON_GROUP_MEMBER:
        return
    ranks = check_group(_NAME, group)
    problem: Exception | None = None
    record: Record = {}
    seconds, size = GRACE, find_rank(_NAME).world_size
    try:
        seconds = validation.check_float(_NAME, "timeout", timeout, 1e-3, 86400)
        seeder = context.current(_NAME)
        record, size = record_of(seeder), max(size, seeder.world_size)
    except (TypeError, ValueError, RuntimeError) as error:
        problem = error
    if problem is None and ranks is None and size > 1 and group_size() == 1:
        problem = RuntimeError(
            f"fastseed.{_NAME}: call torch.distributed.init_process_group first: there are {size} "
            "ranks, and no process group in which to compare them"
        )
    agree(_NAME, record, problem, group=ranks, seconds=seconds)


def check_group(function: str, group: object) -> dist.ProcessGroup | None:
    """Return a process group, or that of a mesh of one dimension; None stays None."""
    from torch.distributed.device_mesh import DeviceMesh

    if group is None or isinstance(group, dist.ProcessGroup):
        return group
    rule = "a process group, a mesh of one dimension or None"
    mesh = validation.check_instance(function, "group", group, DeviceMesh, rule)
    if mesh.ndim != 1:
        raise validation.value_error(function, "group", rule, mesh)
    return mesh.get_group()


def agree_on_master(
    master: int | None, world_size: int, bits: int, problem: Exception | None = None
) -> tuple[int, bool]:
    """Return the master seed of this job, and whether every rank is known to use it.

    With a process group of ``world_size`` ranks, every rank has to make the call: rank 0 chooses a
    seed that no rank gave. ``problem`` is raised once the other ranks have been notified.
    """
    seed = secrets.randbits(bits) if master is None else master
    if world_size > 1 and process_group_size() == world_size:
        return int(agree("init", {"master_seed": master}, problem, chosen=seed)), True
    if problem is not None:
        raise problem
    if master is None and world_size > 1:
        logger.warning(
            "fastseed.init: master_seed is None and there is no process group of %d ranks to agree "
            "on one: each rank chooses its own, and shared streams are refused; call "
            "torch.distributed.init_process_group first, or give a master seed",
            world_size,
        )
    return seed, master is not None or world_size == 1


def agree(
    function: str,
    record: Record,
    problem: Exception | None = None,
    *,
    rows: Rows = (),
    chosen: Any = None,
    group: dist.ProcessGroup | None = None,
    seconds: float | None = None,
) -> Any:
    """Return what the first rank has ``chosen``, where all ranks have one record and no problem.

    Otherwise every rank raises, naming the ranks; this one its ``problem``, if it has one. ``rows``
    are more of the record: (name, value) in an order, such as the tensors of a model. They are
    compared by digests, and sent only where these differ.
    """
    if group_size(group) == 1:
        if problem is not None:
            raise problem
        return chosen
    meet = functools.partial(rendezvous.exchange_records, function, group=group, seconds=seconds)
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    own = {**record, "chosen": chosen, "rows": digest}
    try:
        own = own if problem is None else {"problem": str(problem)}
        verdict = meet(own, functools.partial(_judge, function))
        if verdict.get("rows differ"):
            verdict = meet({"rows": rows}, functools.partial(_judge_rows, function))
    except (TimeoutError, RuntimeError):
        if problem is not None:
            raise problem from None
        raise
    if problem is not None:
        raise problem
    if "error" in verdict:
        raise RuntimeError(verdict["error"])
    return verdict["chosen"]


def check_first(function: str, name: str, record: Record, advice: str) -> None:
    """Raise RuntimeError if the rank that came first to this call of ``name`` has another record.

    No rank is waited for, and one that comes alone is right.
    """
    here = dist.get_rank()
    try:
        first = rendezvous.first_record(function, name, {**record, "rank": here})
    except (OSError, RuntimeError, ValueError) as error:  # a store that cannot, as that of MPI
        warn_once("fastseed.%s: the ranks are not compared (%s)", function, str(error))
        return
    found = compare([first["rank"], here], [first, record])
    if found:
        raise RuntimeError(f"{_error(function, found)['error']}: {advice}")


def record_of(seeder: Any) -> Record:
    """Return what ranks compare of their seeders, in JSON's types."""
    mesh = seeder.mesh
    return {
        "version": version.__version__,
        "derivation": scalar.DERIVATION_VERSION,
        "master_seed": seeder.master_seed,
        "world_size": seeder.world_size,
        "scope": None if seeder.scope is None else seeder.scope._asdict(),
        "mesh": None if mesh is None else dict(zip(mesh.names, mesh.sizes, strict=True)),
        "data_over": list(seeder.job.data_over),
        "distinct_over": seeder.place.fields.rules(),
        "registered": sorted(
            f"{entry.name} (shared)" if entry.shared else entry.name
            for entry in seeder.generators.registry
        ),
        "rank": seeder.rank,
        "mesh coordinates": None if mesh is None else list(mesh.ranks),
    }


def _judge(function: str, ranks: list[int], records: list[Record]) -> Record:
    """Return what the first rank has chosen if the records agree; else the error for every rank."""
    rows = zip(ranks, records, strict=True)
    found = [f"{name_ranks([r])} failed: {row['problem']}" for r, row in rows if "problem" in row]
    chosen = [record.pop("chosen", None) for record in records]
    digests = {record.pop("rows", None) for record in records}
    found = found or [*compare(ranks, records), *find_duplicates(ranks, records)]
    if not found:
        return {"chosen": chosen[0], "rows differ": len(digests) > 1}
    return _error(function, found)


def _judge_rows(function: str, ranks: list[int], records: list[Record]) -> Record:
    tables = [record["rows"] for record in records]
    for number in range(max(map(len, tables))):
        rows = [table[number] if number < len(table) else ["nothing", ""] for table in tables]
        field = f"number {number} of the tensors and modules, in order,"
        found = compare(ranks, [{field: name} for name, _ in rows])
        found = found or compare(ranks, [{name: value} for name, value in rows])
        if found:
            return _error(function, found)
    return {"chosen": None}


def _error(function: str, found: list[str]) -> Record:
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return {"error": f"fastseed.{function}: all ranks must agree, but {'; '.join(found[:3])}{more}"}


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

"""Do all ranks stand at the same point of the same job?

The ranks meet in the store of torch.distributed (the one through which they found each other): it
is bound to no device or backend, and a rank that never comes can be named, where a collective would
only hang. The first rank of the group collects what each rank says of itself and publishes one
verdict, so the work of a rank does not grow with the number of ranks, but for the first one's.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from .._backend import derive_ops
from .._utils import validation
from .._utils.version import __version__ as fastseed_version
from ..derivation import context

_PREFIX = "fastseed.verify_agreement"
_GRACE = 10.0  # seconds for a verdict that another rank is about to give
_FINE: dict[str, Any] = {"differ": []}
_OWN = ("rank", "place")  # in which no two ranks may be the same
_NAMED = 16  # ranks, at most, in one part of a message

_ADVICE = {
    "version": "install one version everywhere",
    "master_seed": "give init the same one, or None with a process group",
    "scope": "some rank is ahead: call reseed with the same coordinates on every rank",
}


def verify_agreement(*, timeout: float = 60.0, group: dist.ProcessGroup | None = None) -> None:
    """Return if all ranks agree about the job; else raise, on every rank, and say who differs.

    Compared are the version of fastseed and of the derivation, the scheme, the master seed, the
    world size, the scope, the sizes of the mesh, along what streams vary, what forked children do,
    and the names of what is registered (and whether it is shared); and no two ranks may have told
    ``init`` that they are the same one. Every rank of the group has to make the call, as often as
    the others; no generator changes. Without a process group it returns
    at once, as it does on a rank that is not in ``group``.

    Args:
        timeout: seconds, (0, 86400], to wait for the others. Rank 0 of the group decides, so let it
            be the same everywhere.
        group: of the ranks to compare; all of them unless given. Of any backend.

    Raises:
        TypeError, ValueError: for an argument that is wrong. The other ranks hear of it.
        RuntimeError: ranks differ, or one could not say what it does (it has not called ``init``,
            say): the message names the ranks, and what they hold. Or before ``init``.
        TimeoutError: some ranks did not come in time: the message names them. A rank that comes
            later gets the same error.
    """
    if group is not None and not isinstance(group, dist.ProcessGroup):
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            return
        raise TypeError(
            "fastseed.verify_agreement: group must be a torch.distributed process group, "
            f"got {validation.describe(group)} of type {type(group).__name__}"
        )
    problem: Exception | None = None
    record: dict[str, Any] = {}
    seconds = _GRACE
    try:
        seconds = _check_timeout(timeout)
        record = _describe(context.current("verify_agreement"))
    except (TypeError, ValueError, RuntimeError) as error:
        problem = error
    if dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1:
        meeting = _Meeting(dist.get_process_group_ranks(group), record)
        if problem is None:
            _conclude(meeting.verdict(seconds))
        else:
            meeting.refuse(problem)
    if problem is not None:
        raise problem


def _check_timeout(timeout: Any) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(
            "fastseed.verify_agreement: timeout must be a number of seconds, "
            f"got {validation.describe(timeout)} of type {type(timeout).__name__}"
        )
    if not (math.isfinite(timeout) and 0 < timeout <= 86400):
        raise ValueError(
            f"fastseed.verify_agreement: timeout must be in (0, 86400], got {timeout!r}"
        )
    return float(timeout)


def _describe(seeder: Any) -> dict[str, Any]:
    """What has to be the same on all ranks (or, ``_OWN``, to differ), in JSON's types."""
    mesh = seeder.mesh
    return {
        "version": fastseed_version,
        "derivation": derive_ops.DERIVATION_VERSION,
        "scheme": seeder.scheme,
        "master_seed": seeder.master_seed,
        "world_size": seeder.world_size,
        "scope": None if seeder.scope is None else seeder.scope._asdict(),
        "mesh": _mesh_sizes(mesh),
        "distinct_over": seeder.rank_fields.told(),
        "fork": seeder.on_os_fork or "inherit",
        "registered": sorted(
            f"{entry.name} (shared)" if entry.shared else entry.name for entry in seeder.registry
        ),
        "rank": seeder.rank,
        "place": None if mesh is None else list(mesh.ranks),
    }


def _mesh_sizes(mesh: Any) -> dict[str, int] | None:
    """The dimensions of a mesh and their sizes, which all its ranks share."""
    return None if mesh is None else dict(zip(mesh.names, mesh.sizes, strict=True))


class _Meeting:
    """One call, on one rank, of all ranks of a group."""

    def __init__(self, ranks: Sequence[int], record: dict[str, Any]) -> None:
        self.ranks = list(ranks)
        self.me = self.ranks.index(dist.get_rank())
        key = f"{_PREFIX}/{','.join(map(str, ranks))}" if len(ranks) < _NAMED else _long(ranks)
        c10d: Any = dist.distributed_c10d
        self.store = c10d.PrefixStore(key, c10d._get_default_store())
        # Counted in the store: whoever missed a call meets the verdict of that one first.
        self.call = _safely(lambda: self.store.add(f"calls/{self.me}", 1))
        self.began = time.monotonic()
        _safely(lambda: self.store.set(self._key(self.me), json.dumps(record)))

    def _key(self, what: Any, call: int | None = None) -> str:
        return f"{self.call if call is None else call}/{what}"

    def _wait(self, keys: list[str], until: float) -> bool:
        """Whether all of these are there, at the latest ``until``."""
        left = max(0.001, until - time.monotonic())
        try:
            self.store.wait(keys, timedelta(seconds=left))
        except dist.DistStoreError:  # the time is over
            return False
        return True

    def refuse(self, problem: Exception) -> None:
        """Tell the others at once that this rank has nothing to compare."""
        said = f"{_name([self.ranks[self.me]])} cannot tell: {problem}"
        _safely(lambda: self._publish({"differ": [said]}))
        _safely(lambda: self.store.add(self._key("read"), 1))

    def verdict(self, seconds: float) -> dict[str, Any]:
        """What was found, the same on every rank: ``missing`` ranks, or how they ``differ``."""
        found: dict[str, Any] = _safely(lambda: self._verdict(seconds))
        return found

    def _verdict(self, seconds: float) -> dict[str, Any]:
        until = self.began + seconds
        everyone = [self._key(i) for i in range(len(self.ranks))]
        if self.store.check([self._key("verdict")]):
            pass  # the others have given up, or this rank is the last to look
        elif self.me == 0 and self._gather(everyone, until):
            self._judge(everyone, seconds)
            self._forget(self.call - 1)
        elif self.me == 0 or not self._wait([self._key("verdict")], until):
            self._judge(everyone, seconds)
        if not self._wait([self._key("verdict")], time.monotonic() + _GRACE):
            raise TimeoutError(
                "fastseed.verify_agreement: a rank ended while it was giving its verdict"
            )
        found: dict[str, Any] = json.loads(self.store.get(self._key("verdict")))
        self.store.add(self._key("read"), 1)
        if self.me == 0 and found != _FINE:
            self._wait_for_readers(len(self.ranks) - len(found.get("missing", ())))
        return found

    def _wait_for_readers(self, count: int) -> None:
        """Its error may be the end of this process, and of the store that it keeps."""
        until = time.monotonic() + _GRACE
        while self.store.add(self._key("read"), 0) < count and time.monotonic() < until:
            time.sleep(0.01)

    def _gather(self, keys: list[str], until: float) -> bool:
        """Whether all records came; looks instead of waiting, for another rank may refuse."""
        pause = 0.001
        while not self.store.check(keys):
            if time.monotonic() >= until or self.store.check([self._key("verdict")]):
                return False
            time.sleep(min(pause, max(0.0, until - time.monotonic())))
            pause = min(2 * pause, 0.1)
        return True

    def _judge(self, keys: list[str], seconds: float) -> None:
        absent = [r for r, k in zip(self.ranks, keys, strict=True) if not self.store.check([k])]
        if absent:
            self._publish({"missing": absent, "seconds": seconds})
        else:
            records = [json.loads(text) for text in self.store.multi_get(keys)]
            self._publish({"differ": compare(self.ranks, records) + coincide(self.ranks, records)})

    def _publish(self, verdict: dict[str, Any]) -> None:
        """The first verdict counts."""
        if self.store.add(self._key("taken"), 1) == 1:
            self.store.set(self._key("verdict"), json.dumps(verdict))

    def _forget(self, call: int) -> None:
        """Everyone has come to this call, so nobody needs what the last one left."""
        if call > 0:
            for what in (*range(len(self.ranks)), "taken", "verdict", "read"):
                self.store.delete_key(self._key(what, call))


def _long(ranks: Sequence[int]) -> str:
    """The name of the meeting of many ranks."""
    text = ",".join(map(str, ranks))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{_PREFIX}/{len(ranks)}/{digest[:32]}"


def _safely(ask: Any) -> Any:
    """What the store answers; RuntimeError where it is gone."""
    try:
        return ask()
    except dist.DistError as error:
        raise RuntimeError(
            "fastseed.verify_agreement: the store of torch.distributed does not answer; the "
            f"process that keeps it (rank 0, unless a launcher does) has ended: {error}"
        ) from error


def compare(ranks: Sequence[int], records: Sequence[dict[str, Any]]) -> list[str]:
    """How the records of these ranks differ, a sentence for each field; empty where they agree.

    The value of most ranks (of equally many: the lowest rank's) stands first.
    """
    found = []
    fields = dict.fromkeys(name for record in records for name in record)
    for field in (name for name in fields if name not in _OWN):
        holders: dict[str, list[int]] = {}
        for rank, record in zip(ranks, records, strict=True):
            holders.setdefault(json.dumps(record.get(field), sort_keys=True), []).append(rank)
        if len(holders) == 1:
            continue
        most = max(holders, key=lambda text: len(holders[text]))
        others = sorted(set(holders) - {most}, key=lambda text: holders[text][0])
        said = [f"{_show(json.loads(most))} on {_name(holders[most])}"]
        for text in others[:_NAMED]:
            said.append(f"{_against(json.loads(text), json.loads(most))} on {_name(holders[text])}")
        hint = f" ({_ADVICE[field]})" if field in _ADVICE else ""
        found.append(f"{field} is {' but '.join((said[0], ', '.join(said[1:])))}{hint}")
    return found


def coincide(ranks: Sequence[int], records: Sequence[dict[str, Any]]) -> list[str]:
    """Which ranks take themselves for the same one, and so draw the same; a sentence for each."""
    found = []
    for field in _OWN:
        holders: dict[str, list[int]] = {}
        for rank, record in zip(ranks, records, strict=True):
            if record.get(field) is not None:
                holders.setdefault(json.dumps(record[field]), []).append(rank)
        twice = [(text, held) for text, held in holders.items() if len(held) > 1]
        for text, held in twice[:_NAMED]:
            what = f"each must be another rank to init, and rank {text}"
            if field == "place":
                what = f"each must have its own place in the mesh, and {text}"
            found.append(f"{what} is told on {_name(held)}")
        if found:
            advice = "call init after init_process_group, or give it each rank's own rank= or mesh="
            return [*found[:-1], f"{found[-1]} ({advice})"]
    return found


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {size}" for name, size in value.items())
    return validation.describe(value)


def _against(value: Any, usual: Any) -> str:
    """A value beside the usual one; of long lists only what is more or less."""
    if not isinstance(value, list) or not isinstance(usual, list):
        return _show(value)
    more, less = sorted(set(value) - set(usual)), sorted(set(usual) - set(value))
    parts = [f"with {validation.describe(more)}"] if more else []
    return " and ".join(parts + ([f"without {validation.describe(less)}"] if less else []))


def _name(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_NAMED])) + (
        f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    )
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _conclude(verdict: dict[str, Any]) -> None:
    if verdict.get("missing"):
        raise TimeoutError(
            f"fastseed.verify_agreement: {_name(verdict['missing'])} did not call it within "
            f"{verdict['seconds']:g} seconds of the others; look there for what went wrong first"
        )
    if verdict["differ"]:
        raise RuntimeError(
            f"fastseed.verify_agreement: all ranks must agree, but {'; '.join(verdict['differ'])}"
        )

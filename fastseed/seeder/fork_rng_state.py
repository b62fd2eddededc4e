"""The part of an exact state that belongs to ``fork_rng`` and to the mesh.

``rng.<rank>.<name>/torch.cpu`` (and ``/torch.cuda``, ...) is where each continuing stream is; a
new rank takes those that all ranks share from the lowest rank that has them.
``rng.<rank>.process.mesh`` is the fingerprint of the mesh: on another mesh other ranks share a
stream, so exact states are left out there and only the coordinates carry over.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from ..distributed.mesh import STATE as MESH
from ..distributed.mesh import RankFields
from ..generators.adapter import pack
from .fork_rng import ForkRng, LoadedState
from .registry import Registry
from .state import RNG, mesh_of, split_key

logger = logging.getLogger("fastseed")


def save(fork_rng: ForkRng, rank_fields: RankFields) -> dict[str, torch.Tensor]:
    """Return the entries of an exact state."""
    prefix = f"{RNG}{rank_fields.rank}."
    entries = {prefix + name: held for name, held in fork_rng.states().items()}
    fingerprint = rank_fields.fingerprint()
    if fingerprint:
        entries[prefix + MESH] = pack(fingerprint.encode())
    return entries


def split(
    state: Any, fork_rng: ForkRng, rank_fields: RankFields, registry: Registry
) -> tuple[Any, dict[str, LoadedState]]:
    """Return the state without these entries, and what ``ForkRng.load_states`` takes.

    Raises:
        ValueError: an entry is damaged, or belongs to an accelerator that is not here.
    """
    if not isinstance(state, dict):
        return state, {}
    rank = rank_fields.rank
    own = _entries(state, rank)
    if not own:
        lowest = _lowest_rank(state, rank_fields)
        if lowest is None:
            return state, {}
        return state, _read(_entries(state, lowest), fork_rng, registry, own=False)[0]
    rest = dict(state)
    fingerprint, here = mesh_of(state, rank), rank_fields.fingerprint()
    if MESH in own:
        del rest[own.pop(MESH)[0]]
    if fingerprint != here:
        logger.warning(
            "fastseed.load_state_dict: the exact states of rank %d are dropped: they are of mesh "
            "%s, and this process has mesh %s",
            *(rank, fingerprint or "None", here or "None"),
        )
        for name, (key, _) in own.items():
            entry = registry.find(name)
            if entry is None or not entry.shared:
                del rest[key]
        return rest, {}
    loaded, used = _read(own, fork_rng, registry, own=True)
    for name in used:
        rest.pop(own[name][0])
    return rest, loaded


def _entries(state: dict[Any, Any], rank: int) -> dict[str, tuple[str, Any]]:
    """Return (key, value) of a rank's exact states by stream name."""
    prefix = f"{RNG}{rank}."
    keys = [key for key in state if isinstance(key, str) and key.startswith(prefix)]
    return {key[len(prefix) :]: (key, state[key]) for key in keys}


def _lowest_rank(state: dict[Any, Any], rank_fields: RankFields) -> int | None:
    """Return the lowest rank with exact states if its mesh is that of this rank."""
    keys = [key for key in state if isinstance(key, str) and key.startswith(RNG)]
    if not keys or type(state.get("world_size")) is not int:
        return None
    lowest = min(split_key("load_state_dict", key, state["world_size"])[0] for key in keys)
    return lowest if rank_fields.shares_mesh(mesh_of(state, lowest)) else None


def _read(
    entries: dict[str, tuple[str, Any]], fork_rng: ForkRng, registry: Registry, own: bool
) -> tuple[dict[str, LoadedState], set[str]]:
    """Read the named streams among these entries; others are of registered generators."""
    named = {name: held for name, held in entries.items() if registry.find(name) is None}
    return fork_rng.check_states(named, own)

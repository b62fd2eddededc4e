"""What a seeder's exact state holds beside that of its generators: named streams, and its mesh.

Under ``rng.<rank>.<name>/torch.cpu`` (and ``/torch.cuda``, …) where each stream of ``fork`` goes
on; a new rank takes those that all ranks share from the lowest one. Under
``rng.<rank>.process.mesh``, where there is a mesh, its text: on another mesh other ranks share a
stream, so exact states are then left out and only coordinates carry over.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from .._utils import validation
from ..derivation import streams
from ..distributed.mesh import STATE as MESH
from ..generators.accelerator import AcceleratorGenerators
from ..generators.adapter import pack
from ..generators.torch_rng import TorchGenerator
from .state import RNG, is_bytes, mesh_of, split_key
from .stream_stack import CPU, State

logger = logging.getLogger("fastseed")


def save(seeder: Any) -> dict[str, torch.Tensor]:
    """The entries of an exact state."""
    prefix = f"{RNG}{seeder.rank}."
    entries = {}
    held = {
        n: s for n, s in seeder.forks.resumed.items() if not s.borrowed
    }  # not entered again since
    held.update((s.name, s.held) for s in seeder.forks.streams.values() if s.held is not None)
    for name, state in sorted(held.items()):
        entries[f"{prefix}{name}/{CPU}"] = TorchGenerator(state.cpu).state()
        for accelerator, devices in zip(seeder.accelerators, state.devices, strict=True):
            if isinstance(devices, list) and devices:
                entries[f"{prefix}{name}/{accelerator.name}"] = torch.cat(devices)
    text = seeder.rank_fields.text()
    if text:
        entries[prefix + MESH] = pack(text.encode())
    return entries


def split(seeder: Any, state: Any) -> tuple[Any, dict[str, State]]:
    """The state without these entries, and where named streams go on; nothing has changed.

    Raises:
        ValueError: one of them is damaged, or of an accelerator that is not here.
    """
    if not isinstance(state, dict):
        return state, {}
    prefix = f"{RNG}{seeder.rank}."
    own = {k[len(prefix) :]: k for k in state if isinstance(k, str) and k.startswith(prefix)}
    if not own:
        return state, _of_the_lowest(seeder, state)
    if not seeder.rank_fields.text() and not any("/" in name or name == MESH for name in own):
        return state, {}  # as most states are: three generators and what was registered
    rest = dict(state)
    text = mesh_of(state, seeder.rank)
    rest.pop(own.pop(MESH, ""), None)
    if text != seeder.rank_fields.text():
        logger.warning(
            "fastseed.load_state_dict: the exact states of rank %d are dropped: they are of "
            "mesh (%s) and this is mesh (%s)",
            seeder.rank,
            text,
            seeder.rank_fields.text(),
        )
        for name, key in own.items():
            entry = seeder.registry.find(name)
            if entry is None or not entry.shared:
                del rest[key]
        return rest, {}
    return rest, _named(seeder, rest, prefix, own)


def _of_the_lowest(seeder: Any, state: dict[Any, Any]) -> dict[str, State]:
    """For a rank without states of its own: the lowest one's, for streams that all ranks share."""
    keys = [k for k in state if isinstance(k, str) and k.startswith(RNG)]
    if not keys or type(state.get("world_size")) is not int:
        return {}
    lowest = min(split_key("load_state_dict", key, state["world_size"])[0] for key in keys)
    if not seeder.rank_fields.alike(mesh_of(state, lowest)):
        return {}
    prefix = f"{RNG}{lowest}."
    own = {key[len(prefix) :]: key for key in keys if key.startswith(prefix)}
    resumed = _named(seeder, dict(state), prefix, own)
    for held in resumed.values():
        held.borrowed = True
    return resumed


def _named(seeder: Any, rest: dict[str, Any], prefix: str, own: dict[str, str]) -> dict[str, State]:
    """Takes the named streams among these keys out of ``rest``."""
    resumed = {}
    for name, key in own.items():
        stream, _, kind = name.rpartition("/")
        if kind != CPU or not stream or seeder.registry.find(name) is not None:
            continue
        generator = torch.Generator()
        sink = TorchGenerator(generator)
        _check(key, sink, rest[key])
        sink.load_state(rest.pop(key))
        devices = [_devices(a, rest, f"{prefix}{stream}/{a.name}") for a in seeder.accelerators]
        resumed[stream] = State(generator, devices)
    return resumed


def resume(seeder: Any, resumed: dict[str, State]) -> None:
    """Let the named streams go on there."""
    for name, state in resumed.items():
        stream = seeder.forks.streams.get(name)
        if stream is None:
            seeder.forks.resumed[name] = state
        elif not (state.borrowed and stream.place != streams.SHARED):
            state.borrowed = False
            stream.held = state


def _check(key: str, sink: TorchGenerator, held: Any) -> None:
    if not is_bytes(held):
        raise ValueError(
            f"fastseed.load_state_dict: state[{key!r}] must be a 1-D uint8 tensor, "
            f"got {validation.describe(held)}"
        )
    try:
        sink.check_state(held)
    except ValueError as error:
        raise ValueError(f"fastseed.load_state_dict: state[{key!r}] is damaged: {error}") from error


def _devices(accelerator: AcceleratorGenerators, state: dict[str, Any], key: str) -> Any:
    """The states of one kind of device; None where there are none, which begins anew."""
    held = state.pop(key, None)
    if held is None:
        return None
    generators = accelerator.generators()
    if not is_bytes(held) or not generators or held.numel() % len(generators):
        raise ValueError(
            f"fastseed.load_state_dict: state[{key!r}] must hold states of the {len(generators)} "
            f"initialised devices, got {validation.describe(held)}"
        )
    parts = list(held.cpu().chunk(len(generators)))
    for generator, part in zip(generators, parts, strict=True):
        _check(key, TorchGenerator(generator), part)
    return [part.clone() for part in parts]

"""Find the states of generators in a tree of plain data, by their form, and name their streams."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._utils import strict_json
from ...generators.adapter import MT19937_BYTES, unpack_mt19937
from ...generators.torch_rng import CPU_STATE
from . import archives
from .archives import Tree
from .folders import Part
from .generator_state import BIT_GENERATORS, GeneratorState, make_cuda, make_mt19937, make_state
from .inert_pickle import Thing, Unreadable

_MOST_VISITS = 500_000
_MOST_DEPTH = 24
_MOST_ENTRIES = 20_000_000  # of lists and dicts, counted again at every visit
_MOST_STATES = 10_000
_NOT_OF_STATE = ("has_gauss", "gauss", "seed_seq")
_MOST_KEYS = 16  # of a dict in the state of a bit generator, which has at most six
_MT_WORDS = 624
_ACCELERATORS = re.compile("cuda|xpu|mlu|musa|npu|hpu")
_RANDOM = re.compile("cuda|xpu|mlu|musa|npu|hpu|rng|random|seed|generator", re.IGNORECASE)
# The keys of a dict that Megatron puts into a list, by data-parallel rank.
_MEGATRON = re.compile("(random|np|torch|cuda)_rng_state|rng_tracker_states")
_OURS = re.compile(r"rng\.(\d+)\.(.+)$")  # the exact state of a rank in a state of fastseed

_Path = tuple[str, ...]


class Found(NamedTuple):
    """A state in a checkpoint."""

    owner: str
    """Its rank: ``"rank 3"``, ``"mp_rank_00"``, ``"shard 0.1 of 1.2"``; "" if it has none."""
    stream: str
    """Its generator: ``"python"``, ``"numpy"``, ``"torch.cpu"``, ``"torch.cuda:0"``, …"""
    source: str
    """The file, and the keys in it."""
    writer: int | None
    """The rank that wrote it, where the format says so."""
    state: GeneratorState


def states_in(part: Part) -> Iterator[Found]:
    """Yield the states in a part of a checkpoint."""
    for path, owner, stream, state in _walk((part.key,) if part.key else (), part.tree):
        keys = ".".join(filter(None, path))
        source = f"{part.source}: {keys}" if keys else part.source
        held_by = owner or part.owner
        at = next((i for i, key in enumerate(path) if _MEGATRON.fullmatch(key)), 0)
        if at and path[at - 1].isdecimal() and path[at - 1] != "0":
            held_by = f"{held_by}, data-parallel rank {path[at - 1]}"
        yield Found(held_by, stream, source, part.writer, state)


def world_size_in(part: Part) -> int | None:
    """Return the number of ranks that the arguments of a Megatron job say; None for others."""
    arguments = part.tree.root.get("args") if isinstance(part.tree.root, dict) else None
    held = arguments.state if isinstance(arguments, Thing) else None
    size = held.get("world_size") if isinstance(held, dict) else None
    return size if type(size) is int and 0 < size < 2**24 else None


def _walk(path: _Path, tree: Tree) -> Iterator[tuple[_Path, str, str, GeneratorState]]:
    """Yield path, owner, stream and state of each state, after at most so many visits."""
    stack = [iter([(path, tree.root)])]  # one iterator for each level
    visits = entries = states = 0
    while stack:
        visit = next(stack[-1], None)
        if visit is None:
            stack.pop()
            continue
        path, node = visit
        visits += 1
        entries += len(node) if isinstance(node, (dict, list, tuple)) else 3
        if visits > _MOST_VISITS or entries > _MOST_ENTRIES:
            raise Unreadable(f"it holds more than {_MOST_VISITS} objects")
        before = states
        for found in _recognize(tree, path, node):
            states += 1
            if states > _MOST_STATES:
                raise Unreadable(f"it holds more than {_MOST_STATES} states")
            yield (path, *found)
        if states == before and len(path) < _MOST_DEPTH:
            stack.append(_below(path, node))


def _below(path: _Path, node: Any) -> Iterator[tuple[_Path, Any]]:
    """Yield what is in a node and may hold a state, with its path."""
    if isinstance(node, dict):
        yield from (((*path, _key(key)), held) for key, held in node.items() if _may_hold(held))
    elif isinstance(node, (list, tuple)):
        yield from (((*path, str(i)), held) for i, held in enumerate(node) if _may_hold(held))
    elif isinstance(node, Thing):
        parts = (node.args, node.state, node.items)
        yield from (((*path, ""), held) for held in parts if _may_hold(held))


def _may_hold(value: Any) -> bool:
    kinds = (dict, list, tuple)
    return isinstance(value, (Thing, torch.Tensor)) or (isinstance(value, kinds) and len(value) > 0)


def _key(key: Any) -> str:
    return key[:100] if isinstance(key, str) else "…"


# ---------------------------------------------------------------- forms


def _recognize(
    tree: Tree, path: _Path, node: Any, *, inner: bool = False
) -> Iterator[tuple[str, str, GeneratorState]]:
    """Yield owner, stream and state if a node is one; of several GPUs there may be several.

    A state of fastseed in a tensor is decoded, but not one in the tensors of such a state
    (``inner``).
    """
    for stream, read in (("python", _python), ("numpy", _numpy)):
        state = None if isinstance(node, (Thing, torch.Tensor)) else read(node)
        if state is not None:
            known = stream == "python" or state.algorithm == "MT19937"
            yield "", stream if known else f"numpy.{state.algorithm}", state
            return
    data = archives.tensor_bytes(tree, node)
    if data is None:
        return
    ours = _OURS.search(path[-1]) if path else None
    if data.startswith(b"fastseed"):
        for key, tensor in ({} if inner else archives.decode_fastseed(data)).items():
            yield from _recognize(tree, (key,), tensor, inner=True)
    elif ours:
        for stream, state in _ours(ours[2], data):
            yield f"rank {ours[1]}", stream, state
    elif len(data) == CPU_STATE.itemsize and (cpu := _torch_cpu(data)) is not None:
        yield "", "torch.cpu", cpu
    elif len(data) == 16 and any(map(_RANDOM.search, path)):
        seed, offset = struct.unpack("<Qq", data)
        yield "", _accelerator(path), make_cuda(seed, offset)


def _python(node: Any) -> Any:
    """Return the state of ``random.getstate()``."""
    if not (isinstance(node, (list, tuple)) and len(node) == 3):
        return None
    version, words, gauss = node
    if type(version) is not int or version not in (2, 3) or not _are_ints(words, _MT_WORDS + 1):
        return None
    cached = [gauss] if isinstance(gauss, float) else []
    return _try(make_mt19937, words[:-1], words[-1], cached)


def _numpy(node: Any) -> Any:
    """Return the state of a ``numpy.random.RandomState`` or of a bit generator."""
    if isinstance(node, (list, tuple)):
        legacy = 3 <= len(node) <= 5 and isinstance(node[0], str) and node[0] == "MT19937"
        return _try(_legacy_numpy, *node) if legacy else None
    if isinstance(node, dict) and "bit_generator" in node:
        return _try(_bit_generator, node)
    return None


def _legacy_numpy(
    _: str, words: Any, position: Any, has_gauss: Any = 0, gauss: Any = 0.0
) -> GeneratorState:
    if isinstance(words, Thing):
        words = archives.array_of(words)
    elif not _are_ints(words, _MT_WORDS):
        raise ValueError("its words are not 624 numbers")
    if not isinstance(position, int) or len(words) != _MT_WORDS:
        raise ValueError("it is no state of MT19937")
    made: GeneratorState = make_mt19937(words, position, [gauss] if has_gauss == 1 else [])
    return made


def _bit_generator(node: dict[Any, Any]) -> GeneratorState:
    kind = node["bit_generator"]
    if not (isinstance(kind, str) and kind in BIT_GENERATORS and isinstance(node["state"], dict)):
        raise ValueError("it is no state of a bit generator")
    cached = [node["gauss"]] if node.get("has_gauss") == 1 else []
    if len(node) > _MOST_KEYS:
        raise ValueError("it has more than the state of a bit generator")
    return make_state(_plain({k: v for k, v in node.items() if k not in _NOT_OF_STATE}), cached)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return the content of a state of a bit generator, with arrays; ValueError for others."""
    if isinstance(value, dict):
        if depth == 3 or len(value) > _MOST_KEYS:
            raise ValueError("it has more than the state of a bit generator")
        return {key: _plain(held, depth + 1) for key, held in value.items()}
    if isinstance(value, Thing):
        value = archives.array_of(value)
        if value is None or len(value) > _MT_WORDS:
            raise ValueError("it has an object that is no array")
    elif isinstance(value, (list, tuple)):
        if not _are_ints(value, len(value)):
            raise ValueError("it has a list that is not of numbers")
        return np.array(value, dtype=np.uint64)
    return value


def _are_ints(words: Any, count: int) -> bool:
    """Return whether these are so many plain numbers, and not more than a state can have."""
    if not isinstance(words, (list, tuple)) or len(words) != count or count > _MT_WORDS + 1:
        return False
    return all(type(word) is int for word in words)


def _torch_cpu(data: bytes) -> Any:
    """Return the state of ``torch.get_rng_state()``."""
    held = np.frombuffer(data, CPU_STATE)[0]
    cached = [float(held["normal"])] if held["has_normal"] else []
    cached += [float(held["float_normal"])] if held["has_float_normal"] else []
    used = 625 - int(held["left"])  # 624 after seeding: the next word is of a new block
    return _try(make_mt19937, held["words"], used, cached, int(held["seed"]))


def _ours(stream: str, data: bytes) -> Iterator[tuple[str, GeneratorState]]:
    """Yield the streams in an exact state of fastseed; of an accelerator, one for each device."""
    held = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    if len(data) == CPU_STATE.itemsize and (cpu := _torch_cpu(data)) is not None:
        yield stream, cpu
    elif _ACCELERATORS.search(stream) and len(data) % 16 == 0:
        for i, (seed, offset) in enumerate(struct.iter_unpack("<Qq", data)):
            yield f"{stream}:{i}", make_cuda(seed, offset)
    elif data[:1] == b"{":  # of a NumPy generator; the others are bytes
        state = _numpy(_try(strict_json.parse, data))
        yield from [] if state is None else [(stream, state)]
    elif data[MT19937_BYTES : MT19937_BYTES + 1] not in (b"", b"{"):
        return
    elif (found := _try(unpack_mt19937, held[:MT19937_BYTES])) is not None:
        words, position, gauss = found
        cached = [] if gauss is None else [gauss]
        yield stream, make_mt19937(np.frombuffer(words, "<u4"), position, cached)


def _accelerator(path: _Path) -> str:
    """Return the stream of a 16-byte state: ``torch.cuda:0``, ``torch.cuda.model-parallel-rng``."""
    *before, last = [part for part in path if part]
    device = _ACCELERATORS.search(".".join(path))
    name = f"torch.{device[0] if device else 'cuda'}"
    if re.fullmatch(r"\d+", last):
        return f"{name}:{last}"
    return name if _ACCELERATORS.search(last) or not before else f"{name}.{last}"


def _try(make: Any, *arguments: Any) -> Any:
    """Return what ``make`` returns; None if NumPy or fastseed refuses the values."""
    try:
        return make(*arguments)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError):
        return None

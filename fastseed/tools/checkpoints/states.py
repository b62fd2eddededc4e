"""Find the states of generators in a tree of plain data, by their form, and name their streams."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..._utils import StateDict
from ...debug.exact_state import (
    BIT_GENERATORS,
    GeneratorState,
    make_cuda,
    make_mt19937,
    read_adapter,
    read_numpy,
    read_torch_cpu,
)
from ...generators.adapter import pack
from .folders import Part, noted
from .pickles import Opaque, Tree, Unreadable, check_sha256, read_tree, tensor_bytes

A = TypeVar("A")
T = TypeVar("T")

_MAX_VISITS = 500_000
_MAX_DEPTH = 24
_MAX_ENTRIES = 20_000_000  # of lists and dicts, counted again at every visit
_MAX_STATES = 10_000
_MAX_KEYS = 16  # of a dict in the state of a bit generator, which has at most six
_MT_WORDS = 624
_ACCELERATORS = re.compile("cuda|xpu|mlu|musa|npu|hpu")
_RANDOM = re.compile("cuda|xpu|mlu|musa|npu|hpu|rng|random|seed|generator", re.IGNORECASE)
# The keys of a dict that Megatron puts into a list, by data-parallel rank.
_MEGATRON = re.compile("(random|np|torch|cuda)_rng_state|rng_tracker_states")
# The exact state of a rank in a state of fastseed, and a tensor of fastseed.checkpoint.
_FASTSEED_STATE = re.compile(r"rng\.(\d{1,9})\.(.+)$")
_FASTSEED_TENSOR = re.compile(r"(^|\.)fastseed_(job|rank_\d{1,9})$")

Path = tuple[str, ...]


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


def states_in(part: Part, problems: list[str]) -> Iterator[Found]:
    """Yield the states in a part of a checkpoint; what is damaged is added to ``problems``."""

    def recognize(path: Path, node: object) -> Iterator[tuple[str, str, GeneratorState]]:
        with noted(source_of(part, path), problems):
            yield from _recognize(part.tree, path, node)

    for path, found in walk(part, recognize):
        owner, stream, state = found
        source = source_of(part, path)
        held_by = owner or part.owner
        at = next((i for i, key in enumerate(path) if _MEGATRON.fullmatch(key)), 0)
        if at and path[at - 1].isdecimal() and path[at - 1] != "0":
            held_by = f"{held_by}, data-parallel rank {path[at - 1]}"
        yield Found(held_by, stream, source, part.writer, state)


def source_of(part: Part, path: Path) -> str:
    """Return the file, and the keys in it."""
    keys = ".".join(filter(None, path))
    return f"{part.source}: {keys}" if keys else part.source


def world_size_in(part: Part) -> int | None:
    """Return the number of ranks that the arguments of a Megatron job say; None for others."""
    match part.tree.root:
        case {"args": Opaque(state={"world_size": int(size)})} if 0 < size < 2**24:
            return size
    return None


def walk(part: Part, recognize: Callable[[Path, object], Iterable[T]]) -> Iterator[tuple[Path, T]]:
    """Yield each path with what ``recognize`` returns for it, after at most so many visits.

    Below a node that is recognized nothing is searched.
    """
    path: Path = (part.key,) if part.key else ()
    stack: list[Iterator[tuple[Path, object]]] = [iter([(path, part.tree.root)])]  # one a level
    visits = entries = states = 0
    while stack:
        visit = next(stack[-1], None)
        if visit is None:
            stack.pop()
            continue
        path, node = visit
        visits += 1
        entries += len(node) if isinstance(node, (dict, list, tuple)) else 3
        if visits > _MAX_VISITS or entries > _MAX_ENTRIES:
            raise Unreadable(f"it holds more than {_MAX_VISITS} objects")
        before = states
        for found in recognize(path, node):
            states += 1
            if states > _MAX_STATES:
                raise Unreadable(f"it holds more than {_MAX_STATES} states")
            yield path, found
        if states == before and len(path) < _MAX_DEPTH:
            stack.append(_below(path, node))


def _below(path: Path, node: object) -> Iterator[tuple[Path, object]]:
    """Yield what is in a node and may hold a state, with its path."""
    items: Iterable[tuple[object, object]] = ()
    if isinstance(node, dict):
        items = node.items()
    elif isinstance(node, (list, tuple)):
        items = ((str(i), held) for i, held in enumerate(node))
    elif isinstance(node, Opaque):
        items = (("", held) for held in (node.args, node.state, node.items))
    for key, held in items:
        if isinstance(held, Opaque) or (isinstance(held, (dict, list, tuple)) and held):
            yield (*path, key[:100] if isinstance(key, str) else "…"), held


# ---------------------------------------------------------------- forms


def _recognize(tree: Tree, path: Path, node: object) -> Iterator[tuple[str, str, GeneratorState]]:
    """Yield owner, stream and state if a node is one; of several GPUs there may be several."""
    if isinstance(node, (dict, list, tuple)):
        if (named := _try(_host_state, node)) is not None:
            yield "", *named
        return
    data, name = tensor_bytes(tree, node), path[-1] if path else ""
    if data is None:
        return
    if _FASTSEED_TENSOR.search(name):
        check_sha256(io.BytesIO(data))
        inner = read_tree(io.BytesIO(data))
        for key, held in inner.root.items() if isinstance(inner.root, dict) else ():
            yield from _fastseed_states(key, tensor_bytes(inner, held))
    elif _FASTSEED_STATE.search(name):
        yield from _fastseed_states(name, data)
    elif (cpu := _try(read_torch_cpu, data)) is not None:
        yield "", "torch.cpu", cpu
    elif len(data) == 16 and any(map(_RANDOM.search, path)):
        yield "", _accelerator(path), make_cuda(*struct.unpack("<Qq", data))


def _host_state(node: Any) -> tuple[str, GeneratorState]:
    """Return the stream and the state that Python, a ``RandomState`` or a bit generator saved."""
    match node:
        case [2 | 3, (list() | tuple()) as words, gauss] if len(words) == _MT_WORDS + 1:
            cached = [gauss] if isinstance(gauss, float) else []
            return "python", make_mt19937(words[:-1], words[-1], cached)
        case ["MT19937", words, int(position)]:
            return "numpy", make_mt19937(_words(words), position)
        case ["MT19937", words, int(position), has_gauss, gauss]:
            cached = [gauss] if has_gauss == 1 else []
            return "numpy", make_mt19937(_words(words), position, cached)
        case {"bit_generator": str(kind), "state": {}} if kind in BIT_GENERATORS:
            stream = "numpy" if kind == "MT19937" else f"numpy.{kind}"
            return stream, read_numpy(_plain({**node, "seed_seq": None}))
    raise ValueError("it is no state")


def _words(value: Any) -> list[int]:
    """Return the words of a pickled array or of a list of plain numbers."""
    if isinstance(value, Opaque):
        value = _array(value)
    is_short = isinstance(value, (list, tuple)) and len(value) <= _MT_WORDS
    if is_short and all(type(word) is int for word in value):  # nested lists take long
        return list(value)
    raise ValueError("it is no list of words")


def _plain(value: StateDict, depth: int = 0) -> StateDict:
    """Return the content of a state of a bit generator; ValueError for others."""
    if depth == 3 or len(value) > _MAX_KEYS:
        raise ValueError("it has more than the state of a bit generator")
    found: StateDict = {}
    for key, held in value.items():
        if isinstance(held, dict):
            found[key] = _plain(held, depth + 1)
        else:
            is_plain = isinstance(held, (int, float, str, type(None)))
            found[key] = held if is_plain else _words(held)
    return found


def _array(thing: Opaque) -> list[int]:
    """Return the numbers in a pickled NumPy array of integers."""
    match thing:
        case Opaque(name=(_, "_reconstruct"), state=(_, _, Opaque() as dtype, _, raw)):
            pass
        case Opaque(name=(_, "_frombuffer"), args=(raw, Opaque() as dtype, _, _)):
            pass
        case _:
            raise ValueError("it is no array")
    match raw:  # protocol 2 has no bytes
        case Opaque(name=("_codecs", "encode"), args=(str(text), "latin1")):
            raw = text[: 8 * _MT_WORDS].encode("latin1", "replace")
    match dtype:
        case Opaque(
            args=("u4" | "u8" | "i4" | "i8" as code, *_), state=(_, "<" | ">" as order, *_)
        ):
            return list(np.frombuffer(raw[: 8 * _MT_WORDS], f"{order}{code}").tolist())
    raise ValueError("it is no array of integers")


def _fastseed_states(key: object, data: bytes | None) -> Iterator[tuple[str, str, GeneratorState]]:
    """Yield what an exact state of fastseed holds; of an accelerator, one for each device."""
    named = _FASTSEED_STATE.search(key) if isinstance(key, str) else None
    if named is None or data is None:
        return
    owner, stream = f"rank {named[1]}", named[2]
    found = _try(read_adapter, pack(data))
    if found is not None:
        yield owner, stream, found
    elif _ACCELERATORS.search(stream) and len(data) % 16 == 0:
        for i, (seed, offset) in enumerate(struct.iter_unpack("<Qq", data)):
            yield owner, f"{stream}:{i}", make_cuda(seed, offset)


def _accelerator(path: Path) -> str:
    """Return the stream of a 16-byte state: ``torch.cuda:0``, ``torch.cuda.model-parallel-rng``."""
    *before, last = [part for part in path if part]
    device = _ACCELERATORS.search(".".join(path))
    name = f"torch.{device[0] if device else 'cuda'}"
    if re.fullmatch(r"\d+", last):
        return f"{name}:{last}"
    return name if _ACCELERATORS.search(last) or not before else f"{name}.{last}"


def _try(make: Callable[[A], T], value: A) -> T | None:
    """Return what ``make`` returns; None if it, NumPy or fastseed refuses the value."""
    try:
        return make(value)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError):
        return None

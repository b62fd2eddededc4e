"""Find the states of generators and the journals in a tree of plain data, by their form."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from ..._utils import StateDict, strict_json
from ...data import Lineage
from ...generators.adapter import MT19937_BYTES, pack, unpack, unpack_mt19937
from ...generators.torch_rng import CPU_STATE
from .folders import Part, noted
from .pickles import Opaque, Tensor, check_sha256, read_tree

A = TypeVar("A")
T = TypeVar("T")

_MAX_DEPTH = 24
_ACCELERATORS = re.compile("cuda|xpu|mlu|musa|npu|hpu")
_RANDOM = re.compile("cuda|xpu|mlu|musa|npu|hpu|rng|random|seed|generator", re.IGNORECASE)
# The exact state of a rank in a state of fastseed, and a tensor of fastseed.checkpoint.
_FASTSEED_STATE = re.compile(r"rng\.(\d{1,9})\.(.+)$")
_FASTSEED_TENSOR = re.compile(r"(^|\.)fastseed_(job|rank_\d{1,9})$")
_JOURNAL = '{"format":"fastseed.lineage",'  # with which the text of a journal begins

CUDA = "CUDA Philox"
BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64,
    )
}  # fmt: skip

Path = tuple[str, ...]


@dataclass(frozen=True)
class GeneratorState:
    """The state of a generator; Python's and torch's on the CPU are those of an MT19937."""

    algorithm: str  # the name of a bit generator of NumPy, or CUDA
    text: str  # what the ``state`` of that bit generator takes, or seed and offset, as JSON
    seed: int | None = None  # which torch stores with the state; None for other libraries
    cached: tuple[float, ...] = ()  # Gaussians that were made but not yet returned


class Found(NamedTuple):
    """A state in a checkpoint."""

    owner: str  # "rank 3", or "" for all ranks
    stream: str  # its generator: "python", "numpy", "torch.cpu", "torch.cuda:0", …
    source: str  # the file, and the keys in it
    writer: int | None  # the rank that wrote it, where the format says so
    state: GeneratorState


def states_in(part: Part, problems: list[str]) -> Iterator[Found]:
    """Yield the states in a part of a checkpoint; what is damaged is added to ``problems``."""

    def recognize(path: Path, node: object) -> Iterator[tuple[str, str, GeneratorState]]:
        with noted(_source(part, path), problems):
            yield from _states(path, node)

    for path, (owner, stream, state) in _walk(part, recognize):
        yield Found(owner or part.owner, stream, _source(part, path), part.writer, state)


def journals_in(part: Part) -> Iterator[tuple[str, Lineage]]:
    """Yield each journal with where it is; ValueError if one is damaged."""
    for path, found in _walk(part, _journals):
        source = _source(part, path)
        try:
            given = strict_json.parse(found) if isinstance(found, str) else found
            yield source, Lineage.load(given)  # type: ignore[arg-type]
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error


def _source(part: Part, path: Path) -> str:
    keys = ".".join(filter(None, path))
    return f"{part.source}: {keys}" if keys else part.source


def _walk(part: Part, recognize: Callable[[Path, object], Iterable[T]]) -> Iterator[tuple[Path, T]]:
    """Yield each path with what ``recognize`` returns for it; below it nothing is searched."""
    seen: set[int] = set()  # objects may contain each other

    def visit(path: Path, node: object) -> Iterator[tuple[Path, T]]:
        found = list(recognize(path, node))
        yield from ((path, one) for one in found)
        if not found and id(node) not in seen and len(path) < _MAX_DEPTH:
            seen.add(id(node))
            for key, held in _below(node):
                yield from visit((*path, key), held)

    yield from visit((part.key,) if part.key else (), part.root)


def _below(node: object) -> Iterator[tuple[str, object]]:
    """Yield what is in a node and may hold a state, with its key."""
    items: Iterable[tuple[object, object]] = ()
    if isinstance(node, dict):
        items = node.items()
    elif isinstance(node, (list, tuple)) and not isinstance(node, Tensor):
        items = enumerate(node)
    elif isinstance(node, Opaque):
        items = (("", held) for held in (node.args, node.state, node.items))
    for key, held in items:
        if isinstance(held, (Opaque, dict, list, tuple)):
            yield str(key) if isinstance(key, (str, int)) else "…", held


def _journals(_: Path, node: Any) -> Iterator[object]:
    """Yield the journal that a node is: a contract, a state of steps, or a field of one."""
    match node:
        case {"format": "fastseed.lineage"}:
            yield node
        case {"journal": str(text)} | str(text) if text.startswith(_JOURNAL):
            yield text


def _states(path: Path, node: object) -> Iterator[tuple[str, str, GeneratorState]]:
    """Yield owner, stream and state if a node is one; of several GPUs there may be several."""
    if not isinstance(node, Tensor):
        if (named := _try(_host_state, node)) is not None:
            yield "", *named
        return
    data, name = node.read(), path[-1] if path else ""
    if _FASTSEED_TENSOR.search(name):
        check_sha256(data)
        inner = read_tree(io.BytesIO(data))
        for key, held in inner.items() if isinstance(inner, dict) else ():
            if isinstance(held, Tensor):
                yield from _fastseed_states(key, held.read())
    elif _FASTSEED_STATE.search(name):
        yield from _fastseed_states(name, data)
    elif (cpu := _try(read_torch_cpu, data)) is not None:
        yield "", "torch.cpu", cpu
    elif len(data) == 16 and any(map(_RANDOM.search, path)):
        yield "", _accelerator(path), make_cuda(*struct.unpack("<Qq", data))


def _host_state(node: Any) -> tuple[str, GeneratorState]:
    """Return the stream and the state that Python, a ``RandomState`` or a bit generator saved."""
    match node:
        case [2 | 3, (list() | tuple()) as words, gauss] if len(words) == 625:
            cached = [gauss] if isinstance(gauss, float) else []
            return "python", make_mt19937(words[:-1], words[-1], cached)
        case ["MT19937", words, int(position), has_gauss, gauss]:
            cached = [gauss] if has_gauss == 1 else []
            return "numpy", make_mt19937(words, position, cached)
        case {"bit_generator": str(kind), "state": {}} if kind in BIT_GENERATORS:
            return "numpy" if kind == "MT19937" else f"numpy.{kind}", read_numpy(node)
    raise ValueError("it is no state")


def _fastseed_states(key: str, data: bytes) -> Iterator[tuple[str, str, GeneratorState]]:
    """Yield what an exact state of fastseed holds; of an accelerator, one for each device."""
    named = _FASTSEED_STATE.search(key)
    if named is None:
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
    if last.isdecimal():
        return f"{name}:{last}"
    return name if _ACCELERATORS.search(last) or not before else f"{name}.{last}"


def _try(make: Callable[[A], T], value: A) -> T | None:
    """Return what ``make`` returns; None if it, NumPy or fastseed refuses the value."""
    try:
        return make(value)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError, RecursionError):
        return None


def make_state(
    state: StateDict, cached: Sequence[float] = (), seed: int | None = None
) -> GeneratorState:
    """Return the state of a bit generator of NumPy; ValueError if NumPy does not take it."""
    kind = state["bit_generator"]
    scratch = BIT_GENERATORS[kind](0)
    scratch.state = state  # type: ignore[assignment]
    held: StateDict = dict(scratch.state)
    position = held["state"].get("pos", 0) if kind == "MT19937" else 0
    if not (0 <= held.get("buffer_pos", 0) <= 4 and 0 <= position <= 624):
        raise ValueError("its position is outside its buffer")  # where NumPy would read
    text = json.dumps(held, default=lambda array: array.tolist())
    return GeneratorState(kind, text, seed, tuple(map(float, cached)))


def make_mt19937(
    words: Sequence[int], position: int, cached: Sequence[float] = (), seed: int | None = None
) -> GeneratorState:
    """Return the state of an MT19937, which Python, NumPy and torch on the CPU have."""
    inner = {"key": words, "pos": position}
    return make_state({"bit_generator": "MT19937", "state": inner}, cached, seed)


def make_cuda(seed: int, offset: int) -> GeneratorState:
    """Return the state of torch's generator of a GPU."""
    return GeneratorState(CUDA, json.dumps([seed, offset]), seed)


def read_numpy(state: StateDict) -> GeneratorState:
    """Return the state of a ``numpy.random.RandomState`` or of a bit generator."""
    cached = [state["gauss"]] if state.get("has_gauss") == 1 else []
    of_bits = {k: v for k, v in state.items() if k not in ("has_gauss", "gauss", "seed_seq")}
    return make_state(of_bits, cached)


def read_torch_cpu(data: bytes) -> GeneratorState:
    """Return the state of ``torch.get_rng_state()``."""
    (held,) = np.frombuffer(data, CPU_STATE)
    cached = [float(held[kind]) for kind in ("normal", "float_normal") if held[f"has_{kind}"]]
    used = 625 - int(held["left"])  # 624 after seeding: the next word is of a new block
    return make_mt19937(held["words"].tolist(), used, cached, int(held["seed"]))


def read_adapter(state: torch.Tensor) -> GeneratorState:
    """Return what the adapter of one generator of Python, NumPy or torch on the CPU has written."""
    data = unpack(state)
    if len(data) == CPU_STATE.itemsize:
        return read_torch_cpu(data)
    if data[:1] == b"{":
        return read_numpy(strict_json.parse(data))
    if data[MT19937_BYTES : MT19937_BYTES + 1] not in (b"", b"{"):
        raise ValueError("it has more than the words of an MT19937")
    words, position, gauss = unpack_mt19937(state[:MT19937_BYTES])
    cached = [] if gauss is None else [gauss]
    return make_mt19937(np.frombuffer(words, "<u4").tolist(), position, cached)

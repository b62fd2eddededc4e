"""Find the states of generators and the journals in a tree of plain data, by their form."""

from __future__ import annotations

import contextlib
import io
import json
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..._utils import strict_json
from ...data import Lineage
from ...generators.torch_rng import CPU_STATE
from .folders import Part, noted
from .pickles import Opaque, Tensor, check_sha256, read_tree

_MAX_DEPTH = 24
_ACCELERATORS = re.compile("cuda|xpu|mlu|musa|npu|hpu")
_RANDOM = re.compile(f"{_ACCELERATORS.pattern}|rng|random|seed|generator", re.IGNORECASE)
# The exact state of a rank in a state of fastseed, and a tensor of fastseed.checkpoint.
_FASTSEED_STATE = re.compile(r"rng\.(\d{1,9})\.(.+)$")
_FASTSEED_TENSOR = re.compile(r"(^|\.)fastseed_(job|rank_\d{1,9})$")
_JOURNAL = '{"format":"fastseed.lineage",'  # with which the text of a journal begins

Path = tuple[str, ...]


class GeneratorState(NamedTuple):
    """The state of a generator, as far as it decides numbers."""

    text: str  # words and position, seed and offset, or what else a library saves
    seed: int | None = None  # which torch stores with the state; None for other libraries
    cached: tuple[float, ...] = ()  # Gaussians that were made but not yet returned


class Found(NamedTuple):
    owner: str  # "rank 3", or "" for all ranks
    stream: str  # its generator: "python", "numpy", "torch.cpu", "torch.cuda:0", …
    source: str  # the file, and the keys in it
    state: GeneratorState


def states_in(part: Part, problems: list[str]) -> Iterator[Found]:
    for path, node in _nodes(part):
        source = _source(part, path)
        with noted(source, problems):
            for owner, stream, state in _states(path, node):
                yield Found(owner or part.owner, stream, source, state)


def journals_in(part: Part) -> Iterator[tuple[str, Lineage]]:
    """Yield each journal with where it is; ValueError if one is damaged."""
    for path, node in _nodes(part):
        source = _source(part, path)
        try:
            match node:  # a contract, a state of steps, or the text of a journal
                case {"format": "fastseed.lineage"}:
                    yield source, Lineage.load(node)
                case {"journal": str(text)} | str(text) if text.startswith(_JOURNAL):
                    yield source, Lineage.load(strict_json.parse(text))
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error


def _source(part: Part, path: Path) -> str:
    keys = ".".join(filter(None, path))
    return f"{part.source}: {keys}" if keys else part.source


def _nodes(part: Part) -> Iterator[tuple[Path, Any]]:
    seen: set[int] = set()  # objects may contain each other

    def visit(path: Path, node: object) -> Iterator[tuple[Path, Any]]:
        yield path, node
        if id(node) not in seen and len(path) < _MAX_DEPTH:
            seen.add(id(node))
            for key, held in _below(node):
                yield from visit((*path, key), held)

    return visit((part.key,) if part.key else (), part.root)


def _below(node: object) -> Iterator[tuple[str, object]]:
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


def _states(path: Path, node: object) -> Iterator[tuple[str, str, GeneratorState]]:
    if not isinstance(node, Tensor):
        with contextlib.suppress(TypeError, ValueError, LookupError, RecursionError):  # of no state
            yield from _host_states(node)
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
    elif len(data) == CPU_STATE.itemsize:
        yield "", "torch.cpu", _of_torch(data)
    elif len(data) == 16 and any(map(_RANDOM.search, path)):
        yield "", _accelerator(path), _of_cuda(*struct.unpack("<Qq", data))


def _host_states(node: Any) -> Iterator[tuple[str, str, GeneratorState]]:
    """Yield the state that Python, a ``RandomState`` or a bit generator saved."""
    match node:
        case [2 | 3, (list() | tuple()) as words, gauss] if len(words) == 625:
            cached = (gauss,) if isinstance(gauss, float) else ()
            yield "", "python", GeneratorState(json.dumps([words[:-1], words[-1]]), None, cached)
        case ["MT19937", list() as words, int(position), has_gauss, gauss] if len(words) == 624:
            cached = (float(gauss),) if has_gauss == 1 else ()
            yield "", "numpy", GeneratorState(json.dumps([words, position]), None, cached)
        case {"bit_generator": str(kind), "state": {}}:
            cached = (float(node["gauss"]),) if node.get("has_gauss") == 1 else ()
            held = {k: v for k, v in node.items() if k not in ("has_gauss", "gauss", "seed_seq")}
            stream = "numpy" if kind == "MT19937" else f"numpy.{kind}"
            yield "", stream, GeneratorState(json.dumps(held, sort_keys=True), None, cached)


def _fastseed_states(key: str, data: bytes) -> Iterator[tuple[str, str, GeneratorState]]:
    """Yield what an exact state of fastseed holds; of an accelerator, one for each device."""
    named = _FASTSEED_STATE.search(key)
    if named is None:
        return
    owner, stream = f"rank {named[1]}", named[2]
    if len(data) == CPU_STATE.itemsize:
        yield owner, stream, _of_torch(data)
    elif _ACCELERATORS.search(stream) and len(data) % 16 == 0:
        for i, (seed, offset) in enumerate(struct.iter_unpack("<Qq", data)):
            yield owner, f"{stream}:{i}", _of_cuda(seed, offset)
    else:
        yield owner, stream, GeneratorState(data.hex())


def _accelerator(path: Path) -> str:
    """Return the stream of a 16-byte state: ``torch.cuda:0``, ``torch.cuda.model-parallel-rng``."""
    *before, last = [part for part in path if part]
    device = _ACCELERATORS.search(".".join(path))
    name = f"torch.{device[0] if device else 'cuda'}"
    if last.isdecimal():
        return f"{name}:{last}"
    return name if _ACCELERATORS.search(last) or not before else f"{name}.{last}"


def _of_cuda(seed: int, offset: int) -> GeneratorState:
    return GeneratorState(json.dumps([seed, offset]), seed)


def _of_torch(data: bytes) -> GeneratorState:
    """Return the state of ``torch.get_rng_state()``: words and position as NumPy has them."""
    (held,) = np.frombuffer(data, CPU_STATE)
    cached = [float(held[kind]) for kind in ("normal", "float_normal") if held[f"has_{kind}"]]
    used = 625 - int(held["left"])  # 624 after seeding: the next word is of a new block
    text = json.dumps([held["words"].tolist(), used])
    return GeneratorState(text, int(held["seed"]), tuple(cached))

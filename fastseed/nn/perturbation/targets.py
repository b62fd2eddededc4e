"""The parameters that a perturbation moves, and the noise of some seeds for them.

They have names, keys, memory and logical elements; one operator adds the noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ..._backend import tensors
from ..._backend.ops import perturb as op
from ..._backend.ops.draws import REALS
from ..._backend.ops.keys import reseed_streams_from
from ..._backend.private_torch import version_of
from ..._backend.reference.scalar import signed
from ..._utils import validation
from ...derivation import streams
from ...derivation.scopes import SHARED
from ...random import layout
from ...random.functional import MAX_KEY, key_on, words_of
from ...random.layout import Piece, Shard
from ..initialization.names import Bytes, extent_of, storage_of
from ..module_names import check_prefix, check_shards, part_of, reshard, strip_wrappers, unwrap

_LOW64 = 2**64 - 1
Filter = Callable[[str], object]
_Axes = list[tuple[int, int]]
"""(size, stride among logical elements) of the axes that one dimension of a tensor is a grid of."""


class Part(NamedTuple):
    """Contiguous memory of a parameter, and which logical elements it holds."""

    tensor: torch.Tensor
    layout: list[int]
    """Offset, count of dimensions, sizes, strides; no dimensions: consecutive elements."""


class Target(NamedTuple):
    """A parameter that is moved, under its qualified name."""

    name: str
    parameter: torch.Tensor
    parts: list[Part]


def targets_of(
    function: str,
    model: object,
    prefix: object,
    params: Filter | None,
    shards: Mapping[str, Shard] | None,
) -> list[Target]:
    """Return the selected parameters, each once, under its first name; modules are resharded."""
    rule = "a torch.nn.Module"
    checked = validation.check_instance(function, "model", model, torch.nn.Module, rule)
    prefix = check_prefix(function, prefix)
    if params is not None and not callable(params):
        raise validation.type_error(function, "params", "a function of a name, or None", params)
    kinds = [type(module).__name__ for module in checked.modules()]
    if "FullyShardedDataParallel" in kinds:
        rule = "sharded by fully_shard, not by FullyShardedDataParallel"
        raise validation.type_error(function, "model", rule, model)
    parts = check_shards(function, shards)
    reshard(checked)
    found: dict[str, Target] = {}
    extents: set[tuple[int, int, int]] = set()  # in bytes, with the storage; equal ones are tied
    owned: dict[int, Bytes] = {}  # by storage
    for own_name, tensor in unwrap(checked).named_parameters():
        name = prefix + strip_wrappers(own_name)
        selected = params is None or params(name)
        if not torch.nn.parameter.is_lazy(tensor) and layout.local_part(tensor).numel():
            storage, extent = storage_of(tensor), extent_of(tensor)
            if (storage, *extent) in extents:
                continue
            is_free = owned.setdefault(storage, Bytes()).give(*extent, name)
            if selected and not is_free:
                rule = f"without parameters that overlap in memory (here: {name!r})"
                raise validation.value_error(function, "model", rule, model)
            extents.add((storage, *extent))
        if not selected:
            continue
        if name in found:
            rule = f"without two parameters of the name {name!r}"
            raise validation.value_error(function, "model", rule, model)
        part = parts.pop(name, None)
        found[name] = Target(name, tensor, _parts_of(function, name, tensor, part))
    if parts:
        rule = "by names of selected parameters"
        raise validation.value_error(function, "shards", rule, next(iter(parts)))
    if not found:
        raise validation.value_error(function, "params", "true for a parameter or more", params)
    return list(found.values())


def _parts_of(function: str, name: str, tensor: torch.Tensor, shard: Shard | None) -> list[Part]:
    argument = f"the parameter {name!r}"
    tensors.check_dtype(function, argument, tensor, *REALS)
    local = layout.local_part(tensor)
    tensors.check_dense(function, argument, local)
    tensors.check_data(function, argument, local)
    if local.is_neg():
        raise validation.value_error(function, argument, "without a lazy negation", tensor)
    tensors.check_supported(function, argument, local.device)
    tensors.check_writable(function, argument, local)
    if not local.is_contiguous() and 1 not in local.stride():
        rule = "without gaps between all its elements"
        raise validation.value_error(function, argument, rule, local.stride())
    local, pieces = part_of(function, name, tensor, shard)
    return [part for piece in pieces if local.numel() for part in _of_piece(local, piece)]


def _of_piece(local: torch.Tensor, piece: Piece) -> Iterator[Part]:
    view = local[piece.box] if piece.box else local
    if not piece.sizes and view.is_contiguous():
        yield Part(view, [piece.offset, 0])
        return
    axes = list(zip(piece.sizes, piece.strides, strict=True))
    if not axes:
        axes = [(n, math.prod(view.shape[d + 1 :])) for d, n in enumerate(view.shape)]
    each = len(axes) // max(view.dim(), 1)
    grid = [axes[each * d : each * (d + 1)] for d in range(view.dim())]
    yield from _contiguous(view, grid, piece.offset)


def _contiguous(view: torch.Tensor, grid: list[_Axes], offset: int) -> Iterator[Part]:
    """Cut a view into contiguous ones, with their dimensions in the order of memory."""
    order = sorted(range(view.dim()), key=view.stride, reverse=True)
    view, grid = view.permute(order), [grid[d] for d in order]
    if view.is_contiguous():
        axes = [axis for axes in grid for axis in axes]
        yield Part(view, [offset, len(axes), *(n for n, _ in axes), *(step for _, step in axes)])
        return
    length, stride = grid[0][-1]
    step = grid[0][0][1]
    for i in range(view.size(0)):
        at = offset + i // length * step + i % length * stride
        yield from _contiguous(view[i], grid[1:], at)


class Seed(NamedTuple):
    """A seed of 64 bits, or a key of 128."""

    value: int
    is_key: bool


def check_seed(function: str, argument: str, seed: object) -> Seed:
    if isinstance(seed, torch.Tensor):
        lo, hi = key_on(function, argument, seed, torch.device("cpu"))[0].tolist()
        return Seed(lo | hi << 64, True)
    value = validation.check_int(function, argument, seed, 0, MAX_KEY)
    return Seed(value, value > _LOW64)


def key_function(seeds: Sequence[Seed], noise: str) -> Callable[[str], torch.Tensor]:
    """Return the function of a parameter's name that returns a key for each seed, (n, 2)."""
    values = torch.tensor(
        [signed(seed.value & _LOW64) for seed in seeds], dtype=torch.int64, device="cpu"
    )

    def keys_of(name: str) -> torch.Tensor:
        stream = f"perturb/{noise}/{name}"
        keys = torch.empty(len(seeds), 2, dtype=torch.uint64, device="cpu")
        lo, hi = map(signed, streams.name_words(stream))
        zeros = torch.empty_like(values)
        reseed_streams_from(keys, zeros, values.view(torch.uint64), None, lo, hi)
        for i, (value, is_key) in enumerate(seeds):
            if is_key:
                key = streams.stream_in((value & _LOW64, value >> 64), stream, SHARED).key()
                keys[i] = words_of(key)[0]
        return keys

    return functools.cache(keys_of) if len(seeds) == 1 else keys_of


class Noise:
    """The noise of some seeds for the selected parameters of a model."""

    def __init__(
        self, function: str, model: torch.nn.Module, seeds: list[Seed], noise: object,
        prefix: str, params: Filter | None, shards: Mapping[str, Shard] | None,
    ) -> None:  # fmt: skip
        noise = validation.check_choice(function, "noise", noise, ("normal", "rademacher"))
        self.is_rademacher, self._function = noise == "rademacher", function
        self._keys_of = key_function(seeds, noise)
        with torch.no_grad():
            self.targets = targets_of(function, model, prefix, params, shards)

    def check_scale(self, argument: str, scale: object) -> float:
        """Return a scale that is finite in the types of computation."""
        narrow = any(target.parameter.dtype != torch.float64 for target in self.targets)
        most = float(np.finfo(np.float32 if narrow else np.float64).max)
        return validation.check_float(self._function, argument, scale, -most, most)

    def run(
        self, mode: int, scales: Sequence[float], targets: Sequence[Target],
        steps: Sequence[torch.Tensor] = (), lists: Sequence[torch.Tensor] = (),
    ) -> None:  # fmt: skip
        parts = [(target.name, part) for target in targets for part in target.parts]
        keys = {target.name: self._keys_of(target.name) for target in targets}
        for device in {part.tensor.device for _, part in parts}:
            here = [i for i, (_, part) in enumerate(parts) if part.tensor.device == device]
            with torch.no_grad():
                op.perturb(
                    [parts[i][1].tensor for i in here],
                    [steps[i] for i in here] if steps else [],
                    [lists[i] for i in here] if lists else [],
                    torch.cat([keys[parts[i][0]] for i in here]).to(device),
                    torch.tensor(scales, dtype=torch.float64, device="cpu").to(device),
                    [number for i in here for number in parts[i][1].layout],
                    self.is_rademacher,
                    mode,
                )
        torch.clear_autocast_cache()  # of parameters cast to 16 bits, which have other values now
        for target in targets:  # the DTensor around what was written
            tensor = target.parameter
            if layout.local_part(tensor) is not tensor and not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)


def versions_of(target: Target) -> list[object]:
    """Return what changes when a parameter is written or gets other memory."""
    local = layout.local_part(target.parameter)
    counts = [0 if t.is_inference() else version_of(t) for t in (target.parameter, local)]
    return [*counts, local.data_ptr(), local.shape, local.stride(), local.dtype]

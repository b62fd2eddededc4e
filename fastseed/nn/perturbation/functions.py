"""``perturb_``, ``perturbed`` and ``apply_log``: ``docs/spec/perturb.md`` fixes every bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch

from ..._backend.compile import eager
from ..._backend.ops import perturb as op
from ..._backend.private_torch import version_of
from ..._utils import validation
from ...random.functional import Key
from ...random.layout import Shard, local_part
from ..module_names import sharded_modules
from .targets import Seed, Target, check_seed, key_function, targets_of

Filter = Callable[[str], object]
NoiseName = Literal["normal", "rademacher"]
Scope = Literal["seed", "job"]

_EACH_LISTED = 64  # the list has room for one number of so many; for more, a copy is kept


class _Noise:
    """The noise of some seeds for the selected parameters of a model."""

    def __init__(
        self, function: str, model: torch.nn.Module, seeds: list[Seed], noise: object,
        scope: object, prefix: str, params: Filter | None, shards: Mapping[str, Shard] | None,
    ) -> None:  # fmt: skip
        noise = validation.check_choice(function, "noise", noise, ("normal", "rademacher"))
        self.is_rademacher, self._function = noise == "rademacher", function
        self._keys_of = key_function(function, seeds, scope, noise)
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
        """Run the operator over all parts of ``targets``, one call for each device."""
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
        for target in targets:  # the DTensor around what was written
            tensor = target.parameter
            if local_part(tensor) is not tensor and not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)


@eager
def perturb_(
    model: torch.nn.Module,
    seed: Key,
    scale: float,
    *,
    noise: NoiseName = "normal",
    scope: Scope = "seed",
    prefix: str = "",
    params: Filter | None = None,
    shards: Mapping[str, Shard] | None = None,
) -> None:
    """Add ``scale * z`` to every parameter of a model, in place and without a gradient.

    z is a function of the key of ``seed``, the parameter's qualified name and the logical element
    index: the same on every device and under every sharding. Tied parameters move once, under their
    first name. Modules that ``fully_shard`` has sharded are resharded first.

    Args:
        model: a model of plain tensors or ``DTensor``; float16, bfloat16, float32 or float64.
        seed: an integer in [0, 2**64), or a key: an integer in [2**64, 2**128) or (2,)
            torch.uint64.
        scale: a finite number, rounded once to float32 (float64 for float64 parameters).
        noise: "normal" for standard normal z, "rademacher" for z = 1 or -1.
        scope: "seed": the seed alone decides. "job": the master seed and the task of the last
            ``reseed`` enter too. Keys ignore it.
        prefix: what stands before the names of ``model``, as for ``fastseed.nn.initialize``.
        params: a function of a qualified name that returns whether to move the parameter; None
            moves all.
        shards: by qualified name, the part of a larger parameter that a plain tensor is.

    Raises:
        TypeError, ValueError: an argument is invalid, or no parameter is selected; nothing changed.
        RuntimeError: with ``scope="job"``, before ``init`` or ``reseed``.

    Examples:
        >>> import torch
        >>> model = torch.nn.Linear(2, 2)
        >>> _ = torch.nn.init.zeros_(model.weight)
        >>> fastseed.nn.perturb_(model, seed=7, scale=0.5, noise="rademacher")
        >>> model.weight.abs().tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    function = "nn.perturb_"
    seeds = [check_seed(function, "seed", seed)]
    scale = validation.check_float(function, "scale", scale, -np.inf, np.inf)
    moved = _Noise(function, model, seeds, noise, scope, prefix, params, shards)
    moved.run(op.ADD, [moved.check_scale("scale", scale)], moved.targets)


@eager
def apply_log(
    model: torch.nn.Module,
    log: Iterable[tuple[Key, float]],
    lr: float = 1.0,
    *,
    noise: NoiseName = "normal",
    scope: Scope = "seed",
    each: bool = False,
    prefix: str = "",
    params: Filter | None = None,
    shards: Mapping[str, Shard] | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> None:
    """Add ``lr * scalar * z`` to every parameter, for all (seed, scalar) pairs of a log.

    The entries are added in order, in float32 (float64 for float64 parameters), and the sum is
    stored once. An entry equals ``perturb_`` with its seed and ``scale=lr * scalar``.

    Args:
        model: as for ``perturb_``, as are the arguments that are not listed here.
        log: pairs of a seed or key and a finite scalar.
        lr: a finite factor of all scalars; the product is computed in float64.
        each: store after every entry, which replays a run that called ``perturb_`` for each.
        progress: called with the counts of parameters that have the log, and of all.

    Raises:
        TypeError, ValueError: as ``perturb_``, also for an entry that is no pair.
        RuntimeError: as ``perturb_``.
        KeyboardInterrupt: after an interrupt, with the last parameter that has the whole log; the
            parameters behind it have nothing of it.

    Examples:
        >>> import torch
        >>> model, again = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        >>> _ = again.load_state_dict(model.state_dict())
        >>> for seed, scalar in [(7, -0.3), (8, 0.1)]:
        ...     fastseed.nn.perturb_(model, seed, 0.01 * scalar)
        >>> fastseed.nn.apply_log(again, [(7, -0.3), (8, 0.1)], lr=0.01, each=True)
        >>> torch.equal(model.weight, again.weight)
        True
    """
    function = "nn.apply_log"
    factor = validation.check_float(function, "lr", lr, -np.inf, np.inf)
    mode = op.EACH if validation.check_bool(function, "each", each) else op.ADD
    seeds, scalars = _check_log(function, log)
    moved = _Noise(function, model, seeds, noise, scope, prefix, params, shards)
    scales = [moved.check_scale(f"lr * log[{i}][1]", factor * s) for i, s in enumerate(scalars)]
    total = len(moved.targets)
    for i, target in enumerate(moved.targets):
        before = _versions(target)
        try:
            moved.run(mode, scales, [target])
            progress(i + 1, total)
        except KeyboardInterrupt as error:
            done = i + (_versions(target) != before)
            last = moved.targets[done - 1].name if done else None
            raise KeyboardInterrupt(
                f"fastseed.{function}: interrupted after {done} of {total} parameters, up to "
                f"{last!r}, which have the whole log; the others have nothing of it"
            ) from error


def _check_log(function: str, log: object) -> tuple[list[Seed], list[float]]:
    if not isinstance(log, Iterable) or isinstance(log, (str, Mapping)):
        raise validation.type_error(function, "log", "pairs of a seed and a number", log)
    seeds, scalars = [], []
    for i, entry in enumerate(log):
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            rule = "a pair of a seed and a number"
            raise validation.type_error(function, f"log[{i}]", rule, entry)
        seeds.append(check_seed(function, f"log[{i}][0]", entry[0]))
        number = validation.check_float(function, f"log[{i}][1]", entry[1], -np.inf, np.inf)
        scalars.append(number)
    return seeds, scalars


def _versions(target: Target) -> list[object]:
    """Return what changes when a parameter is written or gets other memory."""
    local = local_part(target.parameter)
    counts = [0 if t.is_inference() else version_of(t) for t in (target.parameter, local)]
    return [*counts, local.data_ptr()]


class _Kept(NamedTuple):
    """What undoes the noise of a parameter, for each part of it."""

    versions: list[object]
    steps: Sequence[torch.Tensor] = ()
    lists: Sequence[torch.Tensor] = ()  # a count, then index and bits of what steps do not undo
    copies: Sequence[torch.Tensor] = ()  # the numbers, where the list would be too long


class Perturbation:
    """What ``perturbed`` gives its block."""

    def __init__(self, noise: _Noise, model: torch.nn.Module, scale: float) -> None:
        self._noise, self._model, self._scale = noise, model, scale
        self._kept: dict[str, _Kept] = {}
        self._is_moving = False  # the versions in _kept are those from before

    @eager
    def __enter__(self) -> Perturbation:
        try:
            self._move()
        except BaseException:
            self._leave()
            raise
        return self

    @eager
    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        written = self._written()
        self._restore([t for t in self._noise.targets if t.name not in written])
        if written and not self._is_moving:
            raise _written_error(written, "all others have their bits from before")

    @eager
    def flip(self) -> None:
        """Move the parameters to where ``perturbed`` with ``scale=-scale`` has them.

        Raises:
            RuntimeError: a parameter was written inside the block; nothing changed.
        """
        written = self._written()
        if written:
            raise _written_error(written, "nothing was moved")
        self._restore(self._noise.targets)
        self._scale = -self._scale
        self._move()

    def _written(self) -> list[str]:
        """Return which parameters were written since they moved or, after an interrupt, did not."""
        kept = ((t, self._kept.get(t.name)) for t in self._noise.targets)
        named = [(t.name, one.versions == _versions(t)) for t, one in kept if one is not None]
        return [name for name, is_same in named if is_same == self._is_moving]

    def _reshard(self) -> None:
        for module in sharded_modules(self._model):
            module.reshard()

    def _move(self) -> None:
        self._reshard()
        self._is_moving = True
        targets = self._noise.targets
        for target in targets:  # before they move, so that an interrupt finds what undoes it
            tensors = [part.tensor for part in target.parts]
            steps = [torch.empty_like(t, dtype=torch.int8) for t in tensors]
            rooms = (2 + t.numel() // _EACH_LISTED for t in tensors)
            lists = [
                t.new_zeros(n, 2, dtype=torch.int64) for n, t in zip(rooms, tensors, strict=True)
            ]
            self._kept[target.name] = _Kept(_versions(target), steps, lists)
        kept = [self._kept[target.name] for target in targets]
        steps = [step for one in kept for step in one.steps]
        lists = [rows for one in kept for rows in one.lists]
        self._noise.run(op.RECORD, [self._scale], targets, steps, lists)
        full, after = [], {}
        for target, one in zip(targets, kept, strict=True):
            counts = [1 + int(rows[0, 0]) for rows in one.lists]
            if any(n >= len(rows) for n, rows in zip(counts, one.lists, strict=True)):
                full.append(target)
            kept_rows = [rows[:n].clone() for n, rows in zip(counts, one.lists, strict=True)]
            after[target.name] = _Kept(_versions(target), one.steps, kept_rows)
        self._kept, self._is_moving = after, False
        if full:
            self._restore(full)
            for target in full:
                copies = [part.tensor.clone() for part in target.parts]
                self._kept[target.name] = _Kept(_versions(target), copies=copies)
            self._noise.run(op.ADD, [self._scale], full)
            for target in full:
                one = self._kept[target.name]
                self._kept[target.name] = _Kept(_versions(target), copies=one.copies)

    def _restore(self, targets: list[Target]) -> None:
        self._reshard()
        kept = [(t, self._kept.pop(t.name)) for t in targets if t.name in self._kept]
        undone = [(target, one) for target, one in kept if not one.copies]
        steps = [step for _, one in undone for step in one.steps]
        self._noise.run(op.UNDO, [self._scale], [target for target, _ in undone], steps)
        with torch.no_grad():
            for target, one in kept:
                for part, copied in zip(target.parts, one.copies, strict=False):
                    part.tensor.copy_(copied)
                for part, rows in zip(target.parts, one.lists, strict=False):
                    bits = op.pattern(part.tensor)
                    listed = rows[1 : 1 + int(rows[0, 0])]
                    bits[listed[:, 0]] = listed[:, 1].to(bits.dtype)


def _written_error(names: list[str], rest: str) -> RuntimeError:
    return RuntimeError(
        "fastseed.nn.perturbed: parameters must not be written inside the block, got writes to "
        f"{', '.join(map(repr, names))}; {rest}"
    )


@eager
def perturbed(
    model: torch.nn.Module,
    seed: Key,
    scale: float,
    *,
    noise: NoiseName = "normal",
    scope: Scope = "seed",
    prefix: str = "",
    params: Filter | None = None,
    shards: Mapping[str, Shard] | None = None,
) -> Perturbation:
    """Add noise to every parameter in a block, which leaves the exact bits that were there.

    It keeps a byte for each element and a list of the few elements that need more, or a copy of a
    parameter where the list would be long. ``flip()`` of what the block gets moves the parameters
    to the other sign.

    Args:
        model: as for ``perturb_``, as are all other arguments. Inside the block nothing may write
            to its parameters; writes through ``.data`` are not seen.

    Raises:
        TypeError, ValueError: as ``perturb_``.
        RuntimeError: as ``perturb_``; and at the end of the block, if a parameter was written
            inside: it is left as it is, and all others are restored.

    Examples:
        >>> import torch
        >>> model, data = torch.nn.Linear(4, 1), torch.ones(4)
        >>> before = model.weight.clone()
        >>> with torch.no_grad(), fastseed.nn.perturbed(model, seed=7, scale=1e-3) as block:
        ...     above = model(data)
        ...     block.flip()
        ...     below = model(data)
        >>> torch.equal(model.weight, before)
        True
    """
    function = "nn.perturbed"
    seeds = [check_seed(function, "seed", seed)]
    scale = validation.check_float(function, "scale", scale, -np.inf, np.inf)
    moved = _Noise(function, model, seeds, noise, scope, prefix, params, shards)
    return Perturbation(moved, model, moved.check_scale("scale", scale))

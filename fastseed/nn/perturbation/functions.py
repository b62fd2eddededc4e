"""``perturb_``, ``perturbed`` and ``apply_log``: ``docs/spec/perturb.md`` fixes every bit."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
import torch

from ..._backend.compile import eager
from ..._backend.ops import perturb as op
from ..._utils import validation
from ...random.functional import Key
from ...random.layout import Shard
from .block import Perturbation
from .targets import Filter, Noise, Seed, check_seed, versions_of

NoiseName = Literal["normal", "rademacher"]


@eager
def perturb_(
    model: torch.nn.Module,
    seed: Key,
    scale: float,
    *,
    noise: NoiseName = "normal",
    prefix: str = "",
    params: Filter | None = None,
    shards: Mapping[str, Shard] | None = None,
) -> None:
    """Add noise to every parameter of a model, in place: ``scale`` times numbers that a seed names.

    A number is a function of the key of ``seed``, the parameter's qualified name and the element's
    place in the whole parameter: the same on every device and under every sharding. Tied parameters
    move once, under their first name. Modules that ``fully_shard`` has sharded are resharded first.

    Args:
        model: a model of plain tensors or ``DTensor``; float16, bfloat16, float32 or float64.
        seed: an integer in [0, 2**64), or a key: an integer in [2**64, 2**128) or (2,)
            torch.uint64.
        scale: a finite number, rounded once to float32 (float64 for float64 parameters).
        noise: "normal" for standard normal numbers, "rademacher" for 1 and -1.
        prefix: what stands before the names of ``model``, as for ``fastseed.nn.initialize``.
        params: a function of a qualified name that returns whether to move the parameter; None
            moves all.
        shards: by qualified name, the part of a larger parameter that a plain tensor is.

    Raises:
        TypeError, ValueError: an argument is invalid, or no parameter is selected; nothing changed.

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
    moved = Noise(function, model, seeds, noise, prefix, params, shards)
    moved.run(op.ADD, [moved.check_scale("scale", scale)], moved.targets)


@eager
def apply_log(
    model: torch.nn.Module,
    log: Iterable[tuple[Key, float]],
    lr: float = 1.0,
    *,
    noise: NoiseName = "normal",
    each: bool = False,
    prefix: str = "",
    params: Filter | None = None,
    shards: Mapping[str, Shard] | None = None,
) -> None:
    """Add the noise of each seed of a log to every parameter, times ``lr`` and the seed's scalar.

    The entries are added in order, in float32 (float64 for float64 parameters), and the sum is
    stored once. An entry equals ``perturb_`` with its seed and ``scale=lr * scalar``.

    Args:
        model: as for ``perturb_``, as are the arguments that are not listed here.
        log: pairs of a seed or key and a finite scalar.
        lr: a finite factor of all scalars; the product is computed in float64.
        each: store after every entry, which replays a run that called ``perturb_`` for each.

    Raises:
        TypeError, ValueError: as ``perturb_``, also for an entry that is no pair.
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
    moved = Noise(function, model, seeds, noise, prefix, params, shards)
    scales = [moved.check_scale(f"lr * log[{i}][1]", factor * s) for i, s in enumerate(scalars)]
    before, i = list(map(versions_of, moved.targets)), 0
    try:
        for i in range(len(before)):
            moved.run(mode, scales, moved.targets[i : i + 1])
    except KeyboardInterrupt as error:
        done = i + (versions_of(moved.targets[i]) != before[i])
        last = moved.targets[done - 1].name if done else None
        raise KeyboardInterrupt(
            f"fastseed.{function}: interrupted after {done} of {len(before)} parameters, up to "
            f"{last!r}, which have the whole log; the others have nothing of it"
        ) from error


def _check_log(function: str, log: object) -> tuple[list[Seed], list[float]]:
    if not isinstance(log, Iterable) or isinstance(log, (str, Mapping, torch.Tensor)):
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


@eager
def perturbed(
    model: torch.nn.Module,
    seed: Key,
    scale: float,
    *,
    noise: NoiseName = "normal",
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
            to its parameters; writes through ``.data`` and by fused optimizers are not seen.

    Raises:
        TypeError, ValueError: as ``perturb_``.
        RuntimeError: in a checkpointed function; and at the end of the block, if a parameter was
            written inside: it is left as it is, and all others are restored.
        KeyboardInterrupt: while it restores, with the parameters that are still moved; they are
            logged, too.

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
    given = (function, model, seeds, noise, prefix, params, shards)
    return Perturbation(functools.partial(Noise, *given), model, scale)

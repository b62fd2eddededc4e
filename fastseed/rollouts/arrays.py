"""Seeds of many rollouts, of each sample of each prompt or one by one. Imports NumPy alone."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .._backend.reference import philox
from .._backend.reference.philox import U64
from .._utils import validation
from .._utils.validation import type_error, value_error
from ..derivation import scopes
from . import identity

if TYPE_CHECKING:
    import torch

    from .identity import Prompt

    Numbers: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]] | torch.Tensor
    Prompts: TypeAlias = Sequence[Prompt] | npt.NDArray[np.integer[Any]] | torch.Tensor

_NAME = "rollouts.seeds"
_PROMPTS = (
    "a sequence of prompts, of shape (n,) if it is an array (for token ids: a list with one "
    "sequence for each prompt, without padding)"
)


def seeds(
    step: int,
    prompts: Prompts,
    samples: int | Numbers,
    turns: int | Numbers = 0,
    *,
    task: int = 0,
    epoch: int = 0,
    name: str = identity.NAME,
    bits: int = 63,
    master_seed: int | None = None,
) -> npt.NDArray[np.int64]:
    """Return the seeds of many rollouts, whatever chunk or worker generates them.

    An integer ``samples`` gives that many rollouts of each prompt: seed (i, k) is
    ``seed(step, prompts[i], k, turn=turns[i], ...)``. An array gives one rollout of each prompt:
    seed i is ``seed(step, prompts[i], samples[i], turn=turns[i], ...)``, and a prompt may repeat.
    It does not load torch.

    Args:
        step: as for ``seed``; so are task, epoch, name, bits and master_seed.
        prompts: n prompts: a sequence of integers, texts and token ids as ``seed`` takes them, or
            an array of n integers.
        samples: the number of rollouts of each prompt; or, of n rollouts, their numbers among
            those of their prompts, in [0, 2**32).
        turns: the n turns, in [0, 2**24 - 1), or the turn of all.

    Returns:
        The seeds, numpy.int64 in [0, 2**bits), of shape (n, samples), or (n,) for an array.

    Raises:
        TypeError, ValueError: as for ``seed``; or an argument has another length; or a rollout is
            there twice: the same prompt, turn and, where ``samples`` is an array, sample.
        RuntimeError: there is no master seed.

    Warns:
        UserWarning: two different rollouts have the same seed of 31 bits.

    Examples:
        >>> prompts = ["2 + 2 =", "Name a prime."]
        >>> seeds = fastseed.rollouts.seeds(7, prompts, 4, master_seed=42)
        >>> seeds.shape
        (2, 4)
        >>> flat = fastseed.rollouts.seeds(7, ["Name a prime."] * 2, [3, 0], master_seed=42)
        >>> flat.tolist() == [seeds[1, 3], seeds[1, 0]]
        True
    """
    key, mask = identity.check_address(_NAME, task, epoch, step, name, bits, master_seed)
    given = _read("prompts", _PROMPTS, prompts)
    words = _words("prompts", given, scopes.MAX_INDEX, identity.word_of)
    if _is_number(turns):
        turn = validation.check_int(_NAME, "turns", turns, 0, scopes.MAX_RANK)
        at_turn = np.array([turn], np.uint64)
    else:
        at_turn = _read_numbers("turns", turns, scopes.MAX_RANK, len(words))
    if _is_number(samples):
        count = validation.check_int(_NAME, "samples", samples, 0, scopes.MAX_WORKER + 1)
        _check_different(given, words, at_turn)
        numbers = np.arange(count, dtype=np.uint64)[None]
    else:
        numbers = _read_numbers("samples", samples, scopes.MAX_WORKER, len(words))[:, None]
    grid = philox.derive_seed_grid(key, at_turn, numbers, words)
    grid &= np.uint64(mask)
    if not _is_number(samples):
        ordered = np.sort(grid[:, 0])
        if (ordered[1:] == ordered[:-1]).any():
            _check_different(given, words, at_turn, numbers[:, 0])
    if bits == 31:
        _warn_of_equal_seeds(grid, words[:, None], numbers, at_turn[:, None])
    return (grid if _is_number(samples) else grid[:, 0]).view(np.int64)


def _is_number(value: Any) -> bool:
    return not hasattr(type(value), "__iter__") or getattr(value, "ndim", 1) == 0


def _check_different(prompts: Any, words: U64, turns: U64, samples: U64 | None = None) -> None:
    """Check that no rollout is there twice: each prompt at each turn gets each sample once."""
    first: dict[tuple[int, ...], int] = {}
    columns = [words, turns, np.zeros(1) if samples is None else samples]
    rows = zip(*(np.broadcast_to(column, len(words)).tolist() for column in columns), strict=True)
    for j, row in enumerate(rows):
        i = first.setdefault(row, j)
        if i != j:
            rule = "different prompts (samples is the number of rollouts of each)"
            if samples is not None:
                rule = "different rollouts: give each its own prompt, sample or turn"
            both = f"prompts[{i}] and prompts[{j}]"
            raise value_error(_NAME, both, rule, (prompts[i], prompts[j]))


def _read_numbers(argument: str, numbers: Any, high: int, length: int) -> U64:
    """Return ``length`` integers of [0, high] as an array."""
    rule = f"a sequence of {length} integers, one for each prompt"
    given = _read(argument, rule, numbers)
    if len(given) != length:
        raise value_error(_NAME, argument, rule, f"{len(given)} of them")
    return _words(argument, given, high, functools.partial(validation.check_int, low=0, high=high))


def _read(argument: str, rule: str, values: Any) -> Any:
    """Return an array of integers as one of NumPy, anything else as a list."""
    unordered = str, bytes, Mapping, set, frozenset
    if isinstance(values, unordered) or not hasattr(type(values), "__iter__"):
        raise type_error(_NAME, argument, rule, values)
    try:
        if not hasattr(values, "__array__"):
            return list(values)
        array = np.asarray(identity.check_data(_NAME, argument, values))
    except (RuntimeError, TypeError, OverflowError) as error:  # a tensor on another device
        raise type_error(_NAME, argument, rule, values) from error
    if array.ndim != 1:
        raise value_error(_NAME, argument, rule, f"the shape {array.shape}")
    return array if array.dtype.kind in "iu" else array.tolist()


def _words(argument: str, given: Any, high: int, read: Callable[[str, str, Any], int]) -> U64:
    """Return values of [0, high] as 64-bit words; ``read`` checks one that is no array's."""
    if not isinstance(given, list):
        if not given.size or 0 <= int(given.min()) <= int(given.max()) <= high:
            return np.array(given, np.uint64)
        given = given.tolist()
    found = [read(_NAME, f"{argument}[{i}]", value) for i, value in enumerate(given)]
    return np.array(found, np.uint64)


def _warn_of_equal_seeds(found: U64, *rollouts: U64) -> None:
    columns = np.broadcast_arrays(found, *rollouts)
    different = np.unique(np.stack([column.reshape(-1) for column in columns]), axis=1)
    equal = different.shape[1] - len(np.unique(different[0]))
    if equal:
        warnings.warn(
            f"fastseed.{_NAME}: {equal} different rollouts have the same 31 bits as others; use "
            "bits=63 if the engine takes it",
            stacklevel=3,
        )

"""Seeds of rollouts that are given as arrays of coordinates. Imports NumPy alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .._backend.reference import philox
from .._backend.reference.philox import U64
from .._utils import validation
from .._utils.validation import type_error, value_error
from ..derivation import scopes
from . import identity
from .identity import Address, PlainPrompt

if TYPE_CHECKING:
    import torch

    from .identity import Prompt

    Numbers: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]] | torch.Tensor
    """A sequence of integers."""
    Prompts: TypeAlias = Sequence[Prompt] | npt.NDArray[np.integer[Any]] | torch.Tensor
    """A sequence of prompts."""

_NAME = "rollouts.seeds"
_PROMPTS = (
    "a sequence of prompts, of shape (n,) if it is an array (for token ids: a list with one "
    "sequence for each prompt, without padding)"
)


def seeds(
    step: int,
    prompts: Prompts,
    samples: Numbers,
    turns: Numbers | int = 0,
    *,
    task: int = 0,
    epoch: int = 0,
    name: str = identity.NAME,
    bits: int = 63,
    master_seed: int | None = None,
) -> npt.NDArray[np.int64]:
    """Return the seeds of rollouts that are given one by one: for flat batches, in any order.

    Seed i is ``seed(step, prompts[i], samples[i], turn=turns[i], ...)``. A prompt may repeat.

    Needs NumPy only, and does not load torch. Where torch is loaded, native code is used.

    Args:
        step: the training step, in [0, 2**64).
        prompts: n prompts: a sequence of integers, texts and token ids as ``seed`` takes them, or
            an array of n integers.
        samples: the numbers of the n rollouts among those of their prompts, in [0, 2**32).
        turns: their n turns, in [0, 2**24 - 1), or the turn of all.
        task: as for ``seed``.
        epoch: as for ``seed``.
        name: as for ``seed``.
        bits: as for ``seed``.
        master_seed: as for ``seed``.

    Returns:
        The seeds, of shape (n,) and dtype numpy.int64, each in [0, 2**bits).

    Raises:
        TypeError, ValueError: an argument is invalid, or has another length, or ``init`` chose
            scheme "fwr13y", which has no keys.
        RuntimeError: there is no master seed.

    Warns:
        UserWarning: two different rollouts have the same seed of 31 bits.

    Examples:
        >>> prompts = ["2 + 2 =", "2 + 2 =", "Name a prime."]
        >>> flat = fastseed.rollouts.seeds(7, prompts, [0, 1, 0], master_seed=42)
        >>> int(flat[1]) == fastseed.rollouts.seed(7, "2 + 2 =", 1, master_seed=42)
        True
    """
    address = identity.check_address(_NAME, task, epoch, step, name, bits, master_seed)
    _, words = read_prompts(_NAME, prompts)
    workers = read_numbers(_NAME, "samples", samples, scopes.MAX_WORKER, len(words))
    if hasattr(type(turns), "__index__") and getattr(turns, "ndim", 0) == 0:
        turn = validation.check_int(_NAME, "turns", turns, 0, scopes.MAX_RANK)
        ranks = np.array([turn], np.uint64)
    else:
        ranks = read_numbers(_NAME, "turns", turns, scopes.MAX_RANK, len(words))
    found = derive(address, ranks, workers[:, None], words)[:, 0]
    if bits == 31:
        _warn_of_equal_seeds(found, words, workers, np.broadcast_to(ranks, len(words)))
    return found


def derive(address: Address, ranks: U64, workers: U64, words: U64) -> npt.NDArray[np.int64]:
    """Return the seeds of the prompts in ``words`` (rows) with their ``workers`` (columns)."""
    grid = (identity.native() or philox).derive_seed_grid
    array: U64 = grid(identity.name_key(address), ranks, workers, words)
    array &= np.uint64(address.mask)
    return array.view(np.int64)


def read_prompts(function: str, prompts: Any) -> tuple[list[PlainPrompt] | U64, U64]:
    """Return prompts in their plain form, and their 64-bit words."""
    given = _read(function, "prompts", _PROMPTS, prompts)
    words = _words(given, scopes.MAX_INDEX)
    if words is not None:
        return given, words
    plain = [identity.read_prompt(function, f"prompts[{i}]", p) for i, p in enumerate(given)]
    return [prompt for prompt, _ in plain], np.array([word for _, word in plain], np.uint64)


def read_numbers(
    function: str, argument: str, numbers: Any, high: int, length: int | None = None
) -> U64:
    """Return a sequence of integers of [0, high] as an array, of this length if there is one."""
    rule = "a sequence of integers, of shape (n,)"
    if length is not None:
        rule = f"a sequence of {length} integers, one for each prompt"
    given = _read(function, argument, rule, numbers)
    if length is not None and len(given) != length:
        raise value_error(function, argument, rule, f"{len(given)} of them")
    words = _words(given, high)
    if words is not None:
        return words
    checked = [
        validation.check_int(function, f"{argument}[{i}]", number, 0, high)
        for i, number in enumerate(given)
    ]
    return np.array(checked, np.uint64)


def _read(function: str, argument: str, rule: str, values: Any) -> Any:
    """Return an array of integers as one of NumPy, anything else as a list."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(type(values), "__iter__"):
        raise type_error(function, argument, rule, values)
    if not hasattr(values, "__array__"):
        return list(values)
    try:
        array = np.asarray(identity.check_data(function, argument, values))
    except (RuntimeError, TypeError) as error:  # a tensor on another device, for example
        raise type_error(function, argument, rule, values) from error
    if array.ndim != 1:
        raise value_error(function, argument, rule, f"the shape {array.shape}")
    return array if array.dtype.kind in "iu" else array.tolist()


def _words(given: Any, high: int) -> U64 | None:
    """Return integers of [0, high] as an array; None if there is anything else among them."""
    if isinstance(given, list):
        if set(map(type, given)) == {int} and 0 <= min(given) <= max(given) <= high:
            return np.array(given, np.uint64)
        return None
    same_bits = given.view(np.uint64) if given.dtype == np.int64 else given.astype(np.uint64)
    if given.dtype.kind == "i":
        high = min(high, 2**63 - 1)  # a negative number has the highest bit
    if same_bits.max(initial=0) > high:
        return None
    return np.require(same_bits, np.uint64, ["C", "W"])


def _warn_of_equal_seeds(found: npt.NDArray[np.int64], *rollouts: U64) -> None:
    """Warn of different rollouts with one seed: likely with 31 bits."""
    rows = np.stack([found.view(np.uint64), *rollouts])
    different, at = np.unique(rows, axis=1, return_index=True)  # sorted by seed
    equal = np.flatnonzero(different[0, 1:] == different[0, :-1])
    if equal.size:
        i, j = sorted(at[equal[0] : equal[0] + 2])
        warnings.warn(
            f"fastseed.{_NAME}: rollouts {i} and {j} have the same seed of 31 bits, {found[i]} "
            f"(pairs in all: {equal.size}); use bits=63 if the engine takes it",
            stacklevel=3,
        )

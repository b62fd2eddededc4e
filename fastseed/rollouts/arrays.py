"""Seeds of many rollouts, of each sample of each prompt or one by one. Imports NumPy alone."""

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

    Needs NumPy, and does not load torch.

    Args:
        step: the training step, in [0, 2**64).
        prompts: n prompts: a sequence of integers, texts and token ids as ``seed`` takes them, or
            an array of n integers.
        samples: the number of rollouts of each prompt; or, of n rollouts, their numbers among
            those of their prompts, in [0, 2**32).
        turns: the n turns, in [0, 2**24 - 1), or the turn of all.
        task: as for ``seed``.
        epoch: as for ``seed``.
        name: as for ``seed``.
        bits: as for ``seed``.
        master_seed: as for ``seed``.

    Returns:
        The seeds, numpy.int64 in [0, 2**bits), of shape (n, samples), or (n,) for an array.

    Raises:
        TypeError, ValueError: an argument is invalid, or has another length; two prompts are
            equal, or have equal identities, where ``samples`` is an integer; ``init`` chose scheme
            "fwr13y", which has no keys.
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
    address = identity.check_address(_NAME, task, epoch, step, name, bits, master_seed)
    given, words = _read_prompts(prompts)
    turn = _read_turns(turns, len(words))
    if _is_number(samples):
        count = validation.check_int(_NAME, "samples", samples, 0, scopes.MAX_WORKER + 1)
        _check_different(given, words, turn)
        numbers = np.arange(count, dtype=np.uint64)[None]
    else:
        numbers = _read_numbers("samples", samples, scopes.MAX_WORKER, len(words))[:, None]
    grid = philox.derive_seed_grid(identity.name_key(address), turn, numbers, words)
    grid &= np.uint64(address.mask)
    found = (grid if _is_number(samples) else grid[:, 0]).view(np.int64)
    if bits == 31:
        _warn_of_equal_seeds(found, words[:, None], numbers, turn[:, None])
    return found


def _is_number(value: Any) -> bool:
    return not hasattr(type(value), "__iter__") or getattr(value, "ndim", 1) == 0


def _read_turns(turns: Any, length: int) -> U64:
    """Return turns as an array of ``length`` or of one turn."""
    if not _is_number(turns):
        return _read_numbers("turns", turns, scopes.MAX_RANK, length)
    turn = validation.check_int(_NAME, "turns", turns, 0, scopes.MAX_RANK)
    return np.array([turn], np.uint64)


def _check_different(prompts: Any, words: U64, turns: U64) -> None:
    """Check that no rollout is there twice: each prompt at each turn gets samples once."""
    rows = np.stack(np.broadcast_arrays(words, turns))
    different, first, which = np.unique(rows, axis=1, return_index=True, return_inverse=True)
    if different.shape[1] == len(words):
        return
    before = first[which.reshape(-1)]
    j = int(np.flatnonzero(before != np.arange(len(words)))[0])
    i = int(before[j])
    rule = "different prompts (samples is the number of rollouts of each)"
    raise value_error(_NAME, f"prompts[{i}] and prompts[{j}]", rule, (prompts[i], prompts[j]))


def _read_prompts(prompts: Any) -> tuple[Any, U64]:
    """Return prompts as an array or a list, and their 64-bit words."""
    given = _read("prompts", _PROMPTS, prompts)
    words = _words(given, scopes.MAX_INDEX)
    if words is None:
        found = [identity.word_of(_NAME, f"prompts[{i}]", p) for i, p in enumerate(given)]
        words = np.array(found, np.uint64)
    return given, words


def _read_numbers(argument: str, numbers: Any, high: int, length: int) -> U64:
    """Return ``length`` integers of [0, high] as an array."""
    rule = f"a sequence of {length} integers, one for each prompt"
    given = _read(argument, rule, numbers)
    if len(given) != length:
        raise value_error(_NAME, argument, rule, f"{len(given)} of them")
    words = _words(given, high)
    if words is not None:
        return words
    checked = [
        validation.check_int(_NAME, f"{argument}[{i}]", number, 0, high)
        for i, number in enumerate(given)
    ]
    return np.array(checked, np.uint64)


def _read(argument: str, rule: str, values: Any) -> Any:
    """Return an array of integers as one of NumPy, anything else as a list."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(type(values), "__iter__"):
        raise type_error(_NAME, argument, rule, values)
    if not hasattr(values, "__array__"):
        return list(values)
    try:
        array = np.asarray(identity.check_data(_NAME, argument, values))
    except (RuntimeError, TypeError) as error:  # a tensor on another device, for example
        raise type_error(_NAME, argument, rule, values) from error
    if array.ndim != 1:
        raise value_error(_NAME, argument, rule, f"the shape {array.shape}")
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
    columns = np.broadcast_arrays(found.view(np.uint64).reshape(len(found), -1), *rollouts)
    rows = np.stack([column.reshape(-1) for column in columns])
    different, at = np.unique(rows, axis=1, return_index=True)  # sorted by seed
    equal = np.flatnonzero(different[0, 1:] == different[0, :-1])
    if equal.size:
        both = " and ".join(
            f"seeds[{', '.join(str(number) for number in np.unravel_index(i, found.shape))}]"
            for i in sorted(at[equal[0] : equal[0] + 2])
        )
        warnings.warn(
            f"fastseed.{_NAME}: {both} are the same 31 bits for different rollouts, "
            f"{different[0, equal[0]]} (pairs in all: {equal.size}); use bits=63 if the engine "
            "takes it",
            stacklevel=3,
        )

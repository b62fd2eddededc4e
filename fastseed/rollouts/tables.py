"""Seeds of every sample of every prompt of a step. Imports NumPy alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .._backend.reference.philox import U64
from .._utils import validation
from .._utils.validation import value_error
from ..derivation import scopes
from . import arrays, identity
from .identity import PlainPrompt

if TYPE_CHECKING:
    from .arrays import Numbers, Prompts

N = TypeVar("N", np.int64, np.uint64)

_NAME = "rollouts.table"


class Rollout(NamedTuple):
    """The coordinates of one rollout, for a log: its seed follows from them alone.

    The fields are the arguments of ``seed``; token ids are a tuple.

    Examples:
        >>> seeds = fastseed.rollouts.table(7, ["Name a prime."], 3, master_seed=42)
        >>> seeds.replay(seeds[0][2])._asdict()["sample"]
        2
    """

    prompt: PlainPrompt
    sample: int
    step: int
    turn: int
    task: int
    epoch: int
    name: str
    bits: int
    master_seed: int


class RolloutSeeds:
    """The seeds of the rollouts of one step: one row for each prompt, one column for each sample.

    A sequence of rows, each a list of ints: ``for prompt, row in zip(prompts, seeds)``.
    ``table`` makes it.

    Args:
        array: the seeds, shape (prompts, samples), numpy.int64.
        prompts: the prompts; token ids as tuples.
        samples: the number of each column's sample, numpy.uint64.
        common: what all rollouts have in common.

    Examples:
        >>> prompts = ["2 + 2 =", "Name a prime."]
        >>> seeds = fastseed.rollouts.table(7, prompts, 3, master_seed=42)
        >>> seeds.array.shape
        (2, 3)
        >>> rollout = seeds.replay(seeds[1][2])
        >>> rollout.prompt, rollout.sample, rollout.step
        ('Name a prime.', 2, 7)
    """

    def __init__(
        self,
        array: npt.NDArray[np.int64],
        prompts: Sequence[PlainPrompt] | U64,
        samples: U64,
        common: dict[str, Any],
    ) -> None:
        self.array, self.prompts, self.samples = array, prompts, samples
        self._common = common

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, position: int) -> list[int]:
        if not isinstance(position, slice):
            function = "rollouts.RolloutSeeds.__getitem__"
            position = validation.check_int(function, "position", position, -(2**63), 2**63 - 1)
        row: list[int] = self.array[position].tolist()
        return row

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.array.tolist())

    def __repr__(self) -> str:
        prompts, samples = self.array.shape
        return f"RolloutSeeds({prompts} prompts, {samples} samples, step {self._common['step']})"

    def replay(self, seed: int) -> Rollout:
        """Return the rollout that has a seed.

        Args:
            seed: one of these seeds.

        Returns:
            Its coordinates. ``table(r.step, [r.prompt], [r.sample], turn=r.turn, ...)``
            gives the seed again.

        Raises:
            TypeError, ValueError: ``seed`` is not the seed of exactly one rollout.
        """
        function = "rollouts.RolloutSeeds.replay"
        seed = validation.check_int(function, "seed", seed, 0, 2**63 - 1)
        found = self._with_seed(seed)
        if len(found) != 1:
            raise value_error(function, "seed", "the seed of one of these rollouts", seed)
        return found[0]

    def _with_seed(self, seed: int) -> list[Rollout]:
        found = []
        for row, column in np.argwhere(self.array == seed).tolist():
            prompt, sample = self.prompts[row], int(self.samples[column])
            prompt = prompt if isinstance(prompt, (str, tuple)) else int(prompt)
            found.append(Rollout(prompt, sample, **self._common))
        return found

    def _warn_of_equal_seeds(self) -> None:
        """Warn of rollouts with one seed: likely with 31 bits."""
        twice = _repeated(self.array.reshape(-1))
        if twice.size:
            both = " and ".join(
                f"sample {found.sample} of prompt {validation.describe(found.prompt)}"
                for found in self._with_seed(int(twice[0]))[:2]
            )
            warnings.warn(
                f"fastseed.{_NAME}: {both} have the same seed of 31 bits, {twice[0]} (pairs in "
                f"all: {twice.size}); use bits=63 if the engine takes it",
                stacklevel=3,
            )


def table(
    step: int,
    prompts: Prompts,
    samples: int | Numbers,
    *,
    turn: int = 0,
    task: int = 0,
    epoch: int = 0,
    name: str = identity.NAME,
    bits: int = 63,
    master_seed: int | None = None,
) -> RolloutSeeds:
    """Return a seed for each sample of each prompt, whatever chunk or worker it is generated on.

    The seed of sample k of a prompt p is ``seed(step, p, k, turn=turn, ...)``. At one point of the
    job different rollouts have different 128-bit keys, of which a seed is the lowest bits.

    Needs NumPy only, and does not load torch. Where torch is loaded, native code is used.

    Args:
        step: the training step, in [0, 2**64).
        prompts: a sequence of different prompts: integers, texts and token ids as ``seed`` takes
            them, or an array of integers.
        samples: the number of rollouts of each prompt, or the numbers of the rollouts, all
            different and in [0, 2**32).
        turn: the turn of a conversation, in [0, 2**24 - 1).
        task: as for ``seed``.
        epoch: as for ``seed``.
        name: as for ``seed``.
        bits: as for ``seed``.
        master_seed: as for ``seed``.

    Returns:
        The seeds, of shape (prompts, samples), each in [0, 2**bits).

    Raises:
        TypeError, ValueError: an argument is invalid, or two prompts are equal or have equal
            identities, or ``init`` chose scheme "fwr13y", which has no keys.
        RuntimeError: there is no master seed.

    Warns:
        UserWarning: two of the rollouts have the same seed of 31 bits.

    Examples:
        >>> prompts = ["2 + 2 =", "Name a prime."]
        >>> seeds = fastseed.rollouts.table(7, prompts, 4, master_seed=42)
        >>> alone = fastseed.rollouts.table(7, prompts[1:], 4, master_seed=42)
        >>> alone[0] == seeds[1]
        True
    """
    address = identity.check_address(_NAME, task, epoch, step, name, bits, master_seed)
    turn = identity.check_turn(_NAME, turn)
    plain, words = arrays.read_prompts(_NAME, prompts)
    _check_different(plain, words)
    numbers = _sample_numbers(samples)
    array = arrays.derive(address, np.array([turn], np.uint64), numbers[None], words)
    found = RolloutSeeds(array, plain.copy(), numbers.copy(), {**address._asdict(), "turn": turn})
    if bits == 31:
        found._warn_of_equal_seeds()
    return found


def _check_different(prompts: Sequence[PlainPrompt] | U64, words: U64) -> None:
    if bool((words[1:] > words[:-1]).all()):  # in order, as identities often are
        return
    equal = _repeated(words)
    if not equal.size:
        return
    i, j = np.flatnonzero(words == equal[0])[:2]
    both = f"prompts[{i}] and prompts[{j}]"
    if prompts[i] == prompts[j]:
        rule = "different prompts (samples is the number of rollouts of each)"
        raise value_error(_NAME, both, rule, prompts[i])
    rule = "of different identities (the low 64 bits of SHA-256 of a text)"
    raise value_error(_NAME, both, rule, (prompts[i], prompts[j]))


def _repeated(values: npt.NDArray[N]) -> npt.NDArray[N]:
    """Return the values that are there more than once."""
    ordered = np.sort(values)
    found: npt.NDArray[N] = ordered[1:][ordered[1:] == ordered[:-1]]
    return found


def _sample_numbers(samples: Any) -> U64:
    if not hasattr(type(samples), "__iter__") or getattr(samples, "ndim", 1) == 0:
        count = validation.check_int(_NAME, "samples", samples, 0, scopes.MAX_WORKER + 1)
        return np.arange(count, dtype=np.uint64)
    numbers = arrays.read_numbers(_NAME, "samples", samples, scopes.MAX_WORKER)
    if _repeated(numbers).size:
        raise value_error(_NAME, "samples", "different numbers", samples)
    return numbers

"""Seeds of rollouts by the global identity of prompt and sample. Imports NumPy alone."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .._backend.reference import philox
from .._backend.reference.philox import U64
from .._utils import environ, validation
from .._utils.types import StateDict
from .._utils.validation import type_error, value_error
from ..derivation import context, coordinates, reserved

N = TypeVar("N", np.int64, np.uint64)

_NAME = "rollouts.table"
_PROMPTS = "a sequence of strings and integers"
_PROMPT = (
    "a string or an integer (for chat messages: the text of apply_chat_template; for token ids: "
    "their text, or the number of the prompt in the dataset)"
)


class Rollout(NamedTuple):
    """The coordinates of one rollout, for a log: its seed follows from them alone.

    The fields are the arguments of ``table``, with one ``prompt`` and one ``sample``.

    Examples:
        >>> seeds = fastseed.rollouts.table(7, ["Name a prime."], 3, master_seed=42)
        >>> seeds.replay(seeds[0][2])._asdict()["sample"]
        2
    """

    prompt: int | str
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
        prompts: the prompts, as they were given.
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
        prompts: Sequence[int | str],
        samples: U64,
        common: StateDict,
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
            prompt = prompt if isinstance(prompt, str) else int(prompt)
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
    prompts: Sequence[int | str],
    samples: int | Sequence[int],
    *,
    turn: int = 0,
    task: int = 0,
    epoch: int = 0,
    name: str = "rollout",
    bits: int = 63,
    master_seed: int | None = None,
) -> RolloutSeeds:
    """Return a seed for each sample of each prompt, whatever chunk or worker it is generated on.

    A seed is a function of the master seed, the scope (task, epoch, step), the name, the prompt,
    the number of the sample and the turn. At one point of the job different rollouts have different
    128-bit keys, of which a seed is the lowest bits.

    Needs NumPy only, and does not load torch. Where torch is loaded, native code is used.

    Args:
        step: the training step, in [0, 2**64).
        prompts: a sequence of different prompts: each an integer in [0, 2**64) that identifies the
            prompt in the whole job, or its text, of which the low 64 bits of SHA-256 are the
            identity. Never a position in a chunk.
        samples: the number of rollouts of each prompt, or the numbers of the rollouts, all
            different and in [0, 2**32).
        turn: the turn of a conversation, in [0, 2**24 - 1).
        task: in [0, 2**24).
        epoch: in [0, 2**32).
        name: the name of the stream.
        bits: 63, or 31 for an engine that takes no more.
        master_seed: in [0, 2**64). None: that of ``fastseed.init``, else the environment variable
            FASTSEED_MASTER_SEED.

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
    at = coordinates.check_coordinates(_NAME, task, epoch, step)
    turn = validation.check_int(_NAME, "turn", turn, 0, coordinates.MAX_RANK)
    name = coordinates.check_name(_NAME, name)
    if name != "rollout":
        reserved.check_free(_NAME, name)
    bits = validation.check_choice(_NAME, "bits", bits, (63, 31))
    prompts, words = _identities(prompts)
    workers = _sample_numbers(samples)
    master = _master_seed(master_seed)
    backend = _backend()
    key = backend.name_key(backend.scope_key(master, *at), philox.name_words(name))
    array = backend.derive_seed_grid(key, turn, workers, words)
    array &= np.uint64(2**bits - 1)
    common = {**at._asdict(), "turn": turn, "name": name, "bits": bits, "master_seed": master}
    found = RolloutSeeds(array.view(np.int64), prompts, workers, common)
    if bits == 31:
        found._warn_of_equal_seeds()
    return found


def _backend() -> ModuleType:
    """Return the native code's module where torch is loaded anyway, else the reference."""
    if sys.modules.get("torch") is None:
        return philox
    from .._backend import derive_ops

    return derive_ops


def _master_seed(given: int | None) -> int:
    if given is not None:
        return validation.check_int(_NAME, "master_seed", given, 0, coordinates.MAX_MASTER)
    if context.seeder is not None:
        coordinates.require_keys(_NAME, context.seeder.scheme, "or give master_seed")
        return context.seeder.master_seed
    text = environ.get(environ.MASTER_SEED)
    if text is None:
        raise RuntimeError(
            f"fastseed.{_NAME}: give master_seed, or call fastseed.init(...), or set the "
            f"environment variable {environ.MASTER_SEED} first"
        )
    seed = coordinates.parse_master_seed(text)
    if seed is None:
        rule = f"an integer in [0, {coordinates.MAX_MASTER}]"
        raise value_error(_NAME, environ.MASTER_SEED, rule, text)
    return seed


def _identities(prompts: Any) -> tuple[Sequence[int | str], U64]:
    """Return the prompts as a sequence, and their 64-bit words; they are all different."""
    if isinstance(prompts, (str, bytes)) or not hasattr(type(prompts), "__iter__"):
        raise type_error(_NAME, "prompts", _PROMPTS, prompts)
    if hasattr(prompts, "__array__"):
        try:
            prompts = np.asarray(prompts).copy()  # the caller may write into his
        except (RuntimeError, TypeError) as error:  # a sparse or a meta tensor, for example
            raise type_error(_NAME, "prompts", _PROMPTS, prompts) from error
        if prompts.ndim != 1:
            raise value_error(_NAME, "prompts", f"{_PROMPTS}, of shape (n,)", prompts.shape)
        if prompts.dtype.kind in "iu" and not (prompts.size and prompts.min() < 0):
            words = prompts.astype(np.uint64)
            _check_different(prompts, words)
            return prompts, words
        prompts = prompts.tolist()
    prompts = list(prompts)
    if set(map(type, prompts)) == {int} and min(prompts) >= 0 and max(prompts) < 2**64:
        words = np.array(prompts, np.uint64)  # the same as below, faster
    else:
        words = np.array([_word(i, prompt) for i, prompt in enumerate(prompts)], np.uint64)
    _check_different(prompts, words)
    return prompts, words


def _word(position: int, prompt: object) -> int:
    argument = f"prompts[{position}]"
    if not isinstance(prompt, str):
        if isinstance(prompt, (list, tuple, dict)):
            raise type_error(_NAME, argument, _PROMPT, prompt)
        return validation.check_int(_NAME, argument, prompt, 0, coordinates.MAX_INDEX)
    try:
        text = prompt.encode()
    except UnicodeEncodeError as error:
        raise value_error(_NAME, argument, "a string with a UTF-8 encoding", prompt) from error
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def _check_different(prompts: Sequence[int | str], words: U64) -> None:
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
        count = validation.check_int(_NAME, "samples", samples, 0, coordinates.MAX_WORKER + 1)
        return np.arange(count, dtype=np.uint64)
    try:
        given = list(samples)
    except RuntimeError as error:  # of a tensor whose memory was freed
        raise type_error(_NAME, "samples", "a number or a sequence of them", samples) from error
    numbers = [
        validation.check_int(_NAME, f"samples[{i}]", number, 0, coordinates.MAX_WORKER)
        for i, number in enumerate(given)
    ]
    if len(set(numbers)) < len(numbers):
        raise value_error(_NAME, "samples", "different numbers", samples)
    return np.array(numbers, np.uint64)

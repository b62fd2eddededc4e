"""The seed of one rollout. Imports neither torch nor NumPy."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from .. import _backend
from .._backend.reference import scalar
from .._utils import validation
from ..derivation import scopes
from . import identity

if TYPE_CHECKING:
    from .identity import Prompt

_NAME = "rollouts.seed"


def seed(
    step: int,
    prompt: Prompt,
    sample: int,
    *,
    turn: int = 0,
    task: int = 0,
    epoch: int = 0,
    name: str = identity.NAME,
    bits: int = 63,
    master_seed: int | None = None,
) -> int:
    """Return the seed of one rollout: for a loop with a coroutine or a request for each.

    It is a function of its arguments and the master seed; ``seeds`` gives the same for many. It
    loads neither torch nor NumPy.

    Args:
        step: the training step, in [0, 2**64).
        prompt: an integer in [0, 2**64) that identifies the prompt in the whole job; or its text;
            or its token ids, a list or a 1-D array or tensor of integers in [0, 2**32), without
            padding. Never a position in a chunk.
        sample: the number of the rollout among those of its prompt, in [0, 2**32).
        turn: the turn of a conversation, in [0, 2**24 - 1).
        task: in [0, 2**24).
        epoch: in [0, 2**32).
        name: the name of the stream.
        bits: 63, or 31 for an engine that takes no more.
        master_seed: in [0, 2**64). None: that of ``fastseed.init``, else the environment variable
            FASTSEED_MASTER_SEED.

    Returns:
        The seed, in [0, 2**bits).

    Raises:
        TypeError, ValueError: an argument is invalid, or ``init`` chose scheme "fwr13y", which has
            no keys.
        RuntimeError: there is no master seed.

    Examples:
        >>> fastseed.rollouts.seed(3, "What is 7 * 8?", 1, master_seed=42)
        400187838658152262
        >>> fastseed.rollouts.seed(3, [1, 15, 4], 1, turn=2, master_seed=42)
        7894748762319656105
    """
    key, mask = identity.check_address(_NAME, task, epoch, step, name, bits, master_seed)
    turn = validation.check_int(_NAME, "turn", turn, 0, scopes.MAX_RANK)
    sample = validation.check_int(_NAME, "sample", sample, 0, scopes.MAX_WORKER)
    word = identity.word_of(_NAME, "prompt", prompt)
    found: int = (_native() or scalar).stream_key(key, turn, sample, word)
    return found & mask


def _native() -> ModuleType | None:
    """Return the native code's module if torch is loaded anyway."""
    module: ModuleType | None = getattr(_backend, "derive", None)  # faster than to import it
    if module is None and sys.modules.get("torch") is not None:
        from .._backend import derive as module
    return module

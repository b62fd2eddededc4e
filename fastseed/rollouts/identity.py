"""The seed of one rollout, from its identity: its prompt, and the key of its scope and name.

Imports neither torch nor NumPy.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _backend
from .._backend.reference import scalar
from .._backend.reference.scalar import NameKey
from .._utils import environ, validation
from .._utils.validation import type_error, value_error
from ..derivation import context, reserved, scopes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    Prompt: TypeAlias = int | str | Sequence[int] | npt.NDArray[np.integer] | torch.Tensor
    """A number, a text or token ids."""


_SEED = "rollouts.seed"
NAME = "rollout"  # of the stream, unless another one is given
_MAX_TOKEN = 2**32 - 1
_RULE = (
    "a string, an integer or a sequence of token ids of shape (n,) (for chat messages: what "
    "apply_chat_template makes of them)"
)


def seed(
    step: int,
    prompt: Prompt,
    sample: int,
    *,
    turn: int = 0,
    task: int = 0,
    epoch: int = 0,
    name: str = NAME,
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
    key, mask = check_address(_SEED, task, epoch, step, name, bits, master_seed)
    turn = validation.check_int(_SEED, "turn", turn, 0, scopes.MAX_RANK)
    sample = validation.check_int(_SEED, "sample", sample, 0, scopes.MAX_WORKER)
    word = word_of(_SEED, "prompt", prompt)
    found: int = (_native() or scalar).stream_key(key, turn, sample, word)
    return found & mask


def _native() -> ModuleType | None:
    """Return the native code's module if torch is loaded anyway."""
    module: ModuleType | None = getattr(_backend, "derive", None)  # faster than to import it
    if module is None and sys.modules.get("torch") is not None:
        from .._backend import derive as module
    return module


def word_of(function: str, argument: str, prompt: object) -> int:
    """Return the 64 bits of a prompt: the number, or the low ones of a SHA-256."""
    if isinstance(prompt, str):
        try:
            return _low64(prompt.encode())
        except UnicodeEncodeError as error:
            rule = "a string with a UTF-8 encoding"
            raise value_error(function, argument, rule, prompt) from error
    if type(prompt) is int or hasattr(type(prompt), "bit_count"):
        return validation.check_int(function, argument, prompt, 0, scopes.MAX_INDEX)
    if hasattr(type(prompt), "tolist"):  # an array or a tensor
        prompt = check_data(function, argument, prompt).tolist()
    if not isinstance(prompt, (list, tuple)):
        raise type_error(function, argument, _RULE, prompt)
    if any(not hasattr(kind, "bit_count") or kind is bool for kind in set(map(type, prompt))):
        raise type_error(function, argument, _RULE, prompt)
    tokens = tuple(map(int, prompt))
    try:
        return _low64(struct.pack(f"<B{len(tokens)}I", 255, *tokens))  # no UTF-8 has the byte 255
    except struct.error:
        i = next(i for i, token in enumerate(tokens) if not 0 <= token <= _MAX_TOKEN)
        rule = f"in [0, {_MAX_TOKEN}]"
        raise value_error(function, f"{argument}[{i}]", rule, tokens[i]) from None


def check_data(function: str, argument: str, values: Any) -> Any:
    """Return an array or a tensor; ValueError for a tensor whose elements cannot be read."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        from .._backend import tensors

        tensors.check_dense(function, argument, values)
        tensors.check_data(function, argument, values)
    return values


def _low64(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little")


def check_master_seed(function: str, given: int | None) -> int:
    """Return the master seed: the given one, else that of ``init``, else of the environment."""
    if given is not None:
        return validation.check_int(function, "master_seed", given, 0, scopes.MAX_MASTER)
    if context.seeder is not None:
        return int(context.seeder.master_seed)
    text = environ.get(environ.MASTER_SEED)
    if text is None:
        raise RuntimeError(
            f"fastseed.{function}: give master_seed, call fastseed.init(...), or set the variable "
            f"{environ.MASTER_SEED} first"
        )
    return scopes.read_master_seed(function, environ.MASTER_SEED, text)


def check_address(
    function: str,
    task: int,
    epoch: int,
    step: int,
    name: str,
    bits: int,
    master_seed: int | None,
) -> tuple[NameKey, int]:
    """Return the key of the name in the scope, and which bits of a rollout's key are its seed."""
    at = scopes.check_scope(function, task, epoch, step)
    name = scopes.check_name(function, name)
    if name != NAME:
        reserved.check_free(function, name)
    bits = validation.check_choice(function, "bits", bits, (63, 31))
    return _name_key(check_master_seed(function, master_seed), *at, name), (1 << bits) - 1


@functools.lru_cache(maxsize=256)
def _name_key(master_seed: int, task: int, epoch: int, step: int, name: str) -> NameKey:
    scope = scalar.scope_key(master_seed, task, epoch, step)
    return scalar.name_key(scope, scalar.name_words(name))

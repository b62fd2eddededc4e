"""Compare the states of two checkpoints, in words drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...debug.exact_state import GeneratorState, words_between
from .finding import Found
from .inspection import Inspection

_LOADER = "as one `iter(DataLoader)` draws"
_SHUFFLING = "as one `iter(DataLoader(shuffle=True))` draws, or two without shuffling"
_HINTS = {2: _LOADER, 4: _SHUFFLING}
"""Words of torch's generator on the CPU. A DataLoader without a generator of its own draws a base
seed of 64 bits when it is iterated, and its RandomSampler another."""


class Difference(NamedTuple):
    """A stream that is not in the same state in both checkpoints."""

    owner: str
    """The rank that it belongs to, such as ``"rank 3"``; "" for all."""
    stream: str
    """Its generator, such as ``"torch.cpu"``."""
    words: int | None
    """How many words the second is further than the first; None if they are not on one stream."""
    text: str
    """The difference in words."""


def compare_states(a: Inspection, b: Inspection, most: int) -> list[Difference]:
    """Return the streams that differ, in the order of ``a`` and then of ``b``."""
    mine, other = ({(one.owner, one.stream): one for one in side.states} for side in (a, b))
    found = []
    for owner, stream in dict.fromkeys([*mine, *other]):
        before, after = mine.get((owner, stream)), other.get((owner, stream))
        if before is None or after is None:
            where = "the first" if after is None else "the second"
            found.append(Difference(owner, stream, None, f"only in {where}"))
        elif before.state != after.state:
            found.append(_difference(a, before, after.state, most))
    return found


def _difference(a: Inspection, before: Found, after: GeneratorState, most: int) -> Difference:
    words = words_between(before.state, after, most)
    if words == 0:
        text = "equal but for a cached Gaussian, half a word, or the form in which it is stored"
    elif words is not None:
        hint = _HINTS.get(abs(words)) if before.stream.startswith("torch.cpu") else None
        text = _count(words) + (f", {hint}" if hint else "")
    else:
        text = next(_others(a, before, after), "")
        if not text and before.state.seed != after.seed:
            text = f"another stream: its seed was {before.state.seed}, and is {after.seed}"
        text = text or f"another stream, or more than {most} words apart"
    return Difference(before.owner, before.stream, words, text)


def _count(words: int) -> str:
    if words == 0:
        return "in the same state"
    noun, where = ("word" if abs(words) == 1 else "words"), ("further" if words > 0 else "behind")
    return f"{abs(words)} {noun} {where}"


def _others(a: Inspection, before: Found, after: GeneratorState) -> Iterator[str]:
    """Yield the other ranks of the first checkpoint whose stream this is."""
    for owner, one in a.by_stream()[before.stream].items():
        words = words_between(one.state, after, 0) if owner != before.owner else None
        if words is not None:
            yield f"it has the stream of {owner or 'all ranks'}, {_count(words)}"

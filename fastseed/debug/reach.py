"""Find what a seed does not reach, and random numbers that appear twice."""

from __future__ import annotations

import fnmatch
import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from .._utils.validation import check_choice, check_instance, check_int, type_error, value_error
from ..digest.trees import Leaf, digest, leaves_of, table_of
from ..random import layout

VERDICTS = ("unrepeatable", "constant", "shifted", "repeated", "absent")
_BY_EPOCH = " by epoch"
_BITS = 64  # of a row that is not equal by chance


class Verdict(NamedTuple):
    """What was found about one leaf."""

    leaf: str
    verdict: str
    detail: str
    ok: bool  # good or allowed


@dataclass(frozen=True)
class Reach:
    """The verdict of every leaf; true if all are good or allowed."""

    rows: tuple[Verdict, ...]

    def __bool__(self) -> bool:
        return all(row.ok for row in self.rows)

    def __str__(self) -> str:
        width = max((len(row.leaf) for row in self.rows), default=0)
        lines = (f"{row.leaf:<{width}}  {row.verdict:<12}  {row.detail}" for row in self.rows)
        return "\n".join(map(str.rstrip, lines))


class Seen(NamedTuple):
    digest: object
    rows: Sequence[bytes] = ()  # digests of rows that hold 64 bits, or of the whole
    drawn: bool = True  # False: without a random number
    is_long: bool = False  # too long for two of them to be equal by chance


def seed_reach(
    run: Callable[..., object],
    seeds: Sequence[int] = (0, 1, 2, 3),
    *,
    epochs: Sequence[int] | None = None,
    allow: Mapping[str, str] | None = None,
) -> Reach:
    """Call a function with several seeds; report what a seed does not change, and what repeats.

    A leaf is ``unrepeatable`` if two runs with one seed differ, ``constant`` if the seed does not
    change it, ``shifted`` if its rows move with the seed, as under ``seed + i``, ``repeated`` if
    the same two rows are equal with every seed, ``absent`` if only one seed has it, else ``good``.
    The guide "Verify a command" has the rules.

    Args:
        run: a function of a seed that returns what is drawn or follows from it, by name, in a tree
            as ``digest`` takes it: orders, masks, noise, weights, losses; of ranks each one's. A
            module counts as its parameters, a list of numbers, texts or like arrays as one leaf.
        seeds: at least two different integers, [0, 2**64); only neighbours show what is shifted.
        epochs: at least two different integers: ``run(seed, epoch)`` is called with each of them.
            A leaf of 64 bits that is the same in epochs, or that is under one seed what it is under
            the next seed an epoch earlier, has a second row, ``order by epoch``.
        allow: verdicts that are right, by names of leaves or patterns of them (``fnmatch``):
            ``{"validation": "constant", "rank*.weights": "repeated"}``.

    Returns:
        A report that prints as a table and is true if all leaves are good or allowed; its ``rows``
        have ``leaf``, ``verdict``, ``detail`` and ``ok``. Names in ``allow`` without a leaf are
        rows that are ``absent``.

    Raises:
        TypeError, ValueError: an argument is invalid, or ``digest`` does not take the tree.

    Examples:
        >>> import torch, fastseed
        >>> def run(seed):
        ...     generators = [torch.Generator().manual_seed(seed + i) for i in range(4)]
        ...     return {"noise": torch.stack([torch.randn(8, generator=g) for g in generators])}
        >>> print(fastseed.debug.seed_reach(run))
        noise  shifted       noise[i + 1] of seed 0 is noise[i] of seed 1
    """
    if not callable(run):
        raise type_error("debug.seed_reach", "run", "callable", run)
    allow = {} if allow is None else allow
    seeds = check_arguments("debug.seed_reach", seeds, allow)
    if epochs is None:
        runs = [_observe(run(seed)) for seed in (*seeds, seeds[0])]
        return judge(runs[:-1], runs[-1], seeds, allow)
    numbers = _different("debug.seed_reach", "epochs", epochs)
    every = ([_observe(run(seed, epoch)) for epoch in numbers] for seed in (*seeds, seeds[0]))
    runs = [_by_epoch(one) for one in every]
    found = judge(runs[:-1], runs[-1], seeds, allow).rows
    of_epochs = ("shifted", "repeated")  # all else is said of the leaf itself
    kept = (one for one in found if not one.leaf.endswith(_BY_EPOCH) or one.verdict in of_epochs)
    return Reach(tuple(kept))


def check_arguments(function: str, seeds: Sequence[int], allow: Mapping[str, str]) -> list[int]:
    """Return the seeds; raise for invalid ones and for invalid allowances."""
    found = _different(function, "seeds", seeds)
    check_instance(function, "allow", allow, Mapping, "a mapping of names to verdicts")
    for name, verdict in allow.items():
        check_instance(function, "a name in allow", name, str, "a string")
        check_choice(function, f"allow[{name!r}]", verdict, VERDICTS)
    return found


def _different(function: str, argument: str, given: Sequence[int]) -> list[int]:
    check_instance(function, argument, given, (list, tuple, range), "a list, tuple or range")
    found = [check_int(function, f"{argument}[{i}]", n, 0, 2**64 - 1) for i, n in enumerate(given)]
    if len(found) < 2 or len(set(found)) < len(found):
        raise value_error(function, argument, "at least two different integers", given)
    return found


def judge(
    runs: Sequence[Mapping[str, Seen]],
    again: Mapping[str, Seen],
    seeds: Sequence[int],
    allow: Mapping[str, str],
) -> Reach:
    """Return the verdicts about a run of each seed and another one of the first."""
    names = list(dict.fromkeys(name for run in (*runs, again) for name in run))
    allowed = {
        name: {v for pattern, v in allow.items() if fnmatch.fnmatchcase(name, pattern)}
        for name in names
    }
    with_rows = [name for name in names if all(name in run and run[name].rows for run in runs)]
    shifted = _shifted(runs, with_rows, seeds)
    repeated = _repeated(runs, [name for name in with_rows if "repeated" not in allowed[name]])
    rows = []
    for name in names:
        here = [run.get(name) for run in runs]
        found = {}
        if here[0] != again.get(name):
            found["unrepeatable"] = f"two runs with seed {seeds[0]} differ"
        elif same := _equal_seeds(here, seeds):
            found["constant"] = f"the same for seeds {', '.join(map(str, same))}"
        if len(held := [seed for seed, one in zip(seeds, here, strict=True) if one]) == 1:
            found["absent"] = f"only seed {held[0]} has it"
        if name in shifted:
            found["shifted"] = shifted[name]
        if name in repeated:
            found["repeated"] = repeated[name]
        left = [verdict for verdict in found if verdict not in allowed[name]]
        verdict = [*left, *found, "good"][0]
        note = "allowed: " if found and not left else ""
        rows.append(Verdict(name, verdict, note + found.get(verdict, ""), not left))
    text = "it is allowed, and nothing has this name"
    unmatched = (pattern for pattern in allow if not fnmatch.filter(names, pattern))
    rows += (Verdict(pattern, "absent", text, True) for pattern in unmatched)
    return Reach(tuple(rows))


def _equal_seeds(here: Sequence[Seen | None], seeds: Sequence[int]) -> list[int]:
    """Return seeds with one result, if these are all or neither chance nor data explain it."""
    groups: dict[object, list[int]] = defaultdict(list)
    found = {seed: one for seed, one in zip(seeds, here, strict=True) if one is not None}
    for seed, one in found.items():
        if one.drawn:
            groups[one.digest].append(seed)
    same = max(groups.values(), key=len, default=[])
    if len(same) in (1, len(seeds)):
        return same if len(same) == len(seeds) else []
    others = {row for seed, one in found.items() if seed not in same for row in one.rows}
    is_found = all(found[seed].is_long and others.isdisjoint(found[seed].rows) for seed in same)
    return same if is_found else []


def _shifted(
    runs: Sequence[Mapping[str, Seen]], names: Sequence[str], seeds: Sequence[int]
) -> dict[str, str]:
    """Return leaves whose rows are shifted, and those of families whose leaves are."""
    families: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        for number in re.finditer(r"\d+", name):
            family = f"{name[: number.start()]}#{name[number.end() :]}"
            families[family].append((int(number[0]), name))
    neighbours = [(k, seeds.index(s + 1)) for k, s in enumerate(seeds) if s + 1 in seeds]
    found: dict[str, str] = {}

    def compare(what: str, members: list[str], given: list[list[tuple[bytes, ...]]]) -> None:
        rows = [[*dict.fromkeys(one)] for one in given]  # chunks may begin at seed + 0 again
        offsets = {_offset(rows[a], rows[b]) or -_offset(rows[b], rows[a]) for a, b in neighbours}
        d = offsets.pop() if len(offsets) == 1 else 0
        overlaps = [rows[a][: len(rows[a]) - abs(d)] for a, _ in neighbours]
        # Two rows could be samples that two seeds drew.
        if d and sum(len(row) for overlap in overlaps for row in overlap) > 2:
            a, b = (seeds[k] for k in neighbours[0])
            text = f"{what}[i + {d}] of seed {a} is {what}[i] of seed {b}"
            found.update(dict.fromkeys(members, text))
        elif _is_exclusive_or(given, seeds):
            found.update(dict.fromkeys(members, f"{what}[i] is a function of seed ^ i"))

    for family, members in families.items():
        ordered = [name for _, name in sorted(members)]
        compare(family, ordered, [[tuple(run[name].rows) for name in ordered] for run in runs])
    for name in names:
        compare(name, [name], [[(row,) for row in run[name].rows] for run in runs])
    return found


def _offset(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return d > 0 if a[i + d] is b[i] for at least half of a and they are distinct, else 0."""
    d = a.index(b[0]) if b[0] in a else 0
    common = b[: len(a) - d]
    is_shift = a[d : d + len(common)] == common and len({*common}) == len(common) >= len(a) / 2
    return d if is_shift and {*a} != {*b} else 0  # equal sets: two orders of one data set


def _is_exclusive_or(rows: Sequence[Sequence[object]], seeds: Sequence[int]) -> bool:
    """Return whether rows and seed ^ i determine each other, which no two orders of data do."""
    pairs = {(row, seed ^ i) for k, seed in enumerate(seeds) for i, row in enumerate(rows[k])}
    found, numbers = (len({*side}) for side in zip(*pairs, strict=True)) if pairs else (0, 0)
    return len(pairs) == found == numbers <= sum(map(len, rows)) - 3


def _repeated(runs: Sequence[Mapping[str, Seen]], names: Sequence[str]) -> dict[str, str]:
    """Return leaves half of whose rows equal others with every seed, while no other seed has them.

    So no samples: other seeds have them, or have equal ones at other places.
    """
    used = Counter(row for run in runs for row in {r for name in names for r in run[name].rows})
    places = defaultdict(list)
    for name in names:
        for i, values in enumerate(zip(*(run[name].rows for run in runs), strict=False)):
            if all(used[value] == 1 for value in values):
                places[values].append((name, i))
    twins: dict[str, list[str]] = defaultdict(list)
    for first, *others in places.values():
        for name, i in (first, *others) if others else ():
            other, j = others[0] if first == (name, i) else first
            twins[name].append(f"{name}[{i}] is {other}[{j}] with each seed")
    size = {name: len(runs[0][name].rows) for name in names}
    return {name: texts[0] for name, texts in twins.items() if 2 * len(texts) >= size[name]}


def _by_epoch(epochs: Sequence[Mapping[str, Seen]]) -> dict[str, Seen]:
    """Return what a run gave in all epochs, and for a long leaf another one with a row an epoch."""
    found = {}
    for name, first in epochs[0].items():
        here = [epoch[name] for epoch in epochs if name in epoch]
        digests = [repr(one.digest).encode() for one in here]
        found[name] = first._replace(digest=tuple(digests))
        if len(here) == len(epochs) and all(one.is_long for one in here):
            found[name + _BY_EPOCH] = Seen(tuple(digests), digests, is_long=True)
    return found


def _observe(tree: object) -> dict[str, Seen]:
    try:
        leaves = list(leaves_of("", _joined(tree)))
    except RecursionError as error:
        rule = "a function that returns a tree, not a container that holds itself"
        raise value_error("debug.seed_reach", "run", rule, type(tree).__name__) from error
    table = table_of(leaves)
    return {name: _see(table[name], leaf) for name, leaf in leaves}


def _joined(obj: Any) -> Any:
    """Return a tree in which modules are parameters, and lists of likes are leaves."""
    if isinstance(obj, torch.nn.Module):
        return dict(obj.named_parameters())  # without buffers; tied ones once
    if isinstance(obj, Mapping):
        return {name: _joined(value) for name, value in obj.items()}
    if not isinstance(obj, (list, tuple)) or not obj:
        return obj
    if all(isinstance(item, (int, float, np.generic)) for item in obj):
        return _array(obj)
    if all(isinstance(item, str) for item in obj):
        return repr(obj)
    for kind, join in ((torch.Tensor, torch.stack), (np.ndarray, np.stack)):
        if all(isinstance(item, kind) for item in obj):
            digest(obj)  # raises for tensors without memory, with which torch.stack crashes
            alike = {(item.shape, item.dtype, getattr(item, "device", None)) for item in obj}
            return join([*obj]) if len(alike) == 1 else list(obj)
    return [_joined(item) for item in obj]


def _array(numbers: Sequence[Any]) -> Any:
    """Return numbers as an array, or as a text where an array would round them."""
    array = np.asarray(numbers)
    is_rounded = array.dtype.kind == "f" and any(
        isinstance(n, (int, np.integer)) and abs(int(n)) > 2**53 for n in numbers
    )
    return array if array.dtype.kind in "biuf" and not is_rounded else repr(numbers)


def _see(value: Leaf, leaf: object) -> Seen:
    """Return what counts of a leaf; numbers and texts have no rows."""
    if not isinstance(leaf, torch.Tensor) or not leaf.numel():
        return Seen(value)
    whole = leaf.full_tensor() if layout.is_dtensor(leaf) else leaf
    tensor = whole.detach().cpu().resolve_conj().resolve_neg()
    flat, drawn = tensor.reshape(-1).clone(memory_format=torch.contiguous_format), True
    data = flat.view(torch.uint8).numpy().reshape(len(flat), -1)
    if flat.is_floating_point() or flat.is_complex():
        bits = 1 - math.log2(torch.finfo(flat.dtype).eps)
        drawn = len(flat) == 1 or bool((data != data[0]).any())
    else:
        numbers = flat.numpy()
        bits = (int(numbers.max()) - int(numbers.min())).bit_length()
    rows = data.reshape(tensor.shape[0] if tensor.dim() else 1, -1)
    is_long = bits * len(flat) >= _BITS
    if bits * len(flat) < _BITS * len(rows):
        rows = rows.reshape(1, -1)[:is_long]  # the whole, or none
    if flat.is_floating_point():  # sparse rewards and one-hot rows hold less than their digits
        values = {one.tobytes() for one in data[:_BITS]}
        is_long &= bits * len(values) >= _BITS and 2 * len(values) > len(data[:_BITS])
    hashes = (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows)
    return Seen(value, tuple(hashes), drawn, is_long)

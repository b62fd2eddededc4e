"""The contract that seeds of rollouts must keep, as a test of any function. Imports no NumPy."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .._utils import validation

_NAME = "rollouts.check_seed_contract"
_MASTERS = (42, 43)
_NEVER = 1e-6  # a deviation that random seeds show with less than this probability is a failure

Seeds = dict["_Rollout", int]


class _Rollout(NamedTuple):
    """The identity of a rollout."""

    master_seed: int
    step: int
    turn: int
    prompt: int
    sample: int


class _Run(NamedTuple):
    """A run and its circumstances, on which no seed may depend."""

    prompts: int
    samples: int
    steps: range
    turns: int
    chunks: int = 1
    workers: int = 1
    backwards: bool = False

    def requests(self, master_seed: int) -> Iterator[tuple[_Rollout, dict[str, int]]]:
        """Yield each rollout in order, and the coordinates that a seed may be made of."""
        size = -(-self.prompts // self.chunks)
        served = [0] * self.workers
        for step in self.steps:
            for turn in range(self.turns):
                for place in range(self.prompts):
                    prompt = self.prompts - 1 - place if self.backwards else place
                    chunk, position = divmod(place, size)
                    worker = chunk % self.workers
                    for sample in range(self.samples):
                        at = _Rollout(master_seed, step, turn, prompt, sample)
                        yield (
                            at,
                            {
                                **at._asdict(),
                                "place": place,
                                "chunk": chunk,
                                "position": position,
                                "worker": worker,
                                "request": served[worker],
                            },
                        )
                        served[worker] += 1


class SeedRule(NamedTuple):
    """One rule of the contract, and what was found.

    Examples:
        >>> report = fastseed.rollouts.check_seed_contract(lambda sample, **_: sample)
        >>> report.rules[0].name, report.rules[0].ok
        ('different within a step', False)
    """

    name: str
    ok: bool
    found: str


class SeedReport(NamedTuple):
    """The result of ``check_seed_contract``; its ``repr`` is a report in words.

    Examples:
        >>> report = fastseed.rollouts.check_seed_contract(lambda sample, **_: sample)
        >>> report.ok, report.different, report.rollouts
        (False, 8, 4096)
    """

    rules: tuple[SeedRule, ...]
    rollouts: int
    """How many rollouts of one run were compared."""
    different: int
    """How many different seeds they have."""
    random_bits: float
    """Random seeds of so many bits have as many equal pairs; the width of the largest if none."""
    run: int
    """How many rollouts the real run has."""
    equal_pairs_in_run: float
    """The mean number of its pairs of rollouts with one seed, if seeds have ``random_bits``."""
    digest: str
    """SHA-256 of the seeds: it differs in another process if a scheme uses ``hash`` of a text."""

    @property
    def ok(self) -> bool:
        """Return whether every rule is kept."""
        return all(rule.ok for rule in self.rules)

    def __repr__(self) -> str:
        broken = sum(not rule.ok for rule in self.rules)
        rules = [
            f"  {'kept  ' if rule.ok else 'BROKEN'}  {rule.name}: {rule.found}"
            for rule in self.rules
        ]
        return "\n".join(
            [
                f"seed contract: {broken or 'none'} of {len(self.rules)} rules broken",
                *rules,
                f"  {self.different:,} different seeds of {self.rollouts:,} rollouts: as of random "
                f"seeds of {self.random_bits:.1f} bits",
                f"  a run of {self.run:,} rollouts with random seeds of so many bits has "
                f"{self.equal_pairs_in_run:.3g} pairs with one seed on average",
                f"  digest {self.digest[:16]}",
            ]
        )


def check_seed_contract(
    fn: Callable[..., int],
    *,
    bits: int = 63,
    run: int = 1_000_000,
    prompts: int = 32,
    samples: int = 8,
    steps: int = 8,
    turns: int = 2,
) -> SeedReport:
    """Check that a function makes a seed of its own for each rollout, from its identity alone.

    ``fn`` is called for all rollouts of two small runs on four workers, with master seeds 42 and
    43, and again for those of the first one in other circumstances. A seed may depend on the
    identity of a rollout, and on nothing else:

    - identity: ``master_seed``, ``step``, ``turn``, ``prompt`` (the number of the prompt in the
      dataset), ``sample``
    - circumstances: ``place`` (the position of the prompt in the step), ``chunk`` (the number of
      the prompt's chunk), ``position`` (of the prompt in its chunk), ``worker`` (the replica that
      generates it), ``request`` (how many requests this process of the worker has had before)

    A scheme without seeds of requests, in which each engine has one generator, is a function of the
    generator's seed and ``request``: ``engine_seed << 32 | request``.

    Args:
        fn: called with all of the coordinates above as keywords; returns an integer. It needs
            ``**others`` for those that it does not use.
        bits: the size of a seed. Seeds must lie in [0, 2**bits), and fill it.
        run: the number of rollouts of the real run, for the figures of the report.
        prompts: the number of prompts of a step, 4 at least.
        samples: the number of rollouts of a prompt.
        steps: the number of steps, 2 at least.
        turns: the number of turns, 2 at least.

    Returns:
        The report: ``assert report.ok, report`` is a test for pytest.

    Raises:
        TypeError, ValueError: an argument is invalid, or ``fn`` returns no integer.

    Examples:
        >>> def fn(step, prompt, sample, turn, master_seed, **others):
        ...     seed = fastseed.rollouts.seed
        ...     return seed(step, prompt, sample, turn=turn, master_seed=master_seed)
        >>> report = fastseed.rollouts.check_seed_contract(fn)
        >>> assert report.ok, report
        >>> fastseed.rollouts.check_seed_contract(lambda sample, **others: 42 + sample).ok
        False
    """
    if not callable(fn):
        raise validation.type_error(_NAME, "fn", "a function", fn)
    bits = validation.check_int(_NAME, "bits", bits, 8, 64)
    run = validation.check_int(_NAME, "run", run, 2, 2**64)
    prompts = validation.check_int(_NAME, "prompts", prompts, 4, 2**20)
    samples = validation.check_int(_NAME, "samples", samples, 1, 2**20)
    steps = validation.check_int(_NAME, "steps", steps, 2, 2**20)
    turns = validation.check_int(_NAME, "turns", turns, 2, 2**20)
    alone = _Run(prompts, samples, range(steps), turns)
    spread = alone._replace(chunks=4, workers=4)
    first, second = (_seeds(fn, spread, master) for master in _MASTERS)
    resumed = alone._replace(steps=range(steps // 2, steps))
    base = _seeds(fn, alone, _MASTERS[0])
    rules = (
        _different("within a step", first, bits, lambda at: at[:3], lambda at: at),
        _different("across steps", first, bits, lambda at: at.turn, lambda at: at.step),
        _different("across turns", first, bits, lambda at: 0, lambda at: at.turn),
        _different(
            "across master seeds",
            {**first, **second},
            bits,
            lambda at: 0,
            lambda at: at.master_seed,
        ),
        _independent("of chunks", base, _seeds(fn, alone._replace(chunks=4), _MASTERS[0])),
        _independent("of workers", base, first),
        _independent("of order", base, _seeds(fn, alone._replace(backwards=True), _MASTERS[0])),
        _independent("of a resume", base, _seeds(fn, resumed, _MASTERS[0])),
        _fills(first, bits),
    )
    n, equal = len(first), _equal_pairs(first.values())
    width = min(bits, max(first.values()).bit_length())
    random_bits = math.log2(math.comb(n, 2) / equal) if equal else float(width)
    whole = hashlib.sha256(repr([*first.values()]).encode()).hexdigest()
    in_run = math.comb(run, 2) / 2**random_bits
    return SeedReport(rules, n, len({*first.values()}), random_bits, run, in_run, whole)


def _seeds(fn: Callable[..., int], run: _Run, master_seed: int) -> Seeds:
    found = {}
    for rollout, coordinates in run.requests(master_seed):
        found[rollout] = validation.check_int(
            _NAME, "fn(...)", fn(**coordinates), -(2**128), 2**128
        )
    return found


def _equal_pairs(seeds: Iterable[int]) -> int:
    return sum(math.comb(count, 2) for count in Counter(seeds).values())


def _different(
    where: str,
    seeds: Seeds,
    bits: int,
    universe: Callable[[_Rollout], object],
    part: Callable[[_Rollout], object],
) -> SeedRule:
    """Compare the rollouts of each universe that are in different parts of it."""
    universes: dict[object, dict[object, list[_Rollout]]] = {}
    for rollout in seeds:
        universes.setdefault(universe(rollout), {}).setdefault(part(rollout), []).append(rollout)
    compared = equal = 0
    example = ""
    for parts in universes.values():
        everyone = [rollout for group in parts.values() for rollout in group]
        for sign, group in ((1, everyone), *((-1, group) for group in parts.values())):
            compared += sign * math.comb(len(group), 2)
            equal += sign * _equal_pairs(seeds[rollout] for rollout in group)
        if equal and not example:
            example = _example(seeds, everyone, part)
    mean = compared / 2**bits
    found = f"{equal:,} of {compared:,} pairs are equal, {mean:.2g} of random seeds{example}"
    # Chernoff's bound of the probability that a Poisson variable is so large
    ok = equal <= mean or equal - mean + equal * math.log(mean / equal) > math.log(_NEVER)
    return SeedRule(f"different {where}", ok, found)


def _example(seeds: Seeds, members: list[_Rollout], part: Callable[[_Rollout], object]) -> str:
    """Return two rollouts of different parts with one seed, in words."""
    before: dict[int, _Rollout] = {}
    for rollout in members:
        other = before.setdefault(seeds[rollout], rollout)
        if part(other) != part(rollout):
            both = zip(rollout._fields, other, rollout, strict=True)
            said = ", ".join(f"{name} {a} and {b}" for name, a, b in both if a != b)
            return f", as {said}"
    return ""


def _independent(of: str, seeds: Seeds, again: Seeds) -> SeedRule:
    """Compare with the seeds of the same rollouts in other circumstances."""
    changed = [rollout for rollout, seed in again.items() if seeds[rollout] != seed]
    found = f"{len(changed):,} of {len(again):,} seeds change"
    if changed:
        at = changed[0]
        found += f", as step {at.step}, turn {at.turn}, prompt {at.prompt}, sample {at.sample}: "
        found += f"{seeds[at]} becomes {again[at]}"
    return SeedRule(f"independent {of}", not changed, found)


def _fills(seeds: Seeds, bits: int) -> SeedRule:
    low, high = min(seeds.values()), max(seeds.values())
    found = f"from {low:,} to {high:,}"  # of random seeds, all are small with a chance below 1e-13
    return SeedRule(f"fills {bits} bits", low >= 0 and 2 ** (bits - 8) <= high < 2**bits, found)

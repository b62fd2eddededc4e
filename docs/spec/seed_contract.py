# SPDX-FileCopyrightText: the fastseed authors
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The contract of rollout seeds, as a test of any function: one file of plain Python, to copy.

    def test_seeds():
        assert not broken_rules(my_seed_function)

The function is called, with keywords, for every rollout of small runs on four workers. A seed may
depend on the identity of a rollout, and on nothing else:

- identity: ``master_seed``, ``step``, ``turn``, ``prompt`` (the number of the prompt in the
  dataset), ``sample``
- circumstances: ``place`` (the position of the prompt in the step), ``chunk`` (the number of the
  prompt's chunk), ``position`` (of the prompt in its chunk), ``worker`` (the replica that generates
  it), ``request`` (how many requests this worker's process had before)

A scheme without seeds of requests, in which each engine has one generator, is a function of the
generator's seed and ``request``: ``engine_seed << 32 | request``.
"""

import math
import operator
from collections import Counter, namedtuple

NEVER = 1e-6  # a deviation that random seeds show with less than this probability breaks a rule
Rollout = namedtuple("Rollout", "master_seed step turn prompt sample")


def broken_rules(fn, *, bits=63, prompts=32, samples=8, steps=8, turns=2):
    """Return the rules that the seeds of ``fn`` break, and what was found: {} if they keep all.

    ``fn`` needs ``**others`` for the keywords that it does not use. Its seeds must lie in
    [0, 2**bits) and fill it. 4 prompts, 2 steps, 2 turns and 1 sample are the least.
    """
    sizes = (bits, 8, 64), (prompts, 4, 2**20), (steps, 2, 2**20), (turns, 2, 2**20)
    for size, low, high in (*sizes, (samples, 1, 2**20)):
        if not low <= size <= high:
            raise ValueError(f"{size} must be in [{low}, {high}]")

    def run(master=42, chunks=1, workers=1, backwards=False, first_step=0):
        steps_of_run = range(first_step, steps)
        order = range(prompts)[::-1] if backwards else range(prompts)
        at = (master, steps_of_run, turns, order, samples)
        return dict(_seeds(fn, at, -(-prompts // chunks), workers))

    alone, spread = run(), run(chunks=4, workers=4)
    both = {**spread, **run(master=43, chunks=4, workers=4)}
    found = {
        "different within a step": _equal(spread, bits, lambda r: r[:3], lambda r: r),
        "different across steps": _equal(spread, bits, lambda r: r.turn, lambda r: r.step),
        "different across turns": _equal(spread, bits, lambda r: 0, lambda r: r.turn),
        "different across master seeds": _equal(both, bits, lambda r: 0, lambda r: r.master_seed),
        "independent of chunks": _changed(alone, run(chunks=4)),
        "independent of workers": _changed(alone, spread),
        "independent of order": _changed(alone, run(backwards=True)),
        "independent of a resume": _changed(alone, run(first_step=steps // 2)),
        f"fills {bits} bits": _unfilled(set(spread.values()), bits),
    }
    return {rule: text for rule, text in found.items() if text}


def _seeds(fn, at, size, workers):
    """Yield each rollout of a run, in order, and its seed; ``size`` is that of a chunk."""
    master, steps, turns, order, samples = at
    served = [0] * workers
    for step, turn in ((step, turn) for step in steps for turn in range(turns)):
        for place, prompt in enumerate(order):
            chunk, position = divmod(place, size)
            worker = chunk % workers
            for sample in range(samples):
                rollout = Rollout(master, step, turn, prompt, sample)
                seed = fn(
                    **rollout._asdict(), place=place, chunk=chunk, position=position,
                    worker=worker, request=served[worker],
                )  # fmt: skip
                if type(seed).__name__ in ("bool", "bool_") or not hasattr(type(seed), "__index__"):
                    raise TypeError(f"the seed of {rollout} must be an integer, got {seed!r}")
                served[worker] += 1
                yield rollout, operator.index(seed)


def _equal(seeds, bits, universe, part):
    """Compare the rollouts of each universe that are in different parts of it."""
    members, before = {}, {}
    example, compared, equal = "", 0, 0
    for rollout, seed in seeds.items():
        where, which = universe(rollout), part(rollout)
        members.setdefault(where, []).append((which, seed))
        other_part, other = before.setdefault((where, seed), (which, rollout))
        if other_part != which and not example:
            pairs = zip(Rollout._fields, other, rollout, strict=True)
            example = ", ".join(f"{name} {a} and {b}" for name, a, b in pairs if a != b)
    for pairs in members.values():
        compared += _pairs([0] * len(pairs)) - _pairs(which for which, _ in pairs)
        equal += _pairs(seed for _, seed in pairs) - _pairs(pairs)
    mean = compared / 2**bits
    # Chernoff's bound of the probability that a Poisson variable is so large
    if equal > mean and equal - mean + equal * math.log(mean / equal) <= math.log(NEVER):
        return f"{equal:,} of {compared:,} pairs are equal, as {example}"
    return ""


def _pairs(values):
    return sum(math.comb(count, 2) for count in Counter(values).values())


def _changed(seeds, again):
    changed = [rollout for rollout, seed in again.items() if seeds[rollout] != seed]
    return f"{len(changed):,} of {len(again):,} seeds change, as {changed[0]}" if changed else ""


def _unfilled(seeds, bits):
    """Say which part of the range has no seeds, or which bits are not 0 and 1 equally often."""
    low, high = min(seeds), max(seeds)
    if low < 0 or not 2 ** (bits - 8) <= high < 2**bits:
        return f"from {low:,} to {high:,}"
    off = math.sqrt(len(seeds) * math.log(2 * bits / NEVER) / 2)  # Hoeffding's bound
    ones = [sum(seed >> bit & 1 for seed in seeds) for bit in range(bits)]
    stuck = [bit for bit, count in enumerate(ones) if abs(count - len(seeds) / 2) > off]
    return f"bits {stuck} are not 0 and 1 equally often" if stuck else ""

"""The seed contract: fastseed's seeds keep it, and every rule is broken by a scheme without it."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest

import fastseed
from fastseed.rollouts import check_seed_contract

SMALL = {"prompts": 8, "samples": 4, "steps": 4, "turns": 2}
IDENTITY = ("master_seed", "step", "turn", "prompt", "sample")


def hashed(*names, bits=63):
    """Return a scheme that hashes these coordinates."""

    def fn(**at):
        digest = hashlib.sha256(repr([at[name] for name in names]).encode()).digest()
        return int.from_bytes(digest[:8], "little") % 2**bits

    return fn


def broken(report):
    return {rule.name for rule in report.rules if not rule.ok}


def without(name):
    return hashed(*(other for other in IDENTITY if other != name))


# ---------------------------------------------------------------- which rules


def by_one(step, prompt, sample, turn, master_seed, **others):
    return fastseed.rollouts.seed(step, prompt, sample, turn=turn, master_seed=master_seed)


def by_table(step, prompt, sample, turn, master_seed, **others):
    text = f"prompt {prompt}"
    rows = fastseed.rollouts.table(step, [text], [sample], turn=turn, master_seed=master_seed)
    return rows[0][0]


def by_arrays(step, prompt, sample, turn, master_seed, **others):
    tokens = [prompt, 7]
    found = fastseed.rollouts.seeds(step, [tokens], [sample], [turn], master_seed=master_seed)
    return found[0]


@pytest.mark.parametrize("fn", [by_one, by_table, by_arrays, hashed(*IDENTITY)])
def test_the_contract_is_kept(fn):
    report = check_seed_contract(fn, **SMALL)
    assert report.ok, report
    assert report.different == report.rollouts == 8 * 4 * 4 * 2
    assert report.random_bits == 63 and 0 < report.equal_pairs_in_run < 1e-7


def test_narrow_seeds_keep_it_if_that_is_stated():
    def fn(step, prompt, sample, turn, master_seed, **others):
        seed = fastseed.rollouts.seed
        return seed(step, prompt, sample, turn=turn, master_seed=master_seed, bits=31)

    assert check_seed_contract(fn, bits=31, **SMALL).ok
    assert broken(check_seed_contract(fn, **SMALL)) == {"fills 63 bits"}


BROKEN = {
    "sample": (without("sample"), {"different within a step"}),
    "prompt": (without("prompt"), {"different within a step"}),
    "step": (without("step"), {"different across steps"}),
    "turn": (without("turn"), {"different across turns"}),
    "master seed": (without("master_seed"), {"different across master seeds"}),
    "chunk": (hashed(*IDENTITY, "chunk"), {"independent of chunks", "independent of workers"}),
    "worker": (hashed(*IDENTITY, "worker"), {"independent of workers"}),
    "place": (hashed(*IDENTITY, "place"), {"independent of order"}),
    "request": (
        hashed(*IDENTITY, "request"),
        {"independent of workers", "independent of order", "independent of a resume"},
    ),
    "31 bits": (hashed(*IDENTITY, bits=31), {"fills 63 bits"}),
    "64 bits": (hashed(*IDENTITY, bits=64), {"fills 63 bits"}),
}


@pytest.mark.parametrize(("fn", "rules"), BROKEN.values(), ids=BROKEN)
def test_each_rule_sees_the_scheme_that_breaks_it(fn, rules):
    report = check_seed_contract(fn, **SMALL)
    assert broken(report) == rules and not report.ok


def test_position_in_a_chunk_breaks_chunks():
    rules = broken(check_seed_contract(hashed(*IDENTITY, "position"), **SMALL))
    assert {"independent of chunks", "independent of order"} <= rules


def test_sums_of_coordinates_meet_across_turns_and_master_seeds():
    """Seeds that are different at each turn, and those of the next step at the next turn."""

    def fn(master_seed, step, turn, prompt, sample, **others):
        return 2**62 + master_seed + step + turn + 1000 * (4 * prompt + sample)

    names = {"across turns", "across master seeds"}
    assert broken(check_seed_contract(fn, **SMALL)) == {f"different {name}" for name in names}


def test_a_count_of_calls_depends_on_all_circumstances():
    count = itertools.count(2**62)
    rules = broken(check_seed_contract(lambda **at: next(count), **SMALL))
    assert rules == {
        f"independent of {what}" for what in ("chunks", "workers", "order", "a resume")
    }


# ---------------------------------------------------------------- figures


def test_random_seeds_of_few_bits_may_meet_as_often_as_chance_has_it():
    """16 bits: 128 equal pairs of 4,096 rollouts, and the figure is 16 bits."""
    report = check_seed_contract(hashed(*IDENTITY, bits=16), bits=16)
    assert report.ok, report
    pairs = 4096**2 / 2**17
    assert abs(report.rollouts - report.different - pairs) < 5 * pairs**0.5
    assert abs(report.random_bits - 16) < 0.5
    assert report.equal_pairs_in_run == pytest.approx(1e12 / 2**17, rel=0.4)


def test_more_equal_pairs_than_chance_has_break_it():
    """Twice as many as of random seeds: one bit less."""
    report = check_seed_contract(hashed(*IDENTITY, bits=15), bits=16)
    assert "different across turns" in broken(report)


def test_figures_of_a_run():
    report = check_seed_contract(hashed(*IDENTITY, bits=31), bits=31, run=409_600, **SMALL)
    assert report.run == 409_600
    assert report.equal_pairs_in_run == pytest.approx(409_600**2 / 2**32, rel=1e-4)  # 39
    report = check_seed_contract(lambda sample, **others: sample, **SMALL)
    assert report.different == 4
    assert report.random_bits == pytest.approx(2, abs=0.03)


def test_the_report_names_two_rollouts_and_reads_well():
    report = check_seed_contract(lambda master_seed, sample, **others: master_seed + sample)
    text = repr(report)
    assert text == str(report) and text.splitlines()[0] == "seed contract: 5 of 9 rules broken"
    assert "BROKEN  different within a step: 63,488 of 522,240 pairs are equal" in text
    assert "as master_seed 42 and 43, sample 1 and 0" in text
    assert "kept    independent of workers: 0 of 4,096 seeds change" in text
    assert "8 different seeds of 4,096 rollouts: as of random seeds of 3.0 bits" in text
    changed = repr(check_seed_contract(hashed(*IDENTITY, "worker"), **SMALL))
    assert "192 of 256 seeds change, as step 0, turn 0, prompt 2, sample 0: " in changed


def test_the_digest_is_that_of_the_seeds():
    one, again = (check_seed_contract(by_one, **SMALL).digest for _ in range(2))
    assert one == again != check_seed_contract(hashed(*IDENTITY), **SMALL).digest
    assert one.startswith("e41b18a71c8d8aaf")


# ---------------------------------------------------------------- refused


def test_what_is_checked_is_a_function():
    with pytest.raises(TypeError, match=r"^fastseed\.rollouts\.check_seed_contract: fn must be a"):
        check_seed_contract({"seed": 1})


@pytest.mark.parametrize("value", [1.0, None, "1", True, np.bool_(True), np.float64(3)])
def test_a_seed_is_an_integer(value):
    says = r"^fastseed\.rollouts\.check_seed_contract: fn\(\.\.\.\) must be an integer"
    with pytest.raises(TypeError, match=says):
        check_seed_contract(lambda **at: value)


@pytest.mark.parametrize(
    ("bad", "says"),
    [({"prompts": 3}, "prompts"), ({"steps": 1}, "steps"), ({"turns": 1}, "turns"),
     ({"samples": 0}, "samples"), ({"bits": 65}, "bits"), ({"run": 1}, "run")],
)  # fmt: skip
def test_refused_arguments(bad, says):
    with pytest.raises(ValueError, match=rf"check_seed_contract: {says} must be in"):
        check_seed_contract(by_one, **bad)


def test_errors_of_the_function_are_its_own():
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        check_seed_contract(lambda step: step)

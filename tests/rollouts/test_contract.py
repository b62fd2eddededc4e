"""docs/spec/seed_contract.py: every rule is broken by a scheme without it, none by fastseed's."""

import hashlib
import random
import runpy

import numpy as np
import pytest
from helpers.paths import ROOT
from helpers.seed_schemes import broken_rules
from helpers.support import run_python

import fastseed
from fastseed.rollouts import seed

SMALL = {"prompts": 8, "samples": 4, "steps": 4, "turns": 2}
IDENTITY = ("master_seed", "step", "turn", "prompt", "sample")


def hashed(*names, bits=63):
    """Return a scheme that hashes these coordinates."""

    def fn(**at):
        digest = hashlib.sha256(repr([at[name] for name in names]).encode()).digest()
        return int.from_bytes(digest[:8], "little") % 2**bits

    return fn


def broken(fn, **options):
    return set(broken_rules(fn, **{**SMALL, **options}))


def without(name):
    return hashed(*(other for other in IDENTITY if other != name))


def by_one(step, prompt, sample, turn, master_seed, bits=63, **others):
    seed = fastseed.rollouts.seed
    return seed(step, prompt, sample, turn=turn, master_seed=master_seed, bits=bits)


def by_many(step, prompt, sample, turn, master_seed, **others):
    return fastseed.rollouts.seeds(step, [prompt], [sample], turn, master_seed=master_seed)[0]


def consecutive(step, prompt, sample, turn, master_seed, **others):
    return 2**62 + ((((master_seed << 3 | step) << 1 | turn) << 5 | prompt) << 3 | sample)


def low_bits_are_zero(**at):
    return by_one(bits=31, **at) << 32


@pytest.mark.parametrize("fn", [by_one, by_many, hashed(*IDENTITY)])
def test_the_contract_is_kept(fn):
    assert broken_rules(fn, **SMALL) == {}


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
    "a running number": (consecutive, {"fills 63 bits"}),
    "31 high bits": (low_bits_are_zero, {"fills 63 bits"}),
}


@pytest.mark.parametrize(("fn", "rules"), BROKEN.values(), ids=BROKEN)
def test_each_rule_sees_the_scheme_that_breaks_it(fn, rules):
    assert broken(fn) == rules


def test_position_in_a_chunk_breaks_chunks():
    assert {"independent of chunks", "independent of order"} <= broken(hashed("position"))


def test_narrow_seeds_may_meet_as_often_as_chance_has_it():
    """16 bits: 128 equal pairs of 4,096 rollouts; twice as many, of 15 bits, break a rule."""
    assert broken_rules(hashed(*IDENTITY, bits=16), bits=16) == {}
    doubled = hashed(*IDENTITY, bits=15)
    assert "different across turns" in broken_rules(lambda **at: doubled(**at) * 2, bits=16)


def test_findings_name_rollouts():
    found = broken_rules(lambda master_seed, sample, **others: master_seed + sample)
    assert found["different within a step"].startswith("63,488 of 522,240 pairs are equal, as ")
    assert "master_seed 42 and 43, sample 1 and 0" in found["different across master seeds"]
    found = broken_rules(hashed(*IDENTITY, "worker"), **SMALL)["independent of workers"]
    assert found.startswith("192 of 256 seeds change, as Rollout(master_seed=42, step=0, turn=0")


@pytest.mark.parametrize("value", [1.0, None, "1", True, np.bool_(True), np.float64(3)])
def test_a_seed_is_an_integer(value):
    with pytest.raises(TypeError, match="must be an integer"):
        broken_rules(lambda **at: value)


PATH = ROOT / "docs" / "spec" / "rollout_seed.py"
FILE = runpy.run_path(str(PATH))
LIMITS = {"turn": 2**24 - 1, "task": 2**24, "epoch": 2**32, "master_seed": 2**64}


def test_the_known_answers_are_the_library_s():
    assert len(FILE["KNOWN"]) == 20
    for (*at, master_seed), others, expected in FILE["KNOWN"]:
        assert seed(*at, master_seed=master_seed, **others) == expected


def test_it_checks_itself(tmp_path):
    assert (
        run_python("-c", f"import runpy; runpy.run_path({str(PATH)!r}, run_name='__main__')") == ""
    )
    changed = tmp_path / "rollout_seed.py"
    changed.write_text(PATH.read_text().replace("0xCD9E8D57", "0xCD9E8D59"))
    with pytest.raises(AssertionError, match="AssertionError"):
        run_python("-c", f"import runpy; runpy.run_path({str(changed)!r}, run_name='__main__')")


def prompts(numbers):
    tokens = [numbers.randrange(2**32) for _ in range(numbers.randrange(9))]
    text = "".join(chr(numbers.choice((65, 0, 0xE4, 0x4E2D, 0x1F600))) for _ in tokens)
    return numbers.choice((numbers.randrange(2**64), text, tokens))


def test_it_equals_the_library_bit_for_bit():
    numbers = random.Random(0)
    for _ in range(2000):
        at = numbers.randrange(2**64), prompts(numbers), numbers.randrange(2**32)
        others = {name: numbers.randrange(limit) for name, limit in LIMITS.items()}
        others["bits"], others["name"] = numbers.choice((63, 31)), numbers.choice(("rollout", "ä"))
        assert FILE["seed"](*at, **others) == seed(*at, **others)


@pytest.mark.parametrize("bad", [{"step": -1}, {"step": 2**64}, {"sample": 2**32}, {"prompt": -1},
                                 *({name: limit} for name, limit in LIMITS.items())])  # fmt: skip
def test_it_refuses_what_the_library_refuses(bad):
    given = {"step": 0, "prompt": 0, "sample": 0, "master_seed": 0, **bad}
    for function in (FILE["seed"], seed):
        with pytest.raises(ValueError, match=r"in \[0, "):
            function(**given)


NO_PROMPTS = [
    [{"role": "user"}], {7: 1}, {3, 1}, range(2), b"abc", 1.5, None, True, ["1"], [1.0], [True]
]  # fmt: skip


@pytest.mark.parametrize("bad", [{"bits": 64}, {"bits": 5}, {"bits": 63.0}, {"name": ""},
                                 {"name": b"a"}, {"sample": True}, {"step": 1.0},
                                 *({"prompt": no} for no in NO_PROMPTS)])  # fmt: skip
def test_it_refuses_other_arguments_that_the_library_refuses(bad):
    for function in (FILE["seed"], seed):
        with pytest.raises((TypeError, ValueError)):
            function(**{"step": 0, "prompt": 0, "sample": 0, "master_seed": 0, **bad})

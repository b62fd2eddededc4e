"""docs/spec/rollout_seed.py, which other projects copy: the library's bits in plain Python."""

import random
import runpy

import pytest
from helpers.paths import ROOT
from helpers.support import run_python

from fastseed.rollouts import seed

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

"""The seed of one rollout: its bits, prompts of every kind, without NumPy."""

import hashlib
import struct

import numpy as np
import pytest
import torch
from helpers.support import freed, reference_key, run_python

import fastseed
from fastseed.rollouts import identity, seed

# From tests/vectors/make_vectors.py, which shares no code with the library.
KNOWN = {(0, 0): 8289389468468632370, (0, 1): 8606223786305804989, (1, 1): 4847584437782537390}
TEXT_KNOWN = [6046037050508140924, 400187838658152262]
TOKENS = [1, 15, 4, 2**32 - 1]


def seed_of(prompt, sample=1, step=3, **more):
    return seed(step, prompt, sample, **{"master_seed": 42, **more})


def test_known_answers():
    for (prompt, sample), expected in KNOWN.items():
        assert seed_of(prompt, sample) == expected
    for sample, expected in enumerate(TEXT_KNOWN):
        assert seed_of("What is 7 * 8?", sample) == expected
        assert seed_of("What is 7 * 8?", sample, bits=31) == expected % 2**31


def test_it_is_the_key_of_the_rollout():
    at = {"task": 1, "epoch": 2}
    for prompt, sample, turn in ((2**64 - 1, 2**32 - 1, 2**24 - 2), (0, 0, 0), (5, 3, 1)):
        found = seed_of(prompt, sample, turn=turn, **at)
        key = reference_key("rollout", step=3, rank=turn, worker=sample, index=prompt, **at)
        assert found == key % 2**63
        assert type(found) is int
    fastseed.init(42)
    where = {"step": 3, "rank": 1, "worker": 3, "index": 5, **at}
    assert seed_of(5, 3, turn=1, **at) == fastseed.derive_seed("rollout", **where) % 2**63


def test_without_native_code_the_bits_are_the_same(monkeypatch):
    prompts = [5, "a", TOKENS]
    expected = [seed_of(prompt) for prompt in prompts]
    monkeypatch.setattr(identity, "_native", lambda: None)
    assert [seed_of(prompt) for prompt in prompts] == expected


def test_the_identity_of_token_ids():
    data = struct.pack("<B4I", 255, *TOKENS)
    number = int.from_bytes(hashlib.sha256(data).digest()[:8], "little")
    expected = seed_of(number)
    for form in (
        TOKENS,
        tuple(TOKENS),
        np.array(TOKENS),
        np.array(TOKENS, np.uint32)[::1],
        torch.tensor(TOKENS),
        [np.int64(token) for token in TOKENS],
    ):
        assert seed_of(form) == expected
    others = [[], [0], [0, 0], [1, 15, 4], [15, 1, 4, 2**32 - 1], [TOKENS[0]], TOKENS[0], "1"]
    assert len({expected, *map(seed_of, others)}) == 9


def test_token_ids_are_no_text():
    """The bytes of the ids are UTF-8 here, and a text of these bytes has another identity."""
    text = struct.pack("<3I", 65, 66, 67).decode()
    assert seed_of([65, 66, 67]) != seed_of(text)


FREED = freed(torch.zeros(2, dtype=torch.int64))
CHAT = [{"role": "user", "content": "a"}]
BAD = [
    (
        {"prompt": CHAT},
        TypeError,
        r"prompt must be .*\(for chat messages: what apply_chat_template",
    ),
    ({"prompt": b"a"}, TypeError, "prompt must be a string, an integer or"),
    ({"prompt": True}, TypeError, "prompt must be an integer"),
    ({"prompt": [1, True]}, TypeError, "prompt must be a string, an integer or"),
    ({"prompt": [[1, 2]]}, TypeError, "prompt must be a string, an integer or"),
    ({"prompt": torch.ones(1, 3, dtype=int)}, TypeError, r"prompt must be .* of shape \(n,\)"),
    ({"prompt": torch.tensor(3)}, TypeError, "prompt must be a string, an integer or"),
    ({"prompt": np.ones(3)}, TypeError, "prompt must be a string, an integer or"),
    ({"prompt": torch.ones(3, dtype=int, device="meta")}, ValueError, "prompt must have data"),
    ({"prompt": FREED}, ValueError, "prompt must have memory"),
    ({"prompt": [1, -1]}, ValueError, r"prompt\[1\] must be in \[0, 4294967295\], got -1"),
    ({"prompt": "\ud800"}, ValueError, "prompt must be a string with a UTF-8 encoding"),
    ({"turn": 2**24 - 1}, ValueError, r"turn must be in \[0, 16777214\]"),
    ({"name": "dropout/x"}, ValueError, "name must be one that fastseed does not use"),
    ({"bits": 32}, ValueError, "bits must be one of 63, 31"),
]


@pytest.mark.parametrize(("bad", "error", "text"), BAD)
def test_refused_arguments(bad, error, text):
    with pytest.raises(error, match=rf"^fastseed\.rollouts\.seed: {text}"):
        seed_of(**{"prompt": 1, **bad})


def test_neither_torch_nor_numpy_is_loaded():
    code = (
        "import sys, fastseed.rollouts as r;"
        "print([r.seed(3, p, 1, master_seed=42) for p in (1, 'What is 7 * 8?', [1, 15, 4])]);"
        "print([m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    seeds, loaded = run_python("-c", code).splitlines()
    assert seeds == str([seed_of(p) for p in (1, "What is 7 * 8?", [1, 15, 4])])
    assert loaded == "[]"


BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

absent = sys.argv[1:]
sys.meta_path.insert(0, Absent())
import fastseed.rollouts as r
print(r.seed(3, "What is 7 * 8?", 1, master_seed=42))
if "numpy" not in absent:
    print(r.seeds(3, [0, 1], 2, master_seed=42).tolist())
    print(r.seeds(3, [0, 1], [0, 1], master_seed=42).tolist())
"""


@pytest.mark.parametrize("absent", [["torch"], ["torch", "numpy"]])
def test_torch_need_not_be_installed(absent):
    """With NumPy everything works; without it the seed of one rollout."""
    found = run_python("-c", BLOCKED, *absent).splitlines()
    assert found[0] == str(TEXT_KNOWN[1])
    if "numpy" not in absent:
        (a, b), (_, d) = eval(found[1])
        assert [a, b, d] == list(KNOWN.values()) and found[2] == str([a, d])

"""Seeds of many rollouts: a grid of samples or one by one, the same bits as ``seed``."""

import itertools
import json
import warnings

import numpy as np
import pytest
import torch
from helpers.processes import Script
from helpers.support import SCRIPTS, freed, run_python

import fastseed
from fastseed.rollouts import identity, seed, seeds

AT = {"task": 1, "epoch": 2, "master_seed": 42}
PROMPTS = [3, "a", 2**64 - 1, "a", [1, 2], np.array([1, 2]), 0]
SAMPLES = [0, 1, 2**32 - 1, 0, 5, 6, 7]
TURNS = [0, 1, 2**24 - 2, 0, 3, 3, 0]


def test_they_are_the_seeds_of_single_rollouts():
    found = seeds(9, PROMPTS, SAMPLES, TURNS, **AT)
    assert found.dtype == np.int64 and found.shape == (7,) and found.min() >= 0
    expected = [
        seed(9, p, k, turn=t, **AT) for p, k, t in zip(PROMPTS, SAMPLES, TURNS, strict=True)
    ]
    assert found.tolist() == expected
    assert found[5] == seed(9, [1, 2], 6, turn=3, **AT)  # of a list and an array
    narrow = seeds(9, PROMPTS, SAMPLES, TURNS, bits=31, **AT)
    assert narrow.tolist() == [number % 2**31 for number in expected]


@pytest.mark.parametrize("turns", [5, [5, 0, 7]])
def test_a_number_of_samples_gives_a_row_for_each_prompt(turns):
    prompts = [3, "a", [1, 2]]
    found = seeds(9, prompts, 4, turns, **AT)
    assert found.dtype == np.int64 and found.shape == (3, 4) and found.min() >= 0
    for i, k in itertools.product(range(3), range(4)):
        turn = turns if isinstance(turns, int) else turns[i]
        assert found[i, k] == seed(9, prompts[i], k, turn=turn, **AT)
    assert seeds(9, [], 4, **AT).shape == (0, 4) and seeds(9, [1, 2], 0, **AT).shape == (2, 0)


def test_they_are_the_cells_of_a_grid_in_any_order():
    """Also the loop over parts of a large result."""
    prompts = np.random.default_rng(0).integers(0, 2**63, 300)
    rows = seeds(4, prompts, 700, 5, **AT)
    at = np.random.default_rng(1).permutation(rows.size)[:100_000]
    found = seeds(4, prompts[at // 700], at % 700, 5, **AT)
    assert np.array_equal(found, rows.reshape(-1)[at])
    wide = seeds(4, prompts[:2], 70_000, 5, **AT)
    assert np.array_equal(wide[:, :700], rows[:2])
    assert wide[1, 69_999] == seed(4, int(prompts[1]), 69_999, turn=5, **AT)


def test_forms_agree():
    expected = [seed(9, p, k, turn=2, **AT) for p, k in itertools.product((3, 2**40), (0, 6))]
    prompts, samples = [3, 3, 2**40, 2**40], [0, 6, 0, 6]
    wide = np.array([[3, 3, 2**40, 2**40]] * 2)
    for of_prompts, of_samples, turns in (
        (prompts, samples, 2),
        (tuple(prompts), tuple(samples), np.int64(2)),
        (np.array(prompts, np.uint64), np.array(samples, np.int32), [2] * 4),
        (np.array(prompts, ">i8"), np.array(samples, np.uint8), np.full(4, 2)),
        (torch.tensor(prompts), torch.tensor(samples, dtype=torch.int16), torch.full((4,), 2)),
        (wide.T[:, 0], np.array(samples)[::-1][::-1], np.broadcast_to(np.int64(2), 4)),
        (np.array(prompts, object), samples, (np.uint8(2),) * 4),
    ):
        assert seeds(9, of_prompts, of_samples, turns, **AT).tolist() == expected
    assert seeds(9, [3, 2**40], np.int64(7), 2, **AT)[:, ::6].reshape(-1).tolist() == expected
    assert seeds(9, [], [], **AT).shape == seeds(9, [], [], [], **AT).shape == (0,)


def test_arguments_are_not_written():
    given = np.array([3, 5]), np.array([0, 1], np.uint64), np.array([7, 8])
    for array in given:
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seeds(9, *given, **AT)
    assert [array.tolist() for array in given] == [[3, 5], [0, 1], [7, 8]]


def run_workers(workers: int, chunks: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for worker in range(workers):
        script = Script(
            SCRIPTS / "rollout_worker.py", worker, workers, chunks, fresh=True,
            FASTSEED_MASTER_SEED="7",
        )  # fmt: skip
        said = json.loads(script.wait().stdout)
        assert said["loaded"] == [] and not set(found) & set(said["seeds"])
        found.update(said["seeds"])
    return found


def test_chunks_and_workers_do_not_matter():
    """48 prompts with 16 samples in 4 chunks, as in a job whose noise repeated in each chunk."""
    one = run_workers(1, 4)
    assert len({*itertools.chain(*one.values())}) == 768
    assert run_workers(3, 6) == one


def test_torch_is_not_imported():
    code = (
        "import sys, fastseed.rollouts; a = 'numpy' in sys.modules; int(fastseed.SHARED);"
        "fastseed.rollouts.seeds(1, ['x'], 2, master_seed=1);"
        "print(a, 'torch' in sys.modules, 'numpy' in sys.modules, 'ninja' in sys.modules)"
    )
    assert run_python("-c", code).split() == ["False", "False", "True", "False"]


FREED = freed(torch.zeros(2, dtype=torch.int64))
BAD = [
    ({"prompts": "ab"}, TypeError, "prompts must be a sequence of prompts"),
    ({"prompts": {"a", "b"}}, TypeError, "prompts must be a sequence of prompts"),
    ({"turns": range(2**70)}, TypeError, "turns must be a sequence of 2 integers"),
    ({"prompts": np.zeros((2, 3), int)}, ValueError, r"prompts must be .* without padding"),
    ({"prompts": np.zeros(2)}, TypeError, r"prompts\[0\] must be a string, an integer"),
    ({"prompts": [1, [{"role": "user"}]]}, TypeError, r"prompts\[1\] must be a string, .*chat"),
    ({"prompts": [1, -1]}, ValueError, r"prompts\[1\] must be in"),
    ({"prompts": np.array([1, -1], np.int8)}, ValueError, r"prompts\[1\] must be in"),
    ({"prompts": FREED}, ValueError, "prompts must have memory"),
    ({"prompts": [1, FREED]}, ValueError, r"prompts\[1\] must have memory"),
    ({"prompts": [1, 2, 3]}, ValueError, "samples must be a sequence of 3 integers, one for each"),
    ({"samples": [0]}, ValueError, "samples must be a sequence of 2 integers.* got '1 of them'"),
    ({"samples": [0, 2**32]}, ValueError, r"samples\[1\] must be in \[0, 4294967295\]"),
    ({"samples": np.array([0, 1.0])}, TypeError, r"samples\[0\] must be an integer"),
    ({"turns": [0, 2**24 - 1]}, ValueError, r"turns\[1\] must be in \[0, 16777214\]"),
    ({"turns": "a"}, TypeError, "turns must be a sequence of 2 integers"),
]


@pytest.mark.parametrize(("bad", "error", "text"), BAD)
def test_refused_arguments(bad, error, text):
    given = {"prompts": [1, 2], "samples": [0, 1], "turns": 0, **bad}
    with pytest.raises(error, match=rf"^fastseed\.rollouts\.seeds: {text}"):
        seeds(3, **given, master_seed=42)


@pytest.mark.parametrize("prompts", [["a", "b", "a"], np.array([7, 1, 7])])
def test_equal_prompts_of_a_grid_are_refused_by_name(prompts):
    both = r"prompts\[0\] and prompts\[2\] must be different prompts \(samples is the number of"
    for turns in (0, [1, 1, 1]):
        with pytest.raises(ValueError, match=both):
            seeds(3, prompts, 2, turns, master_seed=42)
    assert seeds(3, prompts, 2, [0, 0, 1], master_seed=42).shape == (3, 2)  # turns of one prompt


@pytest.mark.parametrize("bits", [31, 63])
def test_a_rollout_that_is_there_twice_is_refused_by_name(bits):
    more = {"bits": bits, "master_seed": 42}
    both = r"prompts\[0\] and prompts\[2\] must be different rollouts: give each its own prompt"
    for turns in (0, [1, 0, 1]):
        with pytest.raises(ValueError, match=both):
            seeds(3, ["a", "b", "a"], [4, 4, 4], turns, **more)
        assert len(set(seeds(3, ["a", "b", "a"], [4, 4, 5], turns, **more).tolist())) == 3
    assert len(set(seeds(3, ["a", "b", "a"], [4, 4, 4], [1, 0, 0], **more).tolist())) == 3


@pytest.mark.parametrize("samples", [16, np.tile(np.arange(16), 10_000)], ids=["grid", "flat"])
def test_equal_seeds_of_31_bits_are_reported(samples):
    prompts = np.arange(10_000) if isinstance(samples, int) else np.repeat(np.arange(10_000), 16)
    with pytest.warns(UserWarning, match="different rollouts have the same 31 bits") as caught:
        found = seeds(3, prompts, samples, bits=31, master_seed=42)
    assert caught[0].filename == __file__
    pairs = found.size - len(np.unique(found))
    assert 1 <= pairs <= 20 and f"{pairs} different rollouts" in str(caught[0].message)  # 6 are due
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(np.unique(seeds(3, prompts, samples, master_seed=42))) == 160_000


def test_master_seed_of_init_and_of_the_environment(monkeypatch):
    expected = seed(3, 1, 0, master_seed=99)
    with pytest.raises(RuntimeError, match=r"give master_seed, call fastseed\.init\(\.\.\.\)"):
        seeds(3, [1], 1)
    monkeypatch.setenv("FASTSEED_MASTER_SEED", "99")
    assert seeds(3, [1], 1) == expected == seed(3, 1, 0)
    fastseed.init(5)  # wins over the variable
    assert seeds(3, [1], 1) == seed(3, 1, 0, master_seed=5) != expected


@pytest.mark.parametrize("text", ["abc", str(2**64)])
def test_a_variable_that_is_no_seed_is_refused(text, monkeypatch):
    monkeypatch.setenv("FASTSEED_MASTER_SEED", text)
    with pytest.raises(ValueError, match="FASTSEED_MASTER_SEED must be an integer in"):
        identity.check_master_seed("f", None)

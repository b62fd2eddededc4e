"""Seeds of rollouts: by global identity, different, the same on any worker, and without torch."""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings

import numpy as np
import pytest
import torch
from helpers.processes import Script
from helpers.support import SCRIPTS, reference_key, run_python

import fastseed
from fastseed.rollouts import identity, table

LOW63 = 2**63 - 1
TEXT = "What is 7 * 8?"
# From tests/vectors/make_vectors.py, which shares no code with the library.
KNOWN = [[8289389468468632370, 8606223786305804989], [7256314431017268728, 4847584437782537390]]
TEXT_KNOWN = [6046037050508140924, 400187838658152262]


def seeds_of(prompts, samples, step=3, **more):
    return table(step, prompts, samples, **{"master_seed": 42, **more})


# ---------------------------------------------------------------- which bits


@pytest.mark.parametrize("prompt", [0, 5, 2**63, 2**64 - 1])
@pytest.mark.parametrize("turn", [0, 7, 2**24 - 2])
def test_a_seed_is_the_low_bits_of_the_key_of_its_rollout(prompt, turn):
    at = {"task": 1, "epoch": 2, "step": 3}
    seeds = seeds_of([prompt], 4, turn=turn, task=1, epoch=2)
    for sample, seed in enumerate(seeds[0]):
        key = reference_key("rollout", **at, rank=turn, worker=sample, index=prompt)
        assert seed == key & LOW63
    fastseed.init(42)
    where = {**at, "rank": turn, "worker": 3, "index": prompt}
    assert seeds[0][3] == fastseed.derive_seed("rollout", **where) & LOW63


def test_known_answers():
    assert seeds_of([0, 1], 2).array.tolist() == KNOWN
    assert seeds_of([TEXT], 2, bits=31).array.tolist() == [[seed % 2**31 for seed in TEXT_KNOWN]]
    assert seeds_of([TEXT], 2)[0] == TEXT_KNOWN
    number = int.from_bytes(hashlib.sha256(TEXT.encode()).digest()[:8], "little")
    assert seeds_of([number], 2)[0] == TEXT_KNOWN


@pytest.mark.parametrize("bits", [63, 31])
def test_seeds_fit_their_bits(bits):
    array = seeds_of(range(100), 8, bits=bits).array
    assert array.dtype == np.int64 and array.shape == (100, 8)
    assert array.min() >= 0 and 2 ** (bits - 1) < array.max() < 2**bits


def test_forms_of_prompts_and_samples_agree():
    expected = seeds_of([3, 2**40, 7], 4).array
    for prompts in (
        (3, 2**40, 7),
        np.array([3, 2**40, 7]),
        np.array([3, 2**40, 7], np.uint64),
        torch.tensor([3, 2**40, 7]),
        [np.int32(3), 2**40, np.uint64(7)],
    ):
        assert np.array_equal(seeds_of(prompts, 4).array, expected)
    assert np.array_equal(seeds_of([3, 2**40, 7], [3, 1]).array, expected[:, [3, 1]])
    assert np.array_equal(seeds_of([3, 2**40, 7], range(1, 3)).array, expected[:, 1:3])
    assert seeds_of([], 4).array.shape == (0, 4) and seeds_of([1, 2], 0).array.shape == (2, 0)


def test_large_calls_equal_small_ones():
    """The loop over parts of a large result."""
    whole = seeds_of(range(300), 700).array
    wide = seeds_of([0, 299], 70_000).array
    assert np.array_equal(whole[299], wide[1, :700])
    assert seeds_of([299], [69_999])[0] == wide[1, 69_999:].tolist()
    assert seeds_of([123], 3)[0] == whole[123, :3].tolist()


# ---------------------------------------------------------------- which rollouts differ


def test_every_coordinate_changes_the_seed():
    base = {"step": 3, "turn": 0, "task": 0, "epoch": 0, "name": "rollout", "master_seed": 42}
    changed = {"step": 4, "turn": 1, "task": 1, "epoch": 1, "name": "draft", "master_seed": 43}
    found = [seeds_of([0, 1], 2, **base).array]
    found += [seeds_of([0, 1], 2, **{**base, name: value}).array for name, value in changed.items()]
    assert len(np.unique(found)) == 4 * 7


def run_workers(workers: int, chunks: int) -> dict[str, list[int]]:
    seeds: dict[str, list[int]] = {}
    for worker in range(workers):
        script = Script(
            SCRIPTS / "rollout_worker.py", worker, workers, chunks, fresh=True,
            FASTSEED_MASTER_SEED="7",
        )  # fmt: skip
        found = json.loads(script.wait().stdout)
        assert found["loaded"] == []
        assert not set(seeds) & set(found["seeds"])
        seeds.update(found["seeds"])
    return seeds


def test_chunks_and_workers_do_not_matter():
    """48 prompts with 16 samples in 4 chunks, as in a job whose noise repeated in each chunk."""
    one = run_workers(1, 4)
    assert len({*itertools.chain(*one.values())}) == 768
    assert run_workers(3, 6) == one


# ---------------------------------------------------------------- without torch


def test_torch_is_not_imported():
    code = (
        "import sys, fastseed.sampling; a = 'numpy' in sys.modules; int(fastseed.SHARED);"
        "fastseed.rollouts.table(1, ['x'], 2, master_seed=1);"
        "import fastseed; fastseed.rollouts.table(1, ['x'], 2, master_seed=1);"
        "print(a, 'torch' in sys.modules, 'numpy' in sys.modules, 'ninja' in sys.modules)"
    )
    assert run_python("-c", code).split() == ["False", "False", "True", "False"]


# ---------------------------------------------------------------- the master seed


def test_master_seed_of_init_and_of_the_environment(monkeypatch):
    expected = seeds_of([1], 2, master_seed=99)[0]
    with pytest.raises(RuntimeError, match=r"give master_seed, or call fastseed\.init\(\.\.\.\)"):
        table(3, [1], 2)
    monkeypatch.setenv("FASTSEED_MASTER_SEED", "99")
    assert table(3, [1], 2)[0] == expected
    fastseed.init(5)  # wins over the variable
    assert table(3, [1], 2)[0] == seeds_of([1], 2, master_seed=5)[0]
    fastseed.init(99)
    assert table(3, [1], 2)[0] == expected


@pytest.mark.parametrize("text", ["abc", "-1", str(2**64), "1e3", "9" * 6000, "0" * 25 + "9" * 30])
def test_a_variable_that_is_no_seed_is_refused(text, monkeypatch):
    monkeypatch.setenv("FASTSEED_MASTER_SEED", text)
    with pytest.raises(ValueError, match="FASTSEED_MASTER_SEED must be an integer in"):
        table(3, [1], 2)


def test_the_scheme_of_fwr13y_has_no_keys():
    fastseed.init(5, scheme="fwr13y")
    with pytest.raises(ValueError, match=r"scheme must be 'philox-v1' \(or give master_seed\)"):
        table(3, [1], 2)
    assert seeds_of([1], 2, master_seed=5)


# ---------------------------------------------------------------- refused arguments

FREED = torch.zeros(2, dtype=torch.int64)
FREED.untyped_storage().resize_(0)
BAD = [
    ({"prompts": "text"}, TypeError, "prompts must be a sequence of prompts"),
    ({"prompts": 5}, TypeError, "prompts must be a sequence of prompts"),
    ({"prompts": [1, 2.5]}, TypeError, r"prompts\[1\] must be a string, an integer or"),
    ({"prompts": {"input_ids": [[1, 2]]}}, TypeError, "prompts must be a sequence of prompts"),
    *(
        (
            {"prompts": [tokens]},
            TypeError,
            r"prompts\[0\] must be a string, an integer or a sequence of token ids .*\(for chat",
        )
        for tokens in ([1, "2"], [{"role": "user", "content": "a"}], {"text": "a"})
    ),
    ({"prompts": [1, None]}, TypeError, r"prompts\[1\] must be a string, an integer"),
    ({"prompts": [True]}, TypeError, r"prompts\[0\] must be an integer"),
    ({"prompts": [1, -1]}, ValueError, r"prompts\[1\] must be in \[0, "),
    ({"prompts": [2**64]}, ValueError, r"prompts\[0\] must be in \[0, "),
    ({"prompts": ["\ud800"]}, ValueError, r"prompts\[0\] must be a string with a UTF-8"),
    ({"prompts": np.array([3, -1])}, ValueError, r"prompts\[1\] must be in \[0, "),
    ({"prompts": np.zeros((1, 1), int)}, ValueError, r"prompts must be .* of shape \(n,\)"),
    ({"prompts": np.zeros(2)}, TypeError, r"prompts\[0\] must be a string, an integer"),
    ({"samples": -1}, ValueError, r"samples must be in \[0, "),
    ({"samples": FREED}, ValueError, "samples must have memory"),
    ({"prompts": FREED}, ValueError, "prompts must have memory"),
    ({"prompts": [FREED]}, ValueError, r"prompts\[0\] must have memory"),
    ({"prompts": torch.zeros(2, device="meta")}, ValueError, "prompts must have data"),
    ({"samples": 1.0}, TypeError, "samples must be an integer"),
    ({"samples": [0, 2**32]}, ValueError, r"samples\[1\] must be in \[0, "),
    ({"samples": [0, 1, 0]}, ValueError, "samples must be different numbers"),
    ({"turn": 2**24 - 1}, ValueError, r"turn must be in \[0, "),
    ({"step": -1}, ValueError, r"step must be in \[0, "),
    ({"task": 2**24}, ValueError, r"task must be in \[0, "),
    ({"epoch": "1"}, TypeError, "epoch must be an integer"),
    ({"name": ""}, ValueError, "name must be a non-empty string"),
    ({"bits": 64}, ValueError, "bits must be one of 63, 31"),
    ({"master_seed": -1}, ValueError, r"master_seed must be in \[0, "),
]


@pytest.mark.parametrize(("bad", "error", "text"), BAD)
def test_refused_arguments(bad, error, text):
    with pytest.raises(error, match=rf"^fastseed\.rollouts\.table: {text}"):
        seeds_of(**{"prompts": [1], "samples": 2, **bad})


@pytest.mark.parametrize("prompts", [["a", "b", "a"], [7, "b", 7], np.array([7, 1, 7])])
def test_equal_prompts_are_refused_by_name(prompts):
    both = r"prompts\[0\] and prompts\[2\] must be different prompts \(samples is .*\), got "
    with pytest.raises(ValueError, match=both) as caught:
        seeds_of(prompts, 2)
    assert str(caught.value).endswith(str(prompts[0])) or repr(prompts[0]) in str(caught.value)


def test_different_prompts_of_one_identity_are_refused(monkeypatch):
    word = int.from_bytes(hashlib.sha256(b"a").digest()[:8], "little")
    rule = r"prompts\[0\] and prompts\[1\] must be of different identities .*, got \('a', \d+\)"
    with pytest.raises(ValueError, match=rule):
        seeds_of(["a", word], 2)

    class Digest:  # no two texts with one hash are known
        digest = staticmethod(lambda: bytes(32))

    monkeypatch.setattr(identity.hashlib, "sha256", lambda text: Digest)
    with pytest.raises(ValueError, match=r"different identities .*, got \('a', 'b'\)"):
        seeds_of(["a", "b"], 2)


# ---------------------------------------------------------------- 31 bits


def test_equal_seeds_of_31_bits_are_reported():
    with pytest.warns(UserWarning, match="have the same seed of 31 bits") as caught:
        seeds = seeds_of(range(10_000), 16, bits=31)
    assert caught[0].filename == __file__
    values, counts = np.unique(seeds.array, return_counts=True)
    pairs = int((counts - 1).sum())
    assert 1 <= pairs <= 20  # 6 are expected
    said = str(caught[0].message)
    first = int(values[counts > 1][0])
    (a, i), (b, j) = np.argwhere(seeds.array == first).tolist()
    assert f"sample {i} of prompt {a} and sample {j} of prompt {b}" in said
    assert f"{first} (pairs in all: {pairs})" in said
    with pytest.raises(ValueError, match="seed must be the seed of one of these rollouts"):
        seeds.replay(first)


def test_63_bits_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(np.unique(seeds_of(range(10_000), 16).array)) == 160_000


# ---------------------------------------------------------------- what comes back


def test_replay_gives_the_coordinates():
    prompts = ["a", 12, "c"]
    seeds = seeds_of(prompts, [5, 9], turn=2, task=1, epoch=4, name="draft")
    for (row, prompt), (column, sample) in itertools.product(enumerate(prompts), enumerate([5, 9])):
        r = seeds.replay(seeds[row][column])
        assert r == (prompt, sample, 3, 2, 1, 4, "draft", 63, 42)
        assert type(r.prompt) is type(prompt) and type(r.sample) is int
        again = table(
            r.step, [r.prompt], [r.sample], turn=r.turn, task=r.task, epoch=r.epoch, name=r.name,
            bits=r.bits, master_seed=r.master_seed,
        )  # fmt: skip
        assert again[0] == [seeds[row][column]]
    json.dumps(r._asdict())
    json.dumps(seeds_of(np.array([3]), 1).replay(seeds_of([3], 1)[0][0])._asdict())
    for bad in (1, 2**63 - 1):
        with pytest.raises(ValueError, match=r"^fastseed\.rollouts\.RolloutSeeds\.replay: seed"):
            seeds.replay(bad)


def test_it_is_a_sequence_of_lists_of_ints():
    seeds = seeds_of(["a", "b"], 3)
    rows = list(seeds)
    assert len(seeds) == 2 and rows == [seeds[0], seeds[1]] == seeds.array.tolist()
    assert all(type(seed) is int for row in rows for seed in row)
    assert repr(seeds) == "RolloutSeeds(2 prompts, 3 samples, step 3)"
    assert seeds.prompts == ["a", "b"] and seeds.samples.tolist() == [0, 1, 2]


def test_the_prompts_are_copied():
    prompts = np.array([5, 6])
    found = table(3, prompts, 2, master_seed=1)
    prompts[:] = 9
    assert found.replay(int(found.array[0, 0])).prompt == 5


def test_a_row_of_seeds_has_an_integer_position():
    seeds = table(0, [1, 2], 2, master_seed=42)
    assert seeds[-1] == seeds[1] and seeds[0:1] == [seeds[0]]
    with pytest.raises(IndexError):
        seeds[2]
    says = r"^fastseed\.rollouts\.RolloutSeeds\.__getitem__: position must be"
    for position in (torch.tensor(1.5), 1.0, 2**70):
        with pytest.raises((TypeError, ValueError), match=says):
            seeds[position]

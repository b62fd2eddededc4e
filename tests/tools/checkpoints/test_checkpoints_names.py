"""Names of states that repeat, and the words for their differences."""

from __future__ import annotations

import pickle

import numpy as np
import torch

from fastseed.tools import checkpoints


def torch_state(seed, draws=0):
    made = torch.Generator().manual_seed(seed)
    torch.rand(draws, generator=made)
    return made.get_state()


def test_files_with_the_same_keys_are_compared_one_by_one(tmp_path):
    for folder, seed in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        torch.save({"rng": torch_state(seed)}, tmp_path / folder / "x.pt")
        torch.save({"rng": torch_state(5)}, tmp_path / folder / "y.pt")
    (found,) = checkpoints.compare(tmp_path / "a", tmp_path / "b")
    assert found.name == "all ranks torch.cpu in x.pt: rng"
    assert found.text == "another stream: its seed was 1, and is 2"


def test_keys_that_cannot_be_told_apart_are_numbered(tmp_path):
    for name, seed in (("a.pkl", 1), ("b.pkl", 2)):
        states = [np.random.RandomState(s).get_state() for s in (5, seed, 6)]
        held = {i: state for i, state in enumerate(states)}
        (tmp_path / name).write_bytes(pickle.dumps(held))
    assert len({one.stream for one in checkpoints.inspect(tmp_path / "a.pkl").states}) == 3
    (found,) = checkpoints.compare(tmp_path / "a.pkl", tmp_path / "b.pkl")
    assert found.name.endswith(" (2)")


def test_ranks_on_the_stream_of_another_than_the_first(tmp_path):
    for rank, seed, draws in ((0, 1, 0), (1, 2, 0), (2, 2, 10)):
        torch.save({"cpu": torch_state(seed, draws)}, tmp_path / f"rng_state_{rank}.pth")
    assert checkpoints.inspect(tmp_path).findings == (
        "torch.cpu: rank 2 on the stream of rank 1, 10 words further",
    )


def test_half_a_word_and_other_forms(tmp_path):
    made = np.random.Generator(np.random.PCG64(3))
    made.integers(0, 2**32, dtype=np.uint32)
    states = [made.bit_generator.state]
    made.integers(0, 2**32, dtype=np.uint32)
    states.append(made.bit_generator.state)
    states.append({**states[1], "uinteger": 7})  # without has_uint32 it is not used
    for i, state in enumerate(states):
        (tmp_path / f"{i}.pkl").write_bytes(pickle.dumps(state))
    (half,) = checkpoints.compare(tmp_path / "0.pkl", tmp_path / "1.pkl")
    assert "half a word" in half.text
    (form,) = checkpoints.compare(tmp_path / "1.pkl", tmp_path / "2.pkl")
    assert "the form in which it is stored" in form.text

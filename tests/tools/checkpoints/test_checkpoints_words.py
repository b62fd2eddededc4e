"""The distance of two states in words drawn, of every library; names; findings; damage."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import struct

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import fastseed
from fastseed.cli import main
from fastseed.debug import exact_state
from fastseed.tools import checkpoints


def cuda(seed, offset):
    return torch.frombuffer(bytearray(struct.pack("<Qq", seed, offset)), dtype=torch.uint8)


def save(path, **states):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(states, path)
    return path


def compare(a, b):
    return checkpoints.compare_states(checkpoints.inspect(a), checkpoints.inspect(b))


def words_of(difference):
    """Return how many words the second state is further; None if they are on other streams."""
    if difference.text.startswith("equal but for"):
        return 0
    found = re.match(r"(\d+) words? (further|behind)", difference.text)
    return None if found is None else int(found[1]) * (1 if found[2] == "further" else -1)


class Python:
    def __init__(self):
        self.made = random.Random(5)
        self.state = self.made.getstate

    def draw(self, words):
        self.made.getrandbits(32 * words)


class Legacy(Python):
    def __init__(self):
        self.made = np.random.RandomState(5)
        self.state = self.made.get_state

    def draw(self, words):
        self.made.randint(0, 2**32, size=words, dtype=np.uint32)


class Torch(Python):
    def __init__(self):
        self.made = torch.Generator().manual_seed(5)
        self.state = self.made.get_state

    def draw(self, words):
        torch.empty(words, dtype=torch.int32).random_(generator=self.made)


class Bits(Python):
    def __init__(self, kind="PCG64"):
        self.made = getattr(np.random, kind)(5)

    def state(self):
        return self.made.state

    def draw(self, words):
        self.made.random_raw(words)


KINDS = [Python, Legacy, Torch, *(lambda k=k: Bits(k) for k in ("PCG64", "PCG64DXSM", "SFC64"))]
KINDS += [lambda: Bits("Philox"), lambda: Bits("MT19937")]


@pytest.mark.parametrize("make", KINDS)
def test_words_between_states_in_both_directions(make, tmp_path, monkeypatch):
    source, drawn, paths = make(), (0, 1, 5, 617, 1, 1248, 50_000), []
    for i, count in enumerate(drawn):
        if count:
            source.draw(count)
        paths.append((sum(drawn[: i + 1]), save(tmp_path / f"{i}.pt", rng=source.state())))
    for start, a in paths[:3] + paths[-1:]:
        for end, b in paths:
            found = compare(a, b)
            assert [words_of(one) for one in found] == ([end - start] if end != start else [])
    monkeypatch.setattr(exact_state.words_between, "__defaults__", (51_871,))
    (far,) = compare(paths[0][1], paths[-1][1])
    assert words_of(far) is None and "more than" in far.text


@pytest.mark.parametrize(("options", "words"), [({}, 2), ({"shuffle": True}, 4)])
def test_a_data_loader_is_named_by_the_words_it_draws(options, words, tmp_path):
    a = save(tmp_path / "a.pt", cpu=torch.get_rng_state())
    next(iter(DataLoader(range(4), **options)))
    b = save(tmp_path / "b.pt", cpu=torch.get_rng_state())
    (found,) = compare(a, b)
    assert (found.name, words_of(found)) == ("all ranks torch.cpu", words)
    assert found.text.startswith(f"{words} words further, as one `iter(DataLoader")


def test_seeds_offsets_and_streams_of_other_ranks_on_a_gpu(tmp_path):
    for rank in range(4):
        save(tmp_path / f"a/rng_state_{rank}.pth", cuda=[cuda(rank, 8), cuda(9, 4 * rank)])
        after = cuda(0, 8 + 4 * rank) if rank != 1 else cuda(77, 0)
        save(tmp_path / f"b/rng_state_{rank}.pth", cuda=[after, cuda(9, 4 * rank)])
    found = compare(tmp_path / "a", tmp_path / "b")
    assert [one.name for one in found] == [f"rank {rank} torch.cuda:0" for rank in (1, 2, 3)]
    assert [one.text for one in found] == [
        "another stream: its seed was 1, and is 77",
        "it has the stream of rank 0, 8 words further",
        "it has the stream of rank 0, 12 words further",
    ]


def test_a_cached_gaussian_is_a_difference(tmp_path):
    made = random.Random(5)
    a = save(tmp_path / "a.pt", rng=made.getstate())
    made.gauss(0, 1)
    b = save(tmp_path / "b.pt", rng=made.getstate())
    made.gauss(0, 1)
    c = save(tmp_path / "c.pt", rng=made.getstate())
    assert [words_of(one) for one in compare(a, b)] == [4]
    (found,) = compare(b, c)
    assert words_of(found) == 0 and "cached Gaussian" in found.text


def test_states_of_one_stream_have_names_of_their_own(tmp_path):
    for folder, seed in (("a", 1), ("b", 2)):
        generators = [torch.Generator().manual_seed(s).get_state() for s in (seed, 5)]
        save(tmp_path / folder / "x.pt", rng=generators[0])
        save(tmp_path / folder / "y.pt", rng=generators[1])
        numbers = {i: np.random.RandomState(s).get_state() for i, s in enumerate((5, seed, 6))}
        (tmp_path / f"{folder}.pkl").write_bytes(pickle.dumps(numbers))
    (found,) = compare(tmp_path / "a", tmp_path / "b")
    assert found.name == "all ranks torch.cpu in x.pt: rng"
    assert found.text == "another stream: its seed was 1, and is 2"
    (found,) = compare(tmp_path / "a.pkl", tmp_path / "b.pkl")
    assert found.name.endswith(" (2)")


def test_ranks_that_share_or_lack_a_state(tmp_path):
    for rank in range(3):
        torch.manual_seed(rank // 2)
        states = {"cpu": torch.get_rng_state(), "python": random.Random(rank).getstate()}
        if rank == 1:
            del states["python"]
        save(tmp_path / f"rng_state_{rank}.pth", **states)
    found = checkpoints.inspect(tmp_path)
    assert not found and found.findings == (
        "python: rank 1 without a state, which rank 0, rank 2 has",
        "torch.cpu: rank 0, rank 1 have one state and draw the same random numbers",
    )
    assert [found.same_as(one) for one in found.states if one.stream == "torch.cpu"] == [
        ["rank 1"],
        ["rank 0"],
        [],
    ]


def test_states_of_fastseed_in_a_file_and_in_other_formats(tmp_path):
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    fastseed.register_generator(np.random.default_rng(1), name="own")
    fastseed.checkpoint.save(tmp_path / "a.fastseed", rng=True)
    state = fastseed.state_dict(rng=True)
    save(tmp_path / "b.pt", state=state)
    save(tmp_path / "c.pt", **fastseed.checkpoint.to_tensors(state))
    torch.rand(7)
    save(tmp_path / "d.pt", cpu=torch.get_rng_state())
    streams = [one.stream for one in checkpoints.inspect(tmp_path / "a.fastseed").states]
    assert streams == ["numpy", "own", "python", "torch.cpu"]
    for other in "bc":
        assert compare(tmp_path / "a.fastseed", tmp_path / f"{other}.pt") == []
    save(tmp_path / "e/rng_state_0.pth", cpu=torch.get_rng_state())
    found = compare(tmp_path / "c.pt", tmp_path / "e")
    assert [(o.name, words_of(o)) for o in found if words_of(o) is not None] == [
        ("rank 0 torch.cpu", 7)
    ]


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_protocol(protocol, tmp_path):
    states = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "generator": np.random.Generator(np.random.Philox(3)),
        "many": [{1: {2.5, "x"}, b"k": bytearray(b"z"), (1, 2): frozenset([1])}, -(2**70), None],
    }
    for name, made in (("a.pkl", pickle.dumps(states, protocol)), ("b.pkl", pickle.dumps(states))):
        (tmp_path / name).write_bytes(made)
    assert len(checkpoints.inspect(tmp_path / "a.pkl").states) == 3
    assert compare(tmp_path / "a.pkl", tmp_path / "b.pkl") == []


def test_command(tmp_path, capsys):
    for rank in range(2):
        torch.manual_seed(rank)
        save(tmp_path / f"a/rng_state_{rank}.pth", cpu=torch.get_rng_state())
        iter(DataLoader([1]))
        save(tmp_path / f"b/rng_state_{rank}.pth", cpu=torch.get_rng_state())
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["show", a]) == 0
    assert "2 states of 2 rank(s), 0 finding(s)" in capsys.readouterr().out
    assert main(["diff", a, a]) == 0
    assert main(["diff", a, b]) == 1
    shown = capsys.readouterr().out
    assert shown.count("2 words further, as one `iter(DataLoader)` draws") == 2
    assert main(["diff", a, b, "--json", "--all"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [one["text"][:15] for one in document["states"]] == ["2 words further"] * 2
    assert not document["equal"]
    assert main(["show", b, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(s["owner"], s["stream"], s["state"]["seed"]) for s in document["states"]] == [
        ("rank 0", "torch.cpu", 0),
        ("rank 1", "torch.cpu", 1),
    ]
    (tmp_path / "a/rng_state_1.pth").unlink()
    save(tmp_path / "a/rng_state_1.pth", weights=torch.ones(3))
    assert main(["diff", a, b]) == 1
    assert "only in the second" in capsys.readouterr().out


def test_all_rows_are_printed_with_all(tmp_path, capsys):
    for folder, seed in (("a", 0), ("b", 100)):
        for rank in range(50):
            torch.manual_seed(seed + rank)
            save(tmp_path / folder / f"rng_state_{rank}.pth", cpu=torch.get_rng_state())
    words = ["diff", str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(words) == 1
    assert "… and 10 more (--all shows them)" in capsys.readouterr().out
    assert main([*words, "--all"]) == 1
    assert capsys.readouterr().out.count("another stream") == 50


def test_wrong_arguments(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("x")
    empty = save(tmp_path / "empty.pt", weights=torch.ones(3))
    (found,) = checkpoints.inspect(empty).findings
    assert "it holds no state of a generator" in found
    for words in (["show", "gone"], ["show", "text.txt"], ["diff", "empty.pt", "empty.pt"]):
        assert main([words[0], *(str(tmp_path / word) for word in words[1:])]) == 2
        assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(TypeError, match=r"^fastseed.tools.checkpoints.inspect: path must be a pa"):
        checkpoints.inspect(3)
    with pytest.raises(FileNotFoundError, match=r"^fastseed.tools.checkpoints.inspect: path must"):
        checkpoints.inspect(tmp_path / "gone")


# ---------------------------------------------------------------- damage


def flipped(path, data, at):
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    return checkpoints.inspect(path)


def test_a_damaged_state_is_a_finding(tmp_path):
    save(tmp_path / "a.pt", cpu=torch.get_rng_state(), python=random.getstate())
    data = (tmp_path / "a.pt").read_bytes()
    at = data.index(torch.get_rng_state().numpy().tobytes()[24:200])
    found = flipped(tmp_path / "b.pt", data, at + 1000)
    assert [one.stream for one in found.states] == ["python"] and not found
    assert any("b.pt: cpu is not read: its bytes are damaged" in one for one in found.findings)
    assert found.problems and main(["diff", *[str(tmp_path / "b.pt")] * 2]) == 1


def test_each_bit_of_a_file_of_fastseed_is_checked(tmp_path):
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    fastseed.checkpoint.save(tmp_path / "a.fastseed", rng=True)
    data = (tmp_path / "a.fastseed").read_bytes()
    assert checkpoints.inspect(tmp_path / "a.fastseed")
    for at in [*random.Random(1).sample(range(len(data)), 100), len(data) - 5]:
        try:
            assert not flipped(tmp_path / "b.fastseed", data, at), at
        except ValueError as error:
            assert "b.fastseed" in str(error)
    (tmp_path / "b.fastseed").write_bytes(data[:-5])
    assert "its SHA-256 is wrong" in str(checkpoints.inspect(tmp_path / "b.fastseed").findings)


def test_tensors_of_fastseed_are_checked(tmp_path):
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    tensors = fastseed.checkpoint.to_tensors(fastseed.state_dict(rng=True))
    tensors["fastseed_rank_0"][-1] ^= 1
    found = checkpoints.inspect(save(tmp_path / "a.pt", **tensors))
    assert "fastseed_rank_0 is not read: its SHA-256 is wrong" in str(found.findings)


def test_a_folder_that_cannot_be_read_is_a_finding(tmp_path, monkeypatch):
    save(tmp_path / "a.pt", cpu=torch.get_rng_state())

    def walk(path, onerror):
        onerror(PermissionError(13, "Permission denied", str(tmp_path / "closed")))
        yield str(tmp_path), [], ["a.pt"]

    monkeypatch.setattr(os, "walk", walk)
    (finding,) = checkpoints.inspect(tmp_path).findings
    assert finding.endswith("closed is not read: Permission denied")

"""Two states of each library compared; names; findings; damage."""

import hashlib
import io
import json
import os
import pickle
import random
import struct

import numpy as np
import pytest
import torch

import fastseed
from fastseed.cli import main
from fastseed.tools import checkpoints


def cuda(seed, offset):
    return torch.frombuffer(bytearray(struct.pack("<Qq", seed, offset)), dtype=torch.uint8)


def save(path, **states):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(states, path)
    return path


def compare(a, b):
    return checkpoints.compare_states(checkpoints.inspect(a), checkpoints.inspect(b))


def bits(kind):
    generator = np.random.Generator(getattr(np.random, kind)(5))
    return generator.random, lambda: generator.bit_generator.state


def sources():
    """For each library a function that draws and one that returns the state."""
    python, legacy, of_torch = random.Random(5), np.random.RandomState(5), torch.Generator()
    yield python.random, python.getstate
    yield legacy.rand, legacy.get_state
    yield lambda: torch.rand(1, generator=of_torch), of_torch.get_state
    for kind in ("PCG64", "PCG64DXSM", "SFC64", "Philox", "MT19937"):
        yield bits(kind)


def test_a_state_is_equal_until_a_number_is_drawn(tmp_path):
    for draw, state in sources():
        paths = [save(tmp_path / "0.pt", rng=state()), save(tmp_path / "1.pt", rng=state())]
        draw()
        drawn = save(tmp_path / "2.pt", rng=state())
        assert compare(*paths) == []
        assert len(compare(paths[0], drawn)) == 1


def test_a_view_with_gaps_is_no_state(tmp_path):
    state = torch.Generator().get_state()
    whole = torch.cat([state, state])
    assert checkpoints.inspect(save(tmp_path / "0.pt", rng=whole[: len(state)])).states
    assert not checkpoints.inspect(save(tmp_path / "1.pt", rng=whole[::2])).states


def test_torch_and_numpy_with_one_seed_are_in_one_state(tmp_path):
    """Both seed MT19937 in the same way, so that the positions are checked against each other."""
    numpy, of_torch = np.random.RandomState(5), torch.Generator().manual_seed(5)
    for words in (0, 1, 623, 1, 700):
        if words:
            numpy.randint(0, 2**32, size=words, dtype=np.uint32)
            torch.empty(words, dtype=torch.int32).random_(generator=of_torch)
        first = checkpoints.inspect(save(tmp_path / "a.pt", rng=numpy.get_state())).states[0].state
        path = save(tmp_path / "b.pt", rng=of_torch.get_state())
        second = checkpoints.inspect(path).states[0].state
        assert (first.text, first.seed, second.seed) == (second.text, None, 5)


def test_seeds_offsets_and_streams_of_other_ranks_on_a_gpu(tmp_path):
    for rank in range(4):
        save(tmp_path / f"a/rng_state_{rank}.pth", cuda=[cuda(rank, 8), cuda(9, 4 * rank)])
        after = cuda(0, 8 + 4 * rank) if rank != 1 else cuda(77, 0)
        save(tmp_path / f"b/rng_state_{rank}.pth", cuda=[after, cuda(9, 4 * rank)])
    found = compare(tmp_path / "a", tmp_path / "b")
    assert [one.name for one in found] == [f"rank {rank} torch.cuda:0" for rank in (1, 2, 3)]
    assert [one.text for one in found] == [
        "another stream: its seed was 1, and is 77",
        "another stream: its seed was 2, and is 0",
        "another stream: its seed was 3, and is 0",
    ]


def test_a_cached_gaussian_is_a_difference(tmp_path):
    made = random.Random(5)
    a = save(tmp_path / "a.pt", rng=made.getstate())
    made.gauss(0, 1)
    b = save(tmp_path / "b.pt", rng=made.getstate())
    made.gauss(0, 1)
    c = save(tmp_path / "c.pt", rng=made.getstate())
    assert [one.text for one in compare(a, b)] == ["another state"]
    assert [one.text for one in compare(b, c)] == ["equal but for a cached Gaussian"]


def test_states_of_one_stream_have_names_of_their_own(tmp_path):
    for folder, seed in (("a", 1), ("b", 2)):
        generators = [torch.Generator().manual_seed(s).get_state() for s in (seed, 5)]
        save(tmp_path / folder / "x.pt", rng=generators[0])
        save(tmp_path / folder / "y.pt", rng=generators[1])
        numbers = {(s,): np.random.RandomState(s).get_state() for s in (5, seed, 6)}
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
    assert ("rank 0 torch.cpu", "the same seed, another number of draws") in [
        (one.name, one.text) for one in found
    ]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_of_the_trainer_has_a_file_of_fastseed(tmp_path, ranks):
    """As `integrations.transformers.FastseedCallback` writes it, beside the Trainer's own."""
    for rank in range(ranks):
        fastseed.init(42, rank=rank, world_size=ranks)
        number = f"_{rank}" if ranks > 1 else ""
        states = {"python": random.getstate(), "cpu": torch.get_rng_state()}
        save(tmp_path / f"rng_state{number}.pth", **states)
        fastseed.checkpoint.save(tmp_path / "fastseed-{rank:05d}.state", rng=True)
    (tmp_path / "other.state").write_text("of another tool")
    found = checkpoints.inspect(tmp_path)
    assert found.findings == ()
    own = {(one.owner, one.stream) for one in found.states if one.source.startswith("fastseed")}
    names = ("python", "numpy", "torch.cpu")
    assert own == {(f"rank {r}", f"{name} of fastseed") for r in range(ranks) for name in names}
    before = tmp_path / "before"
    (tmp_path / "fastseed-00000.state").rename(before)
    assert [one.text for one in checkpoints.compare_states(found, checkpoints.inspect(tmp_path))][
        :1
    ] == ["only in the first"]


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
        torch.rand(())
        save(tmp_path / f"b/rng_state_{rank}.pth", cpu=torch.get_rng_state())
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["show", a]) == 0
    assert "2 states of 2 rank(s), 0 finding(s)" in capsys.readouterr().out
    assert main(["diff", a, a]) == 0
    assert main(["diff", a, b]) == 1
    shown = capsys.readouterr().out
    assert shown.count("the same seed, another number of draws") == 2
    assert main(["diff", a, b, "--json", "--all"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [one["text"][:13] for one in document["states"]] == ["the same seed"] * 2
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


def test_a_rank_of_many_digits_is_no_rank(tmp_path):
    inner = io.BytesIO()
    torch.save({"rng." + "1" * 5000 + ".torch.cuda": torch.zeros(16, dtype=torch.uint8)}, inner)
    data = inner.getvalue() + hashlib.sha256(inner.getvalue()).digest()
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    found = checkpoints.inspect(save(tmp_path / "a.pt", **{"x.fastseed_rank_0": tensor}))
    assert found.states == ()


def test_a_folder_that_cannot_be_read_is_a_finding(tmp_path, monkeypatch):
    save(tmp_path / "a.pt", cpu=torch.get_rng_state())

    def walk(path, onerror):
        onerror(PermissionError(13, "Permission denied", str(tmp_path / "closed")))
        yield str(tmp_path), [], ["a.pt"]

    monkeypatch.setattr(os, "walk", walk)
    (finding,) = checkpoints.inspect(tmp_path).findings
    assert finding.endswith("closed is not read: Permission denied")

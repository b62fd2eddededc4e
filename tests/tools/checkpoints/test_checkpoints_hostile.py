"""Files that run code when they are unpickled, that are damaged, or that resemble others."""

import io
import os
import pickle
import random
import zipfile

import numpy as np
import pytest
import torch

from fastseed.cli import main
from fastseed.tools import checkpoints
from fastseed.tools.checkpoints import pickles


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def torch_file(data):
    """Return a file like one of torch.save, with any ``data.pkl``."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", data)
    return file.getvalue()


def inspect(path):
    """Return states and findings, or no states and the refusal."""
    try:
        found = checkpoints.inspect(path)
        return found.states, " ".join(found.findings)
    except ValueError as error:
        return (), str(error)


def test_no_code_of_a_pickle_is_run(tmp_path):
    marker = tmp_path / "ran"
    states = {"payload": Payload(marker), "python": random.getstate()}
    for protocol in range(6):
        data = pickle.dumps(states, protocol)
        (tmp_path / "a.pkl").write_bytes(data)
        (tmp_path / "b.pt").write_bytes(torch_file(data))
        for name in ("a.pkl", "b.pt"):
            found, _ = inspect(tmp_path / name)
            assert [one.stream for one in found] == ["python"] and not marker.exists()
    pickle.loads(data)
    assert marker.exists()  # it would have


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04cos\nsystem\n(S'touch ran'\ntR.",
        b"\x80\x02(S'touch ran'\nios\nsystem\n.",
        b"\x80\x04(cos\nsystem\nS'touch ran'\no.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x09touch ran\x85R.",
        b'\x80\x04c__builtin__\neval\n(S\'open("ran","w")\'\ntR.',
        b"\x80\x04cnumpy\n_reconstruct\n(cos\nsystem\nS'touch ran'\ntR.",
        b"\x80\x04]q\x00(" + b"h\x00" * 30 + b"e.",  # a list in itself, many times
        b"\x80\x04" + b"]" * 20_000 + b"a" * 19_999 + b".",  # nested 20,000 deep
        b"\x80\x04\x82\x01.",
        b"\x80\x04h\x07.",
        b"\x80\x04NN\x93.",
        b"\x80\x04.",
        b"\x80",
    ],
)
def test_operations_that_call_and_damaged_pickles(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.pkl").write_bytes(data)
    assert inspect(tmp_path / "a.pkl")[0] == () and not (tmp_path / "ran").exists()


def test_types_of_arrays_are_not_trusted(tmp_path):
    """NumPy's own unpickling follows the bytes of an array of objects as pointers."""
    kind = b"cnumpy\ndtype\n(S'O8'\nI00\nI01\ntR(I3\nS'|'\nNNNI8\nI8\nI0\ntb"
    array = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    state = b"(I1\n(I1\nt" + kind + b"I00\nC\x08" + b"\x41" * 8 + b"tb"
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04" + array + state + b".")
    states, why = inspect(tmp_path / "a.pkl")
    assert states == () and "it holds no state" in why


def test_every_truncation_and_many_flipped_bits(tmp_path):
    path = tmp_path / "rng_state_0.pth"
    torch.save({"cpu": torch.get_rng_state(), "python": random.getstate()}, path)
    whole, (states, _) = path.read_bytes(), inspect(path)
    assert len(states) == 2
    chosen = random.Random(5)
    for cut in range(0, len(whole), 997):
        path.write_bytes(whole[:cut])
        found, why = inspect(path)
        assert found == () and "rng_state_0.pth is not read" in why
    for _ in range(50):
        data = bytearray(whole)
        for _ in range(3):
            data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        path.write_bytes(data)
        found, why = inspect(path)
        assert found == states or "rng_state_0.pth" in why


def test_huge_pickles_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pickles, "MAX_BYTES", 1000)
    data = pickle.dumps(list(range(2000)))
    (tmp_path / "a.pkl").write_bytes(data)
    (tmp_path / "b.pt").write_bytes(torch_file(data))
    assert inspect(tmp_path / "a.pkl")[1].count("more than 1000") == 1
    assert inspect(tmp_path / "b.pt")[1].count("more than 1000") == 1


def test_pipes_and_devices_are_not_opened(tmp_path):
    (tmp_path / "rng_state_1.pth").symlink_to("/dev/zero")
    (tmp_path / "below").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "rng_state_2.pth")
    states, why = inspect(tmp_path)
    assert states == () and why.count("is not read: it must be a regular file") == 2


def test_control_characters_of_names_do_not_reach_the_terminal(tmp_path, capsys):
    torch.save({"\x1b[2Jrng": torch.get_rng_state()}, tmp_path / "a.pt")
    assert main(["show", str(tmp_path / "a.pt")]) == 0
    assert "\x1b" not in capsys.readouterr().out


def own_dict():
    held = {"bit_generator": "MT19937", "pos": 0}
    held["state"] = held
    return held


@pytest.mark.parametrize(
    "value",
    [
        ["MT19937", [1] * 624, 5],
        ["MT19937", [1, 2], 5, 0, 0.0],
        ["MT19937", [1] * 623 + [-1], 5, 0, 0.0],
        ["MT19937", [1] * 624, 5, 1, "x"],
        ["MT19937", np.arange(9, dtype=np.uint32), 5, 0, 0.0],
        {"bit_generator": "MT19937", "state": {"key": ["a"], "pos": 0}},
        {"bit_generator": "MT19937", "state": {"key": [1] * 624, "pos": 0}, "has_gauss": 1},
        {"bit_generator": "PCG64", "state": {}},
        {"bit_generator": "PCG64"},
        {"bit_generator": ["PCG64"], "state": {}},
        own_dict(),
        (3, (1,) * 624 + (700,), None),
        (3, (1,) * 624 + (2**70,), None),
    ],
)
def test_objects_that_resemble_a_state_hide_no_other(value, tmp_path):
    data = pickle.dumps({"before": value, "python": random.getstate(), "after": value})
    (tmp_path / "a.pkl").write_bytes(data)
    states, why = inspect(tmp_path / "a.pkl")
    assert any(one.source.endswith(": python") for one in states) and not why

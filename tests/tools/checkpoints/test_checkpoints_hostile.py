"""Folders of an attacker: no code is run, nothing is allocated without bound, no path is left."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import zipfile

import pytest
import torch
import torch.distributed.checkpoint as dcp
from helpers.inspections import inspect_within

from fastseed.tools.checkpoints import pickles, states

_LIMIT = 48 << 20  # bytes that reading a small file may take


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture(autouse=True)
def few_visits(monkeypatch):
    """Trees without end take their limit of visits; here it takes less time."""
    monkeypatch.setattr(states, "_MAX_VISITS", 5_000)


def torch_file(data, **entries):
    """Return a file like one of torch.save, with any ``data.pkl``."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for name, held in {"version": b"3\n", **entries}.items():
            archive.writestr(f"archive/{name}", held)
    return file.getvalue()


def inspect(path):
    return inspect_within(path, _LIMIT)


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
        b"\x80\x04cnumpy._core.multiarray\n_reconstruct\n(I99999999999\ntR}b.",
        b"\x80\x04\x82\x01.",
    ],
)
def test_operations_that_call(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.pkl").write_bytes(data)
    states, _ = inspect(tmp_path / "a.pkl")
    assert states == () and not (tmp_path / "ran").exists()


def repeated(data, times=200):
    return b"\x80\x04" + data * times + b"."


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",  # bytes of 2**62 claimed
        b"\x80\x04\x8b" + struct.pack("<i", 2**31 - 1) + b"x.",  # a number of 2 GB
        b"\x80\x04\x96" + struct.pack("<Q", 2**40) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",
        b"\x80\x04Nr" + struct.pack("<I", 2**32 - 1) + b".",  # a memo of 2**32 places
        b"\x80\x04I" + b"9" * 5000 + b"\n.",
        repeated(b"(", 20_000),
        b"\x80\x04" + b"]" * 20_000 + b"a" * 19_999 + b".",  # nested 20,000 deep
        b"\x80\x04)" + b"2\x86" * 60 + b".",  # a tuple of 2**60 leaves
        b"\x80\x04}q\x00)" + b"2\x86" * 60 + b"Ns.",  # … as the key of a dict
        b"\x80\x04(" + b"".join(b"]" + b"2" * 4 for _ in range(10)) + b"t.",
        b"\x80\x04]q\x00" + b"h\x00a" * 1000 + b".",  # a list in itself
        b"\x80\x04.",
        b"\x80\x04a.",
        b"\x80\x04\x85.",
        b"\x80\x04Nb.",
        b"\x80\x04t.",
        b"\x80\x04h\x07.",
        b"\x80\x04(N}d.",
        b"\x80",
    ],
)
def test_pickles_that_claim_much_or_are_no_pickles(data, tmp_path):
    (tmp_path / "a.pkl").write_bytes(data)
    (tmp_path / "b.pt").write_bytes(torch_file(data))
    for name in ("a.pkl", "b.pt"):
        states, _ = inspect(tmp_path / name)
        assert states == ()


def test_a_tree_without_end_is_left_after_some_visits(tmp_path):
    data = b"\x80\x04]q\x00(" + b"h\x00" * 30 + b"e."
    (tmp_path / "a.pkl").write_bytes(data)
    states, why = inspect(tmp_path / "a.pkl")
    assert states == () and "holds more than" in why


def test_operations_are_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(pickles, "MAX_OPERATIONS", 1000)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(list(range(2000))))
    assert "more than 1000 operations" in inspect(tmp_path / "a.pkl")[1]
    monkeypatch.setattr(pickles, "MAX_BYTES", 1000)
    assert ", more than 1000" in inspect(tmp_path / "a.pkl")[1]


def test_compressed_entries_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x04" + b"N0" * (1 << 20) + b"N.")
    assert os.path.getsize(tmp_path / "a.pt") < 100_000
    assert "is compressed" in inspect(tmp_path / "a.pt")[1]


@pytest.mark.parametrize("entry", ["archive/data.pkl", "archive/data/0"])
@pytest.mark.parametrize("size", [2**31 - 2, 2**24, 200])
def test_entries_of_claimed_sizes(entry, size, tmp_path):
    torch.save({"cpu": torch.get_rng_state()}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        whole = torch_file(archive.read("a/data.pkl"), **{"data/0": archive.read("a/data/0")})
    at = whole.rindex(entry.encode()) - 46  # its record in the directory at the end
    for changed in ((20, 24), (20,), (24,)):  # of the compressed and of the whole size
        data = bytearray(whole)
        for field in changed:
            data[at + field : at + field + 4] = struct.pack("<I", size)
        (tmp_path / "a.pt").write_bytes(data)
        assert inspect(tmp_path / "a.pt")[0] == ()
    (tmp_path / "a.pt").write_bytes(whole)
    assert len(inspect(tmp_path / "a.pt")[0]) == 1


def test_tensors_of_claimed_sizes(tmp_path):
    torch.save({"cpu": torch.get_rng_state()}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        data = archive.read("a/data.pkl")
    assert data.count(b"M\xc0\x13") == 2  # 5056, as elements of the storage and as size
    huge = data.replace(b"M\xc0\x13", b"\x8a\x08" + struct.pack("<q", 2**62))
    for changed in (huge, data.replace(b"M\xc0\x13\x85", b"\x8a\x08" + b"\xff" * 8 + b"\x85")):
        (tmp_path / "a.pt").write_bytes(torch_file(changed, **{"data/0": b"\0" * 5056}))
        assert inspect(tmp_path / "a.pt")[0] == ()
    (tmp_path / "a.pt").write_bytes(torch_file(data, **{"data/0": b"\0" * 5000}))
    assert inspect(tmp_path / "a.pt")[0] == ()


def test_every_truncation_and_many_flipped_bits(tmp_path):
    path = tmp_path / "rng_state_0.pth"
    torch.save({"cpu": torch.get_rng_state(), "python": random.getstate()}, path)
    whole = path.read_bytes()
    chosen = random.Random(5)
    for cut in range(0, len(whole), 997):
        path.write_bytes(whole[:cut])
        inspect(path)
    for _ in range(50):
        data = bytearray(whole)
        for _ in range(3):
            data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        path.write_bytes(data)
        inspect(path)


def test_links_pipes_and_devices_are_not_opened(tmp_path):
    outside = tmp_path / "outside.pth"
    torch.save({"cpu": torch.get_rng_state()}, outside)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "rng_state_0.pth").symlink_to(outside)
    (folder / "rng_state_1.pth").symlink_to("/dev/zero")
    (folder / "below").symlink_to(tmp_path)
    os.mkfifo(folder / "rng_state_2.pth")
    states, why = inspect(folder)
    assert states == () and why.count("is not read") == 3


def test_entries_of_a_distributed_checkpoint_stay_in_its_folder(tmp_path):
    outside = tmp_path / "outside.distcp"
    folder = tmp_path / "checkpoint"
    dcp.save({"rng": {"cpu": torch.get_rng_state()}}, checkpoint_id=folder)
    assert [one.stream for one in inspect(folder)[0]] == ["torch.cpu"]
    (folder / "__0_0.distcp").rename(outside)
    metadata = (folder / ".metadata").read_bytes()
    name = b"\x8c\x0c__0_0.distcp"
    assert name in metadata
    for path in (b"../outside.distcp", str(outside).encode(), b"..", b"."):
        changed = metadata.replace(name, b"\x8c" + bytes([len(path)]) + path)
        (folder / ".metadata").write_bytes(changed.replace(b"\x95" + metadata[3:11], b""))
        states, why = inspect(folder)
        assert states == () and "its file is not in the folder" in why
    (folder / "__0_0.distcp").symlink_to(outside)
    (folder / ".metadata").write_bytes(metadata)
    assert inspect(folder)[0] == ()


def test_control_characters_of_names_do_not_reach_the_terminal(tmp_path, capsys):
    from fastseed.cli import main

    torch.save({"\x1b[2Jrng": torch.get_rng_state()}, tmp_path / "a.pt")
    assert main(["show", str(tmp_path / "a.pt")]) == 0
    assert "\x1b" not in capsys.readouterr().out

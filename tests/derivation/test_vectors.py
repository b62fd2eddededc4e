"""Every backend gives the known answers of ``data/vectors.txt``, and these never change."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from helpers import vectors
from helpers.support import holds_key, seeder
from helpers.vectors import Row, parse_row, read_rows, rows_of

import fastseed
from fastseed._backend import derive_ops, native
from fastseed._backend.reference import philox

TOP24, TOP32, TOP40, TOP64 = ((1 << bits) - 1 for bits in (24, 32, 40, 64))
SIMD = ("portable", "avx2", "avx512")

# Written out once more, so that no change to the file or to its program goes unnoticed.
GOLDEN = """\
block 0000000000000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8
block ffffffffffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd
block 299f31d0a4093822 243f6a88 85a308d3 13198a2e 03707344 d16cfe09 94fdcceb 5001e420 24126ea1
scope 0 0 0 0 29946dd3910223a1 de653caf621adeee
scope 42 1 7 0 75c4f7b9da5a41a6 bb1b0b05a584a51e
scope 42 1 7 1000 4c3ab3658c14eed0 ea1a96dcad7e1175
scope 18446744073709551615 16777215 4294967295 18446744073709551615 de8cd3bed6646f0e 473ef6fe7685b899
name python 0ba6a411
name numpy af0bdd73
name torch.cpu 6dee4cd7
name torch.cuda 670678fd
stream 42 1 7 0 torch.cuda 0 0 0 ab95933ea2a5fea9 a084c2fab2fc495e
stream 42 1 7 0 torch.cuda 3 0 0 2d37b41d5160aacf 382d35c0365183cf
stream 42 1 7 0 torch.cuda 16777215 0 0 2443efee72c89339 aa6b2a3f584051ce
stream 42 1 7 0 numpy 3 1 5 ba0f30fd3232495f 77d47147eaec33a5
sample 42 1 7 0 sample 123456789012 7dd7163f9428daae 06168ac52ec7bdd3
""".splitlines()  # noqa: E501
GOLDEN_STATE_KEY = 0xA000D856357E4DFD_2CCB564119C109D1  # torch.cpu, rank 3
FIRST_RELEASE = (1618, "dbff4eef644eb222b68909f81cd1b54041e0b97a6aa7b2e3e278528e34c2b5dc")


# ---------------------------------------------------------------- the file


def texts() -> list[str]:
    return [row.text for row in read_rows()]


def test_vectors_hold_the_golden_values():
    assert texts()[: len(GOLDEN)] == GOLDEN
    scope = philox.scope_key(42, 1, 7, 0)
    key = philox.stream_key(scope, philox.name_id("torch.cpu"), 3, 0, 0)
    assert key == GOLDEN_STATE_KEY
    state = rows_of("mt19937")[0]
    assert state.inputs == (key & TOP64, key >> 64)
    words = [f"{w:08x}" for w in state.outputs]
    assert words[:4] == ["db729721", "22a69a16", "13caaaf9", "917d64db"]
    assert words[-2:] == ["47aa7450", "d8b37b45"]


def test_vectors_are_frozen():
    releases = vectors.frozen()
    assert releases[0] == FIRST_RELEASE
    assert [n for n, _ in releases] == sorted({n for n, _ in releases})
    assert vectors.changed(texts(), releases) == []
    assert releases[-1][0] == len(texts()), "appended rows belong into vectors.sha256 as well"


@pytest.mark.parametrize("where", [0, 700, FIRST_RELEASE[0] - 1])
def test_vectors_freeze_notices_a_change(where):
    rows, releases = texts(), vectors.frozen()
    last = "0" if rows[where][-1] != "0" else "1"
    for damaged in (
        [*rows[:where], rows[where][:-1] + last, *rows[where + 1 :]],
        rows[:where] + rows[where + 1 :],
        [*rows[:where], "name new 11507a0e", *rows[where:]],
    ):
        assert vectors.changed(damaged, releases)
    assert not vectors.changed([*rows, "name new 11507a0e"], releases)


def test_vectors_are_what_their_program_makes():
    program = vectors.DATA / "make_vectors.py"
    done = subprocess.run([sys.executable, "-I", program, "--check"], capture_output=True)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_vectors_count_and_kinds():
    count = Counter(row.kind for row in read_rows())
    assert set(count) == set(vectors.KINDS)
    assert count["scope"] + count["stream"] + count["sample"] + count["block"] > 1000
    assert count["mt19937"] >= 3
    assert any(row.inputs[-1] == 1_000_000 for row in rows_of("seeds"))
    assert len(set(texts())) == len(texts())


def test_vectors_cover_every_pair_of_extremes():
    def edges(top: int) -> tuple[int, ...]:
        return 0, 1, top - 1, top

    where = [edges(TOP64), edges(TOP24), edges(TOP32), edges(TOP64)]
    names = ["python", "numpy", "torch.cpu", "torch.cuda", "torch.xpu", "torch.mps", "зерно"]
    ranks = [0, 1, TOP24 - 2, TOP24 - 1, TOP24]
    designs = {
        "block": [edges(TOP64), *[edges(TOP32)] * 4],
        "scope": where,
        "stream": [*where, names, ranks, edges(TOP24), edges(TOP40)],
        "sample": [*where, names, edges(TOP64)],
    }
    for kind, levels in designs.items():
        inputs = [row.inputs for row in rows_of(kind)]
        for a, b in itertools.combinations(range(len(levels)), 2):
            missing = set(itertools.product(levels[a], levels[b])) - {(i[a], i[b]) for i in inputs}
            assert not missing, (kind, a, b, missing)


@pytest.mark.parametrize(
    "line",
    [
        "philox 0 1",
        "scope 0 0 0 29946dd3910223a1 de653caf621adeee",
        "scope 0 0 0 0 29946dd3910223a1 de653caf621adeee 0",
        "scope 0 0 0 00 29946dd3910223a1 de653caf621adeee",
        "scope 0 0 0 0 29946dd3910223a1 DE653CAF621ADEEE",
        "name python ba6a411",
    ],
)
def test_vectors_parser_refuses_what_it_does_not_know(line):
    with pytest.raises(ValueError):
        parse_row(line)


# ---------------------------------------------------------------- the derivation, on a module


def _stream(m, row: Row) -> tuple[tuple[int, int], int, int, int, int]:
    """(scope, name id, rank, index, domain) of a stream or sample row."""
    *at, name = row.inputs[:5]
    scope = m.scope_key(*at)
    if row.kind == "sample":
        return scope, m.name_id(name), 0, row.inputs[5], philox.DOMAIN_SAMPLE
    rank, worker, i = row.inputs[5:8]
    return scope, m.name_id(name), rank, worker << 40 | i, philox.DOMAIN_STREAM


def _key(m, row: Row) -> tuple[int, ...]:
    """The key of one stream, one by one and as a member of a range that lies around it."""
    scope, name, rank, index, domain = _stream(m, row)
    key = m.stream_key(scope, name, rank, index >> 40, index & TOP40, domain)
    before = index % 61  # which lane, which group, or the tail: by accident of the index
    keys = m.derive_keys(scope, name, rank, (index - before) % 2**64, 127, domain)
    seeds = m.derive_seeds(scope, name, rank, (index - before) % 2**64, 127, domain)
    assert (keys.dtype, keys.shape, seeds.shape) == (np.uint64, (127, 2), (127,))
    pair = key & TOP64, key >> 64
    assert tuple(keys[before].tolist()) == pair, row.text
    assert int(seeds[before]) == pair[0], row.text
    return pair


def _block(m, row: Row) -> tuple[int, ...]:
    """A block is what a stream is made of: these coordinates give any counter at all."""
    key, w0, w1, w2, w3 = row.inputs
    index = w0 | w1 << 32
    r = m.stream_key((key, 0), w2, w3 & TOP24, index >> 40, index & TOP40, w3 >> 24)
    return tuple(r >> 32 * i & TOP32 for i in range(4))


def _seeds(m, row: Row) -> tuple[str]:
    *at, name, rank, worker, start, n = row.inputs
    seeds = m.derive_seeds(m.scope_key(*at), m.name_id(name), rank, worker << 40 | start, n)
    return (hashlib.sha256(seeds.astype("<u8").tobytes()).hexdigest(),)


DERIVE = {
    "block": _block,
    "scope": lambda m, row: m.scope_key(*row.inputs),
    "name": lambda m, row: (m.name_id(*row.inputs),),
    "stream": _key,
    "sample": _key,
    "mt19937": lambda m, row: tuple(
        m.mt19937_state(row.inputs[0] | row.inputs[1] << 64).tolist()
    ),
    "seeds": _seeds,
}  # fmt: skip


def check_all(m) -> None:
    """Every row of the file through the module ``m``; a kind without an entry is an error."""
    for row in read_rows():
        assert tuple(DERIVE[row.kind](m, row)) == row.outputs, row.text[:200]


def test_vectors_reference():
    check_all(philox)


def test_vectors_reference_block():
    for row in rows_of("block"):
        assert philox.block(*row.inputs) == row.outputs


def test_vectors_ops_on_the_reference_backend(monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(native, "kernels", None)
        without.setattr(native, "generators", None)
        assert derive_ops.simd_paths() == ()
        check_all(derive_ops)


@pytest.fixture(params=SIMD)
def simd(request):
    """One instruction set of the native kernels; whichever this machine lacks is skipped."""
    if request.param not in derive_ops.simd_paths():
        pytest.skip(
            f"no native kernels for {request.param} here (there are: {derive_ops.simd_paths()})"
        )
    derive_ops.set_simd(request.param)
    assert derive_ops.simd() == request.param
    return request.param


def test_every_simd_path_is_in_the_list():
    assert set(derive_ops.simd_paths()) <= set(SIMD)


def test_vectors_ops_native(simd):
    check_all(derive_ops)


def test_vectors_native_states(simd):
    generator = torch.Generator()
    for row in rows_of("mt19937"):
        native.generators.reseed(generator, *row.inputs)
        words = generator.get_state().numpy()[24 : 24 + 8 * 624].view(np.uint64)
        assert tuple(words.tolist()) == row.outputs
        assert holds_key(generator, row.inputs[0] | row.inputs[1] << 64)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_vectors_native_seeds_on_threads(simd, threads):
    torch.set_num_threads(threads)
    for row in rows_of("seeds"):
        assert _seeds(derive_ops, row) == row.outputs, row.text


# ---------------------------------------------------------------- the public functions


def _public(s: fastseed.Seeder, row: Row, rank: int | None) -> tuple[int, int]:
    _, task, epoch, step, name, _, worker, i = row.inputs
    at = {"task": task, "epoch": epoch, "step": step, "rank": rank, "worker": worker}
    key = s.derive_key(name, **at, index=i)
    assert s.derive_seed(name, **at, index=i) == key & TOP64
    keys = s.derive_keys(name, 1, **at, start=i)
    assert keys.tolist() == [[key & TOP64, key >> 64]]
    assert s.derive_seeds(name, 1, **at, start=i).tolist() == [key & TOP64]
    return key & TOP64, key >> 64


def test_vectors_seeder():
    for row in rows_of("stream"):
        master, rank = row.inputs[0], row.inputs[5]
        assert _public(seeder(master), row, rank) == row.outputs, row.text
        if rank != fastseed.SHARED:  # its own rank, without being asked
            own = seeder(master, rank=rank, world_size=rank + 1)
            assert _public(own, row, None) == row.outputs, row.text


def test_vectors_seeder_ranges():
    for row in rows_of("seeds"):
        master, task, epoch, step, name, rank, worker, start, n = row.inputs
        at = {"task": task, "epoch": epoch, "step": step, "rank": rank, "worker": worker}
        seeds = seeder(master).derive_seeds(name, n, start=start, **at)
        assert (hashlib.sha256(seeds.numpy().astype("<u8").tobytes()).hexdigest(),) == row.outputs


def test_vectors_module_functions():
    fastseed.init(42, 8, 3)
    keys = fastseed.derive_keys("numpy", 8, task=1, epoch=7, worker=1, start=5)
    assert keys[0].tolist() == [0xBA0F30FD3232495F, 0x77D47147EAEC33A5]
    assert fastseed.derive_key("torch.cuda", task=1, epoch=7) == 0x382D35C0365183CF_2D37B41D5160AACF
    shared = fastseed.derive_seed("torch.cuda", task=1, epoch=7, rank=fastseed.SHARED)
    assert shared == 0x2443EFEE72C89339

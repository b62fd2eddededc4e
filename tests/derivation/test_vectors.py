"""Every backend gives the known answers of ``vectors/vectors.txt``, and these never change."""

import hashlib
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from helpers import vectors
from helpers.simd import set_simd
from helpers.support import holds_key, seeder
from helpers.vectors import Row, read_rows, rows_of

import fastseed
from fastseed._backend import derive, native
from fastseed._backend.reference import philox, scalar, shuffle

TOP24, TOP32, TOP64 = ((1 << bits) - 1 for bits in (24, 32, 64))
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
name python 0ba6a411 49f28b51 4681d489 d5e57680
name numpy af0bdd73 da38548e 4a251688 3be43e07
name torch.cpu 6dee4cd7 8680f72c fb7a629b 97037b7b
name torch.cuda 670678fd f2860cc6 d8c6505c d91a4120
level2 42 1 7 0 python 7448312e6d302e39 9b6fdd5c36cd06e6
level2 42 1 7 0 numpy 0915e959005fd9e2 fe2f2856ae4477ee
level2 42 1 7 0 torch.cpu ab7d8a07c9b0ed84 3341dcc247f54a24
level2 42 1 7 0 torch.cuda 5f755d1ef4f3e71e 4134e19609d59469
stream 42 1 7 0 torch.cuda 0 0 0 2c2caa393bc5fd70 0f36145158aa3c04
stream 42 1 7 0 torch.cuda 3 0 0 272f96a925b03f44 9d357de770f33f19
stream 42 1 7 0 torch.cuda 16777215 0 0 4fcc0b77ebd8d1f5 7ccd36f7201a81ae
stream 42 1 7 0 torch.cuda 3 0 1099511627781 fbc44a72989ca7db fa61474328ca4aa6
stream 42 1 7 0 numpy 3 1 5 f810968ff5bfc049 1349fd8e6623705e
stream 18446744073709551615 16777215 4294967295 18446744073709551615 α/β 16777214 4294967295 18446744073709551615 ece6b62b321f8eaf 0a2484f8091e9d7c
sample 42 1 7 0 sample 123456789012 0 b95f093993e1ad6e 179de6bb77bfd6aa
narrow 42 1 7 0 generator/0 31 0 0 0 1314112241
narrow 42 1 7 0 generator/0 31 1 0 0 1319320594
narrow 42 1 7 0 generator/0 31 2 0 0 277224343
narrow 42 1 7 0 generator/0 31 16777215 0 0 750116112
narrow 42 1 7 0 generator/0 32 0 0 0 833770116
narrow 42 1 7 0 generator/0 32 1 0 0 1531875414
narrow 42 1 7 0 generator/0 32 2 0 0 380192622
narrow 42 1 7 0 generator/0 32 16777215 0 0 2252187533
""".splitlines()  # noqa: E501, RUF001
GOLDEN_ORDER = [5, 0, 7, 2, 6, 9, 3, 8, 1, 4]  # of "shuffle", n = 10, at task 1, epoch 7
FIRST_RELEASE = (2893, "a4fc7ec63e990222e9166e328a7e04b57094934f25cf8c222d41b62c81e19448")


# ---------------------------------------------------------------- the file


def texts() -> list[str]:
    return [row.text for row in read_rows()]


def test_vectors_hold_the_golden_values():
    assert texts()[: len(GOLDEN)] == GOLDEN
    state = rows_of("mt19937")[0]
    words = [f"{w:08x}" for w in state.outputs]
    assert words[:4] == ["c0ec2edb", "47c322e0", "40c9c1e1", "bce374c4"]
    assert words[-2:] == ["96687d1b", "f56a8663"]
    key = _name(scalar, 42, 1, 7, 0, "torch.cpu")
    key = scalar.stream_key(key, 3, 0, 0)
    assert state.inputs == (key & TOP64, key >> 64)


def test_vectors_golden_order():
    for m in (scalar, derive):
        key = m.stream_key(_name(m, 42, 1, 7, 0, "shuffle"), 0, 0, 10, scalar.DOMAIN_SHUFFLE)
        assert shuffle.indices(key, 10, 0, 1, 10).tolist() == GOLDEN_ORDER
        assert [derive.shuffle_index(key, 10, i) for i in range(10)] == GOLDEN_ORDER
    fastseed.init(42, rank=0, world_size=1)
    assert fastseed.data.ShuffleSampler(10).indices(task=1, epoch=7).tolist() == GOLDEN_ORDER


def test_vectors_are_frozen():
    releases = vectors.frozen()
    assert releases[0] == FIRST_RELEASE
    assert [n for n, _ in releases] == sorted({n for n, _ in releases})
    assert vectors.changed(texts(), releases) == []
    assert releases[-1][0] == len(texts()), "appended rows belong into vectors.sha256 as well"


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
        "level2": [*where, names],
        "stream": [*where, names, ranks, edges(TOP32), edges(TOP64)],
        "sample": [*where, names, edges(TOP64), edges(TOP32)],
        "narrow": [*where, names, (31, 32), ranks, edges(TOP32), edges(TOP64)],
    }
    for kind, levels in designs.items():
        inputs = [row.inputs for row in rows_of(kind)]
        for a, b in itertools.combinations(range(len(levels)), 2):
            missing = set(itertools.product(levels[a], levels[b])) - {(i[a], i[b]) for i in inputs}
            assert not missing, (kind, a, b, missing)


# ---------------------------------------------------------------- the derivation, on a module


def _name(m, master: int, task: int, epoch: int, step: int, name: str) -> tuple[int, int]:
    """Levels 1 and 2."""
    return m.name_key(m.scope_key(master, task, epoch, step), scalar.name_words(name))


def _stream(m, row: Row) -> tuple[tuple[int, int], int, int, int, int]:
    """(key of the name, rank, worker, index, domain) of a stream or sample row."""
    name = _name(m, *row.inputs[:5])
    if row.kind == "sample":
        index, occurrence = row.inputs[5:]
        return name, 0, occurrence, index, scalar.DOMAIN_SAMPLE
    return name, *row.inputs[5:8], scalar.DOMAIN_STREAM


def _range(m, what, name, rank, worker, start, n, domain=scalar.DOMAIN_STREAM) -> np.ndarray:
    """Keys or seeds of consecutive indices, by the reference or by the operators."""
    if m is scalar:
        keys = philox.derive_keys(name, rank, worker, start, n, domain)
        return keys if what == "keys" else keys[:, 0]
    out = torch.empty((n, 2) if what == "keys" else (n,), dtype=torch.uint64)
    words = [scalar.signed(word) for word in (*name, start)]
    op = getattr(torch.ops.fastseed, f"derive_{what}")
    op(out, *words[:2], rank | domain << 24, worker, words[2])
    return out.numpy()


def _key(m, row: Row) -> tuple[int, ...]:
    """The key of one stream, one by one and as a member of a range that lies around it."""
    *stream, index, domain = _stream(m, row)
    key = m.stream_key(*stream, index, domain)
    before = index % 61  # which lane, which group, or the tail: by accident of the index
    keys = _range(m, "keys", *stream, (index - before) % 2**64, 127, domain)
    seeds = _range(m, "seeds", *stream, (index - before) % 2**64, 127, domain)
    assert (keys.dtype, keys.shape, seeds.shape) == (np.uint64, (127, 2), (127,))
    pair = key & TOP64, key >> 64
    assert tuple(keys[before].tolist()) == pair, row.text
    assert int(seeds[before]) == pair[0], row.text
    return pair


def _block(m, row: Row) -> tuple[int, ...]:
    """A block is what a stream is made of: these coordinates give any counter at all."""
    key, w0, w1, w2, w3 = row.inputs
    r = m.stream_key((key, 0), w2 & TOP24, w3, w0 | w1 << 32, w2 >> 24)
    return tuple(r >> 32 * i & TOP32 for i in range(4))


def _block_as_name(m, row: Row) -> tuple[int, ...]:
    """And what a name is made of."""
    key, w0, w1, w2, w3 = row.inputs
    r = m.name_key((key, 0), (w0 | w1 << 32, w2 | w3 << 32))
    return tuple(word >> by & TOP32 for word in r for by in (0, 32))


def _words(m, row: Row) -> tuple[int, ...]:
    return tuple(word >> by & TOP32 for word in scalar.name_words(*row.inputs) for by in (0, 32))


def _seeds(m, row: Row) -> tuple[str]:
    *at, name, rank, worker, start, n = row.inputs
    seeds = _range(m, "seeds", _name(m, *at, name), rank, worker, start, n)
    return (hashlib.sha256(seeds.astype("<u8").tobytes()).hexdigest(),)


def _narrow(m, row: Row) -> tuple[int]:
    *at, name, bits, rank, worker, index = row.inputs
    return (derive.narrow_seed(_name(m, *at, name), rank, worker, index, bits),)


DERIVE = {
    "block": _block,
    "scope": lambda m, row: m.scope_key(*row.inputs),
    "name": _words,
    "level2": lambda m, row: _name(m, *row.inputs),
    "stream": _key,
    "sample": _key,
    "mt19937": lambda m, row: tuple(
        derive.mt19937_state(row.inputs[0] | row.inputs[1] << 64).tolist()
    ),
    "seeds": _seeds,
    "narrow": _narrow,
}  # fmt: skip


def check_all(m) -> None:
    """Every row of the file through the module ``m``; a kind without an entry is an error."""
    for row in read_rows():
        assert tuple(DERIVE[row.kind](m, row)) == row.outputs, row.text[:200]
        if row.kind == "block":
            assert _block_as_name(m, row) == row.outputs, row.text


def test_vectors_reference():
    check_all(scalar)


def test_vectors_reference_block():
    for row in rows_of("block"):
        assert scalar.block(*row.inputs) == row.outputs


def test_vectors_ops_on_the_reference_backend(monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(native, "kernels", None)
        without.setattr(native, "generators", None)
        assert derive.simd_paths() == ()
        check_all(derive)


@pytest.fixture(params=SIMD)
def simd(request):
    """One instruction set of the native kernels; whichever this machine lacks is skipped."""
    if request.param not in derive.simd_paths():
        pytest.skip(
            f"no native kernels for {request.param} here (there are: {derive.simd_paths()})"
        )
    set_simd(request.param)
    assert derive.simd() == request.param
    return request.param


def test_every_simd_path_is_in_the_list():
    assert set(derive.simd_paths()) <= set(SIMD)


def test_vectors_ops_native(simd):
    check_all(derive)


@pytest.mark.skipif(native.generators is None, reason="needs _generators")
def test_vectors_native_states(simd):
    generator = torch.Generator()
    for row in rows_of("mt19937"):
        native.generators.reseed(generator, *row.inputs)
        words = generator.get_state().numpy()[24 : 24 + 8 * 624].view(np.uint64)
        assert tuple(words.tolist()) == row.outputs
        assert holds_key(generator, row.inputs[0] | row.inputs[1] << 64)


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


def test_vectors_registered_callables():
    """The golden narrow seeds, through ``reseed``."""
    golden = {31: (1314112241, 1319320594, 277224343), 32: (833770116, 1531875414, 380192622)}
    shared = {31: 750116112, 32: 2252187533}
    for bits in (31, 32):
        for rank in range(3):
            for everyone in (False, True):
                found = []
                job = seeder(42, rank=rank, world_size=3)
                job.register_generator(found.append, everyone, bits=bits)
                job.reseed(1, 7)
                assert found == [shared[bits] if everyone else golden[bits][rank]]

"""Laws of the derivation, over coordinates that hypothesis chooses.

``derive :: (Name in a scope, Stream, Range) -> Keys`` is injective within a name, independent of
the order of calls, prefix-stable, and splits over ranges; every coordinate, and the domain,
separates.
"""

import functools
import hashlib

import numpy as np
import pytest
import torch
from helpers.simd import set_simd
from helpers.support import needs_native, reference_key, seeder
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fastseed
from fastseed._backend import derive
from fastseed._backend.reference import scalar, shuffle
from fastseed.derivation.scopes import NARROW_BITS

LAWS = settings(max_examples=150, deadline=None, derandomize=True)


def numbers(bits: int, below: int = 0) -> st.SearchStrategy[int]:
    """[0, 2**bits - below), often near one of the ends or near a power of two."""
    top = 2**bits - 1 - below
    near = st.builds(
        lambda power, by: min(max(2**power + by, 0), top), st.integers(0, bits), st.integers(-2, 2)
    )
    return st.integers(0, top) | st.sampled_from([0, 1, top - 1, top]) | near


scopes = st.tuples(numbers(64), numbers(24), numbers(32), numbers(64))
names = st.tuples(numbers(64), numbers(64))  # in place of SHA-256: any halves
ranks = numbers(24)  # the largest is the shared one
workers = numbers(32)
indices = numbers(64)
domains = st.sampled_from([scalar.DOMAIN_STREAM, scalar.DOMAIN_SAMPLE])
streams = st.tuples(names, ranks, workers, indices)
lengths = st.integers(0, 200)


def key_of(scope, name, rank, worker, index, domain=scalar.DOMAIN_STREAM) -> int:
    return derive.stream_key(derive.name_key(scope, name), rank, worker, index, domain)


def derived(operator, shape, name, rank, worker, start, n, domain=scalar.DOMAIN_STREAM):
    out = torch.empty(n, *shape, dtype=torch.uint64)
    words = (rank | domain << 24, worker, scalar.signed(start))
    operator(out, *map(scalar.signed, name), *words)
    return out.numpy()


derived_keys = functools.partial(derived, torch.ops.fastseed.derive_keys, (2,))
derived_seeds = functools.partial(derived, torch.ops.fastseed.derive_seeds, ())


def keys(name, rank, worker, start, n, domain=scalar.DOMAIN_STREAM) -> list[tuple[int, int]]:
    derived = derived_keys(name, rank, worker, start % 2**64, n, domain)
    return [(int(lo), int(hi)) for lo, hi in derived]


@LAWS
@given(scopes, st.lists(st.tuples(streams, domains), unique=True, max_size=40))
def test_laws_streams_of_a_scope_have_distinct_keys(at, coordinates):
    """Those of different names only as random numbers of 128 bits have."""
    scope = derive.scope_key(*at)
    found = {key_of(scope, *stream, domain) for stream, domain in coordinates}
    assert len(found) == len(coordinates)


@LAWS
@given(scopes, names, ranks, workers, indices, st.integers(2, 3000))
def test_laws_members_have_distinct_keys(at, name, rank, worker, start, n):
    name_key = derive.name_key(derive.scope_key(*at), name)
    found = derived_keys(name_key, rank, worker, start, n)
    assert len(np.unique(found, axis=0)) == n


@LAWS
@given(st.lists(scopes, unique=True, min_size=2, max_size=30), streams)
def test_laws_distinct_scopes_have_distinct_keys(all_at, stream):
    """Not by construction, but equal as seldom as random numbers of 128 and of 64 bits are."""
    found = [derive.scope_key(*at) for at in all_at]
    assert len(set(found)) == len(all_at)
    stream_keys = {key_of(scope, *stream) for scope in found}
    assert len(stream_keys) == len(all_at)
    assert len({key % 2**64 for key in stream_keys}) == len(all_at)


@LAWS
@given(scopes, names, ranks, workers, indices)
def test_laws_domains_separate(at, name, rank, worker, i):
    """The same counter in all domains: scope, stream, sample, state, shuffle, narrow seed."""
    scope = derive.scope_key(*at)
    found = [key_of(scope, name, rank, worker, i, domain) for domain in range(1, 7)]
    assert len({key % 2**64 for key in found}) == len({key >> 64 for key in found}) == 6


@LAWS
@given(
    scopes, names, st.lists(ranks, unique=True, max_size=12), workers, indices,
    st.sampled_from(NARROW_BITS),
)  # fmt: skip
def test_laws_narrow_seeds_differ_between_ranks(at, name, some_ranks, worker, i, bits):
    name_key = derive.name_key(derive.scope_key(*at), name)
    found = [derive.narrow_seed(name_key, rank, worker, i, bits) for rank in some_ranks]
    assert len(set(found)) == len(found)
    assert all(0 <= seed < 2**bits for seed in found)


keys_of_names = st.tuples(numbers(64), numbers(64))


@LAWS
@given(keys_of_names, ranks, workers, indices, lengths, domains)
def test_laws_a_range_is_its_members(name, rank, worker, start, n, domain):
    members = []
    for index in range(start, start + n):
        key = derive.stream_key(name, rank, worker, index % 2**64, domain)
        members.append((key & 2**64 - 1, key >> 64))
    assert keys(name, rank, worker, start, n, domain) == members


@LAWS
@given(keys_of_names, ranks, workers, indices, lengths, domains)
def test_laws_seeds_are_the_low_halves(name, rank, worker, start, n, domain):
    seeds = derived_seeds(name, rank, worker, start, n, domain)
    assert seeds.dtype == np.uint64
    assert seeds.tolist() == [lo for lo, _ in keys(name, rank, worker, start, n, domain)]


@needs_native
@LAWS
@given(scopes, streams, domains, st.sampled_from(derive.simd_paths() or ("none",)))
def test_laws_native_scalars_are_the_reference(at, stream, domain, simd):
    set_simd(simd)
    name, *where = stream
    scope = scalar.scope_key(*at)
    assert derive.scope_key(*at) == scope
    name_key = scalar.name_key(scope, name)
    assert derive.name_key(scope, name) == name_key
    assert derive.stream_key(name_key, *where, domain) == scalar.stream_key(
        name_key, *where, domain
    )
    for bits in NARROW_BITS:
        rank_field, worker, index = where
        key = scalar.stream_key(name_key, 0, worker, index, scalar.DOMAIN_NARROW)
        expected = shuffle.indices(key, 1 << bits, rank_field, 1, 1)
        assert derive.narrow_seed(name_key, *where, bits) == expected


@LAWS
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_laws_a_name_is_the_start_of_its_sha256(name):
    expected = hashlib.sha256(name.encode("utf-8")).digest()[:16]
    assert b"".join(half.to_bytes(8, "little") for half in scalar.name_words(name)) == expected


@LAWS
@given(numbers(128), numbers(128))
def test_laws_states_are_distinct_and_never_zero(a, b):
    assume(a != b)
    first, second = derive.mt19937_state(a), derive.mt19937_state(b)
    assert (first.dtype, first.shape) == (np.uint32, (624,))
    assert first[0] >> 31 == 1
    assert np.count_nonzero(first == second) < 8  # 624 / 2**32 equal words are to be expected


@pytest.fixture(scope="module")
def job() -> fastseed.Seeder:
    return seeder(42, rank=3, world_size=8)


@LAWS
@given(where=st.tuples(numbers(24), numbers(32), numbers(64)), worker=workers, i=indices)
def test_laws_seeder_look_ups_agree(job, where, worker, i):
    at = {**dict(zip(("task", "epoch", "step"), where, strict=True)), "worker": worker}
    key = job.derive_key("numpy", **at, index=i)
    assert key == reference_key("numpy", 42, *where, 3, worker, i)
    assert job.derive_seed("numpy", **at, index=i) == key & 2**64 - 1
    n = min(3, 2**64 - i)
    derived = job.derive_keys("numpy", n, **at, start=i)
    assert derived[0].tolist() == [key & 2**64 - 1, key >> 64]
    assert job.derive_seeds("numpy", n, **at, start=i).tolist() == derived[:, 0].tolist()
    assert job.derive_key("numpy", **at, index=i, rank=fastseed.SHARED) != key

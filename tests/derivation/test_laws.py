"""Laws of the derivation, over coordinates that hypothesis chooses.

``derive :: (Scope, Stream, Range) -> Keys`` is injective within a scope, independent of the order
of calls, prefix-stable, and splits over ranges; every coordinate, and the domain, separates.
"""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from helpers.support import needs_native, seeder
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fastseed
from fastseed._backend import derive_ops
from fastseed._backend.reference import philox

LAWS = settings(max_examples=150, deadline=None, derandomize=True)


def numbers(bits: int, below: int = 0) -> st.SearchStrategy[int]:
    """[0, 2**bits - below), often near one of the ends or near a power of two."""
    top = 2**bits - 1 - below
    near = st.builds(
        lambda power, by: min(max(2**power + by, 0), top), st.integers(0, bits), st.integers(-2, 2)
    )
    return st.integers(0, top) | st.sampled_from([0, 1, top - 1, top]) | near


scopes = st.tuples(numbers(64), numbers(24), numbers(32), numbers(64))
ids = numbers(32)
ranks = numbers(24)  # the largest is the shared one
indices = numbers(64)
domains = st.sampled_from([philox.DOMAIN_STREAM, philox.DOMAIN_SAMPLE])
streams = st.tuples(ids, ranks, numbers(24), numbers(40))
lengths = st.integers(0, 200)


def keys(scope, name, rank, start, n, domain=philox.DOMAIN_STREAM) -> list[tuple[int, int]]:
    derived = derive_ops.derive_keys(scope, name, rank, start % 2**64, n, domain)
    return [(int(lo), int(hi)) for lo, hi in derived]


# ---------------------------------------------------------------- injective


@LAWS
@given(scopes, st.lists(st.tuples(streams, domains), unique=True, max_size=40))
def test_laws_streams_of_a_scope_have_distinct_keys(at, coordinates):
    scope = derive_ops.scope_key(*at)
    found = {derive_ops.stream_key(scope, *stream, domain) for stream, domain in coordinates}
    assert len(found) == len(coordinates)


@LAWS
@given(scopes, ids, ranks, indices, st.integers(2, 3000))
def test_laws_members_have_distinct_keys(at, name, rank, start, n):
    found = derive_ops.derive_keys(derive_ops.scope_key(*at), name, rank, start, n)
    assert len(np.unique(found, axis=0)) == n


@LAWS
@given(st.lists(scopes, unique=True, min_size=2, max_size=30), streams)
def test_laws_distinct_scopes_have_distinct_keys(all_at, stream):
    """Not by construction, but equal as seldom as random numbers of 128 and of 64 bits are."""
    found = [derive_ops.scope_key(*at) for at in all_at]
    assert len(set(found)) == len(all_at)
    stream_keys = {derive_ops.stream_key(scope, *stream) for scope in found}
    assert len(stream_keys) == len(all_at)
    assert len({key % 2**64 for key in stream_keys}) == len(all_at)


@LAWS
@given(scopes, streams, streams, st.integers(0, 3))
def test_laws_each_coordinate_separates(at, stream, other, which):
    """Name, rank, worker or index alone makes another key."""
    changed = (*stream[:which], other[which], *stream[which + 1 :])
    assume(changed != stream)
    scope = derive_ops.scope_key(*at)
    assert derive_ops.stream_key(scope, *stream) != derive_ops.stream_key(scope, *changed)


@LAWS
@given(scopes, scopes, streams, st.integers(0, 3))
def test_laws_each_point_in_time_separates(at, other, stream, which):
    """Master seed, task, epoch or step alone makes another key, in both halves."""
    changed = (*at[:which], other[which], *at[which + 1 :])
    assume(changed != at)
    a, b = (derive_ops.stream_key(derive_ops.scope_key(*where), *stream) for where in (at, changed))
    assert a % 2**64 != b % 2**64
    assert a >> 64 != b >> 64


@LAWS
@given(scopes, ids, numbers(24, below=1), numbers(24), numbers(40))
def test_laws_shared_is_no_rank(at, name, rank, worker, i):
    scope = derive_ops.scope_key(*at)
    shared = derive_ops.stream_key(scope, name, derive_ops.SHARED_RANK, worker, i)
    assert shared != derive_ops.stream_key(scope, name, rank, worker, i)


@LAWS
@given(scopes, ids, ranks, numbers(24), numbers(40))
def test_laws_domains_separate(at, name, rank, worker, i):
    """The same counter in two domains: scope, stream, sample, state expansion, shuffle."""
    scope = derive_ops.scope_key(*at)
    found = [derive_ops.stream_key(scope, name, rank, worker, i, domain) for domain in range(1, 6)]
    assert len({key % 2**64 for key in found}) == len({key >> 64 for key in found}) == 5


# ---------------------------------------------------------------- order-free


@LAWS
@given(scopes, st.lists(streams, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_laws_keys_do_not_depend_on_the_order_of_calls(at, all_streams, shuffler):
    scope = derive_ops.scope_key(*at)
    forward = {stream: derive_ops.stream_key(scope, *stream) for stream in all_streams}
    order = list(all_streams) * 2
    shuffler.shuffle(order)
    for stream in order:
        derive_ops.derive_keys(scope, *stream[:2], stream[3], 5)  # in between, something else
        derive_ops.scope_key(*reversed([v % 2**24 for v in at]))
        assert derive_ops.stream_key(derive_ops.scope_key(*at), *stream) == forward[stream]


# ---------------------------------------------------------------- ranges


@LAWS
@given(scopes, ids, ranks, indices, lengths, lengths, domains)
def test_laws_prefix_stable(at, name, rank, start, m, more, domain):
    scope = derive_ops.scope_key(*at)
    whole = keys(scope, name, rank, start, m + more, domain)
    assert whole[:m] == keys(scope, name, rank, start, m, domain)


@LAWS
@given(scopes, ids, ranks, indices, lengths, st.lists(lengths, max_size=6), domains)
def test_laws_any_split_is_the_whole(at, name, rank, start, n, cuts, domain):
    scope = derive_ops.scope_key(*at)
    edges = [0, *sorted(cut % (n + 1) for cut in cuts), n]
    parts = [
        key
        for a, b in itertools.pairwise(edges)
        for key in keys(scope, name, rank, start + a, b - a, domain)
    ]
    assert parts == keys(scope, name, rank, start, n, domain)


@LAWS
@given(scopes, ids, ranks, indices, lengths, domains)
def test_laws_a_range_is_its_members(at, name, rank, start, n, domain):
    scope = derive_ops.scope_key(*at)
    members = []
    for index in range(start, start + n):
        worker, i = index % 2**64 >> 40, index % 2**40
        key = derive_ops.stream_key(scope, name, rank, worker, i, domain)
        members.append((key & 2**64 - 1, key >> 64))
    assert keys(scope, name, rank, start, n, domain) == members


@LAWS
@given(scopes, ids, ranks, indices, lengths, domains)
def test_laws_seeds_are_the_low_halves(at, name, rank, start, n, domain):
    scope = derive_ops.scope_key(*at)
    seeds = derive_ops.derive_seeds(scope, name, rank, start, n, domain)
    assert seeds.dtype == np.uint64
    assert seeds.tolist() == [lo for lo, _ in keys(scope, name, rank, start, n, domain)]


# ---------------------------------------------------------------- native is the reference


@needs_native
@LAWS
@given(scopes, streams, domains, st.sampled_from(derive_ops.simd_paths() or ("none",)))
def test_laws_native_scalars_are_the_reference(at, stream, domain, simd):
    derive_ops.set_simd(simd)
    scope = philox.scope_key(*at)
    assert derive_ops.scope_key(*at) == scope
    expected = philox.stream_key(scope, *stream, domain)
    assert derive_ops.stream_key(scope, *stream, domain) == expected


@needs_native
@LAWS
@given(
    scopes, ids, ranks, indices, st.integers(0, 500), domains,
    st.sampled_from(derive_ops.simd_paths() or ("none",)),
)  # fmt: skip
def test_laws_native_ranges_are_the_reference(at, name, rank, start, n, domain, simd):
    derive_ops.set_simd(simd)
    where = philox.scope_key(*at), name, rank, start, n, domain
    assert np.array_equal(derive_ops.derive_keys(*where), philox.derive_keys(*where))
    assert np.array_equal(derive_ops.derive_seeds(*where), philox.derive_seeds(*where))


@LAWS
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_laws_name_id_is_the_start_of_sha256(name):
    expected = hashlib.sha256(name.encode("utf-8")).digest()[:4]
    assert derive_ops.name_id(name).to_bytes(4, "little") == expected


# ---------------------------------------------------------------- expansion


@LAWS
@given(numbers(128), numbers(128))
def test_laws_states_are_distinct_and_never_zero(a, b):
    assume(a != b)
    first, second = philox.mt19937_state(a), philox.mt19937_state(b)
    assert (first.dtype, first.shape) == (np.uint32, (624,))
    assert first[0] >> 31 == 1
    assert np.count_nonzero(first == second) < 8  # 624 / 2**32 equal words are to be expected


# ---------------------------------------------------------------- the public functions


@pytest.fixture(scope="module")
def job() -> fastseed.Seeder:
    return seeder(42, rank=3, world_size=8)


@LAWS
@given(where=st.tuples(numbers(24), numbers(32), numbers(64)), worker=numbers(24), i=numbers(40))
def test_laws_seeder_look_ups_agree(job, where, worker, i):
    at = {**dict(zip(("task", "epoch", "step"), where, strict=True)), "worker": worker}
    key = job.derive_key("numpy", **at, index=i)
    scope = philox.scope_key(42, *where)
    assert key == philox.stream_key(scope, philox.name_id("numpy"), 3, worker, i)
    assert job.derive_seed("numpy", **at, index=i) == key & 2**64 - 1
    n = min(3, 2**40 - i)
    derived = job.derive_keys("numpy", n, **at, start=i)
    assert derived[0].tolist() == [key & 2**64 - 1, key >> 64]
    assert job.derive_seeds("numpy", n, **at, start=i).tolist() == derived[:, 0].tolist()
    assert job.derive_key("numpy", **at, index=i, rank=fastseed.SHARED) != key

"""Streams and the keys that belong to them, computed by ``fastseed._backend.derive``.

A *scope* is a point in time of the job (task, epoch, step), and its *scope key* that point under a
master seed; a *stream* is a named generator on a rank. The only state is a cache of names.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from .._backend import derive
from .._backend.reference import scalar
from .scopes import NARROW_BITS, Scope

_LOW64 = 2**64 - 1


class Stream(NamedTuple):
    """A named generator at a rank field, at one point in time; its members have keys."""

    name_key: scalar.NameKey
    rank_field: int
    worker: int = 0
    """0: the main process; k + 1: DataLoader worker k."""
    domain: int = scalar.DOMAIN_STREAM

    @property
    def rank_word(self) -> int:
        """Rank and domain, as native code takes them."""
        return self.rank_field | self.domain << 24

    def key(self, index: int = 0) -> int:
        """Return the 128-bit key of member ``index``."""
        where = self.rank_field, self.worker, index, self.domain
        return derive.stream_key(self.name_key, *where)

    def keys(self, count: int) -> torch.Tensor:
        """Return the keys of the first ``count`` members, (count, 2), of dtype uint64."""
        out = derive.empty_words(count, 2)
        return derive.fill(out, self.name_key, self.rank_word, self.worker, 0)

    def seed(self, bits: int, index: int = 0) -> int:
        """Return the seed of ``bits`` bits of member ``index``.

        With 31 or 32 bits, two ranks never have the same at one point in time. With more, it is the
        lowest bits of the key; of samples, which have no rank, always.
        """
        if bits in NARROW_BITS and self.domain == scalar.DOMAIN_STREAM:
            return derive.narrow_seed(self.name_key, self.rank_field, self.worker, index, bits)
        return self.key(index) & (1 << bits) - 1

    def scope(self) -> scalar.ScopeKey:
        """Return the scope whose key and tweak are the key of this stream."""
        key = self.key()
        return key & _LOW64, key >> 64

    def offset_by(self, offset: int) -> Stream:
        """Return the stream whose member i is member ``offset ^ i`` of this one."""
        key, tweak = self.name_key
        return self._replace(name_key=(key, tweak ^ offset))


@functools.lru_cache(maxsize=16384)
def name_words(name: str) -> scalar.Name:
    """Return what the derivation takes of a name: 128 bits of its SHA-256."""
    return scalar.name_words(name)


def named_scope(scope: scalar.ScopeKey, name: str | None) -> scalar.ScopeKey:
    """Return the scope within ``scope`` whose streams belong to ``name``; None: ``scope`` itself.

    Its key and tweak are the key of domain 1 of the name.
    """
    if name is None:
        return scope
    return Stream(derive.name_key(scope, name_words(name)), 0, 0, scalar.DOMAIN_SCOPE).scope()


def stream_in(scope: scalar.ScopeKey, name: str, rank_field: int, worker: int = 0) -> Stream:
    """Return the stream ``name`` of a rank field in a scope. Arguments are trusted."""
    return Stream(derive.name_key(scope, name_words(name)), rank_field, worker)


def stream(master_seed: int, at: Scope, name: str, rank_field: int) -> Stream:
    """Return the stream ``name`` of a rank field in the scope ``at``. Arguments are trusted."""
    return stream_in(derive.scope_key(master_seed, *at), name, rank_field)


def sample_stream(scope: scalar.ScopeKey, name: str, index: int, occurrence: int = 0) -> Stream:
    """Return the stream ``name`` of an occurrence of a sample: that of domain 3 on rank 0."""
    key, tweak = derive.name_key(scope, name_words(name))
    return Stream((key, tweak ^ index), 0, occurrence, scalar.DOMAIN_SAMPLE)

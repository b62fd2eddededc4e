"""The arrays that the statistics of draws look at are what the library draws."""

from __future__ import annotations

import numpy as np
from helpers.draw_words import exponentials, keys, normals, uniforms, words

import fastseed


def test_draws_words_are_the_librarys():
    streams = keys(37)
    w = words(streams, 25)
    assert np.array_equal(fastseed.random.bits(streams, (100,)).numpy(), w)
    assert np.array_equal(fastseed.random.uniform(streams, (100,)).numpy(), uniforms(w))
    assert np.array_equal(fastseed.random.normal(streams, (100,)).numpy(), normals(w))
    assert np.array_equal(fastseed.random.exponential(streams, (100,)).numpy(), exponentials(w))
    assert not np.array_equal(words(streams, 25, rounds=9), w)

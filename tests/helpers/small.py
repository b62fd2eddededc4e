"""Limits of production size, made small, so that tests of 20 samples reach their edges."""

import pytest

from fastseed._backend.reference import digest, philox, shuffle
from fastseed.data.order import permutation
from fastseed.elastic import slots
from fastseed.generators import discovery
from fastseed.seeder import recent_scopes

LIMITS = (
    (permutation, "_FIRST_CHUNK", 2),
    (permutation, "_LARGEST_CHUNK", 8),
    (permutation, "_MOST_SPARE", 4),
    (discovery, "_LONG", 20),
    (recent_scopes, "_SLOTS", 8),
    (slots, "_COMPARED", 3),
    (philox, "_CHUNK", 256),
    (shuffle, "_CHUNK", 256),
    (digest, "_CHUNK", 256),
)


def set_small_limits(patch: pytest.MonkeyPatch) -> None:
    """Set them, until ``patch`` is undone. None of them is in a specification."""
    for module, name, value in LIMITS:
        patch.setattr(module, name, value)

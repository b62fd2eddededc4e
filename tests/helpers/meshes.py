"""Meshes as each of their ranks has them, and which ranks have equal values."""

import itertools

from helpers.support import seeder

NAMES = ("dp", "tp", "pp")


def ranks_of(shape, names=NAMES):
    """The mesh of each rank, row by row."""
    for ranks in itertools.product(*map(range, shape)):
        yield dict(zip(names, zip(ranks, shape, strict=True), strict=True))


def of_rank(rank, where, world=8, **more):
    return seeder(rank=rank, world_size=world, mesh=where, **more)


def shared_by(values):
    """The sets of ranks with equal values."""
    groups = {}
    for rank, value in enumerate(values):
        groups.setdefault(value, set()).add(rank)
    return sorted(map(sorted, groups.values()))


def expected_groups(meshes, along):
    return shared_by([tuple(m[name][0] for name in along) for m in meshes])

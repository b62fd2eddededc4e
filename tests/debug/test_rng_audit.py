"""fastseed.debug.audit: unregistered generators, seeding calls, repeated scopes."""

from __future__ import annotations

import random
import sys
import types

import numpy as np
import pytest
import torch
from helpers.support import snapshot

import fastseed
from fastseed.debug import rng_audit


def start() -> None:
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 3)


class Transform:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.other = torch.Generator()
        self.idle = random.Random(2)


def test_audit_names_unregistered_generators():
    start()
    transform, known = Transform(), random.Random(1)
    fastseed.register_generator(known, name="known")
    with rng_audit.audit() as report:
        random.random(), np.random.rand(), torch.rand(()), known.random()
        assert not report
        transform.rng.random()
        torch.rand(1, generator=transform.other)
    found = {(f.kind, f.what, f.where) for f in report.findings}
    assert found == {
        ("unregistered", "numpy.random._generator.Generator", "Transform.rng"),
        ("unregistered", "torch.Generator", "Transform.other"),
    }


def test_audit_finds_generators_that_are_deleted():
    start()
    with rng_audit.audit() as report:
        np.random.default_rng().random()
    (finding,) = report.findings
    assert finding.kind == "unseeded" and finding.where.startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("random.seed", lambda: random.seed(7)),
        ("numpy.random.seed", lambda: np.random.seed(7)),
        ("torch.manual_seed", lambda: torch.manual_seed(7)),
    ],
)
def test_audit_finds_seeding_calls(name, seed):
    start()
    original = random.seed, np.random.seed, torch.manual_seed, np.random.default_rng
    with rng_audit.audit() as report:
        seed()
    assert [(f.kind, f.what) for f in report.findings] == [("seeded", name)]
    assert report.findings[0].where.startswith(f"{__file__}:")
    assert (random.seed, np.random.seed, torch.manual_seed, np.random.default_rng) == original


def test_audit_finds_repeated_scopes_and_restores_after_errors():
    start()
    original = random.seed
    with rng_audit.audit() as report:
        fastseed.reseed(1, 4)
        fastseed.reseed(1, 3)
    assert [(f.kind, f.what) for f in report.findings] == [("repeated", "1 scopes")]
    with pytest.raises(ZeroDivisionError), rng_audit.audit():
        _ = 1 / 0
    assert random.seed is original


def test_audit_changes_no_random_number():
    drawn = []
    for watched in (False, True):
        start()
        if watched:
            with rng_audit.audit():
                drawn.append((random.random(), np.random.rand(), float(torch.rand(()))))
        else:
            drawn.append((random.random(), np.random.rand(), float(torch.rand(()))))
    assert drawn[0] == drawn[1]


def test_audit_changes_no_state():
    start()
    torch.rand(3)
    before = snapshot()
    with rng_audit.audit():
        pass
    assert snapshot() == before


@pytest.mark.parametrize("is_new", [True, False])
def test_audit_leaves_out_generators_of_packages(monkeypatch, is_new):
    """torch imports sympy, for example, whose module has a generator that sympy itself uses."""
    start()
    package = types.ModuleType("installed_package")
    monkeypatch.setitem(sys.modules, "installed_package", package)
    own = rng_audit._is_installed
    monkeypatch.setattr(
        rng_audit, "_is_installed", lambda name: name == "installed_package" or own(name)
    )

    def make() -> None:
        exec("import random; rng = random.Random(); draw = rng.random", vars(package))

    if not is_new:
        make()
    with rng_audit.audit() as report:
        if is_new:
            make()
        package.draw()
    assert report.findings == []


def test_audit_reports_generators_that_objects_of_packages_hold():
    """An augmentation of an installed package decides what the job trains on."""
    start()
    holder = random.Random
    kept = type("Augmentation", (), {"__module__": "numpy.augmentations"})()
    kept.rng = holder(1)
    with rng_audit.audit() as report:
        kept.rng.random()
    assert [(f.kind, f.where) for f in report.findings] == [("unregistered", "Augmentation.rng")]


# ---------------------------------------------------------------- training without reseed


def train(reseeds=False, draws=True, steps=3):
    fastseed.init(42, rank=0, world_size=1)
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter])
    with fastseed.debug.audit() as report:
        for step in range(steps):
            if reseeds and step == 0:
                fastseed.reseed(0)
            noise = torch.rand(2) if draws else torch.ones(2)
            (parameter * noise).sum().backward()
            optimizer.step()
    return [(finding.kind, finding.what) for finding in report.findings]


def test_training_in_the_scope_of_init_is_found():
    assert train() == [("unmoved", "3 optimizer steps without a reseed")]


@pytest.mark.parametrize("arguments", [{"reseeds": True}, {"draws": False}, {"steps": 1}])
def test_training_that_moves_or_draws_nothing_is_no_finding(arguments):
    assert train(**arguments) == []


def test_training_with_steps_is_no_finding():
    fastseed.init(42, rank=0, world_size=1)
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter])
    loader = torch.utils.data.DataLoader(range(4), shuffle=True)
    with fastseed.debug.audit() as report:
        for _ in fastseed.data.steps(loader, epochs=1, task=1):
            (parameter * torch.rand(2)).sum().backward()
            optimizer.step()
    assert report.findings == []

"""The public names: light to import, visible to type checkers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from helpers.support import run_python

import fastseed

ROOT = str(Path(fastseed.__file__).parents[1])


def test_import_loads_neither_torch_nor_numpy():
    code = (
        "import sys, fastseed; dir(fastseed); print([m in sys.modules for m in ('torch', 'numpy')])"
    )
    assert run_python("-c", code).strip() == "[False, False]"


def test_every_public_name_is_listed_and_found():
    assert len(fastseed.__all__) <= 23
    for name in fastseed.__all__:
        assert name in dir(fastseed) and getattr(fastseed, name) is not None
        if name not in ("SHARED", "__version__"):
            assert getattr(fastseed, name).__doc__


@pytest.mark.parametrize("name", ["seed", "manual_seed", "set_seed", "seed_everything"])
def test_names_of_other_libraries_name_init(name):
    with pytest.raises(
        AttributeError, match=rf"fastseed\.{name}: call fastseed\.init\(master_seed"
    ):
        getattr(fastseed, name)(42)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("rand", "torch.rand"), ("randn", "fastseed.random.normal"), ("DataLoader", "data.steps")],
)
def test_names_of_torch_say_where_they_are(name, instead):
    with pytest.raises(AttributeError, match=rf"fastseed\.{name}: .*{instead}"):
        getattr(fastseed, name)


def test_reseed_error_is_shown_where_users_find_it():
    error = fastseed.ReseedError({"a": ValueError("x")})
    assert traceback.format_exception_only(error)[0].startswith("fastseed.ReseedError: ")
    assert type(pickle.loads(pickle.dumps(error))) is fastseed.ReseedError


def test_shared_has_a_name_in_messages():
    assert repr(fastseed.SHARED) == "fastseed.SHARED" and fastseed.SHARED == 2**24 - 1
    fastseed.init(42)
    with pytest.raises(ValueError, match=r"rank must be in \[0, 16777214\] or fastseed.SHARED"):
        fastseed.derive_key("x", task=1, rank=2**24)


SCRIPT = """
import fastseed
import fastseed.pyt
import torch

fastseed.init(42, rank=0, world_size=1)
fastseed.reseed(task=1, epoch=3, step=0)
seed: int = fastseed.get_master_seed()
key: int = fastseed.derive_key("a", task=1, rank=fastseed.SHARED)
low: int = fastseed.derive_seed("a", task=1, worker=1, index=2)
keys: torch.Tensor = fastseed.derive_keys("a", 3, task=1, device="cpu")
seeds: torch.Tensor = fastseed.derive_seeds("a", 3, task=1, start=4)
scope: torch.Tensor = fastseed.derive_scope_key(1)
with fastseed.fork_rng("layer", index=3):
    pass
generators = [torch.Generator()]
pool = fastseed.GeneratorPool(generators, "pool")
fastseed.register_generator(pool, name="pool", bits=63)
fastseed.unregister_generator(pool)
state: dict[str, object] = dict(fastseed.state_dict(rng=True))
fastseed.load_state_dict(fastseed.state_dict())
seeder = fastseed.Seeder(1, rank=0, world_size=1)
other: int = seeder.derive_key("a", task=1, epoch=2)
many: torch.Tensor = seeder.derive_keys("a", 2, task=1)
fastseed.deterministic(warn_only=True)
used: int = fastseed.enforce_reproducibility()
info: dict[str, object] = dict(fastseed.build_info())
version: str = fastseed.__version__
try:
    fastseed.reseed(0)
except fastseed.ReseedError as error:
    print(error.failures)
old = fastseed.pyt.SeedGen(1, 2, 0)(task=1, epoch=3)
uniform: torch.Tensor = fastseed.random.uniform(keys, 2)
"""


@pytest.mark.slow
def test_a_script_with_every_name_passes_mypy_strict(tmp_path):
    pytest.importorskip("mypy")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert all(f"fastseed.{name}" in SCRIPT for name in fastseed.__all__)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(script)],
        capture_output=True, text=True, timeout=600, cwd=tmp_path,
        # mypy does not follow the import hook of an editable install
        env={**os.environ, "MYPYPATH": ROOT},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr

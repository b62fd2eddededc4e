"""Helpers of test modules: snapshots of generators, expected states, subprocesses."""

import io
import random
from typing import Any

import numpy as np
import pytest
import torch

import fastseed
from helpers.inside import derive, scalar, shuffle
from helpers.paths import SCRIPTS
from helpers.processes import (
    LAUNCHER_VARIABLES,
    clean_environment,
    free_port,
    run_python,
    run_script,
)

__all__ = [
    "LAUNCHER_VARIABLES", "LOW64", "SCRIPTS", "clean_environment",
    "free_port", "holds_key", "needs_native", "reference_key",
    "reference_narrow_seed", "reference_sample_key", "repr_state", "run_python", "run_script",
    "scramble", "seeder", "snapshot", "torch_words", "without_scope",
]  # fmt: skip

LOW64 = 2**64 - 1

needs_native = pytest.mark.skipif(
    derive.backend != "native", reason="needs the native code, which is not in use here"
)


def freed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without its memory: to read an element ends the process."""
    tensor.untyped_storage().resize_(0)
    return tensor


def saved_and_loaded(state: Any) -> Any:
    """Return what comes back through a file of torch, without pickled objects."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Key(int):
    """A stream with one member, whose key this is."""

    def key(self, index: int = 0) -> int:
        """The key."""
        return int(self)

    def seed(self, bits: int) -> int:
        """Its lowest bits."""
        return int(self) % 2**bits


def snapshot() -> tuple[Any, ...]:
    """The states of the three global generators, comparable with ``==``."""
    numpy = np.random.get_state(legacy=False)
    return random.getstate(), repr_state(numpy), torch.get_rng_state().numpy().tobytes()


def repr_state(value: Any) -> Any:
    """A NumPy state with its arrays as bytes."""
    if isinstance(value, dict):
        return {k: repr_state(v) for k, v in value.items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value


def torch_words(generator: torch.Generator) -> np.ndarray:
    """The 624 words that a torch CPU generator holds."""
    return generator.get_state().numpy()[24 : 24 + 8 * 624].view(np.uint64).astype(np.uint32)


def holds_key(generator: torch.Generator, key: int) -> bool:
    """Return whether a torch CPU generator is exactly as specified after a reseed with ``key``."""
    state = generator.get_state().numpy()
    left, seeded = state[8:16].view(np.int32)
    (position,) = state[16:24].view(np.uint64)
    return (
        generator.initial_seed() == key & LOW64
        and (int(left), int(seeded), int(position)) == (1, 1, 0)
        and np.array_equal(torch_words(generator), derive.mt19937_state(key))
        and not state[24 + 8 * 624 :].any()  # cached normals
    )


def reference_key(
    name: str,
    master: int = 42,
    task: int = 1,
    epoch: int = 7,
    step: int = 0,
    rank: int = 3,
    worker: int = 0,
    index: int = 0,
    domain: int = scalar.DOMAIN_STREAM,
) -> int:
    """The 128-bit key at these coordinates, by the reference alone."""
    scope = scalar.scope_key(master, task, epoch, step)
    name_key = scalar.name_key(scope, scalar.name_words(name))
    return scalar.stream_key(name_key, rank, worker, index, domain)


def reference_sample_key(
    name: str, index: int, occurrence: int = 0, *, task: int = 1, epoch: int = 5, master: int = 42
) -> int:
    """The 128-bit key of a sample, by the reference alone."""
    where = {"rank": 0, "worker": occurrence, "index": index, "domain": scalar.DOMAIN_SAMPLE}
    return reference_key(name, master, task, epoch, **where)


def reference_narrow_seed(
    name: str, bits: int = 31, *, epoch: int = 0, rank: int = 0, **where: Any
) -> int:
    """The seed that a callable of 31 or 32 bits gets, by the reference alone."""
    key = reference_key(name, epoch=epoch, rank=0, domain=scalar.DOMAIN_NARROW, **where)
    return int(shuffle.indices(key, 1 << bits, rank, 1, 1)[0])


def scramble() -> None:
    """Leave the global generators in the middle of things, each with a cached Gaussian."""
    random.seed(1)
    random.gauss(0, 1)
    np.random.seed(2)
    np.random.standard_normal(7)
    torch.manual_seed(3)
    torch.randn((), dtype=torch.float64)
    torch.randn(3)


def seeder(master_seed: int | None = 42, **where: Any) -> fastseed.Seeder:
    """A seeder on rank 0 of 1, unless said otherwise."""
    where = {"rank": 0, "world_size": 1, **where}
    return fastseed.Seeder(master_seed, **where)


def without_scope(**where: Any) -> None:
    """Make a seeder that of the process without seeding anything, as before its first reseed."""
    fastseed.derivation.context.set_current(seeder(**where))


def restart(step: int = 0) -> None:
    """Go to task 1, epoch 0 and a step, also a second time, without the warning."""
    fastseed.derivation.context.current("test").move(1, 0, step)

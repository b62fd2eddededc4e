"""What is seeded in this process, what is not, and what came of it: looked at, never changed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from .._backend import derive_ops
from ..derivation import context
from ..determinism import hash_seed
from ..distributed.agreement import verify_agreement
from ..generators.adapter import MT_WORDS, unpack_mt19937
from ..generators.numpy_rng import NumpyRandomState
from ..generators.pool import MembersAdapter
from ..generators.python_rng import PythonRandom
from ..generators.torch_rng import TorchGenerator, cpu_words
from ..seeder import api, seeder
from ..seeder.registry import EpochRegistration, Registration
from .rng_audit_defaults import generations

FINE, NOTE, WRONG = "fine", "note", "wrong"

_FURTHEST = 4096  # states of 624 words that are tried: some 2.5 million draws


class Row(NamedTuple):
    """One thing that was looked at."""

    topic: str
    """``build``, ``job``, ``streams``, ``ranks`` or ``process``."""
    item: str
    status: str
    """``fine``; ``note``: worth knowing; ``wrong``: it is not what it should be."""
    says: str


def examine(*, ranks: bool | None = False, timeout: float = 60.0) -> list[Row]:
    """Look at this process: build, job, every stream, and what else decides random numbers.

    Args:
        ranks: also ask the other ranks whether they agree; every rank has to make the call then
            (see :func:`fastseed.distributed.verify_agreement`). None: where this process is one of several.
        timeout: for that, in seconds.
    """
    rows = [*_build()]
    current = context.seeder
    if current is None:
        rows.append(Row("job", "init", WRONG, "fastseed.init was not called in this process"))
    else:
        rows += _job(current)
        if current.scope is not None and current.scheme == "philox-v1":
            rows += _streams(current)
    if _among_others(current) if ranks is None else ranks:
        rows.append(_ranks(timeout))  # without init, too: or the others would wait for this one
    return [*rows, *_process()]


def _build() -> Iterator[Row]:
    info = api.build_info()
    native = info["backend"] == "native"
    says = f"{info['simd']}, torch {info['torch']}" if native else str(info["native"])
    yield Row("build", f"backend {info['backend']}", FINE if native else NOTE, says)
    if torch.version.cuda is not None and info["cuda"] != "built":
        yield Row("build", "CUDA part", NOTE, "not built: keys are derived on the CPU")


def _job(current: seeder.Seeder) -> Iterator[Row]:
    place = f"rank {current.rank} of {current.world_size}"
    yield Row("job", f"master seed {current.master_seed}", FINE, f"{place}, {current.scheme}")
    if current.mesh is not None:
        sizes = dict(zip(current.mesh.names, current.mesh.sizes, strict=True))
        yield Row("job", "mesh", FINE, str(sizes))
    if current.scope is None:
        yield Row("job", "scope", WRONG, "fastseed.reseed was not called: nothing is seeded yet")
        return
    says = "task {}, epoch {}, step {}".format(*current.scope)
    repeated = current.repeats
    yield Row(
        "job", "scope", NOTE if repeated else FINE,
        f"{says}; {repeated} scopes were used more than once" if repeated else says,
    )  # fmt: skip
    if current.left_out:
        yield Row("job", "left out", WRONG, f"not registered in this process: {current.left_out}")


# ---------------------------------------------------------------- streams


def _streams(current: seeder.Seeder) -> Iterator[Row]:
    """Each generator: is it where the last reseed put it, and how far has it gone since?"""
    assert current.scope is not None
    at = current.scope._asdict()
    forked = os.getpid() != current.process_id or bool(current.lineage.forks)
    for name, sink in current.defaults.adapters.items():
        words = _words(sink)
        if forked or words is None:
            yield Row("streams", name, NOTE, "a forked child's: not looked at")
            continue
        key = current.derive_key(name, **at)
        yield _moved(name, _steps(sink, key, words))
    for accelerator in current.accelerators:
        yield from _devices(current, accelerator, at)
    for entry in current.registry:
        yield _registered(current, entry, at)


def _registered(
    current: seeder.Seeder, entry: Registration | EpochRegistration, at: dict[str, int]
) -> Row:
    kind = type(entry.generator).__name__
    shared = ", shared" if entry.shared else ""
    if isinstance(entry, EpochRegistration):
        return Row("streams", entry.name, FINE, f"a {kind}, which takes the epoch")
    if isinstance(entry.adapter, MembersAdapter):
        return Row("streams", entry.name, FINE, f"{len(entry.adapter.target)} members{shared}")
    words = _words(entry.adapter)
    if words is None:
        return Row("streams", entry.name, FINE, f"a {kind}, which cannot be read{shared}")
    return _moved(entry.name, _steps(entry.adapter, current.derive_key(entry.name, **at), words))


def _devices(current: seeder.Seeder, accelerator: Any, at: dict[str, int]) -> Iterator[Row]:
    generators = accelerator.generators()
    if not generators:
        yield Row("streams", accelerator.name, FINE, "waits for torch to initialise it")
        return
    first, count = accelerator._current_device(), len(generators)
    for ordinal, generator in enumerate(generators):
        index = (ordinal - first) % count
        ours = current.derive_seed(accelerator.name, index=index, **at) == generator.initial_seed()
        says = "as reseeded" if ours else "its seed is not ours: somebody seeded it since"
        yield Row("streams", f"{accelerator.name}:{ordinal}", FINE if ours else WRONG, says)


def _moved(name: str, steps: int | None) -> Row:
    if steps is None:
        says = "does not follow from the last reseed: it was registered, or seeded again, since"
        return Row("streams", name, WRONG, says)
    says = "nothing drawn since reseed" if steps == 0 else f"{steps} words drawn since reseed"
    return Row("streams", name, FINE, says)


def _words(sink: Any) -> tuple[np.ndarray[Any, Any], int] | None:
    """(the 624 words of an MT19937, how many of them are used up) of a generator that has them."""
    try:
        if isinstance(sink, TorchGenerator):
            words, position = cpu_words(sink.state())
            return words, position or MT_WORDS  # torch has 0 before the first draw
        if isinstance(sink, (PythonRandom, NumpyRandomState)):
            words, position, _ = unpack_mt19937(sink.state())
            return words, position
    except ValueError:  # not an MT19937
        pass
    return None


def _steps(sink: Any, key: int, held: tuple[np.ndarray[Any, Any], int]) -> int | None:
    """How many words it has given since it took ``key``; None if it is not on that sequence."""
    words, position = held
    if isinstance(sink, PythonRandom):
        start = np.array(random.Random(key).getstate()[1][:-1], np.uint32)
    else:
        start = derive_ops.mt19937_state(key)
    made = generations(start, words, _FURTHEST)
    return None if made is None else (made - 1) * MT_WORDS + position


def _grouped() -> bool:
    return dist.is_available() and dist.is_initialized()


def _among_others(current: seeder.Seeder | None) -> bool:
    size = dist.get_world_size() if _grouped() else 1 if current is None else current.world_size
    return size > 1


def _ranks(timeout: float) -> Row:
    if not _grouped():
        return Row("ranks", "agreement", NOTE, "there is no process group to ask")
    try:
        verify_agreement(timeout=timeout)
    except (RuntimeError, TimeoutError) as error:
        return Row("ranks", "agreement", WRONG, str(error))
    return Row("ranks", "agreement", FINE, f"{dist.get_world_size()} ranks agree")


def _process() -> Iterator[Row]:
    value, seed = hash_seed.found()
    fixed = seed is not None
    says = f"hashes are those of seed {seed}" if fixed else "drawn: sets of strings have no order"
    yield Row("process", f"PYTHONHASHSEED={value}", FINE if fixed else NOTE, says)
    strict = torch.are_deterministic_algorithms_enabled()
    yield Row(
        "process", "deterministic algorithms", FINE if strict else NOTE,
        "on" if strict else "off: equal draws may still give unequal sums",
    )  # fmt: skip
    if torch.backends.cudnn.benchmark:
        yield Row("process", "cuDNN benchmark", NOTE, "on: kernels are chosen by timing them")

"""Examine what is seeded in this process, what is not, and what was drawn; nothing is changed."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from .._backend import build, private_torch
from .._utils import forks, validation
from ..data.worker.seeding import ScopedDataset
from ..derivation import context, streams
from ..determinism import hash_seed
from ..digest.trees import digest
from ..distributed.agreement import agree, verify_agreement
from ..distributed.rendezvous import group_size
from ..generators.accelerator import AcceleratorGenerators, relative_index
from ..generators.adapter import ADAPTERS
from ..generators.default import NAMES, global_generators
from ..seeder.registry import adapter_for
from ..seeder.seeder import Seeder
from .generator_use import FINE, NOTE, WRONG, Row, bytes_of, watched_use


def check(
    run: Callable[[], object] | None = None,
    *,
    module: object = None,
    ranks: bool | None = False,
) -> list[Row]:
    """Examine this process: build, job, every stream, and what else decides random numbers.

    Args:
        run: a function to call first, such as two steps of training. Rows of the topic ``use`` name
            what it used that fastseed does not control, but for generators of installed packages:
            other generators, calls that seed, draws before ``init``, scopes reseeded twice.
        module: with ``ranks``, anything that ``digest`` takes: it must be the same on all ranks.
        ranks: whether to check that all ranks agree; then every rank has to make this call. None:
            if there are several ranks.

    Returns:
        What was examined, by topic.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> import torch, fastseed
        >>> fastseed.init(42)
        >>> fastseed.reseed(1, epoch=3)
        >>> rows = fastseed.debug.check(lambda: torch.rand(3))
        >>> [row.detail for row in rows if row.item == "torch.cpu"]
        ['drawn from since reseed']
    """
    if run is not None and not callable(run):
        raise validation.type_error("debug.check", "run", "callable or None", run)
    if ranks is not None:
        ranks = validation.check_bool("debug.check", "ranks", ranks)
    used: list[Row] = []
    if run is not None:
        with watched_use() as used:
            run()
    return [*examine(module=module, ranks=ranks), *used]


def examine(*, module: object, ranks: bool | None) -> list[Row]:
    current = context.seeder
    rows = list(_build())
    if current is None:
        detail = "fastseed.init was not called in this process: call it"
        rows.append(Row("job", "init", WRONG, detail))
    else:
        rows += _job(current)
        if current.scope is not None:
            rows += _streams(current)
    if ranks is None:  # also before init, or the other ranks would wait
        ranks = group_size() > 1 or (current is not None and current.world_size > 1)
    if ranks:
        rows += _ranks(module)
    return [*rows, *_persistent_workers(), *_process()]


def _build() -> Iterator[Row]:
    info = build.build_info()
    native = info["backend"] == "native"
    detail = f"{info['simd']}, torch {info['torch']}" if native else str(info["native"])
    yield Row("build", f"backend {info['backend']}", FINE if native else NOTE, detail)
    if torch.version.cuda is not None and info["cuda"] != "loaded":
        yield Row("build", "CUDA part", NOTE, f"{info['cuda']}; keys are derived on the CPU")


def _job(current: Seeder) -> Iterator[Row]:
    rank = f"rank {current.rank} of {current.world_size}"
    yield Row("job", f"master seed {current.master_seed}", FINE, rank)
    if current.mesh is not None:
        sizes = dict(zip(current.mesh.names, current.mesh.sizes, strict=True))
        yield Row("job", "mesh", FINE, str(sizes))
    if current.scope is None:
        yield Row("job", "scope", WRONG, "nothing is seeded yet: call fastseed.reseed")
        return
    detail = "task {}, epoch {}, step {}".format(*current.scope)
    if repeats := current.recent_scopes.repeats:
        detail += f"; {repeats} scopes were used more than once"
    yield Row("job", "scope", NOTE if repeats else FINE, detail)


def _streams(current: Seeder) -> Iterator[Row]:
    assert current.scope is not None
    own = current.place.fields.default
    if current.place.forks != forks.count:
        yield Row("streams", "default generators", NOTE, "not examined in a forked child")
    else:
        for name, generator in zip(NAMES, global_generators(), strict=False):
            yield _generator(current, name, generator, own)
    for accelerator in current.generators.accelerators:
        yield from _devices(current, accelerator)
    for entry in current.generators.registry.generators:
        row = _generator(current, entry.name, entry.generator, entry.rank_field)
        yield row._replace(detail=row.detail + ", shared") if entry.shared else row
    for setter in current.generators.registry.epoch_setters:
        detail = f"a {type(setter.generator).__name__}, which takes the epoch"
        yield Row("streams", setter.name, FINE, detail)


def _generator(current: Seeder, name: str, generator: Any, rank_field: int) -> Row:
    if type(generator) not in ADAPTERS:
        detail = f"a {type(generator).__name__}, whose state is not examined"
        return Row("streams", name, FINE, detail)
    assert current.scope is not None
    is_torch = isinstance(generator, torch.Generator)
    fresh = generator.clone_state() if is_torch else copy.deepcopy(generator)
    adapter_for(fresh).reseed(streams.stream(current.master_seed, current.scope, name, rank_field))
    if bytes_of(generator) == bytes_of(fresh):
        return Row("streams", name, FINE, "nothing drawn since reseed")
    if not is_torch:
        return Row("streams", name, FINE, "drawn from since reseed, or seeded by a later call")
    if generator.initial_seed() == fresh.initial_seed():
        return Row("streams", name, FINE, "drawn from since reseed")
    detail = "another seed: call reseed after what registers or seeds it"
    return Row("streams", name, WRONG, detail)


def _devices(current: Seeder, accelerator: AcceleratorGenerators) -> Iterator[Row]:
    assert current.scope is not None
    generators, at = accelerator.generators(), current.scope._asdict()
    if not generators:
        yield Row("streams", accelerator.name, FINE, "not yet initialized by torch")
        return
    first, count = accelerator.current_device(), len(generators)
    for ordinal, generator in enumerate(generators):
        index = relative_index(ordinal, first, count)
        seed = current.derive_seed(accelerator.name, index=index, **at)
        same = seed == generator.initial_seed()
        detail = "as reseeded" if same else "another seed, of a later call: leave that out"
        yield Row("streams", f"{accelerator.name}:{ordinal}", FINE if same else WRONG, detail)


def _ranks(module: object) -> Iterator[Row]:
    if not (dist.is_available() and dist.is_initialized()):
        yield Row("ranks", "agreement", NOTE, "not checked: there is no process group")
        return
    count = f"{dist.get_world_size()} ranks agree"
    try:
        verify_agreement()
        yield Row("ranks", "agreement", FINE, count)
        if module is not None:
            assert_ranks_agree(module)
            yield Row("ranks", "module", FINE, count)
    except (TypeError, ValueError, RuntimeError, TimeoutError) as error:
        yield Row("ranks", "agreement", WRONG, str(error))


def assert_ranks_agree(module: object) -> None:
    """Raise on every rank unless a module is the same, bit for bit, on all; name what differs."""
    rows: list[list[str]] = []
    problem: Exception | None = None
    try:
        rows = [[name or "(the tensor)", leaf.hex] for name, leaf in digest(module).table.items()]
    except (TypeError, ValueError, RuntimeError) as error:
        problem = error
    agree("debug.check", {}, problem, rows=rows)


def _persistent_workers() -> Iterator[Row]:
    """Name the loaders whose workers no ``reseed`` reaches: torch runs none of our code there."""
    for loader in gc.get_objects():
        if not issubclass(type(loader), DataLoader) or type(loader.dataset) is ScopedDataset:
            continue
        if loader.persistent_workers and private_torch.current_iterator(loader) is not None:
            item = f"{type(loader).__name__} of {type(loader.dataset).__name__}"
            detail = (
                "reseed does not reach its persistent workers, whose draws go on from epoch to "
                "epoch: iterate fastseed.data.steps(loader), or pass persistent_workers=False"
            )
            yield Row("process", item, NOTE, detail)


def _process() -> Iterator[Row]:
    value, seed = hash_seed.found()
    detail = "random: sets of strings have another order in each process"
    if seed is not None:
        detail = f"hashes are those of seed {seed}"
    yield Row("process", f"PYTHONHASHSEED={value}", NOTE if seed is None else FINE, detail)
    strict = torch.are_deterministic_algorithms_enabled()
    detail = "on" if strict else "off: results may differ with identical random numbers"
    yield Row("process", "deterministic algorithms", FINE if strict else NOTE, detail)
    if torch.backends.cudnn.benchmark:
        yield Row("process", "cuDNN benchmark", NOTE, "on: kernels are chosen by measured time")

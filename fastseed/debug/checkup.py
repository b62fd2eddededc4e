"""Examine what is seeded in this process, what is not, and what was drawn; nothing is changed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.distributed as dist

from .._backend import build, derive
from .._utils import validation
from ..determinism import hash_seed
from ..distributed.agreement import verify_agreement
from ..generators.accelerator import AcceleratorGenerators, relative_index
from ..generators.adapter import MT_WORDS
from ..generators.default import NAMES
from ..generators.pool import GeneratorPool
from ..seeder.seeder import Seeder, process_seeder
from .exact_state import make_mt19937, read_adapter, words_between
from .generator_states import state_of
from .generator_use import FINE, NOTE, WRONG, Row, watched_use
from .tree_digest import assert_ranks_agree

_MAX_DRAWN = 2_500_000  # words that are counted


def check(
    run: Callable[[], object] | None = None,
    *,
    module: object = None,
    ranks: bool | None = False,
    timeout: float = 60.0,
) -> list[Row]:
    """Examine this process: build, job, every stream, and what else decides random numbers.

    Args:
        run: a function to call first, such as two steps of training. Rows of the topic ``use`` name
            each generator that it drew from and that fastseed does not control, each call that
            seeded a default generator, scopes that were reseeded twice, and training that draws
            and never calls ``reseed``. Its errors are passed on. Generators at module level of
            installed packages are left out.
        module: with ``ranks``, anything that ``digest`` takes: it must be the same on all ranks, as
            in DDP. Digests are exchanged, not data.
        ranks: whether to check that all ranks agree; then every rank has to make this call (see
            ``fastseed.distributed.verify_agreement``). None: if there are several ranks.
        timeout: seconds to wait for the other ranks, (0, 86400].

    Returns:
        What was examined, by topic.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> import torch, fastseed
        >>> fastseed.init(42)
        >>> fastseed.reseed(1, epoch=3)
        >>> rows = fastseed.debug.check(lambda: torch.empty(700, dtype=torch.int32).random_())
        >>> [row.detail for row in rows if row.item == "torch.cpu"]
        ['700 words drawn since reseed']
        >>> [row.item for row in rows if row.status == "wrong"]
        []
    """
    if run is not None and not callable(run):
        raise validation.type_error("debug.check", "run", "callable or None", run)
    if ranks is not None:
        ranks = validation.check_bool("debug.check", "ranks", ranks)
    used: list[Row] = []
    if run is not None:
        with watched_use() as used:
            run()
    return [*examine(module=module, ranks=ranks, timeout=timeout), *used]


def examine(*, module: object, ranks: bool | None, timeout: float) -> list[Row]:
    """Return the rows about this process as it is."""
    current = process_seeder()
    rows = list(_build())
    if current is None:
        rows.append(Row("job", "init", WRONG, "fastseed.init was not called in this process"))
    else:
        rows += _job(current)
        if current.scope is not None and current.scheme == "philox-v1":
            rows += _streams(current)
    several = current is not None and current.world_size > 1
    if several or _ranks_in_group() > 1 if ranks is None else ranks:
        rows += _ranks(timeout, module)  # also before init, or the other ranks would wait
    return [*rows, *_process()]


def _build() -> Iterator[Row]:
    info = build.build_info()
    native = info["backend"] == "native"
    detail = f"{info['simd']}, torch {info['torch']}" if native else str(info["native"])
    yield Row("build", f"backend {info['backend']}", FINE if native else NOTE, detail)
    if torch.version.cuda is not None and info["cuda"] != "built":
        yield Row("build", "CUDA part", NOTE, f"{info['cuda']}; keys are derived on the CPU")


def _job(current: Seeder) -> Iterator[Row]:
    rank = f"rank {current.rank} of {current.world_size}"
    yield Row("job", f"master seed {current.master_seed}", FINE, f"{rank}, {current.scheme}")
    if current.mesh is not None:
        sizes = dict(zip(current.mesh.names, current.mesh.sizes, strict=True))
        yield Row("job", "mesh", FINE, str(sizes))
    if current.scope is None:
        yield Row("job", "scope", WRONG, "fastseed.reseed was not called: nothing is seeded yet")
        return
    detail = "task {}, epoch {}, step {}".format(*current.scope)
    repeats = current._recent_scopes.repeats
    if repeats:
        detail += f"; {repeats} scopes were used more than once"
    yield Row("job", "scope", NOTE if repeats else FINE, detail)


# ---------------------------------------------------------------- streams


def _streams(current: Seeder) -> Iterator[Row]:
    """Check that each generator follows from the last reseed, and count what it has drawn."""
    assert current.scope is not None
    at = current.scope._asdict()
    if os.getpid() != current._process_id or current._ancestry.forks:
        yield Row("streams", "default generators", NOTE, "not examined in a forked child")
    else:
        defaults = random._inst, np.random.mtrand._rand, torch.default_generator
        for name, generator in zip(NAMES, defaults, strict=True):
            yield _generator(name, generator, current.derive_key(name, **at))
    for accelerator in current._accelerators:
        yield from _devices(current, accelerator, at)
    for entry in current._registry.generators:
        key = current.derive_key(entry.name, **at)
        yield _generator(entry.name, entry.generator, key, ", shared" if entry.shared else "")
    for setter in current._registry.epoch_setters:
        detail = f"a {type(setter.generator).__name__}, which takes the epoch"
        yield Row("streams", setter.name, FINE, detail)


def _generator(name: str, generator: object, key: int, note: str = "") -> Row:
    """Compare one generator with the state that ``key`` gives."""
    if isinstance(generator, GeneratorPool):
        return Row("streams", name, FINE, f"{len(generator)} members{note}")
    state = state_of(generator)
    try:
        now = None if state is None else read_adapter(state)
    except (ValueError, TypeError, LookupError, OverflowError):
        now = None  # of a subclass, for example
    if now is None or now.algorithm != "MT19937" or isinstance(generator, np.random.Generator):
        detail = f"a {type(generator).__name__}, whose state is not examined{note}"
        return Row("streams", name, FINE, detail)
    if now.seed is not None and now.seed != key % 2**64:  # torch stores it with the state
        return Row("streams", name, WRONG, "has another seed: registered or seeded by a later call")
    words = derive.mt19937_state(key).tolist()
    if isinstance(generator, random.Random):
        words = random.Random(key).getstate()[1][:-1]
    count = words_between(make_mt19937(words, MT_WORDS, seed=now.seed), now, _MAX_DRAWN)
    if count is None or count < 0:
        detail = f"not within {_MAX_DRAWN:,} words after the last reseed: drawn further, or seeded"
        return Row("streams", name, NOTE, f"{detail} by a later call{note}")
    detail = f"{count} words drawn since reseed" if count else "nothing drawn since reseed"
    return Row("streams", name, FINE, detail + note)


def _devices(
    current: Seeder, accelerator: AcceleratorGenerators, at: dict[str, int]
) -> Iterator[Row]:
    generators = accelerator.generators()
    if not generators:
        yield Row("streams", accelerator.name, FINE, "not yet initialized by torch")
        return
    first, count = accelerator._current_device(), len(generators)
    for ordinal, generator in enumerate(generators):
        seed = current.derive_seed(
            accelerator.name, index=relative_index(ordinal, first, count), **at
        )
        same = seed == generator.initial_seed()
        detail = "as reseeded" if same else "has another seed: a later call seeded it"
        yield Row("streams", f"{accelerator.name}:{ordinal}", FINE if same else WRONG, detail)


# ---------------------------------------------------------------- ranks and process


def _ranks_in_group() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 0


def _ranks(timeout: float, module: object) -> Iterator[Row]:
    if _ranks_in_group() == 0:
        yield Row("ranks", "agreement", NOTE, "not checked: there is no process group")
        return
    count = f"{_ranks_in_group()} ranks agree"
    try:
        verify_agreement(timeout=timeout)
        yield Row("ranks", "agreement", FINE, count)
        if module is not None:
            assert_ranks_agree(module)
            yield Row("ranks", "module", FINE, count)
    except (RuntimeError, TimeoutError) as error:
        yield Row("ranks", "agreement", WRONG, str(error))


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

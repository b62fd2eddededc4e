"""The functions that act on the one ``Seeder`` of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from .._utils import StateDict
from ..derivation import context
from .seeder import current_seeder
from .start import start

if TYPE_CHECKING:
    from .fork_rng import ForkBlock


def init(
    master_seed: int | None = None,
    ngpus: int | None = None,
    local_rank: int | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    mesh: object = None,
    data_over: object = None,
    distinct_over: object = None,
    **_wrong: NoReturn,
) -> None:
    """Seed this process: set master seed, rank and mesh, and do ``fastseed.reseed(task=0)``.

    If a process group exists, every rank has to make the call. Another call starts again: it drops
    all registrations, with a warning. ``FASTSEED_MASTER_SEED`` (if ``master_seed`` is None) and
    ``FASTSEED_DETERMINISTIC`` of ``fastseed run`` are used. A DataLoader worker keeps the states
    that the loader gave it.

    Args:
        master_seed: [0, 2**64). None: rank 0 draws one and shows it, and all ranks of the process
            group agree on it.
        ngpus: the number of ranks, as ``world_size`` (fwr13y's argument).
        local_rank: this rank among ``ngpus`` (fwr13y's argument). A rank within a node is replaced
            by the global rank, with a warning.
        rank: this process's global rank.
        world_size: the number of ranks. By default both come from torch.distributed, Ray Train, the
            launcher's environment or Horovod; else they are 0 and 1.
        mesh: the position of this rank in a mesh of all ranks: a ``DeviceMesh`` with names, or
            ``{"dp": (rank, size), "tp": (rank, size)}``, whose last dimension varies fastest.
        data_over: the dimensions of the mesh that divide the data, as ``("fsdp",)``. By default
            those whose names begin with "dp"; needed where other names do not say it.
        distinct_over: the dimensions of the mesh over which streams are distinct, by default all: a
            tuple (``()``: all ranks share them), or a dict of tuples by name of stream or block.

    Raises:
        TypeError, ValueError: an argument is invalid; the previous seeding stays.
        RuntimeError: master seeds differ, or an argument is invalid on another rank; ranks share a
            stream that have not agreed on a master seed; or as ``reseed``.
        TimeoutError: some ranks, which the message names, did not call it in time.
        ReseedError: some generators failed; all others are seeded.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42)
        >>> weights = torch.rand(3)
        >>> fastseed.init(42)
        >>> torch.equal(torch.rand(3), weights)
        True
    """
    for name in _wrong:  # as seed=42
        rule = "master_seed or one of the arguments that the documentation lists"
        raise TypeError(f"fastseed.init: an argument's name must be {rule}, got {name!r}")
    start(master_seed, ngpus, local_rank, rank, world_size, mesh, data_over, distinct_over)


def get_master_seed() -> int:
    """Return the master seed in use: the one given to ``init``, or the random one.

    Returns:
        An integer in [0, 2**64).

    Raises:
        RuntimeError: before ``init``.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> fastseed.get_master_seed()
        42
    """
    return current_seeder("get_master_seed").master_seed


def reseed(task: int, epoch: int = 0, step: int = 0) -> None:
    """Give every random generator of this process the state that belongs to (task, epoch, step).

    Python's ``random``, NumPy's global generator, torch's on the CPU and on every device, and what
    was registered. From equal states, torch draws other large tensors on another GPU model
    (pytorch#196613); ``fastseed.random`` does not. Threads share the generators: the last call
    decides.

    Args:
        task: [0, 2**24): what the job is doing (say 0 initialization, 1 training).
        epoch: [0, 2**32).
        step: [0, 2**64).

    Raises:
        TypeError, ValueError: an argument is invalid; no generator has changed.
        RuntimeError: before ``init``, or if a process group came after it that it did not know;
            while a CUDA graph is captured, inside ``fork_rng``, in a DataLoader worker, or by a
            generator that is being reseeded; no generator has changed.
        ReseedError: some generators failed; all others are reseeded.

    Examples:
        >>> import random, fastseed
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1, epoch=3)
        >>> first = random.random()
        >>> fastseed.reseed(task=1, epoch=3)
        >>> random.random() == first
        True
    """
    seeder = context.seeder or context.current("reseed")
    seeder.reseed(task, epoch, step)


def register_generator(
    generator: object,
    shared: bool = False,
    *,
    name: str | None = None,
    bits: int = 31,
    distinct_over: object = None,
) -> None:
    """Let ``fastseed.reseed`` set one more generator, from the next call on.

    Register before the loop and call ``reseed``: a generator that is registered after a ``reseed``
    keeps its state until the next one, with a warning. An object that takes the generator's place,
    as ``env.np_random`` after ``env.reset(seed=...)``, must be registered, too.

    Args:
        generator: a callable ``f(seed: int)``, ``torch.Generator`` or list of them,
            ``numpy.random.Generator``, ``numpy.random.RandomState``, ``random.Random``,
            ``GeneratorPool``, ``StreamBank``, an object with ``set_scope`` or ``set_epoch``, as
            ``DistributedSampler``, or a ``torch.nn.Module``, of which the generators in attributes
            of its parts are registered, each once, that are not registered yet. It is held
            strongly.
        shared: the same stream on all ranks, as ``distinct_over=()``.
        name: the stream's name. By default ``generator/<k>``, by the order of registering, of
            which the second one warns; or the name of a pool or bank. The generators of a module
            have their qualified names, behind ``name`` and a dot if it is given: register it before
            a wrapper, as of ``torch.compile`` or DDP, adds to them.
        bits: the size of a callable's seed: 31, 32, 63, 64 or 128. With 31 or 32, which any library
            takes, two ranks never get the same seed at one point of the job; more bits also keep
            seeds of different epochs and names apart.
        distinct_over: the dimensions of the mesh over which the stream is distinct. None: as
            ``init`` says.

    Raises:
        TypeError, ValueError: an argument is invalid or a global generator, the name is in use, or
            ``distinct_over`` contradicts ``init``; nothing is registered.
        RuntimeError: before ``init``; ``shared`` while ranks have not agreed on a master seed.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42)
        >>> generator = torch.Generator()
        >>> fastseed.register_generator(generator, name="augmentation")
        >>> fastseed.reseed(task=1)
        >>> generator.initial_seed() == fastseed.derive_seed("augmentation")
        True
    """
    current_seeder("register_generator").register_generator(
        generator, shared, name=name, bits=bits, distinct_over=distinct_over
    )


def unregister_generator(generator: object) -> None:
    """Forget a registered generator; ``fastseed.reseed`` no longer sets it.

    Args:
        generator: the registered object, or an equal callable with a hash; its first registration
            goes, of a module those of all its generators.

    Raises:
        ValueError: it is not registered.
        RuntimeError: before ``init``.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> seeds = []
        >>> fastseed.register_generator(seeds.append)
        >>> fastseed.unregister_generator(seeds.append)
        >>> fastseed.reseed(task=1)
        >>> seeds
        []
    """
    current_seeder("unregister_generator").unregister_generator(generator)


def fork_rng(name: str, *, index: int | None = None, distinct_over: object = None) -> ForkBlock:
    """Put torch's default generators on a named stream inside a ``with`` block.

    After the block the generators of the CPU and of all devices are exactly as before it. Blocks
    may be nested.

    Args:
        name: the stream's name.
        index: [0, 2**56 - 2], for blocks of one name, as of a layer or micro-batch: each starts at
            the beginning of its own stream of the scope, on every entry. None: the block is
            entered once in a scope, and a recomputation repeats the entry of its forward pass.
        distinct_over: the dimensions of the mesh over which the stream is distinct. None: all of
            them, unless ``init`` says otherwise.

    Returns:
        A context manager, which is also a decorator of functions that return when they are done.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: on entering: a second time in a scope without an index, before ``init`` or the
            first ``reseed``, while a CUDA graph is captured, in a DataLoader worker, or in a block
            of ``random.keyed``.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1)
        >>> before = torch.get_rng_state()
        >>> with fastseed.fork_rng("dropout", index=3):
        ...     mask = torch.rand(4) < 0.5
        >>> torch.equal(torch.get_rng_state(), before)
        True
    """
    from .fork_rng import ForkBlock

    return ForkBlock(None, name, index, distinct_over)


def state_dict(*, rng: bool = False) -> StateDict:
    """Return the state of the job: master seed and scope, and on request exact states.

    Args:
        rng: also the exact state of every generator, and the names of the blocks that were entered,
            to resume anywhere instead of at the beginning of a scope. Callables have no state; a
            log line at level INFO names them.

    Returns:
        A flat dict of ints, strings and 1-D uint8 tensors, which ``torch.save`` and
        ``torch.load(weights_only=True)`` take.

    Raises:
        RuntimeError: before ``init``; with ``rng`` inside ``fork_rng`` or in a DataLoader worker.

    Examples:
        >>> import fastseed, torch
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1, epoch=3)
        >>> state = fastseed.state_dict(rng=True)
        >>> numbers = torch.rand(3)
        >>> fastseed.load_state_dict(state)
        >>> torch.equal(torch.rand(3), numbers)
        True
    """
    return current_seeder("state_dict").state_dict(rng=rng)


def load_state_dict(state: StateDict) -> None:
    """Restore the master seed, the scope and every generator from ``state``.

    A generator without an exact state in ``state`` gets its state at the beginning of the scope.

    Args:
        state: from ``fastseed.state_dict``, of any number of ranks.

    Raises:
        TypeError, ValueError: the state is damaged, or from another tool or version; no
            generator has changed.
        RuntimeError: before ``init``, inside ``fork_rng``, or in a DataLoader worker.
        ReseedError: some generators failed; all others are restored.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1, epoch=3)
        >>> state = fastseed.state_dict()
        >>> fastseed.init(7)
        >>> fastseed.load_state_dict(state)
        >>> fastseed.get_master_seed()
        42
    """
    current_seeder("load_state_dict").load_state_dict(state)

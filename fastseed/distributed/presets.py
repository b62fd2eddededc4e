"""Presets: the argument ``distinct_over`` of ``init`` for common kinds of parallel training.

A preset is a plain dict of rules by ``fork_rng`` name. ``shared_outside`` are the dimensions that
all built-in and registered streams are shared over, ``shared_inside`` those that the named stream
is shared over; every stream is distinct over the other dimensions. ``a | b`` joins two.
"""

from __future__ import annotations

from typing import TypeAlias

Preset: TypeAlias = dict[str, dict[str, tuple[str, ...]]]


def _rule(name: str, shared_outside: tuple[str, ...], shared_inside: tuple[str, ...]) -> Preset:
    return {name: {"shared_outside": shared_outside, "shared_inside": shared_inside}}


def tensor_parallel(dimension: str = "tp") -> Preset:
    """Return the preset for tensor parallelism.

    Dropout on activations that every rank of the group holds in full must be the same on these
    ranks. Inside ``fork_rng("tensor-parallel")``, where each rank holds another part, it differs.

    Args:
        dimension: name of the tensor-parallel dimension of the mesh.

    Returns:
        A dict for ``init(distinct_over=...)``; join two with ``|``.

    Examples:
        >>> import fastseed
        >>> from fastseed.distributed import tensor_parallel
        >>> mesh = {"dp": (0, 2), "tp": (1, 2)}
        >>> fastseed.init(42, mesh=mesh, distinct_over=tensor_parallel())
    """
    return _rule("tensor-parallel", (dimension,), ())


def pipeline_parallel(dimension: str = "pp") -> Preset:
    """Return the preset for pipeline parallelism.

    Every stage has its own streams. Inside ``fork_rng("pipeline")`` all stages draw the same, for
    example to initialize embeddings that the first and the last stage tie.

    ``dimension`` and the result are as in ``fastseed.distributed.tensor_parallel``.

    Examples:
        >>> from fastseed.distributed import pipeline_parallel
        >>> pipeline_parallel()
        {'pipeline': {'shared_outside': (), 'shared_inside': ('pp',)}}
    """
    return _rule("pipeline", (), (dimension,))


def context_parallel(dimension: str = "cp") -> Preset:
    """Return the preset for context parallelism.

    Parts of a sequence have their own streams; inside ``fork_rng("context")`` all draw the same.

    ``dimension`` and the result are as in ``fastseed.distributed.tensor_parallel``.

    Examples:
        >>> from fastseed.distributed import context_parallel, tensor_parallel
        >>> sorted(tensor_parallel() | context_parallel())
        ['context', 'tensor-parallel']
    """
    return _rule("context", (), (dimension,))


def expert_parallel(dimension: str = "ep") -> Preset:
    """Return the preset for expert parallelism over ranks that hold the same samples.

    Outside the experts the group draws the same; inside ``fork_rng("expert")`` every rank has its
    own stream. If the dimension is cut out of the data-parallel ranks, every rank holds samples of
    its own, and no preset is needed.

    ``dimension`` and the result are as in ``fastseed.distributed.tensor_parallel``.

    Examples:
        >>> from fastseed.distributed import expert_parallel
        >>> expert_parallel()
        {'expert': {'shared_outside': ('ep',), 'shared_inside': ()}}
    """
    return _rule("expert", (dimension,), ())

"""Callbacks for training frameworks, each in a module of its own, imported only when asked for.

    from fastseed.integrations.lightning import FastseedCallback      # extra: lightning
    from fastseed.integrations.accelerate import AcceleratedJob       # extra: accelerate
    from fastseed.integrations.transformers import FastseedCallback   # extra: transformers

What they share is in :mod:`fastseed.integrations._common`: the tasks that a framework's phases are
(:class:`Tasks`), and :func:`inside`, which runs a block in another task and comes back exactly.
"""

from ._common import Tasks, inside

__all__ = ["Tasks", "inside"]

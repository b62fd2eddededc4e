"""fastseed without ``_generators``, as beside a nightly torch: by public functions alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastseed._backend import native

from ..case import Side, Unavailable

LABEL = "fastseed without _generators"


@contextmanager
def hidden() -> Iterator[None]:
    """Objects that are made or used inside do without the module."""
    module, native.generators = native.generators, None
    try:
        yield
    finally:
        native.generators = module


def side(of: Side) -> Side:
    """The same statement with the module hidden; its objects must not have been used before."""
    if native.generators is None:
        raise Unavailable("_generators is not in use here")
    statement = f"native.generators = None; {of.statement}; native.generators = module"
    names = {**of.names, "native": native, "module": native.generators}
    return Side(LABEL, statement, names, of.threads)

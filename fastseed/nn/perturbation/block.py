"""The block of ``perturbed``: it moves parameters, and leaves the bits that they had."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from ..._backend import private_torch, recomputation
from ..._backend.compile import eager
from ..._backend.ops import perturb as op
from ..._utils.log import logger
from ...random.layout import local_part
from ..module_names import reshard
from .targets import Noise, Target, versions_of

_EACH_LISTED = 64  # the list has room for one number of so many; for more, a copy is kept


class _Kept(NamedTuple):
    """What undoes the noise of a parameter, for each part of it."""

    memory: torch.Tensor  # alive, so that no other memory gets its address
    before: list[object]  # versions before the operator runs
    versions: list[object] | None  # after it; None: it failed, or an interrupt came in between
    steps: Sequence[torch.Tensor] = ()
    lists: Sequence[torch.Tensor] = ()  # a count, then index and bits of what steps do not undo
    copies: Sequence[torch.Tensor] = ()  # the numbers, where the list would be too long


_open: weakref.WeakSet[Perturbation] = weakref.WeakSet()
"""The blocks that were entered and not left."""


class Perturbation:
    """What ``perturbed`` gives its block."""

    def __init__(self, make: Callable[[], Noise], model: torch.nn.Module, scale: float) -> None:
        self._make, self._model = make, model
        self._given = self._scale = scale
        self._noise: Noise | None = None  # in the block
        self._kept: dict[str, _Kept] = {}
        self._memory: set[int] = set()

    @eager
    def __enter__(self) -> Perturbation:
        recomputation.refuse("nn.perturbed", "open the block around the forward and backward pass")
        if private_torch.is_transformed():
            raise RuntimeError(
                "fastseed.nn.perturbed: must not be entered in a transform of torch.func, which "
                "keeps the weights that it had: open the block around it"
            )
        noise = self._make()  # of the memory of now
        memory = {p.tensor.data_ptr() for target in noise.targets for p in target.parts}
        if self._noise is not None or any(memory & one._memory for one in list(_open)):
            rule = "a parameter must be in one block at a time: leave the other one first"
            raise RuntimeError(f"fastseed.nn.perturbed: {rule}")
        self._noise, self._scale = noise, noise.check_scale("scale", self._given)
        self._memory = memory
        try:
            _open.add(self)
            self._move(noise)
        except BaseException as error:
            self._leave(noise, error)
            raise
        return self

    @eager
    def __exit__(self, *_: object) -> None:
        if self._noise is not None:  # else `flip` failed, and left the block
            self._leave(self._noise)

    def _leave(self, noise: Noise, failed: BaseException | None = None) -> None:
        """Restore what the block did not write; after ``failed``, which came while it moved."""
        written: list[str] = []
        try:
            written = self._written(noise)
            self._restore(noise, [t for t in noise.targets if t.name not in written])
        except BaseException as error:
            failed = error
            written = list(self._kept)
            raise
        finally:
            _open.discard(self)
            self._noise = None
            self._kept.clear()
            if failed is not None and written:
                text = _log_moved(written)
                failed.args = failed.args or (text,)  # a KeyboardInterrupt has none
        if written and failed is None:
            raise _written_error(written, "all others have their bits from before")

    def __del__(self) -> None:
        if self._noise is not None:  # an interrupt came as the block was entered or left
            _log_moved(self._kept)

    @eager
    def flip(self) -> None:
        """Move the parameters to where ``perturbed`` with ``scale=-scale`` has them.

        Raises:
            RuntimeError: outside the block; or a parameter was written inside: nothing changed.
        """
        if self._noise is None:
            raise RuntimeError("fastseed.nn.perturbed: call flip inside the block")
        written = self._written(self._noise)
        if written:
            raise _written_error(written, "nothing was moved")
        try:
            self._restore(self._noise, self._noise.targets)
            self._scale = -self._scale
            self._move(self._noise)
        except BaseException as error:
            self._leave(self._noise, error)
            raise

    def _written(self, noise: Noise) -> list[str]:
        kept = ((t, self._kept.get(t.name)) for t in noise.targets)
        known = ((t, one.versions) for t, one in kept if one is not None)
        return [t.name for t, versions in known if versions not in (None, versions_of(t))]

    @torch.no_grad()
    def _move(self, noise: Noise) -> None:
        reshard(self._model)
        for target in noise.targets:  # first, so that an interrupt finds what undoes them
            tensors = [part.tensor for part in target.parts]
            steps = [torch.empty_like(t, dtype=torch.int8) for t in tensors]
            lists = [
                t.new_zeros(2 + t.numel() // _EACH_LISTED, 2, dtype=torch.int64) for t in tensors
            ]
            self._keep(target, steps=steps, lists=lists)
        kept = [self._kept[target.name] for target in noise.targets]
        steps = [step for one in kept for step in one.steps]
        lists = [rows for one in kept for rows in one.lists]
        noise.run(op.RECORD, [self._scale], noise.targets, steps, lists)
        full = []
        for target, one in zip(noise.targets, kept, strict=True):
            counts = [1 + int(rows[0, 0]) for rows in one.lists]
            if any(n > len(rows) for n, rows in zip(counts, one.lists, strict=True)):
                full.append(target)
            rows = [rows[:n].clone() for n, rows in zip(counts, one.lists, strict=True)]
            self._kept[target.name] = one._replace(versions=versions_of(target), lists=rows)
        if full:
            self._restore(noise, full)
            for target in full:
                self._keep(target, copies=[part.tensor.clone() for part in target.parts])
            noise.run(op.ADD, [self._scale], full)
            for target in full:
                one = self._kept[target.name]
                self._kept[target.name] = one._replace(versions=versions_of(target))

    def _keep(self, target: Target, **parts: Sequence[torch.Tensor]) -> None:
        memory = local_part(target.parameter).detach()
        self._kept[target.name] = _Kept(memory, versions_of(target), None, **parts)

    def _restore(self, noise: Noise, targets: list[Target]) -> None:
        """Undo the noise of targets; what an interrupt left moved is still in ``_kept``."""
        reshard(self._model)
        kept = [(t, self._kept[t.name], versions_of(t)) for t in targets if t.name in self._kept]
        for target, one, now in kept:
            if one.versions is None and one.before == now:  # it was not moved
                del self._kept[target.name]
        kept = [row for row in kept if row[0].name in self._kept]
        stepped = [(target, one) for target, one, _ in kept if not one.copies]
        steps = [step for _, one in stepped for step in one.steps]
        try:
            noise.run(op.UNDO, [self._scale], [target for target, _ in stepped], steps)
        except BaseException:  # an interrupt comes before the operator, or as it returns
            kept = [(t, k, now) for t, k, now in kept if k.copies or versions_of(t) != now]
            raise
        finally:
            for target, one, _ in kept:
                _write_kept(target, one)
                del self._kept[target.name]


@torch.inference_mode()  # as operators write, also to tensors of that mode
def _write_kept(target: Target, one: _Kept) -> None:
    for part, copied in zip(target.parts, one.copies, strict=False):
        part.tensor.copy_(copied)
    for part, rows in zip(target.parts, one.lists, strict=False):
        bits = op.pattern(part.tensor)
        listed = rows[1 : 1 + int(rows[0, 0])]
        bits[listed[:, 0]] = listed[:, 1].to(bits.dtype)


def _log_moved(names: Iterable[str]) -> str:
    left = ", ".join(map(repr, names))
    text = f"fastseed.nn.perturbed: interrupted before {left} had their bits from before"
    logger.error(text)
    return text


def _written_error(names: list[str], rest: str) -> RuntimeError:
    return RuntimeError(
        "fastseed.nn.perturbed: parameters must not be written inside the block, got writes to "
        f"{', '.join(map(repr, names))}; {rest}"
    )

"""Digests of a training run, step by step, so that two runs can be compared bit for bit.

:func:`fastseed.debug.bisect` then finds the first step and tensor in which they part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import torch

from .._utils import environ, validation
from ..distributed import discovery
from .tree_digest import leaves_of, table_of
from .watch_file import FOLDER, GROUPS, Entry, Writer
from .watch_generators import Generators


class Watch:
    """Records digests of generators, model, gradients and optimizer state into a small file.

        with fastseed.debug.Watch(model, optimizer, path="runs/a") as watch:
            for step, batch in enumerate(loader):
                ...
                optimizer.step()
                watch.record()           # before gradients are set to zero

    What is there when it is made is recorded too, as what came before the first step: so make it
    when the model has its weights and is wrapped (DDP, FSDP2). 16 bytes a tensor and step are
    written, one file a rank. Generators' states are read, exactly, and none is drawn from. With
    sharded models making it and recording are collectives, as :func:`fastseed.debug.digest` is.

    Args:
        model: the module whose parameters, buffers and gradients are watched.
        optimizer: the optimizer, or a list of them, whose state and settings are; none by default.
        path: a folder; rank r writes ``rank-r.watch`` in it. None: ``watch`` in the folder that
            ``FASTSEED_RUN_DIR`` names, as ``fastseed verify`` and ``fastseed run --capture`` do.
        every: record steps that are multiples of it, [1, 2**31).
        step: the number of the first step to come, [0, 2**62); that of a resumed run is not 0.
        append: go on in a file that is there. A step recorded again replaces the one before.
        generators: more generators by name, each a torch.Generator, numpy.random.Generator,
            RandomState or random.Random, beside the global ones: Python's, NumPy's, torch's on the
            CPU and on every accelerator that torch has initialised. False: none at all.

    Raises:
        TypeError, ValueError: an argument is wrong, or the file to append to is none of ours.
        RuntimeError: ``path`` is None and ``FASTSEED_RUN_DIR`` is not set.
        FileExistsError: the file is there already, and ``append`` is not set.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any = None,
        *,
        path: str | os.PathLike[str] | None = None,
        every: int = 1,
        step: int = 0,
        append: bool = False,
        generators: Mapping[str, Any] | Literal[False] | None = None,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(
                "fastseed.Watch: model must be a torch.nn.Module, "
                f"got {validation.describe(model)} of type {type(model).__name__}"
            )
        self._model = model
        self._optimizers = _optimizers(optimizer)
        self._every = validation.check_int("Watch", "every", every, 1, 2**31 - 1)
        self._step = validation.check_int("Watch", "step", step, 0, 2**62 - 1)
        self._hook: Any = None
        self._generators = None if generators is False else Generators(generators)
        folder = _folder(path)
        folder.mkdir(parents=True, exist_ok=True)
        place = discovery.discover_rank()
        values = self._values(start=True)
        without = {"generator"} if self._generators is None else set()
        without |= set() if self._optimizers else {"optimizer"}
        header = {
            "rank": place.rank,
            "world_size": place.world_size,
            "every": self._every,
            "groups": [group for group in GROUPS if group not in without],
            "torch": str(torch.__version__),
        }
        file = folder / f"rank-{place.rank}.watch"
        going_on = append and file.exists()
        self._writer: Writer | None = Writer(file, header, append=append)
        if not going_on:
            self._write(self._step - 1, values, start=True)

    @property
    def step(self) -> int:
        """The number of the step that :meth:`record` takes to come next."""
        return self._step

    def record(self, step: int | None = None) -> bool:
        """Record what generators, model, gradients and optimizer are after a step.

        Call it after the optimizer's step and before gradients are set to zero, on every rank.

        Args:
            step: its number, [0, 2**62); one more than the last by default.

        Returns:
            Whether it was recorded: not where ``every`` leaves the step out.

        Raises:
            RuntimeError: after :meth:`close`.
        """
        if self._writer is None:
            raise RuntimeError("fastseed.Watch.record: this watch must be open, but was closed")
        if step is not None:
            self._step = validation.check_int("Watch.record", "step", step, 0, 2**62 - 1)
        now = self._step
        if now % self._every == 0:
            self._write(now, self._values(start=False), start=False)
        self._step = now + 1
        return now % self._every == 0

    def follow(self) -> Watch:
        """Record by itself after each step of the optimizer (of the last one, with several).

        Raises:
            RuntimeError: there is no optimizer, or it has no ``register_step_post_hook``.
        """
        last: Any = self._optimizers[-1] if self._optimizers else None
        if not hasattr(last, "register_step_post_hook"):
            raise RuntimeError(
                "fastseed.Watch.follow: optimizer must be a torch.optim.Optimizer, got "
                f"{type(last).__name__}: call record() after each step instead"
            )
        if self._hook is None:
            self._hook = last.register_step_post_hook(lambda *_: self.record() and None)
        return self

    def close(self) -> None:
        """Stop recording; a second time does nothing."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _values(self, *, start: bool) -> tuple[tuple[Entry, ...], list[int]]:
        model = _unwrapped(self._model)
        held = () if self._generators is None else self._generators.rows()
        leaves = [*(("generator", name, state) for name, state in held), *_buffers(model)]
        if not start:
            leaves += _gradients(model)
        leaves += _states(model, self._optimizers)
        leaves += (("parameter", name, p) for name, p in model.named_parameters())
        flat = [
            (group, inner, leaf)
            for group, name, value in leaves
            for inner, leaf in leaves_of(name, value)
        ]
        table = table_of((f"{group} {name}", leaf) for group, name, leaf in flat)
        entries = tuple(
            Entry(group, name, found.dtype, found.shape)
            for (group, name, _), found in zip(flat, table.values(), strict=True)
        )
        return entries, [found.value for found in table.values()]

    def _write(
        self, step: int, values: tuple[tuple[Entry, ...], list[int]], *, start: bool
    ) -> None:
        assert self._writer is not None
        self._writer.step(step, *values, start)


Named = tuple[str, str, Any]  # group, name, what there is


def _folder(path: str | os.PathLike[str] | None) -> Path:
    if path is not None:
        return Path(path)
    run = os.environ.get(environ.RUN_DIR)
    if not run:
        raise RuntimeError(
            f"fastseed.Watch: path must be given where {environ.RUN_DIR} is not set, got None"
        )
    return Path(run, FOLDER)


def _optimizers(optimizer: Any) -> list[Any]:
    found = (
        [] if optimizer is None
        else list(optimizer) if isinstance(optimizer, Sequence)
        else [optimizer]
    )  # fmt: skip
    for i, one in enumerate(found):
        if not hasattr(one, "state_dict"):
            raise TypeError(
                "fastseed.Watch: optimizer must be an optimizer, a list of them or None, "
                f"got {validation.describe(one)} of type {type(one).__name__} at {i}"
            )
    return found


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The module whose names its user gave, inside DDP and torch.compile."""
    while True:
        inner = model
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            inner = model.module
        compiled = inner._modules.get("_orig_mod")
        inner = inner if compiled is None else compiled
        if inner is model:
            return model
        model = inner


def _buffers(model: torch.nn.Module) -> Iterator[Named]:
    for name, buffer in model.named_buffers():
        yield "buffer", name, buffer


def _gradients(model: torch.nn.Module) -> list[Named]:
    """From the last to the first, as a backward pass makes them."""
    found = [("gradient", name, p.grad) for name, p in model.named_parameters()]
    return [named for named in reversed(found) if named[2] is not None]


def _states(model: torch.nn.Module, optimizers: list[Any]) -> Iterator[Named]:
    names = {id(p): name for name, p in model.named_parameters()}
    for i, optimizer in enumerate(optimizers):
        before = f"{i}." if len(optimizers) > 1 else ""
        groups = getattr(optimizer, "param_groups", None)
        state = getattr(optimizer, "state", None)
        if not isinstance(groups, list) or not isinstance(state, Mapping):
            yield "optimizer", f"{before}state", optimizer.state_dict()
            continue
        for j, group in enumerate(groups):
            for key, value in group.items():
                if key != "params" and _is_plain(value):
                    yield "optimizer", f"{before}group {j}.{key}", value
        for j, group in enumerate(groups):
            for k, parameter in enumerate(group["params"]):
                if parameter in state:
                    name = names.get(id(parameter), f"group {j}.params.{k}")
                    yield "optimizer", f"{before}{name}", state[parameter]


def _is_plain(value: Any) -> bool:
    """Whether a setting of an optimizer is a value, and no function or object of somebody's."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, complex, str, torch.Tensor))

"""Record digests of a training run, step by step, so that two runs can be compared bit for bit.

``fastseed.debug.bisect`` finds the first step and tensor in which they differ.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .._utils import environ
from .._utils.validation import check_bool, check_instance, check_int, type_error
from ..distributed import discovery
from .generator_states import states_of_defaults
from .tree_digest import leaves_of, table_of
from .watch_file import FOLDER, GROUPS, Entry, Writer

_FUNCTION = "debug.Watch"
_MAX_STEP = 2**62 - 1


class Watch:
    """Record digests of generators, model, gradients and optimizer state into a small file.

    The state at creation is recorded as the state before the first step, so create it when the
    model has its weights and is wrapped (DDP, FSDP2). Each step takes 16 bytes a tensor; each rank
    writes one file. No generator is drawn from. With sharded models, creation and recording are
    collectives, as ``fastseed.debug.digest`` is.

    Args:
        model: the module whose parameters, buffers and gradients are recorded.
        optimizer: the optimizer, or a list of them, whose state and hyperparameters are recorded;
            None for none.
        path: a folder; rank r writes ``rank-r.watch`` in it. None: ``watch`` in the folder that
            ``FASTSEED_RUN_DIR`` names (``fastseed verify`` and ``fastseed run --capture`` set it).
        every: record steps that are multiples of it, [1, 2**31).
        step: the number of the next step, [0, 2**62); not 0 for a resumed run.
        append: whether to continue an existing file. A step that is recorded again replaces the
            earlier record.
        generators: whether the default generators are recorded: Python's, NumPy's, torch's on the
            CPU and on every accelerator that torch has initialised.

    Raises:
        TypeError, ValueError: an argument is invalid, or the file to continue is not a recording.
        RuntimeError: ``path`` is None and ``FASTSEED_RUN_DIR`` is not set.
        FileExistsError: the file exists, and ``append`` is false.

    Examples:
        >>> import os, tempfile, torch, fastseed
        >>> model, folder = torch.nn.Linear(2, 2), tempfile.mkdtemp()
        >>> with fastseed.debug.Watch(model, path=folder) as watch:
        ...     for step in range(3):
        ...         recorded = watch.record()  # after the optimizer's step, before zero_grad
        >>> os.listdir(folder)
        ['rank-0.watch']
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
        generators: bool = True,
    ) -> None:
        kind = torch.nn.Module
        self._model = check_instance(_FUNCTION, "model", model, kind, "a torch.nn.Module")
        self._optimizers = _optimizers(optimizer)
        self._every = check_int(_FUNCTION, "every", every, 1, 2**31 - 1)
        self._step = check_int(_FUNCTION, "step", step, 0, _MAX_STEP)
        append = check_bool(_FUNCTION, "append", append)
        self._hook: Any = None
        self._generators = check_bool(_FUNCTION, "generators", generators)
        folder = _folder(path)
        folder.mkdir(parents=True, exist_ok=True)
        job = discovery.discover_rank()
        start = self._table(start=True)
        without = set() if self._generators else {"generator"}
        without |= set() if self._optimizers else {"optimizer"}
        header = {
            "rank": job.rank,
            "world_size": job.world_size,
            "every": self._every,
            "groups": [group for group in GROUPS if group not in without],
            "torch": str(torch.__version__),
        }
        file = folder / f"rank-{job.rank}.watch"
        is_new = not (append and file.exists())
        self._writer: Writer | None = Writer(file, header, append=append)
        if is_new:
            self._writer.step(self._step - 1, start, True)

    @property
    def step(self) -> int:
        """The number of the step that ``record`` records next."""
        return self._step

    def record(self, step: int | None = None) -> bool:
        """Record generators, model, gradients and optimizer after a step, on every rank.

        Call it after the optimizer's step and before gradients are set to zero.

        Args:
            step: the number of the step, [0, 2**62); None for one more than the last.

        Returns:
            Whether the step was recorded, which depends on ``every``.

        Raises:
            TypeError, ValueError: ``step`` is invalid.
            RuntimeError: after ``close``.
        """
        if self._writer is None:
            raise RuntimeError(
                f"fastseed.{_FUNCTION}.record: this Watch is closed; create one with append=True"
            )
        if step is not None:
            self._step = check_int(f"{_FUNCTION}.record", "step", step, 0, _MAX_STEP)
        now = self._step
        if now % self._every == 0:
            self._writer.step(now, self._table(start=False), False)
        self._step = now + 1
        return now % self._every == 0

    def follow(self) -> Watch:
        """Record automatically after each step of the optimizer (the last one of several).

        Returns:
            This object.

        Raises:
            RuntimeError: there is no optimizer with ``register_step_post_hook``.
        """
        last: Any = self._optimizers[-1] if self._optimizers else None
        if not hasattr(last, "register_step_post_hook"):
            raise RuntimeError(
                f"fastseed.{_FUNCTION}.follow: optimizer must be a torch.optim.Optimizer, got "
                f"{type(last).__name__}; call record() after each step instead"
            )
        if self._hook is None:
            self._hook = last.register_step_post_hook(lambda *_: self.record() and None)
        return self

    def close(self) -> None:
        """Stop recording; a second call does nothing."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _table(self, *, start: bool) -> dict[Entry, int]:
        """Return the digests of the current state."""
        model = _unwrapped(self._model)
        parameters = list(model.named_parameters())
        leaves: list[Named] = []
        if self._generators:
            leaves += [("generator", name, state) for name, state in states_of_defaults()]
        leaves += [("buffer", name, buffer) for name, buffer in model.named_buffers()]
        if not start:  # from the last to the first, as a backward pass computes them
            gradients = [("gradient", name, p.grad) for name, p in reversed(parameters)]
            leaves += [leaf for leaf in gradients if leaf[2] is not None]
        leaves += _states({id(p): name for name, p in parameters}, self._optimizers)
        leaves += [("parameter", name, p) for name, p in parameters]
        flat = [
            (group, inner, leaf)
            for group, name, value in leaves
            for inner, leaf in leaves_of(name, value)
        ]
        table = table_of((f"{group} {name}", leaf) for group, name, leaf in flat)
        return {
            Entry(group, name, found.dtype, found.shape): found.value
            for (group, name, _), found in zip(flat, table.values(), strict=True)
        }


Named = tuple[str, str, Any]  # group, name, value


def _folder(path: str | os.PathLike[str] | None) -> Path:
    if path is not None:
        return Path(path)
    run = os.environ.get(environ.RUN_DIR)
    if not run:
        raise RuntimeError(
            f"fastseed.{_FUNCTION}: path is None and {environ.RUN_DIR} is not set; pass path="
        )
    return Path(run, FOLDER)


def _optimizers(optimizer: Any) -> list[Any]:
    if optimizer is None:
        return []
    found = list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
    for one in found:
        if not hasattr(one, "state_dict"):
            raise type_error(_FUNCTION, "optimizer", "an optimizer, a list of them or None", one)
    return found


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the user's module inside DDP and torch.compile."""
    while True:
        inner = model
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            inner = model.module
        compiled = inner._modules.get("_orig_mod")
        inner = inner if compiled is None else compiled
        if inner is model:
            return model
        model = inner


def _states(names: Mapping[int, str], optimizers: list[Any]) -> Iterator[Named]:
    """Yield hyperparameters, then the state of each parameter under its name in the model."""
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
    """Return whether a hyperparameter is a value, not a function or another object."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, complex, str, torch.Tensor))

"""Record digests of a training run, step by step, so that two runs can be compared bit for bit."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .._utils import environ, validation
from .._utils.validation import check_int, type_error, value_error
from ..digest.trees import leaves_of, table_of
from ..distributed.discovery import discover_rank
from ..generators.discovery import states_of_defaults
from ..nn.module_names import strip_wrappers, unwrap
from .module_calls import ModuleCalls
from .watch_file import CALLS, FOLDER, GROUPS, PATTERN, STATE, Writer

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.utils.hooks import RemovableHandle

_FUNCTION = "debug.Watch"
_MAX_STEP = 2**62 - 1


class Watch:
    """Record digests of generators, model, gradients and optimizer state into a small file.

    Create it when the model has its weights and is wrapped (DDP, FSDP2): that is recorded as the
    state before the first step. A step takes 32 bytes a tensor. With sharded models, creation and
    recording are collectives, as ``fastseed.debug.digest`` is.

    Args:
        model: the module whose parameters, buffers and gradients are recorded.
        optimizer: the optimizer, or a list of them, whose state and hyperparameters are recorded.
        path: a folder; rank r writes ``rank-r.watch`` in it. None: ``watch`` in the folder that
            ``FASTSEED_RUN_DIR`` names (``fastseed verify`` and ``fastseed run --out`` set it).
        every: record steps that are multiples of it, [1, 2**31).
        step: the number of the next step, [0, 2**62); for a resumed run the ``step`` of the
            ``Watch`` of the interrupted one.
        append: whether to continue an existing file of the same ``every``, ``groups`` and
            ``modules``. A step that is recorded again replaces the earlier record.
        groups: what is recorded after each step: ``generator`` (the default generators of Python,
            NumPy and torch), ``buffer``, ``gradient``, ``optimizer``, ``parameter``.
        modules: whether every call of a module is recorded, with its inputs, outputs and their
            gradients, or the names of the modules whose calls are; ``""`` is the model. Create the
            ``Watch`` before the first call of a compiled model, whose graph is cut at each recorded
            module. None: what ``model`` is called with while gradients are enabled, the batch; of
            a model that is compiled afterwards, nothing.
        batch_mesh: the ``DeviceMesh`` over whose ranks the batch is split evenly, along the first
            dimension, so that a call has the digest of the whole batch.

    Raises:
        TypeError, ValueError: an argument is invalid, or the file to continue is not a recording,
            or one with other arguments.
        RuntimeError: ``path`` is None and ``FASTSEED_RUN_DIR`` is not set.
        FileExistsError: the file of this rank exists, and ``append`` is false.

    Examples:
        >>> import os, tempfile, torch, fastseed
        >>> model, folder = torch.nn.Linear(2, 2), tempfile.mkdtemp()
        >>> with fastseed.debug.Watch(model, path=folder) as watch:
        ...     recorded = watch.record()  # after the optimizer's step, before zero_grad
        >>> os.listdir(folder)
        ['rank-0.watch']
    """

    _calls: ModuleCalls | None = None
    _hook: RemovableHandle | None = None
    _writer: Writer | None = None

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any = None,
        *,
        path: str | os.PathLike[str] | None = None,
        every: int = 1,
        step: int = 0,
        append: bool = False,
        groups: Collection[str] = STATE,
        modules: bool | Collection[str] | None = None,
        batch_mesh: DeviceMesh | None = None,
    ) -> None:
        rule = "a torch.nn.Module"
        self._model = validation.check_instance(_FUNCTION, "model", model, torch.nn.Module, rule)
        self._optimizers = _optimizers(optimizer)
        self._every = check_int(_FUNCTION, "every", every, 1, 2**31 - 1)
        self._step = check_int(_FUNCTION, "step", step, 0, _MAX_STEP)
        append = validation.check_bool(_FUNCTION, "append", append)
        self._groups = _chosen("groups", groups, STATE, f"among {', '.join(STATE)}")
        if not self._optimizers:
            self._groups.discard("optimizer")
        names: set[str] | None = None
        if not (modules is None or isinstance(modules, bool)):
            known = {strip_wrappers(name) for name, _ in unwrap(model).named_modules()}
            names = _chosen("modules", modules, known, "names of modules")
        coordinate = getattr(batch_mesh, "get_coordinate", lambda: None)
        if batch_mesh is not None and coordinate() is None:
            raise type_error(_FUNCTION, "batch_mesh", "a DeviceMesh of this rank", batch_mesh)
        calls = CALLS[:1] if modules is None else CALLS if modules is True or names else ()
        job, folder = discover_rank(), _folder(path)
        file = folder / PATTERN.replace("*", str(job.rank))
        is_new = not file.exists()
        if not (is_new or append):
            raise FileExistsError(
                f"fastseed.{_FUNCTION}: path must be a folder without {file.name}, got "
                f"{str(folder)!r}; append=True continues the recording"
            )
        folder.mkdir(parents=True, exist_ok=True)
        start = table_of(self._leaves(start=True))
        header = {
            "rank": job.rank,
            "world_size": job.world_size,
            "every": self._every,
            "groups": [g for g in GROUPS if g in self._groups or g in calls],
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
        }
        self._writer = Writer(file, header)
        if is_new:
            self._writer.step(self._step - 1, start, True)
        if calls:
            me = weakref.ref(self)  # the model has the hooks, and does not keep this object
            self._calls = ModuleCalls(
                model if modules is None else unwrap(model),
                names,
                modules is None,
                batch_mesh,
                is_wanted=lambda: (one := me()) is not None and one._step % one._every == 0,
            )

    @property
    def step(self) -> int:
        """The number of the step that ``record`` records next: save it for a resumed run."""
        return self._step

    def record(self, step: int | None = None) -> bool:
        """Record a step on every rank: after the optimizer's, before gradients are set to zero.

        Call it after every step with ``modules=``, whose hooks need the number.

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
            table = table_of(self._leaves(start=False))
            if self._calls is not None:
                table = self._calls.take() | table
            self._writer.step(now, table, False)
        self._step = now + 1
        return now % self._every == 0

    def attach(self) -> Watch:
        """Record after each step of the optimizer (the last one of several); return this object.

        A step that a ``GradScaler`` skips is none.

        Raises:
            RuntimeError: there is no optimizer with ``register_step_post_hook``.
        """
        last: Any = self._optimizers[-1] if self._optimizers else None
        if not hasattr(last, "register_step_post_hook"):
            rule = f"optimizer must be a torch.optim.Optimizer, got {type(last).__name__}"
            raise RuntimeError(f"fastseed.{_FUNCTION}.attach: {rule}; call record() instead")
        if self._hook is None:
            self._hook = last.register_step_post_hook(lambda *_: self.record())
        return self

    def close(self) -> None:
        """Stop recording; a second call does nothing."""
        for hooks in (self._calls, self._hook):
            if hooks is not None:
                hooks.remove()
        if self._writer is not None:
            self._writer.close()
        self._calls = self._hook = self._writer = None

    __del__ = close  # a Watch that is dropped leaves no hook and no open file

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leaves(self, *, start: bool) -> Iterator[tuple[str, object]]:
        model = unwrap(self._model)
        parameters = [(strip_wrappers(name), p) for name, p in model.named_parameters()]
        gradients = [] if start else [(name, p.grad) for name, p in reversed(parameters)]
        groups: dict[str, Iterable[tuple[str, object]]] = {
            "generator": states_of_defaults(),
            "buffer": ((strip_wrappers(name), b) for name, b in model.named_buffers()),
            # From the last layer on, as in backward.
            "gradient": [(name, grad) for name, grad in gradients if grad is not None],
            "optimizer": _states({id(p): name for name, p in parameters}, self._optimizers),
            "parameter": parameters,
        }
        for group in STATE:
            for name, value in groups[group] if group in self._groups else ():
                yield from leaves_of(f"{group} {name}", value)


def _folder(path: str | os.PathLike[str] | None) -> Path:
    if path is not None:
        folder = Path(validation.check_path(_FUNCTION, "path", path))
        if folder.exists() and not folder.is_dir():
            raise value_error(_FUNCTION, "path", "a folder, new or existing", path)
        return folder
    if run := os.environ.get(environ.RUN_DIR):
        return Path(run, FOLDER)
    raise RuntimeError(
        f"fastseed.{_FUNCTION}: path is None and {environ.RUN_DIR} is not set; pass path="
    )


def _optimizers(optimizer: object) -> list[Any]:
    if optimizer is None:
        return []
    found = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    for one in found:
        if not (hasattr(one, "param_groups") and hasattr(one, "state")):
            raise type_error(_FUNCTION, "optimizer", "an optimizer, a list of them or None", one)
    return found


def _chosen(argument: str, given: Any, known: Collection[str], rule: str) -> set[str]:
    found = [given] if isinstance(given, str) else given
    is_collection = isinstance(found, Collection) and not hasattr(found, "__array__")
    if not is_collection or not all(isinstance(name, str) for name in found):
        raise type_error(_FUNCTION, argument, "a collection of names", given)
    if unknown := sorted(set(found) - set(known)):
        raise value_error(_FUNCTION, argument, rule, unknown)
    return set(found)


def _states(names: Mapping[int, str], optimizers: list[Any]) -> Iterator[tuple[str, object]]:
    for i, optimizer in enumerate(optimizers):
        before = f"{i}." if len(optimizers) > 1 else ""
        for j, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if key != "params" and _is_plain(value):
                    yield f"{before}group {j}.{key}", value
        for j, group in enumerate(optimizer.param_groups):
            for k, parameter in enumerate(group["params"]):
                if parameter in optimizer.state:
                    name = names.get(id(parameter), f"group {j}.params.{k}")
                    yield f"{before}{name}", optimizer.state[parameter]


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (int, float, complex, str, torch.Tensor, type(None)))

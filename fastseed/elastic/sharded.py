"""Gradients of a model under ``fully_shard``: FSDP2 on a mesh of one dimension, HSDP on two."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from .._backend import private_distributed, private_torch
from .._utils import validation
from .collector import Collector, SlotPlan, check_dense, weak
from .leaf_scatter import LeafScatter, MicroStep, ShardMesh, WatchedGather
from .peers import FUNCTION


class ShardedCollector(Collector):
    """Collects gradients in the reduce-scatter of each group of parameters of ``fully_shard``."""

    needs_every_rank = True

    def __init__(self, model: nn.Module, plan: SlotPlan) -> None:
        if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
            raise RuntimeError(
                f"fastseed.{FUNCTION}: models under fully_shard need torch 2.13 or newer, whose "
                f"FSDPModule has set_reduce_scatter_unused_params; this is {torch.__version__}"
            )
        self._modules = {n: m for n, m in model.named_modules() if isinstance(m, FSDPModule)}
        self._reshard()
        super().__init__(model, plan)
        self._mesh = _check_parameters(self.names, self.parameters, list(self._modules), plan)
        self._shards = cast("list[DTensor]", self.parameters)
        self.replicas = self._mesh.group
        if plan.slots < plan.ranks:
            rule = f"at least the number of ranks, {plan.ranks}, under fully_shard"
            raise validation.value_error(FUNCTION, "slots", rule, plan.slots)
        number = {id(p): index for index, p in enumerate(self.parameters)}
        self._indices = {
            name: number[id(p)]
            for name, p in model.named_parameters(remove_duplicate=False)
            if id(p) in number
        }
        self._step = MicroStep()
        self._watched: dict[int, torch.dtype] = {}  # of parameters whose unsharded form is hooked
        self._seen: set[str] = set()  # modules that have unsharded their parameters
        self._unsharded: list[tuple[str, torch.Tensor]] = []
        self._scatters = {
            name: LeafScatter(name, plan, self._mesh, self._step) for name in self._modules
        }
        self._installed = False
        self._check_hooks()

    def _install(self) -> None:
        """Take the place of torch's reduce-scatter, which works in slots only as long as it has."""
        for name, module in self._modules.items():
            self._undo.callback(private_distributed.save_fsdp_settings(module))
            gather: Any = private_distributed.gather_of(module)
            gather = WatchedGather(name, self._plan, self._step, gather)
            module.set_custom_all_gather(gather)
            module.set_custom_reduce_scatter(cast("Any", self._scatters[name]))
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            module.set_requires_gradient_sync(True, recurse=False)
            module.set_requires_all_reduce(True, recurse=False)
            # so that ranks exchange the same parameters, whichever their slots use
            module.set_reduce_scatter_unused_params(True, recurse=False)
            watch = weak(self._watch, name)
            handle = self._model.get_submodule(name).register_forward_pre_hook(watch)
            self._undo.callback(handle.remove)
        for index, parameter in enumerate(self.parameters):
            self._after_gradient(parameter, weak(self._place, index))

    def _check_hooks(self) -> None:
        """Refuse hooks on sharded parameters, which get no gradient of a slot."""
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if len(private_torch.gradient_hooks(parameter)) > self._installed:
                raise ValueError(
                    f"fastseed.{FUNCTION}: model must be without hooks on parameters under "
                    f"fully_shard (here: {name!r}), where they get no gradient of a slot, and with "
                    "one SlotGradients at a time: change p.grad after the step"
                )

    def _reshard(self) -> None:
        """Undo what a forward pass without a backward pass leaves: unsharded parameters."""
        for module in self._modules.values():
            module.reshard()

    def begin(self) -> None:
        """Check the model, and install the exchange before the first step."""
        self._reshard()  # else the model has other parameters than those that are compared
        super().begin()
        self._written += [(n, p, private_torch.version_of(p)) for n, p in self._unsharded]
        self._check_hooks()
        self._step.gathered, self._step.reduced = [], []
        if not self._installed:
            self._installed = True
            self._install()

    def check(self) -> None:
        self._reshard()
        super().check()

    def start(self, micro_step: int) -> None:
        self._step.number, self._step.current = micro_step, None

    def collect(self) -> bool:
        self._step.receive()
        self._step.number = None
        if self._mesh.replicas > 1:
            for name, scatter in self._scatters.items():
                # torch has shown where gradients lie; its own sum over replicas is not needed
                self._modules[name].set_requires_all_reduce(not scatter.pieces, recurse=False)
        return self._step.current is not None

    def used(self) -> list[bool]:
        for scatter in self._scatters.values():
            for index in scatter.pieces if scatter.taken else ():
                self._used[index] |= index not in self._watched
        self.order = self._step.order
        return self._used

    def finish(self, divisor: Fraction, used: list[bool]) -> None:
        for scatter in self._scatters.values():
            if scatter.taken:
                mean = scatter.finish(divisor)
                for index, piece in scatter.pieces.items():
                    if used[index]:
                        shard = self._shards[index]
                        shard.grad = DTensor.from_local(
                            mean.as_strided(*piece).to(shard.dtype),
                            *(shard.device_mesh, shard.placements),
                            run_check=False,
                            shape=shard.shape,
                            stride=shard.stride(),
                        )

    def discard(self) -> None:
        self._step.discard()
        for scatter in self._scatters.values():
            scatter.discard()
        super().discard()

    def _watch(self, name: str, *_: object) -> None:
        """Hook the unsharded parameters of a module, which exist from its first forward pass on."""
        if name in self._seen:
            return
        self._seen.add(name)
        prefix = f"{name}." if name else ""
        module = self._model.get_submodule(name)
        for path, parameter in module.named_parameters(remove_duplicate=False):
            if not isinstance(parameter, DTensor):
                self._unsharded.append((prefix + path, parameter))
                self._written.append((*self._unsharded[-1], private_torch.version_of(parameter)))
            index = self._indices.get(prefix + path)
            if index is None or index in self._watched:
                continue
            if parameter is not self.parameters[index]:
                self._watched[index] = parameter.dtype
                self._after_gradient(parameter, weak(self._use, index))

    def _use(self, index: int, parameter: torch.Tensor) -> None:
        """Note that a parameter has a gradient in a slot of this rank."""
        if parameter.grad is not None:
            check_dense(self.names[index], parameter.grad)
        number = self._step.number
        if number is not None and self._plan.slot(number) is not None:
            self._used[index] = True

    def _place(self, index: int, parameter: torch.Tensor) -> None:
        """Note where torch puts the gradient of a parameter, and drop it: it has no value."""
        scatter = self._step.current
        if self._step.number is not None and scatter is not None:
            assert isinstance(parameter.grad, DTensor)
            local = parameter.grad.to_local()
            scatter.pieces[index] = local.size(), local.stride(), int(local.storage_offset())
            scatter.dtype = self._watched.get(index)
            parameter.grad = None


def _check_parameters(
    names: list[str], parameters: Sequence[torch.Tensor], modules: list[str], plan: SlotPlan
) -> ShardMesh:
    """Return how the ranks of the plan divide the parameters, all in the same way."""
    found: ShardMesh | None = None
    dtypes: dict[str, torch.dtype] = {}  # of the parameters of each module under fully_shard
    for name, parameter in zip(names, parameters, strict=True):
        rule = ""
        if not isinstance(parameter, DTensor):
            rule = "under fully_shard with all of its trainable parameters"
        elif parameter.device.type != parameter.device_mesh.device_type:
            rule = "on the device of its mesh, without offload of parameters"
        else:
            mesh = _shard_mesh(name, parameter, plan)
            found = found or mesh
            above = [m for m in modules if f"{name}.".startswith(f"{m}." if m else "")]
            group = max(above, key=len, default="")
            if mesh[:2] != found[:2]:
                rule = "sharded over one mesh"
            elif dtypes.setdefault(group, parameter.dtype) != parameter.dtype:
                rule = "of one dtype in each group of fully_shard"
        if rule:
            raise validation.value_error(
                FUNCTION, "model", f"{rule}, but {name!r} is not", parameter
            )
    assert found is not None
    return found


def _shard_mesh(name: str, parameter: DTensor, plan: SlotPlan) -> ShardMesh:
    """Return the data-parallel part of the mesh of a parameter: its first dimension, or two.

    Later dimensions are those of tensor parallelism, over whose ranks no slots are dealt.
    """
    mesh, place = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    assert place is not None
    for dimensions in range(1, min(mesh.ndim, 2) + 1):
        replicas, shards = (1, *mesh.shape[:dimensions])[-2:]
        replica, shard = (0, *place[:dimensions])[-2:]
        is_sharded = not parameter.placements[dimensions - 1].is_replicate()
        ranks, rank = replicas * shards, replica * shards + shard
        if is_sharded and (ranks, rank) == (plan.ranks, plan.rank):
            return ShardMesh(shards, replicas, mesh.get_group(0) if replicas > 1 else None)
    rule = (
        f"the {plan.ranks} ranks of the mesh that fully_shard was given, in its order; {name!r} is "
        "sharded over another one"
    )
    raise validation.value_error(FUNCTION, "group", rule, mesh)

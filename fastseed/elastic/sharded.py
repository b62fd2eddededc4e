"""Gradients of a model under ``fully_shard``: FSDP2 on a mesh of one dimension, HSDP on two."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from .._utils import StateDict, validation
from ..distributed import rendezvous
from .arguments import FUNCTION
from .collector import SlotPlan
from .leaf_scatter import LeafScatter, MicroStep, Piece, ShardMesh
from .parameters import TrainableParameters

if TYPE_CHECKING:  # what set_custom_reduce_scatter takes has no public name
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter


class ShardedCollector:
    """Collects gradients in the reduce-scatter of each group of parameters of ``fully_shard``."""

    needs_every_rank = True

    def __init__(self, model: nn.Module, plan: SlotPlan) -> None:
        if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
            raise RuntimeError(
                f"fastseed.{FUNCTION}: models under fully_shard need torch 2.13 or newer, whose "
                f"FSDPModule has set_reduce_scatter_unused_params; this is {torch.__version__}"
            )
        self._model, self._plan = model, plan
        self._modules = {n: m for n, m in model.named_modules() if isinstance(m, FSDPModule)}
        self._reshard()
        self._trainable = TrainableParameters(model)
        self._parameters = [
            _check_parameter(name, p)
            for name, p in zip(self._trainable.names, self._trainable.tensors, strict=True)
        ]
        self._mesh = _common_mesh(self._trainable.names, self._parameters, plan)
        if plan.slots < plan.ranks:
            rule = f"at least the number of ranks, {plan.ranks}, under fully_shard"
            raise validation.value_error(FUNCTION, "slots", rule, plan.slots)
        number = {id(p): index for index, p in enumerate(self._parameters)}
        self._indices = {
            name: number[id(p)]
            for name, p in model.named_parameters(remove_duplicate=False)
            if id(p) in number
        }
        self._step = MicroStep()
        self._used = [False] * len(self._parameters)
        self._watched: dict[int, torch.dtype] = {}  # of parameters whose unsharded form is hooked
        self._seen: set[str] = set()  # modules that have unsharded their parameters
        self._scatters = {
            name: LeafScatter(name, plan, self._mesh, self._step) for name in self._modules
        }
        self._installed = False

    def _install(self) -> None:
        """Take the place of torch's reduce-scatter, which from now on works in slots only."""
        handles: list[Any] = []
        for name, module in self._modules.items():
            module.set_custom_reduce_scatter(cast("ReduceScatter", self._scatters[name]))
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
            module.set_requires_gradient_sync(True, recurse=False)
            module.set_requires_all_reduce(True, recurse=False)
            # so that ranks exchange the same parameters, whichever their slots use
            module.set_reduce_scatter_unused_params(True, recurse=False)
            part = self._model.get_submodule(name)
            handles.append(part.register_forward_pre_hook(_weak(self, _watch, name)))
        for index, parameter in enumerate(self._parameters):
            handles.append(_after_gradient(parameter, _weak(self, _place, index)))
        weakref.finalize(self, _remove, handles)

    def _reshard(self) -> None:
        """Return to the sharded parameters, which a forward pass without a backward pass leaves."""
        for module in self._modules.values():
            module.reshard()

    def describe(self) -> StateDict:
        """See ``Collector``."""
        named = zip(self._trainable.names, self._parameters, strict=True)
        places = {f"shards of {name!r}": f"{p.placements}" for name, p in named}
        return {**self._trainable.describe(), **places}

    def begin(self) -> None:
        """See ``Collector``."""
        self._reshard()
        self._trainable.check()
        self._used = [False] * len(self._parameters)
        self._step.order = hashlib.sha256()
        if not self._installed:
            self._installed = True
            self._install()

    def start(self, micro_step: int) -> None:
        """See ``Collector``."""
        self._step.number, self._step.current = micro_step, None

    def collect(self) -> None:
        """See ``Collector``."""
        self._step.receive()
        number, self._step.number = self._step.number, None
        if self._step.current is None:
            assert number is not None
            slot = self._plan.slot(number)
            raise RuntimeError(f"fastseed.{FUNCTION}.step: slot {slot} has no backward pass")
        if self._mesh.replicas > 1:
            for name, scatter in self._scatters.items():
                # torch has shown where gradients lie; its own sum over replicas is not needed
                self._modules[name].set_requires_all_reduce(not scatter.pieces, recurse=False)

    def used(self) -> list[bool]:
        """See ``Collector``."""
        self._check_order()
        for scatter in self._scatters.values():
            for index in scatter.pieces if scatter.taken else ():
                self._used[index] |= index not in self._watched
        return self._used

    def _check_order(self) -> None:
        """RuntimeError on every rank if they ran different groups, whose collectives mix."""
        plan = self._plan
        own = int.from_bytes(self._step.order.digest()[:8], "little", signed=True)
        device = self._parameters[0].to_local().device
        orders = torch.zeros(plan.ranks, dtype=torch.int64, device=device)
        orders[plan.rank] = own
        if plan.ranks > 1:
            dist.all_reduce(orders, group=plan.group)
        others = [rank for rank, order in enumerate(orders.tolist()) if order != own]
        if others:
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: all ranks must run the same modules under fully_shard "
                f"in each micro-step, in one order, but {rendezvous.name_ranks(others)} did not as "
                f"rank {plan.rank} of the group: torch then mixes up what they exchange; a module "
                "that only some slots run must be under the fully_shard of the module that calls "
                "it, without one of its own"
            )

    def finish(self, divisor: float, used: list[bool]) -> None:
        """See ``Collector``."""
        for scatter in self._scatters.values():
            if scatter.taken:
                mean = scatter.finish(divisor)
                for index, piece in scatter.pieces.items():
                    if used[index]:
                        parameter = self._parameters[index]
                        part = mean.as_strided(*piece).to(parameter.dtype)
                        parameter.grad = _like(parameter, part)

    def discard(self) -> None:
        """See ``Collector``."""
        self._step.discard()
        for scatter in self._scatters.values():
            scatter.discard()
        for parameter in self._parameters:
            parameter.grad = None


def _watch(collector: ShardedCollector, name: str) -> None:
    """Hook the unsharded parameters of a module, which exist from its first forward pass on."""
    if name in collector._seen:
        return
    collector._seen.add(name)
    prefix, module = f"{name}." if name else "", collector._model.get_submodule(name)
    for path, parameter in module.named_parameters(remove_duplicate=False):
        index = collector._indices.get(prefix + path)
        if index is None or index in collector._watched:
            continue
        if parameter is not collector._trainable.tensors[index]:
            collector._watched[index] = parameter.dtype
            _after_gradient(parameter, _weak(collector, _use, index))


def _use(collector: ShardedCollector, index: int) -> None:
    """Note that a parameter has a gradient in a slot of this rank."""
    number = collector._step.number
    if number is not None and collector._plan.slot(number) is not None:
        collector._used[index] = True


def _place(collector: ShardedCollector, index: int) -> None:
    """Note where torch puts the gradient of a parameter, and drop it: it has no value."""
    parameter, scatter = collector._parameters[index], collector._step.current
    if collector._step.number is not None and scatter is not None:
        assert isinstance(parameter.grad, DTensor)
        local = parameter.grad.to_local()
        scatter.pieces[index] = Piece(local.size(), local.stride(), int(local.storage_offset()))
        scatter.dtype = collector._watched.get(index)
        parameter.grad = None


def _weak(
    collector: ShardedCollector, call: Callable[[ShardedCollector, Any], None], argument: object
) -> Callable[..., None]:
    """Return a hook that does not keep the collector alive."""
    this = weakref.ref(collector)

    def hook(*_: object) -> None:
        if (found := this()) is not None:
            call(found, argument)

    return hook


def _after_gradient(parameter: torch.Tensor, hook: Callable[..., None]) -> Any:
    return parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _like(parameter: DTensor, local: torch.Tensor) -> DTensor:
    """Return a DTensor with the layout of ``parameter``."""
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _check_parameter(name: str, parameter: torch.Tensor) -> DTensor:
    """Return a trainable parameter if ``fully_shard`` manages it on the device of its mesh."""
    if not isinstance(parameter, DTensor):
        rule = f"under fully_shard with all of its trainable parameters, but {name!r} is not"
        raise validation.value_error(FUNCTION, "model", rule, "a plain parameter")
    if parameter.device.type != parameter.device_mesh.device_type:
        rule = f"on the device of its mesh, without offload of parameters, but {name!r} is not"
        raise validation.value_error(FUNCTION, "model", rule, parameter.device)
    return parameter


def _common_mesh(names: list[str], parameters: list[DTensor], plan: SlotPlan) -> ShardMesh:
    """Return how the ranks of the plan divide the parameters, all in the same way."""
    meshes = [_shard_mesh(n, p, plan) for n, p in zip(names, parameters, strict=True)]
    for name, mesh in zip(names, meshes, strict=True):
        if mesh[:2] != meshes[0][:2]:
            rule = f"sharded over one mesh, but {names[0]!r} and {name!r} are not"
            raise validation.value_error(FUNCTION, "model", rule, [meshes[0][:2], mesh[:2]])
    return meshes[0]


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

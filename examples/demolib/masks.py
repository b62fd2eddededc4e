"""Digests of a model's weights and dropout masks, seen from outside and as one process has them."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import fastseed


def weights_digest(model: nn.Module) -> str:
    """Return the digest of all parameters, under the names that they have without wrappers."""
    wrapper = "_checkpoint_wrapped_module."
    named = {name.replace(wrapper, ""): p for name, p in model.named_parameters()}
    return fastseed.debug.digest(named).hex


class MaskLog:
    """Collects which elements each dropout of a model kept, and puts the global masks together.

    ``parts`` says which dropouts have one part of their mask on each rank of the dimension ``tp``
    of ``mesh``, by the name of the module above them. Make it before the model is wrapped.
    """

    def __init__(self, model: nn.Module, mesh: DeviceMesh, parts: dict[str, Shard]) -> None:
        self.mesh, self.cuts = mesh, {}
        self.masks: dict[str, torch.Tensor] = {}
        self.micro_batches: list[dict[str, torch.Tensor]] = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Dropout):
                part = parts.get(name.split(".")[-2]) if "." in name else None
                self.cuts[name] = Replicate() if part is None else Shard(part.dim + 1)
                module.register_forward_hook(lambda *call, name=name: self.record(name, call[2]))

    def record(self, name: str, output: torch.Tensor) -> None:
        """Store the mask of one call; a recomputation must have the same."""
        kept = (output != 0).byte()
        if name in self.masks and not torch.equal(kept, self.masks[name]):
            raise RuntimeError(f"{name}: the backward pass recomputed another mask")
        self.masks[name] = kept

    def end_micro_batch(self) -> None:
        self.micro_batches.append(dict(self.masks))
        self.masks.clear()

    def end_step(self) -> str:
        """Return the digest of all masks of the global batch; a collective of all ranks."""
        whole = {}
        for name, cut in self.cuts.items():
            kept = torch.cat([masks[name] for masks in self.micro_batches])
            # ranks take turns with rows: row k of rank r is element (k, r) of the global batch
            laid_out = DTensor.from_local(kept.unsqueeze(1), self.mesh, [Shard(1), cut])
            whole[name] = laid_out.full_tensor().flatten(0, 1)
        self.micro_batches.clear()
        return fastseed.debug.digest(whole).hex

"""The noise of some seeds for the selected parameters of a model, by one operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from ..._backend.ops import perturb as op
from ..._backend.private_torch import version_of
from ..._utils import validation
from ...random.layout import Shard, local_part
from .targets import Seed, Target, key_function, targets_of

Filter = Callable[[str], object]


class Noise:
    """The noise of some seeds for the selected parameters of a model."""

    def __init__(
        self, function: str, model: torch.nn.Module, seeds: list[Seed], noise: object,
        scope: object, prefix: str, params: Filter | None, shards: Mapping[str, Shard] | None,
    ) -> None:  # fmt: skip
        noise = validation.check_choice(function, "noise", noise, ("normal", "rademacher"))
        self.is_rademacher, self._function = noise == "rademacher", function
        self._keys_of = key_function(function, seeds, scope, noise)
        with torch.no_grad():
            self.targets = targets_of(function, model, prefix, params, shards)

    def check_scale(self, argument: str, scale: object) -> float:
        """Return a scale that is finite in the types of computation."""
        narrow = any(target.parameter.dtype != torch.float64 for target in self.targets)
        most = float(np.finfo(np.float32 if narrow else np.float64).max)
        return validation.check_float(self._function, argument, scale, -most, most)

    def run(
        self, mode: int, scales: Sequence[float], targets: Sequence[Target],
        steps: Sequence[torch.Tensor] = (), lists: Sequence[torch.Tensor] = (),
    ) -> None:  # fmt: skip
        """Run the operator over all parts of ``targets``, one call for each device."""
        parts = [(target.name, part) for target in targets for part in target.parts]
        keys = {target.name: self._keys_of(target.name) for target in targets}
        for device in {part.tensor.device for _, part in parts}:
            here = [i for i, (_, part) in enumerate(parts) if part.tensor.device == device]
            with torch.no_grad():
                op.perturb(
                    [parts[i][1].tensor for i in here],
                    [steps[i] for i in here] if steps else [],
                    [lists[i] for i in here] if lists else [],
                    torch.cat([keys[parts[i][0]] for i in here]).to(device),
                    torch.tensor(scales, dtype=torch.float64, device="cpu").to(device),
                    [number for i in here for number in parts[i][1].layout],
                    self.is_rademacher,
                    mode,
                )
        torch.clear_autocast_cache()  # of parameters cast to 16 bits, which have other values now
        for target in targets:  # the DTensor around what was written
            tensor = target.parameter
            if local_part(tensor) is not tensor and not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)


def versions_of(target: Target) -> list[object]:
    """Return what changes when a parameter is written or gets other memory."""
    local = local_part(target.parameter)
    counts = [0 if t.is_inference() else version_of(t) for t in (target.parameter, local)]
    return [*counts, local.data_ptr(), local.shape, local.stride(), local.dtype]

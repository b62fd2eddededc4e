"""The parameters of a model whose gradients are collected, and what may not change about them."""

from __future__ import annotations

from torch import nn

from .._utils import StateDict, validation
from .arguments import FUNCTION
from .exchange import describe


class TrainableParameters:
    """The parameters of a model that require a gradient, once each.

    Attributes:
        names: the first name of each.
        tensors: the parameters, in the same order.
    """

    def __init__(self, model: nn.Module) -> None:
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not named:
            rule = "a module with parameters that require a gradient"
            raise validation.value_error(FUNCTION, "model", rule, type(model).__name__)
        self.names, self.tensors = list(named), list(named.values())
        self._model = model
        self._known = self._fingerprint()

    def _fingerprint(self) -> list[tuple[object, ...]]:
        """Return what may not change between steps, of each parameter with a gradient."""
        return [
            (name, id(p), p.shape, p.dtype, p.device)
            for name, p in self._model.named_parameters()
            if p.requires_grad
        ]

    def describe(self) -> StateDict:
        """Return what all ranks must have in common, in JSON's types."""
        return {
            f"parameter {name!r}": describe(p)
            for name, p in zip(self.names, self.tensors, strict=True)
        }

    def check(self) -> None:
        """Check that they are what they were, without gradients.

        Raises:
            RuntimeError: parameters were added, removed, replaced, frozen or moved, or one has a
                gradient already.
        """
        self.check_unchanged()
        for name, parameter in zip(self.names, self.tensors, strict=True):
            if parameter.grad is not None:
                raise RuntimeError(
                    f"fastseed.{FUNCTION}.step: {name!r} has a gradient at the start of the step, "
                    "which would be lost: call optimizer.zero_grad(), with set_to_none=True, first"
                )

    def check_unchanged(self) -> None:
        """RuntimeError if parameters were added, removed, replaced, frozen or moved."""
        found = self._fingerprint()
        if found != self._known:
            changed = sorted({str(row[0]) for row in {*found} ^ {*self._known}})
            raise RuntimeError(
                f"fastseed.{FUNCTION}.step: the parameters with gradients must be those of the "
                f"model that was given, but {changed[:3]} were added, removed, replaced, "
                "frozen or moved since: make a new SlotGradients, on every rank"
            )

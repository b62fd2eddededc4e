"""A slot of a step, and what divides the sum of all slots."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import torch

from .._utils import validation

_NO_WEIGHT, _SKIPPED = -1.0, -2.0


class Slot:
    """One micro-batch of a step, with one forward and one backward pass.

    Attributes:
        number: the number of the slot, from 0; None where the pass only keeps collectives in step.

    Examples:
        >>> import torch
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> gradients = fastseed.elastic.SlotGradients(model, slots=2)
        >>> for slot, batch in gradients.step([torch.ones(1, 1), torch.ones(3, 1)]):
        ...     model(batch).sum().backward()
        ...     slot.weight = len(batch)
        >>> model.weight.grad
        tensor([[1.]])
    """

    __slots__ = ("_is_skipped", "_skip", "_weight", "number")

    def __init__(self, number: int | None) -> None:
        if number is not None:
            number = validation.check_int("elastic.Slot", "number", number, 0, 2**24 - 1)
        self.number = number
        self._weight: float | None = None
        self._skip: Callable[[], None] | None = None
        self._is_skipped = False

    def __repr__(self) -> str:
        return f"Slot(number={self.number}, weight={self._weight})"

    @property
    def is_padding(self) -> bool:
        """Whether the passes only keep collectives in step: no gradient or loss counts."""
        return self.number is None

    @property
    def weight(self) -> float | None:
        """The weight of the slot in [0, 2**53], such as its number of tokens; None if not set.

        Either all slots of a step have one, or none. The loss of a slot is then a sum, over tokens
        for example: gradients are added as they are, and divided once by the sum of the weights.
        """
        return self._weight

    @weight.setter
    def weight(self, value: object) -> None:
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        self._weight = validation.check_float("elastic.Slot", "weight", value, 0, 2**53)

    def skip(self) -> None:
        """Run no backward pass in this slot: its gradient is +0 for every parameter.

        Without weights the mean is still that of V slots; where other slots have weights, that of
        this one is 0 unless it is set.

        Raises:
            RuntimeError: the model is under ``fully_shard``, whose ranks run the passes of a
                micro-step together; or a backward pass has run in this slot.
        """
        if self._skip is not None:
            self._skip()
        self._is_skipped = True

    def word(self) -> float:
        """Return what other ranks are told of the weight."""
        if self._weight is None:
            return _SKIPPED if self._is_skipped else _NO_WEIGHT
        return self._weight


def divisor_of(weights: list[float]) -> Fraction:
    """Return the number of slots, or the exact sum of their weights if they have some."""
    given = [max(weight, 0.0) for weight in weights if weight != _NO_WEIGHT]
    if {*weights} <= {_NO_WEIGHT, _SKIPPED}:
        return Fraction(len(weights))
    if len(given) < len(weights):
        rule = "set for all slots of a step or for none"
        shown = [None if weight == _NO_WEIGHT else weight for weight in weights]
        raise validation.value_error("elastic.Slot", "weight", rule, shown)
    total = sum(map(Fraction, given), Fraction())
    if total == 0:
        raise validation.value_error("elastic.Slot", "weight", "above 0 for some slot", given)
    return total

"""A slot of a step, what divides the sum of all slots, and random numbers that slots take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from fractions import Fraction

import torch

from .._utils import validation
from .._utils.log import warn_once
from .peers import FUNCTION

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


@contextlib.contextmanager
def watch_draws(device: torch.device) -> Iterator[None]:
    """Warn, once, if a slot moves the default generator of the CPU or of the device.

    No mode is active in it, so that a model under ``torch.compile`` is compiled once.
    """
    before = _states(device)
    yield
    after = _states(device)
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    if moved:
        warn_once(
            "fastseed.%s.step: a slot takes random numbers from %s, which depend on the "
            "number of ranks: call fastseed.nn.convert(model) for dropout, or run the slot "
            "within fastseed.fork_rng('slot', index=slot.number, distinct_over=())",
            *(FUNCTION, " and ".join(moved)),
        )


def _states(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"torch's generator": torch.get_rng_state()}
    if device.type not in ("cpu", "meta"):
        module = torch.get_device_module(device)
        states["torch's generator of the device"] = module.get_rng_state(device)
    return states

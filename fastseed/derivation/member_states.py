"""An object with many members, whose member i has the key of index i: a pool, or a bank."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from .._backend.compile import eager
from .._backend.reference import scalar
from .._utils import StateDict
from .._utils.validation import check_instance, value_error
from . import context, scopes, streams
from .shared_use import StreamUsers


class Members:
    """The base of ``GeneratorPool`` and ``StreamBank``."""

    _path: ClassVar[str]  # as errors name the class
    _name: str
    _reseed_members: Any  # gives member i the key of index i of a stream
    _pack: Any  # returns the exact states, uint8 on the CPU
    _parse: Any  # returns what ``_load`` takes, or raises TypeError or ValueError
    _load: Any

    @property
    def name(self) -> str:
        """The name of the streams."""
        return self._name

    def __len__(self) -> int:
        raise NotImplementedError

    @eager
    def reseed(self, task: int, epoch: int = 0, step: int = 0) -> None:
        """Give member i the key of index i of the stream of this name, on this rank.

        Args:
            task: [0, 2**24).
            epoch: [0, 2**32).
            step: [0, 2**64).

        Raises:
            RuntimeError: before ``init``, in a DataLoader worker, where all workers would draw the
                same, or with members on CUDA while a CUDA graph is captured.
            TypeError, ValueError: an argument is invalid.
        """
        function = f"{self._path}.reseed"
        master_seed, rank_field = context.origin(function, self.name, "reseed_from_seeds")
        at = scopes.check_scope(function, task, epoch, step)
        self._reseed_members(streams.stream(master_seed, at, self.name, rank_field))

    def state_dict(self) -> StateDict:
        """Return the exact state and what identifies the object: ints, strings, a uint8 tensor."""
        return {**self._header(), "states": self._pack()}

    @eager
    def load_state_dict(self, state: StateDict) -> None:
        """Load what ``state_dict`` returned, for an object of this name with as many members.

        Raises:
            TypeError, ValueError: ``state`` is damaged, or of another object; nothing has changed.
        """
        function, own = f"{self._path}.load_state_dict", self._header()
        check_instance(function, "state", state, dict, "a dict from state_dict()")
        if set(state) != {*own, "states"}:
            rule = f"a dict of {', '.join(own)}, states"
            raise value_error(function, "state", rule, list(state))
        for field, value in own.items():
            if type(state[field]) is not type(value) or state[field] != value:
                raise value_error(function, f"state[{field!r}]", repr(value), state[field])
        states = state["states"]
        check_instance(function, "state['states']", states, torch.Tensor, "a tensor")
        try:
            parsed = self._parse(states)
        except (TypeError, ValueError) as error:
            raise ValueError(f"fastseed.{function}: state['states'] is invalid: {error}") from error
        self._load(parsed)

    def _header(self) -> StateDict:
        """Return what a state holds beside the members' states: which object it belongs to."""
        versions = {"version": 1, "derivation": scalar.DERIVATION_VERSION}
        kind = self._path.rpartition(".")[2]
        return {"format": f"fastseed.{kind}", **versions, "name": self.name, "n": len(self)}


users: StreamUsers[Members] = StreamUsers(
    "fastseed: another pool or bank with the name %r has the same streams in this scope: give each "
    "its own name"
)

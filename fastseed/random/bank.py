"""Many streams that live on a device: keys and positions as tensors, no generator objects."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .._backend import derive_ops, draw_ops, tensors
from .._backend.compile import eager
from .._backend.derive_ops import signed
from .._utils import StateDict
from .._utils.validation import check_int
from ..derivation import context, reserved, scopes, streams
from ..derivation.equal_streams import StreamUsers
from . import bank_rows, bank_state, distributions, functional
from .functional import Shape

_OPS = torch.ops.fastseed
_RESEED = _OPS.reseed_streams.default
_RESEED_AT = _OPS.reseed_streams_at.default
_RESEED_FROM = _OPS.reseed_streams_from.default
_STREAM = derive_ops.DOMAIN_STREAM << 24

_users: StreamUsers[StreamBank] = StreamUsers(
    "fastseed.random.StreamBank.reseed: another bank with the name %r has the same streams in this "
    "scope; give each bank its own, StreamBank(n, name=...)"
)


class StreamBank:
    """n counter-based streams on one device, each with a key and a position.

    Stream i has the key of index i of the stream ``name`` on this rank. Row i of every result comes
    from stream i alone, whatever n, the other rows and the device are. Each call advances the
    positions, on the device, so that every replay of a captured CUDA graph returns new numbers;
    reseeding writes keys in place, for the next replay. The methods that return random numbers,
    ``reseed_from_scope`` and ``reseed_from_seeds`` (tensors) compile with
    ``fullgraph=True``.

    ``rows`` chooses streams. Indices, (m,) torch.int64 or int32 in [0, n) (checked on the CPU
    only): the result has m rows, and these streams advance, once each if one is repeated. A mask,
    (n,) torch.bool: the result has n rows, zeros where the mask is False, and the others advance;
    shapes do not depend on the mask, as CUDA graphs need.

    The methods for random numbers have the arguments of the functions of the same names in
    ``fastseed.random``; ``shape``, of each stream, is sizes or one tuple of them, by default one
    value. They return ``out`` or a new tensor, (rows, *shape), on the bank's device. They raise
    RuntimeError before the bank has keys, and TypeError or ValueError for an invalid argument,
    without advancing.

    Args:
        n: the number of streams, in [0, 2**40].
        device: the CPU (default) or a CUDA device.
        name: the name of the streams, different for each bank. A bank that is registered with
            ``fastseed.register_generator`` uses the registered name.

    Raises:
        TypeError, ValueError: n, device or name is invalid.

    Examples:
        >>> import torch
        >>> bank = fastseed.random.StreamBank(3)
        >>> bank.reseed_from_seeds([7, 8, 9])
        >>> first, second = bank.rand(2), bank.rand(2, rows=torch.tensor([1]))
        >>> bank.positions
        tensor([4, 8, 4])
    """

    def __init__(
        self, n: int, device: torch.device | str | int | None = None, name: str = "bank"
    ) -> None:
        n = check_int("random.StreamBank", "n", n, 0, scopes.MAX_MEMBERS)
        self._name = scopes.check_name("random.StreamBank", name)
        # As an operator takes it; kept, because compiled code cannot hash.
        self._words = tuple(map(signed, streams.name_words(name)))
        reserved.check_free("random.StreamBank", name)
        place = tensors.check_device("random.StreamBank", device)
        functional.check_device("random.StreamBank", "device", place)
        with torch.inference_mode(False):  # tensors that can be written inside of it and outside
            self._keys = torch.zeros(n, 2, dtype=torch.uint64, device=place)
            self._positions = torch.zeros(n, dtype=torch.int64, device=place)
        self._seeded = False

    @property
    def keys(self) -> torch.Tensor:
        """The keys, (n, 2) torch.uint64, [lo, hi]: the tensor itself, never reallocated."""
        return self._keys

    @property
    def positions(self) -> torch.Tensor:
        """How many words each stream has used, (n,) torch.int64: the tensor itself."""
        return self._positions

    @property
    def name(self) -> str:
        """The name of the streams."""
        return self._name

    @property
    def device(self) -> torch.device:
        """The device of the bank."""
        return self._keys.device

    def __len__(self) -> int:
        return self._keys.size(0)

    def check_seeded(self, function: str) -> None:
        """Raise RuntimeError, in the name of ``function``, before the bank has keys."""
        if not self._seeded:
            raise RuntimeError(
                f"fastseed.{function}: the bank has no keys yet; call reseed, reseed_from_scope or "
                "reseed_from_seeds first"
            )

    def __repr__(self) -> str:
        keys = "" if self._seeded else ", no keys yet"
        return f"StreamBank({len(self)}, device='{self.device}', name={self.name!r}{keys})"

    # As bytes in an array: torch (2.13) pickles uint64 tensors in a form that it cannot read, and a
    # tensor on its way to a process would move into shared memory, the original too.
    def __getstate__(self) -> StateDict:
        where = {"n": len(self), "device": str(self.device), "name": self.name}
        return {**where, "states": self.states().numpy()}

    def __setstate__(self, state: StateDict) -> None:
        states = state.pop("states")
        self.__init__(**state)  # type: ignore[misc]
        self.load_states(torch.from_numpy(states))

    @eager
    def reseed(self, task: int, epoch: int = 0, step: int = 0) -> None:
        """Give every stream its key at (task, epoch, step) of the job, and position 0.

        Args:
            task: in [0, 2**24).
            epoch: in [0, 2**32).
            step: in [0, 2**64).

        Raises:
            RuntimeError: ``init`` was not called, or a CUDA graph is being captured.
            TypeError, ValueError: an argument is invalid, or ``init`` chose scheme "fwr13y", which
                has no keys; the bank is unchanged.
        """
        origin = context.origin("random.StreamBank.reseed", "reseed_from_seeds")
        at = scopes.check_scope("random.StreamBank.reseed", task, epoch, step)
        self.reseed_members(streams.stream(origin.master_seed, at, self.name, origin.rank_field))

    def reseed_members(self, stream: streams.Stream) -> None:
        """Give stream i the key of index i of ``stream``."""
        hint = "use reseed_from_scope, or call it between replays"
        draw_ops.refuse_capture("random.StreamBank.reseed", self.device, hint)
        _users.enter(self, self.name, stream)
        key, tweak = (signed(word) for word in stream.name_key)
        at = (key, tweak, stream.rank_field | _STREAM, stream.worker, 0)
        _RESEED(self._keys, self._positions, *at)
        self._seeded = True

    def reseed_from_scope(self, scope: torch.Tensor) -> None:
        """Reseed at a scope that is on the device, for CUDA graphs and compiled code.

        Args:
            scope: (2,) torch.uint64 on the bank's device, as ``fastseed.derive_scope_key`` returns
                it. Written in place between replays, it moves a captured graph to another point of
                the job.

        Raises:
            RuntimeError: ``init`` was not called.
            TypeError, ValueError: ``scope`` is invalid, or ``init`` chose scheme "fwr13y"; the bank
                is unchanged.
        """
        function = "random.StreamBank.reseed_from_scope"
        origin = context.origin(function, "reseed_from_seeds")
        tensors.check_tensor(function, "scope", scope, torch.uint64, (2,), self.device)
        self._check_apart(function, "scope", scope)
        at = (*self._words, origin.rank_field | _STREAM, 0, 0)
        _RESEED_AT(self._keys, self._positions, scope.contiguous(), *at)
        self._seeded = True

    def reseed_from_seeds(
        self,
        seeds: torch.Tensor | Sequence[int],
        indices: torch.Tensor | Sequence[int] | None = None,
    ) -> None:
        """Give stream i a key from its own seed: one per request, image or environment.

        It is the key which a job with master seed ``seeds[i]`` has for the stream of the bank's
        name at task 0, epoch 0, step 0, shared by all ranks, at index ``indices[i]``. ``init`` need
        not be called.

        Args:
            seeds: n integers: a tensor (n,) of an integer dtype, or a sequence of ints in
                [-2**63, 2**64); a negative one means itself plus 2**64.
            indices: n integers of [0, 2**63). Default: zeros. The values of a CUDA tensor, and
                those in compiled code, are not checked.

        Raises:
            TypeError, ValueError: an argument is invalid; the bank is unchanged.
            RuntimeError: a CUDA graph is being captured, and they are not on the bank's device.
        """
        function = "random.StreamBank.reseed_from_seeds"
        seeds = self._integers(function, "seeds", seeds, -(2**63), 2**64 - 1)
        if indices is not None:
            top = 2**63 - 1  # the largest int64
            indices = self._integers(function, "indices", indices, 0, top)
            tensors.check_values(function, "indices", indices, top)
            indices = indices.to(self.device)
        seeds = seeds.view(torch.uint64).to(self.device)
        _RESEED_FROM(self._keys, self._positions, seeds, indices, *self._words)
        self._seeded = True

    def _integers(
        self, function: str, argument: str, values: object, low: int, high: int
    ) -> torch.Tensor:
        """Return one integer a stream, modulo 2**64, as contiguous int64 where they were."""
        found = tensors.as_int64(function, argument, values, len(self), low, high, self.device)
        if found.device != self.device:
            instead = f"give {argument} as a tensor on {self.device}"
            draw_ops.refuse_capture(function, self.device, instead)
        self._check_apart(function, argument, found)
        return found

    def _check_apart(self, function: str, argument: str, values: torch.Tensor) -> None:
        tensors.check_writable(function, "the bank", self._keys, **{argument: values})
        tensors.check_writable(function, "the bank", self._positions, **{argument: values})

    def rand(
        self,
        *shape: Shape,
        low: float = 0.0,
        high: float = 1.0,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return uniform random numbers in [low, high), and advance."""
        return self._draw("rand", shape, dtype, rows, out, low, high)

    def randn(
        self,
        *shape: Shape,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return normally distributed random numbers, and advance."""
        return self._draw("randn", shape, dtype, rows, out, mean, std)

    def exponential(
        self,
        *shape: Shape,
        rate: float = 1.0,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return exponentially distributed random numbers, of mean 1 / rate, and advance."""
        return self._draw("exponential", shape, dtype, rows, out, rate)

    def trunc_normal(
        self,
        *shape: Shape,
        mean: float = 0.0,
        std: float = 1.0,
        a: float = -2.0,
        b: float = 2.0,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return random numbers of the normal distribution within [a, b], and advance."""
        return self._draw("trunc_normal", shape, dtype, rows, out, mean, std, a, b)

    def bernoulli(
        self,
        p: float,
        shape: Shape = (),
        *,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return ones (True) with probability ``p``, else zeros, and advance."""
        return self._draw("bernoulli", (shape,), dtype, rows, out, p)

    def randint(
        self,
        low: int,
        high: int,
        shape: Shape = (),
        *,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return random integers of [low, high), each as likely as any other, and advance."""
        return self._draw("randint", (shape,), dtype, rows, out, low, high)

    def bits(
        self,
        *shape: Shape,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return words of the streams themselves, and advance."""
        return self._draw("bits", shape, dtype, rows, out)

    def _draw(
        self,
        method: str,
        shape: Sequence[Shape],
        dtype: torch.dtype | None,
        rows: torch.Tensor | None,
        out: torch.Tensor | None,
        *parameters: float,
    ) -> torch.Tensor:
        function = f"random.StreamBank.{method}"
        what = distributions.distribution(function, functional.dtype_of(dtype, out), *parameters)
        self.check_seeded(function)
        given = shape[0] if len(shape) == 1 else shape  # f((2, 3)) is f(2, 3)
        sizes = functional.check_shape(function, given, what.words)
        return bank_rows.draw(function, what, self._keys, self._positions, sizes, rows, out)

    def state_dict(self) -> StateDict:
        """Return ``states`` and what identifies the bank: ints, strings and a uint8 tensor."""
        return bank_state.state_dict(self.name, len(self), self.states())

    @eager
    def load_state_dict(self, state: StateDict) -> None:
        """Load what ``state_dict`` returned, for a bank of the same name and size.

        Raises:
            TypeError, ValueError: ``state`` is from another tool, version or bank, truncated or
                damaged; the bank is unchanged.
        """
        self._load(*bank_state.unpack_dict(self.name, len(self), state))

    def _load(self, keys: torch.Tensor, positions: torch.Tensor, seeded: bool) -> None:
        self._seeded = False  # until both are written: an interrupt leaves a bank without keys
        self._keys.copy_(keys)
        self._positions.copy_(positions)
        self._seeded = seeded

    def states(self) -> torch.Tensor:
        """Return the exact state for checkpoints: 1-D uint8 on the CPU, 24 bytes a stream and 1."""
        return bank_state.pack(self._keys, self._positions, self._seeded)

    def check_states(self, states: torch.Tensor) -> None:
        """Raise ValueError unless ``load_states`` accepts ``states``."""
        bank_state.unpack(states, len(self))

    def load_states(self, states: torch.Tensor) -> None:
        """Load what ``states`` returned.

        Raises:
            TypeError, ValueError: ``states`` is no such tensor; the bank is unchanged.
        """
        self._load(*bank_state.unpack_states(states, len(self)))

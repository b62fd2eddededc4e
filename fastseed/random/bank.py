"""Very many streams that live on a device: keys and positions as tensors, no generator objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._backend import derive_ops, draw_ops
from .._backend.compile import eager
from .._utils import validation
from ..derivation import context, streams
from . import bank_validation, distributions, functional
from .distributions import Distribution
from .functional import Shape

FORMAT, VERSION = "fastseed.StreamBank", 1  # of what state_dict() holds

_OPS = torch.ops.fastseed
_RESEED = _OPS.reseed_streams.default
_RESEED_AT = _OPS.reseed_streams_at.default
_RESEED_FROM = _OPS.reseed_streams_from.default
_STREAM = derive_ops.DOMAIN_STREAM << 24
# torch computes little with unsigned dtypes; these hold the same bits.
_SIGNED = {torch.uint32: torch.int32, torch.uint64: torch.int64}


class StreamBank:
    """n counter-based streams on one device, each with a key and a position of its own.

    Row i of every draw comes from stream i alone, and what stream i draws is that of its key: of n,
    of the other rows and of the machine it knows nothing. A draw moves the positions on the device,
    so a captured CUDA graph draws anew at each replay; a reseed writes keys in place, so the next
    replay uses them. Draws, :meth:`reseed_from_scope` and :meth:`reseed_from_seeds` of tensors
    compile with ``fullgraph=True``; the tensors never move, and the bank stays on its device.

    Stream i takes the key of index i of the stream ``name`` on this rank. Before a bank has keys it
    refuses to draw.

    Args:
        n: how many streams, in [0, 2**40].
        device: the CPU unless given; or a CUDA device.
        name: the stream's name for :meth:`reseed`. Banks of one name have the same keys: give each
            its own. A seeder that the bank is registered with uses the registered name.

    The draw methods take, besides what their functions of the same name in :mod:`fastseed` do:

        shape: what is drawn from each stream: the integers themselves, or one tuple of them
            (:meth:`randint`, :meth:`bernoulli`: a tuple, or one integer). None: one value.
        rows: which streams draw; all unless given. Indices (m,), torch.int64 or int32 on the bank's
            device, each in [0, n) (checked on the CPU only): (m, \\*shape), and only these advance.
            A stream that stands there twice gives the same values twice and advances once. Or a
            mask (n,), torch.bool: (n, \\*shape), zeros where it is False; only rows where it is
            True advance. With a mask nothing but the data depends on which rows draw: safe in CUDA
            graphs.

    and raise RuntimeError before the bank has keys; after any error no position has moved.

    Raises:
        TypeError, ValueError: n, device or name is none of these.
    """

    def __init__(
        self, n: int, device: torch.device | str | int | None = None, name: str = "bank"
    ) -> None:
        n = validation.check_int("StreamBank", "n", n, 0, streams.MAX_MEMBERS)
        self._name = streams.check_name("StreamBank", name)
        # As an operator takes it; kept, because compiled code cannot hash.
        self._words = tuple(map(bank_validation.signed, streams.name_words(name)))
        if name in streams.OWN_NAMES:
            raise ValueError(
                f"fastseed.StreamBank: name must be none of {streams.OWN_NAMES}, got {name!r}"
            )
        place = torch.device("cpu" if device is None else device)
        functional.check_device("StreamBank", "device", place)
        with torch.inference_mode(False):  # so that draws within it and without may write here
            self._keys = torch.zeros(n, 2, dtype=torch.uint64, device=place)
            self._positions = torch.zeros(n, dtype=torch.int64, device=place)
        self._seeded = False

    @property
    def keys(self) -> torch.Tensor:
        """The keys, (n, 2) torch.uint64, [lo, hi]; the tensor itself, at one address for ever."""
        return self._keys

    @property
    def positions(self) -> torch.Tensor:
        """How many words each stream has drawn, (n,) torch.int64; the tensor itself."""
        return self._positions

    @property
    def name(self) -> str:
        """The name of the streams."""
        return self._name

    @property
    def device(self) -> torch.device:
        """Where the bank is."""
        return self._keys.device

    def __len__(self) -> int:
        return self._keys.size(0)

    def __repr__(self) -> str:
        keys = "" if self._seeded else ", no keys yet"
        return f"StreamBank({len(self)}, device='{self.device}', name={self.name!r}{keys})"

    # torch (2.13) pickles uint64 tensors in a form that it cannot read.
    def __getstate__(self) -> dict[str, Any]:
        # Arrays: a tensor on its way to a process would move into shared memory, the original too.
        held = {"_keys": self._keys.view(torch.int64), "_positions": self._positions}
        arrays = {name: tensor.cpu().numpy().copy() for name, tensor in held.items()}
        return {**self.__dict__, **arrays, "device": str(self._keys.device)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        device = state.pop("device")
        self.__dict__.update(state)
        self._keys = torch.from_numpy(state["_keys"]).to(device).view(torch.uint64)
        self._positions = torch.from_numpy(state["_positions"]).to(device)

    # ------------------------------------------------------------------ keys

    @eager
    def reseed(self, task: int, epoch: int = 0, step: int = 0) -> None:
        """Give every stream its key at (task, epoch, step), under the seed ``init`` was given.

        Raises:
            RuntimeError: before ``init``, or while a CUDA graph is captured.
            TypeError, ValueError: for a coordinate that is none, or when ``init`` chose the
                predecessor's scheme, which has no keys; nothing has changed.
        """
        origin = _origin("StreamBank.reseed")
        at = streams.check_coordinates("StreamBank.reseed", task, epoch, step)
        self.reseed_members(streams.stream(origin.master_seed, at, self.name, origin.rank))

    def reseed_members(self, stream: streams.Stream) -> None:
        """Give stream i the key of index i of ``stream``."""
        draw_ops.refuse_capture(
            "StreamBank.reseed", self.device, "use reseed_from_scope, or call it between replays"
        )
        key, tweak = (bank_validation.signed(word) for word in stream.name_key)
        rank_word = stream.rank | _STREAM
        _RESEED(self._keys, self._positions, key, tweak, rank_word, stream.worker, 0)
        self._seeded = True

    def reseed_from_scope(self, scope: torch.Tensor) -> None:
        """:meth:`reseed` at a scope that is on the device, for CUDA graphs and compiled code.

        Args:
            scope: (2,), torch.uint64, contiguous, on the bank's device: what
                :func:`fastseed.derive_scope` gives. Written in place between replays, it moves a captured
                graph to another point of the job.

        Raises:
            RuntimeError: before ``init``.
            TypeError, ValueError: ``scope`` is none, or ``init`` chose the predecessor's scheme;
                nothing has changed.
        """
        function = "StreamBank.reseed_from_scope"
        origin = _origin(function)
        functional.check_tensor(function, "scope", scope, torch.uint64)
        functional.check_place(function, "scope", scope, (2,), self.device)
        rank_word = origin.rank | _STREAM
        words = self._words
        _RESEED_AT(self._keys, self._positions, scope.contiguous(), *words, rank_word, 0, 0)
        self._seeded = True

    def reseed_from_seeds(
        self,
        seeds: torch.Tensor | Sequence[int],
        indices: torch.Tensor | Sequence[int] | None = None,
    ) -> None:
        """Give stream i a key of its own seed: one per request, image or environment.

        That is the key which a job with master seed ``seeds[i]`` has for the stream of the bank's
        name at task 0, epoch 0, step 0, shared by all ranks, at index ``indices[i]``. Needs no
        ``init``.

        Args:
            seeds: n integers: a tensor of an integer dtype, (n,), or a sequence of ints in
                [-2**63, 2**64); a negative one stands for itself plus 2**64.
            indices: n integers of [0, 2**63); zeros unless given. The values of a CUDA tensor, and
                those in compiled code, are not checked.

        Raises:
            TypeError, ValueError: for what is none of these; nothing has changed.
            RuntimeError: a CUDA graph is captured, and they are not on the bank's device.
        """
        function = "StreamBank.reseed_from_seeds"
        n, device = len(self), self.device
        seeds = bank_validation.integers(function, "seeds", seeds, n, device, -(2**63), 2**64 - 1)
        if indices is not None:
            top = 2**63 - 1  # of int64
            indices = bank_validation.integers(function, "indices", indices, n, device, 0, top)
            bank_validation.check_values(function, "indices", indices, top)
            indices = indices.to(device)
        seeds = seeds.view(torch.uint64).to(device)
        _RESEED_FROM(self._keys, self._positions, seeds, indices, *self._words)
        self._seeded = True

    # ------------------------------------------------------------------ draws

    def rand(
        self,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Uniform numbers of [low, high); see :func:`fastseed.random.rand` and :class:`StreamBank`."""
        function = "StreamBank.rand"
        what = distributions.uniform(function, low, high, functional.dtype_of(dtype, out))
        return self._draw(function, what, _unpacked(shape), rows, out)

    def randn(
        self,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Normal numbers; see :func:`fastseed.random.randn` and :class:`StreamBank`."""
        function = "StreamBank.randn"
        what = distributions.normal(function, mean, std, functional.dtype_of(dtype, out))
        return self._draw(function, what, _unpacked(shape), rows, out)

    def exponential(
        self,
        *shape: Any,
        rate: float = 1.0,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Exponential numbers; see :func:`fastseed.random.exponential` and :class:`StreamBank`."""
        function = "StreamBank.exponential"
        what = distributions.exponential(function, rate, functional.dtype_of(dtype, out))
        return self._draw(function, what, _unpacked(shape), rows, out)

    def bernoulli(
        self,
        p: float,
        shape: Shape = (),
        *,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Ones with probability p; see :func:`fastseed.random.bernoulli` and :class:`StreamBank`."""
        function = "StreamBank.bernoulli"
        what = distributions.bernoulli(function, p, functional.dtype_of(dtype, out))
        return self._draw(function, what, shape, rows, out)

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
        """Integers of [low, high); see :func:`fastseed.random.randint` and :class:`StreamBank`."""
        function = "StreamBank.randint"
        what = distributions.randint(function, low, high, functional.dtype_of(dtype, out))
        return self._draw(function, what, shape, rows, out)

    def bits(
        self,
        *shape: Any,
        dtype: torch.dtype | None = None,
        rows: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The words themselves; see :func:`fastseed.random.bits` and :class:`StreamBank`."""
        function = "StreamBank.bits"
        what = distributions.bits(function, functional.dtype_of(dtype, out))
        return self._draw(function, what, _unpacked(shape), rows, out)

    def _draw(
        self, function: str, what: Distribution, shape: Any, rows: Any, out: torch.Tensor | None
    ) -> torch.Tensor:
        if not self._seeded:
            raise RuntimeError(
                f"fastseed.{function}: the bank has no keys yet; call reseed, reseed_from_scope or "
                "reseed_from_seeds first"
            )
        shape = functional.check_shape(function, shape, what.words)
        values = 1
        for size in shape:
            values = values * size
        advance = what.advance(values)
        keys, positions = self._keys, self._positions
        if rows is None:
            found = functional.draw_into(function, what, keys, positions, (len(self), *shape), out)
            positions.add_(advance)
            return found
        self._check_rows(function, rows)
        if rows.dtype == torch.bool:
            moves, others = rows.to(torch.int64) * advance, rows.logical_not()
            found = functional.draw_into(function, what, keys, positions, (len(self), *shape), out)
            _zero(found, others)
            positions.add_(moves)
            return found
        rows = rows.to(torch.int64)
        own = keys.view(torch.int64).index_select(0, rows).view(torch.uint64)
        at = positions.index_select(0, rows)
        found = functional.draw_into(function, what, own, at, (rows.size(0), *shape), out)
        positions.index_copy_(0, rows, at + advance)
        return found

    def _check_rows(self, function: str, rows: Any) -> None:
        if not isinstance(rows, torch.Tensor):
            raise TypeError(
                f"fastseed.{function}: rows must be a tensor of indices or a mask, "
                f"got {validation.describe(rows)} of type {type(rows).__name__}"
            )
        if rows.dtype not in (torch.bool, torch.int32, torch.int64):
            raise TypeError(
                f"fastseed.{function}: rows must be of dtype torch.int64, torch.int32 or "
                f"torch.bool, got {rows.dtype}"
            )
        if rows.dtype == torch.bool:
            functional.check_place(function, "rows", rows, (len(self),), self.device)
            return
        if rows.dim() != 1:
            raise ValueError(
                f"fastseed.{function}: rows must be of shape (m,), got {tuple(rows.shape)}"
            )
        functional.check_place(function, "rows", rows, tuple(rows.shape), self.device)
        bank_validation.check_values(function, "rows", rows, len(self) - 1)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Keys and positions (copies), and what they belong to: ints, strings and tensors only."""
        tensors = {"keys": self._keys.clone(), "positions": self._positions.clone()}
        return {**self._facts(), "seeded": int(self._seeded), **tensors}

    def _facts(self) -> dict[str, Any]:
        """What a state has to agree with."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "derivation": derive_ops.DERIVATION_VERSION,
            "name": self.name,
            "n": len(self),
        }

    @eager
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` gave, from a bank of the same name and size.

        Args:
            state: its tensors may be on any device; they are copied into the bank's.

        Raises:
            TypeError, ValueError: it is foreign, truncated, damaged or of another version; nothing
                has changed.
        """
        bank_validation.check_state(self._facts(), state)
        self._load(state["keys"], state["positions"], bool(state["seeded"]))

    def _load(self, keys: torch.Tensor, positions: torch.Tensor, seeded: bool) -> None:
        self._keys.copy_(keys)
        self._positions.copy_(positions)
        self._seeded = seeded

    def states(self) -> torch.Tensor:
        """The exact state for checkpoints: 1-D, uint8, on the CPU, 24 bytes a stream and one."""
        parts = (self._keys, self._positions, torch.tensor([self._seeded], device="cpu"))
        return torch.cat([part.cpu().view(torch.uint8).reshape(-1) for part in parts])

    def check_states(self, states: torch.Tensor) -> None:
        """Raise ValueError unless :meth:`load_states` accepts ``states``."""
        bank_validation.split_states(states, len(self))

    def load_states(self, states: torch.Tensor) -> None:
        """Put back what :meth:`states` gave."""
        self._load(*bank_validation.split_states(states, len(self)))


def _origin(function: str) -> context.Origin:
    origin = context.origin(function)
    if origin.scheme != "philox-v1":
        raise ValueError(
            f"fastseed.{function}: scheme must be 'philox-v1', got {origin.scheme!r}; "
            "use reseed_from_seeds"
        )
    return origin


def _unpacked(shape: tuple[Any, ...]) -> Any:
    """``f(2, 3)`` and ``f((2, 3))`` are the same."""
    return shape[0] if len(shape) == 1 else shape


def _zero(values: torch.Tensor, rows: torch.Tensor) -> None:
    """Zero the rows of ``values`` where ``rows``, (n,) torch.bool."""
    signed = values.view(_SIGNED.get(values.dtype, values.dtype))
    signed.masked_fill_(rows.view(-1, *(1,) * (values.dim() - 1)), 0)

"""Many streams that live on a device: keys and positions as tensors, no generator objects."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

import torch

from .._backend import private_torch, recomputation, tensors
from .._backend.compile import refuse_capture
from .._backend.ops import keys as ops
from .._backend.reference import scalar
from .._backend.reference.scalar import signed
from .._utils import StateDict
from .._utils.validation import check_int, value_error
from ..derivation import context, reserved, scopes, streams
from ..derivation.member_states import Members, users
from . import scope_tensors

_STREAM = scalar.DOMAIN_STREAM << 24
_State = tuple[torch.Tensor, torch.Tensor, bool]  # keys, positions, whether they are set
# torch computes little with unsigned dtypes; these hold the same bits.
_SIGNED = {torch.uint32: torch.int32, torch.uint64: torch.int64}


class StreamBank(Members):
    """Many random streams on one device, each with a key and a position: no generator objects.

    The functions of ``fastseed.random`` and ``fastseed.sampling.sample`` take a bank in place of a
    key. Row i of a result, (n, *shape), comes from stream i alone. Each call moves the positions on
    the device, so that every replay of a captured CUDA graph returns new numbers.

    ``bank[rows]`` takes the place of a key, too: a view that draws from some streams and moves
    these alone. Indices, (m,) torch.int64 or int32 in [0, n) (checked on the CPU only): the result
    has m rows, and a stream that is repeated moves once. A mask, (n,) torch.bool: the result has n
    rows, zeros where the mask is False.

    Args:
        n: the number of streams, in [0, 2**40].
        name: the name of the streams, different for each bank.
        device: the CPU (default) or a CUDA device.

    Raises:
        TypeError, ValueError: an argument is invalid; no stream moves.
        RuntimeError: a draw before the bank has keys, in a checkpointed function, or in
            ``torch.vmap`` (unless its randomness is "same").

    Examples:
        >>> import torch
        >>> bank = fastseed.random.StreamBank(3, "noise")
        >>> bank.reseed_from_seeds([7, 8, 9])
        >>> first = fastseed.random.uniform(bank, 2)
        >>> second = fastseed.random.uniform(bank[torch.tensor([1])], 2)
        >>> bank.positions
        tensor([4, 8, 4])
    """

    _path = "random.StreamBank"

    def __init__(self, n: int, name: str, device: torch.device | str | int | None = None) -> None:
        n = check_int(self._path, "n", n, 0, scopes.MAX_MEMBERS)
        self._name = reserved.check_free(self._path, scopes.check_name(self._path, name))
        # As an operator takes it; kept, because compiled code cannot hash.
        self._words = tuple(map(signed, streams.name_words(name)))
        where = tensors.check_device(self._path, device)
        tensors.check_supported(self._path, "device", where)
        with torch.inference_mode(False):  # tensors that can be written inside of it and outside
            self._keys = torch.zeros(n, 2, dtype=torch.uint64, device=where)
            self._positions = torch.zeros(n, dtype=torch.int64, device=where)
        self._n, self._seeded = n, False
        self._lock = threading.RLock()  # held from the reading of positions to their move

    @property
    def keys(self) -> torch.Tensor:
        """The keys, (n, 2) torch.uint64, [lo, hi]: the tensor itself, never reallocated."""
        return self._keys

    @property
    def positions(self) -> torch.Tensor:
        """How many words each stream has used, (n,) torch.int64: the tensor itself."""
        return self._positions

    @property
    def device(self) -> torch.device:
        """The device of the bank."""
        return self._keys.device

    def __len__(self) -> int:
        return self._n

    def _check_data(self, function: str) -> None:
        """ValueError, in the name of ``function``, where the state can be neither read nor set."""
        for argument, tensor, last in (
            ("keys", self._keys, (2,)),
            ("positions", self._positions, ()),
        ):
            tensors.check_tensor(function, argument, tensor, tensor.dtype, (self._n, *last))
            tensors.check_data(function, argument, tensor)

    def __repr__(self) -> str:
        keys = "" if self._seeded else ", no keys yet"
        return f"StreamBank({len(self)}, device='{self.device}', name={self.name!r}{keys})"

    # As an array: a tensor on its way to a process moves into shared memory, the original too.
    def __getstate__(self) -> StateDict:
        where = {"n": len(self), "device": str(self.device), "name": self.name}
        return {**where, "states": self._pack().numpy()}

    def __setstate__(self, state: StateDict) -> None:
        states = state.pop("states")
        self.__init__(**state)  # type: ignore[misc]
        self._load(self._parse(torch.from_numpy(states)))

    def _reseed_members(self, stream: streams.Stream) -> None:
        hint = "use reseed_from_scope, or call it between replays"
        refuse_capture("random.StreamBank.reseed", self.device, hint)
        users.warn_if_shared(self, self.name, stream)
        key, tweak = (signed(word) for word in stream.name_key)
        at = (key, tweak, stream.rank_field | _STREAM, stream.worker, 0)
        ops.reseed_streams(self._keys, self._positions, *at)
        self._seeded = True

    def reseed_from_scope(self) -> None:
        """Reseed at the scope of the last ``fastseed.reseed``, which is read on the device.

        Compiled code and each replay of a captured CUDA graph read the scope anew: they follow
        ``fastseed.reseed``.

        Raises:
            RuntimeError: before ``init`` and ``reseed``, or in a DataLoader worker.
            ValueError: ``init`` chose scheme "fwr13y".
        """
        function = "random.StreamBank.reseed_from_scope"
        _, rank_field = context.origin(function, self.name, "reseed_from_seeds")
        if not scope_tensors.process_state.has_keys:
            raise RuntimeError(f"fastseed.{function}: call fastseed.reseed(task, epoch) first")
        scope = scope_tensors.on_device(function, self.device)
        at = (*self._words, rank_field | _STREAM, 0, 0)
        ops.reseed_streams_at(self._keys, self._positions, scope, *at)
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
            TypeError, ValueError: an argument is invalid.
            RuntimeError: a CUDA graph is being captured, and they are not on the bank's device.
        """
        function, top = "random.StreamBank.reseed_from_seeds", 2**63 - 1
        seeds = self._integers(function, "seeds", seeds, -(2**63), 2**64 - 1)
        if indices is not None:
            indices = self._integers(function, "indices", indices, 0, top)
            tensors.check_values(function, "indices", indices, top)
            indices = indices.to(self.device)
        seeds = seeds.view(torch.uint64).to(self.device)
        ops.reseed_streams_from(self._keys, self._positions, seeds, indices, *self._words)
        self._seeded = True

    def _integers(
        self, function: str, argument: str, values: object, low: int, high: int
    ) -> torch.Tensor:
        """Return one integer a stream, modulo 2**64, as contiguous int64 where they were."""
        found = tensors.as_int64(function, argument, values, len(self), low, high, self.device)
        tensors.check_apart(function, argument, found, self._keys, self._positions)
        if found.device != self.device:
            instead = f"give {argument} as a tensor on {self.device}"
            refuse_capture(function, self.device, instead)
        return found

    def __getitem__(self, rows: torch.Tensor) -> StreamRows:
        """Return a view that draws from some streams, and moves these alone."""
        function = "random.StreamBank"
        tensors.check_dtype(function, "rows", rows, torch.int64, torch.int32, torch.bool)
        shape = (self._n,) if rows.dtype == torch.bool else None
        tensors.check_tensor(function, "rows", rows, rows.dtype, shape, self.device)
        if rows.dim() != 1:
            raise value_error(function, "rows", "of shape (m,)", tuple(rows.shape))
        if shape is None:
            tensors.check_apart(function, "rows", rows, self._keys, self._positions)
            tensors.check_values(function, "rows", rows, self._n - 1)
        return StreamRows(self, rows)

    def _pack(self) -> torch.Tensor:
        """Return keys, positions and one byte for ``_seeded``."""
        self._check_data("random.StreamBank.state_dict")
        parts = (self._keys, self._positions, torch.tensor([self._seeded], device="cpu"))
        return torch.cat([part.cpu().view(torch.uint8).reshape(-1) for part in parts])

    def _parse(self, states: torch.Tensor) -> _State:
        tensors.check_tensor("random.StreamBank.load_state_dict", "states", states, torch.uint8)
        tensors.check_data("random.StreamBank.load_state_dict", "states", states)
        n = self._n
        if states.numel() != 24 * n + 1:
            raise ValueError(f"it must be {24 * n + 1} bytes, got {states.numel()}")
        states = states.to("cpu", copy=True, memory_format=torch.contiguous_format)
        keys = states[: 16 * n].view(torch.uint64).view(n, 2)
        return keys, states[16 * n : 24 * n].view(torch.int64), bool(states[-1])

    def _load(self, state: _State) -> None:
        self._check_data("random.StreamBank.load_state_dict")
        keys, positions, is_seeded = state
        self._seeded = False  # until both are written: an interrupt leaves a bank without keys
        self._keys.copy_(keys)
        self._positions.copy_(positions)
        self._seeded = is_seeded


class StreamRows:
    """Some streams of a bank, ``bank[rows]``: a draw uses and moves these alone."""

    def __init__(self, bank: StreamBank, rows: torch.Tensor) -> None:
        self.bank, self.rows = bank, rows

    def __repr__(self) -> str:
        return f"{self.bank!r}[{self.rows.dtype} of shape {tuple(self.rows.shape)}]"


Streams = StreamBank | StreamRows
"""What takes the place of a key where a draw moves on."""

STREAMS = (StreamBank, StreamRows)  # for isinstance: Dynamo of torch 2.10 knows no union


def _parts(streams: Streams) -> tuple[StreamBank, torch.Tensor | None]:
    if isinstance(streams, StreamBank):
        return streams, None
    return streams.bank, streams.rows


def locked(streams: object) -> contextlib.AbstractContextManager[object]:
    """Return a block in which no other thread draws from a bank; compiled code has no locks."""
    if torch.compiler.is_compiling() or not isinstance(streams, STREAMS):
        return contextlib.nullcontext()
    return _parts(streams)[0]._lock


def begin(function: str, streams: Streams) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and positions of the streams to draw from: with a mask, of the whole bank."""
    bank, rows = _parts(streams)
    if not bank._seeded:
        raise RuntimeError(
            f"fastseed.{function}: the bank has no keys yet; call reseed, reseed_from_scope or "
            "reseed_from_seeds first"
        )
    recomputation.refuse(function, "draw from a key that fastseed.derive_key returns")
    if private_torch.is_vmapped():
        raise RuntimeError(
            f"fastseed.{function}: a bank must not be used in torch.vmap, which would give all "
            "of its examples the same numbers: draw outside of it, or pass it randomness='same'"
        )
    keys, positions = bank.keys, bank.positions
    if rows is None or rows.dtype == torch.bool:
        return keys, positions
    tensors.check_dense(function, "keys", keys)  # the operator cannot: it gets copies
    tensors.check_dense(function, "positions", positions)
    chosen = keys.view(torch.int64).index_select(0, rows).view(torch.uint64)
    return chosen, positions.index_select(0, rows)


def move(streams: Streams, positions: torch.Tensor, by: int) -> None:
    """Move the streams that a draw from ``positions`` has used by some words."""
    bank, rows = _parts(streams)
    if rows is None:
        bank.positions.add_(by)
    elif rows.dtype == torch.bool:
        bank.positions.add_(rows.to(torch.int64) * by)
    else:
        bank.positions.index_copy_(0, rows.to(torch.int64), positions + by)


def zero_others(streams: Streams, drawn: torch.Tensor) -> None:
    """Write zeros to the rows outside of a mask."""
    _, rows = _parts(streams)
    if rows is not None and rows.dtype == torch.bool:
        bits = drawn.view(_SIGNED.get(drawn.dtype, drawn.dtype))
        bits.masked_fill_(rows.logical_not().view(-1, *(1,) * (drawn.dim() - 1)), 0)

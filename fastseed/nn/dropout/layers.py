"""Layers whose masks are functions of where an element is, not of when a layer is called."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from ..._backend import private_torch, recomputation
from ..._backend.compile import is_exporting
from ..._backend.ops.dropout import layer_key
from ..._backend.reference.scalar import SHARED_RANK
from ..._utils import validation
from ...derivation import context
from ...random import dropout, layout, scope_tensors
from .scope import (
    LayerName,
    RowRange,
    ThreadScope,
    check_use,
    check_use_in_graph,
    has_values,
    process_state,
    thread_scope,
)

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement

    from ...seeder.seeder import Seeder

_CLASS = "nn.Dropout"


class Dropout(torch.nn.Dropout):
    """Dropout whose masks do not depend on ranks, micro-batches or the device.

    Whether an element stays is a function of (master seed, scope of the last ``fastseed.reseed``,
    name, ``fastseed.nn.label``, index in the global batch), of which ``fastseed.nn.rows`` sets the
    rows. ``fastseed.nn.convert`` makes these layers from torch's and names them.

    A second use for the same rows in one scope raises an error. Compiled code checks this within
    one graph only: two calls without ``reseed``, ``rows`` or ``label`` in between repeat masks.

    Args:
        p: the probability of a zero, in [0, 1].
        inplace: write into the input.
        name: the name of the layer, different for each. None: ``fastseed.nn.convert`` sets it.
        batch_dim: the dimension of inputs that holds the rows of the batch; None: they have none.

    Raises:
        TypeError, ValueError: an argument is invalid.
        RuntimeError: in the forward pass: before ``init``; without a name; for a second use; with
            several data ranks outside of ``fastseed.nn.rows``.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1, step=3)
        >>> layer = fastseed.nn.Dropout(0.5, name="block.0")
        >>> key = fastseed.derive_key("dropout/block.0", task=1, step=3, rank=fastseed.SHARED)
        >>> x = torch.ones(4, 4)
        >>> torch.equal(layer(x), fastseed.nn.functional.dropout(x, 0.5, key))
        True
    """

    key_name: LayerName | None
    batch_dim: int | None
    cut: Cut | None
    channels: int | None = None  # as of ``drop_layer``

    def __init__(
        self,
        p: float = 0.5,
        inplace: bool = False,
        *,
        name: str | None = None,
        batch_dim: int | None = 0,
    ) -> None:
        p = dropout.check_probability(_CLASS, p)  # torch would read a tensor
        super().__init__(p, validation.check_bool(_CLASS, "inplace", inplace))
        set_up(self, name, batch_dim)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0:
            return input
        found = drop_layer(self.key_name, input, self.p, self.batch_dim, self.cut, self.channels)
        return input.copy_(found) if self.inplace else found


class Dropout1d(Dropout):
    """Zero whole channels of an input (N, C, ...) with probability ``p`` in training.

    ``Dropout1d`` takes (N, C, L), ``Dropout2d`` (N, C, H, W) and ``Dropout3d`` (N, C, D, H, W). The
    mask is that of ``Dropout`` for a tensor (N, C); arguments and errors are as there.

    Examples:
        >>> import torch
        >>> fastseed.init(42)
        >>> fastseed.reseed(task=1)
        >>> layer = fastseed.nn.Dropout1d(0.5, name="channels")
        >>> layer(torch.ones(2, 4, 3)).sum(-1).unique()
        tensor([0., 6.])
    """

    channels = 1


class Dropout2d(Dropout1d):
    __doc__ = Dropout1d.__doc__
    channels = 2


class Dropout3d(Dropout1d):
    __doc__ = Dropout1d.__doc__
    channels = 3


class Cut(NamedTuple):
    """How plain inputs are cut over the ranks of a mesh."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]


def set_up(layer: Dropout, name: str | None, batch_dim: int | None) -> None:
    """Set the attributes that torch's layers do not have."""
    layer.key_name = None if name is None else LayerName(name)
    if batch_dim is not None:
        batch_dim = validation.check_int(_CLASS, "batch_dim", batch_dim, 0, 63)
    layer.batch_dim = batch_dim
    layer.cut = None


def drop_layer(
    layer: LayerName | None,
    input: torch.Tensor,
    p: float,
    batch_dim: int | None = 0,
    cut: Cut | None = None,
    channels: int | None = None,  # drop whole ones, of (N, C) and so many dimensions; 0: any
) -> torch.Tensor:
    """Return the input with elements dropped by the key of a layer."""
    threshold = dropout.check_input(_CLASS, input, p)
    if channels is not None and (input.dim() < 3 or channels not in (0, input.dim() - 2)):
        rule = "of shape (N, C) and as many dimensions as the layer drops at once"
        raise validation.value_error(_CLASS, "input", rule, tuple(input.shape))
    again: Again | None = None if layer is None else recomputation.had(layer.use)
    scope = thread_scope() if again is None else None
    if scope is not None:
        unknown = scope.rows is None and batch_dim is not None
        ranks = process_state.data_ranks
        if ranks == 0 or layer is None or (unknown and ranks > 1):
            _check_ready(layer, unknown, input)
    assert layer is not None
    at = (layer, scope, again, threshold, batch_dim, channels is not None)
    if cut is None or layout.is_dtensor(input):
        return _drop(input, *at)
    from torch.distributed.tensor import DTensor

    whole = DTensor.from_local(input, cut.mesh, cut.placements, run_check=False)
    return cast(DTensor, _drop(whole, *at)).to_local()


def _drop(
    input: torch.Tensor,
    layer: LayerName,
    scope: ThreadScope | None,
    again: Again | None,
    threshold: int,
    batch_dim: int | None,
    channels: bool,
) -> torch.Tensor:
    if private_torch.is_batched(input):
        raise RuntimeError(
            f"fastseed.{_CLASS}: {layer.name!r} would have one mask for all of torch.vmap's batch: "
            "use fastseed.nn.functional.dropout with a key each"
        )
    shape = input.shape[:2] if channels else input.shape
    if scope is None:
        assert again is not None
        keys, where, real = again.keys, again.where, False
    else:
        where = _Placed.of(shape, batch_dim, scope.rows)
        keys = torch.empty(3, dtype=torch.uint64, device=input.device)
        real = has_values(keys)
        if real:
            if is_exporting():
                torch.ops.fastseed.check_label(keys, scope.label_index)
            at = (*layer.words, scope.label_index, 0, where.row_elements, SHARED_RANK)
            in_memory = scope_tensors.on_device(_CLASS, input.device), scope.first_row(input.device)
            layer_key(keys, *in_memory, *at)
        again = Again(keys, where)
    recomputation.keep(layer.use, again)
    mask = dropout.Mask(keys.view(1, 3), (), (), 0, threshold)
    if layout.is_dtensor(input):
        found = dropout.drop_dtensor(_CLASS, input, mask, where.pieces, channels)
    else:
        pieces = layout.WHOLE
        if where.moves_elements():
            pieces = where.pieces(shape, [[(0, size)] for size in shape])
        found = dropout.drop(input, mask, pieces, channels)
    # last, so that a refused input is no use of its rows
    if scope is None:
        return found
    if torch.compiler.is_compiling():
        check_use_in_graph(layer, scope.label_index)
    elif real:
        where.check(layer, scope.label_index)
    return found


def _check_ready(layer: LayerName | None, unknown: bool, input: torch.Tensor) -> None:
    seeder = context.current(_CLASS)
    context.scope_of(seeder.place, _CLASS)
    if layer is None:
        raise RuntimeError(
            f"fastseed.{_CLASS}: the layer has no name: call fastseed.nn.convert(model)"
        )
    if unknown and not _holds_all_rows(input, seeder):
        raise RuntimeError(
            f"fastseed.{_CLASS}: {layer.name!r} would have the same mask on all of the "
            f"{seeder.data_world_size} ranks that divide the data: wrap the step in `with "
            "fastseed.nn.rows.of_micro_batch(count)`, or give fastseed.init the mesh of the model"
        )


def _holds_all_rows(input: torch.Tensor, seeder: Seeder) -> bool:
    """Return whether the ranks of an input are all those that divide the data."""
    if seeder.data_world_size == 1:
        return True
    if not layout.is_dtensor(input):
        return False
    mesh = input.device_mesh
    names = mesh.mesh_dim_names or ()
    data = [mesh.size(i) for i, name in enumerate(names) if name in seeder.job.data_over]
    return bool(mesh.size() >= seeder.world_size or math.prod(data) >= seeder.data_world_size)


class _Placed(NamedTuple):
    """The place of an input in the tensor that the whole batch would have."""

    dim: int | None
    rows: int  # of the batch in the input
    parts: int  # indices along ``dim`` that one row has
    row_elements: int  # from one row to the next; 0 without rows
    here: RowRange | None  # which rows of the batch they are; None: the first ones

    @staticmethod
    def of(shape: torch.Size, dim: int | None, here: RowRange | None) -> _Placed:
        if dim is None or len(shape) == 0:
            return _Placed(None, 1, 1, 0, here)
        if dim >= len(shape):
            rule = f"of more than {dim} dimensions (batch_dim)"
            raise validation.value_error(_CLASS, "input", rule, tuple(shape))
        size = shape[dim]
        count = size if here is None or here.count is None else here.count
        if count != size and size % count:
            rule = f"a multiple of the {count} rows of fastseed.nn.rows along dimension {dim}"
            raise validation.value_error(_CLASS, "input", rule, tuple(shape))
        parts = max(size // count, 1) if count else 1
        return _Placed(dim, count, parts, parts * math.prod(shape[dim + 1 :]), here)

    def moves_elements(self) -> bool:
        """Return whether the elements are not one run of the whole tensor."""
        if self.dim is None or self.here is None:
            return False
        return self.dim != 0 or self.here.step != 1

    def check(self, layer: LayerName, label_index: int) -> None:
        here, start, step = self.here, 0, 1
        if here is not None and self.dim is not None:
            start, step = here.start, here.step
            left = (here.total - 1 - start) // step + 1
            if self.rows > left:
                raise RuntimeError(
                    f"fastseed.{_CLASS}: {layer.name!r} is given {self.rows} rows, and {left} are "
                    f"left of {here.total} from row {start} on: check the arguments of "
                    "fastseed.nn.rows, and batch_dim of the layer"
                )
        taken = range(start, start + self.rows * step, step)
        check_use(layer, label_index, taken, self.row_elements)

    def pieces(
        self, shape: Sequence[int], indices: Sequence[list[layout.Run]]
    ) -> list[layout.Piece]:
        if not self.moves_elements():
            return layout.pieces(shape, indices)
        assert self.here is not None and self.dim is not None
        moved, step, parts = [], self.here.step, self.parts
        for first, count in indices[self.dim]:
            if step == 1:
                moved.append((first, count))
                continue
            for row in range(first // parts, (first + count - 1) // parts + 1):
                low = max(first, row * parts)
                high = min(first + count, (row + 1) * parts)
                moved.append((row * step * parts + low - row * parts, high - low))
        whole = [*shape[: self.dim], self.here.total * parts, *shape[self.dim + 1 :]]
        return layout.pieces(whole, [*indices[: self.dim], moved, *indices[self.dim + 1 :]])


class Again(NamedTuple):
    """What a use of a layer had, for its recomputation."""

    keys: torch.Tensor  # (3,)
    where: _Placed

"""Masks on four real ranks: any layout has those of one process, bit for bit."""

import copy

import pytest
import torch
import torch.distributed as dist
from helpers.parallel import layouts
from helpers.ranks import ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

import fastseed
from fastseed.derivation import context

SHAPE = (8, 4, 6)
WORLD = 4


def restart():
    """Begin the scope again; what one process masks is compared with what the ranks mask."""
    context.seeder.move(1, 0, 3)


def alone(layer, x):
    """Return what one process has."""
    restart()
    with fastseed.nn.rows(0, len(x)):
        out = layer(x)
    restart()
    return out


def gathered(part):
    parts = [torch.empty_like(part) for _ in range(WORLD)]
    dist.all_gather(parts, part.detach().contiguous())
    return parts


def make():
    """A layer and the masks of one process."""
    fastseed.init(42)
    layer = fastseed.nn.Dropout(0.3, name="block")
    return layer, alone(layer, torch.ones(SHAPE))


def mask_rows():
    """Rows in turn over the ranks, in two micro-batches."""
    layer, expected = make()
    count, whole = SHAPE[0] // WORLD // 2, torch.empty(SHAPE)
    for micro in range(2):
        rows = fastseed.nn.rows.of_micro_batch(count, micro, 2)
        with rows:
            parts = gathered(layer(torch.ones(count, *SHAPE[1:])))
        for rank, part in enumerate(parts):
            first = rows.value.start - dist.get_rank() + rank
            whole[first : first + count * WORLD : WORLD] = part
    assert whole.equal(expected)


def mask_dtensors(shape=SHAPE):
    layer, _ = make()
    expected = alone(layer, torch.ones(shape))
    for mesh, layout in layouts(shape):
        restart()
        x = distribute_tensor(torch.ones(shape), mesh, layout, src_data_rank=None)
        out = layer(x.requires_grad_())
        assert tuple(out.placements) == tuple(layout) and out.shape == x.shape
        out.sum().backward()
        assert x.grad.full_tensor().equal(out.full_tensor()), "the gradient repeats the mask"
        assert out.full_tensor().equal(expected), layout


def mask_uneven_dtensors():
    mask_dtensors((7, 5))


def mask_local_heads():
    """Local tensors of which each rank has some of dimension 1."""
    layer, expected = make()
    line = init_device_mesh("cpu", (WORLD,))
    fastseed.init(42, mesh={"tp": (dist.get_rank(), WORLD)})
    restart()
    fastseed.nn.shard_inputs(layer, line, [Shard(1)])
    out = layer(torch.ones(SHAPE[0], SHAPE[1] // WORLD, SHAPE[2]))
    assert torch.cat(gathered(out), 1).equal(expected)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(SHAPE[-1], SHAPE[-1]), nn.Dropout(0.3)

    def forward(self, x):
        return nn.functional.dropout(self.drop(self.linear(x)), 0.2, self.training)


def mask_sharded_models():
    """A converted model under FSDP2, each rank with its rows."""
    for steps in ([fastseed.nn.convert, fully_shard], [fully_shard, fastseed.nn.convert]):
        fastseed.init(42)
        torch.manual_seed(0)
        whole = nn.Sequential(Block(), Block())
        model = copy.deepcopy(whole)
        for step in steps:
            step(model)
        x, rows = torch.randn(SHAPE), slice(dist.get_rank(), None, WORLD)
        expected = alone(fastseed.nn.convert(whole), x)[rows]
        with fastseed.nn.rows.of_micro_batch(SHAPE[0] // WORLD):
            part = model(x[rows].contiguous())
        assert torch.allclose(part, expected, atol=1e-6)
        assert (part == 0).equal(expected == 0)
        part.sum().backward()


def refuse_sums():
    layer, _ = make()
    sums = DTensor.from_local(torch.zeros(SHAPE), init_device_mesh("cpu", (WORLD,)), [Partial()])
    with pytest.raises(ValueError, match=r"nn\.Dropout: tensor must have no placements"):
        layer(sums)


@pytest.mark.parametrize(
    "check",
    [
        *(mask_rows, mask_dtensors, mask_uneven_dtensors, mask_local_heads, mask_sharded_models),
        *(refuse_sums,),
    ],
)
def test_every_layout_has_the_masks_of_one_process(check):
    ranks(WORLD, check)

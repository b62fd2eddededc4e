"""All ranks start from the parameters and buffers of the first one."""

from unittest import mock

import pytest
import torch
import torch.distributed as dist
from elastic.test_slot_rank_errors import error_of_first_step
from helpers.ranks import ranks
from helpers.slot_jobs import Model, place, slots_of
from torch import nn

import fastseed
from fastseed.debug import digest
from fastseed.elastic import SlotGradients, arguments


class Mixed(Model):
    """Also tensors of many dtypes, without dimensions, elements, or gaps, and in other orders."""

    def __init__(self):
        super().__init__(norm=True)
        self.small = nn.Parameter(torch.randn(3, dtype=torch.bfloat16), requires_grad=False)
        self.single = nn.Parameter(torch.randn(()))
        self.across = nn.Parameter(torch.randn(3, 4).t())
        self.register_buffer("flags", torch.rand(5) > 0.5)
        self.register_buffer("none", torch.empty(0, 3))
        self.register_buffer("angles", torch.randn(3, dtype=torch.complex64))
        self.register_buffer("exact", torch.randn((), dtype=torch.float64))
        self.register_buffer("columns", torch.randn(4, 6)[:, ::2])
        self.register_buffer("number", torch.randint(9, ()))


def start_from_the_first(message):
    """Return digests before, at the first slot and after a step, and the messages of bytes."""
    torch.manual_seed(place()[0])
    model, before = Mixed(), None
    fastseed.init(42)
    fastseed.nn.convert(model)
    first = digest(model).hex
    gradients = SlotGradients(model, 4, broadcast=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        mock.patch.object(arguments, "_MESSAGE", message),
        mock.patch.object(dist, "broadcast", wraps=dist.broadcast) as broadcast,
    ):
        for step in range(2):
            fastseed.reseed(1, 0, step=step)
            for _, batch in gradients.step(slots_of(step, 4, gradients.own_slots)):
                before = before or digest(model).hex
                (model(batch).sum() + model.single + model.across.sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    sent = [call.args[0].dtype for call in broadcast.call_args_list].count(torch.uint8)
    return first, before, digest(model).hex, sent


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("message", "count"), [(25 * 2**20, 1), (100, 7)])
def test_all_ranks_start_from_the_first(message, count):
    alone = start_from_the_first(message)
    found = ranks(3, start_from_the_first, message)
    assert len({first for first, *_ in found}) == 3 and alone[3] == 0
    assert [rest for _, *rest in found] == [[alone[0], alone[2], count]] * 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("one more", "\"buffer 'seen'\" on ranks 0, 2 but \"parameter 'experts.2.weight'\" on"),
        ("dropout", "module 'dropout' is 'Dropout(p=0.3, inplace=False), training=True' on ranks"),
    ],
)
def test_a_broadcast_is_of_one_model(change, says):
    for found in ranks(3, error_of_first_step, change, True):
        assert says in found

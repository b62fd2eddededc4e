"""``slot`` and ``finish``: a step whose passes a framework calls one by one."""

import pytest
import torch
import torch.distributed as dist
from helpers.ranks import ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from fastseed.debug import digest
from fastseed.elastic import SlotGradients

WIDTH = 6
LAYOUTS = ["blocks", "deal", "sharded"]
sharded = pytest.mark.skipif(
    not hasattr(FSDPModule, "set_reduce_scatter_unused_params"),
    reason="fully_shard in slots needs torch 2.13",
)


def make(layout):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    if layout == "sharded" and dist.is_initialized():
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def data_of(slot):
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(slot))


def means(model):
    found = [p.grad for p in model.parameters()]
    return str(digest([getattr(g, "full_tensor", lambda g=g: g)() for g in found]))


def by_calls(layout, slots, skipped=(), weighted=False):
    """Two steps by single calls; return the digests of their means."""
    model = make(layout)
    gradients = SlotGradients(
        model, slots, assignment=layout if layout != "sharded" else None, bucket_mb=1e-4
    )
    found = []
    for _ in range(2):
        batch = None
        for _ in range(gradients.passes):
            with gradients.slot() as slot:
                batch = batch if slot.is_padding else data_of(slot.number)
                if slot.number in skipped:
                    slot.skip()
                    continue
                if weighted:
                    slot.weight = 1 + slot.number
                model(batch).sum().backward()
        gradients.finish()
        found.append(means(model))
        model.zero_grad()
    assert found[0] == found[1]
    return found[0]


def by_loop(slots):
    model = make("blocks")
    gradients = SlotGradients(model, slots)
    for _, batch in gradients.step(map(data_of, range(slots))):
        model(batch).sum().backward()
    return means(model)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("layout", [*LAYOUTS[:2], pytest.param("sharded", marks=sharded)])
def test_calls_give_what_the_loop_gives_on_any_number_of_ranks(layout, world):
    for slots in (5, 4, 3):
        assert {*ranks(world, by_calls, layout, slots)} == {by_loop(slots)}


def test_ranks_without_a_slot_finish_too():
    assert {*ranks(3, by_calls, "blocks", 2)} == {by_loop(2)}
    assert {*ranks(3, by_calls, "deal", 2)} == {by_loop(2)}


def passes_of(layout, slots):
    return SlotGradients(
        make(layout), slots, assignment=layout if layout != "sharded" else None
    ).passes


def test_passes_are_those_of_the_rank_or_of_all():
    assert ranks(3, passes_of, "blocks", 2) == [0, 1, 1]
    assert ranks(3, passes_of, "deal", 4) == [2, 1, 1]


@sharded
def test_every_rank_runs_the_passes_of_a_sharded_model():
    assert ranks(3, passes_of, "sharded", 4) == [2, 2, 2]


# ---------------------------------------------------------------- slots that are skipped


def mean_without(skipped, slots, weights=None):
    weights = weights or [1] * slots
    parts = []
    for slot in set(range(slots)) - {skipped}:
        model = make("blocks")
        model(data_of(slot)).sum().backward()
        parts.append([p.grad for p in model.parameters()])
    divisor = slots if weights == [1] * slots else sum(weights) - weights[skipped]
    return [sum(some).div(divisor) for some in zip(*parts, strict=True)]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_slot_that_is_skipped_counts_as_nothing(weighted):
    model = make("blocks")
    gradients = SlotGradients(model, 5)
    for slot, batch in gradients.step(map(data_of, range(5))):
        if slot.number == 3:
            slot.skip()
            continue
        if weighted:
            slot.weight = 1 + slot.number
        model(batch).sum().backward()
    weights = [1 + s for s in range(5)] if weighted else None
    for p, expected in zip(model.parameters(), mean_without(3, 5, weights), strict=True):
        torch.testing.assert_close(p.grad, expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_skipped_slots_are_the_same_on_any_number_of_ranks(weighted):
    for layout in LAYOUTS[:2]:
        assert {*ranks(2, by_calls, layout, 5, (3,), weighted)} == {
            by_calls("blocks", 5, (3,), weighted)
        }


def test_a_step_of_skipped_slots_has_no_gradients():
    model = make("blocks")
    gradients = SlotGradients(model, 2)
    for slot, _ in gradients.step(range(2)):
        slot.skip()
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("order", ["skip first", "backward first"])
def test_a_slot_is_skipped_or_has_a_backward_pass(order):
    model = make("blocks")
    gradients = SlotGradients(model, 2)
    says = "which is skipped" if order == "skip first" else "must be called before the backward"
    with pytest.raises(RuntimeError, match=says), gradients.slot() as slot:
        if order == "skip first":
            slot.skip()
        model(data_of(0)).sum().backward()
        slot.skip()
    gradients.discard()
    assert all(p.grad is None for p in model.parameters())


def skip_under_fully_shard():
    gradients = SlotGradients(make("sharded"), 2)
    try:
        with gradients.slot() as slot:
            slot.skip()
    except RuntimeError as error:
        return str(error)
    return ""


@sharded
def test_no_slot_is_skipped_under_fully_shard():
    for error in ranks(2, skip_under_fully_shard):
        assert "Slot.skip: must not be called under fully_shard" in error


# ---------------------------------------------------------------- calls in a wrong order


def too_few(gradients, model):
    with gradients.slot() as slot:
        model(data_of(slot.number)).sum().backward()
    gradients.finish()


def none(gradients, model):
    gradients.finish()


def too_many(gradients, model):
    for number in range(3):
        with gradients.slot():
            model(data_of(number)).sum().backward()


def nested(gradients, model):
    with gradients.slot(), gradients.slot():
        pass


def finish_inside(gradients, model):
    with gradients.slot():
        gradients.finish()


def discard_inside(gradients, model):
    with gradients.slot() as slot:
        model(data_of(slot.number)).sum().backward()
        gradients.discard()


def loop_inside(gradients, model):
    with gradients.slot() as slot:
        model(data_of(slot.number)).sum().backward()
        next(gradients.step(map(data_of, range(2))))


WRONG = {
    too_few: r"finish: a step must have 2 blocks .*; this rank has had 1$",
    none: r"finish: a step must have 2 blocks .*; this rank has had 0$",
    too_many: r"slot: a step must have 2 blocks .*; this rank has had 2$",
    nested: r"slot: a step must have .*; this rank has had 0, and is in the next",
    finish_inside: r"finish: a step must have .* and is in the next",
    discard_inside: r"a step must not be left, by discard\(\) or another step, in one of its slots",
    loop_inside: r"the last step is, or was left, in slot 0: its gradients are not complete",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_calls_in_a_wrong_order_leave_the_step(wrong):
    model = make("blocks")
    gradients = SlotGradients(model, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(RuntimeError, match=WRONG[wrong]):
        wrong(gradients, model)
    assert all(p.grad is None for p in model.parameters())
    if wrong is not discard_inside:
        with pytest.raises(RuntimeError, match="was left"):
            optimizer.step()
        with pytest.raises(RuntimeError, match="was left"), gradients.slot():
            pass
    gradients.discard()
    for number in range(2):
        with gradients.slot():
            model(data_of(number)).sum().backward()
    gradients.finish()
    assert means(model) == by_loop(2)


def test_an_exception_in_a_slot_leaves_the_step(caplog):
    model = make("blocks")
    gradients = SlotGradients(model, 2)
    with pytest.raises(ZeroDivisionError), gradients.slot():
        model(data_of(0)).sum().backward()
        raise ZeroDivisionError
    assert "a step was left in slot 0" in caplog.text
    with pytest.raises(RuntimeError, match="the last step is, or was left, in slot 0"):
        gradients.finish()
    gradients.discard()


def one_rank_finishes_early():
    model = make("blocks")
    gradients = SlotGradients(model, 4, group=dist.new_group())  # which is left in disorder
    try:
        for number in range(gradients.passes - (dist.get_rank() == 1)):
            with gradients.slot():
                model(data_of(number)).sum().backward()
        gradients.finish()
    except RuntimeError as error:
        return str(error)
    return ""


def test_a_rank_that_finishes_early_is_an_error_on_every_rank():
    first, second = ranks(2, one_rank_finishes_early)
    assert "rank 1 left the step" in first
    assert "this rank has had 1" in second

"""SlotGradients on several ranks: one digest of weights and optimizer state for any number."""

from unittest import mock

import pytest
import torch
import torch.distributed as dist
from helpers.loaders import Slots
from helpers.ranks import ranks
from helpers.slot_jobs import ROWS, WIDTH, make, slots_of
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

import fastseed
from fastseed.debug import digest
from fastseed.elastic import SlotGradients, exchange

STEPS = 4


pytestmark = pytest.mark.usefixtures("one_thread")


def state_of(model, optimizer):
    return str(digest([model.state_dict(), optimizer.state_dict()["state"]]))


def train(slots=8, norm=False, weighted=False, bucket_mb=1e-4, assignment=None):
    """Train, and return a digest of everything."""
    model = make(norm)
    gradients = SlotGradients(model, slots, assignment=assignment, bucket_mb=bucket_mb)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        fastseed.reseed(1, 0, step=step)
        for slot, batch in gradients.step(slots_of(step, slots, gradients.own_slots)):
            loss = model(batch).square()
            if weighted:
                slot.weight = 1 + slot.number % 3
            (loss.sum() if weighted else loss.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert model.unused not in optimizer.state
    return state_of(model, optimizer)


def train_on_dataset(assignment="blocks", saved=None, stop=None):
    """Order, slots, dropout and gradients together; with ``stop``, return the state after it."""
    model = make()
    gradients = SlotGradients(model, 6, assignment=assignment)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.randn(50, WIDTH, generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)
    steps = fastseed.data.steps(loader, epochs=1, task=1, slots=gradients)
    if saved is not None:
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        steps.load_state_dict(saved[2])
    for _, step, batches in steps:
        for _, batch in gradients.step(batch.clone() for batch in batches):
            model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == stop:
            return model.state_dict(), optimizer.state_dict(), steps.state_dict()
    found = steps.lineage().at(0, 0)
    where = dict(zip(found.slot.tolist(), found["rank"].tolist(), strict=True))
    return state_of(model, optimizer), where


def digest_on_dataset():
    return train_on_dataset()[0]


CASES = {
    "base": (train, ()),
    "few": (train, (2, True)),
    "odd": (train, (5, True, True)),
    "buckets": (train, (8, False, False, 25)),
    "dataset": (digest_on_dataset, ()),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_any_number_of_ranks_has_the_weights_of_one(world, case):
    train, arguments = CASES[case]
    assert ranks(world, train, *arguments) == [train(*arguments)] * world


@pytest.mark.parametrize(
    ("world", "slots"),
    [
        (3, 8),
        *(pytest.param(*p, marks=pytest.mark.slow) for p in [(4, 3), (4, 1), (2, 7), (4, 12)]),
    ],
)
def test_both_assignments_have_the_same_bits(world, slots):
    expected = train(slots, True, True)
    for assignment in ("blocks", "deal"):
        found = ranks(world, train, slots, True, True, 1e-4, assignment)
        assert found == [expected] * world


def test_a_job_resumes_with_another_assignment_on_other_ranks():
    whole, _ = train_on_dataset()
    saved = ranks(3, train_on_dataset, "deal", None, 1)[0]
    found, where = ranks(2, train_on_dataset, "blocks", saved)[0]
    assert found == whole
    assert where == {0: 0, 1: 1, 2: 2, 3: 0, 4: 1, 5: 2}  # of the first step: three ranks
    saved = ranks(3, train_on_dataset, "blocks", None, 1)[0]
    found, where = ranks(2, train_on_dataset, "deal", saved)[0]
    assert found == whole
    assert where == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}


def error_of_other_batches(own, others):
    model, data = make(), torch.randn(50, WIDTH)
    gradients = SlotGradients(model, 4, assignment=own)
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)
    _, _, batches = next(iter(fastseed.data.steps(loader, 1, slots=Slots(4, others))))
    try:
        for _, batch in gradients.step(batch for batch in batches):
            model(batch).square().mean().backward()
    except ValueError as error:
        return str(error)
    return "no error"


def test_batches_of_other_slots_are_an_error_that_names_both():
    deal, blocks = ["range(0, 4, 2)", "range(1, 4, 2)"], ["range(0, 2)", "range(2, 4)"]
    for own, others, mine, theirs in [
        ("blocks", "deal", blocks, deal),
        ("deal", "blocks", deal, blocks),
    ]:
        for rank, found in enumerate(ranks(2, error_of_other_batches, own, others)):
            assert f"those of slots in {mine[rank]} for rank {rank} of 2, got those of" in found
            assert f"in {theirs[rank]}: give data.steps slots=gradients, this object" in found


def train_in_groups():
    """The first rank alone, and the others together."""
    world = dist.get_world_size()
    groups = [dist.new_group([0]), dist.new_group(list(range(1, world)))]
    group = groups[dist.get_rank() > 0]
    if dist.get_world_size(group) > 1:
        group = DeviceMesh.from_group(group, "cpu")
    model = make()
    data = torch.randn(5, ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    gradients = SlotGradients(model, 5, group=group)
    for _, batch in gradients.step([data[s] for s in gradients.own_slots]):
        model(batch).square().mean().backward()
    return str(digest([p.grad for p in model.parameters() if p.grad is not None]))


def test_groups_train_for_themselves():
    assert len(set(ranks(3, train_in_groups))) == 1


def count_early_buckets():
    """Return how many buckets were sent before the backward pass had its last gradient, and all."""
    model, events, world = make(), [], dist.get_world_size()
    model.embed.weight.register_post_accumulate_grad_hook(lambda p: events.append("last"))
    gradients = SlotGradients(model, world, bucket_mb=1e-6)
    real = dist.all_to_all_single

    def send(*args, **more):
        events.append("sent")
        return real(*args, **more)

    with mock.patch.object(dist, "all_to_all_single", send):
        for _, batch in gradients.step(slots_of(0, world)):
            batch[0, 0] = -1.0  # the first expert; what it leaves out would delay other buckets
            (model(batch).sum() + model.unused.sum() + model.experts[1](batch).sum()).backward()
    return events.index("last"), events.count("sent")


def test_buckets_are_sent_during_the_backward_pass():
    for before_the_last, sent in ranks(2, count_early_buckets):
        assert before_the_last == sent - 2 > 3  # the rest wait for the first layer


def count_messages():
    """Return the collectives of each of four steps, with their bytes, and the buffers afterwards.

    ``late`` changes on the last rank alone, from the third step on.
    """
    model, messages = nn.Sequential(nn.Linear(WIDTH, 1), nn.BatchNorm1d(1, affine=False)), []
    model.register_buffer("table", torch.ones(1000))
    model.register_buffer("late", torch.zeros(10))
    model.register_buffer("seen", torch.tensor(0, dtype=torch.int32))
    gradients = SlotGradients(model, 4)

    def counted(name, call):
        def count(first, *more, **options):
            messages[-1].append((name, first.nbytes))
            return call(first, *more, **options)

        return count

    with (
        mock.patch.object(dist, "all_to_all_single", counted("sums", dist.all_to_all_single)),
        mock.patch.object(dist, "all_reduce", counted("reduce", dist.all_reduce)),
        mock.patch.object(exchange, "start_gather", counted("gather", exchange.start_gather)),
    ):
        for step in range(4):
            messages.append([])
            for slot, batch in gradients.step(slots_of(step, 4, gradients.own_slots)):
                model(batch).sum().backward()
                model.seen += 1
                if step > 1 and slot.number > 1:
                    model.late += slot.number
            model.zero_grad()
    return messages, model.late.tolist(), model.table.sum().item(), model.seen.item()


def test_buffers_are_sent_in_steps_that_change_them():
    for messages, late, table, seen in ranks(3, count_messages):
        assert late == [2.5] * 10  # (2 + 3) / 4 in each of two steps
        assert table == 1000 and seen == 4
        record = 8 * (
            4 + 2 + 6 + 3 * 3
        )  # weights, used parameters, changed buffers, three of each rank
        counters = 2 * (8 + 4)  # the least and the greatest byte, of both in one message
        gradient, statistics, more = 4 * 9, 4 * 3, 4 * 12  # with what fills up three pieces
        for step, floats in enumerate([statistics, statistics, more, more]):
            assert messages[step] == [
                ("sums", gradient),
                ("reduce", record),
                ("reduce", counters),
                ("sums", floats),
                ("gather", floats),
                ("gather", gradient),
            ]

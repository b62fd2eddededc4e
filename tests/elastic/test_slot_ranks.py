"""SlotGradients on several ranks: one digest of weights and optimizer state for any number."""

from __future__ import annotations

import contextlib
import os
import time
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from helpers.loaders import Slots
from helpers.ranks import ranks
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

import fastseed
from fastseed.debug import digest
from fastseed.distributed import rendezvous
from fastseed.elastic import SlotGradients, exchange, peers

STEPS, ROWS, WIDTH = 4, 4, 6


@pytest.fixture(autouse=True)
def one_thread():
    """As ranks have; kernels of several threads may add in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Model(nn.Module):
    """Dropout, two experts, a tied head, a frozen and an unused parameter, and maybe BatchNorm."""

    def __init__(self, norm=False):
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm = nn.BatchNorm1d(WIDTH) if norm else nn.LayerNorm(WIDTH)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.full((WIDTH,), 0.5), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):
        hidden = self.norm(self.embed(x) * self.frozen)
        return self.head(self.dropout(self.experts[int(x[0, 0] > 0)](hidden).tanh()))


def make(norm=False):
    fastseed.init(42)
    torch.manual_seed(0)
    return fastseed.nn.convert(Model(norm))


def place():
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def slots_of(step, slots, own=None):
    rank, world = place()
    data = torch.randn(slots, ROWS, WIDTH, generator=torch.Generator().manual_seed(step))
    return [data[s] for s in (range(rank, slots, world) if own is None else own)]


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


def train_with_all_reduce(slots=8):
    """As train, with the gradients of the slots of a rank added, and then those of the ranks."""
    (rank, world), model = place(), make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        fastseed.reseed(1, 0, step=step)
        for j, batch in enumerate(slots_of(step, slots)):
            with fastseed.nn.rows(j * world + rank, slots, count=1):
                (model(batch).square().mean() / slots).backward()
        for p in model.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            if world > 1:
                dist.all_reduce(p.grad)
        optimizer.step()
        optimizer.zero_grad()
    return state_of(model, optimizer)


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
        for _, batch in gradients.step(batches):
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


def test_all_reduce_depends_on_the_ranks():
    (found, again) = ranks(2, train_with_all_reduce)
    assert found == again != train_with_all_reduce()


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


# ---------------------------------------------------------------- what is sent, and when


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


# ---------------------------------------------------------------- errors


class Special(torch.Tensor):
    """Of a user, with memory."""


def differ(change, rank, model):
    """Let one rank have another order, number, value or setting."""
    if rank != 1:
        return
    if change == "order":
        model.norm = model._modules.pop("norm")
    elif change == "one more":
        model.experts.append(nn.Linear(2, 2))
    elif change == "weight":
        model.experts[1].weight[0, 0] += 1
        model.frozen += 1
    elif change == "buffer":
        model.norm.running_var += 1
    elif change == "dropout":
        model.dropout.p = 0.2
    elif change == "threads":
        torch.set_num_threads(2)
    elif change == "branch of MKL":
        os.environ["MKL_CBWR"] = "COMPATIBLE"


def error_of_first_step(change, broadcast=False):
    (rank, world), model = place(), make(norm=True)
    with torch.no_grad():
        differ(change, rank, model)
    model.register_buffer("seen", torch.tensor(0))
    slots = {"slots": world + 1, "no slots": 0}.get(change, world) if rank == 1 else world
    try:
        broadcast = broadcast or (change == "broadcast" and rank == 1)
        gradients = SlotGradients(model, slots, broadcast=broadcast)
        weights = digest(model.state_dict()).hex
        for slot, batch in gradients.step(slots_of(0, slots, gradients.own_slots)):
            with fastseed.nn.label("first step"):
                model(batch).sum().backward()
            if change == "counter":
                model.seen += slot.number
    except (ValueError, RuntimeError) as error:
        assert model.seen == 0 and all(p.grad is None for p in model.parameters())
        assert change == "no slots" or weights == digest(model.state_dict()).hex
        return str(error)
    return "no error"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("slots", "slots is 3 on ranks 0, 2 but 4 on rank 1"),
        ("broadcast", "broadcast is False on ranks 0, 2 but True on rank 1"),
        ("threads", "threads is 1 on ranks 0, 2 but 2 on rank 1 (set OMP_NUM_THREADS"),
        ("branch of MKL", "on ranks 0, 2 but 'COMPATIBLE' on rank 1 (set it, or call"),
        ("order", "number 3 of the tensors and modules, in order, is \"parameter 'norm.weight'\""),
        ("one more", "\"buffer 'seen'\" on ranks 0, 2 but \"parameter 'experts.2.weight'\" on"),
        ("weight", "parameter 'frozen' is"),  # the first one in the model's order
        ("buffer", "buffer 'norm.running_var' is"),
        (
            "dropout",
            "module 'dropout' is 'Dropout(p=0.3, inplace=False), training=True' on ranks",
        ),
    ],
)
def test_ranks_that_differ_are_named_in_the_first_step(change, says):
    for found in ranks(3, error_of_first_step, change):
        assert found.startswith("fastseed.elastic.SlotGradients: all ranks must agree, but ")
        assert says in found and "on rank 1" in found


def error_of_small_model(change, broadcast=False):
    """The step in which ranks that differ hear of it, and their error."""
    rank, _ = place()
    torch.manual_seed(rank if broadcast else 0)
    model = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.MultiheadAttention(2, 1))
    value = torch.full((2,), rank if change == "subclass" else 0.0)
    model.special = nn.Parameter(value.as_subclass(Special), requires_grad=False)
    if broadcast:
        del model.special  # cannot be sent
    if rank == 1 and change == "setting":
        model[1].approximate = "tanh"
    if rank == 1 and change == "attention":
        model[2].dropout = 0.1
    gradients = SlotGradients(model, 2, broadcast=broadcast)
    with mock.patch("fastseed.elastic.slots._COMPARED", 3):
        for step in range(1, 8):
            try:
                for _ in gradients.step([None]):
                    model[1](model[0].weight).sum().backward()
            except RuntimeError as error:
                return step, str(error)
            model.zero_grad()
            if change == "later" and rank == 1 and step == 4:
                model[0].weight.data += 1
    return step, "no error"


@pytest.mark.parametrize(
    ("change", "step", "says"),
    [
        ("nothing", 7, "no error"),
        ("setting", 1, "module '1' is \"GELU(approximate='none'), training=True\" on rank 0 but"),
        ("attention", 1, "training=True, dropout=0.0' on rank 0 but"),
        ("subclass", 1, "parameter 'special' is"),
        ("later", 6, "parameter '0.weight' is"),
    ],
)
def test_settings_and_values_are_compared_in_the_first_step_and_again(change, step, says):
    for at, found in ranks(2, error_of_small_model, change):
        assert at == step and says in found


@pytest.mark.parametrize(("change", "step"), [("nothing", 7), ("later", 6)])
def test_a_model_that_was_sent_is_compared_later(change, step):
    for at, found in ranks(2, error_of_small_model, change, True):
        assert at == step and ("parameter '0.weight' is" in found) == (step == 6)


def go_on_after(problem):
    """What each of four steps leaves, where the first rank has a problem in the second one."""
    (rank, _), model = place(), make()
    gradients, found = SlotGradients(model, 4, group=dist.new_group()), []
    finish = gradients._collector.finish
    for step in range(4):
        has_problem = rank == 0 and step == 1

        def interrupted(*given, fails=has_problem and problem == "an interrupt at the end"):
            finish(*given)
            if fails:
                raise KeyboardInterrupt

        gradients._collector.finish = interrupted
        iterator = gradients.step(slots_of(step, 4, gradients.own_slots))
        try:
            for slot, batch in iterator:
                if has_problem and slot.number == 0 and problem != "an interrupt at the end":
                    raise ValueError(problem)
                with fastseed.nn.label(f"step {step}"):
                    model(batch).sum().backward()
            found.append("a mean")
        except (ValueError, RuntimeError, KeyboardInterrupt) as error:
            assert all(p.grad is None for p in model.parameters())
            found.append(str(error))
            gradients.discard()
        model.zero_grad()
    return found


@pytest.mark.parametrize("problem", ["a bad sample", "an interrupt at the end"])
def test_a_rank_that_leaves_a_step_and_goes_on_is_an_error_on_all_ranks(problem):
    first, second = ranks(2, go_on_after, problem)
    assert first[0] == second[0] == "a mean"
    is_late = problem == "an interrupt at the end"
    assert (second[1] == "a mean") == is_late  # it had ended there
    mixed = "all ranks must be in one step, but rank 0 of the group left an earlier one and went on"
    for text in first[2:] + second[1 + is_late :]:
        assert mixed in text or "left the step" in text or "did not call it" in text
    assert mixed in first[2] or not is_late


def errors_where_one_does_not_answer():
    """The error of a step that the last of three ranks does not run, and which fails on one."""
    (rank, _), model = place(), make()
    gradients = SlotGradients(model, 3, group=dist.new_group())
    is_done, ended = peers._is_done, []

    def fails(work):
        if not ended:
            ended.append(is_done(work))
            raise RuntimeError("Connection closed by peer")
        return is_done(work)

    def run():
        for _, batch in gradients.step(slots_of(0, 3, gradients.own_slots)):
            if rank == 2:
                time.sleep(8)  # as one that is stopped
                return
            with fastseed.nn.label("step"):
                model(batch).sum().backward()

    with (
        mock.patch.object(rendezvous, "GRACE", 4.0),
        mock.patch.object(peers, "_is_done", fails if rank == 1 else is_done),
        contextlib.nullcontext() if rank == 2 else pytest.raises(RuntimeError) as caught,
    ):
        run()
    return str(caught and caught.value)


def test_the_rank_that_does_not_answer_is_named_and_not_those_that_left_because_of_it():
    for text in ranks(3, errors_where_one_does_not_answer)[:2]:
        assert "SlotGradients.step: rank 2 did not call it within 4 seconds" in text
        assert "Connection closed by peer" in text


def hear_of_a_rank_in_time(how):
    """Seconds until a rank hears that another one does not come, whose iterator is kept."""
    (rank, _), model = place(), make()
    gradients = SlotGradients(model, 2, group=dist.new_group())
    iterator = gradients.step(slots_of(0, 2, gradients.own_slots))
    _, batch = next(iterator)
    if rank == 0:
        if how == "discard":
            gradients.discard()
        else:
            with pytest.raises(RuntimeError, match="the last step is, or was left, in slot 0: "):
                next(gradients.step([batch]))
        time.sleep(5)
        return None
    start = time.monotonic()
    with fastseed.nn.label("step"):
        model(batch).sum().backward()
    with pytest.raises(RuntimeError, match="rank 0 left the step in slot 0, and this rank waits"):
        next(iterator)
    return time.monotonic() - start


@pytest.mark.parametrize("how", ["discard", "another step"])
def test_a_rank_that_keeps_the_iterator_of_a_step_is_heard_of_at_once(how):
    assert ranks(2, hear_of_a_rank_in_time, how)[1] < 5


def test_a_rank_that_refuses_an_argument_is_named_on_the_others():
    for rank, found in enumerate(ranks(3, error_of_first_step, "no slots")):
        own = "fastseed.elastic.SlotGradients: slots must be in"
        others = "fastseed.elastic.SlotGradients: all ranks must agree, but rank 1 failed: "
        assert found.startswith(own if rank == 1 else others + own)


def test_a_counter_that_depends_on_the_slot_is_an_error_on_all_ranks():
    """Within none of the ranks slots differ."""
    for found in ranks(3, error_of_first_step, "counter"):
        assert "different values in the buffers ['seen']" in found

"""SlotGradients on several ranks: what differs, ends or does not answer is named on all."""

import contextlib
import os
import re
import signal
import time
from datetime import timedelta
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from helpers.processes import alone
from helpers.ranks import answers_of_the_living, ranks
from helpers.slot_jobs import make, place, slots_of
from torch import nn

import fastseed
from fastseed.debug import digest
from fastseed.distributed import rendezvous
from fastseed.elastic import SlotGradients, exchange, peers


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


def error_of_first_step(change):
    (rank, world), model = place(), make(norm=True)
    with torch.no_grad():
        differ(change, rank, model)
    model.register_buffer("seen", torch.tensor(0))
    slots = {"slots": world + 1, "no slots": 0}.get(change, world) if rank == 1 else world
    try:
        gradients = SlotGradients(model, slots)
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
        ("threads", "threads is 1 on ranks 0, 2 but 2 on rank 1 (set OMP_NUM_THREADS"),
        ("branch of MKL", "on ranks 0, 2 but 'COMPATIBLE' on rank 1 (set it, or call"),
        ("order", "number 3 of the tensors and modules, in order, is \"parameter 'norm.weight'\""),
        ("one more", "\"buffer 'seen'\" on ranks 0, 2 but \"parameter 'experts.2.weight'\" on"),
        ("weight", "parameter 'frozen' is"),  # the first one in the model's order
        ("buffer", "buffer 'norm.running_var' is"),
        ("dropout", "module 'dropout' is 'Dropout(p=0.3, inplace=False), training=True' on ranks"),
    ],
)
def test_ranks_that_differ_are_named_in_the_first_step(change, says):
    for found in ranks(3, error_of_first_step, change):
        assert found.startswith("fastseed.elastic.SlotGradients: all ranks must agree, but ")
        assert says in found and "on rank 1" in found


def error_of_small_model(change):
    """The step in which ranks that differ hear of it, and their error."""
    rank, _ = place()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.MultiheadAttention(2, 1))
    value = torch.full((2,), rank if change == "subclass" else 0.0)
    model.special = nn.Parameter(value.as_subclass(Special), requires_grad=False)
    if rank == 1 and change == "setting":
        model[1].approximate = "tanh"
    if rank == 1 and change == "attention":
        model[2].dropout = 0.1
    gradients = SlotGradients(model, 2)
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
                return dist.barrier()  # until the others have their errors, as one that is stopped
            with fastseed.nn.label("step"):
                model(batch).sum().backward()

    with (
        mock.patch.object(rendezvous, "GRACE", 3.0),
        mock.patch.object(peers, "_is_done", fails if rank == 1 else is_done),
        contextlib.nullcontext() if rank == 2 else pytest.raises(RuntimeError) as caught,
    ):
        run()
    if rank != 2:
        dist.barrier()
    return str(caught and caught.value)


def test_the_rank_that_does_not_answer_is_named_and_not_those_that_left_because_of_it():
    for text in ranks(3, errors_where_one_does_not_answer)[:2]:
        assert "SlotGradients.step: rank 2 did not call it within 3 seconds" in text
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
        dist.barrier()  # until the other one has heard
        return None
    start = time.monotonic()
    with fastseed.nn.label("step"):
        model(batch).sum().backward()
    with pytest.raises(RuntimeError, match="rank 0 left the step in slot 0, and this rank waits"):
        next(iterator)
    dist.barrier()
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


PHASES = {  # the rank that is lost, and where: in which call of which function of its step
    "before its first slot": (2, None, "batch", 1),
    "in its block": (2, None, "batch", 2),
    "in the all-to-all": (2, dist, "all_to_all_single", 3),
    "in the record of the step": (2, dist, "all_reduce", 1),
    "in the counters": (2, dist, "all_reduce", 2),
    "in the all-to-all of buffers": (2, dist, "all_to_all_single", 8),
    "before the means of buffers are gathered": (2, exchange, "start_gather", 1),
    "while means of gradients are gathered": (2, exchange, "start_gather", 4),
}


def lost_at(how, count, call):
    """Return a function whose ``count``-th call ends or stops this process."""
    calls = iter(range(1, 1000))

    def counted(*given, **more):
        if next(calls) == count:
            time.sleep(0.5)  # what was sent before arrives
            os.kill(os.getpid(), getattr(signal, how))
        return call(*given, **more)

    return counted


def error_of_step(job):
    """Return the error of a step in which a rank is lost; the model must be that of before."""
    rendezvous.GRACE, rank, (phase, how) = 3.0, dist.get_rank(), job
    fastseed.init(42)
    lost, module, name, count = PHASES[phase]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    group = dist.new_group(timeout=timedelta(seconds=3))
    gradients = SlotGradients(model, 6, group=group, bucket_mb=1e-6)

    def step(batch=lambda: torch.randn(2, 4)):
        for _, x in gradients.step(batch() for _ in gradients.own_slots):
            model(x).sum().backward()

    step()
    model.zero_grad()
    before = [tensor.clone() for tensor in model.state_dict().values()]
    dist.barrier()
    try:
        if rank != lost:
            step()
        elif module is None:
            step(lost_at(how, count, lambda: torch.randn(2, 4)))
        else:
            with mock.patch.object(module, name, lost_at(how, count, getattr(module, name))):
                step()
        return "no error"
    except RuntimeError as error:
        after = model.state_dict().values()
        is_whole = all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        is_whole &= all(p.grad is None for p in model.parameters())
        return str(error) if is_whole else "half applied"


def errors_of_all_phases():
    jobs = {f"{p}, {how}": (2, (p, how)) for p in PHASES for how in ("SIGKILL", "SIGSTOP")}
    return answers_of_the_living(3, error_of_step, jobs, limit=60)


@pytest.mark.slow
def test_a_rank_lost_in_any_phase_of_a_step_is_named_and_nothing_is_half_applied():
    for where, messages in alone(errors_of_all_phases).items():
        (lost,) = {0, 1, 2} - {*messages}
        for text in messages.values():
            # Where the machine is busy, the other rank may come late, too.
            late = (
                rf"fastseed\.elastic\.SlotGradients\.step: ranks? ([012], )*{lost}(, \d)? did not"
            )
            assert re.match(late, text), (where, text)

"""SlotGradients used wrongly: an error that says how, and a model as it was before."""

import contextlib
import gc
import logging

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.optimizer import _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint

from fastseed.elastic import SlotGradients
from fastseed.elastic.tree import TreeSum

V = 3


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    return model, SlotGradients(model, V), list(torch.randn(V, 4, 2))


def step(model, gradients, data):
    for _, batch in gradients.step(data):
        model(batch).sum().backward()


@contextlib.contextmanager
def refused(model, match, error=RuntimeError):
    """The block raises, and the model has the state and the gradients of before."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    had = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    with pytest.raises(error, match=match):
        yield
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for p, grad in zip(model.parameters(), had, strict=True):
        assert p.grad is None if grad is None else torch.equal(p.grad, grad)


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((make()[0], 0), ValueError, r"slots must be in \[1, 16777216\], got 0"),
        ((nn.ReLU(), 1), ValueError, "model must be a module with parameters that require"),
        ((nn.Linear(1, 1).requires_grad_(False), 1), ValueError, "that require a gradient"),
        ((nn.Linear(1, 1, dtype=torch.complex64), 1), ValueError, r"here: 'weight'"),
        ((nn.Sequential(nn.SyncBatchNorm(3)), 1), ValueError, "without SyncBatchNorm.*'0'"),
        ((nn.Linear(1, 1), 1, "all"), TypeError, "group must be a process group, a mesh"),
    ],
)
def test_arguments_are_checked(arguments, error, match):
    model, slots, *group = arguments
    with pytest.raises(error, match=rf"^fastseed\.elastic\.SlotGradients: .*{match}"):
        SlotGradients(model, slots, group=group[0] if group else None)


def test_wrapped_models_are_refused_by_name(monkeypatch):
    wrapped = DistributedDataParallel.__new__(DistributedDataParallel)
    nn.Module.__init__(wrapped)
    with pytest.raises(TypeError, match="model must be without DistributedDataParallel"):
        SlotGradients(nn.Sequential(wrapped), 1)
    SlotGradients(DataParallel(nn.Linear(1, 1)), 1)  # the gradients are those of the module


def test_what_is_no_model_or_no_batches_is_refused():
    with pytest.raises(ValueError, match="model must be without lazy modules"):
        SlotGradients(nn.LazyLinear(3), 2)
    gradients = SlotGradients(nn.Linear(1, 1), 1)
    with pytest.raises(TypeError, match="batches must be iterable, got 5 of type int"):
        next(gradients.step(5))


def test_a_model_of_inference_mode_is_refused():
    with torch.inference_mode():
        model = nn.Linear(2, 2)
    with pytest.raises(
        ValueError, match=r"model must be .* and made outside of torch.inference_mode"
    ):
        SlotGradients(model, V)


def test_several_ranks_need_a_process_group(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"call torch\.distributed\.init_process_group first"):
        SlotGradients(nn.Linear(1, 1), 1)


@pytest.mark.parametrize(
    ("weights", "match"),
    [((1, None, 1), r"for all slots of a step or for none, got \[1.0, None, 1.0\]"),
     ((0, 0, 0), "above 0 for some slot")],
)  # fmt: skip
def test_weights_have_a_mean(weights, match):
    model, gradients, data = make()
    with refused(model, match, ValueError):
        for slot, batch in gradients.step(data):
            model(batch).sum().backward()
            if weights[slot.number] is not None:
                slot.weight = weights[slot.number]


# ---------------------------------------------------------------- the loop


def test_a_slot_without_a_backward_pass_is_an_error():
    model, gradients, data = make()
    with refused(model, "slot 1 has no backward pass"):
        for slot, batch in gradients.step(data):
            if slot.number != 1:
                model(batch).sum().backward()


@pytest.mark.parametrize(("count", "found"), [(2, "none for slot 2"), (4, "more"), (0, "slot 0")])
def test_the_number_of_batches_is_that_of_the_slots(count, found):
    model, gradients, _ = make()
    rule = rf"batches must be 3 micro-batches, .* rank 0 of 1, got .*{found}"
    with refused(model, rule, ValueError):
        step(model, gradients, list(torch.randn(count, 4, 2)))


def test_a_second_backward_in_a_slot_is_an_error():
    model, gradients, data = make()
    with refused(model, "'2.bias' gets a second gradient in slot 0"):
        for _, batch in gradients.step(data):
            model(batch).sum().backward()
            model[2](torch.ones(1, 3)).sum().backward()


def test_a_module_in_two_reentrant_checkpoints_is_an_error():
    model = nn.Linear(2, 2)
    gradients = SlotGradients(model, 1)
    with refused(model, "gets a second gradient in slot 0.*use_reentrant=False"):
        for _, batch in gradients.step([torch.ones(1, 2, requires_grad=True)]):
            hidden = checkpoint(model, batch, use_reentrant=True)
            checkpoint(model, hidden, use_reentrant=True).sum().backward()
    gradients.discard()
    for _, batch in gradients.step([torch.ones(1, 2)]):
        hidden = checkpoint(model, batch, use_reentrant=False)
        checkpoint(model, hidden, use_reentrant=False).sum().backward()
    assert model.weight.grad is not None


@pytest.mark.parametrize("before", ["nothing", "a step", "a step that was left"])
def test_a_backward_outside_of_a_slot_is_an_error(before):
    model, gradients, data = make()
    if before == "a step":
        step(model, gradients, data)
    elif before == "a step that was left":
        with contextlib.closing(gradients.step(data)) as slots:
            next(slots)
        gradients.discard()
    loss = model.eval()(data[0]).sum()
    with refused(model, "a backward pass reaches '2.bias' outside of a slot"):
        loss.backward()


def test_two_objects_for_one_model_are_an_error():
    model, gradients, data = make()
    other = SlotGradients(model, V)
    with refused(model, "outside of a slot.*a model has one SlotGradients at a time"):
        step(model, gradients, data)
    del other
    gc.collect()  # the traceback of the error may hold it
    gradients.discard()
    step(model, gradients, data)


def test_a_gradient_at_the_start_is_an_error():
    model, gradients, data = make()
    step(model, gradients, data)
    model.zero_grad(set_to_none=False)
    with refused(model, r"'0.weight' has a gradient at the start.* with set_to_none=True"):
        step(model, gradients, data)
    model.zero_grad()
    step(model, gradients, data)


def test_a_step_that_is_left_has_no_gradients_and_is_not_forgotten(caplog):
    model, gradients, data = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with caplog.at_level(logging.WARNING, logger="fastseed"):
        for slot, batch in gradients.step(data):
            model(batch).sum().backward()
            if slot.number == 1:
                break
    assert "a step was left in slot 1; it has no gradients" in caplog.text
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    with refused(model, r"is, or was left, in slot 1: .* call discard\(\) on every rank"):
        step(model, gradients, data)
    optimizer = torch.optim.SGD(model.parameters())
    with refused(model, "an optimizer must step after the last slot.* was left, in slot 1"):
        optimizer.step()
    torch.optim.SGD(nn.Linear(1, 1).parameters()).step()  # of another model
    gradients.discard()
    optimizer.step()
    step(model, gradients, data)
    means = [p.grad for p in model.parameters()]
    fresh, other, _ = make()
    step(fresh, other, data)
    assert all(torch.equal(p.grad, g) for p, g in zip(fresh.parameters(), means, strict=True))


def test_objects_that_are_dropped_in_a_step_leave_no_hook():
    gc.collect()  # what other tests left
    before = len(_global_optimizer_pre_hooks)
    for _ in range(3):
        model, gradients, data = make()
        step(model, gradients, data)
        model.zero_grad()
        iterator = gradients.step(data)
        next(iterator)
        assert len(_global_optimizer_pre_hooks) == before + 1
        del model, gradients, iterator
        gc.collect()
    assert len(_global_optimizer_pre_hooks) == before


@pytest.mark.parametrize("slots", [7, 8])
@pytest.mark.parametrize("name", ["buffer", "push", "result", "mean", "recycle"])
def test_an_error_in_the_addition_leaves_no_memory_twice(name, slots, monkeypatch):
    whole, _ = train_with_an_error(name, slots, 0, monkeypatch)
    for number in range(1, 40):
        found, calls = train_with_an_error(name, slots, number, monkeypatch)
        assert found.count(None) == (calls >= number)
        for mean, expected in zip(found, whole, strict=True):
            assert mean is None or torch.equal(mean, expected)
        if calls < number:
            break
    assert number > 3 or (name, slots) == ("recycle", 7)  # whose last leaf is no pair


def train_with_an_error(name, slots, number, monkeypatch):
    """The means of four steps, and None where the call ``number`` of a sum was interrupted."""
    model = nn.Linear(3, 2)
    nn.init.ones_(model.weight)
    gradients, calls, found, call = SlotGradients(model, slots), 0, [], getattr(TreeSum, name)

    def interrupted(*given, **more):
        nonlocal calls
        calls += 1
        result = call(*given, **more)
        if calls == number:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(TreeSum, name, interrupted)
        for at in range(4):
            try:
                step(model, gradients, torch.arange(at, 6.0 * slots + at).view(-1, 2, 3))
                found.append(model.weight.grad.clone())
                model.zero_grad()
            except KeyboardInterrupt:
                gradients.discard()
                found.append(None)
    return found, calls


def test_an_iterator_that_is_left_does_not_end_the_next_step():
    model, gradients, data = make()
    left = gradients.step(data)
    next(left)
    gradients.discard()
    for slot, batch in gradients.step(data):
        model(batch).sum().backward()
        if slot.number == 1:
            left.close()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("first", [False, True])
def test_optimizers_in_backward_are_an_error(first):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters())

    def hook(parameter):
        optimizer.step()

    def register():
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(hook)

    if first:
        register()
    gradients = SlotGradients(model, V)
    if not first:
        register()
    with refused(model, "an optimizer must step after the last slot of a step"):
        step(model, gradients, list(torch.ones(V, 1, 2)))


def test_a_hook_that_takes_the_gradient_is_an_error():
    model = nn.Linear(2, 1)
    model.bias.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    with refused(model, "a hook on 'bias' must leave its gradient"):
        step(model, SlotGradients(model, 1), [torch.ones(1, 2)])


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_parameter_that_is_written_in_a_step_is_an_error(is_frozen):
    model, gradients, data = make()
    part = model[2].requires_grad_(not is_frozen)
    gradients = SlotGradients(model, V)
    with pytest.raises(RuntimeError, match=r"the parameter '2.bias' must not be written in a step"):
        for slot, batch in gradients.step(data):
            model(batch).sum().backward()
            if slot.number == 1:
                with torch.no_grad():
                    part.bias.add_(1)


# ---------------------------------------------------------------- the model changes


def freeze(model):
    model[0].bias.requires_grad_(False)


def add(model):
    model.append(nn.Linear(1, 1))


def remove(model):
    model[0].bias = None


def replace(model):
    model[0].bias = nn.Parameter(torch.zeros(3))


def move(model):
    model[0].bias.data = model[0].bias.data.double()


def tie(model):
    model[2].weight = nn.Parameter(model[0].weight[:1])


@pytest.mark.parametrize("change", [freeze, add, remove, replace, move, tie])
def test_a_changed_model_is_an_error(change):
    model, gradients, data = make()
    step(model, gradients, data)
    model.zero_grad()
    change(model)
    with refused(model, "were added, removed, replaced, frozen or moved"):
        step(model, gradients, data)


def test_a_parameter_that_is_frozen_within_a_step_is_an_error():
    model, gradients, data = make()
    with refused(model, r"\['0.bias'\] were added, removed, replaced, frozen"):
        for slot, batch in gradients.step(data):
            model(batch).sum().backward()
            if slot.number == 1:
                freeze(model)


def test_changed_buffers_are_an_error():
    model, gradients, data = make()
    model.register_buffer("later", torch.zeros(1))
    with refused(model, r"\['later'\] were added, removed, replaced"):
        step(model, gradients, data)


def test_a_buffer_keeps_its_shape_in_a_slot():
    model, gradients, data = make()
    with refused(model, r"'1.running_mean' must keep its shape"):
        for _, batch in gradients.step(data):
            model(batch).sum().backward()
            model[1].running_mean = torch.zeros(4)


def test_sparse_buffers_are_an_error():
    model = make()[0]
    model.register_buffer("edges", torch.eye(3).to_sparse())
    with pytest.raises(ValueError, match="with dense buffers, but 'edges' is not"):
        SlotGradients(model, V)


def test_sparse_gradients_are_an_error():
    model = nn.Embedding(4, 2, sparse=True)
    gradients = SlotGradients(model, 1)
    with refused(model, "gradient of 'weight' must be dense.*sparse=False"):
        for _, batch in gradients.step([torch.tensor([1])]):
            model(batch).sum().backward()

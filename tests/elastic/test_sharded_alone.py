"""Models under ``fully_shard`` in a job of one rank: steps, errors, dtypes."""

import copy

import pytest
import torch
from helpers.ranks import group_of_one
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from fastseed.elastic import SlotGradients
from fastseed.elastic.tree import TreeSum


@pytest.fixture(autouse=True)
def slots_under_fully_shard(request):
    newer = hasattr(FSDPModule, "set_reduce_scatter_unused_params")
    if not newer and request.function is not test_an_older_torch_is_named:
        pytest.skip("fully_shard in slots needs torch 2.13")


@pytest.fixture(scope="module", autouse=True)
def mesh():
    with group_of_one():
        yield init_device_mesh("cpu", (1,))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.tanh(self.inner(x)))


def step(model: nn.Module, gradients: SlotGradients) -> None:
    for _, x in gradients.step(torch.arange(12.0).view(2, 2, 3)):
        model(x).sum().backward()


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    step(model, SlotGradients(model, 2))
    found = [p.grad for p in model.parameters()]
    return [getattr(grad, "full_tensor", lambda grad=grad: grad)() for grad in found]


def test_a_module_used_twice_has_no_group_of_its_own(mesh):
    model = Twice()
    fully_shard(model.inner, mesh=mesh)
    fully_shard(model, mesh=mesh)
    with pytest.raises(
        RuntimeError, match="module 'inner' has two backward passes in micro-step 0"
    ):
        step(model, SlotGradients(model, 2))
    assert all(p.grad is None for p in model.parameters())


def test_a_module_used_twice_in_the_group_of_its_parent(mesh):
    model = Twice()
    sharded = fully_shard(copy.deepcopy(model), mesh=mesh)
    assert all(map(torch.equal, gradients_of(sharded), gradients_of(model)))


def test_backward_outside_of_a_slot(mesh):
    model = fully_shard(Twice(), mesh=mesh)
    gradients = SlotGradients(model, 2)
    step(model, gradients)
    with pytest.raises(RuntimeError, match="the model outside of a slot"):
        model(torch.ones(2, 3)).sum().backward()


def test_a_slot_without_a_backward_pass(mesh):
    model = fully_shard(Twice(), mesh=mesh)
    with pytest.raises(RuntimeError, match="slot 0 has no backward pass"):
        for _ in SlotGradients(model, 2).step(torch.ones(2, 2, 3)):
            pass


@pytest.mark.parametrize("reached", ["forward", "backward"])
def test_the_next_step_after_one_that_was_left(mesh, reached):
    model = fully_shard(Twice(), mesh=mesh)
    expected = gradients_of(model)
    model.zero_grad()
    gradients = SlotGradients(model, 2)
    for slot, x in gradients.step(torch.zeros(2, 2, 3)):
        loss = model(x).sum()
        if slot.number == 1 and reached == "forward":
            break
        loss.backward()
        if slot.number == 1:
            break
    assert all(p.grad is None for p in model.parameters())
    gradients.discard()
    step(model, gradients)
    found = [p.grad.full_tensor() for p in model.parameters()]
    assert all(map(torch.equal, found, expected))


def test_evaluation_between_steps(mesh):
    model = fully_shard(Twice(), mesh=mesh)
    parameters, expected = list(model.parameters()), gradients_of(model)
    model.zero_grad()
    with torch.no_grad():
        model(torch.ones(2, 3))  # leaves the unsharded parameters of the root
    assert all(a is not b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(map(torch.equal, gradients_of(model), expected))


def test_gathered_parameters_are_aligned_as_ordinary_ones(mesh):
    """MKL's products depend on the addresses of operands."""
    model = fully_shard(Twice(), mesh=mesh)
    addresses = []

    def note(module: nn.Module, _: object) -> None:
        addresses.extend(p.data_ptr() for p in module.parameters())

    model.register_forward_pre_hook(note)
    model(torch.ones(2, 3))
    assert len(addresses) == 2
    assert all(address % 64 == 0 for address in addresses)


def test_every_trainable_parameter_is_sharded(mesh):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    fully_shard(model[1], mesh=mesh)
    with pytest.raises(ValueError, match=r"model must be under fully_shard .* '0.weight' is not"):
        SlotGradients(model, 2)
    model(torch.ones(2, 3)).sum().backward()  # by the reduce-scatter of torch
    assert all(p.grad is not None for p in model.parameters())
    model.zero_grad()
    model[0].requires_grad_(False)
    step(model, SlotGradients(model, 2))


def test_an_older_torch_is_named(mesh, monkeypatch):
    model = fully_shard(Twice(), mesh=mesh)
    monkeypatch.delattr(FSDPModule, "set_reduce_scatter_unused_params", raising=False)
    with pytest.raises(RuntimeError, match=r"need torch 2\.13 or newer"):
        SlotGradients(model, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_gradients_have_the_dtype_of_parameters(mesh, dtype):
    model = Twice().to(dtype)
    sharded = fully_shard(copy.deepcopy(model), mesh=mesh)
    batches = torch.arange(24).view(3, 2, 4)[..., :3].to(dtype) / 16
    results = []
    for either in (model, sharded):
        for _, x in SlotGradients(either, 3).step(batches):
            either(x).sum().backward()
        results.append([p.grad for p in either.parameters()])
    for alone, shard in zip(*results, strict=True):
        assert shard.dtype == dtype
        assert torch.equal(shard.full_tensor(), alone)


def test_parts_of_a_tree_are_added_as_their_leaves():
    leaves = torch.randn(11, 5) * torch.logspace(-6, 6, 11).view(-1, 1)
    single, blocks = TreeSum(), TreeSum()
    for leaf in leaves:
        single.push(leaf, borrowed=True)
        single.keep()
    for block in leaves[:8].split(4):
        part = TreeSum()
        for leaf in block:
            part.push(leaf.clone())
        blocks.push(part.result(), 4)
    for leaf in leaves[8:]:
        blocks.push(leaf.clone())
    assert torch.equal(single.result(), blocks.result())


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_sharded_parameters_are_an_error(mesh, register):
    model = fully_shard(Twice(), mesh=mesh)
    getattr(next(model.parameters()), register)(lambda _: None)
    text = r"without hooks on parameters under fully_shard \(here: 'inner.weight'\)"
    with pytest.raises(ValueError, match=text):
        SlotGradients(model, 2)


def test_the_model_trains_as_before_when_the_object_is_gone(mesh):
    model = fully_shard(Twice(), mesh=mesh)
    x = torch.ones(2, 3)
    model(x).sum().backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    gradients = SlotGradients(model, 2)
    step(model, gradients)
    model.zero_grad()
    del gradients
    model(x).sum().backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))


def test_two_dtypes_in_a_group_are_an_error(mesh):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, dtype=torch.float64))
    fully_shard(model, mesh=mesh)
    text = "of one dtype in each group of fully_shard, but '1.weight' is not"
    with pytest.raises(ValueError, match=text):
        SlotGradients(model, 2)


def test_sparse_gradients_are_an_error(mesh):
    model = fully_shard(nn.Embedding(4, 2, sparse=True), mesh=mesh)
    with pytest.raises(RuntimeError, match=r"gradient of 'weight' must be dense.*sparse=False"):
        for _, x in SlotGradients(model, 1).step([torch.tensor([1])]):
            model(x).sum().backward()


def test_a_gathered_parameter_that_is_written_in_a_slot_is_an_error(mesh):
    model = fully_shard(Twice(), mesh=mesh)
    model.inner.register_forward_hook(lambda part, *_: print(part.bias.detach().add_(1)))
    with pytest.raises(RuntimeError, match=r"'inner.bias' must not be written in a step"):
        step(model, SlotGradients(model, 2))

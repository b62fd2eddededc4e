"""Masks never repeat, and dropout is never left unkeyed, in what a job does besides training."""

from __future__ import annotations

import copy
import os
import threading

import pytest
import torch
from helpers.support import needs_native, restart
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.nn import functional as torch_functional
from torch.testing._internal.distributed.fake_pg import FakeStore

import fastseed
from fastseed import nn
from fastseed.nn.functional import dropout, scaled_dot_product_attention

ONES = torch.ones(4, 16)


pytestmark = pytest.mark.usefixtures("seeded")


@pytest.fixture
def layer():
    return nn.Dropout(0.5, name="block")


class Calls(torch.nn.Module):
    def forward(self, x):
        return torch_functional.dropout(x, 0.5, self.training)


def test_rows_count_in_a_forked_child(layer):
    whole = layer(ONES)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        fastseed.reseed(1)
        with nn.rows(2, total=4):
            os.write(writer, bytes([torch.equal(layer(ONES[2:]), whole[2:])]))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1) == b"\x01"


def compiled(module):
    torch._dynamo.reset()
    return torch.compile(module, backend="eager", fullgraph=True)


def test_compiled_layers_refuse_what_eager_ones_refuse(layer):
    run = compiled(layer)
    assert torch.equal(run(ONES), layer(ONES))
    fastseed.init(43, rank=0, world_size=1)
    with pytest.raises(Exception, match="reseed"):  # no scope yet
        run(ONES)
    fastseed.init(42, rank=0, world_size=2)
    fastseed.reseed(1)
    with pytest.raises(Exception, match="rows"):
        compiled(layer)(ONES)


def test_a_mesh_without_the_data_dimension_needs_rows(layer):
    fastseed.init(42, rank=0, world_size=4)
    fastseed.reseed(1)
    store = FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        x = DTensor.from_local(ONES, mesh["tp"], [Replicate()])
        with pytest.raises(RuntimeError, match="rows"):
            layer(x)
        with nn.rows(0, total=8):
            assert layer(x).shape == ONES.shape
    finally:
        torch.distributed.destroy_process_group()


def test_forward_derivatives():
    _, tangent = torch.func.jvp(lambda x: dropout(x, 0.5, 3), (ONES,), (ONES,))
    assert torch.equal(tangent, dropout(ONES, 0.5, 3))


def test_threads_have_their_own_forward():
    class Waits(Calls):
        def forward(self, x):
            entered.set()
            assert leave.wait(60)
            return super().forward(x)

    entered, leave = threading.Event(), threading.Event()
    expected = nn.convert(Calls(), prefix="b")(ONES)
    fastseed.reseed(1, 0, 1)
    restart()
    other, model = nn.convert(Waits(), prefix="a"), nn.convert(Calls(), prefix="b")
    thread = threading.Thread(target=other, args=(ONES,))
    thread.start()
    assert entered.wait(60)
    found = model(ONES)
    leave.set()
    thread.join()
    assert torch.equal(found, expected)


def test_convert_finds_subclasses_and_refuses_before_it_changes():
    class Mine(torch.nn.Dropout):
        pass

    torch.manual_seed(1)
    state = torch.get_rng_state()
    nn.convert(torch.nn.Sequential(Mine(0.5)))(ONES)
    assert torch.equal(torch.get_rng_state(), state)
    model = torch.nn.Sequential(torch.nn.Dropout(0.5))
    with pytest.raises(ValueError, match="batch_dim"):
        nn.convert(model, batch_dim=-1)
    assert type(model[0]) is torch.nn.Dropout
    patched = torch.nn.Sequential(torch.nn.Dropout(0.5), Calls())
    patched[1].forward = patched[1].forward
    for wrong in (patched, torch.jit.trace(torch.nn.Dropout(0.5).eval(), ONES)):
        with pytest.raises(ValueError, match=r"^fastseed\.nn\.convert: model "):
            nn.convert(wrong)
    assert type(patched[0]) is torch.nn.Dropout


def test_copies_of_a_module_with_a_state_of_its_own():
    model = nn.convert(Locked())
    assert isinstance(copy.deepcopy(model), Locked)


class Locked(Calls):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def __getstate__(self):
        return {**self.__dict__, "lock": None}


@needs_native
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_has_the_digits_of_torch(dtype):
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, 64, 64, generator=generator).mul(20).to(dtype) for _ in range(3))
    exact = torch_functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    theirs = torch_functional.scaled_dot_product_attention(q, k, v).float()
    ours = scaled_dot_product_attention(q, k, v, dropout_key=1).float()
    assert (ours - exact).abs().max() <= 4 * (theirs - exact).abs().max()
    mask = torch.zeros(64, 64).index_fill(0, torch.tensor([3]), -torch.inf)
    found = scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_key=1)
    assert found[:, 3].count_nonzero() == 0 and found.isfinite().all()


def test_vmap_volumes_and_empty_inputs(layer):
    with pytest.raises(RuntimeError, match="vmap"):
        torch.vmap(layer, randomness="different")(torch.ones(6, 16))
    with nn.rows(0, total=8, step=2, count=2):
        assert layer(torch.ones(0, 4)).shape == (0, 4)

    class Volumes(torch.nn.Module):
        def forward(self, x):
            return torch_functional.dropout3d(x)

    with pytest.raises(ValueError, match="input"):
        nn.convert(Volumes())(torch.ones(2, 3, 4, 5))

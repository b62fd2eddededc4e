"""Masks never repeat, and dropout is never left unkeyed, in what a job does besides training."""

import copy
import os
import threading

import pytest
import torch
from helpers.processes import in_child
from helpers.support import freed, needs_native, restart
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn import functional as torch_functional
from torch.utils._python_dispatch import TorchDispatchMode

import fastseed
from fastseed import nn
from fastseed.nn.dropout import scope as layer_scope
from fastseed.nn.functional import dropout
from fastseed.random import scope_tensors
from fastseed.random.dropout import attend

ONES = torch.ones(4, 16)


pytestmark = pytest.mark.usefixtures("seeded")


@pytest.fixture
def layer():
    return nn.Dropout(0.5, name="block")


class Calls(torch.nn.Module):
    def forward(self, x):
        return torch_functional.dropout(x, 0.5, self.training)


def test_masks_and_rows_in_a_forked_child_are_those_of_the_job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    layer = nn.Dropout(0.5, name="block")
    whole = layer(ONES)

    def rows():
        fastseed.reseed(1)
        with nn.rows(2, total=4):
            return torch.equal(layer(ONES[2:]), whole[2:])

    assert in_child(rows)


def compiled(module):
    torch._dynamo.reset()
    return torch.compile(module, backend="eager", fullgraph=True)


def test_compiled_layers_refuse_what_eager_ones_refuse(layer):
    run = compiled(layer)
    first = run(ONES)
    assert torch.equal(first, layer(ONES))
    fastseed.init(43, rank=0, world_size=1)
    assert torch.equal(run(ONES), layer(ONES)) and not torch.equal(run(ONES), first)
    fastseed.init(42, rank=0, world_size=2)
    fastseed.reseed(1)
    with pytest.raises(Exception, match="rows"):
        compiled(layer)(ONES)


@pytest.mark.parametrize("given", [{}, {"mesh": {"fsdp": (0, 2), "tp": (0, 2)}}])
def test_a_mesh_without_the_data_dimension_needs_rows(as_rank, layer, given):
    over = {"data_over": ("fsdp",)} if given else {}
    fastseed.init(42, rank=0, world_size=4, **given, **over)
    fastseed.reseed(1)
    as_rank(0, 4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    x = DTensor.from_local(ONES, mesh["tp"], [Replicate()])
    with pytest.raises(RuntimeError, match="rows"):
        layer(x)
    with nn.rows(0, total=8):
        assert layer(x).shape == ONES.shape
    if given:
        x = DTensor.from_local(ONES, mesh["fsdp"], [Shard(0)])
        with nn.label("all rows"):
            assert layer(x).shape == (8, 16)


def test_causal_attention_of_dtensors_is_that_of_the_whole(as_rank):
    as_rank(0, 2)
    mesh = init_device_mesh("cpu", (2,))
    q = torch.linspace(-1, 1, 2 * 4 * 6 * 8).view(2, 4, 6, 8)
    drop = lambda weights: dropout(weights, 0.5, 7)  # noqa: E731
    whole = attend("nn.convert", drop, q, q, q, is_causal=True)
    for placement, wanted in ((Replicate(), whole), (Shard(1), whole[:, :2])):
        part = q if placement.is_replicate() else q[:, :2]
        x = DTensor.from_local(part, mesh, [placement], run_check=False)
        try:
            x @ x.transpose(-2, -1)
        except RuntimeError as error:  # torch 2.10
            assert "flatten multiple dimensions" in str(error)
            pytest.skip("this torch does not multiply DTensors whose heads are sharded")
        found = attend("nn.convert", drop, x, x, x, is_causal=True)
        assert torch.equal(found.to_local(), wanted)


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


class Locked(Calls):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def __getstate__(self):
        return {**self.__dict__, "lock": None}


def test_copies_of_a_module_with_a_state_of_its_own():
    assert isinstance(copy.deepcopy(nn.convert(Locked())), Locked)


@needs_native
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_has_the_digits_of_torch(dtype):
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, 64, 64, generator=generator).mul(20).to(dtype) for _ in range(3))
    exact = torch_functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    theirs = torch_functional.scaled_dot_product_attention(q, k, v).float()
    ours = attend("nn.convert", lambda weights: weights, q, k, v).float()
    assert (ours - exact).abs().max() <= 4 * (theirs - exact).abs().max()
    mask = torch.zeros(64, 64).index_fill(0, torch.tensor([3]), -torch.inf)
    found = attend("nn.convert", lambda weights: weights, q, k, v, attn_mask=mask)
    assert found[:, 3].count_nonzero() == 0 and found.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("given", ["16 bits", "float32"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.5},
        {"attn_mask": torch.arange(256).view(16, 16).sin() > 0},
        {"attn_mask": torch.arange(256).view(16, 16).sin() * 100, "scale": 0.01},
    ],
    ids=["plain", "causal", "scale", "boolean mask", "added mask"],
)
def test_attention_is_exact_under_autocast(dtype, given, options):
    generator = torch.Generator().manual_seed(5)
    shapes = ((2, 4, 16, 64), (2, 2, 16, 64), (2, 2, 16, 64))
    q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
    tensors = [t.to(dtype) if given == "16 bits" else t for t in (q * 60, k * 60, v)]
    mask = options.get("attn_mask")
    wide = {} if mask is None or mask.dtype == torch.bool else {"attn_mask": mask.double()}
    exact = torch_functional.scaled_dot_product_attention(
        *(t.double() for t in tensors), enable_gqa=True, **options | wide
    )
    limit = 2 * torch.finfo(dtype).eps * exact.abs().max()  # of weights and of the result
    with torch.autocast("cpu", dtype):
        theirs = torch_functional.scaled_dot_product_attention(*tensors, enable_gqa=True, **options)
        ours = attend("nn.convert", lambda weights: weights, *tensors, enable_gqa=True, **options)
        kept = nn.convert(Attends(options))(*tensors)
    assert ours.dtype == kept.dtype == theirs.dtype == dtype
    assert (ours - exact).abs().max() <= limit and kept.isfinite().all()
    restart()
    with torch.autocast("cpu", dtype):
        nothing = nn.convert(Attends(options)).eval()(*tensors)
    assert torch.equal(nothing, theirs)


class Attends(torch.nn.Module):
    def __init__(self, options):
        super().__init__()
        self.options = options

    def forward(self, *tensors):
        p = 0.1 if self.training else 0.0
        attend = torch_functional.scaled_dot_product_attention
        return attend(*tensors, dropout_p=p, enable_gqa=True, **self.options)


def test_reseed_writes_devices_by_value(monkeypatch):
    class Recorded(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append((func, [a.device.type for a in args if isinstance(a, torch.Tensor)]))
            return func(*args, **kwargs or {})

    called, meta = [], torch.device("meta")
    monkeypatch.setattr(
        scope_tensors.process_state, "devices", dict(scope_tensors.process_state.devices)
    )
    nn.Dropout(name="on a new device")(torch.ones(2, device=meta))
    with Recorded():
        fastseed.reseed(1, 0, 9)
        with nn.rows(4, total=8):
            pass
    on_device = [func for func, devices in called if "meta" in devices]
    assert set(on_device) == {torch.ops.aten.fill_.Scalar} and len(on_device) == 4
    layer_scope.this_thread.scope.first_rows.pop(meta)


def test_words_of_a_scope_are_written_as_they_are(monkeypatch):
    other = torch.zeros(2, dtype=torch.uint64)
    monkeypatch.setattr(
        scope_tensors.process_state, "devices", dict(scope_tensors.process_state.devices)
    )
    words = other.view(torch.int64)
    held = scope_tensors.ScopeTensor(other, (words[0], words[1]), os.getpid())
    scope_tensors.process_state.devices[torch.device("cpu", 0)] = held
    for step in range(50):
        fastseed.reseed(1, 0, step)
        assert torch.equal(other, scope_tensors.process_state.devices[torch.device("cpu")].scope)
    layer_scope.this_thread.scope.first_rows.pop(torch.device("cpu", 0), None)


def test_fake_tensors_leave_nothing_behind(layer):
    devices = dict(scope_tensors.process_state.devices)
    with FakeTensorMode():
        fake = torch.ones(4, 16)
        assert layer(fake).shape == (4, 16)
        assert type(layer(fake)) is FakeTensor, "no use of rows"
        assert type(dropout(fake, 0.5, 3)) is FakeTensor
    assert scope_tensors.process_state.devices == devices
    assert layer(ONES).shape == ONES.shape


FREED = freed(torch.ones(4, 4))


@pytest.mark.parametrize(
    "call",
    [
        lambda: attend(
            "nn.convert", lambda weights: weights, ONES, ONES, ONES, torch.ones(4, 4).long()
        ),
        lambda: nn.Dropout1d(0.5, name="a")(torch.ones(())),
        lambda: nn.convert(Calls())(FREED),
        lambda: nn.shard_inputs(nn.Dropout(0.5), None, []),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_name(call):
    with pytest.raises((TypeError, ValueError), match=r"^fastseed\.nn\.[\w.]+: \w+ must "):
        call()


def test_attention_without_features():
    q = torch.ones(2, 3, 0)
    found = attend("nn.convert", lambda weights: weights, q, q, torch.ones(2, 3, 4))
    assert torch.equal(found, torch.ones(2, 3, 4))


def test_rows_with_other_steps_overlap_where_they_meet(layer):
    fastseed.reseed(1, 0, 1)
    with nn.rows(0, total=12, step=3, count=4):  # 0 3 6 9
        layer(torch.ones(4, 8))
    with nn.rows(2, total=12, step=2, count=1):
        layer(torch.ones(1, 8))
    with (
        nn.rows(1, total=12, step=2, count=4),  # 1 3 5 7
        pytest.raises(RuntimeError, match="rows"),
    ):
        layer(torch.ones(4, 8))


def test_the_last_row_has_a_mask():
    with nn.rows(2**53 - 1, total=2**53):
        found = nn.Dropout(0.5, name="b")(torch.ones(1, 8192))
    assert set(found.unique().tolist()) == {0.0, 2.0} and 0.4 < found.mean() / 2 < 0.6


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

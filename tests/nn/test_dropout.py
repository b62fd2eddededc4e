"""Dropout by key and by layer: pieces equal the whole, and masks never repeat by mistake."""

import struct
import sys

import pytest
import torch
from helpers.support import restart, without_scope
from helpers.vectors import fields_of
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed import nn
from fastseed.nn.functional import dropout
from fastseed.random import Shard, layout
from fastseed.random.dropout import Mask, drop, threshold_of
from fastseed.random.functional import words_of

KEY = 0x81B1E1C0FFEE0DD5_F00DCAFE12345678


pytestmark = pytest.mark.usefixtures("seeded")


@pytest.fixture
def layer():
    return nn.Dropout(0.3, name="block.0")


# ---------------------------------------------------------------- the function


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dropout_drops_and_scales(dtype):
    x = torch.randn(64, 65, dtype=dtype)
    found = dropout(x, 0.25, KEY)
    kept = found != 0
    assert found.dtype == dtype and 0.2 < 1 - kept.float().mean() < 0.3
    expected = (x.double() * (4 / 3)).to(dtype)
    torch.testing.assert_close(found[kept], expected[kept])
    transposed = dropout(x.t(), 0.25, KEY)
    assert torch.equal(transposed, dropout(x.t().contiguous(), 0.25, KEY))


def test_dropout_at_the_ends():
    x = torch.full((9,), float("nan"))
    assert dropout(x, 0, KEY) is x and dropout(x, 0.5, KEY, training=False) is x
    assert torch.equal(dropout(x, 1, KEY), torch.zeros(9))
    assert dropout(torch.empty(0, 3), 0.5, KEY).shape == (0, 3)
    assert (dropout(torch.ones(4096), 2**-40, KEY) != 0).float().mean() > 0.99


def test_thresholds():
    for bits, threshold in fields_of("dropout", "p"):
        p = struct.unpack(">d", bytes.fromhex(bits))[0]
        assert threshold_of(p) == int(threshold), p


def test_parts_equal_the_whole():
    whole = dropout(torch.ones(6, 5, 7), 0.5, KEY)
    box = Shard((6, 5, 7), (2, 1, 3))
    part = dropout(torch.ones(3, 4, 2), 0.5, KEY, shard=box)
    assert torch.equal(part, whole[2:5, 1:5, 3:5])
    assert torch.equal(dropout(torch.ones(13), 0.5, KEY, offset=11), whole.view(-1)[11:24])
    runs, ones = [(0, 20), (25, 30)], torch.ones(50)
    mask = Mask(words_of(KEY), (), (), 0, threshold_of(0.5))
    part = drop(ones, mask, layout.pieces((210,), [runs]))
    assert torch.equal(part, torch.cat([whole.view(-1)[first : first + n] for first, n in runs]))
    assert ones.eq(1).all()


def test_derivatives_repeat_the_mask():
    x = torch.randn(3, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: dropout(a, 0.3, KEY), x)
    assert torch.autograd.gradgradcheck(lambda a: dropout(a, 0.3, KEY), x)
    (gradient,) = torch.autograd.grad(dropout(x, 0.3, KEY).sum(), x)
    assert torch.equal(gradient, dropout(torch.ones_like(x), 0.3, KEY))


def test_no_mask_is_kept():
    x = torch.ones(1000, 1000, requires_grad=True)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, id):
        dropout(x, 0.5, KEY)
    assert sizes == [2]


def test_vmap_over_keys_and_over_inputs():
    keys = torch.tensor([[1, 0], [2, 0], [3, 9]], dtype=torch.uint64)
    x = torch.randn(4, 5)
    found = torch.vmap(lambda key: dropout(x, 0.5, key))(keys)
    for row, key in zip(found, keys, strict=True):
        assert torch.equal(row, dropout(x, 0.5, key))
    both = torch.vmap(lambda a, key: dropout(a, 0.5, key), in_dims=(1, 0))(x[:, :3], keys)
    assert torch.equal(both[2], dropout(x[:, 2], 0.5, keys[2]))
    x.requires_grad_()
    found = torch.vmap(lambda key: dropout(x, 0.5, key))(keys)
    (gradient,) = torch.autograd.grad(found[1].sum(), x)
    assert torch.equal(gradient, dropout(torch.ones(4, 5), 0.5, keys[1]))


REFUSED = [
    ({"p": 1.5}, ValueError, "p must be in"),
    ({"input": torch.ones(3, dtype=torch.int32)}, TypeError, "input must be of dtype"),
    ({"input": torch.ones(3).to_sparse()}, ValueError, "input must be strided"),
    ({"key": torch.zeros(3, 2, dtype=torch.uint64)}, ValueError, "key must be of"),
    ({"shard": Shard((2,), (0,))}, ValueError, "shard must hold"),
]


@pytest.mark.parametrize(("given", "error", "text"), REFUSED)
def test_dropout_refuses(given, error, text):
    with pytest.raises(error, match=f"^fastseed.nn.functional.dropout: {text}"):
        dropout(**{"input": torch.ones(3), "p": 0.5, "key": KEY, **given})


# ---------------------------------------------------------------- layers


def test_layers_differ_by_name_label_and_scope(layer):
    x = torch.ones(256)
    masks = [layer(x), nn.Dropout(0.3, name="block.1")(x)]
    with nn.label("teacher"):
        masks.append(layer(x))
    restart(step=1)
    masks.append(layer(x))
    for i, mask in enumerate(masks):
        assert not any(torch.equal(mask, other) for other in masks[:i])
    key = fastseed.derive_key("dropout/block.0", task=1, step=1, rank=fastseed.SHARED)
    assert torch.equal(masks[3], dropout(x, 0.3, key))


def test_layer_is_off_in_evaluation(layer):
    x = torch.ones(3)
    assert layer.eval()(x) is x
    assert nn.Dropout(0.0, name="a")(x) is x
    y = torch.ones(64)
    assert nn.Dropout(0.5, inplace=True, name="a")(y) is y and (y == 0).any()


@pytest.mark.parametrize("shape", [(6, 4, 10), (12, 10)])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_rows_of_a_batch_equal_the_whole(layer, shape, step):
    x = torch.ones(shape)
    whole = layer(x).view(6, -1)
    restart()
    for start in range(step):
        with nn.rows(start, 6, step=step, count=6 // step):
            part = layer(torch.ones(shape[0] // step, *shape[1:]))
        assert torch.equal(part.view(6 // step, -1), whole[start::step])


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_rows_lie_along_any_dimension(dim):
    layer = nn.Dropout(0.5, name="a", batch_dim=dim)
    whole = layer(torch.ones(6, 6, 6))
    restart()
    for start in (0, 1):
        with nn.rows(start, 6, step=2):
            part = layer(torch.ones(6, 6, 6).narrow(dim, 0, 3))
        assert torch.equal(part, whole.index_select(dim, torch.arange(start, 6, 2)))
    with nn.rows(3, 6):
        nn.Dropout(0.5, name="positions", batch_dim=None)(torch.ones(100))


def test_channels_are_dropped_whole():
    for dimensions, cls in enumerate((nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), 1):
        x = torch.randn(8, 16, *[3] * dimensions, requires_grad=True)
        found = cls(0.5, name="channels")(x)
        restart()
        mask = nn.Dropout(0.5, name="channels")(torch.ones(8, 16))
        restart()
        assert torch.equal(found, x * mask.view(8, 16, *[1] * dimensions))
        with pytest.raises(ValueError, match="of shape"):
            cls(0.5, name="channels")(torch.ones(8, 16))


def test_rows_of_micro_batches_follow_the_sampler():
    for world_size in (1, 2, 4):
        rows = {}
        for rank in range(world_size):
            fastseed.init(42, rank=rank, world_size=world_size)
            restart()
            order = list(fastseed.data.ShuffleSampler(8, shuffle=False))
            for micro in range(2):
                count = 4 // world_size
                block = nn.rows.of_micro_batch(count, micro, 2)
                for i, sample in enumerate(order[micro * count : (micro + 1) * count]):
                    rows[block.value.start + i * block.value.step] = sample
        assert rows == {i: i for i in range(8)}


# ---------------------------------------------------------------- one use of each row


def test_second_use_is_an_error_that_names_the_ways_out(layer):
    x = torch.ones(4)
    layer(x)
    with pytest.raises(RuntimeError, match=r"'block.0' is used a second time.*reseed.*label") as e:
        layer(x)
    assert "rows 0 to 3" in str(e.value)
    with nn.rows(3, 8), pytest.raises(RuntimeError, match="rows 3 to 6"):
        layer(x)
    with nn.rows(4, 8):
        layer(x)
    with nn.rows(0, 16, step=2), pytest.raises(RuntimeError, match="second time"):
        layer(x)
    with nn.label("teacher"):
        layer(x)
    restart(step=1)
    layer(x)


@pytest.mark.parametrize(("reentrant", "preserve"), [(False, False), (True, False), (False, True)])
def test_recomputation_repeats_the_mask(layer, reentrant, preserve):
    weight = torch.randn(8, 8, requires_grad=True)
    x = torch.randn(4, 8, requires_grad=True)

    def block(x):
        return layer((x @ weight).sin()) @ weight

    expected = torch.autograd.grad(block(x).square().sum(), (x, weight))
    restart()
    options = {"use_reentrant": reentrant, "preserve_rng_state": preserve}
    checkpoint(block, x, **options).square().sum().backward()
    assert torch.equal(x.grad, expected[0]) and torch.equal(weight.grad, expected[1])


def test_layer_needs_a_scope_a_name_and_rows():
    x = torch.ones(3)
    with pytest.raises(RuntimeError, match=r"has no name: call fastseed.nn.convert"):
        nn.Dropout(0.5)(x)
    without_scope()
    layer = nn.Dropout(0.5, name="a")
    with pytest.raises(RuntimeError, match=r"call fastseed.reseed\(task, epoch\) first"):
        layer(x)
    fastseed.init(42, rank=0, world_size=2)
    restart()
    with pytest.raises(RuntimeError, match=r"same mask on all of the 2 ranks.*of_micro_batch"):
        layer(x)
    with nn.rows(2, 4), pytest.raises(RuntimeError, match="3 rows, and 2 are left of 4 from row 2"):
        layer(x)
    with nn.rows(0, 4, count=2), pytest.raises(ValueError, match="a multiple of the 2 rows"):
        layer(x)
    fastseed.init(42, rank=0, world_size=2, mesh={"tp": (0, 2)})
    restart()
    layer(x)


def test_rows_lie_in_the_batch():
    for call, text in (
        (lambda: nn.rows(4, 4), "start must be in"),
        (lambda: nn.rows(1, 4, step=2, count=3), "count must be in"),
        (lambda: nn.rows.of_micro_batch(2, 2, 2), "micro_batch must be in"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


# ---------------------------------------------------------------- compiled


def test_compiled_layer_takes_each_scope_and_row(layer):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x = torch.randn(3, 8, requires_grad=True)
    for step in range(4):
        restart(step)
        expected = layer(x)
        restart(step)
        assert torch.equal(compiled(x), expected)
    assert len(graphs) == 1
    for start in range(4):
        restart()
        with nn.rows(start, 9):
            expected = layer(x)
        restart()
        with nn.rows(start, 9):
            assert torch.equal(compiled(x), expected)
    assert len(graphs) == 2, "one without rows, and one for all of them"


def test_a_layer_that_a_compiled_graph_uses_twice_is_an_error_or_a_warning(layer, caplog):
    torch._dynamo.reset()
    twice = lambda x: layer(layer(x))  # noqa: E731
    with pytest.raises(Exception, match="is used twice in one compiled graph"):
        torch.compile(twice, fullgraph=True, backend="eager")(torch.ones(4))
    caplog.clear()
    torch.compile(twice, backend="eager")(torch.ones(4))  # torch goes on in two graphs
    (message,) = [r.getMessage() for r in caplog.records if r.name == "fastseed"]
    assert "'block.0' is used twice in one compiled graph" in message
    assert message.endswith("use a layer of another name for the second")


def test_a_call_that_a_compiled_graph_repeats_is_an_error_until_layers_take_its_place():
    class Calls(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.dropout(x, 0.5, self.training)

    torch._dynamo.reset()
    restart()
    calls, layers = Calls(), torch.nn.Sequential(Calls(), torch.nn.Dropout(0.5))
    twice = torch.nn.Sequential(calls, calls)
    message = "use a layer of another name for the second"
    if sys.version_info < (3, 11) and torch.__version__.startswith("2.10."):
        message = "Observed exception"  # all that Dynamo says there of an error inside
    with pytest.raises(Exception, match=message):
        torch.compile(nn.convert(twice), fullgraph=True, backend="eager")(torch.ones(4))
    torch.compile(nn.convert(layers), fullgraph=True, backend="eager")(torch.ones(4))


@pytest.mark.slow
def test_inductor_gives_the_same_values_and_gradients(layer):
    def step(x, weight):
        return layer((x @ weight).relu()).square().sum()

    compiled = torch.compile(step, fullgraph=True)
    x, weight = torch.randn(5, 8), torch.randn(8, 8, requires_grad=True)
    for at in range(3):
        restart(at)
        expected = torch.autograd.grad(step(x, weight), weight)
        restart(at)
        found = torch.autograd.grad(compiled(x, weight), weight)
        torch.testing.assert_close(found, expected)
        zeros = [(gradient == 0) for gradient in (*expected, *found)]
        assert torch.equal(*zeros)

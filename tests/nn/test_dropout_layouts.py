"""Strides of results are those of torch's dropout; channels are dropped by the rule of elements."""

import pytest
import torch
from helpers.support import restart
from torch.nn import functional as torch_functional

from fastseed import nn
from fastseed.nn.functional import dropout

pytestmark = pytest.mark.usefixtures("seeded")

KEY = 0x81B1E1C0FFEE0DD5_F00DCAFE12345678
X = torch.linspace(-1, 1, 4 * 16 * 6 * 5).view(4, 16, 6, 5)
LAYOUTS = {
    "contiguous": X,
    "channels_last": X.contiguous(memory_format=torch.channels_last),
    "heads": X.transpose(1, 2),
    "reversed": X.permute(3, 2, 1, 0),
    "sliced": X[:, ::2],
    "sliced channels_last": X.contiguous(memory_format=torch.channels_last)[:, ::2],
    "expanded": X[:1].expand(4, 16, 6, 5),
    "volumes": X.view(4, 4, 4, 6, 5).contiguous(memory_format=torch.channels_last_3d),
    "transposed": X.view(64, 30).t(),
    "many dimensions": X.view(4, 2, 2, 2, 2, 2, 3, 5, 1).transpose(0, 1),
}


@pytest.mark.parametrize("x", LAYOUTS.values(), ids=LAYOUTS)
def test_results_have_the_strides_of_torch(x):
    found = dropout(x, 0.5, KEY)
    assert torch.equal(found, dropout(x.contiguous(), 0.5, KEY))
    theirs = x.clone().requires_grad_()
    expected = torch_functional.dropout(theirs, 0.5)
    assert found.stride() == expected.stride()
    ours, gradient = x.clone().requires_grad_(), torch.randn_like(x)
    (backward,) = torch.autograd.grad(dropout(ours, 0.5, KEY), ours, gradient)
    assert torch.equal(backward, dropout(gradient.contiguous(), 0.5, KEY))
    (expected,) = torch.autograd.grad(expected, theirs, gradient)
    assert backward.stride() == expected.stride()


@pytest.mark.parametrize("x", [x for x in LAYOUTS.values() if x.dim() in (4, 5)])
@pytest.mark.parametrize("dim", [0, 1])
def test_rows_of_any_layout_equal_the_whole(x, dim):
    channels = {4: nn.Dropout2d, 5: nn.Dropout3d}[x.dim()](0.5, name="channels", batch_dim=dim)
    for layer in (nn.Dropout(0.5, name="elements", batch_dim=dim), channels):
        restart()
        whole = layer(x.contiguous())
        restart()
        assert torch.equal(layer(x), whole)
        restart()
        for start in (0, 1):
            part = x.index_select(dim, torch.arange(start, x.size(dim), 2))
            part = torch.empty_like(x.narrow(dim, 0, part.size(dim))).copy_(part)
            with nn.rows(start, x.size(dim), step=2):
                found = layer(part)
            assert found.stride() == torch.empty_like(part).stride()
            assert torch.equal(found, whole.index_select(dim, torch.arange(start, x.size(dim), 2)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_channels_follow_the_rule_of_elements(dtype, memory_format):
    values = torch.tensor([1.0234375, -3.0, 0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3e-5])
    x = values.repeat(64, 32, 3, 2).to(dtype).contiguous(memory_format=memory_format)
    layer = nn.Dropout2d(0.3, name="channels")
    found = layer(x)
    restart()
    kept = nn.Dropout(0.3, name="channels")(torch.ones(64, 32)) != 0
    kept = kept[:, :, None, None].expand_as(x)
    assert 0.6 < kept.float().mean() < 0.8
    threshold = round(0.3 * 2**16)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    scaled = (x.to(wide) * (2**16 / (2**16 - threshold))).to(dtype)
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    expected = torch.where(kept, torch.where(x.isnan(), x, scaled), torch.zeros_like(x))
    assert torch.equal(found.contiguous().view(integers), expected.contiguous().view(integers))


@pytest.mark.parametrize("shape", [(2, 4, 0), (0, 4, 3), (2, 0, 3)])
def test_channels_of_empty_inputs(shape):
    assert nn.Dropout1d(0.5, name="channels")(torch.ones(shape)).shape == shape


def test_channels_have_derivatives():
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)

    def channels(x):
        restart()
        return nn.Dropout1d(0.5, name="channels")(x)

    assert torch.autograd.gradcheck(channels, x) and torch.autograd.gradgradcheck(channels, x)
    ones = torch.ones(2, 3, 4, dtype=torch.float64)
    with nn.label("again"):
        expected = nn.Dropout1d(0.5, name="channels")(ones)
        restart()
        layer = nn.Dropout1d(0.5, name="channels")
        _, tangent = torch.func.jvp(layer, (x.detach(),), (ones,))
    assert torch.equal(tangent, expected)

"""Keys for torch's own functions by key: what they are, and that torch takes them."""

import importlib
import importlib.util

import pytest
import torch

import fastseed
from fastseed._backend import private_torch
from fastseed.random import torch_key

KEY = 0x0123456789ABCDEF_FEDCBA9876543210
has_keys = importlib.util.find_spec("torch.func._random") is not None
on_cpu = has_keys and torch._C._dispatch_has_kernel_for_dispatch_key("aten::_philox_normal_", "CPU")


@pytest.fixture
def there(monkeypatch):
    monkeypatch.setattr(private_torch, "has_random_by_key", lambda: True)


@pytest.mark.usefixtures("there")
def test_a_key_is_the_low_half_at_position_0():
    found = torch_key(KEY)
    assert found.dtype == torch.uint64 and found.tolist() == [0xFEDCBA9876543210, 0]
    keys = torch.zeros(3, 2, dtype=torch.uint64, device="meta")
    assert torch_key(keys).device.type == "meta"


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("shape", [(2,), (5, 2), (2, 3, 2), (0, 2)])
def test_keys_keep_their_shape_and_are_not_written_to(shape):
    fastseed.init(42, rank=0, world_size=1)
    n = torch.Size(shape).numel() // 2
    keys = fastseed.derive_keys("noise", n, task=1).view(shape)
    before = keys.clone()
    found = torch_key(keys.transpose(0, -2) if len(shape) > 2 else keys)
    expected = before.transpose(0, -2) if len(shape) > 2 else before
    assert torch.equal(found[..., 0], expected[..., 0]) and not found[..., 1].any()
    assert (torch.equal(keys, before) and found.data_ptr() != keys.data_ptr()) or not n


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (-1, ValueError, "key must be in"),
        (2**128, ValueError, "key must be in"),
        (True, TypeError, "key must be an integer or a tensor"),
        (1.0, TypeError, "key must be an integer or a tensor"),
        (torch.zeros(2), TypeError, "key must be"),
        (torch.zeros(3, dtype=torch.uint64), ValueError, r"key must be of shape \(\.\.\., 2\)"),
    ],
)
def test_refusals(key, error, text):
    with pytest.raises(error, match=f"^fastseed.random.torch_key: {text}"):
        torch_key(key)


def test_a_torch_without_keys_is_named(monkeypatch):
    monkeypatch.setattr(private_torch, "has_random_by_key", lambda: False)
    with pytest.raises(RuntimeError, match=r"torch_key: needs a torch that draws by key"):
        torch_key(KEY)


@pytest.mark.skipif(not on_cpu, reason="torch draws by key on the CPU from 2.14 on")
def test_torch_draws_by_our_keys():
    by_key = importlib.import_module("torch.func._random")
    fastseed.init(42, rank=0, world_size=1)
    keys = torch_key(fastseed.derive_keys("noise", 4, task=1))
    rows = by_key.normal(keys[:, None], (4, 16))
    for i, row in enumerate(rows):
        key = fastseed.derive_key("noise", task=1, index=i)
        assert torch.equal(by_key.normal(torch_key(key), (16,)), row)
        assert torch.equal(by_key.normal(by_key.key(key % 2**64), (16,)), row)
    assert len({tuple(row.tolist()) for row in rows}) == 4

"""Image k of a diffusers pipeline is the same alone and in any batch."""

from __future__ import annotations

import doctest
import sys

import pytest
import torch

import fastseed

diffusers = pytest.importorskip("diffusers")
from fastseed.integrations.diffusers import randn_tensor, use_streams  # noqa: E402

SEEDS = [11, 2**40 + 3, 5, 900]


def bank_of(seeds, **more):
    bank = fastseed.random.StreamBank(len(seeds), "image", **more)
    bank.reseed_from_seeds(seeds)
    return bank


@pytest.fixture
def pipeline():
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=2,
        block_out_channels=(4, 8), down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    made = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler(num_train_timesteps=10))
    made.set_progress_bar_config(disable=True)
    return made


def images(pipeline, seeds):
    """Three steps, each of which adds noise."""
    with use_streams():
        found = pipeline(
            len(seeds), generator=bank_of(seeds), num_inference_steps=3, output_type="np"
        ).images
    return torch.from_numpy(found)


def test_image_k_alone_is_image_k_in_the_batch(pipeline):
    batch = images(pipeline, SEEDS)
    for k, seed in enumerate(SEEDS):
        torch.testing.assert_close(images(pipeline, [seed])[0], batch[k], rtol=1e-4, atol=1e-5)
    assert torch.equal(images(pipeline, SEEDS), batch)
    torch.testing.assert_close(images(pipeline, SEEDS[::-1]).flip(0), batch, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(batch[0], batch[1], atol=0.01)


def test_noise_alone_is_the_noise_of_the_batch_exactly():
    batch, shape = bank_of(SEEDS), (3, 8, 8)
    alone = [bank_of([seed]) for seed in SEEDS]
    for dtype in (None, torch.float16, torch.float64):
        found = randn_tensor((4, *shape), batch, dtype=dtype)
        parts = [randn_tensor([1, *shape], bank, dtype=dtype) for bank in alone]
        assert torch.equal(found, torch.cat(parts))
        assert found.dtype == (dtype or torch.get_default_dtype())
    assert batch.positions.unique().numel() == 1 and batch.positions[0] > 0


def test_a_generator_is_that_of_diffusers():
    def made():
        return torch.Generator().manual_seed(3)

    expected = torch.randn((2, 3), generator=made())
    assert torch.equal(randn_tensor((2, 3), made()), expected)
    with use_streams():
        assert torch.equal(diffusers.utils.torch_utils.randn_tensor((2, 3), made()), expected)


def test_outside_diffusers_is_as_before(pipeline):
    original = diffusers.utils.torch_utils.randn_tensor
    with pytest.raises(ZeroDivisionError), use_streams():
        assert diffusers.utils.torch_utils.randn_tensor is randn_tensor
        raise ZeroDivisionError
    assert diffusers.utils.torch_utils.randn_tensor is original
    with pytest.raises(TypeError):
        pipeline(2, generator=bank_of([1, 2]), num_inference_steps=1)


def test_examples_of_the_docstrings_run():
    module = sys.modules[randn_tensor.__module__]
    found = doctest.testmod(module, extraglobs={"fastseed": fastseed})
    assert found.attempted > 8 and not found.failed


def test_refused_arguments():
    bank = bank_of(SEEDS)
    before = bank.positions.clone()
    rule = r"shape must be of as many images as the bank has streams, 4, got \(3, 2\)"
    with pytest.raises(ValueError, match=rf"^fastseed\.integrations\.diffusers\.\w+: {rule}"):
        randn_tensor((3, 2), bank)
    with pytest.raises(ValueError, match=r"layout must be torch\.strided"):
        randn_tensor((4, 2), bank, layout=torch.sparse_coo)
    assert torch.equal(bank.positions, before)


@pytest.mark.parametrize(
    ("shape", "device", "says"),
    [(5, None, "shape must be"), ((), None, "shape must be"), ((4, 2), "xla", "device must be")],
)
def test_refused_noise_does_not_advance_the_bank(shape, device, says):
    bank = bank_of(SEEDS)
    with pytest.raises((TypeError, ValueError), match=says):
        randn_tensor(shape, bank, device=device)
    assert not bank.positions.any()

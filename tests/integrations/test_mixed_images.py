"""torchvision: ``per_batch`` around MixUp and CutMix, transforms in a block of ``keyed``."""

import importlib
import sys
from pathlib import Path

import pytest
import torch
from helpers.batches import BATCH, N, check
from helpers.loaders import start
from torch.utils.data import Dataset, default_collate

import fastseed
from fastseed.data import per_batch, per_sample

CLASSES = 5
ASIDE = Path(sys.prefix, "torchvision")  # where the Makefile installs it


class Images(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return torch.full((3, 8, 8), float(i)), i % CLASSES


@pytest.fixture(scope="module")
def v2():
    """torchvision's transforms, also where its native code is of another build than torch.

    PyPI's is made for CUDA. The transforms here need none of its operators, but the import wants
    them to be declared.
    """
    sys.path.append(str(ASIDE))
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        pytest.skip("torchvision is not installed; `make test-integrations` does it")
    declared = torch.library.Library("torchvision", "FRAGMENT")
    try:
        for path in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(path)
    except OSError:
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield importlib.import_module("torchvision.transforms.v2")
    sys.path.remove(str(ASIDE))
    del declared


@pytest.mark.parametrize("names", [("MixUp",), ("CutMix",), ("MixUp", "CutMix")])
def test_mixed_images(v2, names):
    start(3)
    mixers = [getattr(v2, name)(num_classes=CLASSES) for name in names]
    mix = mixers[0] if len(mixers) == 1 else v2.RandomChoice(mixers)

    def collate(samples):
        return mix(*default_collate(samples))

    whole = check(per_sample(Images()), per_batch(collate))
    assert len({max(label) for batch in whole for label in batch[1]}) > N // BATCH


def test_transforms_in_a_block_draw_from_keys(v2):
    start(3)
    fastseed.reseed(1, 0)
    image = torch.arange(3 * 16 * 16, dtype=torch.float32).view(3, 16, 16) / 768
    transforms = [
        v2.RandomResizedCrop(8),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
        v2.RandomRotation(30),
        v2.GaussianBlur(3),
        v2.GaussianNoise(),
        v2.RandomErasing(p=1.0),
        v2.RandomChoice([v2.RandomCrop(8), v2.RandomVerticalFlip(1.0)]),
        v2.RandomOrder([v2.RandomCrop(8), v2.RandomSolarize(0.5)]),
    ]

    def run(junk):
        torch.manual_seed(junk)
        with fastseed.random.keyed("augment", 0):
            return [[transform(image) for _ in range(3)] for transform in transforms]

    first, again = run(1), run(2)
    for transform, rows, others in zip(transforms, first, again, strict=True):
        assert all(map(torch.equal, rows, others)), transform
        assert not all(torch.equal(rows[0], row) for row in rows), transform
    mixed = v2.MixUp(num_classes=CLASSES)
    with (
        fastseed.random.keyed("mix"),
        pytest.raises(RuntimeError, match="_sample_dirichlet has no"),
    ):
        mixed(image[None], torch.tensor([1]))

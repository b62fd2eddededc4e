"""``per_batch`` around torchvision's MixUp and CutMix."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
from helpers.batches import BATCH, N, check
from helpers.loaders import start
from helpers.worker_cases import flat
from torch.utils.data import Dataset, default_collate

from fastseed.data import Loader, per_batch, per_sample

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
        pytest.fail("needs torchvision, which `make test-integrations` installs")
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
    loader = Loader(Images(), BATCH, collate_fn=per_batch(collate, rows=True))
    with pytest.raises(ValueError, match="the first row depends on the second sample"):
        flat(loader)

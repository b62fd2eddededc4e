"""Operations on torch's list. A line that ends in `fault: ID` has that fault alone."""

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import functional

torch.use_deterministic_algorithms(True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.pool = nn.AvgPool3d(2)  # fault: FS501
        self.adaptive = nn.AdaptiveAvgPool2d((4, 4))  # fault: FS501
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.mean_too = nn.AdaptiveAvgPool2d((1, 1))
        self.pad = nn.modules.padding.ReflectionPad2d(1)  # fault: FS501
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")  # fault: FS501
        self.nearest = nn.Upsample(scale_factor=2)
        self.bag = nn.EmbeddingBag(3, 4)
        self.worst = nn.EmbeddingBag(3, 4, mode="max")  # fault: FS501

    def forward(self, x: Tensor, mode, table: pd.DataFrame, frame, array: np.ndarray):
        x = self.up(x)
        a = F.interpolate(x, scale_factor=2, mode="bicubic")  # fault: FS501
        b = F.interpolate(x, scale_factor=2)
        c = F.interpolate(x, scale_factor=2, mode=mode)
        with torch.no_grad():
            F.grid_sample(x, x)
        d = functional.grid_sample(x, x)  # fault: FS501
        e = F.adaptive_avg_pool2d(x, 1)
        return a, b, c, d, e


@torch.inference_mode()
def show(image):
    return F.interpolate(image, scale_factor=2, mode="bicubic")


def tensors(x: Tensor, weights, array: np.ndarray, labels, mask):
    torch.bincount(labels)
    torch.bincount(labels, weights)  # fault: FS501
    torch.bincount(labels, weights=weights)  # fault: FS501
    torch.median(x)
    torch.median(x, dim=1)  # fault: FS501
    torch.cumsum(x, dim=0)  # fault: FS501
    x.cumsum(0)  # fault: FS501
    torch.softmax(x, dim=0).cumsum(0)  # fault: FS501
    torch.cumsum(mask, dim=0)
    torch.cumsum(x.long(), dim=0)
    torch.cumsum(x > 0, dim=0)
    labels.shape.cumsum(0)
    torch.cumsum(x, dim=0, dtype=torch.int64)
    array.cumsum(0)
    array.cumsum_of_median()
    weights.put_(labels, x)  # fault: FS501
    torch.histc(x)  # fault: FS501
    F.ctc_loss(x, labels, labels, labels)  # fault: FS501
    x.scatter_reduce(0, labels, x, reduce="prod")  # fault: FS501
    x.scatter_reduce(0, labels, x, "prod")  # fault: FS501
    x.scatter_reduce(0, labels, x, reduce="sum")
    x.scatter_add_(0, labels, x)

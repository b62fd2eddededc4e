"""Was cuBLAS configured in time: deterministic() before or after the first product."""

import json
import os
import sys

import torch

import fastseed

os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
a = torch.ones(64, 64, device="cuda")
if sys.argv[1] == "late":
    a @ a
report = fastseed.deterministic()
try:
    a @ a
    product = "done"
except RuntimeError as error:
    product = "refused" if "CUBLAS_WORKSPACE_CONFIG" in str(error) else str(error)
print(
    json.dumps(
        {
            "cublas": report["CUBLAS_WORKSPACE_CONFIG"].status,
            "variable": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
            "product": product,
        }
    )
)

"""The names and modules of a model without what wrappers add to them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import parallel

from .._utils import validation
from ..random import layout
from ..random.layout import Piece, Shard

# What torch.compile, activation checkpointing and FSDP1 put into qualified names.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})


@functools.lru_cache(maxsize=2**16)
def strip_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """Return the user's module inside DDP, ``DataParallel`` and ``torch.compile``."""
    while True:
        if isinstance(model, (parallel.DistributedDataParallel, parallel.DataParallel)):
            model = model.module
        elif (compiled := dict(model.named_children()).get("_orig_mod")) is not None:
            model = compiled
        else:
            return model


def sharded_modules(model: torch.nn.Module) -> list[Any]:
    """Return the modules that ``fully_shard`` has sharded."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    return [] if fsdp is None else [m for m in model.modules() if isinstance(m, fsdp.FSDPModule)]


def reshard(model: torch.nn.Module) -> None:
    """Let sharded modules drop the whole parameters that a forward pass has left, copies."""
    for module in sharded_modules(model):
        module.reshard()


def check_prefix(function: str, prefix: object) -> str:
    if isinstance(prefix, str) and not prefix:
        return ""
    text = validation.check_text(function, "prefix", prefix).removesuffix(".")
    if not text or text.startswith(".") or text.endswith("."):
        raise validation.value_error(function, "prefix", "a name, as 'layers.3'", prefix)
    return f"{text}."


def check_shards(function: str, shards: Mapping[str, Shard] | None) -> dict[str, Shard]:
    given = {} if shards is None else shards
    return dict(validation.check_instance(function, "shards", given, Mapping, "a dict"))


def part_of(
    function: str, name: str, tensor: torch.Tensor, shard: Shard | None
) -> tuple[torch.Tensor, list[Piece]]:
    try:
        return layout.of_tensor(function, tensor, shard)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error} ({name})") from error

"""The names that import statements bind, as dotted names, with one name for each thing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Where a library keeps what it shows elsewhere: the same thing has one name in the rules.
_ALIASES = (
    ("numpy.random.mtrand.", "numpy.random."),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.utils.data.dataset.", "torch.utils.data."),
    ("torch.utils.data.distributed.", "torch.utils.data."),
    ("torch.utils.data.sampler.", "torch.utils.data."),
    ("torch.cuda.random.", "torch.cuda."),
    ("torch.random.", "torch."),
    ("torch.functional.", "torch."),
    ("fastseed.pyt.", "fastseed."),
    ("fastseed.seeder.api.", "fastseed."),
    ("fastseed.seeder.", "fastseed."),
)


def canonical(dotted: str) -> str:
    """The one name that the rules know a thing by."""
    for start, short in _ALIASES:
        if dotted.startswith(start):
            return short + dotted[len(start) :]
    last = dotted.rpartition(".")[2]
    if dotted.startswith("torch.nn.modules.") and last[:1].isupper():
        return f"torch.nn.{last}"
    return dotted


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """(name, what it stands for) of an import statement."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
            if not alias.asname and "." in alias.name:
                yield f"<{alias.name}>", alias.name  # no name, but a module that is imported
    else:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            joined = module + alias.name if module.endswith(".") else f"{module}.{alias.name}"
            yield alias.asname or alias.name, joined

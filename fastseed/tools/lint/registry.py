"""The table of rules, and the type of findings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..._utils.validation import check_instance, type_error, value_error

ERROR, WARNING, NOTE = "error", "warning", "note"

ALWAYS = "in every file"
ADOPTED = "in files that use fastseed"
SWITCH_OFF = "in files that train without deterministic algorithms"


class Rule(NamedTuple):
    """A rule of the linter."""

    id: str
    """``FS101``: FS, the group's digit, two digits. Never reused."""
    name: str
    level: str
    """``error``, ``warning`` or ``note``."""
    when: str
    """Which files it applies to."""
    message: str
    fix: str


class Finding(NamedTuple):
    """A violation of a rule at a position in a file. Sorts by position."""

    path: str
    """The path as given, or below a given folder; with ``/``."""
    cell: int
    """The cell of a notebook, from 1; 0 in a Python file."""
    line: int
    """The line, from 1; in a notebook within the cell."""
    column: int
    """The column, from 1, in characters."""
    end_line: int
    rule: str
    message: str

    @property
    def fix(self) -> str:
        """The replacement."""
        return RULES[self.rule].fix


_TABLE = (
    Rule(
        "FS001", "unreadable", ERROR, ALWAYS,
        "the file cannot be read as Python, so nothing in it was checked",
        "correct it, or leave it out",
    ),
    Rule(
        "FS002", "unknown-ignore", WARNING, ALWAYS,
        "a comment ignores a rule that does not exist",
        "name rules by id, as in `# fastseed: ignore[FS101]`",
    ),
    Rule(
        "FS101", "manual-seeding", ERROR, ADOPTED,
        "seeds a generator that fastseed seeds: from here on its numbers depend on neither epoch "
        "nor rank",
        "remove the line; `fastseed.reseed(task, epoch)` seeds all three libraries",
    ),
    Rule(
        "FS102", "unseeded-generator", ERROR, ALWAYS,
        "makes a generator that the operating system seeds: every run draws other numbers",
        "give it a seed, as `fastseed.derive_seed(name, task=0)`, "
        "or `fastseed.register_generator(it)`",
    ),
    Rule(
        "FS103", "unseeded-torch-generator", ERROR, ALWAYS,
        "makes a torch.Generator that nothing seeds: the same constant in every run, on every rank",
        "`fastseed.register_generator(it)`, or `it.manual_seed(...)`",
    ),
    Rule(
        "FS104", "accidental-seed", ERROR, ALWAYS,
        "takes a seed from something that differs between runs",
        "take the seed from the user; without one, `fastseed.init(None)` draws one and logs it",
    ),
    Rule(
        "FS201", "shuffle-without-generator", WARNING, ALWAYS,
        "shuffles with the global generator: the order depends on all that was drawn before it",
        "use `fastseed.data.loader(...)`, or `sampler=fastseed.data.ShuffleSampler(dataset)`, "
        "or a registered `generator=`",
    ),
    Rule(
        "FS202", "split-without-generator", WARNING, ALWAYS,
        "splits or samples with the global generator: the parts depend on all that was drawn "
        "before it, and a resumed run may train on what it holds out",
        "pass `generator=torch.Generator().manual_seed(...)` with a seed of its own",
    ),
    Rule(
        "FS203", "workers-without-init", ERROR, ADOPTED,
        "starts workers whose generators fastseed does not know of",
        "use `fastseed.data.loader(...)`, or `worker_init_fn=fastseed.data.worker_init_fn`",
    ),
    Rule(
        "FS204", "set-epoch-missing", ERROR, ALWAYS,
        "makes a DistributedSampler, but no epoch loop here calls its set_epoch: every epoch has "
        "the same order",
        "call `sampler.set_epoch(epoch)` in the epoch loop, or use `fastseed.data.ShuffleSampler`",
    ),
    Rule(
        "FS205", "shuffle-after-seeding", NOTE, ALWAYS,
        "shuffles with the global generator, which this file seeds: the order repeats, but it "
        "depends on all that was drawn before it",
        "use `fastseed.data.loader(...)`, or a `generator=` of its own",
    ),
    Rule(
        "FS301", "reseed-missing", ERROR, ADOPTED,
        "an epoch loop without reseed: a resumed run draws other numbers than one that ran through",
        "call `fastseed.reseed(task, epoch)` first in the loop",
    ),
    Rule(
        "FS302", "reseed-constant", ERROR, ADOPTED,
        "reseeds with the same coordinates in every epoch: every epoch draws the same numbers",
        "pass the epoch: `fastseed.reseed(task, epoch)`",
    ),
    Rule(
        "FS303", "resume-without-generators", WARNING, ALWAYS,
        "resumes training from a checkpoint and restores no random number generator: the resumed "
        "run draws other numbers than one that ran through",
        "save and restore `fastseed.state_dict(rng=True)`, or call "
        "`fastseed.reseed(task, epoch, step)` after loading",
    ),
    Rule(
        "FS401", "listing-order", WARNING, ALWAYS,
        "takes data in the order of a directory listing, which differs between file systems",
        "wrap it in `sorted(...)`",
    ),
    Rule(
        "FS402", "set-order", WARNING, ALWAYS,
        "takes data in the order of a set, which differs between processes when it holds strings",
        "wrap it in `sorted(...)`, or use `dict.fromkeys(...)`, which keeps the order",
    ),
    Rule(
        "FS501", "nondeterministic-operation", WARNING, ALWAYS,
        "an operation that torch lists as having no deterministic implementation",
        "use another operation, or this one on the CPU; "
        "`torch.use_deterministic_algorithms(True)` raises where it matters",
    ),
    Rule(
        "FS502", "deterministic-mode-off", NOTE, SWITCH_OFF,
        "trains with an operation that is deterministic only after `use_deterministic_algorithms`",
        "call `torch.use_deterministic_algorithms(True)`, or start it by `fastseed run "
        "--deterministic`",
    ),
)  # fmt: skip

RULES: dict[str, Rule] = {rule.id: rule for rule in _TABLE}
"""By id, in order."""


def explain(rule: str) -> str:
    """Return a rule's section of rules.md: what it does, why that is bad, an example and its fix.

    Args:
        rule: an id, such as ``FS101``.

    Raises:
        ValueError: there is no such rule.
    """
    if rule not in RULES:
        raise value_error("tools.lint.explain", "rule", "the id of a rule, such as FS101", rule)
    text = (Path(__file__).parent / "rules.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    return next(one for one in sections if one.startswith(rule)).strip()


def chosen(argument: str, patterns: Iterable[str]) -> set[str]:
    """Return the ids that patterns match: ``FS101``, or the prefix ``FS1``."""
    rule = "ids of rules or the start of some, as FS101 or FS1"
    if isinstance(patterns, str):
        raise type_error("tools.lint.check", argument, f"a list of {rule}", patterns)
    ids: set[str] = set()
    for pattern in patterns:
        found = matching(check_instance("tools.lint.check", argument, pattern, str, rule))
        if not found:
            raise value_error("tools.lint.check", argument, rule, pattern)
        ids |= found
    return ids


def matching(pattern: str) -> set[str]:
    """Return the ids that one pattern matches; empty if there is no such id or prefix."""
    pattern = pattern.strip().upper()
    return {id for id in RULES if id.startswith(pattern)} if pattern.startswith("FS") else set()

"""Environment variables: those that matter, or all of them with what looks secret taken out."""

from __future__ import annotations

from collections.abc import Mapping

from .redact import Scrubber
from .variable_names import is_allowed


def variables(environ: Mapping[str, str], scrubber: Scrubber, everything: bool) -> dict[str, str]:
    """Name -> value. Without ``everything`` only the names of the allow-list."""
    found = {}
    for name in sorted(environ):
        allowed = is_allowed(name)
        if allowed or everything:
            found[name] = scrubber.variable(name, environ[name], allowed=allowed)
    return found

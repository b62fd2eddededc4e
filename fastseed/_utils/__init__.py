"""Argument checks, atomic and checked files, strict JSON, environment variables, lazy packages."""

from __future__ import annotations

from typing import Any

JSON = Any
"""The result of ``json.loads``."""
StateDict = dict[str, Any]
"""The entries of a ``state_dict()`` by their names."""

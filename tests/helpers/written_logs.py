"""Logs that tests write, and values to the last bit."""

from __future__ import annotations

import json
import struct


def lines(*rows, end="\n"):
    return "\n".join(json.dumps(row) for row in rows) + end


def bits(values):
    return [struct.pack("<d", value) for value in values]


def dlll(step, data, kind="LOG"):
    """A line as the JSONStreamBackend of NVIDIA/dllogger writes it."""
    row = {
        "timestamp": "1570716921.842053",
        "datetime": "2019-10-10 14:15:21.842053",
        "elapsedtime": "5.7",
        "type": kind,
        "step": step,
        "data": data,
    }
    return f"DLLL {json.dumps(row)}\n"

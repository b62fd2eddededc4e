"""The reader of TensorBoard's event files."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from typing import Any

from .log_rows import DOUBLE, Number, Rows, refuse

MARK = "tfevents"  # in the names of these files
_FLOAT32 = 9  # significant digits that tell all of them
_FRAME = 16  # bytes of a record that are its length and checksums
_TIME = re.compile(rf"{MARK}\.(\d{{1,20}})\.")


def event_files(path: str) -> list[str]:
    """The event files of a folder and those within it, from the oldest; or the file itself."""
    if not os.path.isdir(path):
        return [path]
    found = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(path)
        for name in names
        if MARK in name and not name.endswith(".profile-empty")
    ]
    return sorted(found, key=_age)


def _age(path: str) -> tuple[int, str]:
    """The second in which a file was begun stands in its name."""
    time = _TIME.search(os.path.basename(path))
    return int(time[1]) if time else 0, path


def read_tensorboard(path: str, value: str) -> Rows:
    """The scalars of a tag; several files are one run's, which was interrupted."""
    files = event_files(path)
    if not files:
        refuse(f"{path} must hold files named *{MARK}*, got a folder without any")
    rows = Rows(path, value, ("step",))
    folders: set[str] = set()
    for file in files:
        if not os.path.isfile(file):  # a pipe would be waited for
            refuse(f"{file} must be a regular file")
        before = len(rows.values)
        _read(file, rows)
        if len(rows.values) > before:
            folders.add(os.path.dirname(file))
    if len(folders) > 1:
        rows.notes.append(f"put together from {len(folders)} folders")
    return rows


def _module(name: str) -> Any:
    """One of TensorBoard's modules; an ImportError that names the extra where it is missing."""
    try:
        return importlib.import_module(f"tensorboard.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tensorboard":
            raise  # it is installed, and lacks something itself
        raise ImportError(
            "fastseed.tools.verify: this log needs the package 'tensorboard': "
            'pip install "fastseed[tensorboard]"',
            name=error.name,
        ) from error


def _read(file: str, rows: Rows) -> None:
    """Take the tag's values of one file.

    Its records rather than TensorBoard's EventAccumulator: that drops what was written before a
    restart, and does not tell a damaged file from one that ends.
    """
    whole, taken, count = os.path.getsize(file), 0, 0
    scalars: set[str] = set()  # tags of tensors that are scalars: only the first of each says so
    for event, size in _events(file):
        taken, count = taken + size, count + 1
        for found in event.summary.value:
            _take(file, rows, event.step, found, scalars)
    if taken < whole:
        name = os.path.basename(file)
        rows.notes.append(f"{name} is cut off or damaged after {count} events; the rest left out")


def _events(file: str) -> Iterator[tuple[Any, int]]:
    """Each event of a file, and its bytes; ends where a record is damaged."""
    loader = _module("backend.event_processing.event_file_loader")
    parse = _module("compat.proto.event_pb2").Event.FromString
    try:
        for record in loader.RawEventFileLoader(file).Load():
            yield parse(record), len(record) + _FRAME
    except Exception as error:  # protobuf's, TensorFlow's or the stand-in's, as is installed
        text = str(error).partition("\n")[0][:200] or type(error).__name__
        refuse(f"{file} must hold TensorBoard's events, got damaged ones ({text})")


def _take(file: str, rows: Rows, step: int, found: Any, scalars: set[str]) -> None:
    tag = found.tag
    if found.metadata.plugin_data.plugin_name == "scalars":
        scalars.add(tag)
    plain = found.HasField("simple_value")
    if not plain and (tag not in scalars or not found.HasField("tensor")):
        return  # an image, a histogram, a text
    rows.count += 1
    rows.see((tag,))
    if tag != rows.value:
        return
    number, digits = found.simple_value, _FLOAT32
    if not plain:
        try:
            array = _module("util.tensor_util").make_ndarray(found.tensor)
        except (TypeError, ValueError) as error:
            refuse(f"{file}: {tag!r} must be one number a step, got a damaged tensor ({error})")
        if array.size != 1 or array.dtype.kind not in "fiu":
            got = f"{array.dtype} of shape {array.shape}"
            refuse(f"{file}: {tag!r} must be one number a step, got {got}")
        number, digits = array.reshape(()), DOUBLE if array.itemsize == 8 else _FLOAT32
    rows.digits = max(rows.digits, digits)
    rows.add(0, float(number), lambda _: Number(step))

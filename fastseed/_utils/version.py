"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fastseed")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "unknown"

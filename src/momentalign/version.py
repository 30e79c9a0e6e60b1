"""The version: that of the tag the package was built from."""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("momentalign")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+source"

"""Where compiled loops are kept on disk: numba's cache, without its dependence on sound files and a writable folder.

Every file ends with a digest of the rest. What is damaged is not read but compiled again and replaced; what cannot be
written is not kept. Where numba finds no folder at all, loops are compiled in every process.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache

from momentalign.errors import MomentAlignWarning

__all__ = ["compile_cache"]

_DIGEST = 32


def compile_cache(function: Callable[..., Any]) -> Any:
    """Return the cache of a function that numba compiles."""
    try:
        return _Cache(function)
    except RuntimeError:  # Neither the package's folder, nor the user's, nor NUMBA_CACHE_DIR can be written to.
        _warn_once()
        return NullCache()


@cache
def _warn_once() -> None:
    warnings.warn(
        "there is no folder to keep compiled loops in, so every process compiles them again (some seconds); set "
        "NUMBA_CACHE_DIR to a folder that can be written to.",
        MomentAlignWarning,
        stacklevel=2,
    )


class _Cache(FunctionCache):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)  # type: ignore[no-untyped-call]

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class _Files(IndexDataCacheFile):
    """The index and the data files; numba takes the digest at their ends for nothing."""

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[IO[bytes]]:
        with super()._open_for_write(filepath) as file:
            yield file
            file.flush()
            file.write(hashlib.sha256(Path(file.name).read_bytes()).digest())

    def _load_index(self) -> Any:
        return super()._load_index() if _is_whole(self._index_path) else {}  # type: ignore[no-untyped-call]

    def _load_data(self, name: str) -> Any:
        if not _is_whole(self._data_path(name)):  # type: ignore[no-untyped-call]
            raise OSError(f"{name} is damaged")  # which the caller takes for a file that is not there
        return super()._load_data(name)  # type: ignore[no-untyped-call]


def _is_whole(path: str) -> bool:
    try:
        content = memoryview(Path(path).read_bytes())
    except OSError:
        return False
    return len(content) > _DIGEST and hashlib.sha256(content[:-_DIGEST]).digest() == bytes(content[-_DIGEST:])

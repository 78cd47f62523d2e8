"""Numba's cache on disk, with the care that numba does not take of it: of what sources machine code is."""

import functools
import glob
import io
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile
from numba.core.runtime.nrt import rtsys

__all__ = ["CacheFile", "machine_code", "watch_sources"]


@functools.cache
def _checksum(package: Path) -> int:
    """Of the files of a package that may take part in a kernel."""
    checksum = 0
    for file in sorted(file for file in package.rglob("*.py") if file.is_file()):
        text = file.read_bytes()
        if b"ringyard.compiled" in text:
            checksum = zlib.crc32(text, checksum)
    return checksum


def _sources(function: Callable[..., Any]) -> tuple[int, int]:
    """Checksums of the files that a kernel may be made of: of this package and of its own."""
    own = sys.modules.get(function.__module__.partition(".")[0])
    folder = Path(getattr(own, "__file__", None) or __file__).parent
    return _checksum(Path(__file__).parents[1]), _checksum(folder)


class CacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """Numba's cache files with a checksum at the end of each: a damaged one is as good as none.

    Numba takes what it finds for pickles and machine code: a changed byte would be any exception, a crash or
    a wrong number. And it writes an index before the machine code that the index names, where until then
    machine code of earlier sources may lie, which another process, or the next one after Ctrl-C, would take.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write machine code, then the index that names it.

        Args:
            key: types, processor and code that it is for: the file is called by them, so that another process
                cannot mean other machine code by that name.
            data: as numba pickles it.
        """
        overloads = self._load_index()
        if not overloads:
            self._remove_data()
        name = self._data_name(zlib.crc32(repr(key).encode()))
        self._save_data(name, data)
        self._save_index({**overloads, key: name})

    def _remove_data(self) -> None:
        """What no index names: machine code of earlier sources."""
        base = self._index_name.removesuffix(".nbi")
        for file in Path(self._cache_path).glob(f"{glob.escape(base)}.*.nbc"):
            file.unlink(missing_ok=True)

    def _stamped(self, data: bytes) -> bytes:
        """With a checksum of it, and of the sources and the numba that it is of."""
        about = zlib.crc32(repr((self._version, self._source_stamp)).encode())
        return data + zlib.crc32(data, about).to_bytes(4, "little")

    def _is_intact(self, path: str) -> bool:
        file = Path(path)
        data = file.read_bytes() if file.is_file() else b""
        return self._stamped(data[:-4]) == data

    @contextmanager
    def _open_for_write(self, path: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(path) as file:
            written = io.BytesIO()
            yield written
            file.write(self._stamped(written.getvalue()))

    def _load_index(self) -> dict[Any, str]:
        entries: dict[Any, str] = super()._load_index() if self._is_intact(self._index_path) else {}
        return entries

    def _load_data(self, name: str) -> Any:
        if not self._is_intact(self._data_path(name)):
            raise OSError(f"{name} is damaged, or of other sources")  # numba compiles anew
        return super()._load_data(name)


def watch_sources(cache: Any, function: Callable[..., Any]) -> None:
    """Let the cache of a function hold what it has against all files that the function may be made of.

    Numba looks at the function's own alone.

    Args:
        cache: of a dispatcher; one that keeps nothing stays as it is.
        function: that it compiles.
    """
    file = getattr(cache, "_cache_file", None)
    if file is not None and hasattr(file, "_source_stamp"):
        stamp = (file._source_stamp, _sources(function))
        cache._cache_file = CacheFile(cache.cache_path, cache._impl.filename_base, stamp)


def machine_code(cache: Any, signature: Any, context: Any) -> Any:
    """What the cache has for a signature, ready to run; None: nothing.

    Numba's own way also imports what only compiling needs, in a third of a second.

    Args:
        cache: of a dispatcher.
        signature: as numba knows it.
        context: numba's, of the processor.
    """
    rtsys.initialize(context)
    try:
        with cache._guard_against_spurious_io_errors():
            return cache._load_overload(signature, context)
    except (AttributeError, ImportError, pickle.UnpicklingError, EOFError):
        cache.flush()  # of another version, or for types that are gone
        return None

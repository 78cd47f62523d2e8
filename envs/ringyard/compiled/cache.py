"""Machine code on disk: a file for each kernel and signature, in a folder named by a hash of the sources."""

import functools
import gc
import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any

import numba
from platformdirs import user_cache_path

from ringyard.compiled.numba_internals import NullCache, deserialize, dumps, processor, serialize
from ringyard.errors import ConfigurationWarning

_REPORTED_SECONDS = 0.5  #: seconds that a compilation takes before it is worth a message


@functools.cache
def _report() -> None:
    print("ringyard: compiling kernels, once for this machine", file=sys.stderr, flush=True)


@contextmanager
def report_compilation() -> Iterator[None]:
    """Say on standard error, once in a process, that kernels are compiled, if one takes long.

    Meanwhile Python does not look for garbage, which takes a tenth of the time.
    """
    message, collects = Timer(_REPORTED_SECONDS, _report), gc.isenabled()
    message.start()
    gc.disable()
    try:
        yield
    finally:
        message.cancel()
        if collects:
            gc.enable()


#: packages of this project, each of which imports only those before it
OWN_PACKAGES = ("ringyard", "ringyard_baselines", "ringyard_agents")
_MAX_FOLDERS = 16  #: number of folders kept for one package: other versions, other checkouts, earlier sources


def _sources(package: str) -> list[Path]:
    """Return the Python files that may take part in the kernels of an imported package.

    They are the files of this project that name `ringyard.compiled` (those of the package and of the packages
    before it, or all). For another package they include all of its files, or those beside a lone module.
    """
    house = OWN_PACKAGES[: OWN_PACKAGES.index(package) + 1] if package in OWN_PACKAGES else OWN_PACKAGES
    specs = [spec for spec in map(find_spec, house) if spec is not None]
    folders = [folder for spec in specs for folder in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in sorted(Path(folder).rglob("*.py"))]
    room = Path(__file__).parent
    files = [file for file in files if file.parent == room or b"ringyard.compiled" in file.read_bytes()]
    if package not in OWN_PACKAGES:
        own: Any = sys.modules[package]
        if hasattr(own, "__path__"):
            files += [file for folder in own.__path__ for file in sorted(Path(folder).rglob("*.py"))]
        else:
            files += sorted(Path(own.__file__).parent.glob("*.py"))
    return files


@functools.cache
def _warn_not_stored(folder: Path, reason: str) -> None:
    """Warn, once a process, that machine code is compiled and lost."""
    variable = "RINGYARD_CACHE_DIR" if os.environ.get("RINGYARD_CACHE_DIR") else "NUMBA_CACHE_DIR"
    warnings.warn(
        f"machine code cannot be stored in {folder} ({reason}), so each process compiles it anew; set"
        f" {variable} to a folder with room that can be written to (export {variable}=/tmp/numba)",
        ConfigurationWarning,
        stacklevel=2,
    )


@functools.cache
def folder_of(package: str) -> Path | None:
    """Return the folder of machine code of a package. None, with a warning, if it is not writable.

    It lies in RINGYARD_CACHE_DIR, in NUMBA_CACHE_DIR or in the user's cache folder. Its name has a hash of
    all sources that may take part and of the versions of Numba and Python. Of folders with other hashes,
    those used last are kept.
    """
    digest = hashlib.sha256(repr((numba.__version__, sys.version)).encode())
    for file in _sources(package):
        digest.update(file.read_bytes())
    named = os.environ.get("RINGYARD_CACHE_DIR") or os.environ.get("NUMBA_CACHE_DIR")
    base = Path(named) if named else user_cache_path("ringyard") / "kernels"
    folder = base / f"{package}-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if not folder.is_dir():
            _warn_not_stored(base, str(error.strerror))
            return None
        return folder  # it may be read-only and filled already
    others = sorted(base.glob(f"{package}-{'[0-9a-f]' * 16}"), key=_last_used, reverse=True)
    for old in others[_MAX_FOLDERS:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def _last_used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:  # removed by another process
        return 0.0


def _with_checksum(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4, "little")


class DiskCache(NullCache):  # type: ignore[misc]
    """Numba's cache of `function`: a file for each signature and kind of processor.

    A file is written beside its place and then moved there. It ends with a checksum, since Numba would run a
    damaged file as machine code. Damaged files are compiled anew. Nothing is kept of closures and of
    functions without a file (notebooks).
    """

    def __init__(self, function: Any) -> None:
        self._function = function

    @functools.cached_property
    def _folder(self) -> Path | None:
        code = self._function.__code__
        if self._function.__closure__ or not Path(code.co_filename).is_file():
            return None
        return folder_of(self._function.__module__.partition(".")[0])

    @property
    def cache_path(self) -> str:
        """The folder, as Numba's statistics name it."""
        return str(self._folder)

    def _key(self, signature: Any) -> tuple[Any, ...]:
        code = self._function.__code__
        name = f"{self._function.__module__}.{self._function.__qualname__}"
        return (name, code.co_firstlineno, code.co_code, signature, processor())

    def _file(self, signature: Any) -> Path | None:
        if self._folder is None:
            return None
        digest = hashlib.sha256(repr(self._key(signature)).encode()).hexdigest()
        name = self._function.__name__.replace("<lambda>", "lambda")
        return self._folder / f"{name}-{digest[:24]}"

    def has(self, signature: Any) -> bool:
        """Whether there is machine code for a signature."""
        file = self._file(signature)
        return file is not None and file.is_file()

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return what is kept for `signature`, ready to run in Numba's `context`, or None."""
        file = self._file(signature)
        data = file.read_bytes() if file is not None and file.is_file() else b""
        if not data or _with_checksum(data[:-4]) != data:
            return None
        with suppress(AttributeError, ImportError, pickle.UnpicklingError, EOFError):  # types that are gone
            key, payload = pickle.loads(data)
            if key == self._key(signature):
                return deserialize(context, payload)
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep `compiled`, the machine code for `signature`, if it can be serialised."""
        file = self._file(signature)
        reduced = serialize(compiled)
        if file is None or reduced is None:
            return
        data = _with_checksum(dumps((self._key(signature), reduced)))
        try:
            handle, written = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(data)
                os.replace(written, file)
            except BaseException:
                Path(written).unlink(missing_ok=True)
                raise
        except FileNotFoundError:  # another process removed the folder
            pass
        except OSError as error:  # a folder of others, a full disk
            _warn_not_stored(file.parent.parent, str(error.strerror))

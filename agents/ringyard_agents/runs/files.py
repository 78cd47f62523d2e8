"""Files that are whole or not there, and run folders with one writer."""

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ringyard.errors import ConfigurationError

__all__ = ["atomic_folder", "atomic_write", "locked", "remove_if_empty", "require_writable"]

_LOCK = ".lock"
_PARTIAL = ".partial-"
_SWEEP_NOTE = "multirun.yaml"  # Hydra writes it before the first job

#: errors of file systems that have no locks
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def atomic_write(file: Path) -> Iterator[Path]:
    """A path to write what `file` shall hold; `file` is as it was until all of it is on the disk.

    The path is in the same folder and has the same suffix. Whatever goes wrong, it goes too; what a killed
    process leaves behind goes when the folder is next locked. A device or pipe is written to directly.

    Args:
        file: may exist; its folder does.

    Raises:
        OSError: the file cannot be written.
    """
    if file.exists() and not (file.is_file() or file.is_dir()):
        yield file
        return
    file = file.resolve()
    partial = file.with_name(f"{_PARTIAL}{secrets.token_hex(8)}{file.suffix}")
    try:
        yield partial
        _sync(partial, os.O_RDWR)
        os.replace(partial, file)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.errno is not None:  # a full disk names no file
            raise OSError(error.errno, os.strerror(error.errno), str(file)) from error
        raise
    with suppress(OSError):  # not every system lets folders be synchronised
        _sync(file.parent, os.O_RDONLY)


def require_writable(setting: str, file: Path) -> None:
    """Raise a ConfigurationError if `replaced` could not write a file, before there is anything to write.

    Args:
        setting: that names it.
        file: may exist; folders around it need not.
    """
    folder = next(one for one in file.absolute().parents if one.exists())
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=folder, prefix=_PARTIAL):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{setting} is {str(file)!r}, which cannot be written ({error.strerror}); expected a file, in a"
            " folder that you may write to"
        ) from error


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A new folder to fill in place of `folder`, which is as it was until the block has ended well.

    Args:
        folder: may exist; the one around it does.
    """
    partial = folder.with_name(f"{_PARTIAL}{secrets.token_hex(8)}")
    try:
        partial.mkdir()
        yield partial
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.unlink(missing_ok=True)  # somebody's file of that name
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _sync(path: Path, mode: int) -> None:
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only process that writes to a run folder; it is made if need be, and goes if it stays empty.

    The lock goes with the process, however that ends. On file systems without locks there is none.

    Raises:
        ConfigurationError: another process writes to it, or it has links that lead elsewhere.
        OSError: the folder cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _refuse_links(folder)
    lock = FileLock(folder / _LOCK, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigurationError(
            f"another process is writing to {folder}; wait until it has ended, or give another name="
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            remove_if_empty(folder)
            raise
    try:
        _remove_partial_files(folder)
        yield
    finally:
        with suppress(OSError):
            (folder / _LOCK).unlink()
        remove_if_empty(folder)
        lock.release()


def _refuse_links(folder: Path) -> None:
    """Whoever packed a run folder shall not decide which files outside are written."""
    for home, folders, files in os.walk(folder):
        for path in (Path(home, name) for name in (*folders, *files)):
            if path.is_symlink() or not (path.is_dir() or path.is_file() or not path.exists()):
                raise ConfigurationError(
                    f"{path} is a link, pipe or device; a run folder is written to, expected plain files and"
                    " folders in it: put what it leads to there itself, or remove it"
                )


def _remove_partial_files(folder: Path) -> None:
    """Remove what killed writers left, but not in folders inside that others are writing to."""
    for home, folders, files in os.walk(folder):
        for name in folders:
            if name.startswith(_PARTIAL):
                shutil.rmtree(Path(home, name), ignore_errors=True)
        folders[:] = [name for name in folders if not Path(home, name, _LOCK).exists()]
        for name in files:
            if name.startswith(_PARTIAL):
                with suppress(OSError):
                    Path(home, name).unlink()


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that has nothing but a sweep's note, and those around it that are then empty.

    Folders outside the working folder stay.
    """
    here = Path.cwd()
    folder = folder.resolve()
    while here in folder.parents:
        try:
            if os.listdir(folder) == [_SWEEP_NOTE]:
                (folder / _SWEEP_NOTE).unlink()
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent

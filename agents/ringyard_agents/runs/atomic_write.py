"""Write files and folders so that a reader sees the old or the new content, never half of it."""

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringyard.errors import ConfigurationError

#: beginning of the names of files and folders that are not whole yet
PARTIAL = ".partial-"


@contextmanager
def atomic_write(file: Path) -> Iterator[Path]:
    """Yield a path whose content replaces `file` when the block ends without an exception.

    The path is in the same folder and has the same suffix. It is removed after an exception. What a killed
    process leaves is removed when its run folder is next locked. A device or pipe is written to directly.

    Args:
        file: may exist; its folder does.

    Raises:
        OSError: the file cannot be written.
    """
    if file.exists() and not (file.is_file() or file.is_dir()):
        yield file
        return
    file = file.resolve()
    partial = file.with_name(f"{PARTIAL}{secrets.token_hex(8)}{file.suffix}")
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
        setting: name of the setting that names the file.
        file: may exist. Its parent folders need not.
    """
    folder = next(one for one in file.absolute().parents if one.exists())
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=folder, prefix=PARTIAL):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{setting} is {str(file)!r}, which cannot be written ({error.strerror}); expected a file, in a"
            " folder that you may write to"
        ) from error


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `folder` when the block ends without an exception.

    Args:
        folder: may exist; the one around it does.
    """
    partial = folder.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
    try:
        partial.mkdir()
        yield partial
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.unlink(missing_ok=True)  # a file of that name
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

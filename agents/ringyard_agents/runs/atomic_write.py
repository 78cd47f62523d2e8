"""Atomic writes: a reader sees the old or the new content of a file or folder, never a part of it."""

import errno
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ringyard.errors import ConfigurationError

PARTIAL_PREFIX = ".partial-"  #: prefix of the names of incomplete files and folders


@contextmanager
def atomic_write(file: Path) -> Iterator[Path]:
    """Yield a path that replaces `file` when the block ends without an exception. Missing folders are made.

    If the process is killed it stays until its run folder is locked again. Devices are written to directly.
    """
    if file.exists() and not (file.is_file() or file.is_dir()):
        yield file
        return
    file = file.resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{PARTIAL_PREFIX}{secrets.token_hex(8)}{file.suffix}")
    try:
        yield partial
        _sync(partial, os.O_RDWR)
        os.replace(partial, file)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.errno is not None:  # the error of a full disk names no file
            raise OSError(error.errno, os.strerror(error.errno), str(file)) from error
        raise
    with suppress(OSError):  # not every system can synchronise folders
        _sync(file.parent, os.O_RDONLY)


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file as a whole. NaN and infinity, which JSON does not know, become null."""
    plain = json.loads(json.dumps(content), parse_constant=lambda _: None)
    with atomic_write(file) as partial:
        partial.write_text(json.dumps(plain, indent=2) + "\n")


def require_writable(setting: str, file: Path) -> None:
    """Raise a ConfigurationError if `atomic_write` cannot write a file. Its folders need not exist."""
    folder = next(one for one in file.absolute().parents if one.exists())
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=folder, prefix=PARTIAL_PREFIX):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{setting} is {str(file)!r}, which cannot be written ({error.strerror}); expected a file in"
            " a folder that you may write to"
        ) from error


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `folder` when the block ends without an exception."""
    partial = folder.with_name(f"{PARTIAL_PREFIX}{secrets.token_hex(8)}")
    try:
        partial.mkdir()
        yield partial
        remove_path(folder, ignore_errors=True)
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_path(path: Path, ignore_errors: bool = False) -> None:
    """Remove a file, or a folder with all in it, if it is there. `ignore_errors` of files in a folder."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=ignore_errors)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path, mode: int) -> None:
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

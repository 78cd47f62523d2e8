"""What all commands share: argument errors, errors as one line, signals and closed output."""

import argparse
import errno
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any, NoReturn

BAD_INPUT = 2
_BROKEN_PIPE = 128 + signal.SIGPIPE if hasattr(signal, "SIGPIPE") else 1
_MAX_ERROR_LENGTH = 1000  # characters
_FULL = 2**16  # bytes that a disk has left when it counts as full

_stops: list[signal.Signals] = []  # that the command has got

#: {package: prefix of the environment variables that it reads}
_LIBRARY_VARIABLES = {"matplotlib": "MPL", "numba": "NUMBA_"}

#: modules that `pip install ringyard` does not install
AGENT_LIBRARIES = {
    *("matplotlib", "PIL", "safetensors", "sb3_contrib"),
    *("stable_baselines3", "tensorboard", "torch"),
}

#: {library: extra that installs it}
_OTHER_EXTRAS = {"huggingface_hub": "hub", "onnx": "onnx", "onnxscript": "onnx"}


class Arguments(argparse.ArgumentParser):
    """An argument parser that raises a ConfigurationError for wrong arguments."""

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigurationError with the message."""
        from ringyard.errors import ConfigurationError
        from ringyard.renamed import explain_renamed

        found = re.match(r"unrecognized arguments: (-\S+)", message)
        if found and (renamed := explain_renamed("options", found[1])):
            raise ConfigurationError(renamed)
        near = get_close_matches(found[1], self._option_string_actions, n=1) if found else ()
        hint = f", did you mean {near[0]}?" if near else ""
        if found and not near and any(action.dest == "overrides" for action in self._actions):
            setting = found[1].strip("-").partition("=")[0].replace("-", "_")
            hint = f"; settings are written without dashes: {setting}=VALUE"
        raise ConfigurationError(f"{message}{hint}; see {self.prog} --help")


def exit_code(command: str, run: Callable[[], int]) -> int:
    """Run a command and print an error as one line on standard error (RINGYARD_DEBUG=1: after its traceback).

    Returns its exit code: 2 after an exception, 130 SIGINT, 143 SIGTERM, 141 if the output was closed.
    """
    _open_streams()
    _stops.clear()
    try:
        with _signals_raise(), _lost_signals_return(), _one_line_warnings(command):
            code = run()
            sys.stdout.flush()
            return code
    except BaseException as error:
        ends = isinstance(error, SystemExit)
        if isinstance(error.__context__ if ends else error, BrokenPipeError):
            return _discard_output()
        if _stops or isinstance(error, KeyboardInterrupt):  # a library may have failed because of the signal
            stop, notes = next(iter(_stops), signal.SIGINT), getattr(error, "__notes__", ())
            _print_error(command, "; ".join([f"stopped by {stop.name}", *notes]), error)
            return 128 + stop
        if isinstance(error, SystemExit):
            return BAD_INPUT if error.code else 0
        if not isinstance(error, Exception):
            raise
        _print_error(command, one_line(error), error)
        with suppress(OSError):
            sys.stdout.flush()
            return BAD_INPUT
        _discard_output()
        return BAD_INPUT


def raise_if_stopped(error: Exception) -> None:
    """Raise a KeyboardInterrupt if a signal came before an `error`, which may be a library's answer to it."""
    if _stops:
        raise _StoppedError from error


class _StoppedError(KeyboardInterrupt):
    """A signal. After a plain KeyboardInterrupt in an `exec`, caught or not, `python -m` ends by SIGINT."""


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Raise a KeyboardInterrupt on SIGINT and on the first SIGTERM of a batch system. `_stops` gets both."""

    def stop(number: int, frame: object) -> None:
        if number != signal.SIGTERM or not _stops:
            _stops.append(signal.Signals(number))
            raise _StoppedError

    if threading.current_thread() is not threading.main_thread():  # only the main thread can have handlers
        yield
        return
    ignored = (None, signal.SIG_IGN)  # a process in the background goes on ignoring SIGINT
    numbers = [one for one in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(one) not in ignored]
    before: dict[int, Any] = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _lost_signals_return() -> Iterator[None]:
    """Raise a signal again that came during a destructor or callback, where Python ignores exceptions."""
    before = sys.unraisablehook

    def raise_again(lost: Any) -> None:
        if _stops and isinstance(lost.exc_value, KeyboardInterrupt):
            again = (threading.main_thread().ident, _stops.pop())  # which a sleep of the main thread hears
            threading.Timer(0.05, signal.pthread_kill, again).start()
        else:
            before(lost)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = before


def _print_error(command: str, line: str, error: BaseException) -> None:
    if os.environ.get("RINGYARD_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    print(fit_terminal(f"{command}: {line}"), file=sys.stderr)


def fill(text: str, indent: str = "") -> str:
    """Break a `text` between words into lines that fit the terminal. All but the first get an `indent`."""
    width = min(max(shutil.get_terminal_size().columns, 40), 100)
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def fit_terminal(line: str) -> str:
    """Break a line for standard error if that is a terminal. Quoted parts, such as commands, stay whole."""
    if not sys.stderr.isatty():
        return line
    whole = re.sub(r"`[^`]*`|(?<!\w)'[^']*'", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), line)
    return fill(whole, "  ").replace("\N{NO-BREAK SPACE}", " ")


def _open_streams() -> None:
    """Replace standard streams that the shell has closed by the null device."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass  # so that no file of ours becomes a standard stream
        os.close(descriptor)
        null = open(os.devnull, "r+")
        sys.stdin, sys.stdout, sys.stderr = (one or null for one in (sys.stdin, sys.stdout, sys.stderr))


def _discard_output() -> int:
    """Discard the remaining standard output."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    return _BROKEN_PIPE


@contextmanager
def _one_line_warnings(command: str) -> Iterator[None]:
    """Print each warning of Ringyard once, as one line."""
    default = warnings.formatwarning
    printed: set[str] = set()  # a file can be read, and warned of, several times

    def plain(message: Warning | str, category: type[Warning], *place: Any, **line: Any) -> str:
        from ringyard.errors import ConfigurationWarning, WorkloadWarning

        if issubclass(category, ConfigurationWarning | WorkloadWarning):
            text = f"{fit_terminal(f'{command}: {message}')}\n"
            new = text not in printed
            printed.add(text)
            return text if new else ""
        return default(message, category, *place, **line)

    warnings.formatwarning = plain
    try:
        yield
    finally:
        warnings.formatwarning = default


def one_line(error: Exception) -> str:
    """Format an error as one line for users."""
    text = " ".join(_text(error).split())
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _MAX_ERROR_LENGTH else f"{text[:_MAX_ERROR_LENGTH]}..."


def _text(error: Exception) -> str:
    import yaml
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from ringyard.errors import RingyardError
    from ringyard_agents.config.hydra_messages import explain_error

    for cause in causes(error):
        if isinstance(cause, RingyardError):
            return str(cause)
        if missing := missing_library(cause):
            return missing
        if isinstance(cause, MemoryError):
            reason = f" ({cause})" if str(cause) else ""
            return f"not enough memory{reason}; use fewer jobs, servers, seeds or workers"
        if isinstance(cause, OSError) and not isinstance(cause, HydraException):
            return f"{cause.strerror}: {cause.filename}" if cause.filename else _explain_without_file(cause)
        if isinstance(cause, RecursionError):
            return "the settings are nested too deeply"
    package = _raising_package(error)
    if isinstance(error, HydraException | OmegaConfBaseException) or package in ("hydra", "omegaconf"):
        return explain_error(error)
    if isinstance(error, yaml.YAMLError | UnicodeError | ImportError):
        return str(error)
    prefix = _LIBRARY_VARIABLES.get(_raising_package(error))
    names = [name for name in os.environ if prefix and name.startswith(prefix) and not name.endswith("DIR")]
    if named := [f"{name}={os.environ[name]}" for name in names]:
        return f"{error}; the reason may be an environment variable, unset it: {', '.join(named)}"
    return f"{type(error).__name__}: {error}; RINGYARD_DEBUG=1 prints the traceback"


def missing_library(error: BaseException) -> str | None:
    """Return how to install the library of an extra that an import lacks, None for other errors."""
    library = str(getattr(error, "name", "")).partition(".")[0]
    extra = "agents" if library in AGENT_LIBRARIES else _OTHER_EXTRAS.get(library)
    if isinstance(error, ImportError) and extra:
        return f'{library} is not installed: pip install "ringyard[{extra}]"'
    return None


def _explain_without_file(error: OSError) -> str:
    """Explain an error of the system that names no file."""
    try:
        places = [os.getcwd(), os.environ.get("TMPDIR", "/tmp"), "/dev/shm"]
    except FileNotFoundError:
        return "the working folder has been removed; cd to another one"
    if error.errno != errno.ENOSPC:
        return str(error)
    full = [one for one in places if os.path.isdir(one) and shutil.disk_usage(one).free < _FULL]
    return f"{error.strerror}: {' and '.join(full) or 'standard output'}"


def quoted(text: str) -> str:
    """Quote a text for a Hydra override or list, unless it is a plain word."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Quote, QuotedString
    from hydra.errors import HydraException

    with suppress(HydraException):
        if OverridesParser.create().parse_override(f"key=[{text}]").value() == [text]:
            return text
    return QuotedString(text, Quote.single).with_quotes()


def _raising_package(error: BaseException) -> str:
    """Return the package that raised an error."""
    frame, package = error.__traceback__, ""
    while frame is not None:
        package = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        frame = frame.tb_next
    return package


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes. OmegaConf raises without `from`, so its context is the cause."""
    from omegaconf.errors import OmegaConfBaseException

    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (cause.__context__ if isinstance(cause, OmegaConfBaseException) else None)

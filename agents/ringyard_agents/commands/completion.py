"""Completion of words by the shell: eval "$(ringyard -sc install=bash)".

The shell runs `ringyard -sc query=bash` with the line so far in COMP_LINE. Hydra completes groups, choices
and settings of the command that the line names; which commands there are, it does not know.
"""

import io
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, suppress

__all__ = ["FLAGS", "complete"]

FLAGS = ("-sc", "--shell-completion")
_LINE = "COMP_LINE"


def complete(
    words: Sequence[str], commands: Mapping[str, str], run: Callable[[str, Sequence[str]], None]
) -> None:
    """Install completion, or answer what may stand at the end of a line.

    Args:
        words: behind the flag: install=SHELL, uninstall=SHELL or query=SHELL.
        commands: that there are.
        run: a command with words.

    Raises:
        ConfigurationError: none of the three.
    """
    from ringyard.errors import ConfigurationError

    action, _, shell = words[0].partition("=") if len(words) == 1 else ("", "", "")
    if action not in ("install", "uninstall", "query") or shell not in ("bash", "zsh", "fish"):
        raise ConfigurationError(
            f"{' '.join([FLAGS[0], *words])}: expected install, uninstall or query of bash, zsh or fish;"
            ' such as eval "$(ringyard -sc install=bash)" in ~/.bashrc'
        )
    if action != "query":
        run(next(iter(commands)), [FLAGS[0], *words])  # the same for every command
        return
    program, *said = os.environ.get(_LINE, "").split(" ")
    said = [word for word in said if word]
    begun = not os.environ.get(_LINE, "").endswith(" ")
    if not said or (len(said) == 1 and begun):
        print(" ".join(one for one in commands if not said or one.startswith(said[0])))
        return
    command, *rest = said
    os.environ[_LINE] = " ".join([program, *rest, *([] if begun else [""])])
    if command in commands:  # who completes a line wants no word of what is wrong with it
        with redirect_stderr(io.StringIO()), suppress(Exception, SystemExit):
            run(command, [FLAGS[0], *words])

"""`ringyard` and `python -m ringyard_agents`: Ctrl-C ends them quietly from the first imports on."""

import signal
import sys


def main() -> int:
    """Run the command line, as `cli.main` does; until that has its own handlers Ctrl-C just ends the process.

    Python's answer to Ctrl-C in the middle of an import is a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ringyard_agents.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())

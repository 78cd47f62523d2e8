"""Start of `ringyard` and `python -m ringyard_agents`."""

import signal
import sys


def main() -> int:
    """Run `cli.main`. During its imports, Ctrl-C ends the process without a traceback."""
    # a process in the background ignores Ctrl-C
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ringyard_agents.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())

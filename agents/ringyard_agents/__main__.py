"""`ringyard` and `python -m ringyard_agents`, without a traceback after Ctrl-C during imports."""

import signal
import sys


def main() -> int:
    """Run `cli.main`; until it has its own handlers, Ctrl-C ends the process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ringyard_agents.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())

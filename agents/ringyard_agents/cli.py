"""The `ringyard` command."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ringyard.errors import RingyardError

__all__ = ["main"]

USAGE = """usage: ringyard COMMAND [OVERRIDE ...]

commands:
  simulate   one scheduler on one workload: a table and per-job times
  compare    several schedulers on the same workloads: table, plots, CSV, TensorBoard
  train      train an agent; -m sweeps over seeds and anything else
  validate   the performance models against measured data: `ringyard validate FOLDER` writes a page with plots
  reproduce  a paper's setting, its claims beside what is measured: `ringyard reproduce PAPER`, or --all
  fit        train the interference predictors IASP and IAPP, and say how wrong they are on unseen jobs
  traces     where the public traces are; `ringyard traces NAME FILE` checks a local copy

Overrides are Hydra's: ringyard simulate scheduler=sjf workload=csv workload.path=jobs.csv
`ringyard COMMAND --help` lists a command's settings, `ringyard COMMAND --cfg job` prints them.
"""

_BAD_INPUT = 2


def _recipe(command: str) -> Callable[[Any], None]:
    """The function behind a command; imported late so that each starts fast."""
    if command == "simulate":
        from ringyard_agents.measuring.simulate import simulate

        return simulate
    if command == "compare":
        from ringyard_agents.measuring.compare import compare

        return compare
    from ringyard_agents.learning.train import train

    return train


def _run_hydra(command: str, overrides: Sequence[str]) -> None:
    import hydra

    from ringyard.config_folder import config_folder
    from ringyard_agents.files import remove_if_empty
    from ringyard_agents.record import register_run_folders, run_folder

    register_run_folders()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of Hydra's traceback printer
    sys.argv = [f"ringyard {command}", *overrides]

    failures: list[Exception] = []

    @hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=command)
    def entry(config: Any) -> None:
        try:
            _recipe(command)(config)
        except Exception as error:  # a sweep goes on with its other jobs
            failures.append(error)
        finally:
            remove_if_empty(run_folder())  # Hydra has made it, before anything was found wrong

    entry()
    if failures:
        raise failures[0]


def _message(error: BaseException) -> str | None:
    """One clear line for an error the user can mend; None for a fault of ours."""
    from hydra.errors import HydraException
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RingyardError):
            return str(cause)
        wrapped = cause.__context__ if isinstance(cause, OmegaConfBaseException) else None
        cause = cause.__cause__ or wrapped
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value; give {error.full_key}=..."
    if isinstance(error, HydraException | OmegaConfBaseException):
        said = str(error).partition("Config search path:")[0]
        if "override 'checkpoint'" in said:  # once the way to name the one agent of a comparison
            return "checkpoint has gone; name agents among the schedulers: schedulers=[fifo,mine:runs/mine]"
        lines = [line.strip().rstrip(":") for line in said.splitlines() if line.strip()]
        return ", ".join(lines)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 on success, 2 on bad input.

    Args:
        arguments: as on the command line, without the program; None: the process's own.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if words else _BAD_INPUT
    command, *rest = words
    try:
        if command == "traces":
            return _traces(rest)
        if command == "validate":
            return _validate(rest)
        if command == "reproduce":
            from ringyard_agents.reproduction.command import main as reproduce

            return reproduce(rest)
        if command == "fit":
            return _fit(rest)
        if command not in ("simulate", "compare", "train"):
            print(
                f"ringyard: unknown command {command!r}; expected simulate, compare, train, validate,"
                " reproduce, fit or traces",
                file=sys.stderr,
            )
            return _BAD_INPUT
        _run_hydra(command, rest)
    except Exception as error:
        message = _message(error)
        if message is None:
            raise
        print(f"ringyard {command}: {message}", file=sys.stderr)
        return _BAD_INPUT
    return 0


def _traces(words: Sequence[str]) -> int:
    from ringyard_agents.traces import list_traces, report_trace

    if not words:
        list_traces()
    elif len(words) == 2:
        report_trace(words[0], words[1])
    else:
        print("usage: ringyard traces [NAME FILE]")
        return 0 if words[0] in ("-h", "--help") else _BAD_INPUT
    return 0


def _validate(words: Sequence[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(
        prog="ringyard validate",
        description="Hold the performance models against measured data; what is not there is left out.",
    )
    parser.add_argument("data", help="folder with the measured profiles (calibration/, pollux/, aceso/, ...)")
    parser.add_argument(
        "--out", default="validation", help="folder for the page and its images (%(default)s)"
    )
    try:
        options = parser.parse_args(words)
    except SystemExit as end:
        return int(end.code or 0)

    from ringyard_agents.validation.report import validate

    files = validate(options.data, options.out)
    print(f"page: {files[0]}")
    return 0


def _fit(words: Sequence[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(
        prog="ringyard fit",
        description="Train IASP and IAPP on pairs of jobs that share a GPU; prints the error on unseen jobs.",
    )
    parser.add_argument(
        "--data", help="folder of measured profiles (Gavel's pairs); default: simulated pairs"
    )
    parser.add_argument("--out", help="write the weights to this .npz file")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    try:
        options = parser.parse_args(words)
    except SystemExit as end:
        return int(end.code or 0)

    from ringyard_agents.predictors.fit_interference import fit_interference

    fit_interference(options.data, options.out, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())

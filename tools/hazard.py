"""`python -m tools.hazard OVERRIDE ... --file FILE`: fit the network of `hazard` and `allocator_hazard`.

The shipped one, agents/ringyard_agents/predictors/weights/hazard_philly.safetensors, is fitted to the public
part of Philly: workload=philly workload.window_jobs=1000 workload.part=[0,0.6] --loads 1.2 5.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from rich.console import Console

from ringyard.errors import ConfigurationError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.config.compose import plain_groups
from ringyard_agents.evaluation.evaluate import build_object
from ringyard_agents.runs.atomic_write import require_writable
from ringyard_baselines.tools.survival import FEATURE_NAMES
from tools.calibration.hazard import collect_samples, fit_network, write_hazard_network


def _environments(
    words: Sequence[str], loads: Sequence[float], held_out: float, later: bool
) -> list[dict[str, Any]]:
    """Return an environment for each load: to fit to, or of later jobs that tell when to stop."""
    with hydra_initialized():
        environment = plain_groups(hydra.compose("compare", list(words)))
    workload = environment["workload"]
    if loads and "load" not in workload:
        raise ConfigurationError(f"--loads is {loads}, but the workload has no load; leave it out")
    if "part" in workload:
        begin, end = workload["part"]
        middle = end - held_out * (end - begin)
        workload["part"] = [middle, end] if later else [begin, middle]
    changes = [{"load": load} for load in loads] or [{}]
    return [{**environment, "workload": {**workload, **change}} for change in changes]


def _run(words: Sequence[str]) -> int:
    parser = Arguments(
        prog="python -m tools.hazard",
        description="Simulate windows of a trace, fit how soon jobs of each tenant end, and print the loss.",
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="as of `ringyard compare`")
    parser.add_argument("--file", required=True, help="file .safetensors to write the network to")
    parser.add_argument(
        "--loads", nargs="+", type=float, default=[], help="loads of every window (default: the workload's)"
    )
    parser.add_argument("--windows", type=int, default=40, help="windows at each load (%(default)s)")
    parser.add_argument(
        "--held-out", type=float, default=0.2, help="share that tells when to stop, the last (%(default)s)"
    )
    parser.add_argument("--source", default="", help="where the data come from, which the file stores")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    given = parser.parse_intermixed_args(words)
    file = Path(given.file).expanduser()
    require_writable("--file", file)
    settings = given.overrides, given.loads, given.held_out
    first, second = _environments(*settings, later=False), _environments(*settings, later=True)
    for environment in (*first, *second):
        build_object(environment["workload"])
    begin = time.monotonic()
    later = max(round(given.windows * given.held_out), 1)
    samples = collect_samples(first, range(given.windows), given.seed)
    held_out = collect_samples(second, range(later), given.seed + 1)
    simulated = time.monotonic()
    network, steps, loss, marginal = fit_network(samples, held_out, given.seed)
    write_hazard_network(
        file, network, {"source": given.source, "loss": loss, "features": list(FEATURE_NAMES)}
    )
    console = Console()
    counts = f"{len(samples.ages):,} samples of jobs and {len(held_out.ages):,} of later jobs"
    fitted = time.monotonic() - simulated
    console.print(f"{counts} simulated in {simulated - begin:.0f} s; fitted in {fitted:.0f} s")
    console.print(
        f"mean loss on later jobs: {loss:.3f} nats (after step {steps}), with hazard rates of all jobs"
        f" together: {marginal:.3f} nats"
    )
    console.print(f"network: {file} ({file.stat().st_size:,} bytes)", soft_wrap=True)
    return 0


def main(words: Sequence[str]) -> int:
    """Run the command with the `words` of its line, and return the exit code: 2 for bad input."""
    return exit_code("tools.hazard", lambda: _run(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

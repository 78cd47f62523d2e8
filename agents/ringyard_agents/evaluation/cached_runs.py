"""A series of runs, each kept as it ends, so that the same series goes on where it was."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ringyard_agents.evaluation.evaluate import RunResult, Task, run_all
from ringyard_agents.evaluation.fingerprint import Fingerprints
from ringyard_agents.evaluation.result_cache import cache_result, cached_results

__all__ = ["CachedRuns"]


class CachedRuns:
    """Runs of one command, in one round or several.

    Args:
        file: has the results of an earlier, equal series, and gets those of this one as they come.
        workers: processes; None: one per core.
        console: shows progress.
    """

    def __init__(self, file: Path, workers: int | None, console: Console) -> None:
        self._file = file
        self._workers = workers
        self._console = console
        self._own: set[str] = set()

    def run(self, tasks: list[Task], doing: str) -> tuple[list[RunResult], dict[str, str]]:
        """(results of the schedulers that finished every workload, {scheduler: why it did not}).

        Args:
            tasks: what to run.
            doing: what the progress bar says.
        """
        failed: dict[str, str] = {}
        fingerprints = Fingerprints(tasks)
        keys = {(task.label, task.workload): fingerprints.of(task) for task in tasks}
        before = cached_results(self._file, set(keys.values()))
        count = sum(key in before and key not in self._own for key in keys.values())
        if count:
            self._console.print(
                f"{count} of {len(tasks)} runs are from before; rerun=true measures them again"
            )

        def note(task: Task, error: Exception) -> None:
            failed.setdefault(task.label, f"workload {task.workload}: {error}")

        def add(result: RunResult) -> None:
            key = keys[result.label, result.workload]
            cache_result(self._file, key, result)
            self._own.add(key)
            bar.advance(job)

        with Progress(
            TextColumn(doing),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs"),
            TimeElapsedColumn(),
            console=self._console,
        ) as bar:
            missing = [task for task in tasks if keys[task.label, task.workload] not in before]
            job = bar.add_task(doing, total=len(tasks), completed=len(tasks) - len(missing))
            results = {(one.label, one.workload): one for one in run_all(missing, self._workers, add, note)}
        for place, key in keys.items():
            if key in before:
                results[place] = replace(before[key], label=place[0])
        return [results[place] for place in keys if place[0] not in failed], failed

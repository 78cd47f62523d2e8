"""What `pip install ringyard` gives without the extra `agents`: libraries for learning cannot be imported."""

import subprocess
import sys

from ringyard_agents.command_line import AGENT_LIBRARIES

#: runs the command where those libraries are not there
CODE = f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        missing = name.partition(".")[0] in {AGENT_LIBRARIES!r}
        return None if missing else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from ringyard_agents.cli import main
sys.exit(main(sys.argv[1:]))
"""
TINY = ["workload.num_jobs=8", "cluster.num_servers=2", "seeds=2", "workers=1", "name=run"]


def ringyard(folder, *words):
    return subprocess.run(
        [sys.executable, "-c", CODE, *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_compare_works_without_plots_and_curves(tmp_path):
    done = ringyard(tmp_path, "compare", "schedulers=[fifo_backfill,sjf]", *TINY)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "run" / "table.csv").is_file()
    assert not list((tmp_path / "runs" / "run").glob("*.png"))


def test_what_needs_more_says_what_to_install(tmp_path):
    for words in (
        ["train"],
        ["compare", "plots=true"],
        ["compare", "schedulers=[fifo_backfill,zoo:elastic]"],
    ):
        done = ringyard(tmp_path, *words)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert 'pip install "ringyard[agents]"' in done.stderr

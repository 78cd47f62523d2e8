"""What every run leaves beside its results: the resolved config, the commit, the seeds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

__all__ = ["run_folder", "write_record"]


def _git(*arguments: str) -> str:
    folder = Path(__file__).resolve().parent
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _commit() -> str | None:
    """The commit of this code, with `-dirty` if files differ; None outside its own git checkout."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # not just anybody's checkout
        return _git("describe", "--always", "--abbrev=40", "--dirty")
    except (OSError, subprocess.CalledProcessError):
        return None


def run_folder() -> Path:
    """The running job's output folder."""
    from hydra.core.hydra_config import HydraConfig

    folder = Path(os.path.relpath(HydraConfig.get().runtime.output_dir))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_record(folder: Path, command: str, config: DictConfig, seeds: dict[str, Any]) -> None:
    """Write config.yaml and run.json."""
    OmegaConf.save(config, folder / "config.yaml", resolve=True)
    record = {"command": command, "arguments": sys.argv[1:], "commit": _commit(), "seeds": seeds}
    (folder / "run.json").write_text(json.dumps(record, indent=2) + "\n")

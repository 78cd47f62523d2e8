"""The commands `push` and `load`: an agent with its model card, to and from a model hub or a folder."""

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
import pandas as pd
import yaml
from omegaconf import OmegaConf

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.command_line import quoted
from ringyard_agents.config.compose import SchedulerEntry
from ringyard_agents.config.safe_load import Trust, read_plain
from ringyard_agents.learning.agent import load_agent
from ringyard_agents.learning.agent_file import AGENT_FILE, find_checkpoint, read_agent
from ringyard_agents.report.tables import markdown
from ringyard_agents.runs.run_folder import flatten_config
from ringyard_agents.shipped_agents import ZOO_PREFIX, agent_path

_CARD = "README.md"
#: files of an agent on a hub, of which reading runs no code. No other file is read or written.
_FILES = (AGENT_FILE, _CARD, "record.json", "config.yaml", "run.json", "training.json")
#: beginnings of the columns of a comparison that a card shows
_COLUMNS = ("scheduler", "capabilities", "mean JCT", "vs ", "blocked vs ", "p (Holm)", "gap to bound")


def push(
    agent: str, repo: str, folder: str | None = None, comparison: Sequence[str] = (), trust: Trust = ()
) -> None:
    """Upload an agent and its card to a `repo` OWNER/NAME of the hub, or write them into a `folder`.

    A `repo` that begins with ., / or ~ is a folder. The card shows the tables of each `comparison`, a folder
    of `ringyard compare`.
    """
    local, file = folder or (repo if _is_folder(repo) else None), find_checkpoint(agent)
    with TemporaryDirectory() as temporary:
        made = Path(temporary)
        _copy(file.parent, made)
        shutil.copyfile(file, made / AGENT_FILE)
        if agent.startswith(ZOO_PREFIX) and file.with_suffix(".json").is_file():
            shutil.copyfile(file.with_suffix(".json"), made / "record.json")
            with hydra_initialized():
                config = hydra.compose("train", [*_training_words(made)[0][2:], f"name={file.stem}"])
                OmegaConf.save(config, made / "config.yaml", resolve=True)
        (made / _CARD).write_text(_card(repo, made, file, comparison, trust))
        if local is None:
            from huggingface_hub import HfApi

            print(f"model card: {HfApi().create_repo(repo, exist_ok=True)}")
            HfApi().upload_folder(repo_id=repo, folder_path=made)
            return
        target = Path(local).expanduser()
        if (target / AGENT_FILE).exists() and not (target / _CARD).exists():
            raise ConfigurationError(f"{target} is a run folder, or has another agent; give another folder")
        _copy(made, target)
    print(f"agent: {target / AGENT_FILE}\nmodel card: {target / _CARD}")


def load(repo: str, into: str | None = None, revision: str | None = None) -> None:
    """Copy a pushed agent, from a `repo` of the hub at a `revision` or from a folder, into a run folder."""
    source = Path(repo).expanduser()
    target = Path(into or Path("runs", source.resolve().name)).expanduser()
    if target.exists():
        raise ConfigurationError(f"{target} exists already; give another folder, such as --into runs/mine")
    with TemporaryDirectory() as temporary:
        if not _is_folder(repo):
            from huggingface_hub import snapshot_download

            found = snapshot_download(repo, revision=revision, allow_patterns=[*_FILES], local_dir=temporary)
            source = Path(found)
        if not (source / AGENT_FILE).is_file():
            raise CheckpointError(
                f"{repo} has no {AGENT_FILE}, which `ringyard push` writes. Pickles, such as the model.zip of"
                " Stable-Baselines3, are not loaded from a hub, because reading one runs code"
            )
        read_agent(source / AGENT_FILE, trust=True)  # refuses what is no agent, and imports nothing
        _copy(source, target)
    words = [f"schedulers=[sjf,srtf,{quoted(f'mine:{target}')}]", _training_words(target)[1]]
    print(
        f"agent: {target / AGENT_FILE}\ncompare: {shlex.join(['ringyard', 'compare', *filter(None, words)])}"
    )


def _is_folder(repo: str) -> bool:
    if not (local := repo.startswith((".", "/", "~"))) and not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        expected = "OWNER/NAME of a repository on the hub, or a folder that begins with ./, / or ~"
        raise ConfigurationError(f"REPO is {repo!r}; expected {expected}")
    return local


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in filter(Path.is_file, (source / name for name in _FILES)):
        shutil.copyfile(file, target / file.name)


def _read(file: Path) -> dict[str, Any]:
    return read_plain(file, interpolations=True) if file.is_file() else {}


def _training_words(folder: Path) -> tuple[list[str], str]:
    """Return (words of the command that trained the agent of a folder, that with its experiment or "")."""
    run, record = _read(folder / "run.json"), _read(folder / "record.json")
    words = ["ringyard", "train", *run.get("arguments", ())]
    if record:
        trained = record["training"]
        words = shlex.split(trained["command"].replace("SEED", str(trained["shipped_seed"])))
    return words, next((one for one in words if one.startswith("experiment=")), "")


def _card(repo: str, made: Path, file: Path, comparisons: Sequence[str], trust: Trust) -> str:
    """Return the model card of an agent, with numbers from the files in `made` and `comparisons` only."""
    agent, learner = load_agent(file, trust=trust), read_agent(file, trust)[0]["agent"]
    record, config, run, training = (_read(made / one) for one in _FILES[2:])
    facts = {"algorithm": learner.get("model", learner)["_target_"], "observability": agent.observability}
    facts["capabilities"], (words, experiment) = agent.capabilities, _training_words(made)
    results, means = list[str](), dict[str, float]()
    if record:
        trained, environments = record["training"], [*record["worlds"], *record["elsewhere"]]
        [best] = (one for one in trained["runs"] if one["seed"] == trained["shipped_seed"])
        facts["seed"] = f"{best['seed']}, the best of {len(trained['runs'])} on the evaluation workloads"
        facts |= {"decisions": best["decisions"], "machine": trained["hardware"]}
        results = [_RECORD_NOTE, markdown([_environment_row(one) for one in environments])]
        means = {one["title"]: one["mean"] for one in record["worlds"]}
    if run and training:
        facts |= {"seed": run["seeds"]["seed"], "decisions": training["decisions"], "machine": run["cpu"]}
        values = {"this agent": training["best"], **training["baselines"]}.items()
        rows = [{"": one, training["metric"]: f"{value:,.6g}"} for one, value in values]
        results = ["On the evaluation workloads, by which training chose the agent:", markdown(rows)]
    for place in comparisons:
        shown, measured = _comparison(Path(place).expanduser(), file)
        results, means = shown + results, means | measured
    for group in ("environments", "cluster", "workload"):
        inside = flatten_config(config.get(group), group).items()
        facts |= {
            one: value for one, value in inside if one.count(".") < 3 and "_target_" not in f"{one}{value}"
        }
    metric = {"type": "mean_jct", "name": "mean job completion time (s)"}
    index = [
        {
            "task": {"type": "reinforcement-learning", "name": "scheduling of a GPU cluster"},
            "dataset": {"type": "ringyard", "name": title},
            "metrics": [metric | {"value": value}],
        }
        for title, value in means.items()
    ]
    name = Path(repo).resolve().name
    return (
        Path(__file__)
        .with_name("model_card.md")
        .read_text()
        .format(
            **{"name": name, "repo": repo, "command": shlex.join(words), "experiment": experiment},
            title=record.get("title", "an agent"),
            algorithm=facts["algorithm"].rpartition(".")[2],
            index=yaml.safe_dump({"model-index": [{"name": name, "results": index}]}) if index else "",
            facts=markdown([{"setting": one, "value": f"{value}"} for one, value in facts.items()]),
            results="\n\n".join(one.rstrip() for one in results) or "None is stored with this agent.",
        )
    )


_RECORD_NOTE = (
    "Means over workloads that the training did not use, with 95 % intervals; differences are paired by"
    " workload. The rule and options of the best published scheduler are tuned on separate workloads. *Its"
    " allocator* turns the scores of the agent into GPU assignments, and is tuned alike without an agent."
)


def _environment_row(one: Mapping[str, Any]) -> dict[str, str]:
    """Return a row of an environment in the record of a pretrained agent."""
    row = {"environment": one["title"], "workloads": str(one["workloads"])}
    row["mean JCT [95% CI] (s)"] = one["rows"][0]["mean JCT [95% CI] (s)"]
    row["best published, its mean JCT (s)"] = f"`{one['best']}`, {one['best_mean']:,.0f}"
    for name, key in (("best published", "against_best"), ("its allocator", "against_rule")):
        row[f"vs {name}"] = "{:+.1f}% [{:+.1f}, {:+.1f}]".format(*(100 * part for part in one[key]))
    return row


def _comparison(place: Path, file: Path) -> tuple[list[str], dict[str, float]]:
    """Return (parts of a card, {title of an environment: mean JCT}) of a comparison with an agent."""
    entries = [SchedulerEntry.read(one) for one in _read(place / "config.yaml").get("schedulers", ())]
    agents = {agent_path(one.checkpoint).resolve(): one.label for one in entries if one.is_agent}
    label = agents.get(file.resolve(), agents.get(file.resolve().parent))
    tables = sorted(place.rglob("table.csv"))
    if label is None or not tables or file.stat().st_mtime > tables[0].stat().st_mtime:
        raise ConfigurationError(
            f"comparison is {str(place)!r}; expected a folder of `ringyard compare` with {file} among the"
            " schedulers, after its training"
        )
    words, means = ["ringyard", "compare", *_read(place / "run.json")["arguments"]], dict[str, float]()
    parts = [f"```\n{shlex.join(words)}\n```"]
    for table in tables:
        own = pd.read_csv(table).set_index("scheduler").loc[label]
        title = f"{table.parent.name}, {own['workloads']} workloads"
        means |= {title: float(own["mean_jct"])} if own["mean_jct"] > 0 else {}  # NaN without served jobs
        text, _, notes = table.with_suffix(".md").read_text().partition("\n\n")
        names, _, *rows = ([cell.strip() for cell in one.split("|")[1:]] for one in text.splitlines())
        shown = [i for i, name in enumerate(names) if name.startswith(_COLUMNS)]
        parts += [f"{title}:", markdown([{names[i]: row[i] for i in shown} for row in rows]), notes]
    return parts, means

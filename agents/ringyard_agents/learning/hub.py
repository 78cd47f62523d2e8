"""Commands `push`, `load` and `export`: agents and their cards on a model hub, policies as ONNX graphs."""

import json
import logging
import re
import shlex
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
import pandas as pd
import torch
import yaml
from gymnasium import spaces
from omegaconf import OmegaConf
from torch import Tensor, nn

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.command_line import quoted
from ringyard_agents.config.compose import SchedulerEntry
from ringyard_agents.config.safe_load import Trust, read_plain
from ringyard_agents.learning.agent import load_agent
from ringyard_agents.learning.agent_file import AGENT_FILE, find_checkpoint, load_policy, read_agent
from ringyard_agents.learning.job_policy import JobAttentionPolicy
from ringyard_agents.learning.policies import PointerPolicy
from ringyard_agents.learning.score_networks import ScoreNetwork
from ringyard_agents.report.tables import markdown
from ringyard_agents.runs.atomic_write import atomic_write, write_json
from ringyard_agents.runs.run_folder import flatten_config
from ringyard_agents.shipped_agents import agent_path

#: files of an agent on a hub, of which reading runs no code. No other file is read or written.
_FILES = (AGENT_FILE, "README.md", "config.yaml", "run.json")
#: beginnings of the columns of a table that a card shows
COLUMNS = ("scheduler", "capabilities", "mean JCT", "vs ", "blocked vs ", "p (Holm)", "gap to bound")
_NOTE = "Options are of conf/tuned/{best_from}.yaml. `{rule}` is the agent's allocator without the agent."
_Result = tuple[str, list[dict[str, str]], str, float]  # (title, rows, notes, mean JCT of the agent)


def push(
    agent: str, repo: str, folder: str | None = None, comparison: Sequence[str] = (), trust: Trust = ()
) -> None:
    """Upload an agent and its card to a `repo` OWNER/NAME of the hub, or write them into a `folder`.

    A `repo` that begins with ., / or ~ is a folder. The card shows the tables of each `comparison`, a folder
    of `ringyard compare`, or those in the record of a pretrained agent.
    """
    local, file = _is_folder(repo), find_checkpoint(agent)
    place = Path(folder or repo).expanduser() if folder or local else None
    if place and (place / AGENT_FILE).exists() and not (place / "README.md").exists():
        raise ConfigurationError(f"{place} is a run folder, or has another agent; give another folder")
    learner, own = read_agent(file, trust)[0]["agent"], load_agent(file, trust=trust)
    facts = {"algorithm": learner.get("model", learner)["_target_"], "observability": own.observability}
    facts["capabilities"] = own.capabilities
    results = [one for run in comparison for one in _compared(Path(run).expanduser(), file)]
    with TemporaryDirectory() as temporary:
        made, training = Path(temporary), _read(file.with_name("training.json"))
        _copy(file.parent, made)
        shutil.copyfile(file, made / AGENT_FILE)
        if record := _read(file.with_suffix(".json")):  # of a pretrained agent
            training, seed = record["training"] | record, record["training"]["shipped_seed"]
            training |= next(one for one in training["runs"] if one["seed"] == seed)
            words = shlex.split(training["command"].replace("SEED", str(seed)))[2:]
            seeds = {"seed": seed, "seeds tried": len(training["runs"])}
            write_json(made / "run.json", {"arguments": words, "seeds": seeds, "cpu": training["hardware"]})
            with hydra_initialized():
                config = hydra.compose("train", [*words, f"name={file.stem}"])
                OmegaConf.save(config, made / "config.yaml", resolve=True)
            for one in (*record["worlds"], *record["elsewhere"]):
                title = f"{one['title']}, {one['workloads']} workloads"
                results.append((title, one["rows"], _NOTE.format(**one), one["mean"]))
        (made / "README.md").write_text(_card(repo, facts, made, training, results))
        if place is not None:
            _copy(made, place)
        else:
            from huggingface_hub import HfApi

            url = HfApi().create_repo(repo, exist_ok=True)
            HfApi().upload_folder(repo_id=repo, folder_path=made)
    print(f"agent and model card: {place or url}")


def load(repo: str, into: str | None = None, revision: str | None = None) -> None:
    """Copy a pushed agent, from a `repo` of the hub at a `revision` or from a folder, into a run folder."""
    source = Path(repo).expanduser()
    target = Path(into or Path("runs", source.resolve().name)).expanduser()
    if target.exists():
        raise ConfigurationError(f"{target} exists already; give another folder, such as --into runs/mine")
    with TemporaryDirectory() as temporary:
        if not _is_folder(repo):
            from huggingface_hub import snapshot_download

            snapshot_download(repo, revision=revision, allow_patterns=[*_FILES], local_dir=temporary)
            source = Path(temporary)
        if not (source / AGENT_FILE).is_file():
            pickles = "pickles, such as a model.zip, are not loaded, because reading one runs code"
            raise CheckpointError(f"{repo} has no {AGENT_FILE} of `ringyard push`; {pickles}")
        read_agent(source / AGENT_FILE, trust=True)  # refuses what is no agent, and imports nothing
        _copy(source, target)
    print(f"agent: {target / AGENT_FILE}\ncompare: {_comparison(_read(target / 'run.json'), str(target))}")


def _comparison(run: Mapping[str, Any], folder: str) -> str:
    """Return the command that compares the agent of a `folder` in the experiment of its training `run`."""
    words = [str(one) for one in run.get("arguments", ()) if re.fullmatch(r"experiment=\w+", str(one))]
    words.append(f"schedulers=[sjf,srtf,{quoted(f'mine:{folder}')}]")
    return shlex.join(["ringyard", "compare", *words])


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


def _card(
    repo: str, facts: dict[str, Any], made: Path, training: Mapping[str, Any], results: Sequence[_Result]
) -> str:
    """Return the model card of an agent, with numbers of the files in `made` and of the others given."""
    config, run = (_read(made / one) for one in _FILES[2:])
    facts |= {"machine": run.get("cpu"), **run.get("seeds", {})}
    for group in ("environments", "cluster", "workload"):
        inside = flatten_config(config.get(group), group).items()
        facts |= {one: of for one, of in inside if one.count(".") < 3 and "_target_" not in f"{one}{of}"}
    parts, found = list[str](), list[dict[str, Any]]()
    for title, rows, notes, mean in results:
        shown = [{name: row[name] for name in rows[0] if name.startswith(COLUMNS)} for row in rows]
        parts += [f"### {title[0].upper()}{title[1:]}", markdown(shown), notes]
        metric = {"type": "mean_jct", "name": "mean job completion time (s)", "value": mean}
        task = {"type": "reinforcement-learning", "name": "scheduling of a GPU cluster"}
        one = {"task": task, "dataset": {"type": "ringyard", "name": title}, "metrics": [metric]}
        found += [one] if mean > 0 else []  # NaN without served jobs
    if training:
        facts["decisions"] = training["decisions"]
        values = {"agent": training["best"], **training["baselines"]}.items()
        rows = [{"": one, training["metric"]: f"{value:,.6g}"} for one, value in values]
        parts += ["On the evaluation workloads, by which training chose the agent:", markdown(rows)]
    name, template = Path(repo).resolve().name, Path(__file__).with_name("model_card.md").read_text()
    index = yaml.safe_dump({"model-index": [{"name": name, "results": found}]}) if found else ""
    return template.format(
        **{"name": name, "repo": repo, "index": index, "algorithm": facts["algorithm"].rpartition(".")[2]},
        comparison=_comparison(run, f"runs/{name}"),
        title=training.get("title", "trained by the command below"),
        command=shlex.join(["ringyard", "train", *run.get("arguments", ["?"])]),
        facts=markdown([{"": one, "value": f"{of}"} for one, of in facts.items() if of not in (None, [])]),
        results="\n\n".join(one.rstrip() for one in parts) or "None is stored with this agent.",
    )


def _compared(place: Path, file: Path) -> Iterator[_Result]:
    """Yield the results of a folder of `ringyard compare` in which an agent is."""
    entries = [SchedulerEntry.read(one) for one in _read(place / "config.yaml").get("schedulers", ())]
    agents = {agent_path(one.checkpoint).resolve(): one.label for one in entries if one.is_agent}
    label = agents.get(file.resolve(), agents.get(file.resolve().parent))
    tables = sorted(place.rglob("table.csv"))
    if label is None or not tables or file.stat().st_mtime > tables[0].stat().st_mtime:
        expected = f"a folder of `ringyard compare` with {file} among the schedulers, after its training"
        raise ConfigurationError(f"comparison is {str(place)!r}; expected {expected}")
    command = shlex.join(["ringyard", "compare", *_read(place / "run.json")["arguments"]])
    for table in tables:
        own: Any = pd.read_csv(table).set_index("scheduler").loc[label]
        text, _, notes = table.with_suffix(".md").read_text().partition("\n\n")
        names, _, *rows = ([cell.strip() for cell in one.split("|")[1:]] for one in text.splitlines())
        title = f"{table.parent.name}, {own['workloads']} workloads"
        shown = [dict(zip(names, row, strict=False)) for row in rows]
        yield title, shown, f"```\n{command}\n```\n\n{notes}", float(own["mean_jct"])


_MASK = "action_mask"  # input: `info["action_mask"]` of the environment
_JOBS = 5  # of the example that a network for any number of jobs is traced with


class _Graph(nn.Module):
    """The `act` of a policy without its checks, as a function of tensors [clusters, size] of `sizes`."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.network, self.flat, self.space = policy.network, policy.flat, None
        if isinstance(self.network, ScoreNetwork):
            sizes = (_JOBS * self.network.job_features, self.network.cluster_features, _JOBS)
            self.sizes = dict(zip(("jobs", "cluster", _MASK), sizes, strict=True))
            return
        self.space, seen = self.network.action_space, self.network.observation_space
        seen = {"observation": seen} if self.flat else seen.spaces
        masks = {_MASK: self.space} if policy.masked else {}
        self.sizes = {name: spaces.flatdim(space) for name, space in {**seen, **masks}.items()}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return (action) for scores and weights, (action, logits) for discrete actions."""
        blocks: dict[str, Any] = dict(zip(self.sizes, inputs, strict=True))
        mask = blocks.pop(_MASK, None)
        if self.space is None:
            present, jobs = mask.float(), blocks["jobs"].reshape(*mask.shape, -1)
            scores = self.network(jobs, present, blocks["cluster"]).clamp(-1.0, 1.0) * present.unsqueeze(-1)
            return (scores.transpose(1, 2).flatten(1),)
        observation = blocks["observation"] if self.flat else blocks
        features = self.network.extract_features(observation, self.network.pi_features_extractor)
        outputs = self.network.action_net(self.network.mlp_extractor.forward_actor(features))
        if isinstance(self.space, spaces.Box):
            low, high = (torch.as_tensor(one).flatten() for one in (self.space.low, self.space.high))
            return (outputs[:, : len(low)].clamp(low, high),)
        logits = outputs if mask is None else outputs.masked_fill(mask == 0, -1e8)
        return logits.argmax(1), logits


def export(agent: str, file: str, trust: Trust = ()) -> None:
    """Write an agent (run folder, agent.safetensors or zoo:NAME) to an ONNX file and print its inputs.

    Inputs are float32 [clusters, numbers] as the environment gives them, and `action_mask` as int8. The
    numbers of clusters, jobs and servers stay open where the network allows.
    """
    import onnx  # noqa: F401 torch needs both: a missing one is an error that says what to install
    import onnxscript  # noqa: F401

    checkpoint = find_checkpoint(agent)
    policy, observation, _ = load_policy(checkpoint, trust)
    features = {one.name: [feature.name for feature in one.features] for one in observation.blocks}
    network: Any = getattr(policy, "network", None)
    axes: dict[int, Any] = {0: torch.export.Dim("clusters")}
    if isinstance(network, ScoreNetwork | PointerPolicy | JobAttentionPolicy):
        axes[1] = torch.export.Dim.AUTO
    logging.disable(logging.CRITICAL)  # notes on libraries that are not installed
    try:
        graph = _Graph(policy).eval()
        kinds = {_MASK: torch.int8}
        example = [torch.ones(2, size, dtype=kinds.get(name)) for name, size in graph.sizes.items()]
        outputs = ["action", "logits"][: 1 + isinstance(graph.space, spaces.Discrete)]
        names: dict[str, Any] = {"input_names": [*graph.sizes], "output_names": outputs}
        names["dynamic_shapes"] = {"inputs": (axes,) * len(example)}
        with warnings.catch_warnings(action="ignore"):
            program: Any = torch.onnx.export(graph, (*example,), **names, verbose=False)
    except Exception as error:  # of a network of the user
        name, reason = type(network or policy).__name__, f"{error.__cause__ or error}".partition("\n")[0]
        raise CheckpointError(f"{name} cannot be written as an ONNX graph: {reason}") from error
    finally:
        logging.disable(logging.NOTSET)
    about = {"agent": read_agent(checkpoint, trust)[0], "features": features}
    program.model.metadata_props["ringyard"] = json.dumps(about)
    with atomic_write(Path(file).expanduser()) as partial:
        program.save(partial)
    print(f"file: {file}\ninputs: {', '.join(graph.sizes)}\noutputs: {', '.join(outputs)}")

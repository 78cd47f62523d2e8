"""`python -m tools.images`: draw the images of README and docs, and note what each was drawn from.

tools/conf/images.yaml lists them. docs/images/drawn.json has the command and a digest of what each was drawn
from, so that a test notices an image of earlier results.
"""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

from ringyard.errors import ConfigurationError, RingyardError
from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.evaluation.ranking import mean_interval
from ringyard_agents.runs.figures import LOOKS, save_figure
from tools.config_files import TOOLS_CONF
from tools.figures import LEARNERS, MORE_LEARNERS
from tools.stored_reproductions import write_json
from tools.zoo.page import draw_training

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
COMMAND = "python -m tools.images"


def listed() -> dict[str, dict[str, Any]]:
    """Return {image: how it is made}, by its path in docs/."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((TOOLS_CONF / "images.yaml").read_text())
    for page, command in found.pop("pages").items():
        for file in sorted((ROOT / page).parent.glob("images/*_*.png")):
            if file.name.startswith(("shipped_", "validation_")):
                found[str(file.relative_to(ROOT / "docs"))] = {"tool": command, "from": page}
    return found


def noted() -> dict[str, dict[str, str]]:
    """Return {image: `command` and digest of what it was drawn `from`, as of the last drawing}."""
    file = IMAGES / "drawn.json"
    found: dict[str, dict[str, str]] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def command_of(name: str, how: Mapping[str, Any]) -> str:
    """Return the command line that makes an image."""
    if "ringyard" in how:
        return f"ringyard {how['ringyard']}"
    return str(how.get("tool", f"{COMMAND} {name}"))


def _digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def evidence(how: Mapping[str, Any], folder: Path | None = None) -> str:
    """Return the digest of what an image is drawn from.

    Args:
        how: the image's entry.
        folder: where its command has run, for images of runs.
    """
    if folder is not None:
        return _digest(_figures_of_run(folder))
    text = (ROOT / how["from"]).read_text()
    if "tool" in how:  # of a page only its tables
        text = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    return _digest(text)


def _figures_of_run(folder: Path) -> str:
    """The completion times of a run, to six digits, as text."""
    if (folder / "watch.html").is_file():
        page = (folder / "watch.html").read_text()
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        assert found
        times = [one for schedule in json.loads(found[1])["schedules"] for one in schedule["jobs"]["jct"]]
    else:
        times = pd.read_csv(folder / "jobs.csv")["jct"].tolist()
    return " ".join(f"{one:.6g}" for one in times)


def run(how: Mapping[str, Any], folder: Path, *, draw: bool) -> None:
    """Run the command of an image in a folder, with or without its drawing.

    Raises:
        RingyardError: the command failed, or no browser is there for a page.
    """
    words = shlex.split(how["ringyard"])
    if not draw:
        words = [word for word in words if not word.startswith(("output.gantt", "output.video"))]
    if words[0] == "simulate":
        words.append("output.jobs_csv=jobs.csv")
    done = subprocess.run([sys.executable, "-m", "ringyard_agents", *words], cwd=folder, check=False)
    if done.returncode:
        raise RingyardError(f"ringyard {how['ringyard']} failed")
    if draw and words[0] == "watch":
        browser = shutil.which("chromium")
        if browser is None:
            raise RingyardError(f"ringyard {how['ringyard']}: its picture needs chromium")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += ["--virtual-time-budget=4000", "--window-size=1500,1350", "--screenshot=watch.png"]
        subprocess.run([browser, *options, f"file://{folder}/watch.html#{how['at']}"], cwd=folder, check=True)


def learning(content: Any, file: Path) -> None:
    """Draw the curves of a result of learners, and as dashed lines what they are compared with.

    A curve is the mean over training seeds, with their range. One far above all else has its own panel.
    """
    curves = {}
    for form, label in LEARNERS.items():
        own = [one for name, one in content["curves"].items() if f"_{form}_" in name]
        if not own:
            continue
        decisions = np.mean([one["decisions"] for one in own], axis=0) / 1000
        curves[label] = decisions, np.array([one["value"] for one in own])
    dashed = {label.partition("@")[0]: mean for label, mean in content["references"].items()}
    top = max(curves, key=lambda label: curves[label][1].min())
    others = [*dashed.values(), *(values for label, (_, values) in curves.items() if label != top)]
    lowest, highest = min(map(np.min, others)), max(map(np.max, others))
    apart = [top] if curves[top][1].min() - highest > 0.3 * (highest - lowest) else []
    shown = [apart, [label for label in curves if label not in apart]] if apart else [list(curves)]
    options: dict[str, Any] = {"height_ratios": [1, 3][-len(shown) :], "sharex": True, "squeeze": False}
    figure, panels = plt.subplots(len(shown), figsize=(9, 4.5), layout="constrained", **options)
    colors = dict(zip(LEARNERS.values(), ("#006BA4", "#FF800E", "#595959"), strict=True))
    last = max(decisions[-1] for decisions, _ in curves.values())
    for axes, labels in zip(panels[:, 0], shown, strict=True):
        ends = []
        for label in labels:
            decisions, values = curves[label]
            axes.plot(decisions, values.mean(axis=0), color=colors[label], linewidth=2)
            axes.fill_between(
                decisions, values.min(axis=0), values.max(axis=0), alpha=0.15, color=colors[label]
            )
            ends.append((values[:, -1].mean(), decisions[-1], label, colors[label]))
        for label, mean in dashed.items() if labels != apart else ():
            axes.axhline(mean, color="black", linewidth=1, linestyle="--")
            known = "the tuned allocator, no agent" if label == "allocator" else f"best published: {label}"
            ends.append((mean, 1.01 * last, known, "black"))
        axes.grid(alpha=0.3)
        axes.margins(y=0.1)
        axes.set_xlim(right=1.01 * last)
        axes.yaxis.set_major_locator(MaxNLocator(3 if labels == apart else 7))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        _label_ends(axes, ends)
    panels[-1, 0].set(xlabel="thousand decisions of training", ylabel="mean JCT (s)")
    figure.savefig(file, dpi=120)
    plt.close(figure)


def _label_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Label the ends (y, x, text, colour) of curves to the right of axes, higher where there is no room."""
    low, high = axes.get_ylim()
    place = -np.inf
    for y, x, text, color in sorted(ends):
        place = max(y, place + 0.075 * (high - low))
        where = {"xytext": (1.02, place), "textcoords": ("axes fraction", "data"), "annotation_clip": False}
        line = {"arrowstyle": "-", "color": color, "linewidth": 0.5}
        axes.annotate(text, (x, y), color=color, fontsize="small", va="center", arrowprops=line, **where)


def profiles(content: Any, file: Path) -> None:
    """Draw performance profiles of learners: the share of runs with at least a score, with 95 % bands."""

    def draw(axes: Any) -> None:
        scores = content["profile_scores"]
        for learner, label in (LEARNERS | MORE_LEARNERS).items():
            if learner in content["learners"]:
                row = content["learners"][learner]
                [line] = axes.plot(scores, row["profile"], label=label)
                axes.fill_between(scores, *row["profile_band"], alpha=0.15, color=line.get_color())
        axes.set(xlabel="mean JCT of the best published scheduler / that of the agent")
        axes.set_ylabel("share of runs with at least this score")

    save_figure(file, draw, "Performance profiles of the learners over five environments and three seeds")


def schedulers(content: Any, file: Path) -> None:
    """Draw a line for each scheduler of a result: its mean JCT with a 95 % interval, and the lower bound."""
    kinds = ("only starts jobs", "also preempts", "also resizes", "allocator or agent")
    rows = []
    for label, one in content["schedulers"].items():
        interval = mean_interval(np.array(one["values"]["mean_jct"]))
        rows.append((interval, label, int(one["capability_group"]) if one["published"] else 3))
    rows.sort(key=lambda row: -row[0].value)
    figure, axes = plt.subplots(figsize=(8, 1 + 0.19 * len(rows)), layout="constrained")
    for kind, (name, color) in enumerate(zip(kinds, ("#006BA4", "#FF800E", "#5F9ED1", "black"), strict=True)):
        places = [place for place, row in enumerate(rows) if row[2] == kind]
        found = [rows[place][0] for place in places]
        spread = np.array([(one.value - one.low, one.high - one.value) for one in found]).reshape(-1, 2).T
        axes.errorbar(
            [one.value for one in found], places, xerr=spread, fmt="o", ms=4, color=color, label=name
        )
    axes.axvline(np.mean(content["bound_mean_jct"]), color="gray", linestyle="--", label="lower bound")
    axes.set_yticks(range(len(rows)), [label for _, label, _ in rows], fontsize=8)
    axes.set(xlabel="mean JCT (s)", xscale="log", ylim=(-0.7, len(rows) - 0.3))
    for set_formatter in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        set_formatter("{x:,.0f}")
    axes.tick_params(axis="x", which="both", labelsize=8)
    axes.grid(axis="x", which="both", alpha=0.3)
    axes.legend(fontsize="small", loc="upper right")
    figure.savefig(file, dpi=90)
    plt.close(figure)


def vector_env(text: Any, file: Path) -> None:
    """Draw benchmarks/results/vector_env.txt: steps per second against clusters."""

    def draw(axes: Any) -> None:
        found = re.findall(
            r"^ *(\d+) +(\d) +(cached|fresh) +dict.*? ([\d,]+)(?: +\d+%)?$", text, re.MULTILINE
        )
        for threads, kind in dict.fromkeys((row[1], row[2]) for row in found):
            points = [
                (int(row[0]), int(row[3].replace(",", ""))) for row in found if row[1:3] == (threads, kind)
            ]
            axes.plot(*zip(*points, strict=True), marker="o", label=f"{kind} workloads, {threads} threads")
        axes.set(xscale="log", xlabel="clusters", ylabel="environment steps per second")
        axes.set_ylim(bottom=0)

    save_figure(file, draw)


def scale(text: Any, file: Path) -> None:
    """Draw the tables of benchmarks/results/scale.txt: microseconds against each kind of size."""
    tables = re.findall(r"^(microseconds of a (?:step|job)); (.+):\n((?:.+\n)+)", text, re.MULTILINE)
    figure, axes = plt.subplots(2, 3, figsize=(17, 7.5), layout="constrained")
    panels = axes.ravel()
    for axis, (cost, size, body) in zip(panels, tables, strict=False):
        head, *lines = body.splitlines()
        axis.set_prop_cycle(LOOKS)
        sizes = [int(one.replace(",", "")) for one in head.split()[:-1]]
        for line in lines:
            *_, exponent = words = line.split()
            values = [float(one) for one in words[-len(sizes) - 1 : -1]]
            label = f"{' '.join(words[: -len(sizes) - 1])} ({exponent})"
            axis.plot(sizes, values, marker="o", label=label)
        axis.set(xscale="log", yscale="log", xlabel=size, ylabel=cost)
        low, high = axis.get_ylim()
        axis.set_ylim(min(low, 1.0), max(high, 10.0))  # so that small changes look small
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for axis in panels[len(tables) :]:
        axis.axis("off")
    figure.savefig(file, dpi=90)
    plt.close(figure)


def agent(record: Any, file: Path) -> None:
    """Draw the training of a pretrained agent, from its record."""
    draw_training(file.parent, file.stem.removeprefix("agents_"), record["training"])


#: {`draw` of an entry: what draws it, from the content of a file}
DRAWN: Mapping[str, Callable[[Any, Path], None]] = {
    one.__name__: one for one in (learning, profiles, schedulers, vector_env, scale, agent)
}


def make(name: str, how: Mapping[str, Any]) -> str:
    """Draw an image anew, and return the digest of what it was drawn from."""
    file = ROOT / "docs" / name
    if "ringyard" in how:
        with tempfile.TemporaryDirectory() as folder:
            run(how, Path(folder), draw=True)
            shutil.copy(Path(folder) / file.name, file)
            return evidence(how, Path(folder))
    text = (ROOT / how["from"]).read_text()
    DRAWN[how["draw"]](json.loads(text) if how["from"].endswith(".json") else text, file)
    return evidence(how)


def is_current(name: str, how: Mapping[str, Any]) -> bool:
    """Whether an image that is drawn from a file was drawn from that file as it is now."""
    return noted().get(name) == {"command": command_of(name, how), "from": evidence(how)}


def _run(words: Sequence[str]) -> int:
    parser = Arguments(prog=COMMAND, description="Draw images of README and docs if their sources changed.")
    parser.add_argument(
        "names", metavar="IMAGE", nargs="*", help="images to draw in any case, such as images/scale.png"
    )
    given = parser.parse_args(words)
    known, notes = listed(), noted()
    if unknown := [name for name in given.names if name not in known]:
        raise ConfigurationError(f"unknown image {unknown[0]!r}; expected some of {', '.join(known)}")
    stale = 0
    for name, how in known.items():
        file = ROOT / "docs" / name
        if "tool" in how:
            seen = {"image": _digest(file.read_bytes()), "from": evidence(how)}
            before = notes.get(name, {"image": "", "from": ""})
            if seen["from"] != before["from"] and seen["image"] == before["image"]:
                print(f"docs/{name}: stale; run `{how['tool']}`")
                stale += 1
            else:
                notes[name] = {"command": how["tool"], **seen}
        elif name in given.names or ("draw" in how and not is_current(name, how)) or name not in notes:
            notes[name] = {"command": command_of(name, how), "from": make(name, how)}
            print(f"docs/{name}: drawn", flush=True)
    write_json({name: notes[name] for name in sorted(notes.keys() & known.keys())}, IMAGES / "drawn.json")
    return int(stale > 0)


def main(words: Sequence[str]) -> int:
    """Run the command with the `words` of the command line, and return its exit code."""
    return exit_code("tools.images", lambda: _run(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

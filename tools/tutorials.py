"""`python -m tools.tutorials`: run the blocks of tutorials, and write what they print into the pages.

A block `text output from=WORD lines=NUMBER` of docs/tutorials has what the block before it prints: so many
lines from the first one that begins with WORD, or everything.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ringyard.errors import ConfigurationError, RingyardError
from ringyard_agents.command_line import Arguments, exit_code

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
COMMAND = "python -m tools.tutorials"
#: (language, other words, text) of a block
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PACKAGES = os.pathsep.join(str(ROOT / name) for name in ("envs", "baselines", "agents"))


def pages() -> list[Path]:
    """Return the tutorials that have blocks to run."""
    return [page for page in sorted(TUTORIALS.glob("*.md")) if BLOCK.search(page.read_text())]


def played(page: str, folder: Path, more: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (stored, printed) of each block of output, once the blocks of the `page` before it have run.

    Args:
        page: text of a tutorial.
        folder: where its files and runs are written; the current folder.
        more: words behind those of each `ringyard train` and `ringyard compare`, as `train:seed=1`.

    Raises:
        RingyardError: a command failed.
    """
    names: dict[str, Any] = {}
    exported, printed = "", ""
    for language, words, text in BLOCK.findall(page):
        if words.startswith("title="):
            file = folder / words.removeprefix("title=")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif words.startswith("output"):
            yield text, _part(printed, words)
        elif language == "sh":
            exported += "".join(line + "\n" for line in text.splitlines() if line.startswith("export "))
            printed = _shell(exported + text, folder, more)
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(compile(text, "tutorial", "exec"), names)
            printed = stream.getvalue()


def _shell(text: str, folder: Path, more: Sequence[str]) -> str:
    """Run lines of a shell, with `more` words for commands of Ringyard, and return what they print."""
    lines = []
    for line in text.replace("\\\n", " ").splitlines():
        command = line.split()[1] if line.startswith("ringyard ") else ""
        extra = [word.partition(":")[2] for word in more if word.startswith(f"{command}:")]
        lines.append(f"{line} {shlex.join(extra)}" if extra else line)
    program = f'set -e\nringyard() {{ "{sys.executable}" -m ringyard_agents "$@"; }}\n' + "\n".join(lines)
    paths = os.pathsep.join([_PACKAGES, os.environ.get("PYTHONPATH", "")])
    settings = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "80"}
    done = subprocess.run(
        ["bash", "-c", program], cwd=folder, env=settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RingyardError(f"{text}failed: {done.stderr}")
    return done.stdout


def _part(printed: str, words: str) -> str:
    """Lines of what is printed that `words` of a block of output ask for.

    Raises:
        ConfigurationError: no line begins so.
    """
    asked = dict(word.split("=") for word in words.split()[1:])
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    found = [number for number, line in enumerate(lines) if line.startswith(asked.get("from", ""))]
    if not found:
        raise ConfigurationError(f"no line begins with {asked['from']!r} in what is printed:\n{printed}")
    return "\n".join(lines[found[0] :][: int(asked.get("lines", len(lines)))]) + "\n"


def write(page: Path) -> bool:
    """Run a tutorial in a folder of its own, write its blocks of output; return whether one differs."""
    before = page.read_text()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        sys.path.insert(0, folder)
        printed = iter([new for _, new in played(before, Path(folder))])
        sys.path.remove(folder)

    def replaced(block: re.Match[str]) -> str:
        return (
            f"```{block[1]} {block[2]}\n{next(printed)}```"
            if (block[2] or "").startswith("output")
            else block[0]
        )

    page.write_text(BLOCK.sub(replaced, before))
    return page.read_text() != before


def _run(words: Sequence[str]) -> int:
    parser = Arguments(prog=COMMAND, description="Write what the blocks of tutorials print into the pages.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="tutorials (default: all)")
    given = parser.parse_args(words)
    for page in pages():
        if page.stem in given.names or not given.names:
            print(f"{page.relative_to(ROOT)}: {'written' if write(page) else 'as it was'}", flush=True)
    return 0


def main(words: Sequence[str]) -> int:
    """Run the command with the `words` of the command line, and return its exit code."""
    return exit_code("tools.tutorials", lambda: _run(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

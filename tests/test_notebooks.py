"""Code of the notebooks runs as it stands, in order; training with fewer decisions."""

import json

import matplotlib.pyplot as plt
import pytest

from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
SMALL = {"learn(20_000": "learn(1", "every=4_000": "every=1_000", "seeds=20": "seeds=2"}


def cells(notebook):
    return [one for one in json.loads(notebook.read_text())["cells"] if one["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_outputs_are_stored_and_in_order(notebook):
    found = cells(notebook)
    assert [one["execution_count"] for one in found] == list(range(1, len(found) + 1))
    outputs = [output for one in found for output in one["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebooks_run(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":".join(str(ROOT / name) for name in ("envs", "baselines", "agents")))
    code = "\n".join("".join(one["source"]) for one in cells(notebook))
    for old, new in SMALL.items():
        code = code.replace(old, new)
    names = {}
    exec(compile(code, notebook.name, "exec"), names)
    plt.close("all")
    assert (names["table"]["mean_jct"] > 0).all()

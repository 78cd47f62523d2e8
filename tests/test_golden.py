"""Every scheduler's metrics on one workload, as they were when last looked at."""

import json

import pytest

from conftest import ROOT, leaf
from test_conformance import SCHEDULERS, small_run


@pytest.mark.parametrize("name", SCHEDULERS)
def test_metrics_are_as_recorded(name, update_golden):
    file = ROOT / "tests" / "golden" / f"{name}.json"
    measured = small_run(leaf("scheduler", name), 0).metrics().as_dict()
    if update_golden:
        file.write_text(json.dumps(measured, indent=2) + "\n")
    assert file.is_file(), "no golden metrics; run with --update-golden and look at them"
    assert measured == pytest.approx(json.loads(file.read_text()), rel=1e-9)

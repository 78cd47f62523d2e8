"""RESPECT's idea (arXiv 2304.04716): a policy cloned from exact optima of small instances, on larger ones."""

import argparse
from dataclasses import replace

import numpy as np

from ringyard import Cluster, consolidate, experiment
from ringyard.mdp.actions import Actions
from ringyard.mdp.batch import ClusterBatch
from ringyard.state.records import JobStatus
from ringyard_agents import PointerPolicy
from ringyard_agents.learning.cloning import CloneTeacher, DemonstrationRecorder, QueueTeacher
from ringyard_agents.learning.evaluation import episode_metrics
from ringyard_agents.learning.policies import GreedyPolicy


def play(batch, workload, choose):
    """Run an episode in the first cluster of a batch. Returns its actions and total JCT."""
    actions, one = [], np.zeros(1, np.int64)
    batch.reset(one, np.array([workload]))
    while not batch.done[0]:
        blocks = {name: block[:1] for name, block in batch.split(batch.observations).items()}
        actions.append(int(choose(blocks, batch.masks[:1])[0]))
        batch.step(np.full(batch.num_clusters, actions[-1]), one)
    return actions, float(batch.state.clusters["total_jct"][0])


def bounds(state, count):
    """Lower bounds on total JCT: all jobs alone from now on, or one pooled machine, shortest work first."""
    clusters, jobs = state.clusters[:count], state.jobs[:count, :-1]
    now, ended = clusters["now"][:, None], jobs["status"] == JobStatus.DONE
    ready = np.maximum(now, jobs["submit_seconds"])
    begin = np.where(jobs["status"] == JobStatus.RUNNING, jobs["updated_seconds"], ready)
    left = jobs["isolated_seconds"] * jobs["remaining_iterations"] / jobs["total_iterations"]
    alone = np.maximum(begin + left, ready)
    work = np.where(ended, 0.0, (alone - ready) * jobs["num_gpus"])
    pooled = np.sort(work, 1).cumsum(1).sum(1) / clusters["num_gpus"]
    pooled += np.where(ended, 0.0, now - jobs["submit_seconds"]).sum(1)
    isolated = np.where(ended, 0.0, alone - jobs["submit_seconds"]).sum(1)
    return clusters["total_jct"] + np.maximum(isolated, pooled)


def optimum(batch, workload, first_choice):
    """Actions with the least mean JCT of all sequences, by branch and bound; None: more states than clusters.

    For jobs that only start, on equal GPUs that they have alone. `first_choice` makes the first schedule.
    """
    best, least = play(batch, workload, first_choice)
    batch.reset(np.zeros(1, np.int64), np.array([workload]))
    live, steps = np.zeros(1, np.int64), []
    while len(live):
        rows, actions = np.nonzero(batch.masks[live])
        count = len(rows)
        if count > batch.num_clusters:
            return None
        batch.copy_clusters(live[rows])
        batch.step(np.resize(actions, batch.num_clusters), np.arange(count))
        steps.append((live[rows], actions))
        totals = bounds(batch.state, count)
        ends = np.where(batch.done[:count], totals, np.inf)
        if ends.min() < least:
            least, child, best = ends.min(), ends.argmin(), []
            for parents, chosen in reversed(steps):
                best.insert(0, int(chosen[child]))
                child = parents[child]
        live = np.flatnonzero(~batch.done[:count] & (totals < least * (1 - 1e-9)))
    return best


class Replay:
    """Policy that repeats known actions."""

    def act(self, observations, masks):
        """The next of them."""
        return np.array([self.actions.pop(0)])


def main(tables=300, gradient_steps=800, unseen=32, jobs=60):
    """Clone optima of 6 jobs on 8 GPUs; its mean JCT on 32 GPUs over that of shortest job first."""
    actions = Actions(templates=(consolidate(),), queue_order="duration", on_invalid="raise")
    base = experiment("quickstart")

    def environment(servers, jobs, seed, tables):
        workload = replace(base.workload, num_jobs=jobs, load=10.0)
        changed = {"cluster": Cluster.homogeneous(servers, 4), "workload": workload, "actions": actions}
        return replace(base, **changed, workload_seed=seed, num_workloads=tables)

    small, large = environment(2, 6, 0, tables), environment(8, jobs, 1, unseen)
    batch, sjf, replay = ClusterBatch(small, 4096), QueueTeacher(actions, ["consolidate"]), Replay()
    recorder, found = DemonstrationRecorder(replay), 0
    for workload in range(tables):
        best = optimum(batch, workload, sjf.act)
        if best is not None:
            replay.actions, found = best, found + 1
            play(batch, workload, recorder)
    network = PointerPolicy(
        small.observation.space(small.cluster, actions), actions.space, lambda progress: 0.0
    )
    fitted = CloneTeacher(lambda actions: sjf, gradient_steps=gradient_steps).fit(network, recorder, 0)
    print(f"{found} optima of {tables} tables; cloned: {fitted['imitation/accuracy']:.0%} of decisions")
    policies = {"SJF": sjf, "clone of optima": GreedyPolicy(network, False, True)}
    means = {}
    for name, policy in policies.items():
        metrics = episode_metrics(policy, ClusterBatch(large, unseen))
        means[name] = np.mean([one.mean_jct for one in metrics])
        print(f"{name}: mean JCT {means[name]:,.0f} s on {large.cluster.num_gpus} GPUs, {unseen} workloads")
    return float(means["clone of optima"] / means["SJF"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=300)
    main(parser.parse_args().tables)

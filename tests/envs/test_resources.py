"""Clusters with more than GPUs: what is refused, where rules place, what workloads draw."""

import re
from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.compiled.functions import kernel
from ringyard.errors import ConfigurationError, PlacementError, WorkloadError
from ringyard.mdp.actions.space import Actions, Adjustment, Template
from ringyard.performance import composite, pair_table, sensitivity_pressure
from ringyard.placement import fastest, pack, share
from ringyard.profiles import GpuProfile, profile, read_profile
from ringyard.sim.engine.co_location import PlacementContext, evaluate_placement, seconds_in_context
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard.state.records import DOWN, BatchSplit, JobKind
from ringyard.workloads import (
    Arrivals,
    BatchSplits,
    Cancellations,
    CpuJobs,
    Elastic,
    Extended,
    GradientCpuWork,
    Groups,
    LogNormalDurations,
    ModelMix,
    ParameterServers,
    PerWorker,
    Predictability,
    Sizes,
    Synthetic,
    Tenants,
)
from small_simulations import arrived, everything, figures, random_jobs, specs

V100 = {"gpu_type": "v100"}


def shared(cluster, jobs):
    """At the first decision point, with every part of the physics that needs no choice."""
    return arrived(cluster, jobs, composite(1e9, 40e9, interference=sensitivity_pressure()))


# what is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gpu_types": ("v100", "b100")}, "b100"),
        ({"gpu_types": ("v100",)}, "one for each of the 2 servers"),
        ({"cores_per_server": (4, 0)}, "is 0; expected a whole number"),
        ({"memory_bandwidth_bytes_per_second": (1e9, 1e9)}, "cores_per_server"),
        ({"rack_of_server": (1, 0)}, "rack by rack"),
        ({"rack_of_server": (0, 2)}, "expected 0, 1, 2"),
        ({"uplink_oversubscription": 0.5}, r"\[1, inf\)"),
        ({"jobs_per_gpu": 0}, "jobs_per_gpu"),
    ],
)
def test_clusters_that_make_no_sense(options, said):
    with pytest.raises(ConfigurationError, match=said):
        Cluster((2, 2), **options)


def test_server_groups_are_checked():
    with pytest.raises(ConfigurationError, match="gpu_typ"):
        Cluster.of_groups([{"num_servers": 1, "gpus_per_server": 1, "gpu_typ": "v100"}])
    with pytest.raises(ConfigurationError, match="only some"):
        Cluster.of_groups(
            [{"num_servers": 1, "gpus_per_server": 1, **V100}, {"num_servers": 1, "gpus_per_server": 1}]
        )


@pytest.mark.parametrize(
    ("allocation", "said"),
    [
        (Allocation(0, (0,), batch_size=16.0), "32 to 256"),
        (Allocation(0, (0,), batch_size=512.0), "32 to 256"),
        (Allocation(0, (0, 1, 2, 3)), "1 to 3 GPUs"),
        (Allocation(0, (0,), cores_per_worker=9), "9 cores"),
        (Allocation(0, (0,), cores_per_worker=-1), "cores_per_worker is -1"),
        (Allocation(0, (0,), ram_per_worker=9 * 10**9), "9,000,000,000 bytes of RAM on server 0"),
        (Allocation(0, (0,), ram_per_worker=-1), "ram_per_worker is -1"),
        (Allocation(0, (0,), ram_per_worker=0.5), "ram_per_worker is 0.5"),
        (Allocation(0, (0,), parameter_servers=1), "trains by all-reduce"),
        (Allocation(0, (0,), server=1), "gpu_ids"),
        (Allocation(0, (0,), memory_bandwidth_cap=0.5), "CPU-only"),
        (Allocation(0, (0,), link_share=0.05), "link_share is 0.05"),
        (Allocation(0, (0,), link_share=0), "link_share is 0"),
        (Allocation(0, (0,), link_share=20), "link_share is 20"),
        (Allocation(0, (0,), batch_size=250.0), "smaller batch"),
        (Allocation(1, (0,)), "CPU-only"),
        (Allocation(1, server=7), "no server 7"),
        (Allocation(1, server=0, memory_bandwidth_cap=0.0), "cap"),
        (Allocation(1, server=0, cores_per_worker=0), "1 or more"),
        (Allocation(1, server=0, cores_per_worker=9), "9 cores"),
        (Allocation(1, server=0, ram_per_worker=9 * 10**9), "RAM on server 0"),
    ],
)
def test_allocations_that_the_cluster_cannot_hold(allocation, said):
    jobs = replace(
        specs((1, "resnet50_imagenet")),
        min_gpus=np.array([1]),
        max_gpus=np.array([3]),
        min_batch=np.array([32.0]),
        max_batch=np.array([256.0]),
        cores_per_worker=np.array([1]),
    ).merged(JobTable.cpu_only([0.0], [2], [100.0], [1e9]))
    cluster = Cluster.homogeneous(2, 4, cores_per_server=8, ram_bytes_per_server=8 * 10**9, **V100)
    sim = shared(cluster, jobs)
    before = [array.tobytes() for array in sim.state]
    with pytest.raises(PlacementError, match=said):
        sim.apply([allocation])
    with pytest.raises(PlacementError, match=said):
        sim.view().iteration_seconds(allocation)
    assert [array.tobytes() for array in sim.state] == before


def test_each_reason_of_a_refusal_has_a_text():
    """Job 0 runs on GPU 0, 1 waits, 2 needs a CPU, 3 parameter servers, 4 comes later; server 1 is down."""
    jobs = JobTable.from_columns([0.0, 0.0, 0.0, 0.0, 50.0], [1, 2, 1, 1, 1], [100.0] * 5)
    workers = replace(jobs, cores_per_worker=np.array([1, 1, 1, 1, 1]))
    sim = arrived(Cluster.homogeneous(2, 4, cores_per_server=8, **V100), workers, ideal())
    sim.apply([Allocation(0, (0,))])
    records = sim.state.jobs[0]
    records["kind"][2:4] = JobKind.CPU_ONLY, JobKind.PARAMETER_SERVER
    records["num_gpus"][2] = 0
    records["asked_cores_per_server_task"][3] = 1
    records["parameter_servers"][3] = records["cores_per_server_task"][3] = 1
    sim.state.servers["up"][0, 1] = 0
    sim.state.gpus["num_jobs"][0, 4:] = DOWN
    refused = {
        Allocation(5, (1,)): "there is no job 5; expected a row in 0..4",
        Allocation(4, (1,)): "job 4 is future; expected a waiting or running job",
        Allocation(0, (0,), reject=True): "job 0 is running; expected a waiting job, and no gpu_ids or",
        Allocation(1): "job 1 is waiting; expected a running job: an empty allocation preempts it",
        Allocation(1, (1, 2), plan=3): "job 1 is given plan 3; expected none: it has no execution plans",
        Allocation(1, (1, 2), batch_size=1e9): "a batch of 1e+09 samples; expected 2 to 2",
        Allocation(1, (1, 2), memory_bandwidth_cap=2.0): "memory_bandwidth_cap 2.0; expected a number in",
        Allocation(1, (1, 2), memory_bandwidth_cap=0.5): "cap 0.5; expected 1: caps are for CPU-only jobs",
        Allocation(1, (1, 2), cores_per_worker=0): "job 1 is given 0 cores and asks for 1; expected 1",
        Allocation(3, (1,), cores_per_server_task=0): "job 3 is given 0 cores and asks for 1; expected 1",
        Allocation(3, (1,), parameter_servers=0): "job 3 is given 0 parameter servers; expected 1 to",
        Allocation(1, (1, 2), parameter_servers=1): "1 parameter servers; expected none: it trains by",
        Allocation(1, (1,)): "job 1 is given 1 GPUs; expected 2 GPUs",
        Allocation(1, (1, 1)): "the allocation of job 1 names a GPU twice: (1, 1)",
        Allocation(1, (1, 8)): "there is no GPU 8; expected 0..7",
        Allocation(1, (1, 4)): "job 1 is given GPU 4 of server 1, which is down",
        Allocation(1, (0, 1)): "GPU 0, held by job 0 (server 0 has 3 free GPUs); preempt that job first",
        Allocation(2, (1,)): "CPU-only job 2 is given gpu_ids (1,); expected server and no gpu_ids",
        Allocation(1, (1, 2), server=0): "job 1 uses GPUs and is given server 0; expected gpu_ids",
        Allocation(1, server=0): "job 1 uses GPUs and is given server 0; expected gpu_ids",
        Allocation(2, server=2): "there is no server 2; expected 0..1",
        Allocation(2, server=1): "job 2 is given server 1, which is down; choose another or wait",
        Allocation(1, (1, 2), cores_per_worker=5): "needs 10 cores on server 0, but 7 of 8 are free; give",
        Allocation(1, (1, 2), ram_per_worker=1): "given RAM, but cluster.ram_bytes_per_server is not set",
    }
    before = [array.tobytes() for array in sim.state]
    for allocation, said in refused.items():
        with pytest.raises(PlacementError, match=re.escape(said)):
            sim.apply([allocation])
        assert [array.tobytes() for array in sim.state] == before


def test_sharing_beyond_memory_is_refused():
    jobs = specs((1, "yolov3_voc"), (1, "yolov3_voc"), (1, "lstm_wikitext2"))
    sim = shared(Cluster.homogeneous(1, 1, jobs_per_gpu=2, **V100), jobs)
    sim.apply([Allocation(0, (0,))])
    assert sim.state.gpus["free_memory_bytes"][0, 0] == 16e9 - sim.state.jobs["gpu_memory_bytes"][0, 0] < 8e9
    with pytest.raises(PlacementError, match="bytes on each GPU"):
        sim.apply([Allocation(1, (0,))])
    sim.apply([Allocation(2, (0,))])
    with pytest.raises(PlacementError, match="held by job 0, 2"):
        sim.apply([Allocation(1, (0,))])


def test_jobs_that_fit_no_gpu_or_need_what_is_not_counted():
    jobs = specs((1, "yolov3_voc"))
    big = replace(jobs, batch_size=jobs.batch_size * 4, max_batch=jobs.max_batch * 4)
    with pytest.raises(WorkloadError, match="GPU memory"):
        Simulator(Cluster.homogeneous(1, 1, **V100), big, ideal())
    with pytest.raises(WorkloadError, match="CPU-only"):
        Simulator(Cluster.homogeneous(1, 1), JobTable.cpu_only([0.0], [1], [1.0], [0.0]), ideal())
    with figures({"resnet50": {"v100": GpuProfile(0.0, 0.1, "here")}}):
        with pytest.raises(ConfigurationError, match=r"resnet50 has no gpus.t4.*resnet50.yaml"):
            Simulator(Cluster.homogeneous(1, 1, gpu_type="t4"), specs((1, "resnet50")), ideal())
        performance = composite(1e9, 1e9, interference=sensitivity_pressure())
        with pytest.raises(ConfigurationError, match=r"resnet50 shares.*gpus.v100.sharing to .*resnet50.y"):
            Simulator(Cluster.homogeneous(1, 1, jobs_per_gpu=2), specs((1, "resnet50")), performance)


def test_profiles_name_field_and_file(tmp_path):
    good = {"name": "m", "gradient_bytes": 1, "batch_size": 1}
    good["gpus"] = "{v100: {fixed_seconds: 0, sample_seconds: 1, source: mine}}"
    for change, said in (
        ({"gradient_bytes": "many"}, "gradient_bytes is 'many'"),
        ({"sensitivty": 1}, "sensitivty"),
        ({"batch_size": None}, "batch_size is None"),
    ):
        file = tmp_path / "m.yaml"
        fields = good | change
        file.write_text(
            "\n".join(f"{k}: {'null' if v is None else v}" for k, v in fields.items()) + "\nsources: {}\n"
        )
        with pytest.raises(ConfigurationError, match=f"m.yaml.*{said}"):
            read_profile(file)
    with pytest.raises(ConfigurationError, match=r"vgg16 has no noise_scale.*vgg16.yaml"):
        profile("vgg16").require_value("noise_scale")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Elastic(share=1.5),
        lambda: Elastic(min_ratio=2.0),
        lambda: PerWorker("cores_per_worker", {}),
        lambda: PerWorker("gpus", {1: 1}),
        lambda: ParameterServers(0.5, {"resnet50": 1}),
        lambda: CpuJobs(1, LogNormalDurations(1.0, 1.0), (0,), (0.0, 1.0)),
        lambda: BatchSplits(1.5),
        lambda: Predictability(0.5, (0.5, 0.2)),
        lambda: Cancellations(0.5, (0.0, 1.0)),
        lambda: Adjustment(gpu_factor=2.0),
        lambda: Adjustment(bandwidth_cap=0.0),
        lambda: Adjustment(link_share=0.0),
        lambda: Actions(templates=(Template(pack(), batch_factor=0.0),)),
        lambda: share(-1.0),
        lambda: pair_table({"vgg16": {"vgg16": 0.0}}),
    ],
)
def test_settings_out_of_range(make):
    with pytest.raises(ConfigurationError):
        make()


# where rules place


def test_share_prefers_free_gpus_then_the_mildest_neighbour():
    jobs = specs((1, "resnet50_imagenet"), (1, "a3c_pong"), (1, "lstm_wikitext2"), (2, "lstm_wikitext2"))
    sim = shared(Cluster.homogeneous(1, 3, jobs_per_gpu=2, **V100), jobs)
    sim.apply([Allocation(0, (0,)), Allocation(1, (1,))])
    assert PlacementPlan(sim.view()).place(share(), 2).gpu_ids == (2,)
    assert PlacementPlan(sim.view()).place(share(prefer_busy=True), 2).gpu_ids == (
        2,
    )  # a free GPU harms nobody
    sim.apply([Allocation(2, (2,))])
    # job 3: beside A3C and beside the other LSTM rather than beside ResNet-50
    assert PlacementPlan(sim.view()).place(share(), 3).gpu_ids == (1, 2)
    assert PlacementPlan(sim.view()).place(share(max_interference=0.1), 3) is None
    assert PlacementPlan(sim.view()).place(pack(), 3) is None


def test_sharing_together_joins_others_rather_than_span_servers():
    """A GPU is free on each of two servers; a job of 2 spans them, or joins the LSTM beside one of them."""
    jobs = specs((1, "resnet50_imagenet"), (1, "lstm_wikitext2"), (2, "lstm_wikitext2"))
    sim = shared(Cluster.homogeneous(2, 2, jobs_per_gpu=2, **V100), jobs)
    sim.apply([Allocation(0, (0,)), Allocation(1, (2,))])
    assert PlacementPlan(sim.view()).place(share(), 2).gpu_ids == (1, 3)
    assert PlacementPlan(sim.view()).place(share(split=False), 2).gpu_ids == (2, 3)
    assert (
        PlacementPlan(sim.view()).place(share(max_interference=0.0, split=False), 2) is None
    )  # it waits for a server


def test_fastest_takes_the_best_type_with_room():
    cluster = Cluster.of_groups(
        [
            {"num_servers": 1, "gpus_per_server": 2, "gpu_type": "k80"},
            {"num_servers": 1, "gpus_per_server": 2, "gpu_type": "a100"},
        ]
    )
    sim = shared(cluster, specs((1, "resnet50_imagenet"), (2, "resnet50_imagenet"), (2, "resnet50_imagenet")))
    assert PlacementPlan(sim.view()).place(fastest(), 0).gpu_ids == (2,)
    sim.apply([Allocation(0, (2,))])
    assert PlacementPlan(sim.view()).place(fastest(), 1).gpu_ids == (0, 1)


def test_rules_respect_cores_and_memory():
    jobs = replace(specs((2, "resnet50_imagenet")), cores_per_worker=np.array([4]))
    sim = shared(Cluster.homogeneous(2, 4, cores_per_server=7, **V100), jobs)
    assert PlacementPlan(sim.view()).place(pack(), 0).gpu_ids == (0, 4)  # one worker's cores on each server
    mixed = Cluster.of_groups(
        [
            {"num_servers": 1, "gpus_per_server": 2, "gpu_type": "rtx_2080ti"},
            {"num_servers": 1, "gpus_per_server": 2, "gpu_type": "v100"},
        ]
    )
    sim = shared(mixed, specs((1, "bert_base_squad")))
    assert PlacementPlan(sim.view()).place(pack(), 0).gpu_ids == (2,)  # 16 GB fit only there


@kernel
def _look(state, j, gpus, found, physics):
    evaluate_placement(state, 0, j, gpus, len(gpus), found[0])
    return seconds_in_context(state.jobs[0, j], j, found[0], physics)


def test_a_look_finds_what_happens():
    assert sum(looks_that_agree(seed) for seed in range(20)) > 100


def looks_that_agree(seed):
    """Play a random world; how many quick looks were compared with the full answer."""
    rng = np.random.default_rng(seed)
    cluster, jobs, performance, _ = everything(rng, 20)
    split = ("equal", "by_speed")[seed % 2]
    performance = replace(performance, straggler_cv=0.0, batch_split=split)
    sim = Simulator(cluster, jobs, performance, seed=seed)
    looked = 0
    while not sim.done:
        for j in sim.view().waiting.tolist():
            allocation = PlacementPlan(sim.view()).place(share(), j)
            if allocation is None:
                continue
            places = allocation.gpu_ids or (allocation.server,)
            found = PlacementContext.zeros(1)
            quick = _look(sim.state, j, np.array(places, np.int32), found, sim.physics)
            if sim.state.clusters["global_links"][0] == 0 or found["num_servers"][0] == 1:
                assert quick == pytest.approx(sim.view().iteration_seconds(allocation), rel=1e-12)
                looked += 1
            sim.apply([allocation])
        sim.advance()
    return looked


def test_profiles_agree_with_the_isolated_speed():
    for seed in range(20):
        cluster, jobs, performance, _ = everything(np.random.default_rng(seed), 20)
        view = Simulator(cluster, jobs, performance, seed=seed).view()
        rows = np.flatnonzero(view.column("kind") != JobKind.CPU_ONLY)
        isolated = view.column("isolated_iteration_seconds")[rows]
        assert isolated_iteration_seconds(view, rows) == pytest.approx(isolated, rel=1e-12)


# workloads


def test_cores_synchronise_gradients_beside_preparing_samples():
    # 2 workers of 32 samples: 0.32 core seconds of samples and 1e9 bytes of gradients at 2e9 a second
    jobs = replace(
        JobTable.from_columns([0, 0, 0], [2, 1, 2], [100.0] * 3),
        batch_size=np.array([64.0, 32.0, 64.0]),
        max_batch=np.full(3, 64.0),
        gradient_bytes=np.full(3, 1e9),
        samples_per_core_second=np.array([100.0, 100.0, np.inf]),
        cores_per_worker=np.full(3, 2),
        compute_seconds=np.full(3, 0.01),
    )
    cluster = Cluster.homogeneous(1, 8, cores_per_server=16)
    busy = GradientCpuWork(2e9).extend(jobs, cluster, np.random.default_rng(0))
    assert 32 / busy.samples_per_core_second == pytest.approx([0.82, 0.32, 0.5])
    view = arrived(cluster, busy, composite(1e30, 1e30)).view()
    assert isolated_iteration_seconds(view, np.arange(3)) == pytest.approx([0.41, 0.16, 0.25])


def test_groups_are_drawn_by_weight():
    jobs = Groups({"a": 3, "b": 1}).extend(
        random_jobs(np.random.default_rng(0), 400, 4), None, np.random.default_rng(1)
    )
    assert 270 < (jobs.vc == "a").sum() < 330
    assert (jobs.vc[jobs.vc != "a"] == "b").all()
    promised = Groups({"a": 3, "b": 1}, {"b": 2.0}).extend(jobs, None, np.random.default_rng(1))
    expected = np.where(jobs.vc == "b", 2.0 * jobs.duration_seconds, np.inf)
    assert promised.deadline_seconds.tolist() == expected.tolist()


def explained(groups, values):
    """Share of the variance of `values` that the means of `groups` explain."""
    means = {name: values[groups == name].mean() for name in np.unique(groups)}
    return (
        1.0
        - np.mean([(value - means[name]) ** 2 for name, value in zip(groups, values, strict=True)])
        / values.var()
    )


def test_tenants_keep_the_distribution_and_make_it_predictable():
    before = random_jobs(np.random.default_rng(0), 4000, 4)
    arguments = {"users": 20, "virtual_clusters": 5, "sweep_jobs": 10.0, "past_jobs": 3000}
    jobs = Tenants(user_deviation=1.0, sweep_deviation=1.0, **arguments).extend(
        before, None, np.random.default_rng(1)
    )
    assert sorted(jobs.duration_seconds) == sorted(before.duration_seconds)
    assert np.array_equal(jobs.num_gpus, before.num_gpus)
    ranks = np.argsort(np.argsort(jobs.duration_seconds)).astype(float)
    # a user's effect is a third of the variance, in expectation; few users differ by chance
    assert 0.15 < explained(jobs.user, ranks) < 0.55
    beside = np.corrcoef(ranks[1:], ranks[:-1])[0, 1]
    assert 0.5 < beside < 0.7  # nine of ten pairs are of one sweep, whose jobs share two thirds
    assert len(np.unique(jobs.vc)) == 5
    assert len(np.unique(np.char.add(jobs.user, jobs.vc))) == len(np.unique(jobs.user)) == 20
    past = jobs.past
    assert len(past) == 3000
    assert set(past.run_seconds) <= set(before.duration_seconds)
    both = [name for name in np.unique(jobs.user) if (past.user == name).sum() > 30]
    means = np.array(
        [
            [np.log(seconds[users == name]).mean() for name in both]
            for users, seconds in ((jobs.user, jobs.duration_seconds), (past.user, past.run_seconds))
        ]
    )
    assert np.corrcoef(means)[0, 1] > 0.7
    alone = Tenants(user_deviation=0.0, sweep_deviation=0.0, **arguments).extend(
        before, None, np.random.default_rng(1)
    )
    assert explained(alone.user, np.log(alone.duration_seconds)) < 0.02


def test_extensions_do_what_they_say():
    base = Synthetic(
        200,
        Sizes({1: 1, 4: 1}),
        LogNormalDurations(5.0, 1.0),
        Arrivals(),
        ModelMix({1: {"resnet50_imagenet": 1, "bert_base_squad": 1}}),
    )
    cluster = Cluster.homogeneous(8, 4, cores_per_server=16, **V100)
    workload = Extended(
        base,
        (
            ParameterServers(0.5, {"aiturbo_resnet50": 1}, (1, 2), 3),
            Elastic(0.5, 0.5, 2.0),
            PerWorker("cores_per_worker", {2: 1, 100: 1}),
            CpuJobs(50, LogNormalDurations(5.0, 1.0), (1, 4), (1e9, 2e9)),
            Predictability(0.5, (0.1, 0.4), 0.2),
            Cancellations(0.3, (0.5, 1.0), 0.2),
            BatchSplits(0.5),
        ),
    )
    assert workload.num_jobs == 250
    jobs = workload.sample(cluster, np.random.default_rng(0))
    jobs.check(cluster)
    served, cpu = jobs.kind == JobKind.PARAMETER_SERVER, jobs.kind == JobKind.CPU_ONLY
    assert 70 < served.sum() < 130
    assert cpu.sum() == 50
    assert (jobs.cores_per_worker[~cpu] <= 4).all()  # no more than a server has for each GPU
    assert (jobs.batch_size[served] == 64).all()  # the tabulated batch is global
    elastic = jobs.min_gpus < jobs.max_gpus
    assert 0 < elastic.sum() < 100
    assert not (elastic & (served | cpu)).any()
    known = np.isfinite(jobs.predictable_from)
    assert 90 < known.sum() < 160
    assert ((jobs.predictable_from[known] >= 0.1) & (jobs.predictable_from[known] <= 0.4)).all()
    assert np.log(jobs.prediction_factor).std() == pytest.approx(0.2, abs=0.04)
    assert 50 < np.isfinite(jobs.cancel_seconds).sum() < 100
    assert 90 < (jobs.batch_split == BatchSplit.BY_SPEED).sum() < 160
    assert (jobs.batch_split != BatchSplit.AS_MODEL).all()
    again = workload.sample(cluster, np.random.default_rng(0))
    assert np.array_equal(jobs.cancel_seconds, again.cancel_seconds)
    four = Extended(replace(base, models=ModelMix()), (Elastic(),))
    with pytest.raises(ConfigurationError, match="min_batch"):
        four.sample(cluster, np.random.default_rng(0))

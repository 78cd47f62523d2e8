"""The environments' presets: one setting each, also found as `conf/experiment/*.yaml`.

gymnasium.make("ringyard/Sharing-v0")                         the preset
gymnasium.make("ringyard/Sharing-v0", setting=my_setting)     anything else
"""

from collections.abc import Sequence

from gymnasium.vector import AutoresetMode

from ringyard.cluster import Cluster
from ringyard.failures import Failures
from ringyard.mdp.actions.space import Actions, Adjustment, Reject, Template
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.observations.resources import queue_cluster_and_resources
from ringyard.mdp.rewards import blocking
from ringyard.mdp.setting import Setting
from ringyard.mdp.vector import ClusterVectorEnv
from ringyard.performance import PerformanceModel, composed, ring_contention, sensitivity_pressure
from ringyard.performance.contention import ADA_SRSF_ALPHA_10GBE
from ringyard.placement import fastest, pack, share
from ringyard.restart import constant
from ringyard.workloads import (
    Arrivals,
    Cancellations,
    Cores,
    CpuJobs,
    Elastic,
    Extended,
    LogNormalDurations,
    ModelMix,
    ParameterServers,
    PartitionedJobs,
    Predictability,
    PublishedMix,
    Sizes,
    Synthetic,
    UniformCosts,
)
from ringyard.workloads.extensions import Extension

__all__ = [
    "PRESETS",
    "contention",
    "cpu_gpu",
    "elastic",
    "full",
    "make",
    "make_vector",
    "partitioning",
    "sharing",
]

_TEN_GIGABIT = 1.14e9  # bytes per second, HKBU ddl-benchmarks
_NVLINK_PAIR = 40.27e9  # Aceso, 2 V100
_SIZES = {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}  # the 160-job mix of SJF-BCO and Ada-SRSF


def _philly_like(models: Sequence[str], load: float, extensions: Sequence[Extension]) -> Extended:
    """100 jobs: published sizes, Philly's durations, Poisson arrivals, models equally likely."""
    base = Synthetic(
        num_jobs=100,
        sizes=Sizes(_SIZES),
        durations=LogNormalDurations(6.791, 2.156, 1.0, 172800.0),
        arrivals=Arrivals(),
        models=ModelMix({1: dict.fromkeys(models, 1)}),
        load=load,
    )
    return Extended(base, extensions)


def _composed(straggler_cv: float = 0.0) -> PerformanceModel:
    return composed(
        _TEN_GIGABIT,
        _NVLINK_PAIR,
        alpha=ADA_SRSF_ALPHA_10GBE,
        intra_server_growth=0.82,
        interference=sensitivity_pressure(),
        straggler_cv=straggler_cv,
    )


def _cpu_jobs(num_jobs: int) -> CpuJobs:
    """CPU-only jobs; every figure is an assumption."""
    return CpuJobs(num_jobs, LogNormalDurations(6.0, 1.5, 1.0, 172800.0), (1, 2, 4, 8), (0.5e9, 6.0e9))


def contention() -> Setting:
    """SJF-BCO section 7: 20 servers of 4 to 32 GPUs, 160 jobs at once, rings that share links."""
    return Setting(
        cluster=Cluster.drawn(20, [4, 8, 16, 32], 0),
        workload=PublishedMix((1000, 6000), 0.0, UniformCosts((0.01, 0.045), (1.0e6, 4.0e6))),
        performance=ring_contention(1.3e9, 26.0e9, float("inf"), ADA_SRSF_ALPHA_10GBE, 0.5, 0.0005),
    )


def sharing() -> Setting:
    """32 V100, two jobs to a GPU at most, models whose pairs Gavel measured."""
    models = (
        "resnet18_cifar10",
        "resnet50_imagenet",
        "transformer_multi30k",
        "lstm_wikitext2",
        "autoencoder_ml20m",
        "cyclegan_monet",
        "a3c_pong",
    )
    return Setting(
        cluster=Cluster.homogeneous(8, 4, gpu_type="v100", jobs_per_gpu=2),
        workload=_philly_like(models, 3.0, ()),
        performance=composed(
            _TEN_GIGABIT, _NVLINK_PAIR, alpha=ADA_SRSF_ALPHA_10GBE, interference=sensitivity_pressure()
        ),
        restart=constant(30.0),
        observation=queue_cluster_and_resources(),
        actions=Actions(
            templates=(pack(), share(), share(1.0, True)), preemptive=True, queue_order="duration"
        ),
    )


def cpu_gpu() -> Setting:
    """64 V100 with 3 cores each: input pipelines, memory bandwidth and CPU-only jobs (CODA's question)."""
    models = (
        "resnet50_imagenet",
        "alexnet_imagenet",
        "mobilenet_v2_imagenet",
        "shufflenet_v2_imagenet",
        "deepspeech2_arctic",
        "lstm_wikitext2",
        "transformer_multi30k",
    )
    return Setting(
        cluster=Cluster.homogeneous(
            8, 8, gpu_type="v100", cores_per_server=24, memory_bandwidth_bytes_per_second=76.8e9
        ),
        workload=_philly_like(models, 5.0, (Cores({1: 1, 2: 1, 3: 2}), _cpu_jobs(60))),
        performance=_composed(),
        restart=constant(30.0),
        observation=queue_cluster_and_resources(),
        actions=Actions(
            templates=(
                pack(),
                Template(pack(), core_factor=0.5),
                Template(pack(), core_factor=2.0),
            ),
            preemptive=True,
            adjustments=(
                Adjustment(core_factor=0.5),
                Adjustment(core_factor=2.0),
                Adjustment(bandwidth_cap=0.5),
                Adjustment(bandwidth_cap=1.0),
            ),
            queue_order="duration",
        ),
    )


def elastic() -> Setting:
    """64 T4, Pollux' six models: GPUs and batch change while jobs run."""
    models = (
        "resnet18_cifar10",
        "resnet50_imagenet",
        "bert_base_squad",
        "deepspeech2_arctic",
        "yolov3_voc",
        "neumf_ml1m",
    )
    return Setting(
        cluster=Cluster.homogeneous(16, 4, gpu_type="t4"),
        workload=_philly_like(models, 5.0, (Elastic(1.0, 0.25, 4.0),)),
        performance=_composed(),
        restart=constant(30.0, 2.4),
        observation=queue_cluster_and_resources(),
        actions=Actions(
            templates=(
                pack(),
                Template(pack(), gpu_factor=0.5),
                Template(pack(), gpu_factor=2.0, batch_factor=2.0),
            ),
            preemptive=True,
            adjustments=(
                Adjustment(pack(), gpu_factor=2.0, batch_factor=2.0),
                Adjustment(pack(), gpu_factor=0.5, batch_factor=0.5),
                Adjustment(batch_factor=2.0),
                Adjustment(batch_factor=0.5),
            ),
            queue_order="duration",
        ),
    )


def full() -> Setting:
    """Everything at once: types, racks, sharing, cores, elastic and served jobs, failures, cancellations."""
    models = (
        "resnet18_cifar10",
        "resnet50_imagenet",
        "bert_base_squad",
        "deepspeech2_arctic",
        "yolov3_voc",
        "neumf_ml1m",
        "transformer_multi30k",
        "lstm_wikitext2",
        "vgg16_imagenet",
        "mobilenet_v2_imagenet",
    )
    served = ("aiturbo_resnet50", "aiturbo_vgg16", "aiturbo_inception4", "aiturbo_mobilenet")
    small = {"num_servers": 4, "gpus_per_server": 4, "cores_per_server": 32}
    large = {"num_servers": 4, "gpus_per_server": 8, "cores_per_server": 48}
    return Setting(
        cluster=Cluster.of_groups(
            [
                large | {"gpu_type": "v100", "memory_bandwidth_bytes_per_second": 115.2e9},
                small | {"gpu_type": "t4", "memory_bandwidth_bytes_per_second": 76.8e9},
                small | {"gpu_type": "p100", "memory_bandwidth_bytes_per_second": 76.8e9},
            ],
            servers_per_rack=4,
            uplink_oversubscription=2.0,
            jobs_per_gpu=2,
        ),
        workload=_philly_like(
            models,
            5.0,
            (
                ParameterServers(0.3, dict.fromkeys(served, 1), (1, 2), 5, 4),
                Elastic(0.5, 0.25, 4.0),
                Cores({1: 1, 2: 1, 4: 1}),
                _cpu_jobs(30),
                Predictability(0.4, (0.09, 0.89), 0.3),
                Cancellations(0.15, (0.5, 3.0), 0.1),
            ),
        ),
        performance=_composed(straggler_cv=0.1),
        restart=constant(30.0, 2.4),
        failures=Failures(43200.0, 1800.0, 1800.0),
        observation=queue_cluster_and_resources(),
        actions=_every_action(),
    )


def _every_action() -> Actions:
    return Actions(
        templates=(fastest(), share(), Template(fastest(), gpu_factor=0.5)),
        preemptive=True,
        adjustments=(
            Adjustment(fastest(), gpu_factor=2.0, batch_factor=2.0),
            Adjustment(fastest(), gpu_factor=0.5, batch_factor=0.5),
            Adjustment(batch_factor=2.0),
            Adjustment(batch_factor=0.5),
            Adjustment(core_factor=0.5),
            Adjustment(core_factor=2.0),
            Adjustment(bandwidth_cap=0.5),
        ),
        queue_order="duration",
    )


def partitioning() -> Setting:
    """PAC-ML's question: accept or reject each job, and on how many of 32 GPUs (RAMP's 4 x 4 x 2 servers).

    Jobs leave, blocked, as soon as their acceptable completion time cannot be kept. Links are reserved
    (nobody contends) and fast; any free GPUs will do (PAC-ML wants symmetric blocks).
    """
    return Setting(
        cluster=Cluster.homogeneous(32, 1),
        workload=PartitionedJobs(100),
        performance=composed(1.6e12, 1.6e12, contention="none"),
        observation=queue_cluster_and_resources(),
        actions=Actions(
            num_waiting=4,
            num_running=16,
            templates=(
                Reject(),
                *(Template(pack(), gpu_factor=float(u)) for u in (1, 2, 4, 6, 8, 10, 12, 14, 16)),
            ),
        ),
        reward=blocking(),
    )


PRESETS = {
    "Contention": contention,
    "Sharing": sharing,
    "CpuGpu": cpu_gpu,
    "Elastic": elastic,
    "Full": full,
    "Partitioning": partitioning,
}


def make(preset: str, setting: Setting | None = None, render_mode: str | None = None) -> ClusterEnv:
    """The environment of a preset, or of another setting."""
    return ClusterEnv(setting or PRESETS[preset](), render_mode)


def make_vector(
    preset: str,
    num_envs: int = 1,
    setting: Setting | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    render_mode: str | None = None,
) -> ClusterVectorEnv:
    """The vector environment of a preset, or of another setting."""
    return ClusterVectorEnv(num_envs, setting or PRESETS[preset](), autoreset_mode, copy, render_mode)

"""Readers of papers' public artifacts: small files in the published layouts, with numbers of our own."""

import pytest

from ringyard.errors import ConfigurationError
from ringyard.performance.ring import overlapped_seconds
from ringyard.profiles import profile
from ringyard_agents.validation.shipped import predict_rows
from tools import networks, validate
from tools.measured_sets import artifacts
from tools.measured_sets.sets import find_sets, rows_of
from tools.networks import fit_network

ELASTICFLOW = "ElasticFlow/ElasticFlow/scheduler/throughputs_A100"
SIA = "artifacts/sia-simulator/traces"


def written(folder, name, *lines):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def alone(model, gpu_type, batch):
    figures = profile(model).gpus[gpu_type]
    return figures.fixed_seconds + batch * figures.sample_seconds


def identities(rows):
    return list(rows[["model", "gpu_type", "placement", "batch"]].itertuples(index=False, name=None))


def test_elasticflow(tmp_path):
    """Iterations per second by global batch and GPUs; zeros and holes are runs that were not."""
    written(tmp_path, f"{ELASTICFLOW}/vgg16.csv", "global_batch_size,1,4,16", "64,2,0,20", "256,,,8")
    written(tmp_path, f"{ELASTICFLOW}/gpt2.csv", "global_batch_size,1", "64,3")
    rows = rows_of("elasticflow", tmp_path).rows
    assert identities(rows) == [
        ("gpt2_elasticflow", "a100", "1", 64),
        ("vgg16_imagenet", "a100", "1", 64),
        ("vgg16_imagenet", "a100", "8+8", 4),
        ("vgg16_imagenet", "a100", "8+8", 16),
    ]
    assert rows.seconds.tolist() == [1 / 3, 1 / 2, 1 / 20, 1 / 8]
    settings = ("network=1e9", "interconnect=1e10", "overlap_exponent=2", "contention=none", "alpha=0")
    overrides = ["performance=composite", *(f"performance.{setting}" for setting in settings)]
    predicted, reasons = predict_rows(rows.assign(network="", interconnect=""), overrides)
    ring = 2 * (15 / 16) * profile("vgg16_imagenet").gradient_bytes / 1e9  # sixteen GPUs, one after the other
    expected = [alone("vgg16_imagenet", "a100", 64)]
    expected += [(alone("vgg16_imagenet", "a100", batch) ** 2 + ring**2) ** 0.5 for batch in (4, 16)]
    assert predicted[1:] == pytest.approx(expected)
    assert reasons[0] == "model gpt2_elasticflow does not ship"


def test_muri(tmp_path):
    """Every job of a trace repeats the milliseconds of its kind."""
    traces = [f"simulator/trace-data/{kind}{n}" for kind in ("job_type_", "trace") for n in range(1, 5)]
    for name in ("cluster_exp/trace-data/cluster_trace", *traces):
        written(
            tmp_path, f"Muri/{name}.csv",
            "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time",
            "0,32,0,10,vgg16,16,1,1,400", "1,32,5,20,vgg16,16,1,1,400", "2,2,5,20,dqn,128,1,1,500",
        )  # fmt: skip
    rows = rows_of("muri", tmp_path).rows
    assert identities(rows) == [("dqn_muri", "v100", "2", 128), ("vgg16_imagenet", "v100", "8+8+8+8", 16)]
    assert rows.seconds.tolist() == [0.5, 0.4]


def test_lucid(tmp_path):
    """Samples per second alone; speeds beside one another are relative."""
    written(
        tmp_path, "Lucid/simulation/analyzer/single_data.csv",
        "model,dataset,batchsize,amp,speed",
        "ResNet18,CIFAR-10,64,0,640", "ResNet50,ImageNet,32,1,320", "PPO,LunarLander,32,0,5",
    )  # fmt: skip
    written(
        tmp_path, "Lucid/simulation/data/colocate_info.csv",
        ",model1,dataset1,gpu_num1,batchsize1,amp1,speed1,model2,dataset2,gpu_num2,batchsize2,amp2,speed2",
        "0,ResNet18,CIFAR-10,1,64,0,0.5,ResNet50,ImageNet,1,32,1,0.8",
        "1,PPO,LunarLander,1,32,0,0.9,ResNet18,CIFAR-10,1,64,0,1.0",
    )  # fmt: skip
    single = rows_of("lucid_one_gpu", tmp_path).rows
    assert identities(single) == [
        ("resnet18_cifar10", "rtx_3090", "1", 64),
        ("resnet50_imagenet_amp", "rtx_3090", "1", 32),
    ]
    assert single.seconds.tolist() == pytest.approx([0.1, 0.1])
    pairs = rows_of("lucid_pairs", tmp_path).rows
    assert pairs.neighbour.tolist() == [
        "resnet50_imagenet_amp", "resnet18_cifar10", "resnet18_cifar10", "ppo_lunarlander"
    ]  # fmt: skip
    seconds = alone("resnet18_cifar10", "rtx_3090", 64)
    assert pairs.seconds[0] == pytest.approx(seconds / 0.5)
    assert pairs.seconds[3] == pytest.approx(seconds)
    sensitivity = profile("resnet18_cifar10").gpus["rtx_3090"].sharing[64][0]
    pressure = profile("resnet50_imagenet_amp").gpus["rtx_3090"].sharing[32][1]
    assert predict_rows(pairs, ["performance=composite"])[0][0] == pytest.approx(
        seconds * (1 + sensitivity * pressure)
    )


def test_sia(tmp_path):
    """Placements are strings of digits; a file that two clusters share counts once."""
    for name in ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"):
        for cluster in ("azure", "dgx", "dgx-ext", "quad", "rtx"):
            seconds = 0.5 if name == "ncf" or cluster != "dgx-ext" else 0.6
            lines = ("placement,local_bsz,step_time,sync_time", f"1,8,{seconds},0", f"18,8,{seconds},0.1")
            written(tmp_path, f"{SIA}/{name}/placements-{cluster}.csv", *lines)
    one, several = (rows_of(name, tmp_path).rows for name in ("sia_one_gpu", "sia_placements"))
    assert len(one) == len(several) == 6 * 5 - 1  # NeuMF's two A100 files are the same
    assert set(one.placement) == {"1"}
    assert set(several.placement) == {"1+8"}
    assert set(zip(several.gpu_type, several.network, several.interconnect, strict=True)) == {
        ("v100", "infiniband_100g", "nvlink_v100"),
        ("a100", "infiniband_8x200g", "nvswitch_a100"),
        ("rtx_6000", "", "pcie_g4dn"),
        ("rtx_2080ti", "aws_g4dn", "pcie_g4dn"),
    }
    assert set(one[one.model == "resnet50_imagenet_amp"].gpu_type) == {"v100"}
    assert set(one[one.model == "resnet50_imagenet"].gpu_type) == {"a100", "rtx_6000", "rtx_2080ti"}


def test_clones_are_judged_by_the_command(tmp_path):
    """What is 25 % off is 25 % off; other clones are asked for, published profiles are not."""
    clones, out = tmp_path / "clones", tmp_path / "out"
    rate = 1.25 / alone("vgg16_imagenet", "a100", 64)
    written(clones, f"{ELASTICFLOW}/vgg16.csv", "global_batch_size,1", f"64,{rate}")
    found, absent = find_sets(clones)
    assert [one.name for one in found] == ["elasticflow"]
    assert list(absent) == ["lucid_one_gpu", "lucid_pairs", "muri", "sia_one_gpu", "sia_placements"]
    assert validate.main([str(clones), "--out", str(out)]) == 0
    text = (out / "validation.md").read_text()
    assert "| 1 to 64 A100 (ElasticFlow) | 25.0% | 25.0% | 25.0% | 1 | 0 |" in text
    assert "**missed** | nothing |" in text
    assert "The equations" not in text


def test_another_layout_is_an_error(tmp_path, capsys):
    written(tmp_path, f"{ELASTICFLOW}/vgg16.csv", "batch,1", "64,3")
    with pytest.raises(ConfigurationError, match=r"vgg16\.csv has no column global_batch_size"):
        rows_of("elasticflow", tmp_path)
    assert validate.main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "global_batch_size" in capsys.readouterr().err


def test_networks_of_trainings_are_found_again(tmp_path, monkeypatch):
    """Rings of a known network, with the shipped seconds and overlap, are fitted back to that network."""
    monkeypatch.setattr(artifacts, "SIA", {"bert": "bert_base_squad", "cifar10": "resnet18_cifar10"})
    for folder, name in artifacts.SIA.items():
        model = profile(name)
        figure = model.gpus["rtx_2080ti"]

        def row(placement, batch, model=model, figure=figure):
            gpus, bandwidth = sum(map(int, placement)), {1: 2e9, 2: 1e9, 3: 0.8e9}[len(placement)]
            ring = 2 * model.gradient_bytes * (gpus - 1) / gpus / bandwidth + 2 * (gpus - 1) * 1e-4
            compute = figure.fixed_seconds + figure.sample_seconds * batch
            return overlapped_seconds(compute, ring, model.overlap_exponent), ring

        placements = [(p, b, *row(p, b)) for p in ("2", "4", "11", "22", "44") for b in (8, 64)]
        scaling = [(3, g, b, *row(p, b)) for g, p in ((3, "111"), (8, "332")) for b in (8, 64)]
        lines = ["placement,local_bsz,step_time,sync_time", *(",".join(map(str, one)) for one in placements)]
        written(tmp_path, f"{SIA}/{folder}/placements-rtx.csv", *lines)
        lines = [",".join(map(str, one)) for one in scaling]
        header = "num_nodes,num_replicas,local_bsz,step_time,sync_time"
        written(tmp_path, f"{SIA}/{folder}/scalability-rtx.csv", header, *lines)
    fit, rows = fit_network(artifacts.sia_rings(tmp_path, "rtx"))
    assert fit.networks["between"].bytes_per_second == pytest.approx({2: 1e9, 3: 0.8e9}, rel=0.02)
    assert rows.error.max() < 0.01
    assert set(rows.placement[rows.placement.str.count(r"\+") == 2]) == {"1+1+1", "3+3+2"}
    large = rows[(rows.model == "bert_base_squad") & (rows.placement == "4+4")]
    assert large.sync_bytes_per_second.to_numpy() == pytest.approx(1e9, rel=0.01)
    assert networks.main([str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 2

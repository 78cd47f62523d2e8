"""Ada-SRSF's model of single transfers, worked out by hand and beside the public code."""

from collections import Counter

import numpy as np
import pytest

from tools.ada_srsf.transfers import JobMix, published_mix, run_case, simulate_transfers


def mix(*rows):
    model, workers, iterations, arrival = (np.array(column) for column in zip(*rows, strict=True))
    return JobMix(model, workers, iterations, arrival.astype(float))


def test_transfers_by_hand():
    # VGG-16: 36 + 54 ms computing; across servers + 526.4 MB x 0.856 ms each iteration
    assert simulate_transfers(mix((0, 4, 10, 0))).jct.tolist() == pytest.approx([900.0])
    alone = simulate_transfers(mix((0, 5, 10, 0)), num_servers=2)
    assert alone.jct.tolist() == pytest.approx([10 * (90 + 526.4 * 0.856)])
    # two rings on the same two servers, one transfer at a time: the second waits for the first
    pair = mix((0, 8, 1, 0), (0, 8, 1, 0))
    result = simulate_transfers(pair, num_servers=2, adaptive=False, max_transfers=1)
    one = 526.4 * 0.856
    assert sorted(result.jct.tolist()) == pytest.approx([90 + one, max(90 + one, 180) + one])


@pytest.mark.parametrize(
    ("model", "megabytes", "computing", "memory"),
    [
        (0, 526.4, 36 + 54, 4527.0),
        (1, 99.2, 25 + 37, 3213.0),
        (2, 103.0, 35 + 52, 3291.0),
        (3, 251.8, 32 + 47, 2751.0),
    ],
)
def test_models_of_the_public_code_send_compute_and_fill_the_memory(model, megabytes, computing, memory):
    """VGG-16, ResNet-50, Inception-v3, LSTM. Of two jobs on a GPU the shorter goes first if it holds both."""
    across = simulate_transfers(mix((model, 5, 10, 0)), num_servers=2)
    assert across.jct.tolist() == pytest.approx([10 * (computing + megabytes * 0.856)])
    pair = mix((model, 1, 100, 0), (model, 1, 10, 5 * computing))
    for room, expected in ((2 * memory, [110, 10]), (2 * memory - 1, [100, 105])):
        found = simulate_transfers(pair, num_servers=1, gpus_per_server=1, gpu_megabytes=room)
        assert found.jct.tolist() == pytest.approx([count * computing for count in expected])


def test_the_published_list_has_160_jobs_of_six_sizes():
    found = published_mix(np.random.default_rng(0))
    assert Counter(found.workers.tolist()) == {1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}
    assert set(found.model.tolist()) == {0, 1, 2, 3}
    assert (found.iterations.min(), found.iterations.max()) == (10, 60)
    assert 0.0 <= found.arrival[0] <= found.arrival[-1] <= 12_000.0
    assert (np.diff(found.arrival) >= 0.0).all()


def test_public_counting_error_makes_waiting_jobs_speed_up_transfers():
    # 100 MB or so: one asker doubles the rate of the transfer it waits for
    pair = mix((0, 8, 1, 0), (0, 8, 1, 0))
    honest = simulate_transfers(pair, num_servers=2)
    wrong = simulate_transfers(pair, num_servers=2, miscount=True)
    assert wrong.makespan < 0.85 * honest.makespan


def test_transfers_agree_with_runs_of_the_public_code():
    """Its own runs on 4 lists, mean JCT in ms; ours draw other lists from the same generator."""
    public = {
        (1, False, False): 18_610,
        (2, False, False): 19_452,
        (2, True, True): 11_728,
        (2, True, False): 18_321,
    }
    for (most, adaptive, miscount), reported in public.items():
        ours = [
            simulate_transfers(
                published_mix(np.random.default_rng(seed)), 1, most, adaptive, miscount
            ).jct.mean()
            for seed in range(8)
        ]
        assert np.mean(ours) == pytest.approx(reported, rel=0.3)


def test_transfers_are_placed_on_the_lightest_server():
    """Two jobs of two workers and two servers of two GPUs: each has its own server, and nothing to send."""
    pair = mix((0, 2, 10, 0), (0, 2, 10, 1))
    found = simulate_transfers(pair, num_servers=2, gpus_per_server=2)
    assert found.jct.tolist() == pytest.approx([900.0, 900.0])


def test_cases_name_placements_and_share_settings():
    rows = {"LWF-1": {}, "first fit": {"placement": "first_fit"}, "1GbE": {"beta": 7.8125}}
    found = run_case({"mix": {"scale": 1}, "settings": {"eta": 0.0}, "schedulers": rows}, 2)
    assert {tuple(columns) for columns in found.values()} == {("mean_jct", "makespan")}
    jobs = published_mix(np.random.default_rng(1), scale=1)
    alone = simulate_transfers(jobs, eta=0.0, seed=1)
    assert found["LWF-1"]["mean_jct"][1] == pytest.approx(alone.jct.mean() / 1e3)
    assert found["LWF-1"]["makespan"][1] == pytest.approx(alone.makespan / 1e3)
    assert found["LWF-1"]["mean_jct"].mean() < found["first fit"]["mean_jct"].mean()
    assert found["LWF-1"]["mean_jct"].mean() < found["1GbE"]["mean_jct"].mean()

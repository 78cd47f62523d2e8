"""SJF-BCO's published order of makespans, over 20 seeds (benchmarks/sjf_bco_experiment.py prints it)."""

import sys

from conftest import ROOT


def test_published_order_of_makespans():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from sjf_bco_experiment import experiment
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    outcomes = experiment(20)
    means = [
        outcomes[name].makespan.mean() for name in ("sjf_bco", "sjf_bco_ls", "sjf_bco_ff", "sjf_bco_rand")
    ]
    assert means == sorted(means)
    assert len(set(means)) == 4
    # section 7: contention plus overhead stays within 15 % of execution time
    assert outcomes["sjf_bco"].inflation.mean() < 1.15

"""Write the cross-check's tables anew from other simulators' results; see README.md beside it."""

import argparse
import gzip
from pathlib import Path

import pandas as pd

#: GPUs of the cluster each trace was simulated on
TRACES = {"tiresias60": 16, "syn1000": 64, "philly_7f04ca": 80}

PEERS = (
    "tiresias_fifo",
    "tiresias_fjf",
    "tiresias_shortest",
    "tiresias_sjf",
    "tiresias_dlas-gpu",
    "pai_FIFO",
    "pai_SJF",
    "helios_fifo",
    "helios_sjf",
    "lucid_tiresias",
)

#: (peer, trace) without a column: README.md beside this says why
LEFT_OUT = {("lucid_tiresias", "philly_7f04ca"), ("lucid_tiresias", "syn1000")}


def table(folder, trace):
    """A trace with each peer's start and end of every job, in whole seconds."""
    jobs = pd.read_csv(folder / "traces" / f"{trace}.csv", index_col="job_id", dtype="int64")
    asked = jobs.copy()
    for peer in PEERS:
        file = folder / "results" / f"{peer}__{trace}__g{TRACES[trace]}.csv"
        if (peer, trace) in LEFT_OUT:
            continue
        result = pd.read_csv(file, index_col="job_id", dtype="int64")
        if not result.loc[asked.index, list(asked)].equals(asked):
            raise ValueError(f"{file} holds other jobs than the trace {trace}; simulate it again")
        jobs[f"{peer}_start"] = result["start_time"]
        jobs[f"{peer}_end"] = result["end_time"]
    return jobs.reset_index()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds traces/TRACE.csv and results/PEER__TRACE__gN.csv")
    folder = parser.parse_args().folder
    for trace in TRACES:
        text = table(folder, trace).to_csv(index=False, lineterminator="\n")
        file = Path(__file__).parent / f"{trace}.csv.gz"
        file.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()

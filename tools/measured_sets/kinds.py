"""What rows of measurements measure."""

from typing import Any

import numpy as np
import pandas as pd


def measurement_kinds(table: pd.DataFrame) -> "pd.Series[Any]":
    """Return what each row measures, as text [rows].

    The kinds are "one GPU", "inside a server", "between servers", "sharing a GPU", "sharing links", "cores",
    "cores and memory", "restart", "all-reduce" and "parameter servers".
    """
    between = table.placement.str.contains("+", regex=False)
    several = table.placement != "1"
    choices = {
        "restart": table.seconds.isna(),
        "all-reduce": table.transfer_bytes.notna(),
        "parameter servers": table.parameter_servers.notna(),
        "sharing links": table.neighbour_placement != "",
        "sharing a GPU": table.neighbour != "",
        "cores and memory": table.ram_bytes.notna() | table.storage_bytes_per_second.notna(),
        "cores": table.cores.notna(),
        "between servers": between,
        "inside a server": several,
    }
    return pd.Series(np.select(list(choices.values()), list(choices), "one GPU"), index=table.index)


def situations(table: pd.DataFrame) -> "pd.Series[Any]":
    """Return the situation that each row measures, as text [rows].

    It is the same for placements that differ in order only (1+1+2+3, 1+1+3+2), for both jobs of a pair,
    and for all batches of an isolated job. Splits into fitted and held-out rows keep a situation together.
    """
    own = table.model + " " + table.batch.map("{:g}".format)
    other = table.neighbour + " " + table.neighbour_batch.map("{:g}".format)
    pairs = [" beside ".join(sorted(pair)) for pair in zip(own, other, strict=True)]
    jobs = table.model.mask(table.neighbour != "", pd.Series(pairs, index=table.index))
    own, other = (
        column.map(lambda place: "+".join(sorted(place.split("+"))))
        for column in (table.placement, table.neighbour_placement)
    )
    return table.gpu_type + " | " + jobs + " | " + own + " | " + other

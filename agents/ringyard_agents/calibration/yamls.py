"""Writes the yamls of profiles, networks and interconnects."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ringyard.errors import ConfigurationError
from ringyard.fabric import Fabric
from ringyard_agents.calibration.fits import ComputeTime


@dataclass(frozen=True)
class ProfileFields:
    """Values and sources of a profile by field. A field without a value has only a source."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]


@dataclass(frozen=True)
class CalibratedModel:
    """A model of which a profile is written."""

    name: str  #: name of the model
    head: str  #: title in the yaml's first line
    task: str  #: what the model is trained for. "": not stated.
    fields: ProfileFields  #: all fields but those of GPU types
    gpus: Mapping[str, ComputeTime]  #: {GPU type: compute time}
    #: {GPU type: {samples per GPU: (sensitivity, pressure)}}
    sharing: Mapping[str, Mapping[float, tuple[float, float]]]


def four_digits(value: float) -> float:
    """Round a fitted value to four significant digits."""
    return float(f"{value:.4g}")


def six_digits_down(value: float) -> float:
    """Round down to six digits, so that a batch that fills a GPU still fits."""
    if value == 0:
        return 0.0
    unit = 10.0 ** (np.floor(np.log10(value)) - 5)
    return float(f"{np.floor(value / unit) * unit:.6g}")


def _number(value: float) -> str:
    """Write a number as yaml reads it back, whole ones without a fraction."""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    text = repr(float(value))
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}" if e else text


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_value(key)}: {_value(one)}' for key, one in value.items())}}}"
    return _number(value) if isinstance(value, int | float) else str(value)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _gpu(gpu_type: str, figure: ComputeTime, sharing: Mapping[float, tuple[float, float]]) -> str:
    fixed, sample = (_number(four_digits(one)) for one in figure.line)
    pairs = {batch: [*map(four_digits, pair)] for batch, pair in sorted(sharing.items())}
    shared = f"sharing: {_value(pairs)}, " if pairs else ""
    seconds = f"fixed_seconds: {fixed}, sample_seconds: {sample}"
    return f"  {gpu_type}: {{{seconds}, {shared}source: {_text(figure.source)}}}"


def profile_yaml(model: CalibratedModel, command: str) -> str:
    """Return the yaml of a profile, for `ringyard.profiles.read_profile`. `command` writes the file."""
    fields = [f"{field}: {_value(value)}" for field, value in model.fields.values.items()]
    first = list(model.fields.values).index("batch_size") + 1
    lines = [
        f"# {model.head} Written by `{command}`; do not edit.",
        # quoted only if yaml would not read it as text
        f"name: {model.name if yaml.safe_load(model.name) == model.name else _text(model.name)}",
        *([f"task: {model.task}"] if model.task else []),
        *fields[:first],
        "gpus:  # by GPU type: seconds of an iteration = fixed_seconds + sample_seconds x samples per GPU;"
        " sharing: {samples: [sensitivity, pressure]}",
        *(_gpu(kind, figure, model.sharing.get(kind, {})) for kind, figure in model.gpus.items()),
        *fields[first:],
        "sources:",
        *(f"  {field}: {_text(source)}" for field, source in model.fields.sources.items()),
    ]
    return "\n".join(lines) + "\n"


def fabric_yaml(head: str, fabric: Fabric, command: str) -> str:
    """Return the yaml of a network or interconnect (`ringyard.Fabric`), with `head` in the first line."""
    assert isinstance(fabric.bytes_per_second, Mapping)
    figures = {count: four_digits(value) for count, value in fabric.bytes_per_second.items()}
    distinct = set(figures.values())
    lines = [
        f"# {head} Written by `{command}`; do not edit.",
        "_target_: ringyard.Fabric",
        f"bytes_per_second: {_value(figures if len(distinct) > 1 else distinct.pop())}",
        f"latency_seconds: {_number(four_digits(fabric.latency_seconds))}",
        f"source: {_text(fabric.source)}",
    ]
    if fabric.wire_bytes_per_second is not None:
        lines.append(f"wire_bytes_per_second: {_number(fabric.wire_bytes_per_second)}")
    if fabric.wire_source:
        lines.append(f"wire_source: {_text(fabric.wire_source)}")
    return "\n".join(lines) + "\n"


def write_yamls(folder: Path, texts: Mapping[str, str], command: str, overwrite: bool) -> None:
    """Write {path: text}, or nothing if a file without the header of `command` would be replaced."""
    for name in texts:
        file = folder / name
        if overwrite or not file.is_file():
            continue
        if f"Written by `{command}" not in file.read_text().partition("\n")[0]:
            raise ConfigurationError(
                f"{file} was not written by {command} and would be replaced"
                "; give another --out, or --overwrite"
            )
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    print(f"{len(texts)} files written to {folder}")

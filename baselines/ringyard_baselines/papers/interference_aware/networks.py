"""IASP and IAPP, two small networks in NumPy that predict how jobs slow each other down on one GPU.

A job's profile holds its speed beside a few reference jobs, and theirs beside it. Nothing else is known of a
new job. The jobs of `Sharing` are no reference jobs. The shipped weights are fitted to Gavel's measured pairs
without reference jobs. The shapes of the networks are assumptions, since the paper's are not public.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard.profiles import model_id
from ringyard.state.gpu_effects import Workers

#: (model, samples per GPU) of the reference jobs: batches that no job of `Sharing` trains with
REFERENCES: Sequence[tuple[str, float]] = (
    ("resnet50_imagenet", 32.0),
    ("lstm_wikitext2", 10.0),
    ("transformer_multi30k", 32.0),
    ("resnet18_cifar10", 256.0),
)

FACTORS = 8
HIDDEN = 32
_PROFILE = 2 * len(REFERENCES)

#: {name: shape} of every weight
PARAMETERS: Mapping[str, tuple[int, ...]] = {
    "iasp.own": (_PROFILE, FACTORS),  # embedding of the job
    "iasp.other": (_PROFILE, FACTORS),  # embedding of its neighbour
    "iasp.hidden": (3 * FACTORS + 1, HIDDEN),  # both and their product, + bias
    "iasp.output": (HIDDEN + 1, 1),
    "iapp.first": (2 * _PROFILE + 2, HIDDEN),  # both profiles, computing share, + bias
    "iapp.second": (HIDDEN + 1, HIDDEN),
    "iapp.output": (HIDDEN + 1, 1),
}

_UNREADABLE = (OSError, ValueError, TypeError, LookupError, EOFError, AttributeError, MemoryError, BadZipFile)
_COMMAND = "`python -m tools.interference MEASUREMENTS --out FILE`"
_MAX_BYTES = 1 << 24  # of a file of weights
DEFAULT_WEIGHTS = Path(__file__).parent / "weights" / "interference.npz"


def _affine(x: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return x @ weights[:-1] + weights[-1]


def _relative_speed(logit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return speed beside a neighbour / isolated speed, in (0, 1): 1 / (1 + exp(logit))."""
    return 1.0 / (1.0 + np.exp(np.clip(logit[..., 0], -30, 30)))


class ProfiledJob(NamedTuple):
    """One job of one worker, as it is profiled."""

    gpu_type: str
    model: str
    samples: float  #: samples per GPU and iteration


@dataclass(frozen=True)
class InterferenceNetworks:
    """Trained weights of both networks, and measured profiles."""

    weights: Mapping[str, NDArray[np.float64]]  #: {name: array} with the names and shapes of `PARAMETERS`
    profiles: Mapping[ProfiledJob, NDArray[np.float64]]  #: {job: measured profile [2 x references]}

    @classmethod
    def load(cls, file: str | Path | None = None) -> "InterferenceNetworks":
        """Read an `.npz` file written by `python -m tools.interference`. None reads the shipped one.

        Raises:
            ConfigurationError: there is no such file, or it holds something else.
        """
        path = DEFAULT_WEIGHTS if file is None else Path(file).expanduser()
        if not path.is_file():
            raise ConfigurationError(f"no weights at {path}; expected a file that {_COMMAND} writes")
        try:
            with ZipFile(path) as archive:
                if sum(one.file_size for one in archive.infolist()) > _MAX_BYTES:
                    raise ValueError(f"it unpacks to more than {_MAX_BYTES:,} bytes")
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            jobs = [arrays.pop(f"jobs.{name}") for name in (*ProfiledJob._fields, "profile")]
            weights = {name: array.astype(np.float64) for name, array in arrays.items()}
            speeds = jobs.pop().astype(np.float64).reshape(-1, _PROFILE)
            names = map(ProfiledJob._make, zip(*(column.tolist() for column in jobs), strict=True))
            profiles = dict(zip(names, speeds, strict=True))
        except _UNREADABLE as error:
            raise ConfigurationError(
                f"{path} is no readable .npz file of weights ({error}); train it anew by {_COMMAND}"
            ) from error
        shapes = {name: array.shape for name, array in weights.items()}
        if shapes != dict(PARAMETERS):
            raise ConfigurationError(
                f"{path} holds {shapes}; expected {dict(PARAMETERS)}; train it anew by {_COMMAND}"
            )
        return cls(weights, profiles)

    def save(self, file: Path) -> None:
        """Write an `.npz` file that `load` reads."""
        columns = zip(*self.profiles, strict=True)
        jobs = {name: np.array(column) for name, column in zip(ProfiledJob._fields, columns, strict=True)}
        jobs["profile"] = np.array([*self.profiles.values()], dtype=np.float32)
        arrays = {f"jobs.{name}": column for name, column in jobs.items()}
        arrays |= {name: array.astype(np.float32) for name, array in self.weights.items()}
        with file.open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]

    def similarity(self, own: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return [...] IASP's speed beside another / isolated, by a neural collaborative filter."""
        w = self.weights
        u, v = np.tanh(own @ w["iasp.own"]), np.tanh(other @ w["iasp.other"])
        hidden = np.maximum(_affine(np.concatenate([u, v, u * v], axis=-1), w["iasp.hidden"]), 0.0)
        return _relative_speed(_affine(hidden, w["iasp.output"]))

    def performance(
        self, own: NDArray[np.float64], other: NDArray[np.float64], computing: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return [...] IAPP's speed beside another / isolated, by the share of `computing` iterations."""
        w = self.weights
        x = np.concatenate([own, other, np.asarray(computing)[..., None]], axis=-1)
        x = np.maximum(_affine(x, w["iapp.first"]), 0.0)
        return _relative_speed(_affine(np.maximum(_affine(x, w["iapp.second"]), 0.0), w["iapp.output"]))


def reference_workers() -> Workers:
    """Return the workers of the reference jobs."""
    models, samples = zip(*REFERENCES, strict=True)
    return Workers(np.array([model_id(model) for model in models]), np.array(samples))


def job_profiles(suffered: NDArray[np.float64], inflicted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [..., 2 x references] profiles, as profiling runs beside the references would show them.

    `suffered` and `inflicted` are extra iteration times of a job beside each reference and the reverse.
    """
    return np.concatenate([1.0 / (1.0 + suffered), 1.0 / (1.0 + inflicted)], axis=-1)

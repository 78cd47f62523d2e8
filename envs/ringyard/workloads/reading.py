"""What one reading of a file does: from rows of texts to a `JobTable`, and what is left out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.checks import shown
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.jobs import MAX_TEXT_LENGTH, JobTable
from ringyard.profiles import model_id, profile_values
from ringyard.state.records import JobOutcome
from ringyard.workloads.cells import ENDS, STATES, UNITS, Times, numbers, spans
from ringyard.workloads.files import Rows
from ringyard.workloads.selection import select_rows

if TYPE_CHECKING:
    from ringyard.workloads.readers import TraceReader

_LEAVE_OUT = "workload.reader.leave_out=true leaves out such rows and counts them"


@dataclass(frozen=True)
class TraceRead:
    """What a reader made of a file."""

    jobs: JobTable  #: the jobs, in order of submission
    columns: Mapping[str, str]  #: {setting that names a column: column of the file}
    names: Sequence[str]  #: all columns of the file
    num_rows: int  #: rows of the file
    left_out: Mapping[str, int]  #: {reason: number of rows}
    notes: Sequence[str]  #: what a WorkloadWarning says


class Reading:
    """One reading of one file. Rows that cannot be jobs are refused, or marked and counted.

    Args:
        reader: settings.
        rows: of the file.
    """

    def __init__(self, reader: "TraceReader", rows: Rows) -> None:
        self.reader = reader
        self.columns = self._find_columns(rows)
        self.notes = list(rows.notes)
        self.num_rows = len(rows.frame)
        texts = (
            rows.column(self.columns["submit"])
            if "submit" in self.columns
            else pd.Series("0", rows.frame.index)
        )
        formats = [reader.dates] if isinstance(reader.dates, str) else reader.dates
        self.times = Times.read(texts, self._unit("submit"), formats, reader.zone)
        keep, note = select_rows(rows, reader.where, self.columns, self.times)
        self.notes += [note] if note else []
        self.rows = replace(rows, frame=rows.frame[keep])
        self.submit = self.times.seconds[keep]
        self.left = np.zeros(len(self.rows.frame), np.bool_)
        self.reasons: dict[str, int] = {}
        self.firsts: dict[str, str] = {}

    def _find_columns(self, rows: Rows) -> dict[str, str]:
        """{setting: its column in the file}, without settings that name none."""
        there, found = set(rows.frame.columns), {}
        for role in self.reader.roles:
            names = self.reader.column_names(role)
            present = [name for name in names if name in there]
            if present:
                found[role] = present[0]
            elif isinstance(getattr(self.reader, role), str):
                self._reject_column(rows, role)
        if self.reader.submit is None and "start" in found:
            found["submit"] = found["start"]
        for role in ("submit", "gpus"):
            if role not in found and getattr(self.reader, role) is not None:
                self._reject_column(rows, role)
        lengths = {"duration", "iterations"} | ({"model"} if self.reader.samples else set())
        if not found.keys() & lengths and not found.keys() >= {"start", "end"}:
            self._reject_column(rows, "duration")
        return found

    def _reject_column(self, rows: Rows, role: str) -> None:
        names, there = self.reader.column_names(role), list(rows.frame.columns)
        hint = " or workload.reader.separator=';'" if len(there) == 1 else ""
        raise WorkloadError(
            f"has no column {' or '.join(map(repr, names))}; it has {shown(there)}"
            f" (workload.reader.{role}=NAME names another{hint})"
        )

    def _unit(self, role: str) -> float:
        unit = self.reader.units.get(self.columns.get(role, ""), 1.0)
        return UNITS[unit] if isinstance(unit, str) else float(unit)

    def _texts(self, role: str) -> "pd.Series[str]":
        """[rows] texts of a setting's column, "" where a value is missing or there is no such column."""
        if role not in self.columns:
            return pd.Series("", self.rows.frame.index)
        return self._extracted(role, self.rows.column(self.columns[role]))

    def _extracted(self, role: str, written: "pd.Series[str]") -> "pd.Series[str]":
        """[rows] parts of texts that the pattern of a setting or its column matches, "" where none does."""
        patterns = self.reader.patterns
        pattern = patterns.get(role, patterns.get(self.columns[role]))
        if pattern is None:
            return written
        groups = written.str.extract(f"({pattern})")
        return groups.iloc[:, min(1, groups.shape[1] - 1)].fillna("")

    def _numbers(self, role: str) -> NDArray[np.float64]:
        """[rows] numbers of a setting's column in its unit. Texts that are none are refused."""
        texts = self._texts(role)
        found = spans(texts, self._unit(role)) if role == "duration" else numbers(texts) * self._unit(role)
        odd = np.isnan(found) & (texts != "").to_numpy()
        expected = "a number, or a time such as 01:30:00" if role == "duration" else "a finite number"
        self._refuse(odd, (role,), expected, f"with a {self.columns[role]} that is no number")
        return found

    def _refuse(
        self,
        bad: NDArray[np.bool_],
        roles: Sequence[str],
        expected: str,
        reason: str = "",
        remedy: str = _LEAVE_OUT,
        but: str = "",
    ) -> None:
        """Raise a WorkloadError for the first bad row, or leave out all bad rows.

        Args:
            bad: [rows] whether a row cannot be a job.
            roles: settings. The message shows their columns.
            expected: what was expected of them.
            reason: text for the count of rows left out. "": such rows are always an error.
            remedy: what to type instead.
            but: text behind the value.
        """
        found = np.flatnonzero(bad & ~self.left)
        if not len(found):
            return
        place = self.rows.place(found[0])
        if reason and self.reader.leave_out:
            self.left[found] = True
            self.reasons[reason] = len(found)
            self.firsts[reason] = place
            return
        cells = [
            f"{name} is {shown(self.rows.frame[name].iloc[found[0]])}"
            for name in dict.fromkeys(self.columns[role] for role in roles if role in self.columns)
        ]
        raise WorkloadError(f"{place}: {' and '.join(cells)}{but}; expected {expected} ({remedy})")

    def result(self) -> TraceRead:
        """Return the jobs, in order of submission."""
        ids = self._ids()
        names = {role: self._names_of(role) for role in ("vc", "user")}
        gpus, cores = self._gpus_and_cores()
        outcome, unknown = self._outcomes()
        self._check_submissions()
        models, batch = self._models(), self._batch(gpus)
        duration, iterations = self._work(models, batch)
        self._check_ids(ids)
        self._check_order()
        kept = np.flatnonzero(~self.left)
        if not len(kept):
            raise WorkloadError(f"has no row that can be a job: {self._reasons_text()}")
        order = kept[np.argsort(self.submit[kept], kind="stable")]
        zero = self.reader.from_zero or self.times.origin is not None
        submit = self.submit[order] - (self.submit[order[0]] if zero else 0.0)
        texts = (column[order] for column in (ids, *names.values()))
        jobs = JobTable.from_columns(submit, gpus[order], np.ones(len(order)), *texts)
        jobs = replace(
            jobs, outcome=outcome[order], duration_seconds=duration[order], iterations=iterations[order]
        )
        if cores is not None:
            jobs = replace(jobs, cores_per_worker=cores[order])
        if "model" in self.columns:
            remedy = "drawn from workload.models (+workload.reader.model_names.NAME=PROFILE says what it is)"
            self._note_unknown("model", self._texts("model")[models < 0], order, remedy)
            jobs = jobs.with_models(models[order], batch[order])
        self._note_left_out()
        self._note_unknown("state", unknown, order, "taken as completed")
        return TraceRead(
            jobs, self.columns, list(self.rows.frame.columns), self.num_rows, self.reasons, self.notes
        )

    def _ids(self) -> NDArray[np.int64] | NDArray[np.str_]:
        """[rows] ids: integers if all are, else texts as written. Without a column: positions in the file."""
        if "job_id" not in self.columns:
            return self.rows.frame.index.to_numpy(dtype=np.int64)
        written = self._extracted("job_id", self.rows.frame[self.columns["job_id"]])
        numbered = "workload.reader.job_id=null numbers the rows"
        blank = (written.str.strip() == "").to_numpy()
        self._refuse(blank, ("job_id",), "an id for each job", "without an id", numbered)
        found = self._short("job_id", written)
        try:
            whole = found[~self.left].astype(np.int64)
        except (ValueError, OverflowError):
            return found
        if not (whole.astype(np.str_) == found[~self.left]).all():
            return found
        ids = np.zeros(len(found), np.int64)
        ids[~self.left] = whole
        return ids

    def _names_of(self, role: str) -> NDArray[np.str_]:
        return self._short(role, self._texts(role))

    def _short(self, role: str, written: "pd.Series[str]") -> NDArray[np.str_]:
        """[rows] texts as an array. Long ones are refused before NumPy makes all as wide."""
        long = (written.str.len() > MAX_TEXT_LENGTH).to_numpy()
        limit = f"{MAX_TEXT_LENGTH} characters"
        self._refuse(long, (role,), f"at most {limit}", f"with a text of more than {limit}")
        return written.mask(long, "").to_numpy().astype(np.str_)

    def _gpus_and_cores(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """([rows] GPUs of the job, [rows] CPU cores of each GPU's worker, None without a column)."""
        each = self._numbers("gpus") if "gpus" in self.columns else np.ones(len(self.left))
        self._refuse(~(each > 0), ("gpus",), "a number of GPUs, 1 or more", "without GPUs")
        whole = np.ceil(each)
        parts = (whole != each) & ~self.left
        if self.reader.round_up_gpus:
            count = int(parts.sum())
            self.notes += [f"{count:,} jobs ask for parts of a GPU: rounded up"] if count else []
        else:
            rounding = "workload.reader.round_up_gpus=true rounds up"
            self._refuse(parts, ("gpus",), "a whole number of GPUs", "with parts of a GPU", rounding)
        total = whole
        if "workers" in self.columns:
            workers = self._numbers("workers")
            odd = ~(workers >= 1) | (workers != np.floor(workers))
            self._refuse(odd, ("workers",), "a whole number of workers, 1 or more", "without workers")
            total = whole * workers
        many = ~(total < 2**31)
        self._refuse(many, ("gpus", "workers"), "fewer than 2,147,483,648 GPUs", "with too many GPUs")
        gpus = np.where(self.left, 1, total).astype(np.int64)
        if "cores" not in self.columns:
            return gpus, None
        cores = np.ceil(self._numbers("cores") / np.where(self.left, 1.0, whole))
        odd = ~((cores >= 0) & (cores <= 1e6))
        expected = "a number of CPU cores, 0 to 1,000,000 for each GPU"
        self._refuse(odd, ("cores",), expected, "without a number of CPU cores")
        return gpus, np.where(self.left, 0, cores).astype(np.int64)

    def _outcomes(self) -> tuple[NDArray[np.int64], "pd.Series[str]"]:
        """([rows] how each job ended, states by row that are missing or not known).

        A job that was cancelled or failed does so again after as long a run as in the trace. A job completes
        if its state is missing or unknown, or if there is no such column.
        """
        states = self._texts("state")
        if "state" not in self.columns:
            states = pd.Series("COMPLETED", states.index)
        table = STATES | {name.upper(): end for name, end in self.reader.states.items()}
        words = states.str.upper().str.extract(r"^([^\s+]+)", expand=False)  # of "CANCELLED by 1001"
        ends = words.map({word: ENDS[end] for word, end in table.items()})
        unfinished = (ends == -1).to_numpy()
        self._refuse(unfinished, ("state",), "the state of a job that has ended", "that had not ended")
        outcome = np.asarray(ends.fillna(int(JobOutcome.COMPLETED)), dtype=np.int64)
        return outcome, states[ends.isna().to_numpy()]

    def _check_submissions(self) -> None:
        if "submit" not in self.columns:
            self.notes.append("there are no submission times: all jobs are submitted at 0 s")
            return
        origin = self.times.origin
        written = "seconds" if origin is None else f"a date such as {origin:%Y-%m-%d %H:%M:%S}"
        formats = f"{_LEAVE_OUT}; workload.reader.dates='%d.%m.%Y %H:%M' reads other dates"
        self._refuse(np.isnan(self.submit), ("submit",), written, "without a submission time", formats)
        high = 5e11 if self.reader.from_zero else 1e12
        low = -high if self.reader.from_zero or origin is not None else 0.0
        bad = ~((self.submit >= low) & (self.submit <= high))
        units = f"+workload.reader.units.{self.columns['submit']}=ms reads milliseconds; {_LEAVE_OUT}"
        self._refuse(bad, ("submit",), f"seconds from {low:g} to {high:g}", "with a time out of range", units)

    def _work(
        self, models: NDArray[np.int64], batch: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """([rows] run times in seconds, [rows] iterations), one of which is NaN."""
        without = np.full(len(self.left), np.nan)
        roles: tuple[str, ...] = ("duration",)
        if "duration" in self.columns:
            found = self._numbers("duration")
        elif {"start", "end"} <= self.columns.keys():
            roles = ("start", "end")
            start, end = (self.times.parse(self._texts(role)) for role in roles)
            if "submit" in self.columns and self.columns["submit"] != self.columns["start"]:
                expected, reason = (
                    "a start that is not before the submission",
                    "that start before their submission",
                )
                self._refuse(start < self.submit, ("submit", *roles), expected, reason)
            found = end - start
        elif "iterations" in self.columns:
            found = self._numbers("iterations")
            odd = ~((found > 0) & (found <= 1e15))
            self._refuse(odd, ("iterations",), "a number of iterations above 0", "without iterations")
            return without, found
        else:
            return without, self._iterations_of_samples(models, batch)
        self._refuse(~(found > 0), roles, "a run time above 0 s", "without a positive run time")
        self._refuse(~(found <= 1e12), roles, "a run time of at most 1e12 s", "with too long a run time")
        return found, without

    def _iterations_of_samples(
        self, models: NDArray[np.int64], batch: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """[rows] iterations that a training takes, by the samples of its model (Pollux, OSDI'21, eq. 7)."""
        samples = self._texts("model").map(self.reader.samples).to_numpy(dtype=np.float64)
        odd = ~(samples > 0) | (models < 0)
        known = f"one of {', '.join(self.reader.samples)}"
        self._refuse(odd, ("model",), known, "of a model without a number of samples")
        first, scale = (profile_values(name)[models] for name in ("min_batch", "noise_scale"))
        batch = np.where(np.isnan(batch), first, batch)
        return samples / batch * np.nan_to_num((scale + batch) / (scale + first), nan=1.0)

    def _check_ids(self, ids: NDArray[Any]) -> None:
        """Refuse a second job of one id."""
        kept = np.flatnonzero(~self.left)
        if not self.reader.unique_ids or "job_id" not in self.columns or not len(kept):
            return
        _, first, which = np.unique(ids[kept], return_index=True, return_inverse=True)
        again = np.zeros(len(ids), np.bool_)
        again[kept] = first[which] != np.arange(len(kept))
        if again.any():
            row = int(np.flatnonzero(again)[0])
            before = kept[first[which[np.searchsorted(kept, row)]]]
            self._refuse(
                again,
                ("job_id",),
                "an id of its own for each job",
                "with the id of an earlier row",
                "workload.reader.job_id=null numbers the rows, workload.reader.unique_ids=false accepts them",
                f", as in {self.rows.place(before)}",
            )

    def _check_order(self) -> None:
        if self.reader.sort:
            return
        kept = np.flatnonzero(~self.left)
        back = np.zeros(len(self.left), np.bool_)
        back[kept[1:]] = np.diff(self.submit[kept]) < 0
        if back.any():
            before = kept[np.searchsorted(kept, int(np.flatnonzero(back)[0])) - 1]
            value = shown(self.rows.frame[self.columns["submit"]].iloc[before])
            self._refuse(
                back,
                ("submit",),
                "ascending times",
                remedy="workload.reader.sort=true accepts any order",
                but=f", after {value} in {self.rows.place(before)}",
            )

    def _models(self) -> NDArray[np.int64]:
        """[rows] positions of models in the catalogue, -1 where none is known."""
        texts = self._texts("model")
        ids: dict[str, int] = {}
        for text in texts.unique().tolist():
            try:
                ids[text] = model_id(self.reader.model_names.get(text, text))
            except ConfigurationError:
                ids[text] = -1
        return np.asarray(texts.map(ids), dtype=np.int64)

    def _batch(self, gpus: NDArray[np.int64]) -> NDArray[np.float64]:
        """[rows] samples of an iteration on all GPUs, NaN where the file does not say."""
        each = {"batch_size": np.ones(len(gpus)), "samples_per_gpu": gpus}
        found = np.full(len(gpus), np.nan)
        for role in each.keys() & self.columns.keys():
            found = self._numbers(role) * each[role]
            odd = (found <= 0) | (found > 1e12)  # blank: the base batch
            self._refuse(odd, (role,), "a number of samples, 1 or more", "without a batch size")
        return found

    def _reasons_text(self) -> str:
        parts = [
            f"{count:,} {reason} (the first is {self.firsts[reason]})"
            for reason, count in self.reasons.items()
        ]
        return ", ".join(parts)

    def _note_left_out(self) -> None:
        if self.left.any():
            count = f"left out {self.left.sum():,} of {len(self.left):,} jobs"
            self.notes.append(f"{count}: {self._reasons_text()}")

    def _note_unknown(self, kind: str, texts: "pd.Series[str]", order: NDArray[np.int64], taken: str) -> None:
        """Note how many of the jobs in `order` have a missing or unknown text, and what it is `taken` as."""
        jobs = self.rows.frame.index[order]
        unknown = Counter(texts[texts.index.isin(jobs)])
        missing = unknown.pop("", 0)
        parts = [f"{missing:,} of {len(jobs):,} jobs have no {kind}"] if missing else []
        if unknown:
            most = ", ".join(f"{text!r} ({count:,})" for text, count in unknown.most_common(8))
            parts.append(f"{unknown.total():,} of {len(jobs):,} jobs have a {kind} that is not known, {most}")
        self.notes += [f"{' and '.join(parts)}: {taken}"] if parts else []

"""What one reading of a file does: from rows of texts to a `JobTable`, and what is left out."""

import re
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
from ringyard.workloads.cells import COMPACT_DATE, ENDS, STATES, UNITS, Times, lengths_of_time, numbers
from ringyard.workloads.files import Rows, header_hint
from ringyard.workloads.selection import select_rows

if TYPE_CHECKING:
    from ringyard.workloads.readers import TraceReader

#: columns of the job table, one of which a file gives
_WORK = ("duration_seconds", "iterations")

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
    """One reading of one file. Rows that cannot be jobs are refused, or taken out and counted.

    Args:
        reader: settings.
        rows: of the file.
    """

    def __init__(self, reader: "TraceReader", rows: Rows) -> None:
        self.reader, self.rows = reader, rows
        self.columns = self._find_columns()
        self.notes = list(rows.notes)
        self.reasons: dict[str, str] = {}
        self.left_out: dict[str, int] = {}
        formats = [reader.dates] if isinstance(reader.dates, str) else reader.dates
        unit = self._unit("submit") if self.columns.get("submit") in reader.units else None
        texts = self._texts("submit", "0")
        self.times = Times.read(texts, unit, formats, reader.zone)
        compact = texts[texts.str.fullmatch(COMPACT_DATE)].tolist()
        if compact and self.times.origin is not None and not formats:
            seconds = f"+workload.reader.units.{self.columns['submit']}=s reads seconds"
            self.notes.append(f"{compact[0]} and the like are dates ({seconds})")
        keep, note = select_rows(rows, reader.where, self.columns, self.times)
        self.notes += [note] if note else []
        self.rows = replace(rows, frame=rows.frame[keep])
        self.count = len(self.rows.frame)
        self.submit = pd.Series(self.times.seconds[keep], self.rows.frame.index)

    def _find_columns(self) -> dict[str, str]:
        """{setting: its column in the file}, without settings that name none."""
        found = {}
        for role in self.reader.roles:
            present = [name for name in self.reader.column_names(role) if name in self.rows.frame.columns]
            if present:
                found[role] = present[0]
            elif isinstance(getattr(self.reader, role), str):
                self._reject_column(role)
        if self.reader.submit is None and "start" in found:
            found["submit"] = found["start"]
        for role in ("submit", "gpus"):
            if role not in found and getattr(self.reader, role) is not None:
                self._reject_column(role)
        lengths = {"duration", "iterations"} | ({"model"} if self.reader.samples else set())
        if not found.keys() & lengths and not found.keys() >= {"start", "end"}:
            self._reject_column(*sorted(lengths - {"model"}), *({"start", "end"} - found.keys()), "model")
        return found

    def _reject_column(self, *roles: str) -> None:
        """Raise a WorkloadError: no column of the first of the settings that names one."""
        role = next((role for role in roles if self.reader.column_names(role)), roles[0])
        names, there = self.reader.column_names(role), list(self.rows.frame.columns)
        other = next((one for one in ";\t|," if one in str(there[0])), None) if len(there) == 1 else None
        hint = f"workload.reader.separator={other!r} separates cells" if other else header_hint(there)
        named = " or ".join(map(repr, names)) or "of run times"
        remedy = ", ".join(filter(None, (f"workload.reader.{role}=NAME names another", hint)))
        raise WorkloadError(f"has no column {named}; it has {shown(there)} ({remedy})")

    def _unit(self, role: str) -> float:
        unit = self.reader.units.get(self.columns.get(role, ""), 1.0)
        return UNITS[unit] if isinstance(unit, str) else float(unit)

    def _texts(self, role: str, default: str = "") -> "pd.Series[str]":
        """[rows] texts of a setting's column, "" where a value is missing. No such column: the `default`."""
        if role not in self.columns:
            return pd.Series(default, self.rows.frame.index, dtype=object)
        return self._extracted(role, self.rows.column(self.columns[role]))

    def _extracted(self, role: str, written: "pd.Series[str]") -> "pd.Series[str]":
        """[rows] what the pattern of a setting, or of its column, matches in texts, "" where it does not."""
        pattern = self.reader.patterns.get(role, self.reader.patterns.get(self.columns[role]))
        if pattern is None:
            return written
        expression = re.compile(pattern)

        def value(text: str) -> str:
            found = [next(filter(None, one.groups()), one[0]) for one in expression.finditer(text)]
            several = "each" in expression.groupindex and len(found) > 1  # such as GPUs of several types
            return str(numbers(pd.Series(found)).sum()) if several else "".join(found[:1])

        return written.map(value)

    def _numbers(self, role: str, default: str = "") -> "pd.Series[float]":
        """[rows] numbers of a setting's column in its unit. Texts that are none are refused."""
        texts = self._texts(role, default)
        unit = self._unit(role)
        found = pd.Series(
            lengths_of_time(texts, unit) if role == "duration" else numbers(texts) * unit, texts.index
        )
        expected = "a number, or a time such as 01:30:00" if role == "duration" else "a finite number"
        reason = f"without a number in {self.columns.get(role)}"
        self._refuse(found.isna() & (texts != ""), (role,), expected, reason)
        return found

    def _refuse(
        self,
        bad: "pd.Series[bool]",
        roles: Sequence[str],
        expected: str,
        reason: str = "",
        remedy: str = _LEAVE_OUT,
        but: str = "",
    ) -> None:
        """Raise a WorkloadError for the first bad row, or take out all bad rows.

        The message shows the columns of `roles`, the value (and `but`), what was expected and the `remedy`.
        Without a `reason` for the count of rows left out, such rows are always an error.
        """
        bad = bad.loc[self.rows.frame.index]
        if not bad.any():
            return
        first = int(np.asarray(bad).argmax())
        if reason and self.reader.leave_out:
            self.left_out[reason] = int(bad.sum())
            self.reasons[reason] = f"{bad.sum():,} {reason} (the first is {self.rows.place(first)})"
            self.rows = replace(self.rows, frame=self.rows.frame[~bad])
            return
        names = dict.fromkeys(self.columns[role] for role in roles if role in self.columns)
        cells = " and ".join(f"{name} is {shown(self.rows.frame[name].iloc[first])}" for name in names)
        raise WorkloadError(f"{self.rows.place(first)}: {cells}{but}; expected {expected} ({remedy})")

    def result(self) -> TraceRead:
        """Return the jobs, in order of submission."""
        names = {role: self._short(role, self._texts(role)) for role in ("tenant", "user")}
        if "job_id" in self.columns:
            written = self._extracted("job_id", self.rows.frame[self.columns["job_id"]])
            names["job_id"] = self._short("job_id", written)
            blank = names["job_id"].str.strip() == ""
            numbered = "workload.reader.job_id=null numbers the rows"
            reason = "without the id of a job" if "job_id" in self.reader.patterns else "without an id"
            self._refuse(blank, ("job_id",), "an id for each job", reason, numbered)
        values: dict[str, pd.Series[Any]] = self._gpus_and_cores()
        values["outcome"], unknown = self._outcomes()
        self._check_submissions()
        models, batch = self._models(), self._batch(values["num_gpus"])
        work = self._work(models, batch)
        self._check_ids()
        self._check_order()
        if not len(self.rows.frame):
            remedy = "workload.reader.leave_out=false says what helps"
            raise WorkloadError(
                f"has no row that can be a job: {', '.join(self.reasons.values())} ({remedy})"
            )
        submit = self.submit.loc[self.rows.frame.index].sort_values(kind="stable")
        if self.reader.from_zero or self.times.origin is not None:
            submit -= submit.iloc[0]
        rows = submit.index
        if "job_id" not in names:
            names["job_id"] = pd.Series(rows.astype(str), rows)
        texts = [names[name].loc[rows].to_numpy().astype(np.str_) for name in ("job_id", "tenant", "user")]
        whole = {name: np.asarray(column.loc[rows]).astype(np.int64) for name, column in values.items()}
        jobs = JobTable.from_columns(
            submit.to_numpy(), whole.pop("num_gpus"), np.ones(len(rows)), _whole(texts[0]), *texts[1:]
        )
        columns: dict[str, Any] = {name: np.full(len(rows), np.nan) for name in _WORK} | whole
        columns |= {name: np.asarray(column.loc[rows]) for name, column in work.items()}
        jobs = replace(jobs, **columns)
        if "model" in self.columns:
            remedy = "drawn from workload.models (+workload.reader.model_names.NAME=PROFILE says what it is)"
            self._note_unknown("model", self._texts("model").loc[rows][models.loc[rows] < 0], rows, remedy)
            if self.columns.keys() & {"batch_size", "samples_per_gpu"}:
                missing = pd.Series("", rows)[batch.loc[rows].isna()]
                self._note_unknown("batch size", missing, rows, "that of the profile of their model")
            found = np.asarray(models.loc[rows], dtype=np.int64)
            jobs = jobs.with_models(found, np.asarray(batch.loc[rows], dtype=np.float64))
        if self.reasons:
            count = f"left out {self.count - len(rows):,} of {self.count:,} jobs"
            self.notes.append(f"{count}: {', '.join(self.reasons.values())}")
        self._note_unknown("state", unknown, rows, "taken as completed")
        there = list(self.rows.frame.columns)
        return TraceRead(jobs, self.columns, there, len(self.rows.numbers), self.left_out, self.notes)

    def _short(self, role: str, texts: "pd.Series[str]") -> "pd.Series[str]":
        """[rows] the same texts. Long ones are refused before NumPy makes all as wide."""
        limit = f"{MAX_TEXT_LENGTH} characters"
        long = texts.str.len() > MAX_TEXT_LENGTH
        self._refuse(long, (role,), f"at most {limit}", f"with a text of more than {limit}")
        return texts

    def _gpus_and_cores(self) -> "dict[str, pd.Series[Any]]":
        """{column of the job table: [rows] GPUs of the job, or CPU cores of each GPU's worker}."""
        each = self._numbers("gpus", "1")
        self._refuse(~(each > 0), ("gpus",), "a number of GPUs, 1 or more", "without GPUs")
        whole = pd.Series(np.ceil(each), each.index)
        parts = whole != each
        if not self.reader.round_up_gpus:
            rounding = "workload.reader.round_up_gpus=true rounds up"
            self._refuse(parts, ("gpus",), "a whole number of GPUs", "with parts of a GPU", rounding)
        elif count := int(parts.loc[self.rows.frame.index].sum()):
            self.notes.append(f"{count:,} jobs ask for parts of a GPU: rounded up")
        workers = self._numbers("workers", "1")
        odd = ~(workers >= 1) | (workers % 1 != 0)
        self._refuse(odd, ("workers",), "a whole number of workers, 1 or more", "without workers")
        found = {"num_gpus": whole * workers}
        many = ~(found["num_gpus"] < 2**31)
        self._refuse(many, ("gpus", "workers"), "fewer than 2,147,483,648 GPUs", "with too many GPUs")
        if "cores" in self.columns:
            each = self._numbers("cores") / whole
            cores = pd.Series(np.ceil(each), each.index)
            expected = "a number of CPU cores, 0 to 1,000,000 for each GPU"
            self._refuse(~cores.between(0, 1e6), ("cores",), expected, "without a number of CPU cores")
            found["cores_per_worker"] = cores
        return found

    def _outcomes(self) -> "tuple[pd.Series[int], pd.Series[str]]":
        """([rows] how each job ended, again after as long a run; states that are missing or not known)."""
        states = self._texts("state", "COMPLETED")
        table = STATES | {name.upper(): end for name, end in self.reader.states.items()}
        words = states.str.upper().str.extract(r"^([^\s+]+)", expand=False)  # of "CANCELLED by 1001"
        ends = words.map({word: ENDS[end] for word, end in table.items()})
        expected = "the state of a job that has ended"
        self._refuse(ends == ENDS["unfinished"], ("state",), expected, "that had not ended")
        return ends.fillna(int(JobOutcome.COMPLETED)), states[ends.isna()]  # also without a column

    def _check_submissions(self) -> None:
        if "submit" not in self.columns:
            self.notes.append("there are no submission times: all jobs are submitted at 0 s")
            return
        origin = self.times.origin
        written = (
            "seconds"
            if origin is None
            else f"a date from 1900 to 2199, such as {origin.tz_convert(self.reader.zone).tz_localize(None)}"
        )
        formats = f"{_LEAVE_OUT}; workload.reader.dates='%d.%m.%Y %H:%M' reads other dates"
        self._refuse(self.submit.isna(), ("submit",), written, "without a submission time", formats)
        high = 5e11 if self.reader.from_zero else 1e12
        low = -high if self.reader.from_zero or origin is not None else 0.0
        units = f"+workload.reader.units.{self.columns['submit']}=ms reads milliseconds, us microseconds"
        expected = f"seconds from {low:g} to {high:g}"
        bad = ~self.submit.between(low, high)
        self._refuse(bad, ("submit",), expected, "with a time out of range", f"{units}; {_LEAVE_OUT}")

    def _work(self, models: "pd.Series[int]", batch: "pd.Series[float]") -> "dict[str, pd.Series[float]]":
        """{column of the job table: [rows] run times in seconds, or iterations}."""
        roles: tuple[str, ...] = ("duration",)
        if "duration" in self.columns:
            found = self._numbers("duration")
        elif {"start", "end"} <= self.columns.keys():
            roles = ("start", "end")
            texts = [self._texts(role) for role in roles]
            start, end = (pd.Series(self.times.parse(one), one.index) for one in texts)
            if self.columns.get("submit", self.columns["start"]) != self.columns["start"]:
                early = start < self.submit.loc[start.index]
                expected = "a start that is not before the submission"
                self._refuse(early, ("submit", *roles), expected, "that start before their submission")
            found = end - start
        elif "iterations" in self.columns:
            found = self._numbers("iterations")
            bad = ~((found > 0) & (found <= 1e15))
            self._refuse(bad, ("iterations",), "a number of iterations above 0", "without iterations")
            return {"iterations": found}
        else:
            return {"iterations": self._iterations_of_samples(models, batch)}
        self._refuse(~(found > 0), roles, "a run time above 0 s", "without a positive run time")
        self._refuse(~(found <= 1e12), roles, "a run time of at most 1e12 s", "with too long a run time")
        return {"duration_seconds": found}

    def _iterations_of_samples(
        self, models: "pd.Series[int]", batch: "pd.Series[float]"
    ) -> "pd.Series[float]":
        """[rows] iterations of a whole training, by the samples of its model (Pollux, OSDI'21, eq. 7)."""
        samples = self._texts("model").map(dict(self.reader.samples)).astype(np.float64)
        known = f"one of {', '.join(self.reader.samples)}"
        bad = ~(samples > 0) | (models.loc[samples.index] < 0)
        self._refuse(bad, ("model",), known, "of a model without a number of samples")
        first, scale = (
            pd.Series(profile_values(name)[models], models.index) for name in ("min_batch", "noise_scale")
        )
        batch = batch.fillna(first)
        return samples / batch * ((scale + batch) / (scale + first)).fillna(1.0)

    def _check_ids(self) -> None:
        """Refuse a second job of one id."""
        if not self.reader.unique_ids or "job_id" not in self.columns:
            return
        ids = self.rows.frame[self.columns["job_id"]]
        again = ids.duplicated()
        if again.any():
            one = ids.iloc[int(np.asarray(again).argmax())]
            before = self.rows.place(int(np.asarray(ids == one).argmax()))
            expected, reason = "an id of its own for each job", "with the id of an earlier row"
            remedy = "workload.reader.unique_ids=false accepts them"
            remedy = f"workload.reader.job_id=null numbers the rows, {remedy}"
            self._refuse(again, ("job_id",), expected, reason, remedy, f", as in {before}")

    def _check_order(self) -> None:
        submit = self.submit.loc[self.rows.frame.index]
        back = submit.diff() < 0
        if back.any() and not self.reader.sort:
            before = int(np.asarray(back).argmax()) - 1
            value = shown(self.rows.frame[self.columns["submit"]].iloc[before])
            remedy = "workload.reader.sort=true accepts any order"
            but = f", after {value} in {self.rows.place(before)}"
            self._refuse(back, ("submit",), "ascending times", remedy=remedy, but=but)

    def _models(self) -> "pd.Series[int]":
        """[rows] positions of models in the catalogue, -1 where none is known."""
        texts = self._texts("model")
        ids: dict[str, int] = {}
        for text in texts.unique().tolist():
            try:
                ids[text] = model_id(self.reader.model_names.get(text, text))
            except ConfigurationError:
                ids[text] = -1
        return texts.map(ids).astype(np.int64)

    def _batch(self, gpus: "pd.Series[float]") -> "pd.Series[float]":
        """[rows] samples of an iteration on all GPUs, NaN where the file does not say."""
        found = pd.Series(np.nan, self.rows.frame.index)
        for role, times in (("batch_size", 1.0), ("samples_per_gpu", gpus)):
            if role in self.columns:
                found = self._numbers(role) * times
                bad = (found <= 0) | (found > 1e12)
                self._refuse(bad, (role,), "a number of samples, 1 or more", "without a batch size")
        return found.loc[self.rows.frame.index]

    def _note_unknown(self, kind: str, texts: "pd.Series[str]", rows: "pd.Index[int]", taken: str) -> None:
        """Note how many of the `rows` have a missing or unknown text, and what it is `taken` as."""
        unknown = Counter(texts[texts.index.isin(rows)])
        missing = unknown.pop("", 0)
        parts = [f"{missing:,} of {len(rows):,} jobs have no {kind}"] if missing else []
        if unknown:
            most = ", ".join(f"{text!r} ({count:,})" for text, count in unknown.most_common(8))
            parts.append(f"{unknown.total():,} of {len(rows):,} jobs have a {kind} that is not known, {most}")
        self.notes += [f"{' and '.join(parts)}: {taken}"] if parts else []


def _whole(texts: NDArray[np.str_]) -> NDArray[np.int64] | NDArray[np.str_]:
    """[rows] integers if all texts are integers, else the texts."""
    try:
        whole = texts.astype(np.int64)
    except (ValueError, OverflowError):
        return texts
    return whole if (whole.astype(np.str_) == texts).all() else texts

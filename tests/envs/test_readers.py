"""Readers of files of jobs: formats as released, refusals, what is left out. The samples are our own."""

import functools
import gzip
import json
import re
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import composed, leaf, shared
from ringyard import Cluster
from ringyard.errors import ConfigurationError, WorkloadError, WorkloadWarning
from ringyard.mdp.experiments import experiment
from ringyard.profiles import catalogue, model_id, profile
from ringyard.state.records import JobOutcome
from ringyard.workloads import ModelMix, Replay, TraceReader, read_csv, read_philly, read_trace
from ringyard.workloads.readers import describe_trace, trace_configs, trace_reader, trace_sources
from ringyard_agents.cli import main

READERS = {name: trace_reader(name) for name in trace_configs()}
COMPLETED, FAILED, CANCELLED = JobOutcome.COMPLETED, JobOutcome.FAILED, JobOutcome.CANCELLED


def written(tmp_path, text, name="jobs.csv"):
    file = tmp_path / name
    file.write_text(text)
    return file


def quiet(reader, file):
    """What a reader makes of a file, without its warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WorkloadWarning)
        return reader.read(file)


# every yaml of conf/workload that reads a file

#: cells of the columns that a pattern reads
PATTERN_CELLS = {
    "tres_req": "1=8,4=1,1002=2",
    "AllocTRES": "cpu=8,gres/gpu:a100=2,gres/gpu=2",
    "ReqTRES": "gres/gpu=2",
}
PATTERN_CELLS |= {"AllocGRES": "gpu:2", "ReqGRES": "gpu:a100:2", "job_type": "ResNet-18 (batch size 16)"}
VALUES = {"submit": "100", "start": "110", "end": "170", "duration": "60", "iterations": "60", "gpus": "2"}
VALUES |= {
    "workers": "1",
    "cores": "2",
    "state": "COMPLETED",
    "model": "resnet50",
    "batch_size": "8",
    "samples_per_gpu": "8",
}


def sample(reader, count=5):
    """(names of columns, rows of cells) of a file in the format of a reader."""
    cells = dict.fromkeys(reader.header or ())
    for role in reader.roles:
        for name in reader.column_names(role):
            cells[name] = cells.get(name) or VALUES.get(role, "x")
    done = [text for text, end in reader.states.items() if end == "completed"]
    cells |= dict.fromkeys(reader.column_names("state"), done[0] if done else "COMPLETED")
    patterned = {
        name for role in reader.patterns for name in ((role,) if role in cells else reader.column_names(role))
    }
    cells |= {name: PATTERN_CELLS[name] for name in patterned - set(reader.column_names("job_id"))}
    if reader.samples:
        cells |= dict.fromkeys(reader.column_names("model"), next(iter(reader.samples)))
    ids = reader.column_names("job_id")
    rows = [
        [f"j{row}" if name in ids else cell or "z" for name, cell in cells.items()] for row in range(count)
    ]
    return list(cells), rows


def as_text(reader, *rows):
    between = {r"\s+": " ", r"\t": "\t"}.get(reader.separator, reader.separator)
    return "\n".join(between.join(f'"{c}"' if between in c else c for c in row) for row in rows)


@pytest.mark.parametrize("name", READERS)
def test_the_yaml_and_python_read_alike(name):
    config = composed("simulate", f"workload={name}", "workload.path=x")["workload"]["reader"]
    reader = trace_reader(name)
    for key, value in config.items():
        if key not in ("_target_", "where"):
            there = getattr(reader, key)
            assert (list(there) if isinstance(there, tuple) else there) == value, key


@pytest.mark.parametrize("name", READERS)
def test_every_format_is_read_with_and_without_its_header(name, tmp_path):
    reader = trace_reader(name)
    columns, rows = sample(reader)
    file = written(tmp_path, as_text(reader, columns, *rows))
    read = quiet(reader, file)
    assert (len(read.jobs), read.num_rows, dict(read.left_out)) == (5, 5, {})
    assert set(read.columns) <= set(reader.roles)
    assert read.jobs.num_gpus.tolist() == [read.jobs.num_gpus[0]] * 5
    read.jobs.check()
    if reader.header:
        rows = [row[: len(reader.header)] for row in rows]
        assert len(quiet(reader, written(tmp_path, as_text(reader, *rows))).jobs) == 5


@pytest.mark.parametrize("name", READERS)
def test_a_blank_cell_is_refused_or_left_out_whatever_its_column(name, tmp_path):
    """Numbers and times that a job needs; names, states and models may be unknown."""
    reader = trace_reader(name)
    columns, rows = sample(reader)
    needed = quiet(reader, written(tmp_path, as_text(reader, columns, *rows))).columns
    needed = {
        role: column
        for role, column in needed.items()
        if role in VALUES and role not in ("state", "model", "batch_size", "samples_per_gpu")
    }
    if "duration" in needed:
        needed = {
            role: column for role, column in needed.items() if role not in ("start", "end", "iterations")
        }
    for role in ("job_id", *needed):
        for column in reader.column_names(role)[:1]:
            changed = [list(row) for row in rows]
            changed[2][columns.index(column)] = ""
            text = as_text(reader, columns, *changed)
            if reader.separator == r"\s+":  # has no blank cells
                continue
            file = written(tmp_path, text)
            left = quiet(trace_reader(name, leave_out=True), file)
            assert (len(left.jobs), sum(left.left_out.values())) == (4, 1), role
            with pytest.raises(
                WorkloadError, match=rf"line 4: .*{re.escape(column)} is ''.*; expected .*\(work"
            ):
                trace_reader(name, leave_out=False)(file)


# refusals

#: {setting: values that no job has}
WRONG = {
    "submit": ["", "noon", "-5", "1e400", "2e12", "nan", "01:00"],
    "duration": ["", "soon", "0", "-1", "1e400", "2e12", "-01:00:00", "1:99", "01:99:99"],
    "gpus": ["", "two", "0", "-1", "1.5", "1e400", "3000000000", "True"],
    "workers": ["", "0", "1.5", "many", "1e30"],
    "cores": ["", "few", "-1", "1e9"],
    "job_id": ["", "x" * 129],
    "user": ["x" * 129],
    "tenant": ["x" * 129],
    "state": ["RUNNING", "pending"],
}


@st.composite
def wrong_files(draw):
    """(settings of a reader, text, line, column and value of what is wrong, whether there are other rows)."""
    count = draw(st.integers(2, 6))
    role = draw(st.sampled_from(sorted(WRONG)))
    value = draw(st.sampled_from(WRONG[role]))
    columns = {one: f"{one} {draw(st.sampled_from('abc'))}" for one in WRONG}
    order = draw(st.permutations(sorted(columns)))
    cells = {"gpus": "1", "workers": "2", "cores": "4", "state": "COMPLETED", "user": "u", "tenant": "v"}
    rows = [cells | {"job_id": f"j{k}", "submit": str(10 * k), "duration": "5"} for k in range(count)]
    bad = draw(st.integers(0, count - 1))
    rows[bad][role] = value
    if draw(st.booleans()):
        rows[bad - 1]["tenant"] = 'two\nlines, "quoted"'
    where, sort = None, draw(st.booleans())
    if role != "tenant" and draw(st.booleans()):  # rows that `where` leaves away still count
        kept = rows[bad]["tenant"]
        rows.insert(0, rows[0] | {"tenant": "other", "job_id": "other"})
        where, bad = {"tenant": kept}, bad + 1
    lines, at = [draw(st.sampled_from(["", "\n", "\n  \n"]))], 0
    numbers = [",".join(columns[one] for one in order)]
    numbers += [",".join('"' + row[one].replace('"', '""') + '"' for one in order) for row in rows]
    for number, text in enumerate(numbers):
        if number == bad + 1:
            at = "".join(lines).count("\n") + 1
        lines.append(text + draw(st.sampled_from(["\n", "\n", "\n\n", "\r\n"])))
    given_settings = {**columns, "where": where, "sort": sort}
    return (
        given_settings,
        "".join(lines),
        at,
        columns[role],
        value,
        any(row["tenant"] == rows[bad]["tenant"] for row in rows if row is not rows[bad]) or where is None,
    )


@given(wrong_files())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_refusal_names_file_line_column_value_expectation_and_remedy(tmp_path, wrong):
    """Line and column are those of the file, whatever `where` and `sort` do; the remedy works."""
    options, text, line, column, value, others = wrong
    file = tmp_path / "jobs.csv"
    file.write_bytes(text.encode())
    with pytest.raises(WorkloadError) as error:
        quiet(TraceReader(**options), file)
    said = str(error.value)
    shown = repr(value)[:60]
    assert said.startswith(f"{file}: line {line}: "), said
    assert f"{column} is {shown}" in said.partition("; expected")[0], said
    assert re.search(r"; expected .*\(.*workload\.reader\.\w+.*\)$", said), said
    assert "row" not in said.partition("expected")[0]
    if others:
        left = quiet(TraceReader(**options, leave_out=True), file)
        assert sum(left.left_out.values()) == 1


#: {setting: (values that it cannot have, what the error says)}
SETTINGS = {
    "units": ({"gpus": "weeks"}, {"nowhere": "ms"}),
    "patterns": ({"gpus": "("}, {"nowhere": "x"}),
    "states": ({"Z": "ended"},),
    "samples": ({"x": 0},),
    "zone": ("Mars/Olympus", ""),
    "dates": ("%", ["%Q"]),
    "separator": ("ab", "", "\n"),
    "header": ([],),
    "comment": (3,),
    "gpus": ([], 3),
    "tenant": ([], {}),
    "leave_out": ("yes",),
    "where": (
        {"submit_s": [2, 1]},
        {"submit_s": ["noon", None]},
        {"user": []},
        {"nowhere": "x"},
        {"user": "nobody"},
    ),
}
#: {setting: values in place of one cell}
CELLS = {
    "submit": "noon",
    "duration": "soon",
    "start": "noon",
    "end": "noon",
    "gpus": "two",
    "workers": "many",
}
CELLS |= {"cores": "few", "iterations": "lots", "job_id": "x" * 129, "user": "y" * 129, "tenant": "z" * 129}


@st.composite
def refused_formats(draw):
    """(reader, columns, rows, parts of the error). Something of the file or of the settings is wrong."""
    name = draw(st.sampled_from(sorted(READERS)))
    reader = replace(READERS[name], leave_out=False)
    columns, rows = sample(reader)
    kind = draw(st.sampled_from(["settings", "cell", "columns", "nowhere", "twice", "long", "empty"]))
    row = draw(st.integers(0, len(rows) - 1))
    if kind == "settings":
        setting = draw(st.sampled_from(sorted(SETTINGS)))
        value = draw(st.sampled_from(SETTINGS[setting]))
        if setting == "units" and "gpus" in value:
            value = {reader.column_names("gpus")[0]: value["gpus"]}
        return reader, {setting: value}, columns, rows, [f"workload.reader.{setting}"]
    if kind == "cell":
        used = [role for role in CELLS if role in quiet_columns(name)]
        role = draw(st.sampled_from(used))
        column = quiet_columns(name)[role]
        rows[row][columns.index(column)] = CELLS[role]
        return (
            reader,
            {},
            columns,
            rows,
            [f"line {row + 2}: ", f"{column} is {CELLS[role][:50]!r}"[:-1], "(workload.r"],
        )
    if kind == "columns":
        role = draw(st.sampled_from([one for one in ("submit", "gpus") if reader.column_names(one)]))
        gone = reader.column_names(role)
        kept = [place for place, one in enumerate(columns) if one not in gone]
        rows = [[cells[place] for place in kept] for cells in [columns, *rows]]
        return reader, {}, rows[0], rows[1:], [*map(repr, gone), f"(workload.reader.{role}=NAME"]
    if kind == "nowhere":
        changed = {*reader.patterns, *reader.units}  # these are checked before the file is read
        free = [role for role in reader.roles if not changed.intersection(reader.column_names(role))]
        role = draw(st.sampled_from(free))
        return (
            reader,
            {role: "nowhere"},
            columns,
            rows,
            ["no column 'nowhere'; it has ", f"(workload.reader.{role}=NAME"],
        )
    if kind == "twice":
        twice = draw(st.sampled_from(columns))
        return (
            reader,
            {},
            [*columns, twice],
            [[*one, "1"] for one in rows],
            ["line 1 has column ", f"{twice!r} twice; exp"],
        )
    if kind == "long":
        rows[row] = [*rows[row], "1"]
        there = f"line {row + 2} has {len(columns) + 1} cells; expected {len(columns)}, "
        return reader, {}, columns, rows, [there, "workload.reader.separator="]
    return reader, {}, columns, [], ["has no rows; expected some"]


@functools.cache
def quiet_columns(name):
    """{setting: its column} of the sample of a reader, of those that need a value."""
    with tempfile.TemporaryDirectory() as folder:
        columns, rows = sample(READERS[name])
        read = quiet(READERS[name], written(Path(folder), as_text(READERS[name], columns, *rows)))
    unused = {"start", "end"} if "duration" in read.columns else set()
    return {role: column for role, column in read.columns.items() if role not in unused}


@given(refused_formats())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_refusals_of_all_readers_say_what_is_wrong_and_what_helps(tmp_path, refused):
    reader, changed, columns, rows, parts = refused
    file = written(tmp_path, as_text(reader, columns, *rows))
    with pytest.raises((WorkloadError, ConfigurationError)) as error:
        quiet(replace(reader, **changed), file)
    said = str(error.value)
    assert all(part in said for part in parts), (said, parts)
    assert "expected" in said or "it has" in said, said
    assert said.startswith(f"{file}: ") or isinstance(error.value, ConfigurationError), said
    assert "\n" not in said


def test_unsorted_rows_and_ids_that_repeat_say_where_and_what_helps(tmp_path):
    file = written(tmp_path, "job_id,at,gpus,duration\n\na,5,1,1\nb,9,1,1\na,7,1,1\n")
    with pytest.raises(
        WorkloadError, match=r"line 5: job_id is 'a', as in line 3; expected an id .*job_id=null"
    ):
        read_csv(file, submit="at")
    with pytest.raises(
        WorkloadError, match=r"line 5: at is '7', after '9' in line 4; expected ascending times .*sort=true"
    ):
        read_csv(file, submit="at", job_id=None)
    assert read_csv(file, submit="at", unique_ids=False, sort=True).job_id.tolist() == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"user": "who"},
            r"has no column 'who'; it has \[.*\] \(workload\.reader\.user=NAME names another\)",
        ),
        ({"submit": ["at", "when"]}, r"no column 'at' or 'when'; it has"),
        (
            {"separator": ";"},
            r"it has \['job_id,submit_time,gpus,duration'\].*, workload\.reader\.separator=',' sep",
        ),
        ({"duration": None}, r"no column"),
    ],
)
def test_columns_that_are_not_there(tmp_path, options, said):
    file = written(tmp_path, "job_id,submit_time,gpus,duration\n1,0,1,5\n")
    with pytest.raises(WorkloadError, match=said):
        read_csv(file, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"units": {"duratoin": "ms"}}, "units has 'duratoin', which no setting names as a column; expected"),
        ({"units": {"duration": "weeks"}}, "units has 'weeks'; expected some of us, ms, s,"),
        ({"states": {"Done": "finished"}}, "states has 'finished'; expected some of completed,"),
        ({"patterns": {"gpus": "("}}, "patterns has '.': .*; expected a regular expression"),
        ({"zone": "Mars/Olympus"}, "zone is 'Mars/Olympus'; expected a time zone such as UTC"),
        ({"separator": ";;"}, "separator is ';;'; expected a character"),
        ({"separator": "é"}, "separator is 'é'; expected a character"),
        ({"separator": "\n"}, "expected a character"),
        ({"dates": ["%Q"]}, r"dates has '%Q': .*; expected a format such as '%d\.%m"),
        ({"dates": "%"}, "dates has '%': .*; expected a format"),
        ({"gpus": []}, r"gpus is \[\]; expected"),
        ({"submit_tmie": "at"}, "a reader has no setting 'submit_tmie'; expected submit"),
    ],
)
def test_settings_that_are_none(options, said):
    with pytest.raises(ConfigurationError, match=said):
        trace_reader("csv", **options)


# values

HEAD = "job_id,submit_time,gpus,duration\n"


def test_states_of_a_csv_file_are_read(tmp_path):
    rows = ["1,0,1,5,COMPLETED", "2,1,1,5,TIMEOUT", "3,2,1,5,CANCELLED by 7", "4,3,1,5,", "5,4,1,5,Odd"]
    file = written(tmp_path, HEAD.replace("\n", ",state\n") + "\n".join(rows))
    with pytest.warns(
        WorkloadWarning, match=r"1 of 5 jobs have no state and 1 of 5 .* 'Odd' \(1\): taken as compl"
    ):
        jobs = read_csv(file)
    assert jobs.outcome.tolist() == [COMPLETED, FAILED, CANCELLED, COMPLETED, COMPLETED]
    reader = TraceReader(states={"Odd": "failed", "completed": "cancelled"})
    assert quiet(reader, file).jobs.outcome.tolist() == [CANCELLED, FAILED, CANCELLED, COMPLETED, FAILED]


def test_ways_to_write_times_and_numbers(tmp_path):
    text = '1,"1,000",2,01:00:00\n2,2000,"1,024",1-00:00:30\n3,3000,1,"3,600"\n4,4000,1,2 days 00:00:00\n'
    jobs = read_csv(written(tmp_path, HEAD + text))
    assert jobs.submit_seconds.tolist() == [1000, 2000, 3000, 4000]
    assert jobs.num_gpus.tolist() == [2, 1024, 1, 1]
    assert jobs.duration_seconds.tolist() == [3600, 86430, 3600, 172800]
    units = {"submit_time": "ms", "duration": 60, "gpus": "percent"}
    jobs = read_csv(written(tmp_path, HEAD + "1,1500,200,2\n"), units=units)
    assert (jobs.submit_seconds[0], jobs.num_gpus[0], jobs.duration_seconds[0]) == (1.5, 2, 120)


def test_dates_their_formats_and_time_zones(tmp_path):
    file = written(
        tmp_path, HEAD + "1,01.11.2020 01:30,1,5\n2,01.11.2020 03:30,1,5\n3,2020-11-01 08:30:00Z,1,5\n"
    )
    with pytest.raises(
        WorkloadError, match=r"line 2: submit_time is '01.11.2020 01:30'; expected .*reader\.dates="
    ):
        read_csv(file)
    german = "%d.%m.%Y %H:%M"
    assert read_csv(file, dates=german).submit_seconds.tolist() == [0, 7200, 25200]
    # clocks went back in New York at 2 h that day: 3 hours pass between 1:30 (the first) and 3:30
    jobs = read_csv(file, dates=[german], zone="America/New_York", sort=True)
    assert jobs.submit_seconds.tolist() == [0, 10800, 10800]


def test_a_zone_counts_where_a_date_names_none(tmp_path):
    file = written(
        tmp_path, HEAD + "1,2020-02-01 00:00:00+01,1,5\n2,2020-02-01 00:00Z,1,5\n3,2020-02-01,1,5\n"
    )
    assert read_csv(file, zone="America/New_York").submit_seconds.tolist() == [0, 3600, 21600]
    file = written(tmp_path, HEAD + "1,12:00 28-03-2020,1,5\n2,12:00 29-03-2020,1,5\n")  # a night of 23 hours
    jobs = read_csv(file, zone="Europe/Berlin", dates="%H:%M %d-%m-%Y")
    assert jobs.submit_seconds.tolist() == [0, 82800]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_dates_without_separators_and_years_that_stand_for_no_date(tmp_path, zone):
    days = ["20200131", "20200201", "20200202T120000", "20200203T000000Z"]
    file = written(tmp_path, HEAD + "".join(f"{row},{day},1,5\n" for row, day in enumerate(days)))
    jobs = quiet(TraceReader(zone=zone), file).jobs
    hours = {"UTC": 0, "Asia/Tokyo": 9, "America/New_York": -5}[zone]  # Z: not in the zone
    assert jobs.submit_seconds.tolist() == [0, 86400, 216000, 259200 + hours * 3600]
    file = written(tmp_path, HEAD + "1,20200131,1,5\n2,20200201,1,5\n")
    with pytest.warns(
        WorkloadWarning, match=r"20200131 .* dates \(\+workload\.reader\.units\.submit_time=s reads"
    ):
        assert read_csv(file, zone=zone).submit_seconds.tolist() == [0, 86400]
    assert read_csv(file, units={"submit_time": "s"}).submit_seconds.tolist() == [20200131, 20200201]
    for day in (
        "0001-01-01",
        "0001-01-01T00:00:00+09:00",
        "9999-12-31 23:59:59",
        "9999-12-31T23:59:59-09:00",
    ):
        file = written(tmp_path, HEAD + f"1,{day},1,5\n2,2020-02-01,1,5\n3,2020-02-02,1,5\n")
        with pytest.raises(
            WorkloadError, match=rf"line 2: submit_time is '{re.escape(day)}'; expected a date from"
        ):
            read_csv(file, zone=zone)
        with pytest.warns(WorkloadWarning, match="1 without a submission time"):
            assert read_csv(file, zone=zone, leave_out=True).submit_seconds.tolist() == [0, 86400]


@pytest.mark.parametrize(
    ("first", "second", "seconds"),
    [
        ("202001311200", "202001311230", 1800),
        ("20200131120000", "20200131120007", 7),
        ("20200131", "202002010030", 88200),
        ("202001312359", "20200201T0000", 60),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_hours_and_minutes_of_dates_without_separators(tmp_path, first, second, seconds, zone):
    file = written(tmp_path, HEAD + f"1,{first},1,5\n2,{second},1,5\n")
    assert quiet(TraceReader(zone=zone), file).jobs.submit_seconds.tolist() == [0, seconds]
    if second.isdigit():
        kept = quiet(TraceReader(units={"submit_time": 1e-3}), file).jobs.submit_seconds
        np.testing.assert_allclose(kept, [int(first) * 1e-3, int(second) * 1e-3])


def test_epochs_stay_numbers(tmp_path):
    """Milliseconds and microseconds need their unit, and the refusal names it."""
    for digits, unit in ((0, None), (3, "ms"), (6, "us")):
        epoch = 1577880000 * 10**digits
        file = written(tmp_path, HEAD + f"1,{epoch},1,5\n2,{epoch + 60 * 10**digits},1,5\n")
        units = {"submit_time": unit} if unit else {}
        assert read_csv(file, units=units).submit_seconds.tolist() == [1577880000, 1577880060]
        for leave_out in (False, True) if unit else ():
            said = r"leave_out=false says" if leave_out else r"=ms reads milliseconds, us microseconds"
            with pytest.raises(WorkloadError, match=said):
                read_csv(file, leave_out=leave_out)


@pytest.mark.parametrize(
    ("cell", "gpus"),
    [
        ("cpu=8,gres/gpu:a100=2,gres/gpu:v100=1,node=2", 3),
        ("cpu=8,gres/gpu:a100=2,gres/gpu:v100=1,gres/gpu=3", 3),
        ("gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1", 3),
        ("cpu=8,gres/gpu=4", 4),
        ("gpu:a100:2,gpu:v100:1", 3),
        ("gpu:a100:2(IDX:0-1),gpu:v100:2(IDX:0,3)", 4),
        ("gpu:nvidia_a100_3g.20gb:1", 1),
        ("gres:gpu:4", 4),
    ],
)
def test_slurm_jobs_count_the_gpus_of_all_types(tmp_path, cell, gpus):
    file = written(tmp_path, f"JobID|Submit|Elapsed|State|AllocTRES\n1|2024-03-01|60|COMPLETED|{cell}\n")
    assert read_trace(file, "sacct").num_gpus.tolist() == [gpus]


def test_supercloud_counts_the_gpus_of_both_types(tmp_path):
    columns, rows = sample(READERS["supercloud"], 1)
    rows[0][columns.index("tres_req")] = "1=8,1001=1,1002=2"
    file = written(tmp_path, as_text(READERS["supercloud"], columns, *rows))
    assert quiet(READERS["supercloud"], file).jobs.num_gpus.tolist() == [3]


def test_a_pattern_adds_up_only_the_group_each(tmp_path):
    file = written(tmp_path, HEAD + "1,0,4 of 8 + 2 of 8,5\n")
    for pattern, gpus in ((r"(\d+) of (\d+)", 4), (r"(?P<each>\d+) of", 6), (r"x|(\d+)$|\+ (\d+)", 2)):
        assert read_csv(file, patterns={"gpus": pattern}).num_gpus.tolist() == [gpus]


def test_run_times_from_starts_and_ends(tmp_path):
    rows = [
        "submit,begin,finish,n",
        "2020-01-01,2020-01-01 00:01,2020-01-01 00:03,1",
        "2020-01-01,2019-12-31,2020-01-02,1",
    ]
    file = written(tmp_path, "\n".join([*rows, "2020-01-01,2020-01-02,Unknown,1"]))
    columns = {"submit": "submit", "start": "begin", "end": "finish", "gpus": "n"}
    with pytest.raises(
        WorkloadError, match=r"line 3: submit is .* and begin is '2019-12-31' .*not before the sub"
    ):
        read_csv(file, **columns)
    with pytest.warns(
        WorkloadWarning, match=r"left out 2 of 3 jobs: 1 that start before.*line 3\), 1 without a pos"
    ):
        assert read_csv(file, **columns, leave_out=True).duration_seconds.tolist() == [120]


def test_models_that_a_file_names_are_kept(tmp_path):
    file = written(
        tmp_path,
        "submit_time,gpus,duration,net\n0,1,5,vgg16\n1,1,5,ResNet-50 (batch 32)\n2,1,5,odd\n3,1,5,\n",
    )
    reader = TraceReader(model="net", model_names={"ResNet-50 (batch 32)": "resnet50"})
    with pytest.warns(
        WorkloadWarning, match=r"1 of 4 jobs have no model and 1 .*'odd' \(1\): drawn from work"
    ):
        replay = Replay(reader(file), ModelMix({1: {"lstm": 1}}))
    jobs = replay.sample(Cluster.homogeneous(1, 4), np.random.default_rng(0))
    assert [catalogue()[row].name for row in jobs.model_ids] == ["vgg16", "resnet50", "lstm", "lstm"]
    jobs.check()


# formats

SAMPLES = {
    "spot": (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
        "7,3,A10,20,1,1,0,500,HP\n8,4,A100-SXM4-80GB,15,1,16,60,700,Spot\n9,4,A10,8,0.5,2,90,70,Spot\n",
        {
            "num_gpus": [1, 16, 2],
            "cores_per_worker": [20, 15, 8],
            "user": ["3", "4", "4"],
            "submit_seconds": [0, 60, 90],
        },
    ),
    "pai": (
        "ab,tensorflow,1.0,Terminated,1100.0,1200.0,600.0,29.3,50.0,MISC\n"
        "ab,worker,4.0,Failed,1090.0,1150.0,600.0,29.3,200.0,V100\ncd,ps,1.0,Terminated,900.0,950.0,600.0,29.3,,\n",
        {
            "num_gpus": [8, 1],
            "duration_seconds": [60, 100],
            "outcome": [FAILED, COMPLETED],
            "job_id": ["ab", "ab"],
        },
    ),
    "acme": (  # Kalos: its duration contains the 10 s in the queue
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
        "end_time,fail_time,stop_time,duration,queue,gpu_time\n"
        "dlc1,u9,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,"
        "2023-05-17 11:01:00+00:00,2023-05-17 11:01:00+00:00,,60,10.0,3840.0\n"
        "dlc2,u9,1,8,96,1000,100.0,Other,CANCELLED,2023-05-17 19:00:30+08:00,2023-05-17 19:00:31+08:00,"
        "2023-05-17 19:02:31+08:00,,,121,1.0,968.0\n",
        {
            "num_gpus": [64, 8],
            "duration_seconds": [50, 120],
            "submit_seconds": [0, 30],
            "cores_per_worker": [15, 12],
        },
    ),
    "openb": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,12000,16384,1,460,,LS,Running,100,900,120\np1,88000,327680,8,1000,V100M16|V100M32,BE,Succeeded,150,250,150\n"
        "p2,4000,1,1,1000,,LS,Pending,160,170,\np3,4000,1,0,0,,LS,Running,160,170,160\n",
        {
            "num_gpus": [1, 8],
            "duration_seconds": [780, 100],
            "cores_per_worker": [12, 11],
            "submit_seconds": [0, 50],
        },
    ),
    "supercloud": (
        "id_job,id_user,cpus_req,partition,priority,state,time_submit,time_start,time_end,tres_alloc,tres_req\n"
        '1,7,40,p,1,3,1600000000,1600000005,1600000105,,"1=40,2=340000,4=1,5=40,1002=2"\n'
        '2,7,40,p,1,4,1600000001,0,1600000105,,"1=40,2=3,1001=1"\n3,7,40,p,1,3,1600000001,1600000004,1600000105,,"1=40"\n',
        {"num_gpus": [2], "duration_seconds": [100], "cores_per_worker": [20], "vc": ["p"], "user": ["7"]},
    ),
    "sacct": (
        "JobID|User|Account|Partition|Submit|Start|End|Elapsed|State|NCPUS|AllocTRES\n"
        "17|ann|bio|gpu|2024-05-01T10:00:00|2024-05-01T10:05:00|2024-05-02T10:05:03|1-00:00:03|COMPLETED|16|"
        "billing=16,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1\n"
        "17.batch||bio||2024-05-01T10:05:00|2024-05-01T10:05:00|2024-05-02T10:05:03|1-00:00:03|COMPLETED|16|cpu=16,gres/gpu=4\n"
        "18_3|bob|bio|gpu|2024-05-01T09:00:00|2024-05-01T10:05:00|2024-05-01T10:06:00|00:01:00|"
        "CANCELLED by 1001|8|cpu=8,gres/gpu:v100=2\n"
        "19|bob|bio|cpu|2024-05-01T09:00:00|2024-05-01T10:05:00|2024-05-01T10:06:00|00:01:00|FAILED|8|cpu=8\n"
        "20|bob|bio|gpu|2024-05-01T09:00:00|Unknown|Unknown|00:00:00|PENDING|8|\n",
        {
            "job_id": ["18_3", "17"],
            "num_gpus": [2, 4],
            "cores_per_worker": [4, 4],
            "submit_seconds": [0, 3600],
            "duration_seconds": [60, 86403],
            "outcome": [CANCELLED, COMPLETED],
            "user": ["bob", "ann"],
        },
    ),
    "swf": (
        "; Version: 2.2\n; MaxProcs: 64\n"
        "    1        0      4   120     8   -1 -1    8   600  -1  1   3   1 -1  1 -1 -1 -1\n"
        "    2        9      0   -1     -1   -1 -1    8   600  -1  5   3   1 -1  1 -1 -1 -1\n"
        "    3       12      0   60.5   2   -1 -1    8   600  -1  0   4   2 -1  1 -1 -1 -1\n",
        {
            "job_id": [1, 3],
            "submit_seconds": [0, 12],
            "num_gpus": [8, 2],
            "duration_seconds": [120, 60.5],
            "outcome": [COMPLETED, FAILED],
            "user": ["3", "4"],
        },
    ),
    "pollux": (
        "name,time,application,num_replicas,batch_size\ncifar10-0,50,cifar10,1,128\nncf-1,57,ncf,4,1024\n",
        {
            "num_gpus": [1, 4],
            "batch_size": [128, 1024],
            "submit_seconds": [0, 7],
            "model_ids": [model_id("resnet18_cifar10"), model_id("neumf_ml1m")],
        },
    ),
    "gavel": (
        "ResNet-50 (batch size 64)\tpython3 x %s/y\tic\t--n\t1\t7931\t2\t1\t-1.0\t0\n"
        "A3C\tpython3 x\trl\t-m\t0\t8857\t1\t1\t-1.000000\t5.5\n",
        {
            "num_gpus": [2, 1],
            "batch_size": [128, 1],
            "iterations": [7931, 8857],
            "submit_seconds": [0, 5.5],
            "model_ids": [model_id("resnet50_imagenet"), model_id("a3c_pong")],
        },
    ),
    "tiresias": (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n3,2,0,90,vgg16,30,9\n4,8,9,7,odd,45,2\n",
        {"num_gpus": [2, 8], "duration_seconds": [30, 45], "model_ids": [model_id("vgg16_imagenet"), -1]},
    ),
    "gpu_v2026": (
        "pod_id,workload_id,server_id,gpu_spec_public,priority_class,gpu_request,duration_hours\n"
        "ab,w,s,A10,HP,0.5,1.5\nac,,s,H20,LP,8.0,2\n",
        {"num_gpus": [1, 8], "duration_seconds": [5400, 7200], "submit_seconds": [0, 0]},
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_released_formats(name, tmp_path):
    text, expected = SAMPLES[name]
    read = quiet(trace_reader(name), written(tmp_path, text))
    for column, values in expected.items():
        assert getattr(read.jobs, column).tolist() == values, column
    file = tmp_path / "packed"
    file.write_bytes(gzip.compress(text.encode(), mtime=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WorkloadWarning)
        replay = leaf("workload", name, f"workload.path={file}", "workload.load=null")
    jobs = replay.sample(Cluster.homogeneous(16, 8), np.random.default_rng(0))
    assert sorted(jobs.num_gpus.tolist()) == sorted(expected["num_gpus"])


def test_where_selects_by_what_is_no_column_of_job_tables(tmp_path):
    file = written(tmp_path, SAMPLES["spot"][0])
    for where in ({"priority": "Spot", "gpu_type": "A10"}, {"job_type": "Spot", "gpu_model": "A10"}):
        with pytest.warns(WorkloadWarning, match="keeps 1 of 3 rows"):
            assert read_trace(file, "spot", where=where).job_id.tolist() == [9]


def test_json_lines_and_lists(tmp_path):
    jobs = [
        {"job_id": 7, "submit_time": 0, "gpus": 2, "duration": 1.5},
        {"submit_time": 1, "gpus": "4", "duration": "00:01:00"},
    ]
    jobs[1] |= {"job_id": "0007", "user": None}
    for text in ("\n\n".join(map(json.dumps, jobs)), json.dumps(jobs, indent=1)):
        read = read_csv(written(tmp_path, text, "jobs.jsonl"))
        assert read.job_id.tolist() == ["7", "0007"]
        assert (read.num_gpus.tolist(), read.duration_seconds.tolist()) == ([2, 4], [1.5, 60])
    jobs[1]["gpus"] = None
    with pytest.raises(WorkloadError, match=r"jobs\.jsonl: line 3: gpus is ''; expected"):
        read_csv(written(tmp_path, "\n\n".join(map(json.dumps, jobs)), "jobs.jsonl"))
    with pytest.raises(WorkloadError, match=r"jobs\.json: job 2: gpus is ''; expected"):
        read_csv(written(tmp_path, json.dumps(jobs), "jobs.json"))
    with pytest.raises(WorkloadError, match="line 2: Expecting"):
        read_csv(written(tmp_path, '{"job_id": 1}\n{"job_id"\n'))
    with pytest.raises(WorkloadError, match=r"job 2 is '?3'?; expected a JSON object"):
        read_csv(written(tmp_path, '[{"job_id": 1}, 3]'))


JOB = {"job_id": 1, "submit_time": 0, "gpus": 2, "duration": 5}


def test_bytes_of_files_as_people_have_them(tmp_path):
    """Marks of byte order, encodings, archives in archives, JSON in an object or with a name twice."""
    text = HEAD + "1,0,2,5\n"
    file = tmp_path / "jobs"
    for data in (
        b"\xef\xbb\xbf" * 2 + text.encode(),
        text.encode("utf-16"),
        gzip.compress(text.encode("utf-16")),
        json.dumps(JOB, indent=1).encode(),
        json.dumps({"jobs": [JOB]}, indent=1).encode(),
        json.dumps({"version": 3, "jobs": [JOB], "tags": []}).encode(),
    ):
        file.write_bytes(data)
        assert read_csv(file).num_gpus.tolist() == [2], data
    twice = '{"job_id": 1, "submit_time": 0, "gpus": 1, "gpus": 8, "duration": 5}'
    for data, said in (
        (gzip.compress(gzip.compress(text.encode())), "is a gzip file inside of a gzip file; .*gunzip"),
        (text.encode("utf-16-le"), "line 1 has a zero byte; expected text: save it as UTF-8"),
        (b"\xff\xfea", "is no UTF-16 text"),
        (twice.encode(), "line 1 has 'gpus' twice; expected one value for each name"),
        (f"\n{json.dumps(JOB)}\n\n{twice}".encode(), "line 4 has 'gpus' twice"),
        (f"[{json.dumps(JOB)}, {twice}]".encode(), "job 2 has 'gpus' twice"),
        (
            json.dumps({"version": 3, "tasks": {}}).encode(),
            r"no column 'submit_time'; it has \['version', 'tasks'\]",
        ),
    ):
        file.write_bytes(data)
        with pytest.raises(WorkloadError, match=said):
            read_csv(file)


def test_a_first_row_of_values_is_no_header(tmp_path):
    file = written(tmp_path, "user,0,1,5\nb,3,2,6\n")
    read = quiet(TraceReader(header=["job_id", "submit_time", "gpus", "duration"]), file)
    assert read.jobs.job_id.tolist() == ["user", "b"]
    with pytest.raises(
        WorkloadError, match=r"no column 'submit_time'; it has .*reader\.header=\[NAME, \.\.\.\]"
    ):
        read_csv(file)
    with pytest.raises(WorkloadError, match=r"column '1' twice; expected .*reader\.header=\[NAME, \.\.\.\]"):
        read_csv(written(tmp_path, "1,0,1,5\n"))


@pytest.mark.parametrize("name", READERS)
def test_a_trace_without_its_file_says_what_to_give(name):
    with pytest.raises(
        ConfigurationError, match=rf"workload\.path has no value: workload={name} .*read_trace\(FILE"
    ):
        experiment("sharing", workload=name)


def test_a_yaml_of_your_own_has_the_settings_of_its_base(tmp_path, monkeypatch):
    folder = tmp_path / "workload"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "defaults: [sacct, _self_]\nreader: {user: who, states: {ODD: failed}}\n"
    )
    monkeypatch.setenv("RINGYARD_CONF", str(tmp_path))
    mine, base = trace_reader("mine"), trace_reader("sacct")
    assert mine == replace(base, user="who", states={"ODD": "failed"})
    assert (mine.separator, mine.leave_out) == ("|", True)


# Philly's attempts


def philly_job(name, *attempts, **more):
    tried = []
    for start, end, gpus in attempts:
        minute = {
            key: at and f"2017-10-01 00:{at:02d}:00" for key, at in (("start_time", start), ("end_time", end))
        }
        tried.append(minute | ({"detail": [{"ip": "m1", "gpus": ["g"] * gpus}]} if gpus else {}))
    return {
        "jobid": name,
        "status": "Pass",
        "vc": "v",
        "user": "u",
        "submitted_time": "2017-10-01 00:00:00",
        "attempts": tried,
    } | more


@pytest.mark.parametrize(
    ("attempts", "gpus", "seconds"),
    [
        ([(1, 2, 4), (3, 5, 4)], 4, 180),
        ([(1, 2, 4), (None, 5, 4), (6, 8, 4)], 4, 180),  # one attempt without a start
        ([(1, 2, 4), (3, None, 4)], 4, 60),  # the last without an end
        ([(1, 2, 4), (3, 5, 0)], 4, 180),  # the last without detail
        ([(1, 2, 2), (3, 5, 8)], 8, 180),
        ([(3, None, 4)], None, None),
        ([(1, 2, 0)], None, None),
        ([], None, None),
    ],
)
def test_known_attempts_of_philly_count(tmp_path, attempts, gpus, seconds):
    log = [
        philly_job("before", (1, 2, 1)),
        philly_job("one", *attempts),
        philly_job("null", (1, 2, 1), detail=None),
    ]
    file = written(tmp_path, json.dumps(log), "cluster_job_log")
    read = quiet(trace_reader("philly"), file)
    found = dict(
        zip(
            read.jobs.job_id.tolist(),
            zip(read.jobs.num_gpus, read.jobs.duration_seconds, strict=True),
            strict=True,
        )
    )
    assert found.get("one") == (None if gpus is None else (gpus, seconds))
    partly = gpus is not None and any(None in attempt for attempt in attempts)
    assert any("1 of 3 jobs have attempts without a start or an end" in note for note in read.notes) == partly


@pytest.mark.parametrize("wrong", [{"attempts": [3]}, {"attempts": [{"detail": [3]}]}, {"attempts": None}])
def test_jobs_that_are_none_of_philly_are_named(tmp_path, wrong):
    log = [philly_job("a", (1, 2, 1)), philly_job("b", (1, 2, 1), **wrong)]
    with pytest.raises(WorkloadError, match=r"job 2 is .*; expected submitted_time and attempts"):
        read_philly(written(tmp_path, json.dumps(log), "cluster_job_log"))


def test_openb_as_released():
    file = shared("data", "traces", "alibaba_openb_v2023", "openb_pod_list_default.csv.gz")
    read = quiet(trace_reader("openb"), file)
    assert (read.num_rows, sum(read.left_out.values()) + len(read.jobs)) == (8152, 8152)
    assert read.left_out["without GPUs"] == 8152 - 7064


def test_batch_sizes_of_a_file_reach_the_jobs(tmp_path):
    """Gavel states those of each GPU. The GPU seconds of an iteration follow them."""
    file = written(tmp_path, SAMPLES["gavel"][0])
    read = quiet(trace_reader("gavel"), file)
    assert read.notes == ["1 of 2 jobs have no batch size: that of the profile of their model"]
    replay = Replay(read.jobs, ModelMix({1: {"lstm": 1}, 2: {"lstm": 1}}))
    jobs = replay.sample(Cluster.homogeneous(1, 4), np.random.default_rng(0))
    speed = profile("resnet50_imagenet")
    assert jobs.batch_size.tolist() == [128, 1]
    assert jobs.compute_seconds[0] == speed.fixed_seconds + speed.sample_seconds * 64
    assert jobs.compute_seconds[1] == profile("a3c_pong").compute_seconds


def test_iterations_of_pollux_are_those_of_its_own_trainings(tmp_path):
    """At every batch size with a measured training, by the samples at the smallest and the noise scale."""
    folder = shared("data", "profiles", "pollux", "profiles")
    reader = trace_reader("pollux")
    files = [file for name in reader.samples for file in sorted((folder / name).glob("validation-*.csv"))]
    measured = [float(file.read_text().split()[-1].split(",")[1]) for file in files]
    rows = [f"j,0,{file.parent.name},1,{file.stem.partition('-')[2]}" for file in files]
    text = "name,time,application,num_replicas,batch_size\n" + "\n".join(rows)
    jobs = quiet(trace_reader("pollux", unique_ids=False), written(tmp_path, text)).jobs
    assert len(jobs) == 40
    assert jobs.iterations.tolist() == pytest.approx(measured, rel=0.03)


def test_a_table_says_what_is_understood_of_each_column(tmp_path):
    found = describe_trace("gavel", str(written(tmp_path, SAMPLES["gavel"][0])))
    assert list(found.columns) == list(trace_reader("gavel").header)
    assert found.columns["total_steps"] == ("iterations", "7,931 to 8,857 iterations, median 8,394")
    assert found.columns["job_type"][0] == "model, samples_per_gpu"
    assert found.columns["SLO"] == ("not read", "")
    assert found.columns["priority_weight"] == ("priority (used by where only)", "")
    assert found.facts["span"] == "5.5 seconds"
    found = describe_trace("sacct", str(written(tmp_path, SAMPLES["sacct"][0])))
    assert found.left_out == {"without the id of a job": "1", "without GPUs": "2"}
    assert found.columns["State"] == ("state", "2: cancelled (1), completed (1)")


def test_every_reader_has_a_source_and_the_other_way_round():
    assert sorted(trace_sources()) == sorted(READERS)


def test_the_command_takes_the_settings_of_a_reader(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = "queued;n;duration;[bold red]x[/];[/]\n2020-01-01;2;5000;a;b\n2020-01-02;;7;a;b\n"
    file = str(written(tmp_path, text))
    settings = ["submit=queued", "gpus=n", "separator=';'", "units.duration=ms", "leave_out=true"]
    assert main(["traces", "csv", file, *(f"workload.reader.{one}" for one in settings)]) == 0
    out = capsys.readouterr().out
    assert all(part in out for part in ("[bold red]x[/]", "[/]", "without GPUs", "5 to 5 s, median 5"))
    assert main(["traces", "csv", file, "zone=UTC"]) == 2
    assert "'zone=UTC' is no setting of a reader; expected workload.reader.N" in capsys.readouterr().err
    assert main(["traces", "csv", file, "workload.reader.zone=Nowhere"]) == 2
    assert "zone is 'Nowhere'; expected a time zone" in capsys.readouterr().err
    long = written(tmp_path, "a" * 200_000 + ",b\n1,2\n")
    assert main(["traces", "csv", str(long)]) == 2
    assert "is not a readable CSV file" in capsys.readouterr().err

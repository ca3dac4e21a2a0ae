"""Public traces become loads: counts with gaps, requests in bins, and the week around the highest value."""

import hashlib
import math
from pathlib import Path

import pytest

from benchmarks import simulated, traces
from benchmarks.traces import TRACES, Trace

DAY = 24 * 3600


def trace_of(folder: Path, text: str, interval: int, read: str = "_counts") -> Trace:
    file = folder / "trace.csv"
    file.write_text(text)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return TRACES[0]._replace(
        path="data/trace.csv", digest=digest, interval=interval, read=getattr(traces, read)
    )


def test_an_interval_without_a_line_is_a_gap(tmp_path: Path) -> None:
    text = "t,n\n2026-01-01 00:00:00,5\n2026-01-01 00:01:00,7\n2026-01-01 00:04:00,2\n"
    load = traces.load_of(trace_of(tmp_path, text, 60), tmp_path)
    steps = [(start, end, None if math.isnan(value) else value) for start, end, value in load.segments()]
    assert steps == [(0, 60, 5.0), (60, 120, 7.0), (120, 240, None), (240, 300, 2.0)]


def test_requests_are_counted_in_bins(tmp_path: Path) -> None:
    lines = [f"2026-01-01 00:00:{second:09.6f}0,1,1" for second in (0.5, 3.25, 9.75, 31.0, 45.0)]
    load = traces.load_of(trace_of(tmp_path, "\n".join(["t,a,b", *lines]), 10, "_azure"), tmp_path)
    assert list(load.segments()) == [(0, 10, 3.0), (10, 30, 0.0), (30, 40, 1.0)], "the last may be cut off"


def test_of_a_long_trace_the_week_around_its_highest_value_is_taken(tmp_path: Path) -> None:
    lines = [f"2026-01-{day:02d} 00:00:00,{500 if day == 20 else day}" for day in range(1, 32)]
    load = traces.load_of(trace_of(tmp_path, "\n".join(["t,n", *lines]), DAY), tmp_path)
    assert load.seconds == 7 * DAY
    assert 500.0 in load.values
    assert load.values[0] == 16.0


def test_another_content_is_refused(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, "t,n\n", 60)._replace(digest="0" * 64)
    with pytest.raises(SystemExit, match=r"trace\.csv: expected the content of https://raw\.github"):
        traces.fetch(trace, tmp_path)


def test_the_page_has_all_traces() -> None:
    page = simulated.PAGE.read_text("utf-8")
    for trace in TRACES:
        for start_up in simulated.START_UPS:
            assert any(
                line.startswith(f"| {trace.name} ({trace.resolution}) |") and f"| {start_up} s |" in line
                for line in page.splitlines()
            ), (trace.name, start_up)

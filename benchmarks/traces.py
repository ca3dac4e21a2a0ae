"""Public traces of real load: `python -m benchmarks.traces --folder DIR` fetches them and writes CSV files.

The files are other people's, under the licences named here, and are not part of this repository. Each is
fetched at a fixed commit and checked against its digest. Beside it a file is written that `fastpath simulate
--load` reads. The load is the count in an interval of the trace, so nothing between two points is invented.
"""

import argparse
import csv
import hashlib
import json
import math
import os
import platform
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks import common
from fastpath_forecast.simulate.load import Load, of_points

LONGEST = 7 * 24 * 3600
"""The longest part of a trace that is simulated, in seconds: the part around its highest value."""

_TIMEOUT = 60.0

Points = list[tuple[float, float]]
"""Seconds since the start, and the count from then on; NaN where the trace has no line."""


class Trace(NamedTuple):
    """A trace: its name, its file, and how it is read. `interval` is in seconds."""

    name: str
    repository: str
    commit: str
    licence: str
    path: str
    digest: str
    interval: int
    read: Callable[[Path, int], Points]

    @property
    def file(self) -> str:
        return Path(self.path).name

    @property
    def url(self) -> str:
        return f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.path}"

    @property
    def resolution(self) -> str:
        return f"{self.interval // 60} min" if self.interval >= 60 else f"{self.interval} s"


def _counts(file: Path, interval: int) -> Points:
    """Read a CSV file of times and counts; an interval without a line is a gap."""
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.reader(lines))[1:]
    times = [datetime.fromisoformat(row[0]).replace(tzinfo=UTC).timestamp() for row in rows]
    points: Points = []
    for at, row, after in zip(times, rows, [*times[1:], times[-1] + interval], strict=True):
        points.append((at - times[0], float(row[1])))
        if after - at > interval:
            points.append((at - times[0] + interval, math.nan))
    return points


def _binned(times: Iterable[float], interval: int) -> Points:
    """Count requests in bins, an empty one as 0. The last bin may be cut off, and is left out."""
    bins = Counter(int(at // interval) for at in times)
    first, last = min(bins), max(bins)
    return [((place - first) * float(interval), float(bins[place])) for place in range(first, last)]


def _azure(file: Path, interval: int) -> Points:
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.reader(lines))[1:]
    # seven decimals, one more than a datetime has
    times = (datetime.fromisoformat(row[0][:26]).replace(tzinfo=UTC).timestamp() for row in rows)
    return _binned(times, interval)


def _mooncake(file: Path, interval: int) -> Points:
    lines = file.read_text("utf-8").splitlines()
    return _binned((json.loads(line)["timestamp"] / 1000 for line in lines), interval)


_READ = {"counts": _counts, "azure": _azure, "mooncake": _mooncake}


def _read_list(file: Path) -> Iterator[Trace]:
    with file.open(encoding="utf-8") as lines:
        for name, repository, commit, licence, path, digest, interval, read in list(csv.reader(lines))[1:]:
            yield Trace(name, repository, commit, licence, path, digest, int(interval), _READ[read])


TRACES: Sequence[Trace] = tuple(_read_list(Path(__file__).with_suffix(".csv")))
"""Those of traces.csv. Requests with times of their own are counted in bins of `interval`."""


def fetch(trace: Trace, folder: Path) -> Path:
    """Return the file of a trace, downloaded unless it is there. SystemExit for another content."""
    file = folder / trace.file
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(trace.url, timeout=_TIMEOUT) as answer:
            file.write_bytes(answer.read())
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != trace.digest:
        sys.exit(f"{file}: expected the content of {trace.url}, sha256 {trace.digest}, not {found}")
    return file


def load_of(trace: Trace, folder: Path, longest: int = LONGEST) -> Load:
    """Return the load of a trace: of a long one the part with its highest value within the last week."""
    points = trace.read(fetch(trace, folder), trace.interval)
    length = points[-1][0] + trace.interval
    peak = max(points, key=lambda point: -1.0 if math.isnan(point[1]) else point[1])[0]
    seconds = min(length, longest)
    begin = min(max(0.0, peak - seconds + LONGEST / 2), length - seconds)
    begin = math.floor(begin / trace.interval) * trace.interval
    part = [(at - begin, value) for at, value in points if begin <= at < begin + seconds]
    return of_points(part, int(seconds))


def parser_of(about: str | None) -> argparse.ArgumentParser:
    """Return the command line of a table of the traces, which `about` describes in its first line."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the traces are kept")
    parser.add_argument("--write", action="store_true", help="write the tables to the page")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser


def put_table(page: Path, name: str, table: str, seconds: str, *, write: bool) -> None:
    """Print a table with its date and machine, and write it to its place in a page."""
    day = datetime.now(UTC).date()  # noqa: TID251 - the date of the table
    machine = f"{common.describe_machine()['cpu']}, Python {platform.python_version()}"
    text = f"{table}\n\nMade on {day} on {machine}, in {seconds}."
    print(text)
    if write:
        replace_table(page, name, text)


def replace_table(page: Path, name: str, table: str) -> None:
    begin, end = f"<!-- begin of {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{table}\n\n{end}{after}", "utf-8")


def rows_of(load: Load) -> Iterator[tuple[int, float]]:
    """Yield the rows of a CSV file; it has no gaps, so the value before one holds."""
    for start, end, value in load.segments():
        if not math.isnan(value):
            yield start, value
        if end == load.seconds:
            yield end - 1, value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the files are kept")
    folder = parser.parse_args().folder
    for trace in TRACES:
        load = load_of(trace, folder)
        file = folder / f"{trace.name.lower().replace(', ', '-').replace(' ', '-')}.csv"
        rows = {second: value for second, value in rows_of(load) if not math.isnan(value)}
        text = "".join(f"{second},{value:g}\n" for second, value in rows.items())
        file.write_text(f"seconds,load\n{text}", "utf-8")
        gaps = load.seconds - load.known_seconds
        print(f"{file}: {load.seconds / 3600:.1f} h at {trace.resolution}, {gaps} s of gaps, {trace.licence}")


if __name__ == "__main__":
    main()

"""The page of all autoscalers: `python -m benchmarks.fleet_page`, in CPU time of the server for one request.

A request orders the lines, renders them and compresses the page. A change is what a stream does each second:
it renders and hashes the sections. Of one line that changes it sends that line, and the order of all. Names,
problems and figures are random, so that compression finds no more in them than in those of a cluster.
"""

import os
import random
import statistics
import time
import zlib
from collections.abc import Callable

import msgspec

from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from benchmarks import common
from benchmarks.common import Goal, Report
from fastpath_tools.ui import fleet, fleet_page
from fastpath_tools.ui.fleet import FleetFilter, FleetRow, ReactionTime
from fastpath_tools.ui.fleet_reading import Fleet
from fastpath_tools.ui.pages import Content, Templates

_SEED = 20261128
_NOW = 1_764_288_000.0
_WORDS = [
    "auth",
    "cache",
    "cart",
    "checkout",
    "event",
    "feed",
    "image",
    "mail",
    "order",
    "pay",
    "price",
    "queue",
    "search",
    "stock",
    "sync",
    "user",
    "web",
]
_FAULT = "FailedGetResourceMetric: failed to get cpu utilization: missing request for cpu in container"
_ROOT = f"/{'t' * 32}/"


def main() -> None:
    sizes = common.parse_sizes("What a page of many autoscalers costs.", autoscalers=1000, runs=9)
    os.sched_setaffinity(0, {common.SERVER_CORE})
    goals = {
        "request_cpu_ms": Goal("the page of 1,000 autoscalers, CPU time of the server", 100, "ms"),
        "compressed_kb": Goal("the page of 1,000 autoscalers, compressed", 60, "kB"),
        "changed_kb": Goal("what a stream sends when one of 1,000 lines changes", 10, "kB"),
    }
    report = Report("fleet_page", {"autoscalers": sizes.autoscalers, "runs": sizes.runs}, goals)
    chance = random.Random(_SEED)
    rows = [_row(chance, number) for number in range(int(sizes.autoscalers))]
    templates = Templates(_ROOT, "production")
    pages = [_request(rows, templates)]  # compiles the templates
    request = _median(lambda: pages.append(_request(rows, templates)), int(sizes.runs))
    change = _median(
        lambda: [section.digest for section in _render(rows, templates).sections], int(sizes.runs)
    )
    report.add(
        request_cpu_ms=request,
        change_cpu_ms=change,
        page_kb=len(templates.layout(_render(rows, templates), "events")) / 1000,
        compressed_kb=len(pages[-1]) / 1000,
    )
    report.add(changed_kb=_changed(rows, templates) / 1000)
    report.show()


def _median(work: Callable[[], object], runs: int) -> float:
    """Return the CPU time of some work in milliseconds."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1000


def _render(rows: list[FleetRow], templates: Templates) -> Content:
    return fleet_page.render(Fleet(sorted(rows, key=fleet.rank)), FleetFilter(), _NOW, templates)


def _request(rows: list[FleetRow], templates: Templates) -> bytes:
    compressor = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    page = templates.layout(_render(rows, templates), "events").encode()
    return compressor.compress(page) + compressor.flush()


def _changed(rows: list[FleetRow], templates: Templates) -> int:
    """Return how many bytes a stream sends when a line in the middle becomes one of the worst."""
    before = _render(rows, templates).sections
    middle = len(rows) // 2
    changed = [*rows[:middle], rows[middle]._replace(fault=_FAULT), *rows[middle + 1 :]]
    after = _render(changed, templates).sections
    pairs = [pair for pair in zip(before, after, strict=True) if pair[0].html != pair[1].html]
    return sum(len(msgspec.json.encode(section.changes(old.lines))) for old, section in pairs)


def _row(chance: random.Random, number: int) -> FleetRow:
    most = chance.choice((5, 10, 20, 50))
    count = chance.randint(1, most)
    problem = chance.random()
    return FleetRow(
        HPA_KIND,
        f"{chance.choice(_WORDS)}-{chance.choice(_WORDS)}",
        f"{chance.choice(_WORDS)}-{chance.choice(_WORDS)}-{number}",
        chance.choice(("", "", "Boost")),
        count,
        min(count + chance.randint(0, 2), most),
        1,
        most,
        is_capped=problem < 0.1,
        age=chance.random() * 20 if chance.random() < 0.5 else None,
        reaction=ReactionTime(chance.random() * 80, chance.random() < 0.8, chance.random() * 40),
        overdue=int(0.1 < problem < 0.15),
        reversals=chance.randint(0, 5),
        boosted=chance.random() < 0.3,
        fault=f"{_FAULT} {chance.choice(_WORDS)}" if problem > 0.97 else "",
        last_scale=_NOW - chance.random() * 100_000,
    )


if __name__ == "__main__":
    main()

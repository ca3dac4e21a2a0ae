"""The memory of a process in the worst case: every bound at its limit at once, and the sum of all of them.

Each bound is taken from the constant or the setting that enforces it, and what is measured from
`benchmarks/results.json`, so that nothing is written twice. A new bound is one more line in `bounds`.
``python -m scripts.generate.memory`` writes the table into docs/reference/limits.md;
`tests/manifests/test_memory.py` compares it, and the sums with the limits of the manifests.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from adapter.autoscaler.controller import reporter, term_store
from adapter.autoscaler.decide import decision
from adapter.autoscaler.usage import comparing, history
from adapter.boost import publisher
from adapter.bounds.forecast import job
from adapter.config.options import SERVE, Options
from adapter.forecast import service
from adapter.kubernetes.cache import label_index, pod_codec, scale_codec
from adapter.kubernetes.write import events
from adapter.model import ready_times as ready_times_of
from adapter.prometheus import answers, batching, client, query_cache, series_worker
from adapter.rules import lookback, matchers
from adapter.scrape import bodies, work
from adapter.server import health
from adapter.server.auth import authentication, review_cache
from adapter.server.http import access_log, budgets, connection, connection_server, handler, listener
from adapter.server.http.handler import HandlerLimits
from tests.support import rendered
from tests.support.rendered import MANIFESTS, ROOT, Objects

MIB = 1024 * 1024
PAGE = ROOT / "docs" / "reference" / "limits.md"
BEGIN, END = "<!-- sum: begin -->\n", "<!-- sum: end -->\n"

ESTIMATED = 1.25
"""What an estimate of memory is multiplied by: estimates are seldom too low by more than a fifth."""

PROBE_BYTES = 96 * 1024
"""A connection for probes, which has no TLS: the buffers of the event loop and of the system."""

EVENT_BYTES = 4096
"""A pending event."""

RESULTS: Mapping[str, Any] = json.loads((ROOT / "benchmarks" / "results.json").read_text())


def _measured(benchmark: str, figure: str) -> float:
    """Return a measured memory in bytes."""
    mib: float = RESULTS[benchmark]["figures"][figure]
    return mib * MIB


PROCESS = _measured("memory", "small_ready_mib")
"""The process with its libraries, ready, with a cluster of 10,000 pods."""

POD = (_measured("podwatch", "stateful_rss_mib") - _measured("podwatch", "stateful_before_mib")) / 100_000
"""A watched pod that shares its labels with no other."""

AUTOSCALER = (
    _measured("growth", "ticks_6400_memory_mib") - _measured("growth", "ticks_400_memory_mib")
) / 6000
"""An autoscaler with its last decision."""


FORECAST = _measured("forecasting", "autoscalers_memory_mib") / 1000
"""The forecast of an autoscaler in the scaler: card, plans and account."""

MINUTES = 14 * 24 * 60
"""The values of a history, as stated."""


PODS = 10
"""The pods of an autoscaler, as stated for the usage that they expose."""

USAGE = 16 * (180 + comparing.BEYOND) / history.STEP + 700
"""What is kept of the usage that a pod exposes, where that of its container covers three minutes."""


PAST_HOUR = 2048
"""The changes of the last hour of an autoscaler, on average, as `--autoscaler-history` states it."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is stated, because no setting bounds it."""

    pods: int
    autoscalers: int


@dataclass(frozen=True, slots=True)
class MemoryOfContainer:
    """One container of the manifests: what it runs, and what it is allowed."""

    name: str
    options: Options
    serves: bool
    scales: bool
    kinds: int
    """Kinds whose objects are selected by label."""
    load: Load
    limit: int


class Bound(NamedTuple):
    """What a part of a process takes at most."""

    what: str
    bytes: float


def bounds(process: MemoryOfContainer) -> Iterator[Bound]:
    """Yield everything that may be in memory at the same time."""
    options, load, limits = process.options, process.load, HandlerLimits()
    yield Bound("the process itself", PROCESS)
    yield Bound("pods watched, as stated", POD * load.pods)
    kept = answers.KEPT_TEXTS_BYTES + answers.KEPT_BYTES + answers.KEPT_SWEEPS_BYTES
    yield Bound("cached answers (`texts`, `objects`, `sweeps`)", ESTIMATED * kept)
    small = client.MAX_CONNECTIONS * client.SMALL_ANSWER
    yield Bound("answers being read", ESTIMATED * (options.prometheus_max_answer_bytes + small))
    yield Bound("requests that wait for Prometheus", query_cache.INFLIGHT_BYTES)
    yield Bound("recent requests (`batches`)", ESTIMATED * batching.BATCHES_BYTES)
    yield Bound("label selectors (`selections`)", ESTIMATED * process.kinds * label_index.ANSWERS_BYTES)
    yield Bound("the worker of discovery", options.discovery_max_bytes + series_worker.MEMORY_BYTES)
    yield Bound("connections for probes", health.PROBE_CONNECTIONS * (health.PROBE_HEAD_BYTES + PROBE_BYTES))
    if process.serves or options.metrics_bind_address:
        yield Bound("connections", connection_server.MOST_CONNECTIONS * connection.CONNECTION_BYTES)
        yield Bound("TLS handshakes", listener.MOST_HANDSHAKES * listener.HANDSHAKE_BYTES)
        uncertified = connection_server.MOST_UNCERTIFIED
        heads = uncertified * budgets.UNCERTIFIED_HEADS.memory + budgets.LONG_HEADS_BYTES
        heads += (connection_server.MOST_CONNECTIONS - uncertified) * budgets.SMALL_HEAD
        yield Bound("request heads", heads)
        yield Bound("parsed paths (`routes`)", ESTIMATED * handler.ROUTES_WEIGHT)
        yield Bound("encoded responses (`bodies`)", ESTIMATED * limits.kept_bytes)
        shares = connection_server.MOST_CONNECTIONS + limits.in_flight  # requests outlive their callers
        sent = limits.answers_bytes + shares * budgets.SMALL_ANSWER
        yield Bound("responses being encoded or sent", sent)
        yield Bound(
            "users of a front proxy (`users`)",
            ESTIMATED * authentication.USERS_KEPT * authentication.LARGEST_USER,
        )
        reviews = 2 * review_cache.SIZE * review_cache.COUNTS_AS_ONE
        yield Bound("cached reviews (`tokens`, `accesses`)", ESTIMATED * reviews)
        if options.access_log:
            yield Bound("lines of the access log", access_log.ROOM)
    if process.scales:
        yield Bound("bodies of scraped pods", bodies.BODIES_BYTES)
        yield Bound("series of scraped pods", ESTIMATED * work.KEPT_BYTES)
        read = 2 * scale_codec.TEXTS_BYTES + pod_codec.REQUESTS_BYTES + decision.SELECTORS_BYTES
        yield Bound("parsed selectors and resource requests", ESTIMATED * read)
        yield Bound("parsed queries", ESTIMATED * (matchers.TESTS_BYTES + lookback.LOOKBACKS_BYTES))
        yield Bound("autoscalers, as stated", AUTOSCALER * load.autoscalers)
        ready_times = ready_times_of.LEDGER_BYTES * load.autoscalers
        yield Bound("ready times of autoscalers, as stated", ESTIMATED * ready_times)
        yield Bound("ready times, stored and being written", 3 * term_store.LIMIT)
        yield Bound("verdicts on forecasts, stored and being written", 3 * term_store.LIMIT)
        yield Bound("the process of forecasts", service.MEMORY_BYTES + 8 * job.MOST_VALUES)
        shown = FORECAST * min(load.autoscalers, job.MOST_VALUES // MINUTES)
        yield Bound("forecasts of autoscalers, as stated", shown)
        yield Bound("own CPU of 10 pods of each autoscaler", USAGE * PODS * load.autoscalers)
        yield Bound("decisions remembered", ESTIMATED * reporter.ROOM)
        yield Bound("changes of the last hour, as stated", PAST_HOUR * load.autoscalers)
        yield Bound("pending events", events.QUEUED * EVENT_BYTES)
    if process.scales or options.serves_floors:
        yield Bound("floors, read and pending", 3 * publisher.LIMIT)


def total(process: MemoryOfContainer) -> float:
    return sum(bound.bytes for bound in bounds(process))


def read_process(name: str, objects: Objects, load: Load) -> MemoryOfContainer:
    """Return what the only Deployment of some objects runs."""
    container = objects.container
    options, _ = SERVE.parse(container["args"])
    alone = container.get("command") == ["fastpath", "scale"]
    # without the scaler the running pods are listed by themselves; the scaler's cache of pods answers for
    # these too
    kinds = 1 if alone else _selected_kinds(objects) + (not options.scaler)
    limit = _quantity(container["resources"]["limits"]["memory"])
    return MemoryOfContainer(name, options, not alone, alone or options.scaler, kinds, load, limit)


def _selected_kinds(objects: Objects) -> int:
    """Return how many kinds the metrics APIs may list."""
    role = objects.one("ClusterRole", "fastpath-resource-reader")
    return sum(len(rule["resources"]) for rule in role["rules"])


def _quantity(text: str) -> int:
    found = re.fullmatch(r"(\d+)(Mi|Gi)", text)
    assert found is not None, text
    return int(found[1]) * (MIB if found[2] == "Mi" else 1024 * MIB)


CLUSTER = Load(100_000, 2_000)


def processes() -> list[MemoryOfContainer]:
    """Return every container that the manifests run."""
    scaler = rendered.render(MANIFESTS / "overlays" / "scaler")
    with tempfile.TemporaryDirectory() as folder:
        components = ("scaler", "service-monitor", "scaler-service-monitor")
        scraped = rendered.render(rendered.write_overlay(Path(folder), components))
    return [
        read_process("`base`", rendered.render(MANIFESTS / "base"), CLUSTER),
        read_process("`single-replica`", rendered.render(MANIFESTS / "overlays" / "single-replica"), CLUSTER),
        read_process("`scaler`", scaler.of("fastpath-scaler"), CLUSTER),
        read_process("`scaler-service-monitor`", scraped.of("fastpath-scaler"), CLUSTER),
        read_process(
            "`scaler-in-process`", rendered.render(MANIFESTS / "overlays" / "scaler-in-process"), CLUSTER
        ),
    ]


def render_table(found: Sequence[MemoryOfContainer]) -> str:
    """Return the table of docs/reference/limits.md, in MiB."""
    columns = [{bound.what: bound.bytes for bound in bounds(each)} for each in found]
    rows = list(dict.fromkeys(what for column in columns for what in column))
    lines = ["| MiB | " + " | ".join(each.name for each in found) + " |", "|---|" + "---:|" * len(found)]
    lines += [
        f"| {what} | " + " | ".join(_shown(column.get(what, 0)) for column in columns) + " |" for what in rows
    ]
    lines.append("| **sum** | " + " | ".join(f"**{_shown(total(each))}**" for each in found) + " |")
    lines.append("| `limits.memory` | " + " | ".join(_shown(each.limit) for each in found) + " |")
    return "\n".join([*lines, ""])


def _shown(size: float) -> str:
    return f"{-(-size // MIB):,.0f}" if size else ""


def replace_table(page: str, table: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + table + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(replace_table(PAGE.read_text(), render_table(processes())))

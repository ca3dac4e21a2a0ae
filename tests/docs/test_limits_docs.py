"""docs/reference/limits.md matches the code: its metrics exist, and its numbers are the constants."""

import pkgutil
import re
from pathlib import Path

import pytest
import yaml

from adapter.autoscaler.inputs import feed
from adapter.bounds.forecast import job
from adapter.config.options import Options
from adapter.forecast import service
from adapter.model import ready_times
from adapter.prometheus import client
from adapter.server.http import budgets, connection, connection_server, endpoints, handler, listener
from adapter.server.http.handler import HandlerLimits
from adapter.telemetry import metrics
from adapter.telemetry.server_metrics import CACHES
from fastpath_forecast import worker

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "limits.md").read_text()
MIB = 1024 * 1024
RATE = Options().prometheus_max_queries_per_second

NUMBERS: dict[str, list[str | float]] = yaml.safe_load((Path(__file__).parent / "limits.yaml").read_text())

COMPUTED = {
    "50 pods; about 4 KiB": (ready_times.MOST_PODS, ready_times.LEDGER_BYTES // 1024),
    "25,000,000 values of 8 bytes, in a separate process: 14 days of 1,240 metrics": (
        job.MOST_VALUES,
        8,
        14,
        round(job.MOST_VALUES / (14 * 1440), -1),
    ),
    "100,000 values in a decision of a replay, 120 s of CPU time, 480 s in all; the process ends at 600 s": (
        worker.MOST_SAMPLES,
        int(service.CPU_SECONDS),
        int(service.IN_TIME * service.JOB_TIMEOUT),
        int(service.JOB_TIMEOUT),
    ),
    "take 151 MiB at most": (
        round(
            (
                connection_server.MOST_UNCERTIFIED
                * (budgets.UNCERTIFIED_HEADS.memory + connection.CONNECTION_BYTES)
                + listener.MOST_HANDSHAKES * listener.HANDSHAKE_BYTES
            )
            / MIB
        ),
    ),
    "36 MiB for heads, 75 MiB for connections and 40 MiB for": (
        round(connection_server.MOST_UNCERTIFIED * budgets.UNCERTIFIED_HEADS.memory / MIB),
        connection_server.MOST_UNCERTIFIED * connection.CONNECTION_BYTES // MIB,
        listener.MOST_HANDSHAKES * listener.HANDSHAKE_BYTES // MIB,
    ),
    "600 connections with one": (connection_server.MOST_CONNECTIONS - connection_server.MOST_UNCERTIFIED,),
    "12 MiB of it for documents": (HandlerLimits().answers_bytes // budgets.RESERVED // MIB,),
    "the last 100 are for users that have fewer than 50": (
        HandlerLimits().in_flight // endpoints.RESERVED,
        HandlerLimits().in_flight // endpoints.RESERVED // 2,
    ),
    "100 of one user, 100 with unknown tokens from one address, 400 anonymous ones": (
        HandlerLimits().in_flight // handler.SHARES,
        HandlerLimits().in_flight // handler.SHARES,
        HandlerLimits().in_flight,
    ),
    "20; others wait, 8 s": (client.MAX_CONNECTIONS, Options().prometheus_timeout),
    "(20): 75 distinct External metrics with samples every 15 s": (RATE, RATE * 15 / 2 / feed.QUERIES, 15),
    "| one answer | 64 MiB": (Options().prometheus_max_answer_bytes // MIB,),
    "the same 64 MiB together; answers of up to 1 MiB": (
        Options().prometheus_max_answer_bytes // MIB,
        client.SMALL_ANSWER // MIB,
    ),
}


def value_of(written: str | float) -> float:
    """Return a number, or the value of a name, divided or multiplied by one."""
    if not isinstance(written, str):
        return written
    name, _, by = written.partition(" ")
    place, _, attribute = name.rpartition(".")
    owner = pkgutil.resolve_name(place)
    value: float = getattr(owner() if isinstance(owner, type) else owner, attribute)
    operator, _, factor = by.partition(" ")
    number = MIB if factor == "MiB" else float(factor or 1)
    return value * number if operator == "*" else value / number


ALL = {text: tuple(map(value_of, values)) for text, values in NUMBERS.items()} | COMPUTED


@pytest.mark.parametrize(("text", "expected"), ALL.items(), ids=ALL)
def test_numbers_are_those_of_the_code(text: str, expected: tuple[float, ...]) -> None:
    assert text in " ".join(PAGE.split())
    assert [float(each.replace(",", "")) for each in re.findall(r"\b\d[\d,]*\b", text)] == list(expected)


def test_metrics_exist_with_their_labels() -> None:
    rows = {row.name: row for row in metrics.METRICS}
    named = re.findall(r"`((?:fastpath|apiserver)_\w+)(?:\{([^}]*)\})?`", PAGE)
    assert len(named) > 30
    for name, labels in named:
        row = rows[name]
        for label, value in re.findall(r'(\w+)="(\w+)"', labels):
            known = dict(zip(row.labels, row.values or ((),) * len(row.labels), strict=True))[label]
            assert not known or value in known, f"{name} {label}={value}"


def test_every_cache_has_its_limit() -> None:
    named = {
        cache
        for row in re.findall(r"caches? ((?:`\w+`(?:, )?)+)", PAGE)
        for cache in re.findall(r"`(\w+)`", row)
    }
    assert named == set(CACHES.split())

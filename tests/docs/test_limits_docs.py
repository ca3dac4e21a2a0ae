"""docs/reference/limits.md matches the code: its metrics exist, and its numbers are the constants."""

import re
from pathlib import Path

import pytest

from adapter.autoscaler import ready_store, registry, reporter, term_store
from adapter.autoscaler.decide import decision
from adapter.autoscaler.forecasts import book as forecast_book
from adapter.autoscaler.forecasts import forecast
from adapter.autoscaler.metrics import feed
from adapter.autoscaler.schedules import book
from adapter.autoscaler.schedules import reporter as schedule_statuses
from adapter.autoscaler.usage import calibration, comparing
from adapter.autoscaler.usage import history as usage_history
from adapter.boost import publisher
from adapter.bounds.forecast import job, stored
from adapter.bounds.schedule import documents
from adapter.config.options import Options
from adapter.config.yaml import reader
from adapter.forecast import service
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import codec, transport
from adapter.kubernetes.cache import (
    autoscalers,
    label_index,
    pod_codec,
    reflector_reports,
    scale_codec,
    scale_targets,
    schedules,
)
from adapter.kubernetes.write import deletion_costs, events, status
from adapter.model import fairness, learned_usage, ready_times
from adapter.model.autoscaling import slices
from adapter.prometheus import answers, batching, client, query_cache, response, series_worker
from adapter.provider import relist, text_files
from adapter.rules import lookback, matchers, parsing
from adapter.rules.scrape import exposition, series
from adapter.scrape import bodies, connections, schedule, targets
from adapter.scrape import cache as scraped
from adapter.server import health
from adapter.server.api import discovery, query_string
from adapter.server.auth import authentication, authorization, review_cache
from adapter.server.http import (
    access_log,
    budgets,
    connection,
    connection_server,
    endpoints,
    handler,
    listener,
)
from adapter.server.http.handler import HandlerLimits
from adapter.telemetry import metrics
from adapter.telemetry.server_metrics import CACHES
from fastpath_forecast import worker
from fastpath_tools import yaml_documents

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "limits.md").read_text()
MIB = 1024 * 1024
RATE = Options().prometheus_max_queries_per_second

NUMBERS = {
    "25,000,000 values of 8 bytes, in a separate process: 14 days of 1,240 metrics": (
        job.MOST_VALUES, 8, 14, round(job.MOST_VALUES / (14 * 1440), -1),
    ),
    "half of them for one namespace, 1,000,000 for one autoscaler": (job.MOST_VALUES_OF_ONE,),
    "100,000 values in a decision of a replay, 120 s of CPU time, 480 s in all; the process ends at 600 s": (
        worker.MOST_SAMPLES, int(service.CPU_SECONDS), int(service.IN_TIME * service.JOB_TIMEOUT),
        int(service.JOB_TIMEOUT),
    ),
    "one in 30 minutes, however often the object changes; known of the last 10,000 autoscalers": (
        forecast.PAUSE // 60, forecast_book.MOST_PAUSES,
    ),
    "800 open at a time, 200 of them without a trusted certificate; 384 KiB each": (
        connection_server.MOST_CONNECTIONS, connection_server.MOST_UNCERTIFIED,
        connection.CONNECTION_BYTES // 1024,
    ),
    "128 at a time, 10 s each; 320 KiB each": (
        listener.MOST_HANDSHAKES, listener.HANDSHAKE_SECONDS, listener.HANDSHAKE_BYTES // 1024,
    ),
    "8 s for the head, with a trusted certificate 32 s": (
        budgets.UNCERTIFIED_HEADS.seconds, budgets.CERTIFIED_HEADS.seconds,
    ),
    "24 KiB a line, 100 lines, 32 KiB together": (
        budgets.UNCERTIFIED_HEADS.line // 1024, budgets.UNCERTIFIED_HEADS.headers,
        budgets.UNCERTIFIED_HEADS.total // 1024,
    ),
    "64 KiB a line, 4,096 lines, 1 MiB together": (
        budgets.CERTIFIED_HEADS.line // 1024, budgets.CERTIFIED_HEADS.headers,
        budgets.CERTIFIED_HEADS.total // MIB,
    ),
    "32 MiB in memory, where each byte counts 5 and each line 256; heads of up to 16 KiB": (
        budgets.LONG_HEADS_BYTES // MIB, budgets.BYTE_WEIGHT, budgets.HEADER_WEIGHT,
        budgets.SMALL_HEAD // 1024,
    ),
    "8 begin in one turn": connection_server.REQUESTS_PER_TURN,
    "Of the others 8 begin in each turn": connection_server.REQUESTS_PER_TURN,
    "If all 800 have one": connection_server.MOST_CONNECTIONS,
    "take 151 MiB at most": round(
        (
            connection_server.MOST_UNCERTIFIED
            * (budgets.UNCERTIFIED_HEADS.memory + connection.CONNECTION_BYTES)
            + listener.MOST_HANDSHAKES * listener.HANDSHAKE_BYTES
        )
        / MIB
    ),
    "36 MiB for heads, 75 MiB for connections and 40 MiB for": (
        round(connection_server.MOST_UNCERTIFIED * budgets.UNCERTIFIED_HEADS.memory / MIB),
        connection_server.MOST_UNCERTIFIED * connection.CONNECTION_BYTES // MIB,
        listener.MOST_HANDSHAKES * listener.HANDSHAKE_BYTES // MIB,
    ),
    "600 connections with one": connection_server.MOST_CONNECTIONS - connection_server.MOST_UNCERTIFIED,
    "8 KiB announced": HandlerLimits().request_body_bytes // 1024,
    "60 s without progress while the buffers of the connection are full, else 120 s": (
        connection.UNREAD_SECONDS, connection.KEEPALIVE,
    ),
    "96 MiB, beside the first 32 KiB": (
        HandlerLimits().answers_bytes // MIB, budgets.SMALL_ANSWER // 1024,
    ),
    "12 MiB of it for documents": HandlerLimits().answers_bytes // budgets.RESERVED // MIB,
    "has not taken its response for 2 s": budgets.TAKING_SECONDS,
    "Responses up to 32 KiB are never": budgets.SMALL_ANSWER // 1024,
    "not sent within 2 s": budgets.TAKING_SECONDS,
    "32 KiB, 4,000 commas": (query_string.LONGEST_SELECTOR // 1024, query_string.MOST_SYMBOLS),
    "a query has more than 4 KiB; without credentials 1 KiB": (
        query_string.LONG_QUERY // 1024, query_string.ANONYMOUS_QUERY // 1024,
    ),
    "400; a request counts": HandlerLimits().in_flight,
    "the last 100 are for users that have fewer than 50": (
        HandlerLimits().in_flight // endpoints.RESERVED,
        HandlerLimits().in_flight // endpoints.RESERVED // 2,
    ),
    "| 64 MiB | the last answer": query_cache.INFLIGHT_BYTES // MIB,
    "100 of one user, 100 with unknown tokens from one address, 400 anonymous ones": (
        HandlerLimits().in_flight // handler.SHARES, HandlerLimits().in_flight // handler.SHARES,
        HandlerLimits().in_flight,
    ),
    "400 of tokens that were accepted before, 200 of unknown tokens (100 from one address)": (
        review_cache.ALL_REVIEWS.most, authentication.UNKNOWN.most, review_cache.SHARE,
    ),
    "400 of accesses (100 of one user), 20 more for anonymous callers": (
        review_cache.ALL_REVIEWS.most, review_cache.SHARE, authorization.ANONYMOUS_REVIEWS.most,
    ),
    "8,192 results of reviews": review_cache.SIZE,
    "4,096 users of up to 10,000 bytes": (authentication.USERS_KEPT, authentication.LARGEST_USER),
    "48 MiB of paths": handler.ROUTES_WEIGHT // MIB,
    "64 MiB of encoded responses": HandlerLimits().kept_bytes // MIB,
    "10,000 requests, 32 MiB a metric; 64 MiB for all metrics": (
        batching.RECENT_REQUESTS, batching.BATCH_BYTES // MIB, batching.BATCHES_BYTES // MIB,
    ),
    "16 MiB for each kind": label_index.ANSWERS_BYTES // MIB,
    "20,000 of each API": discovery.MOST_LISTED,
    "one more for each 100 characters": discovery.COUNTS_AS_ONE,
    "one lookup in 15 s": relist.LOOKUP_GAP,
    "64, each for 5 s and 8 KiB": (
        health.PROBE_CONNECTIONS, health.PROBE_SECONDS, health.PROBE_HEAD_BYTES // 1024,
    ),
    "8 MiB wait": access_log.ROOM // MIB,
    "20; others wait, 8 s": (client.MAX_CONNECTIONS, Options().prometheus_timeout),
    "(20): 75 distinct External metrics with samples every 15 s": (RATE, RATE * 15 / 2 / feed.QUERIES, 15),
    "after 300 s they are absent": feed.HELD,
    "at most 128 MiB of memory beside": series_worker.MEMORY_BYTES // MIB,
    "128 MiB of memory beside the histories": service.MEMORY_BYTES // MIB,
    "while 10 requests are pending": query_cache.REFRESH_LIMIT,
    "| one answer | 64 MiB": Options().prometheus_max_answer_bytes // MIB,
    "the same 64 MiB together; answers of up to 1 MiB": (
        Options().prometheus_max_answer_bytes // MIB, client.SMALL_ANSWER // MIB,
    ),
    "counts 16 times": response.WHOLE_GROWTH,
    "had 20,000 objects; not read beyond 100,000 samples": (batching.SWEEP_LIMIT, batching.SWEEP_SAMPLES),
    "128 MiB for objects, 64 MiB for queries of external metrics, 64 MiB for sweeps": (
        answers.KEPT_BYTES // MIB, answers.KEPT_TEXTS_BYTES // MIB, answers.KEPT_SWEEPS_BYTES // MIB,
    ),
    "| 16 MiB |": codec.OBJECT_BYTES // MIB,
    "32 MiB; 64 KiB of an error are read": (
        kubernetes.LONGEST // MIB, transport.STATUS_BYTES // 1024,
    ),
    "with a new one; those that are in use may grow to 20 MiB": autoscalers.STAYING_BYTES // MIB,
    "64 are processed at a time, of schedules 16 KiB": (
        codec.WATCH_STEP, schedules.CODEC.step_bytes // 1024,
    ),
    "10 others are named, and 20 are decided again": (autoscalers.MOST_NAMED, registry.MOST_RIVALS),
    "64, one for each slice": slices.COUNT,
    "100 windows, which may begin 2,000 times a day": (documents.MOST_WINDOWS, schedules.MOST_BEGINS),
    "expressions of 8,192 characters": documents.MOST_CRONS,
    "20 writes of a namespace in a pass": schedule_statuses.MOST_WRITES,
    "500, which may begin 5,000 times a day": (book.MOST_WINDOWS, book.MOST_BEGINS),
    "40 are distinguished": reflector_reports.MAX_REASONS,
    "64 headers of 4 KiB": (connections.HEADERS_TAKEN, connections.HEADER_BYTES // 1024),
    "at most 4 informational responses": connections.MOST_HINTS,
    "and 64 KiB, for heads and chunks; parsed 2 KiB at a time": (
        connections.FRAMING_BYTES // 1024, connections.PIECE // 1024,
    ),
    "4 metrics, 5 pods each": (learned_usage.MOST_LEARNED, learned_usage.MOST_PODS),
    "48 MiB, 24 MiB for the pods of one namespace": (
        bodies.BODIES_BYTES // MIB, bodies.NAMESPACE_BODIES_BYTES // MIB,
    ),
    "64, and 8 KiB between the braces; 16 KiB a line": (
        series.MAX_LABELS, series.MAX_LABEL_BYTES // 1024, exposition.MAX_LINE_BYTES // 1024,
    ),
    "2 times as many within the window; 12 MiB": (series.KEPT_SERIES, targets.POD_BYTES // MIB),
    "96 MiB, 48 MiB for the pods of one namespace": (
        targets.KEPT_BYTES // MIB, targets.NAMESPACE_BYTES // MIB,
    ),
    "turns of 2 ms": schedule.TURN_SECONDS * 1000,
    "40 % of the process's time": schedule.TIME_SHARE * 100,
    "less often, up to 60 times": schedule.LONGEST_STRETCH,
    "64 answers of up to 32 matchers, each until 60 s": (
        targets.ANSWERS_KEPT, targets.MOST_MATCHERS, targets.ANSWERED_SECONDS,
    ),
    "takes 5,000 series": scraped.READ_WORK,
    "at most 600 s, and 120 s, 16 bytes for each 2 s: about 3 KiB; 32 comparisons": (
        comparing.LONGEST_WINDOW, comparing.BEYOND, 16, usage_history.STEP, 3, calibration.MOST,
    ),
    "compiled matchers of metric selectors | 4 MiB": matchers.TESTS_BYTES // MIB,
    "16 KiB, 256 commas; 8 MiB of parsed ones, 8 MiB of texts": (
        decision.LONGEST_SELECTOR // 1024, decision.MOST_COMMAS, decision.SELECTORS_BYTES // MIB,
        scale_codec.TEXTS_BYTES // MIB,
    ),
    "| 64; 4 MiB of parsed requests and limits": (pod_codec.MOST_RESOURCES, pod_codec.REQUESTS_BYTES // MIB),
    "1 MiB of queries": lookback.LOOKBACKS_BYTES // MIB,
    "| 64 MiB; 2 MiB of YAML": (text_files.MOST_BYTES // MIB, reader.LONGEST // MIB),
    "10,000 documents, 200,000 keys and values, 100 levels, 400,000 nodes": (
        yaml_documents.MOST_DOCUMENTS, reader.NODE_LIMIT, reader.DEPTH_LIMIT, reader.ALIAS_LIMIT,
    ),
    "65,536 characters; brackets and operators 100 deep": (parsing.LONGEST_RULE, parsing.DEEPEST),
    "with the selectors of a request 1,048,576 characters": parsing.LONGEST,
    "100 an autoscaler, 20,000 in all, 64 MiB": (
        reporter.PER_AUTOSCALER, reporter.IN_ALL, reporter.ROOM // MIB,
    ),
    "900,000 bytes, 450,000 of one": (publisher.LIMIT, publisher.SHARE),
    "50 pods; about 4 KiB": (ready_times.MOST_PODS, ready_times.LEDGER_BYTES // 1024),
    "900,000 bytes: about": term_store.LIMIT,
    "not stored, 3 each at least": ready_store.LEAST_PODS,
    "900,000 bytes, 16,384 an autoscaler": (term_store.LIMIT, stored.MOST_TEXT),
    "1,000; similar": events.QUEUED,
    "each gets one of 10 while it waits. 8 statuses and 16 costs at once": (
        fairness.LEAST_SHARE,
        status.AT_ONCE,
        deletion_costs.AT_ONCE,
    ),
    "10 reads a second; each once in 5 s at most, once in 5 minutes while it is refused, and in 30 s": (
        scale_targets.POLLS_PER_SECOND,
        scale_targets.POLL_SECONDS,
        scale_targets.REFUSED_SECONDS / 60,
        scale_targets.RETRY_SECONDS,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), NUMBERS.items(), ids=NUMBERS)
def test_numbers_are_those_of_the_code(text: str, expected: float | tuple[float, ...]) -> None:
    assert text in " ".join(PAGE.split())
    written = [float(each.replace(",", "")) for each in re.findall(r"\b\d[\d,]*\b", text)]
    assert written == list(expected if isinstance(expected, tuple) else (expected,))


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

import io
import logging
import re
import subprocess
from collections.abc import Iterator

import prometheus_client
import pytest

from adapter.telemetry import logs, metrics
from adapter.telemetry.declarations import Metric
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import FakeClock


def test_names_are_unique_and_carry_their_kind_and_unit() -> None:
    names = [row.name for row in metrics.METRICS]
    assert len(set(names)) == len(names)
    odd = [row.name for row in metrics.METRICS if (row.type == "counter") != row.name.endswith("_total")]
    assert odd == ["authentication_attempts"], "the API servers' own name"
    assert [
        row.name for row in metrics.METRICS if row.type == "histogram" and not row.name.endswith("_seconds")
    ] == []
    assert [row.name for row in metrics.METRICS if not row.help.endswith((".", "runs."))] == []


def test_metrics_of_one_autoscaler_have_the_same_labels() -> None:
    own = {"kind", "namespace", "name"}
    odd = [row.name for row in metrics.METRICS if own & set(row.labels) and not own <= set(row.labels)]
    leases = ["leader_election_master_status", "fastpath_scaler_slices"]
    assert odd == leases, "the name of a Lease has the label of Kubernetes' components"


@pytest.mark.parametrize("row", metrics.METRICS, ids=lambda row: row.name)
def test_a_row_lists_values_for_all_of_its_labels_or_for_none(row: Metric) -> None:
    assert len(row.values) in {0, len(row.labels)}
    assert bool(row.buckets) == (row.type == "histogram")
    assert list(row.buckets) == sorted(set(row.buckets))


def test_exposition_shows_counted_values_and_known_labels_from_the_start() -> None:
    own = Monitoring("1.2.3")
    own.dropped.labels("nan").inc(3)
    own.query_duration.observe(5.0)
    lines = own.exposition().splitlines()
    assert 'fastpath_values_dropped_total{reason="nan"} 3.0' in lines
    assert 'fastpath_values_dropped_total{reason="infinite"} 0.0' in lines
    assert 'fastpath_prometheus_query_duration_seconds_bucket{le="3.0"} 0.0' in lines
    assert 'fastpath_prometheus_query_duration_seconds_bucket{le="5.0"} 1.0' in lines
    assert any(
        line.startswith('fastpath_build_info{python="3.') and 'version="1.2.3"} 1.0' in line for line in lines
    )
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
    assert not any("_created" in line for line in lines)


def test_exposition_in_pieces_is_what_prometheus_client_writes_at_once() -> None:
    own = Monitoring()
    for number in range(120):
        own.desired_replicas.put(("FastPathAutoscaler", "shop", f"web-{number}"), number)
        own.request_duration.labels("GET", "g", "v", str(number), "", "cluster").observe(0.1)
        own.faults.labels(f"fault-{number}").inc()

    def lines(text: str) -> list[str]:
        return [
            line for line in text.splitlines() if not re.search(r"process_|_created|authentication_att", line)
        ]

    whole = prometheus_client.generate_latest(own.registry).decode()
    assert lines(own.exposition()) == lines(whole)
    assert max(piece.count(b"\n") for piece in own.exposition_pieces()) <= 52


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_promtool_finds_nothing_to_lint_in_our_own_names() -> None:
    run = subprocess.run(
        ["promtool", "check", "metrics"],
        input=Monitoring().exposition(),
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in (run.stdout + run.stderr).splitlines() if line.startswith("fastpath_")]
    assert complaints == []


def test_instances_share_nothing() -> None:
    one, other = Monitoring(), Monitoring()
    one.responses.labels("query").inc()
    assert 'fastpath_responses_total{source="query"} 1.0' in one.exposition()
    assert 'fastpath_responses_total{source="query"} 0.0' in other.exposition()
    assert one.registry is not prometheus_client.REGISTRY


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root, own = logging.getLogger(), logging.getLogger("adapter")
    before = (list(root.handlers), root.level, own.level)
    stream = io.StringIO()
    logs.configure_logging(0, stream=stream)
    yield stream
    root.handlers, _, _ = before
    root.setLevel(before[1])
    own.setLevel(before[2])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("web/api", "web/api"),
        (12, "12"),
        (0.25, "0.25"),
        (1 / 3, "0.333333"),
        ("", '""'),
        ("two words", '"two words"'),
        ('up{job="x"}', '"up{job=\\"x\\"}"'),
        ("a=b", '"a=b"'),
        ("line\nfake=1", '"line\\nfake=1"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("größe", '"größe"'),
    ],
)
def test_facts_are_rendered_so_that_foreign_text_stays_in_its_place(
    log: io.StringIO, value: object, shown: str
) -> None:
    logging.getLogger("adapter.test").info("constant message", extra=logs.facts(value=value, n=1))
    (line,) = log.getvalue().splitlines()
    moment, rest = line.split(" ", 1)
    assert moment.endswith("Z")
    assert rest == f"INFO adapter.test: constant message value={shown} n=1"


def test_text_records_carry_their_traceback(log: io.StringIO) -> None:
    try:
        raise ValueError("broken")  # noqa: TRY301 - a traceback is wanted
    except ValueError:
        logging.getLogger("adapter.test").exception("it failed")
    assert "ERROR adapter.test: it failed\nTraceback" in log.getvalue()


@pytest.mark.parametrize(
    ("verbosity", "level"),
    [
        (0, logging.INFO),
        (4, logging.INFO),
        (6, logging.DEBUG),
        (7, logging.DEBUG),
        (8, logs.TRACE),
        (10, logs.TRACE),
    ],
)
def test_verbosity(log: io.StringIO, verbosity: int, level: int) -> None:
    logs.configure_logging(verbosity, stream=log)
    assert logging.getLogger("adapter.deep.module").getEffectiveLevel() == level
    assert logging.getLogger("another.package").getEffectiveLevel() == logging.WARNING


def test_configured_again_it_replaces_its_own_handler_and_no_other(log: io.StringIO) -> None:
    foreign = logging.NullHandler()
    root = logging.getLogger()
    root.addHandler(foreign)
    try:
        logs.configure_logging(0, stream=log)
        logs.configure_logging(0, stream=log)
        logging.getLogger("adapter").warning("once")
        assert log.getvalue().count("once") == 1
        assert foreign in root.handlers
    finally:
        root.removeHandler(foreign)


def test_a_fault_is_said_when_it_starts_when_its_text_is_new_and_when_it_ends(log: io.StringIO) -> None:
    own, clock = Monitoring(), FakeClock()
    faults = ProblemLog(own, clock)

    def said() -> list[str]:
        lines = [line.split(" ", 1)[1] for line in log.getvalue().splitlines()]
        log.seek(0)
        log.truncate()
        return lines

    faults.report("prometheus", "cannot query", "refused", server="http://p")
    assert said() == ["WARNING adapter.faults: cannot query fault=prometheus error=refused server=http://p"]
    faults.report("prometheus", "cannot query", "refused", server="http://p")
    assert said() == []
    faults.report("prometheus", "cannot query", "timeout")
    assert said() == ["WARNING adapter.faults: cannot query fault=prometheus error=timeout"]
    faults.report("prometheus", "cannot query", "refused")
    assert said() == []
    faults.report("prometheus", "cannot query", "refused", subject="rules[1]")
    assert said() == ["WARNING adapter.faults: cannot query fault=prometheus subject=rules[1] error=refused"]
    assert faults.active() == {("prometheus", ""): "refused", ("prometheus", "rules[1]"): "refused"}
    assert 'fastpath_faults_active{fault="prometheus"} 2.0' in own.exposition()
    clock.advance(2.5)
    faults.resolve("prometheus")
    assert said() == [
        'INFO adapter.faults: fault ended fault=prometheus was="cannot query" seconds=2.5 times=4'
    ]
    faults.resolve("prometheus")
    assert said() == []
    assert faults.active() == {("prometheus", "rules[1]"): "refused"}
    assert 'fastpath_faults_total{fault="prometheus"} 5.0' in own.exposition()
    assert 'fastpath_faults_active{fault="prometheus"} 1.0' in own.exposition()
    faults.report("prometheus", "cannot query", "refused")
    assert len(said()) == 1


def test_a_text_that_always_changes_does_not_flood_the_log(log: io.StringIO) -> None:
    faults = ProblemLog(Monitoring(), FakeClock())
    for number in range(100):
        faults.report("query", "cannot query", f"request {number} failed")
    assert len(log.getvalue().splitlines()) == 16
    assert faults.active() == {("query", ""): "request 99 failed"}

"""The benchmarks run, at sizes that say nothing about speed: what they print is what docs/performance.md is made from."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import load
from benchmarks.stage import Stage
from tests.support import tools

_ROOT = Path(__file__).parent.parent

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


def _run(name: str, arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments.split()]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *table, line = done.stdout.strip().splitlines()
    assert len(table) > 2
    result: dict[str, Any] = json.loads(line)
    assert done.stderr == ""
    return result


@pytest.mark.parametrize(
    ("name", "arguments", "goals", "counted"),
    [
        pytest.param(
            "serve",
            "--hpas 4 --pods 2 --seconds 0.2 --runs 1",
            {"warm_16_requests_per_second", "warm_16_p50_ms", "warm_1_p50_ms", "cold_overhead_p50_ms"},
            {},
            id="serve",
        ),
        pytest.param(
            "hpas",
            "--hpas 10 --pods 2 --rules 2 --period 0.5 --seconds 1",
            {"one_rule_queries_per_second", "several_rules_queries_per_second"},
            {"one_rule_requests_per_second": 20, "several_rules_requests_per_second": 20},
            id="hpas",
        ),
        pytest.param(
            "discovery",
            "--series 3000 --names 7 --runs 1",
            {"lag_max_ms"},
            {"series": 3000, "metrics": 14},  # each name for pods and for namespaces
            id="discovery",
        ),
        pytest.param(
            "memory",
            "--small 10 --large 20 --pods 2 --runs 1",
            {"small_start_seconds", "large_asked_mib", "large_peak_mib", "large_stateful_peak_mib"},
            {},
            id="memory",
        ),
        pytest.param(
            "decide",
            "--repeat 1 --calls 200 --runs 1",
            {
                "evaluate_syncs_per_second",
                "decide_cpu_calls_per_second",
                "decide_pods_metric_calls_per_second",
            },
            {},
            id="decide",
        ),
        pytest.param(
            "podwatch",
            "--pods 40 --events 20 --runs 1",
            {
                f"{case}_{goal}"
                for case in ("deployment", "stateful")
                for goal in ("peak_mib", "list_hold_ms", "event_hold_ms")
            },
            {},
            id="podwatch",
        ),
        pytest.param(
            "scrape",
            "--bodies 20 --pods 4 --rounds 2 --runs 1",
            {
                "parse_small_pods_per_second",
                "parse_large_pods_per_second",
                "take_large_pods_per_second",
                "scrape_large_pods_per_second",
            },
            {},
            id="scrape",
        ),
        pytest.param(
            "tick",
            "--autoscalers 6 --pods 3 --ticks 2 --runs 1",
            {"tick_steady_seconds", "tick_limited_seconds", "tick_cpu_seconds"},
            {},
            id="tick",
        ),
        pytest.param(
            "reaction",
            "--workloads 2 --slow 1 --seconds 1",
            {"gauge_p50_seconds", "gauge_max_seconds", "boosted_p50_seconds", "boosted_reversals"},
            {"unwritten": 0, "boosted_reversals": 0},
            id="reaction",
        ),
    ],
)
def test_prints_figures_for_its_goals(name: str, arguments: str, goals: set[str], counted: dict[str, float]) -> None:
    if name not in {"discovery", "decide", "podwatch", "scrape", "tick"}:
        tools.require("prometheus", "prometheus")

    result = _run(name, arguments)

    assert result["benchmark"] == name
    assert {"cpu", "cores", "load", "python", "aiohttp"} <= result["machine"].keys()
    assert result["goals"].keys() == goals <= result["figures"].keys()
    assert all(math.isfinite(value) for value in result["figures"].values())
    assert counted.items() <= result["figures"].items()
    for goal, judged in result["goals"].items():
        measured = result["figures"][goal]
        reached = measured >= judged["limit"] if judged["at_least"] else measured <= judged["limit"]
        assert judged["reached"] is reached


def test_wrk_asks_for_the_paths_over_tls() -> None:
    if shutil.which("wrk") is None:
        pytest.skip("wrk is not installed; Debian's package wrk has it")
    assert load.generator(1.0) == "wrk"
    with Stage() as stage:
        port = stage.start_bare(b'{"kind":"MetricValueList"}\n')

        found = load.run_closed_loop(port, stage.tls, ["/a", "/b"], 2, 1.0, stage.directory)

    assert found.errors == 0
    assert found.requests_per_second > 0
    assert 0 < found.p50_ms <= found.p99_ms

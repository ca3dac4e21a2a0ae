"""A forecast of a load from Prometheus, with the query of the rule that makes the metric."""

import asyncio
from pathlib import Path

import pytest

from adapter.cli import main
from tests.support.prometheus import PrometheusFactory
from tests.support.simulation import HPA

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

BEGIN = 1_704_067_200
"""2024-01-01, the beginning of all samples."""

RULES = """
rules:
- seriesQuery: 'requests{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""


async def test_the_history_is_read_and_what_is_missing_is_said(
    tmp_path: Path, prometheus_server: PrometheusFactory, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = ["# TYPE requests gauge"]
    for second in range(0, 3 * 3600 + 1, 60):
        labels = 'namespace="shop",pod="web-6d4b75cb6d-hgx2w"'
        lines.append(f"requests{{{labels}}} 12 {BEGIN + second - 0.5}")
    server = await asyncio.to_thread(prometheus_server, samples="\n".join(lines))
    (tmp_path / "web.yaml").write_text(HPA)
    (tmp_path / "rules.yaml").write_text(RULES)
    arguments = [
        *("forecast", "--autoscaler", str(tmp_path / "web.yaml"), "--config", str(tmp_path / "rules.yaml")),
        *("--prometheus-url", server.url, "--last=3h", "--until=2024-01-01T03:00:00Z", "--step=60s"),
        "--pod-start=30s",
    ]
    assert await asyncio.to_thread(main.main, arguments) == 0
    said = capfd.readouterr().out.splitlines()
    assert said[0] == "web: no verdict yet: 0.1 of 7 days of history"
    assert any("requests is rebuilt from rules[0]" in line for line in said)

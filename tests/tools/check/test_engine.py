"""`fastpath check` on values, histograms, short windows and nodes, with a real Prometheus."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.support.answers import answers
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written
from tests.support.verbs import Printed, printed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

RULES = (Path(__file__).parents[2] / "data" / "rules" / "odd-values.yaml").read_text()


def _samples(now: float) -> list[Written]:
    def one(name: str, value: float | None, age: float = 0.0, **labels: str) -> Written:
        return Written({"__name__": name, "namespace": "shop", **labels}, value, now - age)

    pod = {"pod": "web-0"}
    samples = [
        one(name, 1000 - age, age, **pod, **labels)
        for name, labels in (("lat_bucket", {"le": "0.5"}), ("lat_bucket", {"le": "+Inf"}), ("lat_count", {}))
        for age in range(600, -1, -20)
    ]
    samples += [one("huge", 9.3e15, pod="web-0"), one("huge", 1, pod="web-1"), one("lag", -1.5)]
    samples += [
        one("any_latency", None, 0, **pod),
        one("any.requests", 4, 0, **pod),
        one("any_size", 5, 0, **pod),
    ]
    for node in ("1", "2"):
        samples.append(one("usage", 1, instance=f"10.0.0.{node}:10250", node=f"node-{node}", id="/"))
        samples.append(one("usage", 1, instance="x", pod=f"web-{node}", container="app"))
    return samples


@pytest.fixture(scope="module")
def prometheus(module_prometheus: PrometheusFactory) -> PrometheusServer:
    server = module_prometheus(flags=["--enable-feature=native-histograms,promql-delayed-name-removal"])
    server.write(*_samples(time.time()))  # noqa: TID251  # a real Prometheus looks at real time
    return server


Run = Callable[..., Awaitable[Printed]]


@pytest.fixture
def run(tmp_path: Path, prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]) -> Run:
    async def check(*arguments: str, rules: str = RULES) -> Printed:
        (tmp_path / "rules.yaml").write_text(rules)
        prometheus_url = f"--prometheus-url={prometheus.url}"
        return await printed(capsys, "check", str(tmp_path / "rules.yaml"), prometheus_url, *arguments)

    return check


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        for name in ("node-1", "node-2"):
            cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        for name in ("web-1", "web-3"):
            meta = {"name": name, "namespace": "shop"}
            cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
        yield cluster


@pytest.mark.parametrize(("question", "parts"), answers("check/engine", "causes"))
async def test_the_last_line_names_the_cause(run: Run, question: str, parts: list[str]) -> None:
    checked = await run(*f"--why={question}".split())
    conclusion = checked.out.splitlines()[-1]
    assert [part for part in parts if part not in conclusion] == []
    assert "onNaN" not in conclusion
    assert checked.status == (0 if "is served" in conclusion else 1)


def warnings_of(document: dict[str, Any]) -> dict[str, list[str]]:
    reports = (*document["rules"], *document["resourceQueries"])
    return {one["path"]: [warning["sentence"] for warning in one["warnings"]] for one in reports}


async def test_answers_that_are_no_values_are_warnings(run: Run) -> None:
    warned = warnings_of((await run("-o", "json")).document)
    assert any("1 of 2 values has no quantity (9.3e+15 is beyond" in one for one in warned["rules[3]"])
    assert any(
        "1 of 2 values has no quantity (9.3e+15 is beyond" in one for one in warned["externalRules[0]"]
    )
    assert any(one.startswith("-1500m is negative") for one in warned["externalRules[1]"])
    assert any("-Inf is not a finite number" in one for one in warned["externalRules[2]"])


async def test_names_and_histograms_of_prometheus_3(run: Run) -> None:
    """A name that is no classic one is left out, and a native histogram is no value; the rest is served."""
    rules = """
rules:
- seriesQuery: '{__name__=~"any.+"}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""
    document = (await run("-o", "json", rules=rules)).document
    assert sorted(document["rules"][0]["metrics"]) == ["any_latency", "any_size"]
    assert any('left out, such as "any.requests"' in one for one in warnings_of(document)["rules[0]"])
    histogram = await run("--why=any_latency", "--object=pod/shop/web-0", rules=rules)
    assert "histogram_count, histogram_sum, histogram_avg or histogram_quantile" in histogram.out
    number = await run("--why=any_size", "--object=pod/shop/web-0", rules=rules)
    assert "is served" in number.out.splitlines()[-1]


async def test_names_are_compared_with_the_objects_of_the_cluster(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    flag = f"--lister-kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}"
    warned = warnings_of((await run("-o", "json", flag)).document)
    sentence = (
        "0 of 2 nodes of the cluster have a sample: label instance is 10.0.0.1:10250, 10.0.0.2:10250, and "
        "they are named node-1, node-2; map the label of their names"
    )
    assert warned["resourceRules.cpu.nodeQuery"] == warned["resourceRules.memory.nodeQuery"] == [sentence]
    assert warned["resourceRules.cpu.containerQuery"] == []  # one of the pods has usage
    assert any("0 of 2 pods of the cluster have a sample" in one for one in warned["rules[2]"]) is False
    named = RULES.replace("instance: {resource: node}", "node: {resource: node}")
    warned = warnings_of(json.loads((await run("-o", "json", flag, rules=named)).out))
    assert warned["resourceRules.cpu.nodeQuery"] == []
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-3"}})
    warned = warnings_of(json.loads((await run("-o", "json", flag, rules=named)).out))
    assert warned["resourceRules.cpu.nodeQuery"][0].startswith("2 of 3 nodes of the cluster have a sample")

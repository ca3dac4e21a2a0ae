"""`fastpath check --why` and `--prometheus-url` against a real Prometheus and the sandbox cluster."""

import math
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.support.answers import answers
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written
from tests.support.verbs import Printed, printed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

RULES = (Path(__file__).parents[2] / "data" / "rules" / "served.yaml").read_text()


def _samples(now: float) -> list[Written]:
    def one(name: str, value: float, age: float = 0.0, **labels: str) -> Written:
        return Written({"__name__": name, **labels}, value, now - age)

    samples = [
        one("http_requests_total", 6000 - 10 * age, age, namespace="shop", pod="web-0", code="200")
        for age in range(600, -1, -15)  # a window so long that a slow test does not leave it
    ]
    samples += [
        one(
            "http_requests_total", 5, 0, namespace="shop", pod="web-1", code="200"
        ),  # a rate needs two samples
        one("load", 1.5, namespace="shop", pod="web-0"),
        one("load", math.nan, namespace="shop", pod="web-1"),
        one("load", 4, 120, namespace="shop", pod="web-2"),
        one("load", 7, namespace="monitoring", exported_namespace="shop", pod="api-0"),
        one("sensor", 20, room="attic", kubernetes_pod="web-0"),
        one("node_load", 2, instance="node-a", namespace="monitoring"),
        one("jobs_waiting", 3, namespace="shop"),
        one("queue_depth", 5, namespace="shop", queue="mail"),
    ]
    return samples


class Checked(Printed):
    @property
    def conclusion(self) -> str:
        return self.out.splitlines()[-1]


@pytest.fixture(scope="module")
def prometheus(module_prometheus: PrometheusFactory) -> PrometheusServer:
    # Samples are written once: a slow module does not leave the window of an instant query either.
    server = module_prometheus(flags=["--query.lookback-delta=1h"])
    server.write(*_samples(time.time()))  # noqa: TID251  # a real Prometheus looks at real time
    return server


Run = Callable[..., Awaitable[Checked]]


@pytest.fixture
def run(tmp_path: Path, prometheus: PrometheusServer, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that checks RULES with more arguments, in a thread with a loop of its own."""
    (tmp_path / "rules.yaml").write_text(RULES)

    async def check(*arguments: str) -> Checked:
        prometheus_url = f"--prometheus-url={prometheus.url}"
        status, *texts = await printed(
            capsys, "check", str(tmp_path / "rules.yaml"), prometheus_url, *arguments
        )
        return Checked(status, *(text.replace(f"{tmp_path}/", "") for text in texts))

    return check


NOT_MADE = (
    "the series {} are there, but the metricsQuery of {} returns nothing for them: a rate needs two samples "
    "within its window, and every other matcher and operand has to find something; run it part by part"
)


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        (
            "http_requests_per_second --object=pod/shop/web-1",
            NOT_MADE.format("http_requests_total", "rules[0]"),
        ),
        ("load_percent --object=pod/shop/web-0", NOT_MADE.format("load", "rules[6]")),
        (
            "load_fresh --object=pod/shop/web-2",
            "left out: rules[5] allows maxSampleAge 30s, so scrape them more often or allow more",
        ),
        (
            "load_range --object=pod/shop/web-0",
            (
                "the result is a matrix, neither vector nor scalar, so every request fails: let metricsQuery "
                "give one sample for each object"
            ),
        ),
    ],
    ids=["the rate has one sample", "the other operand is missing", "too old", "a range"],
)
async def test_causes_that_only_a_real_prometheus_shows(run: Run, question: str, sentence: str) -> None:
    """All others: tests/golden/check/why-* and objects-of-the-cluster."""
    checked = await run(*f"--why={question}".split())
    assert checked.conclusion.endswith(sentence)
    assert (checked.status, checked.err) == (1, "")


async def test_an_api_server_that_does_not_answer_is_said_and_the_rest_goes_on(
    run: Run, tmp_path: Path
) -> None:
    flag = f"--lister-kubeconfig={tmp_path / 'kubeconfig'}"
    async with Cluster() as cluster:
        cluster.kubeconfig(tmp_path / "kubeconfig")
    checked = await run("--why=load", "--object=pod/shop/web-0", flag)
    assert checked.conclusion == "load of pod/shop/web-0 is served: 1500m"
    assert checked.status == 1
    first, second = checked.err.splitlines()
    assert first.startswith("fastpath check: cannot query the API server, using the built-in kinds: ")
    assert second.startswith("fastpath check: cannot query the API server for pods: cannot list pods: ")


# -- check with --prometheus-url


def _request_rate(prometheus: PrometheusServer) -> float:
    (sample,) = prometheus.query('sum(rate(http_requests_total{pod="web-0"}[10m]))')
    return float(sample["value"][1])


async def test_the_real_series_and_queries(run: Run, prometheus: PrometheusServer) -> None:
    before = _request_rate(prometheus)
    checked = await run()
    after = _request_rate(prometheus)
    blocks = dict(block.split("\n", 1) for block in checked.out.split("\n\n") if "\n" in block)
    rate = re.search(r"web-0 ([0-9.]+)", checked.out)
    assert rate
    # It falls with the time since the samples, and is rounded.
    assert before + 0.01 >= float(rate[1]) >= after - 0.01
    assert (
        blocks["rules[0]  (rules.yaml:2)"].replace(rate[0], "web-0 RATE")
        == """\
  series    http_requests_total{namespace!="",pod!=""}
            2 series of 1 name, 1 name taken
  metrics   http_requests_per_second
  objects   namespaces, pods
  query     sum(rate(http_requests_total{namespace="NAMESPACE",pod="NAME"}[10m])) by (pod)
  separable yes
  answer    1 sample for all objects: web-0 RATE"""
    )
    assert (
        blocks["rules[2]  (rules.yaml:9)"]
        == """\
  series    sensor
            1 series of 1 name, 1 name taken
  metrics   sensor
  objects   none
  warning   resources.overrides.namespace: no series of this rule has the label
  warning   resources.overrides.pod: no series of this rule has the label
  warning   resources: no label of the series names a kind of object, so the metric is not listed"""
    )
    assert (
        blocks["rules[3]  (rules.yaml:12)"]
        == """\
  series    jobs_waiting{namespace!="",service!=""}
            0 series of 0 names, 0 names taken
  metrics   none
  objects   none
  warning   seriesQuery: no series matches now, so the rule serves nothing"""
    )
    assert "\n  answer    refused: bad_data: " in blocks["externalRules[0]  (rules.yaml:29)"]
    assert (checked.status, checked.err) == (0, "")  # a query that is refused is a warning


async def test_a_list_that_is_refused_is_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "rules: [{seriesQuery: 'sum(load)', metricsQuery: load}, {metricsQuery: load}]"
    )
    checked = await run()
    assert "\n            not read: bad_data: " in checked.out
    assert "\n            not read: there is no seriesQuery\n" in checked.out
    assert (checked.status, checked.err) == (0, "")


async def test_the_real_series_as_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "rules:\n"
        "- {seriesQuery: load, resources: {template: <<.Resource>>}, metricsQuery: "
        "'<<.Series>>{<<.LabelMatchers>>}'}\n"
        "- {seriesQuery: load, resources: {template: <<.Resource>>}, metricsQuery: "
        "'<<.Series>>{<<.LabelMatchers>>,'}\n"
        "- {seriesQuery: 'sum(load)', metricsQuery: load}\n"
    )
    rules = (await run("-o", "json")).document["rules"]
    assert rules[0]["samples"] == 4
    assert rules[1]["refused"].startswith("bad_data: ")
    assert rules[2]["unread"].startswith("bad_data: ")


async def test_the_real_cpu_and_memory(run: Run, tmp_path: Path) -> None:
    """Resource rules name no series, so only their answers show whether they find anything."""
    path = tmp_path / "rules.yaml"
    labels = (
        "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}, instance: "
        "{resource: node}}}"
    )
    cpu = (
        f"{labels}, containerQuery: 'load{{<<.LabelMatchers>>}}', nodeQuery: "
        "'node_load{<<.LabelMatchers>>}'"
    )
    memory = (
        f"{labels}, containerQuery: 'none{{<<.LabelMatchers>>}}', nodeQuery: "
        "'rate(none{<<.LabelMatchers>>})'"
    )
    path.write_text(f"resourceRules: {{cpu: {{{cpu}}}, memory: {{{memory}}}}}")
    checked = await run()
    answers = [line.strip() for line in checked.out.splitlines() if line.startswith("  answer")]
    assert answers[0].startswith("answer    4 samples for all objects: ")
    assert answers[1] == "answer    1 sample for all objects: node-a 2"
    assert answers[2] == "answer    0 samples for all objects"
    assert answers[3].startswith("answer    refused: bad_data: ")
    warnings = [line.strip() for line in checked.out.splitlines() if line.startswith("  warning")]
    assert "warning   the query has no sample now, so nothing is served: " in "\n".join(warnings)
    assert "warning   Prometheus refuses the query: bad_data: " in "\n".join(warnings)
    assert (checked.status, checked.err) == (0, "")
    assert (await run("--strict")).status == 2
    documents = (await run("-o", "json")).document["resourceQueries"]
    assert [each.get("samples") for each in documents] == [4, 1, 0, None]
    assert documents[3]["refused"].startswith("bad_data: ")
    checked = await run("--prometheus-url=http://127.0.0.1:1")
    assert checked.status == 1
    assert checked.err.startswith(
        "fastpath check: cannot query Prometheus: http://127.0.0.1:1/api/v1/query: cannot connect: "
    )
    assert checked.err.count("\n") == 1


@pytest.mark.parametrize(("series", "said"), answers("check/why", "containers"))
async def test_pods_whose_series_name_no_container(run: Run, tmp_path: Path, series: str, said: str) -> None:
    query = f'sum({series}{{container!="",<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
    usage = (
        f"{{containerQuery: '{query}', nodeQuery: 'node_load{{<<.LabelMatchers>>}}',"
        " containerLabel: container,"
        " resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod},"
        " instance: {resource: node}}}}"
    )
    (tmp_path / "rules.yaml").write_text(f"resourceRules: {{cpu: {usage}, memory: {usage}}}")
    checked = await run()
    warnings = [line.strip() for line in checked.out.splitlines() if line.startswith("  warning")]
    assert [warning.startswith(f"warning   {said}") for warning in warnings] == [True, True]

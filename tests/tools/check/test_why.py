"""`fastpath check --why` and `--prometheus-url` against a real Prometheus and the sandbox cluster."""

import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from adapter.errors import KubernetesError
from adapter.model.resources import Catalogue
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_tools.live.servers import ClusterReader
from tests.support.answers import answers
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written
from tests.support.verbs import Printed, printed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

RULES = """
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: &pod {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: '^(.*)_total$', as: '${1}_per_second'}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[10m])) by (<<.GroupBy>>)'
- seriesQuery: '{__name__=~"^load.*",pod!=""}'
  seriesFilters: [{isNot: '_old$'}]
  resources: *pod
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: 'sensor'
  resources: *pod
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: 'node_load'
  resources: {overrides: {instance: {resource: node}, namespace: {resource: namespace}}}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'jobs_waiting{namespace!="",service!=""}'
  resources: {template: <<.Resource>>}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'load'
  resources: *pod
  name: {as: load_sum}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
- seriesQuery: 'load'
  resources: *pod
  name: {as: load_range}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}[5m]'
- seriesQuery: 'load'
  resources: *pod
  name: {as: load_fresh}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
  maxSampleAge: 30s
- seriesQuery: 'load'
  resources: {overrides: {pod: {resource: pod}}}
  name: {as: load_anywhere}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'load'
  resources: *pod
  name: {as: load_percent}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>} / on (pod) limit * 100'
- seriesQuery: 'load'
  resources: *pod
  name: {as: load_misspelt}
  metricsQuery: '<<.Serie>>{<<.LabelMatchers>>}'
- seriesQuery: 'pair'
  resources: *pod
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
  maxSampleAge: 1h
externalRules:
- seriesQuery: 'queue_depth'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
- seriesQuery: 'queue_depth'
  resources: {namespaced: false}
  name: {as: Backlog}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
- seriesQuery: 'queue_depth'
  name: {as: orphans}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
- seriesQuery: 'queue_depth'
  resources: {namespaced: false}
  name: {as: broken}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>,queue="a"})'
- seriesQuery: 'load'
  resources: {namespaced: false}
  name: {as: external_nan}
  metricsQuery: '<<.Series>>{pod="web-1"}'
- seriesQuery: 'load'
  resources: {namespaced: false}
  name: {as: misspelt}
  metricsQuery: 'scala(<<.Serie>>)'
"""


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
        one("load_old", 1, namespace="shop", pod="web-0"),
        one("pair", 1, namespace="shop", pod="web-0", queue="a"),
        one("pair", 1, namespace="shop", pod="web-0", queue="b"),
        one("sensor", 20, room="attic", kubernetes_pod="web-0"),
        one("node_load", 2, instance="node-a", namespace="monitoring"),
        one("jobs_waiting", 3, namespace="shop"),
        one("unclaimed", 3, job="x"),
        one("queue_depth", 5, namespace="shop", queue="mail"),
        one("queue_depth", 9, namespace="shop", queue="orders"),
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


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        for name in ("web-0", "web-1", "web-2", "web-3"):
            labels = {"app": "web", "apps.kubernetes.io/pod-index": name[-1]}
            metadata = {"name": name, "namespace": "shop", "labels": labels}
            cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
        yield cluster


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
        ("load_percent --object=pod/shop/web-0", NOT_MADE.format("load", "rules[9]")),
        (
            "load_fresh --object=pod/shop/web-2",
            "left out: rules[7] allows maxSampleAge 30s, so scrape them more often or allow more",
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
    """All others: tests/golden/check/why-*."""
    checked = await run(*f"--why={question}".split())
    assert checked.conclusion.endswith(sentence)
    assert (checked.status, checked.err) == (1, "")


async def test_a_whole_trace(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    cluster_flag = f"--lister-kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}"
    checked = await run("--why=load", "--object=pod/shop/web-3", cluster_flag)
    assert (
        checked.out
        == """\
what each rule makes of the series of the last 10m0s
  rules[1]  {__name__=~"^load.*",pod!=""}  (rules.yaml:7)
    matches load (4 series), load_old (1 series)
    dropped by seriesFilters isNot _old$: load_old (1 series)
    becomes the metric: load (4 series)
    label namespace names namespaces
    label pod names pods
    labels that name no kind of object: exported_namespace
  17 other rules do not make it

where it is served
  custom.metrics.k8s.io: namespaces, pods

pods in the API server
  4 objects in namespace shop: web-0, web-1, web-2, web-3

pod/shop/web-3, answered by rules[1] from load
  query load{namespace="shop",pod="web-3"}
  0 samples
  extra query count by (namespace, pod) (load{pod="web-3"})
  no sample
  extra query count by (pod) (load{namespace="shop"})
  {pod=web-0} 1, {pod=web-1} 1, {pod=web-2} 1

load has other pods in namespace shop (web-0, web-1, web-2) and not web-3: it is in the cluster, so check \
that it is scraped
"""
    )
    assert (checked.status, checked.err) == (1, "")


# With the cluster: arguments after --why, and the sentence at the end.
OF_THE_CLUSTER = {
    "value without object": (
        "load --object=pod/monitoring/api-0",
        (
            "Prometheus has a value for pod/monitoring/api-0 and the cluster has no such object: an "
            "autoscaler lists objects first and never requests it, so check the name"
        ),
    ),
    "neither": (
        "load --object=pod/shop/web-9",
        "neither the cluster nor Prometheus has pod/shop/web-9: check kind, namespace and name",
    ),
    "all": (
        "load --object=pod/shop/* --selector=app=web",
        (
            "load of pod/shop/* is served: 2 of 4 objects have a value, not web-1, web-3: give one of these "
            "to --object to see why"
        ),
    ),
    "one": (
        "http_requests_per_second --object=pod/shop/* --selector=apps.kubernetes.io/pod-index=0",
        "http_requests_per_second of pod/shop/* is served: 1 of 1 object has a value",
    ),
    "none matches": (
        "load --object=pod/shop/* --selector=app=db",
        (
            "the cluster has no pods in namespace shop that match app=db, and without objects there is no "
            "value: compare labels and namespace"
        ),
    ),
    "a metric selector": (
        "http_requests_per_second --object=pod/shop/web-0 --metric-selector=code=500",
        NOT_MADE.format("http_requests_total", "rules[0]"),
    ),
}


@pytest.mark.parametrize(
    ("case", "question", "sentence"),
    [(case, *rest) for case, rest in OF_THE_CLUSTER.items()],
    ids=OF_THE_CLUSTER,
)
async def test_with_the_cluster(
    run: Run, cluster: Cluster, tmp_path: Path, case: str, question: str, sentence: str
) -> None:
    checked = await run(
        *f"--why={question}".split(), f"--lister-kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}"
    )
    assert checked.conclusion == sentence
    assert (checked.status, checked.err) == (0 if case in {"all", "one"} else 1, "")


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("widget", "write its singular or plural name, with .GROUP if need be"),
        ("po", "did you mean pod?"),
    ],
)
async def test_a_kind_that_the_cluster_does_not_have(
    run: Run, cluster: Cluster, tmp_path: Path, kind: str, advice: str
) -> None:
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    checked = await run("--why=load", f"--object={kind}/shop/a", f"--lister-kubeconfig={kubeconfig}")
    expected = f"--object: {kind}/shop/a: expected a kind of object, not {kind}: {advice}"
    assert (checked.status, checked.out, checked.err) == (2, "", f"fastpath check: {expected}\n")


async def test_an_api_server_that_does_not_answer_is_said_and_the_rest_goes_on(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    await cluster.down()
    checked = await run("--why=load", "--object=pod/shop/web-0", f"--lister-kubeconfig={kubeconfig}")
    assert checked.conclusion == "load of pod/shop/web-0 is served: 1500m"
    assert checked.status == 1
    first, second = checked.err.splitlines()
    assert first.startswith("fastpath check: cannot query the API server, using the built-in kinds: ")
    assert second.startswith("fastpath check: cannot query the API server for pods: cannot list pods: ")


async def test_a_right_that_is_missing_is_said_and_is_no_failure(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    flag = f"--lister-kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}"
    cluster.forbid("list", "pods")
    unseen = (
        "fastpath check: pods of the cluster were not looked at, because you may not list them: cannot list"
    )
    checked = await run("--why=load", "--object=pod/shop/web-0", flag)
    assert checked.conclusion == "load of pod/shop/web-0 is served: 1500m"
    assert (checked.status, checked.err.count("\n"), checked.err.startswith(unseen)) == (0, 1, True), (
        checked.err
    )
    checked = await run(flag)
    assert (checked.status, checked.err.count("\n"), checked.err.startswith(unseen)) == (0, 1, True), (
        checked.err
    )


@pytest.mark.parametrize(("status", "expected"), [(403, 0), (401, 1), (503, 1)])
async def test_kinds_that_may_not_be_read_are_no_failure(
    run: Run, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, expected: int
) -> None:
    async def refuse(_: ClusterReader) -> Catalogue:
        raise KubernetesError(status, "Refused", "no discovery")

    monkeypatch.setattr(ClusterReader, "catalogue", refuse)
    checked = await run(f"--lister-kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}")
    said = "fastpath check: cannot query the API server, using the built-in kinds: no discovery\n"
    assert (checked.status, checked.err) == (expected, said)


async def test_objects_that_cannot_be_listed_end_the_story(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    await cluster.down()
    checked = await run("--why=load", "--object=pod/shop/*", f"--lister-kubeconfig={kubeconfig}")
    assert checked.conclusion.startswith(
        "pods cannot be listed, so every request for pod/shop/* fails: cannot list pods"
    )
    assert checked.status == 1


async def test_a_prometheus_that_does_not_answer(run: Run) -> None:
    checked = await run("--why=load", "--prometheus-url=http://127.0.0.1:1")
    assert checked.status == 1
    assert checked.conclusion == (
        "no series could be read (http://127.0.0.1:1/api/v1/series: Connection refused): check the address "
        "of Prometheus, and that it is up"
    )
    assert checked.err.startswith("fastpath check: cannot query Prometheus: ")


async def test_why_as_json(run: Run) -> None:
    checked = await run("--why=load", "--object=node/node-a", "-o", "json")
    document = checked.document
    assert document["metric"] == "load"
    assert [step["title"] for step in document["steps"]] == [
        "what each rule makes of the series of the last 10m0s",
        "where it is served",
    ]
    assert document["conclusion"].startswith("load is served for namespaces, pods and not for nodes")
    assert (document["served"], checked.status) == (False, 1)
    checked = await run("--why=load", "--object=pod/shop/web-0", "-o", "json")
    assert (checked.document["served"], checked.status) == (True, 0)


async def test_a_faulty_rule_is_part_of_the_answer(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "rules: [{seriesQuery: load, name: {matches: '('}, metricsQuery: load}]"
    )
    checked = await run("--why=lo")
    assert checked.status == 2
    assert (
        checked.err
        == "fastpath check: rules.yaml:1: rules[0].name.matches: (: expected a Go regular expression "
        "(RE2): missing )\n"
    )
    assert "\n  rules[0]  left out because of a fault\n" in checked.out
    assert (
        checked.conclusion
        == "no valid rule makes lo, and rules[0] is left out because of a fault: fix that first"
    )


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
        blocks["rules[0]  (rules.yaml:3)"].replace(rate[0], "web-0 RATE")
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
        blocks["rules[2]  (rules.yaml:11)"]
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
        blocks["rules[4]  (rules.yaml:17)"]
        == """\
  series    jobs_waiting{namespace!="",service!=""}
            0 series of 0 names, 0 names taken
  metrics   none
  objects   none
  warning   seriesQuery: no series matches now, so the rule serves nothing"""
    )
    assert "\n  answer    refused: bad_data: " in blocks["externalRules[3]  (rules.yaml:60)"]
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


async def test_kinds_are_those_of_the_cluster(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "rules:\n"
        "- {seriesQuery: load, resources: {overrides: {x: {group: argoproj.io, resource: rollout}}}, "
        "metricsQuery: load}\n"
    )
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    checked = await run(f"--lister-kubeconfig={kubeconfig}")
    assert checked.status == 2
    assert checked.err.startswith(
        "fastpath check: rules.yaml:2: rules[0].resources.overrides.x: rollout.argoproj.io: expected a "
        "resource of the cluster"
    )

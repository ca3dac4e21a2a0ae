"""The rule packs: each is checked, asked about recorded exposition text, and scales as computed by hand.

One Prometheus scrapes the recordings of all packs, with the labels that a ServiceMonitor attaches. Direct
scrapes of the same text, of pods and of endpoints, give the same values.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from adapter.autoscaler.decide import observation
from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.cli import main
from adapter.model.autoscaling import documents, fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus, MetricIdentifier
from adapter.model.autoscaling.status import SCALED_TO_ZERO
from adapter.model.metrics import CustomQuestion, ExternalQuestion
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector, parse_selector
from adapter.scrape.endpoints import Endpoint, FoundEndpoints
from fastpath_tools.live.preview import named_series
from scripts.generate import crd
from tests.docs import recorded
from tests.docs.recorded import RecordedEndpoint
from tests.manifests import structural
from tests.support.controller import LIVE
from tests.support.prometheus import START_SECONDS, PrometheusFactory, PrometheusServer
from tests.support.scaling import NOW, pod, pods
from tests.support.world import Outcome, RulesWorld, read_scraped, scraped_pod, series, vector, world

ROOT = Path(__file__).parents[2]
PACKS = ROOT / "docs" / "examples" / "packs"
NAMES = sorted(path.name for path in PACKS.iterdir())
GUIDE = (ROOT / "docs" / "guides" / "rule-packs.md").read_text()

INGRESS = "ingress-nginx-controller"
ENDPOINTS = [
    *(RecordedEndpoint("vllm", f"llama-{number}", "inference") for number in range(2)),
    *(RecordedEndpoint("sglang", f"qwen-{number}", "inference") for number in range(2)),
    *(RecordedEndpoint("triton", f"detector-{number}", "inference") for number in range(2)),
    RecordedEndpoint("llm-d", "llama-epp-0", "inference", "llama-epp"),
    RecordedEndpoint("llm-d", "idle-epp-0", "idle", "idle-epp"),
    RecordedEndpoint("kserve", "chat-predictor-0", "inference"),
    *(RecordedEndpoint("kserve", f"iris-predictor-{number}", "inference") for number in range(2)),
    *(
        RecordedEndpoint("ingress-nginx", f"{INGRESS}-{number}", "ingress-nginx", f"{INGRESS}-metrics")
        for number in range(2)
    ),
    *(
        RecordedEndpoint("envoy-gateway", f"envoy-shop-public-{number}", "envoy-gateway-system")
        for number in range(2)
    ),
    RecordedEndpoint("istio", "istio-ingressgateway-0", "istio-system"),
    RecordedEndpoint("istio", "web-0", "shop"),
    *(RecordedEndpoint("rabbitmq", f"rabbitmq-server-{number}", "shop", "rabbitmq") for number in range(2)),
    RecordedEndpoint("kafka", "kafka-exporter-0", "kafka", "kafka-exporter"),
    RecordedEndpoint("celery", "celery-exporter-0", "shop", "celery-exporter"),
    RecordedEndpoint("sidekiq", "sidekiq-prometheus-exporter-0", "shop", "sidekiq-prometheus-exporter"),
]


class Scenario(NamedTuple):
    """An autoscaler of a pack, what its metrics are in the recordings, and what follows.

    `values` are those of the metrics in their order: of Pods metrics by pod, of External metrics alone.
    """

    pack: str
    autoscaler: str
    values: Sequence[Mapping[str, float] | float]
    replicas: int
    expected: int


SCENARIOS = [Scenario(**case) for case in yaml.safe_load((Path(__file__).parent / "packs.yaml").read_text())]


def rules_of(pack: str) -> str:
    return (PACKS / pack / "rules.yaml").read_text()


def autoscalers_of(pack: str) -> dict[str, dict[str, Any]]:
    """Return the documents of a pack's autoscalers, by name."""
    loaded = list(yaml.safe_load_all((PACKS / pack / "autoscaler.yaml").read_text()))
    return {document["metadata"]["name"]: document for document in loaded}


def metric_of(autoscaler: FastPathAutoscaler, number: int) -> MetricIdentifier:
    metric = (autoscaler.spec.metrics or ())[number]
    source = metric.pods or metric.external
    assert source is not None
    return source.metric


@pytest.mark.parametrize("pack", NAMES)
def test_a_pack_is_checked_without_a_finding(pack: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "--strict", str(PACKS / pack)]) == 0
    printed = capsys.readouterr()
    assert " 0 warnings" in printed.out
    assert "separable no" not in printed.out
    assert printed.err == ""


@pytest.mark.parametrize("pack", NAMES)
def test_the_autoscalers_of_a_pack_are_taken(pack: str) -> None:
    schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for document in autoscalers_of(pack).values():
        assert structural.verdict(document, schema) == []
        assert structural.pruned(document, schema) == document
        documents.read_document(document)


@pytest.mark.parametrize("pack", NAMES)
def test_the_autoscalers_of_a_pack_become_boosted_hpas(
    pack: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main.main(["convert", "--back", str(PACKS / pack / "autoscaler.yaml")]) == 0
    (tmp_path / "hpa.yaml").write_text(capsys.readouterr().out)
    assert main.main(["boost", str(tmp_path / "hpa.yaml")]) == 0
    boosted = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [each["kind"] for each in boosted] == ["HorizontalPodAutoscaler"] * len(autoscalers_of(pack))


@pytest.mark.parametrize("pack", NAMES)
def test_a_pack_has_a_scenario_and_a_section_of_the_guide(pack: str) -> None:
    assert {case.autoscaler for case in SCENARIOS if case.pack == pack} == autoscalers_of(pack).keys()
    for file in ("rules.yaml", "autoscaler.yaml"):
        assert f"](../examples/packs/{pack}/{file})" in GUIDE
    rules = yaml.safe_load(rules_of(pack))
    for rule in (*rules.get("rules", []), *rules.get("externalRules", [])):
        metric = rule.get("name", {}).get("as") or re.match(r"\w+", rule["seriesQuery"])[0]  # type: ignore[index]
        assert f"`{metric}`" in GUIDE, metric


@pytest.fixture(scope="module")
def end() -> int:
    return recorded.now()


@pytest.fixture(scope="module")
def scraped(module_prometheus: PrometheusFactory, end: int) -> PrometheusServer:
    """Return a Prometheus that has scraped every recording up to its end."""
    with recorded.serving(ENDPOINTS, end) as recording:
        jobs = [each.scrape_config(recording.address) for each in ENDPOINTS]
        server = module_prometheus(jobs=jobs)
        assert recording.complete.wait(START_SECONDS), server.log()
    return server


def ask(server: PrometheusServer, promql: str, at: int) -> Outcome:
    return vector(*((each["metric"], float(each["value"][1])) for each in server.query(promql, at)), time=at)


def series_lists(server: PrometheusServer, pack: str, at: int) -> dict[str, Any]:
    """Return the series that each seriesQuery of a pack finds."""
    rules = yaml.safe_load(rules_of(pack))
    queries = [rule["seriesQuery"] for rule in (*rules.get("rules", []), *rules.get("externalRules", []))]
    return {query: series(*(each["metric"] for each in server.query(query, at))) for query in queries}


def selector_of(metric: MetricIdentifier) -> LabelSelector:
    labels = {} if metric.selector is None else metric.selector.match_labels or {}
    return parse_selector(",".join(f"{name}={value}" for name, value in labels.items()))


async def read(
    here: RulesWorld, autoscaler: FastPathAutoscaler, number: int, names: Sequence[str]
) -> observation.Reading:
    """Return what the provider answers for a metric of an autoscaler, as the controller reads it."""
    metric, namespace = metric_of(autoscaler, number), autoscaler.metadata.namespace
    selector = selector_of(metric)
    if (autoscaler.spec.metrics or ())[number].external is not None:
        external = await here.provider.external(ExternalQuestion(namespace, metric.name, selector))
        return observation.ExternalReading([each.milli for each in external.items])
    here.names.names_or_error = names
    question = CustomQuestion("pods", namespace, None, metric.name, EVERYTHING, selector)
    custom = await here.provider.custom(question)
    return observation.PodsReading({each.described.name: each.milli for each in custom.items})


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", SCENARIOS, ids=lambda case: f"{case.pack}-{case.autoscaler}-{case.replicas}")
async def test_a_pack_scales_as_computed_by_hand(scraped: PrometheusServer, end: int, case: Scenario) -> None:
    autoscaler = documents.read_document(autoscalers_of(case.pack)[case.autoscaler])
    lists = await asyncio.to_thread(series_lists, scraped, case.pack, end)
    readings = []
    async with world(
        rules_of(case.pack), answer=lambda promql: ask(scraped, promql, end), lists=lists
    ) as here:
        for number, expected in enumerate(case.values):
            names = list(expected) if isinstance(expected, Mapping) else ()
            reading = await read(here, autoscaler, number, names)
            if isinstance(expected, Mapping):
                assert isinstance(reading, observation.PodsReading)
                assert reading.values == {name: round(value * 1000) for name, value in expected.items()}
            else:
                assert isinstance(reading, observation.ExternalReading)
                assert reading.values == [round(expected * 1000)]
            readings.append(reading)

    known = dict.fromkeys(name for each in case.values if isinstance(each, Mapping) for name in each)
    listed = [pod(name) for name in known] or pods(case.replicas)
    spec = prepare(fastpath_autoscaler.with_defaults(autoscaler), LIVE)
    status = FROM_ZERO if case.replicas == 0 else observation.NO_STATUS
    seen = observation.Observation(case.replicas, case.replicas, "app=web", listed, readings, status)
    assert decide(spec, seen, History(), NOW).replicas == case.expected


# What the rules for HPAs say of objects: pack, resource, metric, and the value of the object shop/web.
OF_OBJECTS = [
    # 90 + 10 + 120 requests a second
    ("ingress-nginx", "ingresses.networking.k8s.io", "ingress_requests_per_second", 220),
    # 160 that arrive
    ("istio", "deployments.apps", "mesh_requests_per_second", 160),
]


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("pack", "resource", "metric", "value"), OF_OBJECTS)
async def test_objects_have_the_value_computed_by_hand(
    scraped: PrometheusServer, end: int, pack: str, resource: str, metric: str, value: float
) -> None:
    lists = await asyncio.to_thread(series_lists, scraped, pack, end)
    async with world(rules_of(pack), answer=lambda promql: ask(scraped, promql, end), lists=lists) as here:
        question = CustomQuestion(resource, "shop", "web", metric, EVERYTHING, EVERYTHING)
        (found,) = (await here.provider.custom(question)).items
    assert found.milli == value * 1000


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_an_endpoint_picker_without_a_request_has_none(scraped: PrometheusServer, end: int) -> None:
    lists = await asyncio.to_thread(series_lists, scraped, "llm-d", end)
    async with world(rules_of("llm-d"), answer=lambda promql: ask(scraped, promql, end), lists=lists) as here:
        asked = ExternalQuestion("idle", "inference_pool_requests", parse_selector("service=idle-epp"))
        (found,) = (await here.provider.external(asked)).items
    assert found.milli == 0


FROM_ZERO = HorizontalPodAutoscalerStatus(conditions=(Condition(SCALED_TO_ZERO, "True"),))
"""The status of an autoscaler that has scaled its target to zero."""

LABELS = {"namespace": "inference", "pod": "any"}
POD_SCENARIOS = [case for case in SCENARIOS if isinstance(case.values[0], Mapping)]


@pytest.mark.parametrize("case", POD_SCENARIOS, ids=lambda case: f"{case.pack}-{case.autoscaler}")
async def test_direct_scrapes_of_pods_give_the_same(case: Scenario) -> None:
    autoscaler = documents.read_document(autoscalers_of(case.pack)[case.autoscaler])
    metrics = [metric_of(autoscaler, number).name for number in range(len(case.values))]
    exposed = [each for each in ENDPOINTS if each.pack == case.pack and each.pod in case.values[0]]  # type: ignore[operator]
    shown = [scraped_pod(each.pod, f"10.0.0.{number}") for number, each in enumerate(exposed)]
    lists = {
        rule["seriesQuery"]: series({"__name__": str(named_series(rule["seriesQuery"])), **LABELS})
        for rule in yaml.safe_load(rules_of(case.pack))["rules"]
    }
    async with world(rules_of(case.pack), lists=lists) as here:
        here.scraped.want("x", "inference", metrics, shown)
        for before in (5, 4, 3, 2, 1, 0):
            here.reader.bodies = {
                target.ip: each.body(before) for target, each in zip(shown, exposed, strict=True)
            }
            await here.scrape()
            here.clock.advance(1.0)
        for metric, expected in zip(metrics, case.values, strict=True):
            assert isinstance(expected, Mapping)
            answer = read_scraped(here.scraped, "inference", metric, expected, EVERYTHING)
            assert answer is not None
            assert {name: found.value for name, found in answer.values.items()} == pytest.approx(expected)


ENDPOINT_SCENARIOS = [case for case in SCENARIOS if not isinstance(case.values[0], Mapping) and case.replicas]


@pytest.mark.parametrize("case", ENDPOINT_SCENARIOS, ids=lambda case: f"{case.pack}-{case.autoscaler}")
async def test_direct_scrapes_of_endpoints_give_the_same(case: Scenario) -> None:
    autoscaler = documents.read_document(autoscalers_of(case.pack)[case.autoscaler])
    metric, namespace = metric_of(autoscaler, 0), autoscaler.metadata.namespace
    async with world(rules_of(case.pack)) as here:
        here.scraped.want_endpoints("x", [metric.name])
        ((source, access),) = here.scraped.sources
        exposed = [
            each
            for each in ENDPOINTS
            if (each.pack, each.namespace) == (case.pack, source.namespace) and each.service == source.service
        ]
        found = [Endpoint(each.pod, f"10.0.0.{number}", 80) for number, each in enumerate(exposed)]
        here.scraped.put_endpoints((source, access), FoundEndpoints(tuple(found)))
        for before in (5, 4, 3, 2, 1, 0):
            here.reader.bodies = {
                endpoint.address: each.body(before) for endpoint, each in zip(found, exposed, strict=True)
            }
            await here.scrape()
            here.clock.advance(1.0)
        question = ExternalQuestion(namespace, metric.name, selector_of(metric))
        answer = await here.provider.external(question)
        assert [each.milli / 1000 for each in answer.items] == pytest.approx(case.values)
        assert here.querier.asked == [], "Prometheus was not needed"

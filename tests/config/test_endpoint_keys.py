"""The `scrape` key of an external rule: which endpoints it names, and what is refused."""

import pytest

from adapter.config.endpoint_keys import EndpointSource
from adapter.config.rules_file import Parsed, parse_rules
from adapter.config.scrape_keys import Access, Credentials, ScrapeConfig
from adapter.model.label_selectors import parse_selector

SERVICE = "service: {namespace: inference, name: gateway}"


def parse(scrape: str, section: str = "externalRules") -> Parsed:
    return parse_rules(f"{section}:\n- seriesQuery: x\n  scrape: {scrape}\n", "f.yaml")


@pytest.mark.parametrize(
    ("scrape", "config"),
    [
        pytest.param(
            f"{{port: metrics, {SERVICE}}}",
            ScrapeConfig(Access("metrics"), source=EndpointSource("inference", "gateway")),
            id="service",
        ),
        pytest.param(
            f"{{port: {'a' * 63}, {SERVICE}, honorLabels: true}}",
            ScrapeConfig(Access("a" * 63), source=EndpointSource("inference", "gateway", honor_labels=True)),
            id="the longest name of a Service's port",
        ),
        pytest.param(
            "{port: 9090, pods: {namespace: a, selector: 'app in (epp, x),tier!=dev'}, interval: 2s}",
            ScrapeConfig(
                Access("9090", interval=2, timeout=2),
                10,
                EndpointSource("a", "", parse_selector("app in (epp,x),tier!=dev")),
            ),
            id="pods",
        ),
        pytest.param(
            f"{{port: m, {SERVICE}, credentials: {{tokenFile: /t, namespaces: [inference, b]}}}}",
            ScrapeConfig(
                Access("m", credentials=Credentials("/t", frozenset({"inference", "b"}))),
                source=EndpointSource("inference", "gateway"),
            ),
            id="credentials",
        ),
    ],
)
def test_keys_that_are_read(scrape: str, config: ScrapeConfig) -> None:
    parsed = parse(scrape)

    assert parsed.faults == parsed.fatal == ()
    assert parsed.config.external_rules[0].scrape == config


_ONE = (
    "expected exactly one of service: {namespace, name} and pods: {namespace, selector}: they say where the "
    "series are"
)
_SELECTOR = "expected a label selector as for kubectl -l, such as app=epp"


@pytest.mark.parametrize(
    ("scrape", "said"),
    [
        pytest.param("{port: m}", f": neither service nor pods: {_ONE}", id="no endpoints"),
        pytest.param(
            f"{{port: m, {SERVICE}, pods: {{namespace: a, selector: b}}}}",
            f": both service and pods: {_ONE}",
            id="both",
        ),
        pytest.param(
            "{port: m, service: gateway}",
            '.service: "gateway": expected a mapping: service has namespace, name',
            id="service as text",
        ),
        pytest.param(
            "{port: m, service: {name: a}}",
            ".service.namespace: missing: expected the name of one namespace",
            id="no namespace",
        ),
        pytest.param(
            "{port: m, pods: {namespace: '*', selector: a=b}}",
            '.pods.namespace: "*": expected the name of one namespace',
            id="all namespaces",
        ),
        pytest.param(
            "{port: m, service: {namespace: a, name: a.b}}",
            '.service.name: "a.b": expected the name of a Service in that namespace',
            id="no name of a Service",
        ),
        pytest.param(
            "{port: m, pods: {namespace: a, selector: 'a=b=c'}}",
            f".pods.selector: \"a=b=c\": {_SELECTOR}: found '=', expected: ',' or 'end of string'",
            id="no selector",
        ),
        pytest.param(
            "{port: m, pods: {namespace: a}}",
            f".pods.selector: missing: {_SELECTOR}, which is not empty",
            id="every pod",
        ),
        pytest.param(
            f"{{{SERVICE}}}",
            ".port: missing: expected a port number, or the name of a port of the Service such as metrics",
            id="no port",
        ),
        pytest.param(
            f"{{port: {'a' * 64}, {SERVICE}}}",
            f'.port: "{"a" * 57}...": expected a port number, or the name of a port of the Service such as '
            "metrics",
            id="too long for a Service's port",
        ),
        pytest.param(
            f"{{port: {'a' * 16}, pods: {{namespace: a, selector: b}}}}",
            f'.port: "{"a" * 16}": expected a port number, or the name of a container port such as metrics',
            id="too long for a container's port",
        ),
        pytest.param(
            f"{{port: m, {SERVICE}, credentials: {{tokenFile: /t, namespaces: [b, a]}}}}",
            ".credentials.namespaces: a, b: expected inference among them: no other pods are scraped by this "
            "rule",
            id="a token for other namespaces",
        ),
        pytest.param(
            f"{{port: m, namespace: a, {SERVICE}}}",
            '.namespace: "a": belongs in service or pods',
            id="namespace in the wrong place",
        ),
    ],
)
def test_keys_that_are_refused(scrape: str, said: str) -> None:
    parsed = parse(scrape)

    assert [str(fault) for fault in parsed.faults] == [f"f.yaml:3: externalRules[0].scrape{said}"]
    assert parsed.config.external_rules == ()


@pytest.mark.parametrize(
    ("scrape", "said"),
    [
        (
            f"{{port: m, {SERVICE}}}",
            ".service: belongs on external rules: a rule in rules is read from the pods that it describes",
        ),
        (
            "{port: m, pods: {}}",
            ".pods: belongs on external rules: a rule in rules is read from the pods that it describes",
        ),
        (
            "{port: m, honorLabels: false}",
            '.honorLabels: "false": has no effect in rules: the series of a pod belong to that pod',
        ),
    ],
)
def test_a_rule_about_pods_names_no_endpoints(scrape: str, said: str) -> None:
    parsed = parse(scrape, "rules")

    assert [str(fault) for fault in parsed.faults] == [f"f.yaml:3: rules[0].scrape{said}"]


def test_a_source_says_where_it_is() -> None:
    assert str(EndpointSource("a", "b")) == "Service a/b"
    selected = EndpointSource("a", "", parse_selector("app=b"))
    assert str(selected) == "pods of namespace a with app=b"

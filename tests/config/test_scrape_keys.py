"""The `scrape` key of a rule: what it means, which endpoints an external rule names, and what is refused."""

import pytest

from adapter.config.rules_config import Access, Credentials, EndpointSource, EndpointTLS, Parsed, ScrapeConfig
from adapter.config.rules_file import parse_rules
from adapter.model.label_selectors import parse_selector
from tests.support.answers import answers

SERVICE = "service: {namespace: inference, name: gateway}"
EXTERNAL = "externalRules"
_NAME = "expected the name in the pods' certificates such as web.shop.svc"


def parse(scrape: str, section: str) -> Parsed:
    return parse_rules(f"{section}:\n- seriesQuery: x\n  scrape: {scrape}\n", "f.yaml")


def read(scrape: str, section: str = "rules") -> ScrapeConfig | None:
    parsed = parse(scrape, section)
    assert parsed.faults == parsed.fatal == ()
    (rule,) = (*parsed.config.rules, *parsed.config.external_rules)
    return rule.scrape


def refused(scrape: str, section: str = "rules") -> list[str]:
    """Return the faults without the place of the rule, which is left out."""
    parsed = parse(scrape, section)
    assert parsed.config.rules == parsed.config.external_rules == ()
    return [str(fault).removeprefix(f"f.yaml:3: {section}[0].scrape") for fault in parsed.faults]


@pytest.mark.parametrize(
    ("scrape", "config"),
    [
        ("{port: metrics}", ScrapeConfig(Access("metrics"))),
        (
            "{port: 8080, interval: 2s, path: '/m?name=x', hostNetwork: true}",
            ScrapeConfig(Access("8080", "/m?name=x", interval=2, timeout=2, host_network=True), 10),
        ),
        ("{port: a, interval: 1m}", ScrapeConfig(Access("a", interval=60, timeout=10), 300)),
        (
            (
                "{port: a, interval: 500ms, window: 1s, timeout: 100ms, maxBytes: 2048, maxLines: 10, "
                "maxSeries: 7}"
            ),
            ScrapeConfig(
                Access("a", interval=0.5, timeout=0.1, max_bytes=2048, max_lines=10, max_series=7), 1
            ),
        ),
        (
            "{port: a, scheme: https, tls: {caFile: /ca, serverName: s, insecureSkipVerify: true}}",
            ScrapeConfig(Access("a", scheme="https", tls=EndpointTLS("/ca", "s", verify=False))),
        ),
        ("{port: a, scheme: https, tls: {}}", ScrapeConfig(Access("a", scheme="https", tls=EndpointTLS()))),
        (
            "{port: a, credentials: {tokenFile: /etc/t, namespaces: [shop, b-1]}}",
            ScrapeConfig(Access("a", credentials=Credentials("/etc/t", frozenset({"shop", "b-1"})))),
        ),
        ("", None),
    ],
)
def test_keys_that_are_read(scrape: str, config: ScrapeConfig | None) -> None:
    assert read(scrape) == config


@pytest.mark.parametrize(
    ("scrape", "config"),
    [
        (
            f"{{port: metrics, {SERVICE}}}",
            ScrapeConfig(Access("metrics"), source=EndpointSource("inference", "gateway")),
        ),
        (
            f"{{port: {'a' * 63}, {SERVICE}, honorLabels: true}}",
            ScrapeConfig(Access("a" * 63), source=EndpointSource("inference", "gateway", honor_labels=True)),
        ),
        (
            "{port: 9090, pods: {namespace: a, selector: 'app in (epp, x),tier!=dev'}, interval: 2s}",
            ScrapeConfig(
                Access("9090", interval=2, timeout=2),
                10,
                EndpointSource("a", "", parse_selector("app in (epp,x),tier!=dev")),
            ),
        ),
        (
            f"{{port: m, {SERVICE}, credentials: {{tokenFile: /t, namespaces: [inference, b]}}}}",
            ScrapeConfig(
                Access("m", credentials=Credentials("/t", frozenset({"inference", "b"}))),
                source=EndpointSource("inference", "gateway"),
            ),
        ),
    ],
)
def test_keys_of_external_rules_that_are_read(scrape: str, config: ScrapeConfig) -> None:
    assert read(scrape, EXTERNAL) == config


@pytest.mark.parametrize("name", ["web.shop.svc", "WEB_1.shop", "10.0.0.1", "fd00::1"])
def test_the_name_in_certificates_is_a_host_name_or_an_address(name: str) -> None:
    config = ScrapeConfig(Access("a", scheme="https", tls=EndpointTLS("", name)))
    assert read(f"{{port: a, scheme: https, tls: {{serverName: '{name}'}}}}") == config


@pytest.mark.parametrize(
    "name",
    [".svc", "a..b", "web.", "x" * 64 + ".b", ".".join(["x" * 60] * 5), "a b", "-a", "[fd00::1]", "*.svc"],
)
def test_with_any_other_name_in_certificates_nothing_could_be_asked(name: str) -> None:
    (fault,) = refused(f"{{port: a, scheme: https, tls: {{serverName: '{name}'}}}}")
    assert fault.startswith(".tls.serverName: ")
    assert fault.endswith(_NAME)


@pytest.mark.parametrize(("scrape", "said"), answers("config/scrape_keys", "refused"))
def test_keys_that_are_refused(scrape: str, said: str) -> None:
    assert refused(scrape) == [said]


@pytest.mark.parametrize(("scrape", "said"), answers("config/scrape_keys", "refused in external rules"))
def test_keys_of_external_rules_that_are_refused(scrape: str, said: str) -> None:
    assert refused(scrape, EXTERNAL) == [said]


@pytest.mark.parametrize(("scrape", "said"), answers("config/scrape_keys", "no endpoints"))
def test_a_rule_about_pods_names_no_endpoints(scrape: str, said: str) -> None:
    assert refused(scrape) == [said]


def test_a_source_says_where_it_is() -> None:
    assert str(EndpointSource("a", "b")) == "Service a/b"
    selected = EndpointSource("a", "", parse_selector("app=b"))
    assert str(selected) == "pods of namespace a with app=b"

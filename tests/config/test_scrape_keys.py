"""The `scrape` key of a rule: what it means, which endpoints an external rule names, and what is refused."""

import pytest

from adapter.config.rules_config import Access, Credentials, EndpointSource, EndpointTLS, Parsed, ScrapeConfig
from adapter.config.rules_file import parse_rules
from adapter.model.label_selectors import parse_selector

SERVICE = "service: {namespace: inference, name: gateway}"
EXTERNAL = "externalRules"
_PORT = "expected a port number, or the name of a container port such as metrics"
_NAMESPACES = "expected a list of the namespaces whose pods may see the token"
_NAME = "expected the name in the pods' certificates such as web.shop.svc"
_PATH = "expected the path of a URL such as /metrics, with its query if it has one"
_ONE = (
    "expected exactly one of service: {namespace, name} and pods: {namespace, selector}: they say where the "
    "series are"
)
_SELECTOR = "expected a label selector as for kubectl -l, such as app=epp"
_EXTERNAL_ALONE = "belongs on external rules: a rule in rules is read from the pods that it describes"


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


@pytest.mark.parametrize(
    ("scrape", "said"),
    [
        (
            "yes",
            (
                ": yes: expected a mapping: scrape has interval, window, timeout, port, path, "
                "scheme, tls, "
                "credentials, hostNetwork, maxBytes, maxLines, maxSeries, service, pods, honorLabels"
            ),
        ),
        ("{}", f".port: missing: {_PORT}"),
        ("{port: 0}", f'.port: "0": {_PORT}'),
        ("{port: 65536}", f'.port: "65536": {_PORT}'),
        ("{port: 99999999999}", f'.port: "99999999999": {_PORT}'),
        ("{port: -x}", f'.port: "-x": {_PORT}'),
        ("{port: a-name-too-long-}", f'.port: "a-name-too-long-": {_PORT}'),
        ("{port: Metrics}", f'.port: "Metrics": {_PORT}'),
        ("{port: a, path: metrics}", f'.path: "metrics": {_PATH}'),
        ("{port: a, path: '/a b'}", f'.path: "/a b": {_PATH}'),
        ("{port: a, path: '/é'}", f'.path: "/é": {_PATH}'),
        ("{port: a, path: '/a#b'}", f'.path: "/a#b": {_PATH}'),
        ('{port: a, path: "/a\\u0001"}', f'.path: "/a\\u0001": {_PATH}'),
        ("{port: a, scheme: ftp}", '.scheme: "ftp": expected http or https'),
        (
            "{port: a, interval: 50ms}",
            '.interval: "50ms": expected a Go duration such as 500ms or 1m30s, from 100ms to 1m0s',
        ),
        (
            "{port: a, window: soon}",
            '.window: "soon": expected a Go duration such as 500ms or 1m30s, from 200ms to 10m0s',
        ),
        (
            "{port: a, window: 1.5s}",
            '.window: "1.5s": expected at least two intervals: a rate needs two scrapes',
        ),
        (
            "{port: a, timeout: 2s}",
            '.timeout: "2s": expected at most the interval: a pod is scraped by one request at a time',
        ),
        ("{port: a, maxLines: many}", '.maxLines: "many": expected a whole number from 10 to 1000000'),
        ("{port: a, maxBytes: 1}", '.maxBytes: "1": expected a whole number from 1024 to 16777216'),
        ("{port: a, tls: {}}", ".tls: has no effect without scheme: https"),
        (
            "{port: a, bearerTokenFile: /x}",
            (
                '.bearerTokenFile: "/x": expected credentials.tokenFile, with the namespaces '
                "whose pods may see the token"
            ),
        ),
        (
            "{port: a, credentials: {namespaces: [b]}}",
            ".credentials.tokenFile: missing: expected the absolute path of a file that holds a token",
        ),
        (
            "{port: a, credentials: {tokenFile: t, namespaces: [b]}}",
            '.credentials.tokenFile: "t": expected the absolute path of a file that holds a token',
        ),
        *(
            (
                f"{{port: a, credentials: {{tokenFile: {folder}/serviceaccount/token, namespaces: [b]}}}}",
                (
                    f'.credentials.tokenFile: "{folder}/serviceaccount/token": '
                    "the pod's own service account token is never sent to pods: expected another file"
                ),
            )
            for folder in ("/var/run/../run/secrets/kubernetes.io", "/run/secrets/kubernetes.io")
        ),
        ("{port: a, credentials: {tokenFile: /t}}", f".credentials.namespaces: missing: {_NAMESPACES}"),
        (
            "{port: a, credentials: {tokenFile: /t, namespaces: []}}",
            f".credentials.namespaces: an empty list: {_NAMESPACES}, each once and by its name",
        ),
        (
            "{port: a, credentials: {tokenFile: /t, namespaces: ['*']}}",
            f".credentials.namespaces: a list of 1: {_NAMESPACES}, each once and by its name",
        ),
        (
            "{port: a, credentials: {tokenFile: /t, namespaces: [b, [c]]}}",
            f".credentials.namespaces: a list of 2: {_NAMESPACES}, each once and by its name",
        ),
        (
            "{port: a, credentials: {tokenFile: /t, namespaces: shop}}",
            f'.credentials.namespaces: "shop": {_NAMESPACES}, each once and by its name',
        ),
        (
            "{port: a, credentials: token}",
            '.credentials: "token": expected a mapping: credentials has tokenFile, namespaces',
        ),
    ],
)
def test_keys_that_are_refused(scrape: str, said: str) -> None:
    assert refused(scrape) == [said]


@pytest.mark.parametrize(
    ("scrape", "said"),
    [
        ("{port: m}", f": neither service nor pods: {_ONE}"),
        (f"{{port: m, {SERVICE}, pods: {{namespace: a, selector: b}}}}", f": both service and pods: {_ONE}"),
        (
            "{port: m, service: gateway}",
            '.service: "gateway": expected a mapping: service has namespace, name',
        ),
        ("{port: m, service: {name: a}}", ".service.namespace: missing: expected the name of one namespace"),
        (
            "{port: m, pods: {namespace: '*', selector: a=b}}",
            '.pods.namespace: "*": expected the name of one namespace',
        ),
        (
            "{port: m, service: {namespace: a, name: a.b}}",
            '.service.name: "a.b": expected the name of a Service in that namespace',
        ),
        (
            "{port: m, pods: {namespace: a, selector: 'a=b=c'}}",
            f".pods.selector: \"a=b=c\": {_SELECTOR}: found '=', expected: ',' or 'end of string'",
        ),
        ("{port: m, pods: {namespace: a}}", f".pods.selector: missing: {_SELECTOR}, which is not empty"),
        (
            f"{{{SERVICE}}}",
            ".port: missing: expected a port number, or the name of a port of the Service such as metrics",
        ),
        (
            f"{{port: {'a' * 64}, {SERVICE}}}",
            (
                f'.port: "{"a" * 57}...": expected a port number, or the name of a port of the Service such '
                "as metrics"
            ),
        ),
        (
            f"{{port: {'a' * 16}, pods: {{namespace: a, selector: b}}}}",
            f'.port: "{"a" * 16}": expected a port number, or the name of a container port such as metrics',
        ),
        (
            f"{{port: m, {SERVICE}, credentials: {{tokenFile: /t, namespaces: [b, a]}}}}",
            (
                ".credentials.namespaces: a, b: expected inference among them: no other pods are scraped by "
                "this rule"
            ),
        ),
        (f"{{port: m, namespace: a, {SERVICE}}}", '.namespace: "a": belongs in service or pods'),
    ],
)
def test_keys_of_external_rules_that_are_refused(scrape: str, said: str) -> None:
    assert refused(scrape, EXTERNAL) == [said]


@pytest.mark.parametrize(
    ("scrape", "said"),
    [
        (f"{{port: m, {SERVICE}}}", f".service: {_EXTERNAL_ALONE}"),
        ("{port: m, pods: {}}", f".pods: {_EXTERNAL_ALONE}"),
        (
            "{port: m, honorLabels: false}",
            '.honorLabels: "false": has no effect in rules: the series of a pod belong to that pod',
        ),
    ],
)
def test_a_rule_about_pods_names_no_endpoints(scrape: str, said: str) -> None:
    assert refused(scrape) == [said]


def test_a_source_says_where_it_is() -> None:
    assert str(EndpointSource("a", "b")) == "Service a/b"
    selected = EndpointSource("a", "", parse_selector("app=b"))
    assert str(selected) == "pods of namespace a with app=b"

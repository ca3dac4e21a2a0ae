"""The `scrape` key of a rule: what it means and what is refused."""

import pytest

from adapter.config.rules_file import Parsed, parse_rules
from adapter.config.scrape_keys import Access, Credentials, EndpointTLS, ScrapeConfig


def parse(scrape: str) -> Parsed:
    return parse_rules(f"rules:\n- seriesQuery: x\n  scrape: {scrape}\n", "f.yaml")


@pytest.mark.parametrize(
    ("scrape", "config"),
    [
        pytest.param("{port: metrics}", ScrapeConfig(Access("metrics")), id="defaults"),
        pytest.param(
            "{port: 8080, interval: 2s, path: '/m?name=x', hostNetwork: true}",
            ScrapeConfig(Access("8080", "/m?name=x", interval=2, timeout=2, host_network=True), 10),
            id="window and timeout follow the interval",
        ),
        pytest.param(
            "{port: a, interval: 1m}",
            ScrapeConfig(Access("a", interval=60, timeout=10), 300),
            id="timeout has an end",
        ),
        pytest.param(
            "{port: a, interval: 500ms, window: 1s, timeout: 100ms, maxBytes: 2048, maxLines: 10, "
            "maxSeries: 7}",
            ScrapeConfig(
                Access("a", interval=0.5, timeout=0.1, max_bytes=2048, max_lines=10, max_series=7), 1
            ),
            id="limits",
        ),
        pytest.param(
            "{port: a, scheme: https, tls: {caFile: /ca, serverName: s, insecureSkipVerify: true}}",
            ScrapeConfig(Access("a", scheme="https", tls=EndpointTLS("/ca", "s", verify=False))),
            id="TLS",
        ),
        pytest.param(
            "{port: a, scheme: https, tls: {}}",
            ScrapeConfig(Access("a", scheme="https", tls=EndpointTLS())),
            id="empty TLS",
        ),
        pytest.param(
            "{port: a, credentials: {tokenFile: /etc/t, namespaces: [shop, b-1]}}",
            ScrapeConfig(Access("a", credentials=Credentials("/etc/t", frozenset({"shop", "b-1"})))),
            id="credentials",
        ),
        pytest.param("", None, id="null is no scraping"),
    ],
)
def test_keys_that_are_read(scrape: str, config: ScrapeConfig | None) -> None:
    parsed = parse(scrape)

    assert parsed.faults == parsed.fatal == ()
    assert parsed.config.rules[0].scrape == config


@pytest.mark.parametrize("name", ["web.shop.svc", "WEB_1.shop", "10.0.0.1", "fd00::1"])
def test_the_name_in_certificates_is_a_host_name_or_an_address(name: str) -> None:
    parsed = parse(f"{{port: a, scheme: https, tls: {{serverName: '{name}'}}}}")

    assert parsed.faults == ()
    assert parsed.config.rules[0].scrape == ScrapeConfig(
        Access("a", scheme="https", tls=EndpointTLS("", name))
    )


@pytest.mark.parametrize(
    "name",
    [".svc", "a..b", "web.", "x" * 64 + ".b", ".".join(["x" * 60] * 5), "a b", "-a", "[fd00::1]", "*.svc"],
)
def test_with_any_other_name_in_certificates_nothing_could_be_asked(name: str) -> None:
    parsed = parse(f"{{port: a, scheme: https, tls: {{serverName: '{name}'}}}}")

    (fault,) = parsed.faults
    assert str(fault).startswith("f.yaml:3: rules[0].scrape.tls.serverName: ")
    assert str(fault).endswith(_NAME)
    assert parsed.config.rules == ()


_PORT = "expected a port number, or the name of a container port such as metrics"
_NAMESPACES = "expected a list of the namespaces whose pods may see the token"
_NAME = "expected the name in the pods' certificates such as web.shop.svc"
_PATH = "expected the path of a URL such as /metrics, with its query if it has one"


@pytest.mark.parametrize(
    ("scrape", "said"),
    [
        pytest.param(
            "yes",
            "rules[0].scrape: yes: expected a mapping: scrape has interval, window, timeout, port, path, "
            "scheme, tls, "
            "credentials, hostNetwork, maxBytes, maxLines, maxSeries, service, pods, honorLabels",
            id="no mapping",
        ),
        pytest.param("{}", f"rules[0].scrape.port: missing: {_PORT}", id="no port"),
        pytest.param("{port: 0}", f'rules[0].scrape.port: "0": {_PORT}', id="port zero"),
        pytest.param("{port: 65536}", f'rules[0].scrape.port: "65536": {_PORT}', id="port too great"),
        pytest.param(
            "{port: 99999999999}", f'rules[0].scrape.port: "99999999999": {_PORT}', id="port far too great"
        ),
        pytest.param("{port: -x}", f'rules[0].scrape.port: "-x": {_PORT}', id="name begins with a dash"),
        pytest.param(
            "{port: a-name-too-long-}", f'rules[0].scrape.port: "a-name-too-long-": {_PORT}', id="long name"
        ),
        pytest.param("{port: Metrics}", f'rules[0].scrape.port: "Metrics": {_PORT}', id="capital"),
        pytest.param(
            "{port: a, path: metrics}", f'rules[0].scrape.path: "metrics": {_PATH}', id="relative path"
        ),
        pytest.param(
            "{port: a, path: '/a b'}", f'rules[0].scrape.path: "/a b": {_PATH}', id="blank in the path"
        ),
        pytest.param("{port: a, path: '/é'}", f'rules[0].scrape.path: "/é": {_PATH}', id="path not ASCII"),
        pytest.param("{port: a, path: '/a#b'}", f'rules[0].scrape.path: "/a#b": {_PATH}', id="fragment"),
        pytest.param(
            '{port: a, path: "/a\\u0001"}', f'rules[0].scrape.path: "/a\\u0001": {_PATH}', id="control"
        ),
        pytest.param(
            "{port: a, scheme: ftp}", 'rules[0].scrape.scheme: "ftp": expected http or https', id="scheme"
        ),
        pytest.param(
            "{port: a, interval: 50ms}",
            'rules[0].scrape.interval: "50ms": expected a Go duration such as 500ms or 1m30s, from 100ms to '
            "1m0s",
            id="interval",
        ),
        pytest.param(
            "{port: a, window: soon}",
            'rules[0].scrape.window: "soon": expected a Go duration such as 500ms or 1m30s, from 200ms to '
            "10m0s",
            id="window",
        ),
        pytest.param(
            "{port: a, window: 1.5s}",
            'rules[0].scrape.window: "1.5s": expected at least two intervals: a rate needs two scrapes',
            id="window of one interval",
        ),
        pytest.param(
            "{port: a, timeout: 2s}",
            'rules[0].scrape.timeout: "2s": expected at most the interval: a pod is scraped by one request '
            "at a time",
            id="timeout",
        ),
        pytest.param(
            "{port: a, maxLines: many}",
            'rules[0].scrape.maxLines: "many": expected a whole number from 10 to 1000000',
            id="lines",
        ),
        pytest.param(
            "{port: a, maxBytes: 1}",
            'rules[0].scrape.maxBytes: "1": expected a whole number from 1024 to 16777216',
            id="bytes",
        ),
        pytest.param(
            "{port: a, tls: {}}",
            "rules[0].scrape.tls: has no effect without scheme: https",
            id="TLS without https",
        ),
        pytest.param(
            "{port: a, bearerTokenFile: /x}",
            'rules[0].scrape.bearerTokenFile: "/x": expected credentials.tokenFile, with the namespaces '
            "whose pods may see the token",
            id="token in another system's words",
        ),
        pytest.param(
            "{port: a, credentials: {namespaces: [b]}}",
            "rules[0].scrape.credentials.tokenFile: missing: expected the absolute path of a file that "
            "holds a token",
            id="no token",
        ),
        pytest.param(
            "{port: a, credentials: {tokenFile: t, namespaces: [b]}}",
            'rules[0].scrape.credentials.tokenFile: "t": expected the absolute path of a file that holds a '
            "token",
            id="relative token",
        ),
        pytest.param(
            "{port: a, credentials: {tokenFile: "
            "/var/run/../run/secrets/kubernetes.io/serviceaccount/token, namespaces: [b]}}",
            "rules[0].scrape.credentials.tokenFile: "
            '"/var/run/../run/secrets/kubernetes.io/serviceaccount/token": '
            "the pod's own service account token is never sent to pods: expected another file",
            id="our own token",
        ),
        pytest.param(
            "{port: a, credentials: {tokenFile: /t}}",
            f"rules[0].scrape.credentials.namespaces: missing: {_NAMESPACES}",
            id="no namespaces",
        ),
        pytest.param(
            "{port: a, credentials: {tokenFile: /t, namespaces: []}}",
            f"rules[0].scrape.credentials.namespaces: a list of 0: {_NAMESPACES}, each once and by its name",
            id="empty namespaces",
        ),
        pytest.param(
            "{port: a, credentials: {tokenFile: /t, namespaces: ['*']}}",
            f"rules[0].scrape.credentials.namespaces: a list of 1: {_NAMESPACES}, each once and by its name",
            id="all namespaces",
        ),
        pytest.param(
            "{port: a, credentials: {tokenFile: /t, namespaces: [b, [c]]}}",
            f"rules[0].scrape.credentials.namespaces: a list of 2: {_NAMESPACES}, each once and by its name",
            id="list in the list",
        ),
        pytest.param(
            "{port: a, credentials: {tokenFile: /t, namespaces: shop}}",
            f'rules[0].scrape.credentials.namespaces: "shop": {_NAMESPACES}, each once and by its name',
            id="text for a list",
        ),
        pytest.param(
            "{port: a, credentials: token}",
            'rules[0].scrape.credentials: "token": expected a mapping: credentials has tokenFile, namespaces',
            id="credentials are text",
        ),
    ],
)
def test_keys_that_are_refused(scrape: str, said: str) -> None:
    parsed = parse(scrape)

    assert [str(fault).split(": ", 1)[1] for fault in parsed.faults] == [said]
    assert parsed.config.rules == ()

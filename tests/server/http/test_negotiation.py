"""Accept, Accept-Encoding, User-Agent, Audit-Id: what real clients send, and what anyone may."""

import pytest

from adapter.server.http import negotiation
from adapter.server.http.negotiation import Representation

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TABLE_BETA = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
ASKS = (negotiation.asks_nothing, negotiation.asks_aggregated, negotiation.asks_table)


@pytest.mark.parametrize(
    ("accept", "plain", "discovery", "table"),
    [
        ("", "", "", ""),
        ("application/vnd.kubernetes.protobuf, */*", "", "", ""),  # the HPA controller
        ("application/vnd.kubernetes.protobuf,application/json", "", "", ""),  # kubectl top
        ("application/json, */*", "", "", ""),
        (f"{TABLE},{TABLE_BETA},application/json", "", "", "v1"),  # kubectl get
        (f"{TABLE_BETA},application/json", "", "", "v1beta1"),
        ("application/*", "", "", ""),
        ("*/*", "", "", ""),
        ("Application/JSON", "", "", ""),
        ("application/json; charset=utf-8", "", "", ""),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "", "", ""),
        ("application/json;q=0.1", "", "", ""),
        ("application/vnd.kubernetes.protobuf", None, None, None),
        ("application/yaml", None, None, None),
        ("application/json;q=0", None, None, None),
        ("application/json;q=0.000, text/plain", None, None, None),
        ("text/*", None, None, None),
        (",", None, None, None),
        (f"{V2},{V2BETA1}", None, "aggregated", None),  # the discovery manager
        (f"{V2},{V2BETA1},application/json", "", "aggregated", ""),  # client-go
        ("application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", None, "aggregated", None),
        (f"application/json,{V2}", "", "", ""),
        (f"application/json;q=0.5,{V2}", "", "aggregated", ""),
        (f"{V2BETA1},application/json", "", "", ""),
        (V2BETA1, None, None, None),
        (f"{V2};q=0", None, None, None),
        (TABLE, None, None, "v1"),
        (f"application/json,{TABLE}", "", "", ""),
        (f"application/json;q=0.9,{TABLE}", "", "", "v1"),
        ("application/json;as=Table;v=v2;g=meta.k8s.io", None, None, None),
        ("application/json;as=Table;v=v1;g=meta", None, None, None),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", None, None, None),
        (f"{TABLE};q=0", None, None, None),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None, None, None),
    ],
)
def test_forms(accept: str, plain: str | None, discovery: str | None, table: str | None) -> None:
    forms = [negotiation.choose_form(accept, asks) for asks in ASKS]
    assert forms == [plain, discovery, table]


@pytest.mark.parametrize(
    ("name", "value", "pretty", "compressed"),
    [
        ("Accept-Encoding", "gzip", False, True),
        ("Accept-Encoding", "deflate, gzip;q=1.0", False, True),
        ("Accept-Encoding", "GZIP", False, True),
        ("Accept-Encoding", "", False, False),
        ("Accept-Encoding", "gzip;q=0", False, False),
        ("Accept-Encoding", "br", False, False),
        ("User-Agent", "curl/8.1", True, False),
        ("User-Agent", "Wget/1.21", True, False),
        ("User-Agent", "Mozilla/5.0 (X11)", True, False),
        ("User-Agent", "kubectl/v1.36", False, False),
        ("User-Agent", "", False, False),
        ("User-Agent", "xcurl", False, False),
    ],
)
def test_representation(name: str, value: str, *, pretty: bool, compressed: bool) -> None:
    assert negotiation.choose_representation({name: value}, None) == Representation(pretty, compressed)


@pytest.mark.parametrize(
    ("text", "echoed"),
    [
        ("0f9d4d4e-64b4-4b9c-9c93-2f0a7a6c4f2e", True),
        ("a", True),
        ("", False),
        ("a b", False),
        ("x" * 129, False),
        ("é", False),
        ("<script>", False),
        ("a\n", False),
    ],
)
def test_audit_id(text: str, echoed: bool) -> None:  # noqa: FBT001 - a column of a table
    assert bool(negotiation.AUDIT_ID.fullmatch(text)) is echoed


@pytest.mark.parametrize(
    ("header", "matches"),
    [
        ('"A"', True),
        ('"B", "A"', True),
        ('W/"A"', True),
        ("*", True),
        ('"B"', False),
        ("A", False),
        ("", False),
    ],
)
def test_etag(header: str, matches: bool) -> None:  # noqa: FBT001 - a column of a table
    assert negotiation.matches_etag(header, '"A"') is matches


@pytest.mark.parametrize("header", ["," * 60_000, "a/b," * 15_000 + "*/*", ";" * 60_000])
def test_a_header_that_takes_long_to_read_is_not_read_to_its_end(header: str) -> None:
    read = header[:4096]
    for asks in ASKS:
        assert negotiation.choose_form(header, asks) == negotiation.choose_form(read, asks)
    assert not negotiation.choose_representation({"Accept-Encoding": header + ",gzip"}, None).compressed
    assert negotiation.matches_etag(header + ',"A"', '"A"') is False


def test_what_is_remembered_of_headers_is_bounded() -> None:
    for number in range(300):
        headers = {"Accept": "*/*", "User-Agent": f"agent-{number}"}
        negotiation.choose_metrics_representation(headers, None, has_table=False)
    assert negotiation._choose_metrics_representation.cache_info().currsize <= 256


def test_what_comes_in_time_counts() -> None:
    assert negotiation.choose_form("a/b," * 1000 + "*/*", negotiation.asks_nothing) == ""
    assert negotiation.choose_form("a/b," * 1025 + "*/*", negotiation.asks_nothing) is None

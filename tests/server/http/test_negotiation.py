"""Accept, Accept-Encoding, User-Agent, Audit-Id: what real clients send, and what anyone may."""

import pytest

from adapter.server.http import negotiation

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TABLE_BETA = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "accepted"),
    [
        pytest.param("", True, id="none"),
        pytest.param("application/vnd.kubernetes.protobuf, */*", True, id="hpa"),
        pytest.param("application/vnd.kubernetes.protobuf,application/json", True, id="kubectl_top"),
        pytest.param("application/json, */*", True, id="kubectl_raw"),
        pytest.param(
            f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", True, id="get"
        ),
        pytest.param("application/*", True, id="any_application"),
        pytest.param("Application/JSON", True, id="any_case"),
        pytest.param("application/json; charset=utf-8", True, id="charset"),
        pytest.param("text/html,application/xhtml+xml,*/*;q=0.8", True, id="browser"),
        pytest.param("application/json;q=0.1", True, id="unloved"),
        pytest.param("application/vnd.kubernetes.protobuf", False, id="protobuf_only"),
        pytest.param("application/yaml", False, id="yaml"),
        pytest.param(TABLE, False, id="table_only"),
        pytest.param("application/json;q=0", False, id="refused"),
        pytest.param("application/json;q=0.000, text/plain", False, id="refused_with_digits"),
        pytest.param("text/*", False, id="text"),
        pytest.param(",", False, id="nothing_but_a_comma"),
    ],
)
def test_accepts_json(accept: str, accepted: bool) -> None:  # noqa: FBT001 - a column of a table
    assert negotiation.accepts_json(accept) is accepted


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        pytest.param("", "json", id="none"),
        pytest.param(f"{V2},{V2BETA1}", "aggregated", id="discovery_manager"),
        pytest.param(f"{V2},{V2BETA1},application/json", "aggregated", id="client_go"),
        pytest.param(
            "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", "aggregated", id="order"
        ),
        pytest.param(f"application/json,{V2}", "json", id="plain_first"),
        pytest.param(f"application/json;q=0.5,{V2}", "aggregated", id="quality"),
        pytest.param(f"{V2BETA1},application/json", "json", id="old_aggregated_passed_over"),
        pytest.param("*/*", "json", id="anything"),
        pytest.param(V2BETA1, None, id="old_aggregated_only"),
        pytest.param("application/yaml", None, id="yaml"),
        pytest.param(f"{V2};q=0", None, id="refused"),
    ],
)
def test_discovery_form(accept: str, form: str | None) -> None:
    assert negotiation.choose_discovery(accept) == form


@pytest.mark.parametrize(
    ("accept", "table"),
    [
        pytest.param("", "", id="none"),
        pytest.param(f"{TABLE},{TABLE_BETA},application/json", "v1", id="kubectl_get"),
        pytest.param(f"{TABLE_BETA},application/json", "v1beta1", id="older_kubectl"),
        pytest.param(f"application/json,{TABLE}", "", id="plain_first"),
        pytest.param(f"application/json;q=0.9,{TABLE}", "v1", id="quality"),
        pytest.param("application/vnd.kubernetes.protobuf, */*", "", id="hpa"),
        pytest.param("application/json;as=Table;v=v2;g=meta.k8s.io", None, id="a_version_of_the_future"),
        pytest.param("application/json;as=Table;v=v1;g=meta", None, id="another_group"),
        pytest.param(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", None, id="metadata_only"
        ),
        pytest.param(f"{TABLE};q=0", None, id="refused"),
        pytest.param("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None, id="protobuf"),
        pytest.param("application/yaml", None, id="yaml"),
    ],
)
def test_table(accept: str, table: str | None) -> None:
    assert negotiation.choose_table(accept) == table


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("deflate, gzip;q=1.0", True),
        ("GZIP", True),
        ("", False),
        ("gzip;q=0", False),
        ("br", False),
    ],
)
def test_accepts_gzip(header: str, accepted: bool) -> None:  # noqa: FBT001 - a column of a table
    assert negotiation.accepts_gzip(header) is accepted


@pytest.mark.parametrize(
    ("agent", "pretty"),
    [
        ("curl/8.1", True),
        ("Wget/1.21", True),
        ("Mozilla/5.0 (X11)", True),
        ("kubectl/v1.36", False),
        ("", False),
        ("xcurl", False),
    ],
)
def test_pretty_agent(agent: str, pretty: bool) -> None:  # noqa: FBT001 - a column of a table
    assert negotiation.is_pretty_agent(agent) is pretty


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
    for choose in (negotiation.accepts_json, negotiation.choose_discovery, negotiation.choose_table):
        assert choose(header) == choose(read)
    assert negotiation.accepts_gzip(header + ",gzip") is False
    assert negotiation.matches_etag(header + ',"A"', '"A"') is False
    assert all(
        each.cache_info().currsize <= 256
        for each in (
            negotiation._choose_discovery,
            negotiation._choose_representation,
            negotiation._choose_metrics_representation,
        )
    )


def test_what_comes_in_time_counts() -> None:
    assert negotiation.accepts_json("a/b," * 1000 + "*/*")
    assert not negotiation.accepts_json("a/b," * 1025 + "*/*")

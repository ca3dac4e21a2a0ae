"""Paths and query parameters of the metrics APIs: every form, and every way to be wrong."""

import contextlib
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model import field_selectors, label_selectors
from adapter.model.metrics import CustomQuestion, ExternalQuestion, ResourceQuestion
from adapter.server.api import paths, query_string
from adapter.server.api.paths import (
    CUSTOM_GROUP,
    EXTERNAL_GROUP,
    RESOURCE_GROUP,
    MetricRequest,
)
from adapter.server.api.query_string import CallOptions

EVERYTHING = label_selectors.EVERYTHING
WEB = label_selectors.parse_selector("app=web")


def parse(rest: str, group: str = CUSTOM_GROUP, version: str = "v1beta2") -> MetricRequest:
    return paths.parse_metric_path(
        group, version, paths.decode_segments(f"/apis/{group}/{version}/{rest}")[3:]
    )


def custom(
    form: str, namespace: str | None, resource: str, name: str | None, metric: str = "m"
) -> MetricRequest:
    return MetricRequest(form, CUSTOM_GROUP, "v1beta2", namespace, resource, name, metric)  # type: ignore[arg-type]  # a table's text


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("namespaces/ns/pods/web-1/m", custom("object", "ns", "pods", "web-1")),
        ("namespaces/ns/pods/*/m", custom("object", "ns", "pods", None)),
        ("namespaces/ns/pods/%2A/m", custom("object", "ns", "pods", None)),
        ("namespaces/ns/pods/%2a/m", custom("object", "ns", "pods", None)),
        ("n%61mespaces/ns/pods/a/m", custom("object", "ns", "pods", "a")),
        (
            "namespaces/ns/ingresses.networking.k8s.io/a/m",
            custom("object", "ns", "ingresses.networking.k8s.io", "a"),
        ),
        ("namespaces/ns/pod/a/m", custom("object", "ns", "pod", "a")),
        ("nodes/n1/m", custom("object", None, "nodes", "n1")),
        ("nodes/*/m", custom("object", None, "nodes", None)),
        ("metrics/a/m", custom("object", None, "metrics", "a")),
        ("namespaces/ns/metrics/m", custom("namespace", None, "namespaces", "ns")),
        ("namespaces/%2A/metrics/m", custom("namespace", None, "namespaces", None)),
        ("namespaces/*/metrics/m", custom("namespace", None, "namespaces", None)),
        ("namespaces/ns/pods/a/CamelCase:x", custom("object", "ns", "pods", "a", "CamelCase:x")),
        ("namespaces/ns/pods/a/gr%C3%BC%C3%9Fe", custom("object", "ns", "pods", "a", "grüße")),
        ("namespaces/ns/pods/a+b/m", custom("object", "ns", "pods", "a+b")),
        ("namespaces/*/pods/a/m", custom("object", "*", "pods", "a")),
        ("namespaces/%2A/pods/*/m", custom("object", "*", "pods", None)),
        ("namespaces/ns/pods/a/m/", custom("object", "ns", "pods", "a")),
        ("nodes/n1/m//", custom("object", None, "nodes", "n1")),
        ("namespaces/ns/metrics/m/x", custom("namespace", None, "namespaces", "ns")),
        ("namespaces/ns/status", custom("object", "ns", "namespaces", "ns", "status")),
        ("namespaces/ns/finalize/x/y", custom("object", "ns", "namespaces", "ns", "finalize")),
    ],
)
def test_custom_path(rest: str, expected: MetricRequest) -> None:
    assert parse(rest) == expected


@pytest.mark.parametrize(
    "rest",
    [
        "namespaces/ns/foo",
        "namespaces/*/foo",
        "namespaces/ns/metrics",
        "watch/nodes/n1",
        "proxy/namespaces/ns",
        "namespaces/ns/pods//m",
        "namespaces//pods/a/m",
        "namespaces/ns/pods/./m",
        "namespaces/ns/pods/../m",
        "namespaces/ns/pods/%2e%2E/m",
        "namespaces/ns/pods/a%252Fb/m",
        "namespaces/ns/pods/a%25/m",
        "namespaces/ns/pods/a%2/m",
        "namespaces/ns/pods/%zz/m",
        "namespaces/ns/pods/%ff/m",
        "namespaces/ns/pods/a%00/m",
    ],
)
def test_a_path_that_is_refused(rest: str) -> None:
    with pytest.raises(errors.BadRequestError, match=r"^invalid request path$"):
        parse(rest)


def test_an_external_path_without_a_namespace_is_refused() -> None:
    with pytest.raises(errors.BadRequestError):
        parse("namespaces//m", EXTERNAL_GROUP)


@pytest.mark.parametrize(
    ("group", "rest"),
    [
        (CUSTOM_GROUP, "nodes"),
        (CUSTOM_GROUP, "nodes/foo"),
        (CUSTOM_GROUP, "namespaces"),
        (CUSTOM_GROUP, "namespaces/ns"),
        (CUSTOM_GROUP, "namespaces/ns/pods/a"),
        (CUSTOM_GROUP, "namespaces/ns/pods/a/m/extra"),
        (CUSTOM_GROUP, "a/b/c/d"),
        (CUSTOM_GROUP, "/nodes/n1/m"),
        (CUSTOM_GROUP, "namespaces/ns/pods/a%2Fb/m"),
        (CUSTOM_GROUP, "namespaces/ns/pods%2Fa/m"),
        (CUSTOM_GROUP, "namespaces/ns//"),
        (CUSTOM_GROUP, "namespaces/ns/status/x"),
        (EXTERNAL_GROUP, "namespaces/ns/a%2Fb"),
        (EXTERNAL_GROUP, "m"),
        (EXTERNAL_GROUP, "namespaces/ns"),
        (EXTERNAL_GROUP, "namespaces/ns/pods/m"),
        (EXTERNAL_GROUP, "nodes/n1/m"),
        (RESOURCE_GROUP, "services"),
        (RESOURCE_GROUP, "pods/p1"),
        (RESOURCE_GROUP, "namespaces/ns"),
        (RESOURCE_GROUP, "namespaces/ns/nodes"),
        (RESOURCE_GROUP, "namespaces/ns/pods/p1/status"),
        (RESOURCE_GROUP, "namespaces//pods"),
        (RESOURCE_GROUP, "/"),
        (RESOURCE_GROUP, "watch/pods"),
    ],
)
def test_a_path_that_is_not_found(group: str, rest: str) -> None:
    with pytest.raises(errors.NotFoundError, match=r"^the server could not find the requested resource$"):
        parse(rest, group)


@pytest.mark.parametrize(
    ("rest", "metric"),
    [
        ("namespaces/ns/queue_depth", "queue_depth"),
        ("namespaces/ns/queue_depth/", "queue_depth"),
        ("namespaces/ns/status", "namespaces"),
        ("namespaces/ns/Queue%5FDepth", "Queue_Depth"),
        ("namespaces/ns/metrics", "metrics"),
    ],
)
def test_external_path(rest: str, metric: str) -> None:
    expected = MetricRequest("external", EXTERNAL_GROUP, "v1beta1", "ns", "", None, metric)
    assert parse(rest, EXTERNAL_GROUP, "v1beta1") == expected


@pytest.mark.parametrize(
    ("rest", "namespace", "resource", "name"),
    [
        ("nodes", None, "nodes", None),
        ("nodes/n1", None, "nodes", "n1"),
        ("pods", None, "pods", None),
        ("namespaces/ns/pods", "ns", "pods", None),
        ("namespaces/ns/pods/p%2B1", "ns", "pods", "p+1"),
        ("namespaces/ns/pods/", "ns", "pods", None),
        ("namespaces/*/pods/*", "*", "pods", "*"),
        ("namespaces/pods/pods/pods", "pods", "pods", "pods"),
    ],
)
def test_resource_path(rest: str, namespace: str | None, resource: str, name: str | None) -> None:
    expected = MetricRequest("resource", RESOURCE_GROUP, "v1beta1", namespace, resource, name, "")
    assert parse(rest, RESOURCE_GROUP, "v1beta1") == expected


def resource_question(rest: str, query: str = "") -> object:
    return query_string.build_question(
        parse(rest, RESOURCE_GROUP, "v1beta1"), query_string.parse_parameters(query)
    )


def test_resource_question() -> None:
    fields = field_selectors.parse_metadata("metadata.name=a")
    assert resource_question(
        "pods", "labelSelector=app%3Dweb&fieldSelector=metadata.name%3Da"
    ) == ResourceQuestion("pods", None, None, WEB, fields)
    assert resource_question("nodes/n", "labelSelector=a+in+b&fieldSelector=x&watch=1") == ResourceQuestion(
        "nodes", None, "n", EVERYTHING, field_selectors.EVERYTHING
    ), "of one object nothing is selected, and what selects means nothing"


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("labelSelector=a+in+b", 400, "unable to parse requirement: found 'b' expected: '('"),
        ("fieldSelector=a", 400, "invalid selector: 'a'; can't understand 'a'"),
        (
            "fieldSelector=spec.nodeName%3Da",
            400,
            '"spec.nodeName" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("watch=true", 405, 'watch is not supported on resources of kind "pods.metrics.k8s.io"'),
    ],
)
def test_resource_question_refused(query: str, code: int, message: str) -> None:
    with pytest.raises(errors.StatusError) as caught:
        resource_question("namespaces/ns/pods", query)
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/a/b?c=d", ("/a/b", "c=d")),
        ("/", ("/", "")),
        ("/a?b?c", ("/a", "b?c")),
        ("https://host:6443/a/b?c", ("/a/b", "c")),
        ("HTTPS://host", ("/", "")),
    ],
)
def test_split_target(target: str, expected: tuple[str, str]) -> None:
    assert paths.split_target(target) == expected


@pytest.mark.parametrize("target", ["*", "", "host:443", "ftp://host/a", "/grü", "apis"])
def test_split_target_refused(target: str) -> None:
    with pytest.raises(errors.BadRequestError):
        paths.split_target(target)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {}),
        ("labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29", {"labelSelector": "app=web,tier in (a,b)"}),
        ("labelSelector=a&labelSelector=b", {"labelSelector": "a"}),
        ("labelSelector=&labelSelector=b", {"labelSelector": ""}),
        ("metricLabelSelector=a%3Db", {"metricLabelSelector": "a=b"}),
        ("label%53elector=a", {"labelSelector": "a"}),
        ("labelSelector=a=b", {"labelSelector": "a=b"}),
        ("labelSelector=%zz&labelSelector=b", {"labelSelector": "b"}),
        ("labelSelector=a;b", {}),
        ("&&x&y=z", {}),
        (
            "limit=5&continue=x&resourceVersion=0&timeoutSeconds=&fieldSelector=a%3Db&sendInitialEvents=false",
            {
                "limit": "5",
                "continue": "x",
                "resourceVersion": "0",
                "timeoutSeconds": "",
                "fieldSelector": "a=b",
                "sendInitialEvents": "false",
            },
        ),
        ("watch=true", {"watch": "true"}),
        ("watch", {"watch": ""}),
        ("watch=FALSE", {"watch": "FALSE"}),
        ("watch=0", {"watch": "0"}),
    ],
)
def test_parameters(query: str, expected: dict[str, str]) -> None:
    assert query_string.parse_parameters(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", CallOptions()),
        ("labelSelector=a&limit=x", CallOptions()),
        ("pretty=1", CallOptions(pretty=True)),
        ("pretty=true", CallOptions(pretty=True)),
        ("pre%74ty=%74%72%75%65", CallOptions(pretty=True)),
        ("pretty=%74%72%75%65%20", CallOptions(pretty=False)),
        ("pretty=0", CallOptions(pretty=False)),
        ("pretty=yes", CallOptions(pretty=False)),
        pytest.param(f"pretty={'1' * 100_000}", CallOptions(pretty=False), id="long"),
        ("pretty", CallOptions()),
        ("pretty=%zz&pretty=1", CallOptions(pretty=True)),
        ("pretty=1;&pretty=0", CallOptions(pretty=False)),
        ("timeout=32s", CallOptions(timeout=32.0)),
        ("timeout=1m30.5s", CallOptions(timeout=90.5)),
        ("timeout=%31s&timeout=2s", CallOptions(timeout=1.0)),
        ("timeout=0s", CallOptions()),
        ("timeout=-5s", CallOptions()),
        ("watch=true", CallOptions(watch=True)),
        ("watch", CallOptions(watch=True)),
        ("watch=FALSE", CallOptions()),
        ("watch=%66%61%6C%73%65", CallOptions()),
        ("watch=false+", CallOptions(watch=True)),
        pytest.param(f"watch={'0' * 100_000}", CallOptions(watch=True), id="long watch"),
        ("watch=0", CallOptions()),
    ],
)
def test_call_options(query: str, expected: CallOptions) -> None:
    assert query_string.read_call_options(query) == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["watch", "w%61tch", "labelSelector", "label%53elector", "x", ""]),
            st.text("af0l%6es;=&+1 ", max_size=8),
        )
    )
)
def test_options_and_parameters_are_read_from_the_same_pairs(pairs: list[tuple[str, str]]) -> None:
    query = "&".join(f"{key}={value}" for key, value in pairs)
    decoded = dict(reversed(list(query_string.decode_pairs(query))))
    parameters = query_string.parse_parameters(query)
    assert parameters.get("labelSelector") == decoded.get("labelSelector")
    is_watch = query_string.is_watch(parameters)
    assert is_watch == query_string.read_call_options(query).watch
    assert is_watch == ("watch" in decoded and decoded["watch"].lower() not in {"0", "false"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("abc", 'time: invalid duration "abc"'),
        ("5", 'time: missing unit in duration "5"'),
        ("5x", 'time: unknown unit "x" in duration "5x"'),
        ("1h" * 60, "it is too long"),
    ],
)
def test_bad_timeout(text: str, sentence: str) -> None:
    message = f"^invalid timeout specified in the request URL - {sentence}$"
    with pytest.raises(errors.BadRequestError, match=message):
        query_string.read_call_options(f"timeout={text}")


def test_longer_targets_than_anyone_needs() -> None:
    assert paths.split_target("/livez?" + "&".join("a" * 1001)) == ("/livez", "&".join("a" * 1001))
    with pytest.raises(errors.BadRequestError, match="too many query parameters"):
        paths.split_target("/livez?" + "&".join("a" * 1002))
    assert paths.decode_segments("/a" * 100) == ("a",) * 100
    assert paths.decode_segments("/" + "a" * 16_383) == ("a" * 16_383,)
    for path in ("/a" * 101, "/" + "%41" * 5_462):
        with pytest.raises(errors.NotFoundError):
            paths.decode_segments(path)


LARGE = {
    "requirements": ",".join(["a"] * 4002),
    "values": "a in (" + ",".join(["b"] * 4000) + ")",
    "brackets": "(" * 4001,
    "operators": "!" * 4001,
    "length": " " * (32 * 1024 + 1),
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("parameter", ["labelSelector", "metricLabelSelector", "fieldSelector"])
@pytest.mark.parametrize(
    ("group", "version", "rest"),
    [
        (CUSTOM_GROUP, "v1beta2", "namespaces/n/pods/*/m"),
        (EXTERNAL_GROUP, "v1beta1", "namespaces/n/m"),
        (RESOURCE_GROUP, "v1beta1", "pods"),
        (RESOURCE_GROUP, "v1beta1", "nodes/n"),
    ],
)
def test_a_selector_that_is_too_large(group: str, version: str, rest: str, parameter: str, text: str) -> None:
    path = paths.parse_metric_path(group, version, rest.split("/"))
    parameters = query_string.parse_parameters(f"{parameter}={quote(text)}")
    with pytest.raises(errors.BadRequestError) as caught:
        query_string.build_question(path, parameters)
    assert caught.value.message == f"{parameter} is too large"


def test_a_large_selector_is_read() -> None:
    text = "app in (" + ",".join(f"web-{number}" for number in range(3000)) + ")"
    path = paths.parse_metric_path(CUSTOM_GROUP, "v1beta2", ["namespaces", "n", "pods", "*", "m"])
    question = query_string.build_question(path, {"labelSelector": text})
    assert isinstance(question, CustomQuestion)
    assert len(question.objects.requirements[0].values) == 3000


ALL_OF_WEB = {"labelSelector": "app=web"}


@pytest.mark.parametrize(
    ("rest", "parameters", "expected"),
    [
        (
            "namespaces/ns/pods/*/m",
            ALL_OF_WEB | {"metricLabelSelector": "verb=GET"},
            ("pods", "ns", None, "m", WEB, label_selectors.parse_selector("verb=GET")),
        ),
        ("namespaces/ns/pods/a/m", ALL_OF_WEB, ("pods", "ns", "a", "m", EVERYTHING, EVERYTHING)),
        ("nodes/*/m", ALL_OF_WEB, ("nodes", None, None, "m", WEB, EVERYTHING)),
        ("namespaces/ns/metrics/m", {}, ("namespaces", None, "ns", "m", EVERYTHING, EVERYTHING)),
        ("namespaces/ns/pods./a/m", {}, ("pods", "ns", "a", "m", EVERYTHING, EVERYTHING)),
        ("namespaces/ns/.apps/a/m", {}, (".apps", "ns", "a", "m", EVERYTHING, EVERYTHING)),
        ("namespaces/*/metrics/m", ALL_OF_WEB, ("namespaces", None, None, "m", WEB, EVERYTHING)),
        ("nodes/n/m", {"watch": "true"}, ("nodes", None, "n", "m", EVERYTHING, EVERYTHING)),
    ],
)
def test_custom_question(rest: str, parameters: dict[str, str], expected: tuple[object, ...]) -> None:
    question = query_string.build_question(parse(rest), parameters)
    assert isinstance(question, CustomQuestion)
    assert question == expected


def test_external_question() -> None:
    path = parse("namespaces/ns/Depth", EXTERNAL_GROUP, "v1beta1")
    parameters = {"labelSelector": "app=web", "metricLabelSelector": "(("}
    assert query_string.build_question(path, parameters) == ExternalQuestion("ns", "Depth", WEB)


@pytest.mark.parametrize(
    ("group", "rest", "parameters", "error"),
    [
        (CUSTOM_GROUP, "nodes/*/m", {"labelSelector": "a in b"}, errors.BadRequestError),
        (CUSTOM_GROUP, "nodes/n/m", {"labelSelector": "a in b"}, errors.BadRequestError),
        (CUSTOM_GROUP, "nodes/n/m", {"metricLabelSelector": "a in b"}, errors.PlainError),
        (
            EXTERNAL_GROUP,
            "namespaces/n/m",
            {"labelSelector": "a in b", "watch": "true"},
            errors.BadRequestError,
        ),
    ],
)
def test_bad_selector(
    group: str, rest: str, parameters: dict[str, str], error: type[errors.StatusError]
) -> None:
    with pytest.raises(error, match=r"unable to parse requirement: found 'b' expected: '\('"):
        query_string.build_question(parse(rest, group, "v1beta1"), parameters)


def test_watching_external_metrics() -> None:
    path = parse("namespaces/ns/m", EXTERNAL_GROUP, "v1beta1")
    with pytest.raises(errors.MethodNotAllowedError) as caught:
        query_string.build_question(path, {"watch": "true"})
    assert caught.value.message == 'watch is not supported on resources of kind "*.external.metrics.k8s.io"'
    assert caught.value.details == {"group": "external.metrics.k8s.io", "kind": "*"}


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_any_target_is_a_path_or_a_bad_request(text: str) -> None:
    try:
        path, query = paths.split_target(f"/apis/{CUSTOM_GROUP}/v1beta1/{text}")
        segments = paths.decode_segments(path)
        found = paths.parse_metric_path(CUSTOM_GROUP, "v1beta1", segments[3:])
        query_string.build_question(found, query_string.parse_parameters(query))
    except (errors.BadRequestError, errors.NotFoundError, errors.PlainError):
        return
    else:
        parts = (found.namespace, found.resource, found.name, found.metric)
        assert not any(
            part in {"", ".", ".."} or "/" in part or "%" in part for part in parts if part is not None
        )


@given(st.text())
def test_any_query_is_parsed_or_a_bad_request(query: str) -> None:
    assert isinstance(query_string.parse_parameters(query), dict)
    with contextlib.suppress(errors.BadRequestError):
        assert isinstance(query_string.read_call_options(query), CallOptions)

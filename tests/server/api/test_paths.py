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
        pytest.param("namespaces/ns/pods/web-1/m", custom("object", "ns", "pods", "web-1"), id="named"),
        pytest.param("namespaces/ns/pods/*/m", custom("object", "ns", "pods", None), id="wildcard"),
        pytest.param("namespaces/ns/pods/%2A/m", custom("object", "ns", "pods", None), id="wildcard_escaped"),
        pytest.param(
            "namespaces/ns/pods/%2a/m", custom("object", "ns", "pods", None), id="wildcard_escaped_lower"
        ),
        pytest.param("n%61mespaces/ns/pods/a/m", custom("object", "ns", "pods", "a"), id="keyword_escaped"),
        pytest.param(
            "namespaces/ns/ingresses.networking.k8s.io/a/m",
            custom("object", "ns", "ingresses.networking.k8s.io", "a"),
            id="group_after_first_dot",
        ),
        pytest.param("namespaces/ns/pod/a/m", custom("object", "ns", "pod", "a"), id="singular_as_spelled"),
        pytest.param("nodes/n1/m", custom("object", None, "nodes", "n1"), id="root_named"),
        pytest.param("nodes/*/m", custom("object", None, "nodes", None), id="root_wildcard"),
        pytest.param(
            "metrics/a/m", custom("object", None, "metrics", "a"), id="metrics_is_a_resource_at_the_root"
        ),
        pytest.param(
            "namespaces/ns/metrics/m", custom("namespace", None, "namespaces", "ns"), id="namespace"
        ),
        pytest.param(
            "namespaces/%2A/metrics/m", custom("namespace", None, "namespaces", None), id="all_namespaces"
        ),
        pytest.param(
            "namespaces/*/metrics/m", custom("namespace", None, "namespaces", None), id="all_namespaces_bare"
        ),
        pytest.param(
            "namespaces/ns/pods/a/CamelCase:x",
            custom("object", "ns", "pods", "a", "CamelCase:x"),
            id="case_of_metric_kept",
        ),
        pytest.param(
            "namespaces/ns/pods/a/gr%C3%BC%C3%9Fe", custom("object", "ns", "pods", "a", "grüße"), id="utf8"
        ),
        pytest.param(
            "namespaces/ns/pods/a+b/m", custom("object", "ns", "pods", "a+b"), id="plus_is_itself_in_a_path"
        ),
        pytest.param(
            "namespaces/*/pods/a/m",
            custom("object", "*", "pods", "a"),
            id="star_is_no_wildcard_for_namespaces",
        ),
        pytest.param("namespaces/%2A/pods/*/m", custom("object", "*", "pods", None), id="star_escaped"),
        pytest.param("namespaces/ns/pods/a/m/", custom("object", "ns", "pods", "a"), id="slash_at_the_end"),
        pytest.param("nodes/n1/m//", custom("object", None, "nodes", "n1"), id="slashes_at_the_end"),
        pytest.param(
            "namespaces/ns/metrics/m/x", custom("namespace", None, "namespaces", "ns"), id="namespace_deeper"
        ),
        pytest.param(
            "namespaces/ns/status",
            custom("object", "ns", "namespaces", "ns", "status"),
            id="part_of_a_namespace",
        ),
        pytest.param(
            "namespaces/ns/finalize/x/y",
            custom("object", "ns", "namespaces", "ns", "finalize"),
            id="part_of_a_namespace_deeper",
        ),
    ],
)
def test_custom_path(rest: str, expected: MetricRequest) -> None:
    assert parse(rest) == expected


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param("namespaces/ns/foo", id="two_segments"),
        pytest.param("namespaces/*/foo", id="two_segments_wildcard"),
        pytest.param("namespaces/ns/metrics", id="no_metric_of_a_namespace"),
        pytest.param("watch/nodes/n1", id="old_verb"),
        pytest.param("proxy/namespaces/ns", id="old_verb_before_a_namespace"),
        pytest.param("namespaces/ns/pods//m", id="empty_name"),
        pytest.param("namespaces//pods/a/m", id="empty_segment"),
        pytest.param("namespaces/ns/pods/./m", id="dot"),
        pytest.param("namespaces/ns/pods/../m", id="dots"),
        pytest.param("namespaces/ns/pods/%2e%2E/m", id="dots_escaped"),
        pytest.param("namespaces/ns/pods/a%252Fb/m", id="escaped_twice"),
        pytest.param("namespaces/ns/pods/a%25/m", id="percent"),
        pytest.param("namespaces/ns/pods/a%2/m", id="escape_cut_short"),
        pytest.param("namespaces/ns/pods/%zz/m", id="escape_not_hex"),
        pytest.param("namespaces/ns/pods/%ff/m", id="not_utf8"),
        pytest.param("namespaces/ns/pods/a%00/m", id="nul"),
    ],
)
def test_custom_path_refused(rest: str) -> None:
    with pytest.raises(errors.BadRequestError) as caught:
        parse(rest)
    assert caught.value.message == "invalid request path"


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param("nodes", id="one"),
        pytest.param("nodes/foo", id="no_metric"),
        pytest.param("namespaces", id="namespaces"),
        pytest.param("namespaces/ns", id="namespace_only"),
        pytest.param("namespaces/ns/pods/a", id="namespaced_without_metric"),
        pytest.param("namespaces/ns/pods/a/m/extra", id="too_deep"),
        pytest.param("a/b/c/d", id="four_at_the_root"),
        pytest.param("/nodes/n1/m", id="leading_slash"),
        pytest.param("namespaces/ns/pods/a%2Fb/m", id="slash_escaped"),
        pytest.param("namespaces/ns/pods%2Fa/m", id="slash_escaped_instead_of_one"),
        pytest.param("namespaces/ns//", id="slashes_instead_of_a_path"),
        pytest.param("namespaces/ns/status/x", id="part_of_a_namespace_too_short"),
    ],
)
def test_custom_path_not_found(rest: str) -> None:
    with pytest.raises(errors.NotFoundError) as caught:
        parse(rest)
    assert caught.value.message == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("rest", "metric"),
    [
        pytest.param("namespaces/ns/queue_depth", "queue_depth", id="plain"),
        pytest.param("namespaces/ns/queue_depth/", "queue_depth", id="slash_at_the_end"),
        pytest.param("namespaces/ns/status", "namespaces", id="part_of_a_namespace"),
        pytest.param("namespaces/ns/Queue%5FDepth", "Queue_Depth", id="as_spelled"),
        pytest.param("namespaces/ns/metrics", "metrics", id="no_reserved_word"),
    ],
)
def test_external_path(rest: str, metric: str) -> None:
    expected = MetricRequest("external", EXTERNAL_GROUP, "v1beta1", "ns", "", None, metric)
    assert parse(rest, EXTERNAL_GROUP, "v1beta1") == expected


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        pytest.param("namespaces/ns/a%2Fb", errors.NotFoundError, id="slash"),
        pytest.param("namespaces//m", errors.BadRequestError, id="empty_namespace"),
        pytest.param("m", errors.NotFoundError, id="root"),
        pytest.param("namespaces/ns", errors.NotFoundError, id="no_metric"),
        pytest.param("namespaces/ns/pods/m", errors.NotFoundError, id="deeper"),
        pytest.param("nodes/n1/m", errors.NotFoundError, id="root_object"),
    ],
)
def test_external_path_refused(rest: str, error: type[errors.StatusError]) -> None:
    with pytest.raises(error):
        parse(rest, EXTERNAL_GROUP, "v1beta1")


@pytest.mark.parametrize(
    ("rest", "namespace", "resource", "name"),
    [
        pytest.param("nodes", None, "nodes", None, id="nodes"),
        pytest.param("nodes/n1", None, "nodes", "n1", id="node"),
        pytest.param("pods", None, "pods", None, id="all_pods"),
        pytest.param("namespaces/ns/pods", "ns", "pods", None, id="pods"),
        pytest.param("namespaces/ns/pods/p%2B1", "ns", "pods", "p+1", id="pod"),
        pytest.param("namespaces/ns/pods/", "ns", "pods", None, id="trailing_slash"),
        pytest.param("namespaces/*/pods/*", "*", "pods", "*", id="a_star_is_a_name"),
        pytest.param("namespaces/pods/pods/pods", "pods", "pods", "pods", id="names_like_resources"),
    ],
)
def test_resource_path(rest: str, namespace: str | None, resource: str, name: str | None) -> None:
    expected = MetricRequest("resource", RESOURCE_GROUP, "v1beta1", namespace, resource, name, "")
    assert parse(rest, RESOURCE_GROUP, "v1beta1") == expected


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param("services", id="other_kind"),
        pytest.param("pods/p1", id="pod_without_a_namespace"),
        pytest.param("namespaces/ns", id="no_kind"),
        pytest.param("namespaces/ns/nodes", id="node_in_a_namespace"),
        pytest.param("namespaces/ns/pods/p1/status", id="subresource"),
        pytest.param("namespaces//pods", id="empty_segment"),
        pytest.param("/", id="empty_segments"),
        pytest.param("watch/pods", id="watch"),
    ],
)
def test_resource_path_not_found(rest: str) -> None:
    with pytest.raises(errors.NotFoundError) as caught:
        parse(rest, RESOURCE_GROUP, "v1beta1")
    assert caught.value.message == "the server could not find the requested resource"


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
        pytest.param("/a/b?c=d", ("/a/b", "c=d"), id="origin"),
        pytest.param("/", ("/", ""), id="root"),
        pytest.param("/a?b?c", ("/a", "b?c"), id="second_question_mark"),
        pytest.param("https://host:6443/a/b?c", ("/a/b", "c"), id="absolute"),
        pytest.param("HTTPS://host", ("/", ""), id="absolute_without_path"),
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
        pytest.param("", {}, id="none"),
        pytest.param(
            "labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29",
            {"labelSelector": "app=web,tier in (a,b)"},
            id="form",
        ),
        pytest.param("labelSelector=a&labelSelector=b", {"labelSelector": "a"}, id="first_wins"),
        pytest.param("labelSelector=&labelSelector=b", {"labelSelector": ""}, id="first_wins_though_empty"),
        pytest.param("metricLabelSelector=a%3Db", {"metricLabelSelector": "a=b"}, id="metric_selector"),
        pytest.param("label%53elector=a", {"labelSelector": "a"}, id="name_escaped"),
        pytest.param("labelSelector=a=b", {"labelSelector": "a=b"}, id="equals_in_value"),
        pytest.param(
            "labelSelector=%zz&labelSelector=b", {"labelSelector": "b"}, id="undecodable_pair_dropped"
        ),
        pytest.param("labelSelector=a;b", {}, id="semicolon_dropped"),
        pytest.param("&&x&y=z", {}, id="unknown_ignored"),
        pytest.param(
            "limit=5&continue=x&resourceVersion=0&timeoutSeconds=&fieldSelector=a%3Db&sendInitialEvents=false",
            {
                "limit": "5",
                "continue": "x",
                "resourceVersion": "0",
                "timeoutSeconds": "",
                "fieldSelector": "a=b",
                "sendInitialEvents": "false",
            },
            id="list_options",
        ),
        pytest.param("watch=true", {"watch": "true"}, id="watch"),
        pytest.param("watch", {"watch": ""}, id="watch_empty_is_true"),
        pytest.param("watch=FALSE", {"watch": "FALSE"}, id="watch_false"),
        pytest.param("watch=0", {"watch": "0"}, id="watch_0"),
    ],
)
def test_parameters(query: str, expected: dict[str, str]) -> None:
    assert query_string.parse_parameters(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("", CallOptions(), id="nothing"),
        pytest.param("labelSelector=a&limit=x", CallOptions(), id="other parameters"),
        pytest.param("pretty=1", CallOptions(pretty=True), id="pretty_1"),
        pytest.param("pretty=true", CallOptions(pretty=True), id="pretty_true"),
        pytest.param("pre%74ty=%74%72%75%65", CallOptions(pretty=True), id="pretty_escaped"),
        pytest.param("pretty=%74%72%75%65%20", CallOptions(pretty=False), id="pretty_and_a_blank"),
        pytest.param("pretty=0", CallOptions(pretty=False), id="pretty_0"),
        pytest.param("pretty=yes", CallOptions(pretty=False), id="pretty_not_a_bool"),
        pytest.param(f"pretty={'1' * 100_000}", CallOptions(pretty=False), id="pretty_long"),
        pytest.param("pretty", CallOptions(), id="pretty_empty"),
        pytest.param("pretty=%zz&pretty=1", CallOptions(pretty=True), id="undecodable_pair_dropped"),
        pytest.param("pretty=1;&pretty=0", CallOptions(pretty=False), id="semicolon_dropped"),
        pytest.param("timeout=32s", CallOptions(timeout=32.0), id="timeout"),
        pytest.param("timeout=1m30.5s", CallOptions(timeout=90.5), id="timeout_compound"),
        pytest.param("timeout=%31s&timeout=2s", CallOptions(timeout=1.0), id="timeout_first"),
        pytest.param("timeout=0s", CallOptions(), id="timeout_zero_is_no_wish"),
        pytest.param("timeout=-5s", CallOptions(), id="timeout_negative_is_no_wish"),
        pytest.param("watch=true", CallOptions(watch=True), id="watch"),
        pytest.param("watch", CallOptions(watch=True), id="watch_empty_is_true"),
        pytest.param("watch=FALSE", CallOptions(), id="watch_false"),
        pytest.param("watch=%66%61%6C%73%65", CallOptions(), id="watch_false_escaped"),
        pytest.param("watch=false+", CallOptions(watch=True), id="watch_false_and_a_blank"),
        pytest.param(f"watch={'0' * 100_000}", CallOptions(watch=True), id="watch_long"),
        pytest.param("watch=0", CallOptions(), id="watch_0"),
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
    decoded = dict(reversed(list(query_string._pairs(query))))
    parameters = query_string.parse_parameters(query)
    assert parameters.get("labelSelector") == decoded.get("labelSelector")
    is_watch = query_string.is_watch(parameters)
    assert is_watch == query_string.read_call_options(query).watch
    assert is_watch == ("watch" in decoded and decoded["watch"].lower() not in {"0", "false"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("abc", 'time: invalid duration "abc"', id="word"),
        pytest.param("5", 'time: missing unit in duration "5"', id="no_unit"),
        pytest.param("5x", 'time: unknown unit "x" in duration "5x"', id="unknown_unit"),
    ],
)
def test_bad_timeout(text: str, sentence: str) -> None:
    with pytest.raises(errors.BadRequestError) as caught:
        query_string.read_call_options(f"timeout={text}")
    assert caught.value.message == f"invalid timeout specified in the request URL - {sentence}"


def test_long_timeout() -> None:
    with pytest.raises(errors.BadRequestError, match="it is too long"):
        query_string.read_call_options(f"timeout={'1h' * 60}")


def test_more_parameters_than_anyone_needs() -> None:
    assert paths.split_target("/livez?" + "&".join("a" * 1001)) == ("/livez", "&".join("a" * 1001))
    with pytest.raises(errors.BadRequestError, match="too many query parameters"):
        paths.split_target("/livez?" + "&".join("a" * 1002))


def test_more_segments_than_anyone_needs() -> None:
    assert paths.decode_segments("/a" * 100) == ("a",) * 100
    with pytest.raises(errors.NotFoundError):
        paths.decode_segments("/a" * 101)


def test_a_longer_path_than_anyone_needs() -> None:
    assert paths.decode_segments("/" + "a" * 16_383) == ("a" * 16_383,)
    with pytest.raises(errors.NotFoundError):
        paths.decode_segments("/" + "%41" * 5_462)


LARGE = [
    pytest.param(",".join(["a"] * 4002), id="requirements"),
    pytest.param("a in (" + ",".join(["b"] * 4000) + ")", id="values"),
    pytest.param("(" * 4001, id="brackets"),
    pytest.param("!" * 4001, id="operators"),
    pytest.param(" " * (32 * 1024 + 1), id="length"),
]


@pytest.mark.parametrize("text", LARGE)
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


@pytest.mark.parametrize(
    ("rest", "parameters", "expected"),
    [
        pytest.param(
            "namespaces/ns/pods/*/m",
            {"labelSelector": "app=web", "metricLabelSelector": "verb=GET"},
            CustomQuestion("pods", "ns", None, "m", WEB, label_selectors.parse_selector("verb=GET")),
            id="wildcard",
        ),
        pytest.param(
            "namespaces/ns/pods/a/m",
            {"labelSelector": "app=web"},
            CustomQuestion("pods", "ns", "a", "m", EVERYTHING, EVERYTHING),
            id="label_selector_ignored_with_a_name",
        ),
        pytest.param(
            "nodes/*/m",
            {"labelSelector": "app=web"},
            CustomQuestion("nodes", None, None, "m", WEB, EVERYTHING),
            id="root",
        ),
        pytest.param(
            "namespaces/ns/metrics/m",
            {},
            CustomQuestion("namespaces", None, "ns", "m", EVERYTHING, EVERYTHING),
            id="namespace",
        ),
        pytest.param(
            "namespaces/ns/pods./a/m",
            {},
            CustomQuestion("pods", "ns", "a", "m", EVERYTHING, EVERYTHING),
            id="dot_without_a_group",
        ),
        pytest.param(
            "namespaces/ns/.apps/a/m",
            {},
            CustomQuestion(".apps", "ns", "a", "m", EVERYTHING, EVERYTHING),
            id="group_without_a_resource",
        ),
        pytest.param(
            "namespaces/*/metrics/m",
            {"labelSelector": "app=web"},
            CustomQuestion("namespaces", None, None, "m", WEB, EVERYTHING),
            id="all_namespaces",
        ),
        pytest.param(
            "nodes/n/m",
            {"watch": "true"},
            CustomQuestion("nodes", None, "n", "m", EVERYTHING, EVERYTHING),
            id="watch_means_nothing_here",
        ),
    ],
)
def test_custom_question(rest: str, parameters: dict[str, str], expected: CustomQuestion) -> None:
    assert query_string.build_question(parse(rest), parameters) == expected


def test_external_question() -> None:
    path = parse("namespaces/ns/Depth", EXTERNAL_GROUP, "v1beta1")
    assert query_string.build_question(
        path, {"labelSelector": "app=web", "metricLabelSelector": "(("}
    ) == ExternalQuestion("ns", "Depth", WEB)


PARSER_TEXT = "unable to parse requirement: found 'b' expected: '('"


@pytest.mark.parametrize(
    ("group", "rest", "parameters", "kind", "code", "reason"),
    [
        pytest.param(
            CUSTOM_GROUP,
            "nodes/*/m",
            {"labelSelector": "a in b"},
            errors.BadRequestError,
            400,
            "BadRequest",
            id="labels",
        ),
        pytest.param(
            CUSTOM_GROUP,
            "nodes/n/m",
            {"labelSelector": "a in b"},
            errors.BadRequestError,
            400,
            "BadRequest",
            id="labels_unused",
        ),
        pytest.param(
            CUSTOM_GROUP,
            "nodes/n/m",
            {"metricLabelSelector": "a in b"},
            errors.PlainError,
            500,
            "",
            id="metric_labels_plain_500",
        ),
        pytest.param(
            EXTERNAL_GROUP,
            "namespaces/n/m",
            {"labelSelector": "a in b", "watch": "true"},
            errors.BadRequestError,
            400,
            "BadRequest",
            id="external_labels_before_watch",
        ),
    ],
)
def test_bad_selector(
    group: str, rest: str, parameters: dict[str, str], kind: type[errors.StatusError], code: int, reason: str
) -> None:
    path = parse(rest, group, "v1beta1")
    with pytest.raises(kind) as caught:
        query_string.build_question(path, parameters)
    assert (caught.value.message, caught.value.code, caught.value.reason) == (PARSER_TEXT, code, reason)


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

"""The list options among the query parameters: which are refused, in which order and with which sentence."""

import pytest

from adapter import errors
from adapter.server.api import encoding, paths, query_string
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP

CUSTOM_REST = "namespaces/ns/pods/a/m"
EXTERNAL_REST = "namespaces/ns/m"


def refusal(group: str, rest: str, query: str) -> errors.StatusError | None:
    path = paths.parse_metric_path(group, "v1beta1", paths.decode_segments(f"/{rest}"))
    try:
        query_string.build_question(path, query_string.parse_parameters(query))
    except errors.StatusError as error:
        return error
    return None


@pytest.mark.parametrize(("group", "rest"), [(CUSTOM_GROUP, CUSTOM_REST), (EXTERNAL_GROUP, EXTERNAL_REST)])
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        pytest.param("limit=x", 'strconv.ParseInt: parsing "x": invalid syntax', id="limit"),
        pytest.param("limit=", 'strconv.ParseInt: parsing "": invalid syntax', id="limit_empty"),
        pytest.param(
            "timeoutSeconds=1.5", 'strconv.ParseInt: parsing "1.5": invalid syntax', id="timeout_seconds"
        ),
        pytest.param(
            "limit=9223372036854775808",
            'strconv.ParseInt: parsing "9223372036854775808": value out of range',
            id="limit_beyond_64_bits",
        ),
        pytest.param(
            f"limit={'9' * 5000}",
            f'strconv.ParseInt: parsing "{"9" * 5000}": value out of range',
            id="limit_of_many_digits",
        ),
        pytest.param(
            "limit=x&timeoutSeconds=y&labelSelector=%3D",
            'strconv.ParseInt: parsing "y": invalid syntax',
            id="timeout_seconds_before_limit_before_labels",
        ),
        pytest.param("fieldSelector=x", "invalid selector: 'x'; can't understand 'x'", id="fields"),
        pytest.param(
            "fieldSelector=x%3Dy",
            '"x" is not a known field selector: only "metadata.name", "metadata.namespace"',
            id="unknown_field",
        ),
    ],
)
def test_bad_request(group: str, rest: str, query: str, sentence: str) -> None:
    error = refusal(group, rest, query)
    assert error is not None
    assert (error.code, error.reason, error.message) == (400, "BadRequest", sentence)


@pytest.mark.parametrize(("group", "rest"), [(CUSTOM_GROUP, CUSTOM_REST), (EXTERNAL_GROUP, EXTERNAL_REST)])
@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=%2B5&continue=x",
        "timeoutSeconds=9223372036854775807",
        "allowWatchBookmarks=x",
        "fieldSelector=metadata.name%3Da",
        "fieldSelector=",
        "resourceVersion=1&resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    ],
)
def test_without_effect(group: str, rest: str, query: str) -> None:
    assert refusal(group, rest, query) is None


@pytest.mark.parametrize(
    ("rest", "query", "is_refused"),
    [
        pytest.param("nodes/*/m", "fieldSelector=metadata.name%3Da", True, id="one_of_all"),
        pytest.param("nodes/*/m", "fieldSelector=metadata.name%3D*", False, id="all"),
        pytest.param(
            "namespaces/ns/metrics/m", "fieldSelector=metadata.name%3Dns", False, id="the_namespace"
        ),
        pytest.param(
            "namespaces/ns/metrics/m", "fieldSelector=metadata.name%3Dm", True, id="another_namespace"
        ),
    ],
)
def test_a_field_selector_repeats_the_name(rest: str, query: str, *, is_refused: bool) -> None:
    assert (refusal(CUSTOM_GROUP, rest, query) is not None) is is_refused


FORBIDDEN_MATCH = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden"
FORBIDDEN_INITIAL = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden"
GATE = f"{FORBIDDEN_INITIAL} for watch unless the WatchList feature gate is enabled"
UNSUPPORTED = 'resourceVersionMatch: Unsupported value: "x": supported values: '


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        pytest.param(
            "resourceVersionMatch=Exact",
            f"{FORBIDDEN_MATCH} unless resourceVersion is provided",
            id="match_alone",
        ),
        pytest.param(
            "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
            f"{FORBIDDEN_MATCH} when continue is provided",
            id="match_and_continue",
        ),
        pytest.param(
            "resourceVersionMatch=Exact&resourceVersion=0",
            'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion '
            '"0"',
            id="exactly_any",
        ),
        pytest.param(
            "resourceVersionMatch=x",
            f'[{FORBIDDEN_MATCH} unless resourceVersion is provided, {UNSUPPORTED}"Exact", "NotOlderThan", '
            '""]',
            id="two_causes",
        ),
        pytest.param("sendInitialEvents=false", f"{FORBIDDEN_INITIAL} for list", id="initial_events"),
        pytest.param(
            "watch=1&sendInitialEvents=true",
            "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to "
            "NotOlderThan, "
            f"{GATE}]",
            id="watch_initial_events",
        ),
        pytest.param(
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            GATE,
            id="watch_initial_events_gate",
        ),
        pytest.param(
            "watch=1&resourceVersionMatch=x&continue=y",
            f"[{FORBIDDEN_MATCH} for watch unless sendInitialEvents is provided, "
            f'{UNSUPPORTED}"NotOlderThan", '
            f"{FORBIDDEN_MATCH} when continue is provided]",
            id="watch_match",
        ),
    ],
)
def test_options_of_an_external_list_that_do_not_go_together(query: str, sentence: str) -> None:
    error = refusal(EXTERNAL_GROUP, EXTERNAL_REST, query)
    assert error is not None
    assert (error.code, error.reason, error.message) == (
        422,
        "Invalid",
        f'ListOptions.meta.k8s.io "" is invalid: {sentence}',
    )
    assert refusal(CUSTOM_GROUP, CUSTOM_REST, query) is None, "upstream looks at them in external lists only"


def test_watching_an_external_list_comes_last() -> None:
    error = refusal(EXTERNAL_GROUP, EXTERNAL_REST, "watch=1&fieldSelector=x%3Dy")
    assert isinstance(error, errors.BadRequestError)


def test_the_body_of_an_invalid_list() -> None:
    error = refusal(EXTERNAL_GROUP, EXTERNAL_REST, "sendInitialEvents=1")
    assert error is not None
    assert encoding.encode_status(error).decode() == (
        '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        '"message":"ListOptions.meta.k8s.io \\"\\" is invalid: sendInitialEvents: Forbidden: '
        'sendInitialEvents is forbidden for list",'
        '"reason":"Invalid","details":{"group":"meta.k8s.io",'
        '"kind":"ListOptions","causes":[{"reason":"FieldValueForbidden",'
        '"message":"Forbidden: sendInitialEvents is forbidden for '
        'list","field":"sendInitialEvents"}]},"code":422}\n'
    )

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
        ("limit=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("limit=", 'strconv.ParseInt: parsing "": invalid syntax'),
        ("timeoutSeconds=1.5", 'strconv.ParseInt: parsing "1.5": invalid syntax'),
        ("limit=9223372036854775808", 'strconv.ParseInt: parsing "9223372036854775808": value out of range'),
        pytest.param(
            f"limit={'9' * 5000}",
            f'strconv.ParseInt: parsing "{"9" * 5000}": value out of range',
            id="many digits",
        ),
        ("limit=x&timeoutSeconds=y&labelSelector=%3D", 'strconv.ParseInt: parsing "y": invalid syntax'),
        ("fieldSelector=x", "invalid selector: 'x'; can't understand 'x'"),
        (
            "fieldSelector=x%3Dy",
            '"x" is not a known field selector: only "metadata.name", "metadata.namespace"',
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
        ("nodes/*/m", "fieldSelector=metadata.name%3Da", True),
        ("nodes/*/m", "fieldSelector=metadata.name%3D*", False),
        ("namespaces/ns/metrics/m", "fieldSelector=metadata.name%3Dns", False),
        ("namespaces/ns/metrics/m", "fieldSelector=metadata.name%3Dm", True),
    ],
)
def test_a_field_selector_repeats_the_name(rest: str, query: str, *, is_refused: bool) -> None:
    assert (refusal(CUSTOM_GROUP, rest, query) is not None) is is_refused


MATCH = "resourceVersionMatch: Forbidden:"
FORBIDDEN_MATCH = f"{MATCH} resourceVersionMatch is forbidden"
FORBIDDEN_INITIAL = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden"
GATE = f"{FORBIDDEN_INITIAL} for watch unless the WatchList feature gate is enabled"
UNSUPPORTED = 'resourceVersionMatch: Unsupported value: "x": supported values: '


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("resourceVersionMatch=Exact", f"{FORBIDDEN_MATCH} unless resourceVersion is provided"),
        (
            "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
            f"{FORBIDDEN_MATCH} when continue is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            f'{MATCH} resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            "resourceVersionMatch=x",
            (
                f"[{FORBIDDEN_MATCH} unless resourceVersion is provided, "
                f'{UNSUPPORTED}"Exact", "NotOlderThan", ""]'
            ),
        ),
        ("sendInitialEvents=false", f"{FORBIDDEN_INITIAL} for list"),
        (
            "watch=1&sendInitialEvents=true",
            f"[{MATCH} sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, {GATE}]",
        ),
        ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", GATE),
        (
            "watch=1&resourceVersionMatch=x&continue=y",
            (
                f"[{FORBIDDEN_MATCH} for watch unless sendInitialEvents is provided, "
                f'{UNSUPPORTED}"NotOlderThan", {FORBIDDEN_MATCH} when continue is provided]'
            ),
        ),
    ],
)
def test_options_of_an_external_list_that_do_not_go_together(query: str, sentence: str) -> None:
    error = refusal(EXTERNAL_GROUP, EXTERNAL_REST, query)
    assert error is not None
    assert (error.code, error.reason) == (422, "Invalid")
    assert error.message == f'ListOptions.meta.k8s.io "" is invalid: {sentence}'
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

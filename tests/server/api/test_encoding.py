"""Bodies byte for byte: the texts are upstream's."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model import label_selectors
from adapter.model.metrics import (
    CustomAnswer,
    CustomQuestion,
    ExternalAnswer,
    ExternalValue,
    MetricValue,
    ObjectReference,
)
from adapter.server.api import encoding

PIECE = 16_384
TIME = 1_743_508_800.0  # 2025-04-01T12:00:00Z
SERVICE = MetricValue(ObjectReference("Service", "somens", "somesvc", "/v1"), "ingress_hits", 1000, TIME)
NODE = MetricValue(ObjectReference("Node", "", "n1", "/v1"), "load", 250, TIME + 0.999)


def question(selector: str = "") -> CustomQuestion:
    return CustomQuestion(
        "services",
        "somens",
        None,
        "ingress_hits",
        label_selectors.EVERYTHING,
        label_selectors.parse_selector(selector),
    )


def custom(version: str, *items: MetricValue, selector: str = "") -> str:
    return b"".join(encoding.encode_custom(version, question(selector), CustomAnswer(items, 0.0))).decode()


def test_v1beta1_with_selector() -> None:
    assert custom("v1beta1", SERVICE, selector="param1=value1") == (
        '{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/'
        'v1beta1","metadata":{},"items":[{"describedObject":'
        '{"kind":"Service","namespace":"somens","name":"somesvc",'
        '"apiVersion":"/v1"},"metricName":"ingress_hits",'
        '"timestamp":"2025-04-01T12:00:00Z","value":"1","selector":{"matchLabels":{"param1":"value1"}}}]}\n'
    )


def test_v1beta2_with_selector() -> None:
    assert custom("v1beta2", SERVICE, selector="param1=value1") == (
        '{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/'
        'v1beta2","metadata":{},"items":[{"describedObject":'
        '{"kind":"Service","namespace":"somens","name":"somesvc",'
        '"apiVersion":"/v1"},"metric":{"name":"ingress_hits",'
        '"selector":{"matchLabels":{"param1":"value1"}}},"timestamp":"2025-04-01T12:00:00Z","value":"1"}]}\n'
    )


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_cluster_scoped_without_selector(version: str) -> None:
    [item] = json.loads(custom(version, NODE))["items"]
    assert item["describedObject"] == {"kind": "Node", "name": "n1", "apiVersion": "/v1"}
    assert item["value"] == "250m"
    assert item["timestamp"] == "2025-04-01T12:00:00Z", "cut, not rounded"
    assert (item if version == "v1beta1" else item["metric"])["selector"] is None
    assert not {"window", "windowSeconds"} & item.keys()


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_selector_fields_in_the_order_of_the_type(version: str) -> None:
    text = custom(version, SERVICE, selector="z=1,b=2,c in (y,x),!d")
    assert (
        '"selector":{"matchLabels":{"b":"2","z":"1"},"matchExpressions":[{"key":"c",'
        '"operator":"In","values":["x","y"]},'
        '{"key":"d","operator":"DoesNotExist"}]}' in text
    )


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_selector_the_api_cannot_say(version: str) -> None:
    with pytest.raises(errors.PlainError, match='"!=" is not a valid label selector operator'):
        custom(version, SERVICE, selector="a!=b")


def test_a_selector_the_api_cannot_say_needs_an_item() -> None:
    assert json.loads(custom("v1beta1", selector="a!=b"))["items"] == []


def test_empty_list_is_no_null() -> None:
    assert custom("v1beta2").endswith('"metadata":{},"items":[]}\n')
    assert b"".join(encoding.encode_external("v1beta1", ExternalAnswer((), 0))).endswith(
        b'"metadata":{},"items":[]}\n'
    )


def test_every_item_keeps_its_own_time() -> None:
    second = MetricValue(SERVICE.described, "ingress_hits", 1500, TIME + 61)
    items = json.loads(custom("v1beta1", SERVICE, second, SERVICE))["items"]
    assert [item["timestamp"][-9:] for item in items] == ["12:00:00Z", "12:01:01Z", "12:00:00Z"]


def test_external() -> None:
    value = ExternalValue("queue_consumer_lag", {"name": "q1", "__name__": "lag"}, 42_000, TIME)
    assert b"".join(encoding.encode_external("v1beta1", ExternalAnswer((value,), 0))).decode() == (
        '{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/'
        'v1beta1","metadata":{},"items":['
        '{"metricName":"queue_consumer_lag","metricLabels":{"__name__":"lag","name":"q1"},'
        '"timestamp":"2025-04-01T12:00:00Z","value":"42"}]}\n'
    )


@pytest.mark.parametrize(("labels", "expected"), [(None, "null"), ({}, "{}")], ids=["scalar", "no_labels"])
def test_external_labels(labels: dict[str, str] | None, expected: str) -> None:
    body = b"".join(
        encoding.encode_external("v1beta1", ExternalAnswer((ExternalValue("m", labels, 1, TIME),), 0))
    ).decode()
    assert f'"metricLabels":{expected},' in body


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            errors.NotFoundError("the server could not find the metric queue_len for pods a"),
            '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server '
            "could not find the "
            'metric queue_len for pods a","reason":"NotFound","code":404}',
            id="not_found",
        ),
        pytest.param(
            errors.NotFoundError('pods "web-1" not found', {"kind": "pods", "name": "web-1"}),
            '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods '
            '\\"web-1\\" not found",'
            '"reason":"NotFound","details":{"name":"web-1","kind":"pods"},"code":404}',
            id="details_in_the_order_of_the_type",
        ),
        pytest.param(
            errors.InternalError("unable to fetch metrics"),
            '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error '
            "occurred: "
            'unable to fetch metrics","reason":"InternalError","details":{"causes":[{"message":"unable to '
            'fetch metrics"}]},'
            '"code":500}',
            id="internal",
        ),
        pytest.param(
            errors.PlainError('"!=" is not a valid label selector operator'),
            '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"\\"!=\\" is not '
            "a valid label "
            'selector operator","code":500}',
            id="plain_has_no_reason",
        ),
        pytest.param(
            errors.TimeoutStatusError("Timeout: x", {}),
            '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: x",'
            '"reason":"Timeout","details":{},"code":504}',
            id="empty_details_are_written",
        ),
        pytest.param(
            errors.BadRequestError("a<b>&c\u2028\u2029"),
            '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
            '"message":"a\\u003cb\\u003e\\u0026c\\u2028\\u2029","reason":"BadRequest","code":400}',
            id="escaped_as_go_does",
        ),
    ],
)
def test_status(error: errors.StatusError, expected: str) -> None:
    assert encoding.encode_status(error).decode() == expected + "\n"


def test_unknown_details_are_a_mistake() -> None:
    with pytest.raises(Exception, match="unknown field"):
        encoding.encode_status(errors.NotFoundError("x", {"uid2": "y"}))


def test_indented() -> None:
    body = b"".join(
        encoding.encode_external("v1beta1", ExternalAnswer((ExternalValue("m", {}, 1500, TIME),), 0))
    )
    assert encoding.indent(body).decode() == (
        '{\n  "kind": "ExternalMetricValueList",\n  "apiVersion": "external.metrics.k8s.io/v1beta1",\n  '
        '"metadata": {},\n'
        '  "items": [\n    {\n      "metricName": "m",\n      "metricLabels": {},\n'
        '      "timestamp": "2025-04-01T12:00:00Z",\n      "value": "1500m"\n    }\n  ]\n}'
    )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (-0.5, "1969-12-31T23:59:59Z"),
        (1_700_000_000.9999, "2023-11-14T22:13:20Z"),
        (253_402_300_799.0, "9999-12-31T23:59:59Z"),
    ],
)
def test_time(seconds: float, expected: str) -> None:
    assert encoding.format_time(seconds) == expected


@given(st.dictionaries(st.text(), st.text()), st.integers(-(2**63), 2**63))
def test_whatever_the_labels_say_comes_back(labels: dict[str, str], milli: int) -> None:
    body = b"".join(
        encoding.encode_external(
            "v1beta1", ExternalAnswer((ExternalValue("m", labels, milli, TIME),), math.inf)
        )
    )
    [item] = json.loads(body)["items"]
    assert item["metricLabels"] == labels
    assert not {"<", ">", "&"} & set(body.decode())


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_long_list_comes_in_pieces(version: str) -> None:
    items = tuple(
        MetricValue(ObjectReference("Pod", "somens", f"pod{number}", "/v1"), "hits", number, TIME)
        for number in range(1_000)
    )
    pieces = list(encoding.encode_custom(version, question(), CustomAnswer(items, 0.0)))
    assert len(pieces) > 5
    assert max(map(len, pieces)) < PIECE + 500, "one member more than the limit at most"
    listed = json.loads(b"".join(pieces))["items"]
    assert [item["describedObject"]["name"] for item in listed] == [f"pod{number}" for number in range(1_000)]


@given(st.lists(st.integers(0, 40_000), max_size=12))
def test_no_piece_is_longer_than_the_limit_and_one_member(lengths: list[int]) -> None:
    values = tuple(ExternalValue("m", {"queue": "x" * length}, 1, TIME) for length in lengths)
    pieces = list(encoding.encode_external("v1beta1", ExternalAnswer(values, 0.0)))
    assert all(len(piece) <= PIECE + max(lengths, default=0) + 200 for piece in pieces)
    listed = json.loads(b"".join(pieces))["items"]
    assert [len(item["metricLabels"]["queue"]) for item in listed] == lengths


def test_the_time_of_an_answer_is_formatted_once() -> None:
    encoding.format_time.cache_clear()
    values = tuple(ExternalValue("m", {"queue": str(number)}, 1, TIME + number % 2) for number in range(100))
    b"".join(encoding.encode_external("v1beta1", ExternalAnswer(values, 0.0)))
    assert encoding.format_time.cache_info().misses == 2

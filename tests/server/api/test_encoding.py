"""Bodies byte for byte: the texts are upstream's."""

import json

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


SELECTOR = '"selector":{"matchLabels":{"param1":"value1"}}'
VALUE = '"timestamp":"2025-04-01T12:00:00Z","value":"1"'


@pytest.mark.parametrize(
    ("version", "rest"),
    [
        ("v1beta1", f'"metricName":"ingress_hits",{VALUE},{SELECTOR}'),
        ("v1beta2", f'"metric":{{"name":"ingress_hits",{SELECTOR}}},{VALUE}'),
    ],
)
def test_custom_with_selector(version: str, rest: str) -> None:
    assert custom(version, SERVICE, selector="param1=value1") == (
        f'{{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/{version}","metadata":{{}},"items":['
        '{"describedObject":{"kind":"Service","namespace":"somens","name":"somesvc","apiVersion":"/v1"},'
        f"{rest}}}]}}\n"
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
    for body in (custom("v1beta2"), external()):
        assert body.endswith('"metadata":{},"items":[]}\n')


def test_every_item_keeps_its_own_time() -> None:
    second = MetricValue(SERVICE.described, "ingress_hits", 1500, TIME + 61)
    items = json.loads(custom("v1beta1", SERVICE, second, SERVICE))["items"]
    assert [item["timestamp"][-9:] for item in items] == ["12:00:00Z", "12:01:01Z", "12:00:00Z"]


def external(*items: ExternalValue) -> str:
    return b"".join(encoding.encode_external("v1beta1", ExternalAnswer(items, 0.0))).decode()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (None, "null"),  # of a scalar
        ({}, "{}"),
        ({"name": "q1", "__name__": "lag"}, '{"__name__":"lag","name":"q1"}'),
    ],
)
def test_external(labels: dict[str, str] | None, expected: str) -> None:
    assert external(ExternalValue("lag", labels, 42_000, TIME)) == (
        '{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/v1beta1","metadata":{},'
        f'"items":[{{"metricName":"lag","metricLabels":{expected},'
        '"timestamp":"2025-04-01T12:00:00Z","value":"42"}]}\n'
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.NotFoundError("not found"), '"message":"not found","reason":"NotFound","code":404'),
        (  # details in the order of the type
            errors.NotFoundError('pods "a" not found', {"kind": "pods", "name": "a"}),
            (
                '"message":"pods \\"a\\" not found","reason":"NotFound",'
                '"details":{"name":"a","kind":"pods"},"code":404'
            ),
        ),
        (
            errors.InternalError("unable to fetch metrics"),
            (
                '"message":"Internal error occurred: unable to fetch metrics","reason":"InternalError",'
                '"details":{"causes":[{"message":"unable to fetch metrics"}]},"code":500'
            ),
        ),
        (errors.PlainError("without a reason"), '"message":"without a reason","code":500'),
        (
            errors.TimeoutStatusError("Timeout: x", {}),
            '"message":"Timeout: x","reason":"Timeout","details":{},"code":504',
        ),
        (
            errors.BadRequestError("a<b>&c\u2028\u2029"),
            '"message":"a\\u003cb\\u003e\\u0026c\\u2028\\u2029","reason":"BadRequest","code":400',
        ),
    ],
)
def test_status(error: errors.StatusError, expected: str) -> None:
    start = '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    assert encoding.encode_status(error).decode() == f"{start}{expected}}}\n"


def test_unknown_details_are_a_mistake() -> None:
    with pytest.raises(Exception, match="unknown field"):
        encoding.encode_status(errors.NotFoundError("x", {"uid2": "y"}))


def test_indented() -> None:
    body = b'{"kind":"x","items":[{"labels":{},"value":"1500m"}]}\n'
    assert encoding.indent(body).decode() == (
        '{\n  "kind": "x",\n  "items": [\n    {\n      "labels": {},\n      "value": "1500m"\n    }\n  ]\n}'
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
    body = external(ExternalValue("m", labels, milli, TIME))
    [item] = json.loads(body)["items"]
    assert item["metricLabels"] == labels
    assert not {"<", ">", "&"} & set(body)


@given(st.lists(st.integers(0, 40_000), max_size=12))
def test_no_piece_is_longer_than_the_limit_and_one_member(lengths: list[int]) -> None:
    values = tuple(ExternalValue("m", {"queue": "x" * length}, 1, TIME) for length in lengths)
    pieces = list(encoding.encode_external("v1beta1", ExternalAnswer(values, 0.0)))
    assert all(len(piece) <= PIECE + max(lengths, default=0) + 200 for piece in pieces)
    listed = json.loads(b"".join(pieces))["items"]
    assert [len(item["metricLabels"]["queue"]) for item in listed] == lengths


def test_the_time_of_an_answer_is_formatted_once() -> None:
    encoding._format_second.cache_clear()
    external(*(ExternalValue("m", {"queue": str(number)}, 1, TIME + number % 2) for number in range(100)))
    assert encoding._format_second.cache_info().misses == 2

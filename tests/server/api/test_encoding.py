"""Bodies: labels, times and pieces. Bodies byte for byte are in tests/server/transcripts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model import metrics
from adapter.model.objects import field_selectors, label_selectors
from adapter.server.api import encoding
from tests.support.answers import answers

PIECE = 16_384
TIME = 1_743_508_800.0  # 2025-04-01T12:00:00Z


def external(*items: metrics.ExternalValue) -> str:
    return b"".join(encoding.encode_external("v1beta1", metrics.ExternalAnswer(items, 0.0))).decode()


def test_a_long_list_of_usages_comes_in_pieces() -> None:
    usage = metrics.Usage(0, 0)
    items = tuple(
        metrics.ObjectUsage(
            "shop", f"web-{number}", {}, TIME, usage, (metrics.ContainerUsage("main", usage),)
        )
        for number in range(1_250)
    )
    asked = metrics.ResourceQuestion(
        "pods", None, None, label_selectors.EVERYTHING, field_selectors.EVERYTHING
    )
    pieces = list(
        encoding.encode_resource("v1beta1", asked, metrics.ResourceAnswer(items, 0.0, TIME, 0.0), None)
    )
    assert max(map(len, pieces)) < 100 * 300
    listed = json.loads(b"".join(pieces))["items"]
    assert [item["metadata"]["name"] for item in listed] == [item.name for item in items]


def test_unknown_details_are_a_mistake() -> None:
    with pytest.raises(Exception, match="unknown field"):
        encoding.encode_status(errors.NotFoundError("x", {"uid2": "y"}))


@pytest.mark.parametrize(("seconds", "expected"), answers("server/encoding", "time"))
def test_time(seconds: float, expected: str) -> None:
    assert encoding.format_time(seconds) == expected


@given(st.dictionaries(st.text(), st.text()), st.integers(-(2**63), 2**63))
def test_whatever_the_labels_say_comes_back(labels: dict[str, str], milli: int) -> None:
    body = external(metrics.ExternalValue("m", labels, milli, TIME))
    [item] = json.loads(body)["items"]
    assert item["metricLabels"] == labels
    assert not {"<", ">", "&"} & set(body)


@given(st.lists(st.integers(0, 40_000), max_size=12))
def test_no_piece_is_longer_than_the_limit_and_one_member(lengths: list[int]) -> None:
    values = tuple(metrics.ExternalValue("m", {"queue": "x" * length}, 1, TIME) for length in lengths)
    pieces = list(encoding.encode_external("v1beta1", metrics.ExternalAnswer(values, 0.0)))
    assert all(len(piece) <= PIECE + max(lengths, default=0) + 200 for piece in pieces)
    listed = json.loads(b"".join(pieces))["items"]
    assert [len(item["metricLabels"]["queue"]) for item in listed] == lengths

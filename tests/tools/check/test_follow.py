from typing import cast

import pytest

from adapter.errors import PrometheusError
from adapter.prometheus.series import SeriesLister
from fastpath_tools.check.follow import Explanation, Inquiry, NoValueError
from fastpath_tools.live.preview import SeriesLists
from fastpath_tools.live.servers import PrometheusReader
from tests.support.world import FakeLister, FakeQuerier, Outcome, partial, series, vector


def inquire(outcome: Outcome) -> Inquiry:
    lister = cast("SeriesLister", FakeLister({}))  # the seam is its one method
    prometheus = PrometheusReader(FakeQuerier(lambda _: outcome), lister, 1000.0, 90.0)
    lists: SeriesLists = {
        "hits": series({"__name__": "hits", "pod": "a"}),
        "broken": PrometheusError("timeout", "too slow"),
    }
    return Inquiry(prometheus, None, Explanation("hits"), lists, 15.0)


def test_a_story_as_text() -> None:
    explanation = Explanation("hits")
    explanation.section("first").extend(["a", "  b"])
    explanation.section("second")
    explanation.conclusion = "so it is"
    assert explanation.text() == "first\n  a\n    b\n\nsecond\n\nso it is\n"
    assert explanation.document() == {
        "metric": "hits",
        "steps": [{"title": "first", "lines": ["a", "b"]}, {"title": "second", "lines": []}],
        "served": False,
        "conclusion": "so it is",
    }


def test_labels() -> None:
    inquiry = inquire(vector())
    assert inquiry.labels("hits", "hits") == {"pod"}
    assert inquiry.labels("broken", "hits") == set()
    assert inquiry.look_back == "1m30s"


async def test_an_answer_is_reported() -> None:
    inquiry = inquire(vector(({"__name__": "hits", "pod": "a"}, 2.5)))
    lines: list[str] = []
    assert await inquiry.ask(lines, "sum(\n  hits)", accepts_warnings=False) is not None
    assert len(await inquiry.follow(lines, "hits")) == 1
    assert lines == ["query sum( hits)", "1 sample", "extra query hits", "{pod=a} 2.5"]
    assert inquiry.explanation.unreachable == []


async def test_no_answer_to_the_query_ends_the_explanation() -> None:
    inquiry = inquire(PrometheusError("timeout", "too slow"))
    lines: list[str] = []
    with pytest.raises(NoValueError) as ended:
        await inquiry.ask(lines, "hits", accepts_warnings=False)
    assert lines == ["query hits", "refused: too slow"]
    assert (
        str(ended.value) == "Prometheus does not answer the query (too slow): check its address and its load"
    )
    assert inquiry.explanation.unreachable == ["cannot query Prometheus: too slow"]


async def test_a_refused_query_is_no_failure_of_prometheus() -> None:
    inquiry = inquire(PrometheusError("query", "bad_data"))
    with pytest.raises(NoValueError):
        await inquiry.ask([], "hits", accepts_warnings=False)
    assert inquiry.explanation.unreachable == []


async def test_no_answer_to_a_further_query_counts_as_nothing() -> None:
    inquiry = inquire(PrometheusError("timeout", "too slow"))
    lines: list[str] = []
    assert await inquiry.follow(lines, "hits") == ()
    assert lines == ["extra query hits", "refused: too slow"]
    assert inquiry.explanation.conclusion == ""


async def test_an_answer_with_a_warning_needs_a_rule_that_accepts_it() -> None:
    inquiry = inquire(partial(({"pod": "a"}, 2.5)))
    lines: list[str] = []
    with pytest.raises(NoValueError) as ended:
        await inquiry.ask(lines, "hits", accepts_warnings=False)
    assert lines[-1] == "warning: receive series from store-1: Unavailable"
    assert str(ended.value).startswith("the answer has a warning (receive series from store-1: Unavailable)")
    assert await inquire(partial(({"pod": "a"}, 2.5))).ask([], "hits", accepts_warnings=True) is not None

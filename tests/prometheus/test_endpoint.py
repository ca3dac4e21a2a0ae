from typing import Literal
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.prometheus import endpoint
from adapter.prometheus.endpoint import PrometheusEndpoint
from tests.support.answers import answers


def test_names_are_sorted_and_brackets_encoded() -> None:
    request = PrometheusEndpoint("http://p").request("/api/v1/series", [("start", "1"), ("match[]", "up")])
    assert request.url == "http://p/api/v1/series?match%5B%5D=up&start=1"


@pytest.mark.parametrize(
    ("verb", "url"),
    [("GET", "http://p/api/v1/query?query=up&tenant=a+b"), ("POST", "http://p/api/v1/query?tenant=a+b")],
)
def test_extra_parameters_are_in_the_url(verb: Literal["GET", "POST"], url: str) -> None:
    assert (
        PrometheusEndpoint("http://p", verb=verb, params=(("tenant", "a b"),))
        .request("/api/v1/query", [("query", "up")])
        .url
        == url
    )


def test_a_get_that_would_be_too_long_is_a_post() -> None:
    place = PrometheusEndpoint("http://p", query="old=1", params=(("tenant", "t"),))
    fixed = len("http://p/api/v1/query?query=&tenant=t")
    longest = place.request("/api/v1/query", [("query", "x" * (endpoint.MAX_GET_LENGTH - fixed))])
    assert (longest.method, len(longest.url)) == ("GET", endpoint.MAX_GET_LENGTH)
    over = place.request("/api/v1/query", [("query", "x" * (endpoint.MAX_GET_LENGTH - fixed + 1))])
    assert (over.method, over.url) == ("POST", "http://p/api/v1/query?old=1&tenant=t")


@pytest.mark.parametrize(("seconds", "text"), answers("prometheus/endpoint", "times"))
def test_times(seconds: float, text: str) -> None:
    assert endpoint.format_time(seconds) == text


@given(
    query=st.text(st.characters(exclude_categories=["Cs"])),
    params=st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))),
)
def test_what_is_encoded_is_what_a_server_reads(query: str, params: list[tuple[str, str]]) -> None:
    method, url, body = PrometheusEndpoint("http://p", params=tuple(params)).request(
        "/api/v1/query", [("query", query)]
    )
    text = urlsplit(url).query if body is None else f"{urlsplit(url).query}&{body.decode()}"
    read = parse_qsl(text, keep_blank_values=True)
    assert sorted(read) == sorted([("query", query), *params])
    assert (method == "GET") == (body is None)

"""Headers that are too long or no text. What others mean is in tests/server/transcripts."""

import pytest

from adapter.server.http import negotiation

ASKS = (negotiation.asks_nothing, negotiation.asks_aggregated, negotiation.asks_table)


@pytest.mark.parametrize("header", ["," * 60_000, "a/b," * 15_000 + "*/*", ";" * 60_000])
def test_a_header_that_takes_long_to_read_is_not_read_to_its_end(header: str) -> None:
    read = header[:4096]
    for asks in ASKS:
        assert negotiation.choose_form(header, asks) == negotiation.choose_form(read, asks)
    assert not negotiation.choose_representation({"Accept-Encoding": header + ",gzip"}, None).compressed
    assert negotiation.matches_etag(header + ',"A"', '"A"') is False


@pytest.mark.parametrize("text", ["", "x" * 129, "a\n"])
def test_no_audit_id(text: str) -> None:
    assert negotiation.AUDIT_ID.fullmatch(text) is None


def test_without_headers() -> None:
    assert [negotiation.choose_form("", asks) for asks in ASKS] == ["", "", ""]
    assert not negotiation.matches_etag("", '"A"')


def test_what_comes_in_time_counts() -> None:
    assert negotiation.choose_form("a/b," * 1000 + "*/*", negotiation.asks_nothing) == ""
    assert negotiation.choose_form("a/b," * 1025 + "*/*", negotiation.asks_nothing) is None

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.timestamps import (
    SECOND,
    read_instant,
    read_span,
    span_of,
    write_fine_instant,
    write_instant,
    write_span,
)
from tests.support.answers import answers


@pytest.mark.parametrize(("text", "nanoseconds"), answers("model/timestamps", "instants"))
def test_reads_instants(text: str, nanoseconds: int) -> None:
    assert read_instant(text) == nanoseconds


@pytest.mark.parametrize("text", answers("model/timestamps", "refused instants"))
def test_an_invalid_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an RFC 3339 time"):
        read_instant(text)


@given(
    st.datetimes(
        min_value=dt.datetime(1, 1, 1),  # noqa: DTZ001 - bounds
        max_value=dt.datetime(9999, 12, 31),  # noqa: DTZ001 - bounds
        timezones=st.just(dt.UTC),
    )
)
def test_agrees_with_datetime(moment: dt.datetime) -> None:
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

    assert (
        read_instant(moment.isoformat())
        == (since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1000
    )


@given(st.text(max_size=30))
def test_any_text_is_an_instant_or_refused(text: str) -> None:
    try:
        read_instant(text)
    except ValueError as error:
        assert "RFC 3339" in str(error)  # noqa: PT017 - most texts raise


def test_spans() -> None:
    assert read_span("17.068s") == 17_068_000_000
    assert read_span("1m0s") == 60 * SECOND
    assert span_of(0.37) == 370_000_000
    with pytest.raises(ValueError, match="invalid duration"):
        read_span("soon")


def test_writing() -> None:
    assert write_instant(read_instant("2026-01-31T12:00:00.999Z")) == "2026-01-31T12:00:00Z"
    assert (
        write_fine_instant(read_instant("2026-01-31T12:00:00.000000999Z")) == "2026-01-31T12:00:00.000000999Z"
    )
    assert write_instant(-1) == "1969-12-31T23:59:59Z"
    assert (write_span(SECOND // 10), write_span(90 * SECOND)) == ("100ms", "1m30s")


@given(st.datetimes(min_value=dt.datetime(1, 1, 1), max_value=dt.datetime(9999, 12, 31)))  # noqa: DTZ001 - bounds
def test_a_written_instant_is_read_again(moment: dt.datetime) -> None:
    instant = read_instant(moment.isoformat() + "Z")
    assert read_instant(write_fine_instant(instant)) == instant
    assert read_instant(write_instant(instant)) == instant // SECOND * SECOND

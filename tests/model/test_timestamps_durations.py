"""Cases marked Go are outputs of Go's own package time; the others follow from prometheus/common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import timestamps
from tests.support.answers import answers

MANY = "9" * 5000
"""More digits than Python reads."""


@pytest.mark.parametrize(("text", "seconds"), answers("model/durations", "go"))
def test_parse_go_duration(text: str, seconds: float) -> None:
    assert timestamps.parse_go_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [*answers("model/durations", "refused by go"), (f"{MANY}s", f'time: invalid duration "{MANY}s"')],
)
def test_parse_go_duration_refuses_in_the_words_of_go(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is compared whole below
        timestamps.parse_go_duration(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(("seconds", "text"), answers("model/durations", "formatted"))
def test_format_go_duration(seconds: float, text: str) -> None:
    assert timestamps.format_go_duration(seconds) == text


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_a_formatted_duration_reads_back(microseconds: int) -> None:
    text = timestamps.format_go_duration(microseconds / 1_000_000)
    assert timestamps.parse_go_duration(text) == microseconds / 1_000_000


@given(st.text(alphabet="0123456789.-+hmsunµμ ywd") | st.text())
def test_go_durations_are_read_or_refused(text: str) -> None:
    try:
        seconds = timestamps.parse_go_duration(text)
    except ValueError as error:
        assert str(error).startswith("time: ")  # noqa: PT017 - either outcome is right, any other exception is not
    else:
        assert abs(seconds) <= 2**63 / 1e9


@pytest.mark.parametrize(("text", "seconds"), answers("model/durations", "prometheus"))
def test_parse_prometheus_duration(text: str, seconds: float) -> None:
    assert timestamps.parse_prometheus_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [*answers("model/durations", "refused by prometheus"), (f"{MANY}s", "duration out of range")],
)
def test_parse_prometheus_duration_refuses_in_the_words_of_prometheus(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is compared whole below
        timestamps.parse_prometheus_duration(text)
    assert str(caught.value) == sentence


@given(
    st.dictionaries(
        st.sampled_from(["y", "w", "d", "h", "m", "s", "ms"]), st.integers(min_value=0, max_value=40)
    )
)
def test_prometheus_durations_add_up(counts: dict[str, int]) -> None:
    sizes = {"y": 31_536_000.0, "w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    text = "".join(f"{counts[unit]}{unit}" for unit in sizes if unit in counts)
    if text:
        expected = (
            sum(counts[unit] * round(size * 1000) for unit, size in sizes.items() if unit in counts) / 1000
        )
        assert timestamps.parse_prometheus_duration(text) == expected


@given(st.text(alphabet="0123456789ywdhms") | st.text())
def test_prometheus_durations_are_read_or_refused(text: str) -> None:
    try:
        assert timestamps.parse_prometheus_duration(text) >= 0
    except ValueError as error:
        assert "duration" in str(error)  # noqa: PT017 - either outcome is right, any other exception is not

"""Cases marked Go are outputs of Go's own package time; the others follow from prometheus/common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import timestamps

GO_DURATIONS = [
    ("0", 0.0),
    ("+0", 0.0),
    ("-0", 0.0),
    ("0s", 0.0),
    ("5s", 5.0),
    ("+5s", 5.0),
    ("-5s", -5.0),
    ("1h30m", 5400.0),
    ("1.5s", 1.5),
    (".5s", 0.5),
    ("5.s", 5.0),
    ("1h15m30.918273645s", 4530.918273645),
    ("10ms", 0.01),
    ("3us", 3e-6),
    ("3\u00b5s", 3e-6),
    ("3\u03bcs", 3e-6),
    ("7ns", 7e-9),
    ("1m1m", 120.0),
    ("39h9m14.425s", 140954.425),
    ("0.3333333333333333333h", 1200.0),
    ("0.100000000000000000000h", 360.0),
    ("0.830103483285477580700h", 2988.372539827),
    ("2562047h47m16.854775807s", 9223372036.854775807),
    ("-2562047h47m16.854775808s", -9223372036.854775808),
]

GO_REFUSALS = [
    ("", 'time: invalid duration ""'),
    ("3", 'time: missing unit in duration "3"'),
    ("1h5", 'time: missing unit in duration "1h5"'),
    ("-", 'time: invalid duration "-"'),
    ("+", 'time: invalid duration "+"'),
    ("s", 'time: invalid duration "s"'),
    (".", 'time: invalid duration "."'),
    (".s", 'time: invalid duration ".s"'),
    ("-.s", 'time: invalid duration "-.s"'),
    ("--1s", 'time: invalid duration "--1s"'),
    (" 1s", 'time: invalid duration " 1s"'),
    ("1d", 'time: unknown unit "d" in duration "1d"'),
    ("1s ", 'time: unknown unit "s " in duration "1s "'),
    ("1é", r'time: unknown unit "\xc3\xa9" in duration "1\xc3\xa9"'),
    ('1"\\\n', r'time: unknown unit "\"\\\x0a" in duration "1\"\\\x0a"'),
    ("9223372036854775809ns", 'time: invalid duration "9223372036854775809ns"'),
    ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
    ("2562047h47m16.854775808s", 'time: invalid duration "2562047h47m16.854775808s"'),
    ("3000000h", 'time: invalid duration "3000000h"'),
    ("-9223372036854775809ns", 'time: invalid duration "-9223372036854775809ns"'),
    ("9" * 5000 + "s", f'time: invalid duration "{"9" * 5000}s"'),
]


@pytest.mark.parametrize(("text", "seconds"), GO_DURATIONS, ids=[text for text, _ in GO_DURATIONS])
def test_parse_go_duration(text: str, seconds: float) -> None:
    assert timestamps.parse_go_duration(text) == seconds


@pytest.mark.parametrize(("text", "sentence"), GO_REFUSALS, ids=[text[:30] for text, _ in GO_REFUSALS])
def test_parse_go_duration_refuses_in_the_words_of_go(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the sentence is compared whole below
        timestamps.parse_go_duration(text)
    assert str(caught.value) == sentence


FORMATTED = [
    (0.0, "0s"),
    (-0.0, "0s"),
    (1e-9, "1ns"),
    (1.1e-6, "1.1\u00b5s"),
    (2.2e-3, "2.2ms"),
    (0.25, "250ms"),
    (0.999999999, "999.999999ms"),
    (3.3, "3.3s"),
    (30.0, "30s"),
    (60.0, "1m0s"),
    (245.0, "4m5s"),
    (245.001, "4m5.001s"),
    (3600.0, "1h0m0s"),
    (18367.001, "5h6m7.001s"),
    (-90.0, "-1m30s"),
    (9223372036.0, "2562047h47m16s"),
]


@pytest.mark.parametrize(("seconds", "text"), FORMATTED, ids=[text for _, text in FORMATTED])
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


PROMETHEUS_DURATIONS = [
    ("0", 0.0),
    ("0w", 0.0),
    ("0s", 0.0),
    ("324ms", 0.324),
    ("3s", 3.0),
    ("5m", 300.0),
    ("1h", 3600.0),
    ("4d", 345600.0),
    ("4d1h", 349200.0),
    ("14d", 1209600.0),
    ("3w", 1814400.0),
    ("3w2d1h", 1990800.0),
    ("10y", 315360000.0),
    ("1y2w3d4h5m6s7ms", 33019506.007),
    ("292y", 292 * 31536000.0),
    ("00001m", 60.0),
]

PROMETHEUS_REFUSALS = [
    ("", "empty duration string"),
    ("1", 'not a valid duration string: "1"'),
    ("00", 'not a valid duration string: "00"'),
    ("-1w", 'not a valid duration string: "-1w"'),
    ("1.5d", 'not a valid duration string: "1.5d"'),
    ("d", 'not a valid duration string: "d"'),
    ("1s1m", 'not a valid duration string: "1s1m"'),
    ("1m1m", 'not a valid duration string: "1m1m"'),
    ("1ms1s", 'not a valid duration string: "1ms1s"'),
    ("1M", 'not a valid duration string: "1M"'),
    (" 1m", 'not a valid duration string: " 1m"'),
    ("1m\n", 'not a valid duration string: "1m\\n"'),
    ("\u0661m", 'not a valid duration string: "\u0661m"'),
    ("294y", "duration out of range"),
    ("200y10400w", "duration out of range"),
    ("107675d", "duration out of range"),
    ("2584200h", "duration out of range"),
    ("9" * 5000 + "s", "duration out of range"),
]


@pytest.mark.parametrize(
    ("text", "seconds"), PROMETHEUS_DURATIONS, ids=[text for text, _ in PROMETHEUS_DURATIONS]
)
def test_parse_prometheus_duration(text: str, seconds: float) -> None:
    assert timestamps.parse_prometheus_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "sentence"), PROMETHEUS_REFUSALS, ids=[text[:30] for text, _ in PROMETHEUS_REFUSALS]
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

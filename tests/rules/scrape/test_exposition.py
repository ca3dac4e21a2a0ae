"""The reader of expositions against tables, and against prometheus_client's own parsers."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser as text_parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from adapter.errors import ExpositionError, ExposureLimitError
from adapter.rules.scrape import exposition
from adapter.rules.scrape.exposition import parse_labels
from tests.support.answers import answers
from tests.support.scraping import parse


def read(
    body: str, *names: str, openmetrics: bool = False
) -> list[tuple[str, dict[str, str], float, float | None]]:
    found = parse(body.encode(), names, openmetrics=openmetrics)
    return [(each.name, parse_labels(each.labels), each.value, each.time) for each in found]


@pytest.mark.parametrize(("line", "labels", "value", "time"), answers("scrape/exposition", "samples"))
@pytest.mark.parametrize(
    "around", ["{}", "{}\n", "# TYPE x gauge\n{}\ny 2\n", "xy 3\n{}\nx_total 4", "\n\n{}\n\n"]
)
def test_a_sample(line: str, labels: dict[str, str], value: float, time: float | None, around: str) -> None:
    assert read(around.replace("{}", line), "x") == [("x", labels, value, time)]


def test_not_a_number_is_read() -> None:
    ((_, _, value, _),) = read("x NaN\n", "x")

    assert math.isnan(value)


def test_only_the_wanted_names_in_the_order_they_are_asked_for() -> None:
    body = 'a 1\nb{n="1"} 2\nb{n="2"} 3\nbb 4\na_b 5\n# b 6\n#b 7\nc 8\nb 9'

    assert [(name, value) for name, _, value, _ in read(body, "c", "b")] == [
        ("c", 8),
        ("b", 2),
        ("b", 3),
        ("b", 9),
    ]
    assert read(body, "bbb", "d", "") == []
    assert read('{"a",n="1"} 1\n{"b"} 2\nb 3', "b") == [("b", {}, 2, None), ("b", {}, 3, None)]


def test_unwanted_lines_may_be_anything() -> None:
    assert read("x 1\ny{{{ what\n\xff\xfe z\nx 2\n", "x") == [("x", {}, 1, None), ("x", {}, 2, None)]


@pytest.mark.parametrize(("line", "said"), answers("scrape/exposition", "refused"))
def test_what_cannot_be_read_is_said(line: str, said: str) -> None:
    with pytest.raises(ExpositionError) as raised:
        read(f"y 1\n{line}\nz 2", "x")
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        pytest.param(b"a", "labels cannot be read: a", id="no value"),
        pytest.param(b'a="b" c="d"', 'labels cannot be read: a="b" c="d"', id="no comma"),
        pytest.param(b'1a="b"', 'labels cannot be read: 1a="b"', id="no name"),
        pytest.param(b'a="b",a="c"', 'a label is given twice: a="b",a="c"', id="twice"),
        pytest.param(b'"x","y"', 'a label is given twice: "x","y"', id="two names"),
        pytest.param(b'__name__="b"', 'a label is given twice: __name__="b"', id="the name as a label"),
        pytest.param(b'a="\xff"', 'labels are not UTF-8: "\\ufffd"', id="not UTF-8"),
        pytest.param(b"," + b"a" * 500, "labels cannot be read: ," + "a" * 199 + "...", id="long"),
    ],
)
def test_labels_that_cannot_be_read_are_said(labels: bytes, said: str) -> None:
    with pytest.raises(ExpositionError) as raised:
        parse_labels(labels)
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param(
            'x_total{a="b"} 1.0 # {trace_id="}\\" # {"} 0.67 1.5\n# EOF\n', (1, None), id="exemplar"
        ),
        pytest.param(
            "x_total 1.0 1700000000.123 # {} 0.67\n# EOF", (1, 1700000000.123), id="time and exemplar"
        ),
        pytest.param("x_total 1.0 1.5e3\n# EOF\n", (1, 1500), id="time as a float"),
    ],
)
def test_openmetrics(body: str, found: tuple[float, float | None]) -> None:
    ((_, _, *rest),) = read(body, "x_total", openmetrics=True)

    assert tuple(rest) == found


@pytest.mark.parametrize(("body", "said"), answers("scrape/exposition", "refused openmetrics"))
def test_openmetrics_that_cannot_be_read_is_said(body: str, said: str) -> None:
    with pytest.raises(ExpositionError) as raised:
        read(body, "x", openmetrics=True)
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("content_type", "openmetrics"), answers("scrape/exposition", "the_format_is_known_by_its_type")
)
def test_the_format_is_known_by_its_type(content_type: str, openmetrics: bool) -> None:  # noqa: FBT001 - a column of the table
    assert exposition.is_openmetrics(content_type) is openmetrics


_ONE_AND_FIVE, _SIX_QUOTED = b"y 1\n" + b"x 1\n" * 5, b'{"x",a="1"} 1\n' * 6


@pytest.mark.parametrize("body", [_ONE_AND_FIVE, _SIX_QUOTED], ids=["named", "quoted"])
def test_more_samples_than_allowed_are_refused(body: bytes) -> None:
    assert len(parse(body, ["x", "y"], limit=6)) == 6
    with pytest.raises(ExpositionError, match=r"^there are more than 5 samples of x$"):
        parse(body, ["y", "x"], limit=5)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("x" + " " * 2_000_000, id="blanks"),
        pytest.param("x 1" + " " * 2_000_000 + "!", id="blanks behind the value"),
        pytest.param("x{" + " " * 2_000_000, id="blanks in the braces"),
        pytest.param('x{a="' + "b" * 2_000_000, id="a quote left open"),
        pytest.param('x{a="' + "\\\\" * 1_000_000, id="escapes without an end"),
        pytest.param("x{" + 'a="b",' * 300_000, id="labels without an end"),
        pytest.param("x{" + '"" ' * 300_000 + "} 1", id="quotes"),
        pytest.param("x{" + '"' * 2_000_001 + "} 1", id="nothing but quotes"),
        pytest.param("x{a" + " " * 2_000_000 + "b} 1", id="blanks in a label"),
        pytest.param("x{" + 'a="b",' * 300_000 + "} 1", id="one label again and again"),
        pytest.param("{" * 2_000_000, id="braces"),
    ],
)
@pytest.mark.parametrize("openmetrics", [False, True])
def test_what_is_made_to_be_slow_is_refused_at_once(line: str, openmetrics: bool) -> None:  # noqa: FBT001 - a column
    body = f"{line}\n# EOF\n".encode()
    with pytest.raises(ExpositionError):
        _read_all(body, openmetrics=openmetrics)


def _read_all(body: bytes, *, openmetrics: bool) -> None:
    for sample in parse(body, ["x"], openmetrics=openmetrics):
        parse_labels(sample.labels)


def test_many_labels_are_read_in_a_time_that_grows_with_their_number() -> None:
    labels = ",".join(f'a{number}="b"' for number in range(100_000))

    assert len(parse_labels(labels.encode())) == 100_000


# --- against prometheus_client --------------------------------------------------------------------


class WrittenSample(NamedTuple):
    """A sample to be written: raw text of value and of what follows it."""

    name: str
    labels: dict[str, str]
    value: str
    rest: str


_NAMES = st.sampled_from(["x", "xy", "x_sum", "x:rate", "y", "_", "X"])
_LABEL_NAMES = st.sampled_from(["a", "b_1", "_", "le", "code", "name"])
_LABEL_VALUES = st.text(
    st.one_of(
        st.sampled_from('"\\{},=# \t\nn'),
        st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zl", "Zp")),
    ),
    max_size=8,
)
_VALUES = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "Inf", "1e9", "1E-9", ".5", "5.", "+7", "0"]),
)
_EXEMPLARS = st.builds(
    lambda labels, value, time: f" # {_written_labels(labels)} {value}{time}",
    st.dictionaries(_LABEL_NAMES, st.text(st.sampled_from("ab{}# ,="), max_size=5), max_size=2),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["", " 1700000000", " 1700000000.25"]),
)
_TIMES_TEXT = st.one_of(st.just(""), st.integers(-(10**15), 10**15).map(lambda time: f" {time}"))
_TIMES_OPENMETRICS = st.one_of(
    st.just(""),
    st.integers(0, 10**10).map(lambda time: f" {time}"),
    st.sampled_from([" 1.5", " 1700000000.125", " 1e3"]),
)


def _written_labels(labels: dict[str, str], glue: str = ",") -> str:
    def escape(text: str) -> str:
        return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

    return "{" + glue.join(f'{name}="{escape(value)}"' for name, value in labels.items()) + "}"


def _lines(
    times: st.SearchStrategy[str], exemplars: st.SearchStrategy[str]
) -> st.SearchStrategy[list[WrittenSample]]:
    rest = st.builds(lambda time, exemplar: time + exemplar, times, exemplars)
    labels = st.dictionaries(_LABEL_NAMES, _LABEL_VALUES, max_size=3)
    return st.lists(st.builds(WrittenSample, _NAMES, labels, _VALUES, rest), max_size=12)


def _written(line: WrittenSample, glue: str = ",") -> str:
    labels = _written_labels(line.labels, glue) if line.labels else ""
    return f"{line.name}{labels} {line.value}{line.rest}"


def _theirs(
    families: Iterable[Any], wanted: list[str]
) -> list[tuple[str, dict[str, str], str, float | None]]:
    samples = [sample for family in families for sample in family.samples]
    return [
        (
            sample.name,
            sample.labels,
            repr(float(sample.value)),
            None if sample.timestamp is None else float(sample.timestamp),
        )
        for name in wanted
        for sample in samples
        if sample.name == name
    ]


def _ours(
    body: str, wanted: list[str], *, openmetrics: bool = False
) -> list[tuple[str, dict[str, str], str, float | None]]:
    return [
        (name, labels, repr(value), time)
        for name, labels, value, time in read(body, *wanted, openmetrics=openmetrics)
    ]


_WANTED = st.lists(_NAMES, unique=True, max_size=3)


@given(
    _lines(_TIMES_TEXT, st.just("")),
    _WANTED,
    st.sampled_from([",", ", ", " ,"]),
    st.sampled_from(["\n", "\n\n", "\n# HELP y x 1\n# TYPE y gauge\n", "\n# x 5\n", "\n  "]),
    st.sampled_from(["", "\n"]),
)
@pytest.mark.timeout(180)
def test_text_is_read_as_prometheus_client_reads_it(
    lines: list[WrittenSample], wanted: list[str], glue: str, between: str, end: str
) -> None:
    body = between.join(_written(line, glue) for line in lines) + end

    assert _ours(body, wanted) == _theirs(text_parser.text_string_to_metric_families(body), wanted)


@given(_lines(_TIMES_OPENMETRICS, st.one_of(st.just(""), _EXEMPLARS)), _WANTED, st.sampled_from(["", "\n"]))
@pytest.mark.timeout(180)
def test_openmetrics_is_read_as_prometheus_client_reads_it(
    lines: list[WrittenSample], wanted: list[str], end: str
) -> None:
    written = [_written(line) for line in lines]

    ours = _ours("\n".join([*written, "# EOF"]) + end, wanted, openmetrics=True)

    # sample by sample: whole families there come with rules about order and duplicates that say nothing of
    # the reading
    samples = [_as_openmetrics(line) for line in written]
    theirs = [sample for name in wanted for sample in samples if sample[0] == name]
    assert ours == theirs


def _as_openmetrics(line: str) -> tuple[str, dict[str, str], str, float | None]:
    sample = openmetrics_parser._parse_sample(line)  # type: ignore[no-untyped-call] # the library's own reader of a line
    time = None if sample.timestamp is None else float(sample.timestamp)
    return sample.name, sample.labels, repr(float(sample.value)), time


_NEARLY_RIGHT = st.text(st.sampled_from('x{}a="\\ \t\n,#1.e-N_'), max_size=60)


@given(st.binary(max_size=200) | _NEARLY_RIGHT.map(str.encode), st.sampled_from([b"", b"\n# EOF\n"]))
def test_no_bytes_raise_anything_else(body: bytes, end: bytes) -> None:
    try:
        for sample in parse(b"x" + body + end, ["x", "a"], openmetrics=bool(end)):
            parse_labels(sample.labels)
    except ExpositionError as error:
        assert str(error).isprintable()  # noqa: PT017 - either outcome is right, any other exception is not


# --- steps ----------------------------------------------------------------------------------------


def _long_body(lines: int) -> bytes:
    kinds = (
        'x{{n="{0}"}} {0}',
        "other 1",
        '  x{{n="i{0}"}} {0}',
        '{{"x",n="q{0}"}} {0}',
        "# x 5",
        "x_total 3",
    )
    return "\n".join(kinds[number % len(kinds)].format(number) for number in range(lines)).encode()


@given(st.integers(1, 400), st.sampled_from([64, 200, 1000]), st.booleans())
def test_a_body_that_is_read_in_parts_is_read_to_the_same_samples(
    lines: int,
    step: int,
    openmetrics: bool,  # noqa: FBT001
) -> None:
    body = _long_body(lines) + (b"\n# EOF\n" if openmetrics else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exposition, "STEP_BYTES", step)
        in_parts = parse(body, ["x"], openmetrics=openmetrics)
    whole = parse(body, ["x"], openmetrics=openmetrics)

    assert sorted(each.value for each in in_parts) == sorted(each.value for each in whole)
    assert {each.labels for each in in_parts} == {each.labels for each in whole}
    assert len(whole) == sum(number % 6 in {0, 2, 3} for number in range(lines))


@pytest.mark.parametrize("form", ['x{{n="{}"}} 1', '{{"x",n="{}"}} 1'], ids=["named", "quoted"])
@pytest.mark.parametrize("length", [1, 500, 15_000])
def test_a_step_is_short_whatever_the_body_is(form: str, length: int) -> None:
    body = "\n".join(
        form.format(f"{number}".ljust(length, "x")) for number in range(30_000_000 // (length + 15_000))
    ).encode()
    found: list[exposition.Exposed] = []
    before = 0
    for _ in exposition.read(body, ["x"], found, limit=10**9):
        step = found[before:]
        before = len(found)
        assert len(step) <= exposition.STEP_SAMPLES
        assert sum(len(each.labels) for each in step) <= exposition.STEP_BYTES + exposition.MAX_LINE_BYTES

    assert before == len(body.splitlines())


def test_a_line_beyond_the_limit_is_refused_before_it_is_read() -> None:
    long = "x" * exposition.MAX_LINE_BYTES
    with pytest.raises(ExposureLimitError, match=r"a line is longer than 16384 bytes: x\{n=.xxx"):
        read(f'x 1\nx{{n="{long}"}} 1', "x")
    assert read(f'x 1\ny{{n="{long}"}} 1\nx 2', "x") == [("x", {}, 1, None), ("x", {}, 2, None)]


def test_lines_are_counted_from_the_beginning_of_the_body() -> None:
    lines = exposition.STEP_BYTES  # several steps of four bytes a line
    with pytest.raises(ExpositionError, match=rf"^line {lines + 1}: not a value: x one$"):
        read("y 1\n" * lines + "x one\ny 1\n", "x")

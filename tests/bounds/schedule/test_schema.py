"""The schema of FastPathSchedule in manifests and the program agree on what a schedule is."""

import copy
import zoneinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.bounds.schedule import documents
from adapter.errors import InputError
from fastpath_tools import yaml_documents
from scripts.generate import crd_schedules
from tests.bounds.schedule.test_documents import CRON, DAILY, SINGLE
from tests.manifests import structural
from tests.support.answers import answers
from tests.support.schedules import EXAMPLE, document, excepting

JSON = dict[str, Any]

SCHEMA: JSON = crd_schedules.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


# --- the same verdicts


@pytest.mark.parametrize(
    "sign", ["\x1b", "\n", "\x7f", "\x9b", "\u200b", "\u202e", "\u2028", "\u2066", "\ufeff"]
)
def test_names_of_windows_have_no_control_characters(sign: str) -> None:
    """The program reads them: a schedule that an older schema let through stays in force."""
    tree = document(DAILY | {"name": f"a{sign}b"})
    (refused,) = _refused_by_schema(tree)
    assert "must have no control characters" in refused
    assert _refused_by_program(tree) == []


def test_names_of_windows_are_of_any_language() -> None:
    assert _refused_by_schema(document(DAILY | {"name": "Büro, früh - 日本語 😀 'x' \\"})) == []


def _refused_by_schema(tree: JSON) -> list[str]:
    return structural.verdict(tree, SCHEMA)


def _refused_by_program(tree: JSON) -> list[str]:
    try:
        documents.read_document(tree)
    except InputError as error:
        return [str(fault) for fault in error.faults]
    return []


def _example() -> JSON:
    (read,) = yaml_documents.read_documents(EXAMPLE, "office.yaml")
    assert isinstance(read, yaml_documents.YAMLDocument)
    assert isinstance(read.value, dict)
    return read.value


HPA, AUTOSCALER = documents.TARGET_KINDS
ACCEPTED: dict[str, JSON] = {
    "the example": _example(),
    "seconds": document({"from": "08:00:30", "to": "08:00:31"}),
    "over midnight": document({"from": "22:00", "to": "06:00"}),
    "the whole day": document({"from": "00:00", "to": "24:00"}),
    "up to midnight with seconds": document({"from": "23:59:59", "to": "24:00:00"}),
    "a day twice": document(DAILY | {"days": ["Mon", "Mon"]}),
    "no floor": document(DAILY | {"maxReplicas": 0}),
    "a floor of 0": document(DAILY | {"minReplicas": 0, "maxReplicas": 0}),
    "names of cron": document(CRON | {"cron": "*/5 0-6,22 L,LW jan-MAR/2,12 mon-fri,5L,SUN#2,7"}),
    "blanks in cron": document(CRON | {"cron": " 0\t22  * * * "}),
    "zeros in cron": document(CRON | {"cron": "000 09 010 04 07"}),
    "the longest": document(CRON | {"for": "744h"}),
    "fractions that are whole": document(CRON | {"for": "1.5m0.5s500ms"}),
    "29 February": document({"start": "2028-02-29T00:00", "end": "2028-02-29T24:00"}),
    "a second": document({"start": "2026-11-27T23:59:59", "end": "2026-11-27T24:00"}),
    "far years": document({"start": "1971-01-01T00:00", "end": "9998-12-31T24:00"}),
    "no exceptions": excepting(),
    "exceptions": excepting("2000-02-29", "0001-01-01", "9999-12-31"),
    "one name for two kinds": document(
        DAILY, targets=[{"kind": HPA, "name": "web"}, {"kind": AUTOSCALER, "name": "web"}]
    ),
    "as much as there may be": document(
        *[DAILY] * documents.MOST_WINDOWS,
        targets=[{"kind": HPA, "name": f"web-{number}"} for number in range(documents.MOST_TARGETS)],
    ),
    "as many exceptions as there may be": excepting(*["2026-12-25"] * documents.MOST_EXCEPTIONS),
}


@pytest.mark.parametrize("tree", ACCEPTED.values(), ids=list(ACCEPTED))
def test_both_accept(tree: JSON) -> None:
    assert _refused_by_program(tree) == []
    assert _refused_by_schema(tree) == []


def test_the_default_is_the_same() -> None:
    written = document(DAILY)
    stored = structural.defaulted(written, SCHEMA)
    assert stored["spec"].keys() - written["spec"].keys() == {"ready"}
    assert documents.read_document(stored) == documents.read_document(written)


def test_every_zone_is_accepted() -> None:
    for name in zoneinfo.available_timezones() - {"localtime", "posixrules"}:
        tree = document(DAILY, zone=name)
        assert _refused_by_schema(tree) == _refused_by_program(tree) == []


_ONLY_PROGRAM = ("unknown field", "Europe/Bonn", "America")
"""Faults that no schema finds. An API server prunes unknown fields, and `kubectl` refuses them before."""


@pytest.mark.parametrize(("window", "fault"), answers("bounds/schedule_documents", "refused windows"))
def test_windows_that_both_refuse(window: JSON, fault: str) -> None:
    refused = _refused_by_schema(document(window))
    assert bool(refused) is not any(each in fault for each in _ONLY_PROGRAM)


@pytest.mark.parametrize(("spec", "fault"), answers("bounds/schedule_documents", "refused specs"))
def test_specs_that_both_refuse(spec: JSON, fault: str) -> None:
    refused = _refused_by_schema(document(DAILY, **spec))
    assert bool(refused) is not any(each in fault for each in _ONLY_PROGRAM)


MORE_REFUSED: list[tuple[JSON, str]] = [
    (document(*[DAILY] * 101), "is too long"),
    (document(DAILY | {"name": "a"}, CRON | {"name": "a"}), "Duplicate value"),
    (document(DAILY, targets=[{"kind": HPA, "name": "web"}] * 101), "is too long"),
    (excepting(*["2026-12-25"] * 1001), "is too long"),
    (excepting("2026-02-29"), "must be a date such as 2026-12-25"),
    (excepting("0000-01-01"), "must be a date from the year 1 on"),
    (document(DAILY | CRON), "needs one of: from and to, cron and for, start and end"),
    (document({"from": "08:00", "for": "1h"}), "cron and for need each other"),
    (document(SINGLE | {"days": ["Mon"]}), "days belong to a window with from and to"),
    (document({"from": "08:00", "to": "08:00:00"}), "to must be another time than from"),
    (document(SINGLE | {"end": "2026-11-26T24:00"}), "end must be after start"),
    (document(SINGLE | {"start": "2027-02-29T00:00"}), "must be a local time without offset"),
    (document({"start": "1970-01-01T00:00", "end": "1971-01-01T00:00"}), "of a year from 1971 to 9998"),
    (document({"start": "9998-01-01T00:00", "end": "9999-01-01T00:00"}), "of a year from 1971 to 9998"),
    (document(CRON | {"for": "745h"}), "must be from 1s to 744h"),
    (document(CRON | {"for": "999ms"}), "must be from 1s to 744h"),
    (document(CRON | {"for": "90s1ms"}), "must be whole seconds"),
    (document(CRON | {"for": 3600}), "is not of type 'string'"),
    (document(DAILY | {"minReplicas": 2**31}), "2147483648 is greater than the maximum"),
    (document(DAILY | {"minReplicas": "1"}), "is not of type 'integer'"),
    (document(DAILY | {"from": 800}), "is not of type 'string'"),
]


@pytest.mark.parametrize(("tree", "said"), MORE_REFUSED, ids=[said for _, said in MORE_REFUSED])
def test_both_refuse(tree: JSON, said: str) -> None:
    assert _refused_by_program(tree)
    assert said in "\n".join(_refused_by_schema(tree))


_FIELDS = ("targets", "timeZone", "windows")


@pytest.mark.parametrize("name", _FIELDS)
def test_required_fields(name: str) -> None:
    tree = document(DAILY)
    del tree["spec"][name]
    assert _refused_by_program(tree)
    assert f"'{name}' is a required property" in "\n".join(_refused_by_schema(tree))


ONLY_BY_THE_PROGRAM: dict[str, JSON] = {
    "a duration with a microsecond": document(CRON | {"for": "90s1us"}),
    "a zone that there is not": document(DAILY, zone="Europe/Bonn"),
    "the zone of the machine": document(DAILY, zone="localtime"),
    "zones with leap seconds": document(DAILY, zone="right/Europe/Berlin"),
    "a range of cron that goes back": document(CRON | {"cron": "0 22 * * FRI-MON"}),
    "a day that no month has": document(CRON | {"cron": "0 22 30 2 *"}),
}
"""What an API server stores and the program refuses: the status has the fault."""


@pytest.mark.parametrize("tree", ONLY_BY_THE_PROGRAM.values(), ids=list(ONLY_BY_THE_PROGRAM))
def test_documents_that_only_the_program_refuses(tree: JSON) -> None:
    assert _refused_by_program(tree)
    assert _refused_by_schema(tree) == []


KNOWN_DIFFERENCES: dict[str, JSON] = {
    "a name longer than any there can be": document(
        DAILY, targets=[{"kind": "FastPathAutoscaler", "name": "x" * 254}]
    ),
    "a name of a window of more than 253 characters": document(DAILY | {"name": "x" * 254}),
    "a duration of more than 32 characters": document(CRON | {"for": "1s" * 17}),
}
"""What the schema refuses and a file may have."""


@pytest.mark.parametrize("tree", KNOWN_DIFFERENCES.values(), ids=list(KNOWN_DIFFERENCES))
def test_known_differences(tree: JSON) -> None:
    assert _refused_by_program(tree) == []
    assert _refused_by_schema(tree) != []


# --- any document

_CLOCKS = ["08:00", "08:00:00", "8:00", "00:00", "23:59:59", "24:00", "24:00:00", "24:01", "25:00", ""]
_LOCALS = [
    "2026-11-27T00:00",
    "2026-11-27T24:00",
    "2026-11-28T00:00:00",
    "2026-02-29T08:00",
    "2028-02-29T08:00",
    "2100-02-29T00:00",
    "2026-04-31T00:00",
    "1970-12-31T24:00",
    "2026-11-27",
    "2026-11-27 00:00",
    "2026-11-27T00:00Z",
]
_LIKELY: dict[str, list[Any]] = {
    "name": ["a", ""],
    "days": [["Mon"], ["Sun", "Sat"], [], ["mon"]],
    "from": _CLOCKS,
    "to": _CLOCKS,
    "cron": ["0 22 * * *", "0 22 * *", "@daily", ""],
    "for": ["6h", "0s", "1500ms", "-1h", "6", "744h1s"],
    "start": _LOCALS,
    "end": _LOCALS,
    "minReplicas": [0, 1, 5, -1],
    "maxReplicas": [0, 1, 5, -1],
}


@st.composite
def _windows(draw: st.DrawFn) -> JSON:
    """Return a window of one of the forms with up to three fields replaced, taken away or put in."""
    window: JSON = {"name": "a", "minReplicas": 1} | draw(st.sampled_from([DAILY, CRON, SINGLE]))
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(sorted(_LIKELY)))
        if draw(st.booleans()):
            window[name] = copy.deepcopy(draw(st.sampled_from(_LIKELY[name])))
        else:
            window.pop(name, None)
    return window


@given(_windows())
def test_verdicts_on_windows_agree(window: JSON) -> None:
    tree = document()
    tree["spec"]["windows"] = [window]
    by_schema, by_program = _refused_by_schema(tree), _refused_by_program(tree)
    assert bool(by_schema) is bool(by_program), (by_schema, by_program)


_TERMS = st.sampled_from(
    [
        *("*", "0", "00", "1", "5", "7", "8", "12", "13", "23", "24", "31", "32", "59", "60", "1-5", "5-1"),
        *("*/5", "1-5/2", "5/0", "1/02", "*/", "-1", "1-", ",", "a", "?", "1/2/3", "*/5-7", "JAN", "dec"),
        *("MON", "sun", "MON-FRI", "MON#2", "1#6", "1#0", "5L", "8L", "L", "LW", "L/2", "lw", "W"),
    ]
)
_CRON_FIELDS = st.lists(_TERMS, min_size=1, max_size=3).map(",".join)


@given(st.lists(_CRON_FIELDS, min_size=4, max_size=6).map(" ".join))
def test_verdicts_on_cron_agree(expression: str) -> None:
    """The schema accepts what the program accepts, and more only where a field needs another to be judged."""
    tree = document(CRON | {"cron": expression})
    by_schema, by_program = _refused_by_schema(tree), _refused_by_program(tree)
    if not by_program:
        assert by_schema == []
    elif not by_schema:
        assert "5-1" in expression or "bad day-of-month" in by_program[0], by_program


@given(
    st.lists(
        st.sampled_from(["*", "1", "2", "5", "1-5", "*/2", "JAN", "MON", "5L"]), min_size=5, max_size=5
    ).map(" ".join)
)
def test_cron_that_is_mostly_right(expression: str) -> None:
    tree = document(CRON | {"cron": expression})
    assert bool(_refused_by_schema(tree)) is bool(_refused_by_program(tree))


@given(st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", fullmatch=True) | st.dates().map(str))
def test_verdicts_on_dates_agree(date: str) -> None:
    tree = excepting(date)
    assert bool(_refused_by_schema(tree)) is bool(_refused_by_program(tree))

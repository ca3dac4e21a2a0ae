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


HPA = documents.TARGET_KINDS[0]
MOST: dict[str, list[Any]] = {
    "windows": [DAILY] * documents.MOST_WINDOWS,
    "targets": [{"kind": HPA, "name": f"web-{number}"} for number in range(documents.MOST_TARGETS)],
    "except": ["2026-12-25"] * documents.MOST_EXCEPTIONS,
}


def test_both_accept_the_example_and_as_much_as_there_may_be() -> None:
    most = document(*MOST["windows"], **{name: MOST[name] for name in ("targets", "except")})
    for tree in (_example(), most):
        assert _refused_by_program(tree) == []
        assert _refused_by_schema(tree) == []


@pytest.mark.parametrize(("windows", "spec"), answers("bounds/schedule_schema", "accepted"))
def test_both_accept(windows: list[JSON], spec: JSON) -> None:
    tree = document(*windows, **spec)
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


TOO_MANY: list[tuple[list[JSON], JSON, str]] = [
    ([*MOST["windows"], DAILY], {}, "is too long"),
    *(([DAILY], {name: [*MOST[name], MOST[name][0]]}, "is too long") for name in ("targets", "except")),
]


@pytest.mark.parametrize(
    ("windows", "spec", "said"), [*answers("bounds/schedule_schema", "refused"), *TOO_MANY]
)
def test_both_refuse(windows: list[JSON], spec: JSON, said: str) -> None:
    tree = document(*windows, **spec)
    assert _refused_by_program(tree)
    assert said in "\n".join(_refused_by_schema(tree))


_FIELDS = ("targets", "timeZone", "windows")


@pytest.mark.parametrize("name", _FIELDS)
def test_required_fields(name: str) -> None:
    tree = document(DAILY)
    del tree["spec"][name]
    assert _refused_by_program(tree)
    assert f"'{name}' is a required property" in "\n".join(_refused_by_schema(tree))


@pytest.mark.parametrize(
    ("windows", "spec"), answers("bounds/schedule_schema", "refused by the program alone")
)
def test_documents_that_only_the_program_refuses(windows: list[JSON], spec: JSON) -> None:
    """An API server stores them, and the status has the fault."""
    tree = document(*windows, **spec)
    assert _refused_by_program(tree)
    assert _refused_by_schema(tree) == []


@pytest.mark.parametrize(
    ("windows", "spec"), answers("bounds/schedule_schema", "refused by the schema alone")
)
def test_known_differences(windows: list[JSON], spec: JSON) -> None:
    """What the schema refuses and a file may have."""
    tree = document(*windows, **spec)
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

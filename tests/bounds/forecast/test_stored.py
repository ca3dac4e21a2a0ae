"""The stored form of a verdict: what comes back, what must not act, and what is refused."""

import base64
import random
import zlib
from collections.abc import Callable
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.bounds.forecast import stored
from adapter.bounds.forecast import stored as forms
from adapter.bounds.forecast.job import STEP, HistoryQuery
from adapter.bounds.forecast.minimum import ABSENT, Account, Hour, Limits
from adapter.bounds.forecast.plan import HOUR, Plan
from adapter.bounds.forecast.verdict import CandidateFigures, ReplayFigures, Verdict
from adapter.model.autoscaling.forecast import ForecastSettings
from tests.support.answers import answers
from tests.support.controller import fpa

AT = 19_700 * 24
"""The hour in which the judged days end."""

NOW = (AT + 2) * HOUR + 900
LIMITS = Limits(2, 60, 2, 5, 0.9, 0.15, 0.95, 1.05, 0.98, "Europe/Berlin")
NONE = CandidateFigures("none", ReplayFigures(1000.0, 9000.0), ReplayFigures(500.0, 4000.0))
GOOD = CandidateFigures("day", ReplayFigures(200.0, 9500.0), ReplayFigures(100.0, 4200.0), 0.9, 0.91, 0.01)
BAD = msgspec.structs.replace(GOOD, name="week", reached=None, refused="it costs too much")
SAID = (None, *(4.0 + place / 8 for place in range(59)))
STORED = stored.StoredVerdict(
    "abc",
    AT * HOUR + 70,
    Verdict(AT * HOUR, 120, "day", "", NONE, (GOOD, BAD)),
    LIMITS,
    (
        stored.StoredHour(AT + 2, 0.5, -0.25, SAID, (0.5, 0.25, -0.125)),
        stored.StoredHour(AT + 3, None, None, ()),
    ),
    Account([Hour(AT + 1, 3.0, 600.0, 55, 60, 9.0), Hour(AT + 2, 0.5, 150.0, 14, 15)], ABSENT, 17),
)


def text_of(value: Any) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(value))).decode()


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    """Return the text of STORED after a change of its JSON."""
    document = msgspec.json.decode(msgspec.json.encode(STORED))
    change(document)
    return text_of(document)


def test_a_verdict_comes_back() -> None:
    assert stored.decode_verdict(stored.encode_verdict(STORED), NOW) == STORED


def test_numbers_have_five_digits() -> None:
    figures = msgspec.structs.replace(NONE, whole=ReplayFigures(127372.4, 1 / 3))
    verdict = msgspec.structs.replace(STORED.verdict, none=figures)
    read = stored.decode_verdict(
        stored.encode_verdict(msgspec.structs.replace(STORED, verdict=verdict)), NOW
    ).verdict
    assert read.none is not None
    assert read.none.whole == ReplayFigures(127370.0, 0.33333)


def test_a_refusal_has_neither_limits_nor_plans() -> None:
    verdict = Verdict(AT * HOUR, 120, "", "", NONE, (BAD,))
    refused = stored.StoredVerdict("abc", AT * HOUR, verdict)
    assert stored.decode_verdict(stored.encode_verdict(refused), NOW) == refused
    assert list(refused.plans(NOW)) == []


def test_fields_of_another_version_are_no_fault() -> None:
    later = changed(lambda document: document["verdict"].update(alternative={"target": 94}))
    assert stored.decode_verdict(later, NOW) == STORED
    earlier = changed(lambda document: document["verdict"]["candidates"][0].pop("withheld"))
    assert stored.decode_verdict(earlier, NOW).verdict.candidates[0].withheld == 0


def test_plans_that_are_over_do_not_come_back() -> None:
    expected = Plan(AT + 2, STEP, "day", LIMITS, SAID, (0.5, 0.25, -0.125), 0.5, -0.25)
    first, second = STORED.plans(NOW)
    assert first == expected
    assert (second.hour, second.offsets) == (AT + 3, ())
    assert [plan.hour for plan in STORED.plans((AT + 3) * HOUR)] == [AT + 3]
    assert list(STORED.plans((AT + 4) * HOUR)) == []
    assert stored.stored_hours([first, second]) == STORED.hours


@pytest.mark.parametrize(
    ("fingerprint", "hours", "acts"),
    [("abc", 0, True), ("abc", 24, True), ("abc", 25, False), ("abd", 0, False), ("", 0, False)],
)
def test_it_acts_for_a_day_on_what_it_is_about(fingerprint: str, hours: int, *, acts: bool) -> None:
    assert STORED.is_about(fingerprint, (AT + hours) * HOUR + 3599) is acts


SPEC = fpa(minReplicas=2).spec
SETTINGS = ForecastSettings(holidays=frozenset({date(2026, 12, 24), date(2026, 12, 25), date(2026, 12, 26)}))
QUERIES = (HistoryQuery("queue", "sum(queue)"),)


def test_a_fingerprint_is_the_same_in_each_process() -> None:
    shuffled = SETTINGS._replace(holidays=frozenset(sorted(SETTINGS.holidays, reverse=True)))
    found = stored.build_fingerprint((SPEC, SETTINGS), QUERIES)
    assert found == stored.build_fingerprint((SPEC, shuffled), QUERIES)
    assert len(found) == 20


@pytest.mark.parametrize(
    ("basis", "queries"),
    [
        ((fpa(minReplicas=3).spec, SETTINGS), QUERIES),
        ((SPEC, SETTINGS._replace(max_extra=0.2)), QUERIES),
        ((SPEC, SETTINGS._replace(zone=ZoneInfo("Europe/Berlin"))), QUERIES),
        ((SPEC, SETTINGS._replace(holidays=frozenset())), QUERIES),
        ((SPEC, SETTINGS), (HistoryQuery("queue", "max(queue)"),)),
    ],
)
def test_whatever_a_verdict_is_made_from_is_in_the_fingerprint(
    basis: tuple[object, ...], queries: tuple[HistoryQuery, ...]
) -> None:
    assert stored.build_fingerprint(basis, queries) != stored.build_fingerprint((SPEC, SETTINGS), QUERIES)


def test_other_rules_of_verdicts_make_another_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored.build_fingerprint(SPEC, QUERIES)
    monkeypatch.setattr(forms, "JUDGE", forms.JUDGE + 1)
    assert stored.build_fingerprint(SPEC, QUERIES) != before


def test_a_text_is_short() -> None:
    """Four candidates, two hours and a day of account, with numbers as they come."""
    rng = random.Random(5)
    figures = [ReplayFigures(rng.uniform(0, 1e5), rng.uniform(1e6, 1e7)) for _ in range(10)]
    refused = "it takes 18 % more pods, and maxExtra is 15 %"
    candidates = tuple(
        CandidateFigures(name, figures.pop(), figures.pop(), 0.9, rng.random(), rng.random(), refused)
        for name in ("day", "week", "weeks", "trend")
    )
    none = CandidateFigures("none", figures.pop(), figures.pop())
    said = tuple(rng.uniform(0, 100) for _ in range(60))
    hours = tuple(stored.StoredHour(AT + place, rng.random(), -rng.random(), said) for place in (2, 3))
    spent = [Hour(AT - 22 + place, rng.random(), rng.uniform(0, 6000), 55, 60, 9.0) for place in range(25)]
    verdict = Verdict(AT * HOUR, 120, "day", "", none, candidates)
    full = msgspec.structs.replace(STORED, verdict=verdict, hours=hours, account=Account(spent))
    assert len(stored.encode_verdict(full)) < 2_000


def replaced(*path: str | int, value: Any) -> str:
    """Return the text of STORED with another value at a path."""

    def change(document: Any) -> None:
        *outer, last = path
        for name in outer:
            document = document[name]
        document[last] = value

    return changed(change)


DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]

PLANS, ACCOUNT = "its plans are not those of an hour and the next one", "its account is impossible"
FUTURE = "of before 2023-12-09T02:15:00Z: the clock of this"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a whole text"),
        ("{}", "base64|padding|characters"),
        ("é", "ASCII"),
        (base64.b64encode(b"{}").decode(), "header"),
        (text_of({}), "missing required field `fingerprint`"),
        (stored.encode_verdict(STORED)[:-40], "a whole text"),
        ("A" * (stored.MOST_TEXT + 1), "16,385 characters, expected at most 16,384"),
        (text_of(" " * stored.MOST_JSON), "a whole text of at most 65,536 bytes"),
        (text_of(DEEP), "Expected `object`|recursion"),
        (replaced("hours", 1, 0, value=AT + 2), PLANS),
        (changed(lambda document: document["hours"].append([AT + 4])), PLANS),
        (replaced("account", "hours", 1, 0, value=AT + 1), ACCOUNT),
        (replaced("account", "hours", value=[[AT - 30 + place] for place in range(26)]), ACCOUNT),
        (replaced("verdict", "at", value=(AT + 3) * HOUR), FUTURE),
        (replaced("hours", 1, 0, value=AT + 4), FUTURE),
        (replaced("account", "hours", 1, 0, value=AT + 3), FUTURE),
        *((replaced(*path, value=value), said) for path, value, said in answers("bounds/stored", "refused")),
    ],
)
def test_any_other_text_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^not a verdict.*({said})"):
        stored.decode_verdict(text, NOW)


@given(st.binary(max_size=200))
def test_random_content_is_refused(content: bytes) -> None:
    for text in (content.decode("latin-1"), base64.b64encode(zlib.compress(content)).decode()):
        with pytest.raises(ValueError, match=r"^not a verdict"):
            stored.decode_verdict(text, NOW)

"""Lines about autoscalers: what is wrong with each, in which order they stand, what a form selects."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling.fastpath_autoscaler import (
    HPA_KIND,
    KIND,
    FastPathAutoscaler,
    FastPathAutoscalerStatus,
)
from adapter.model.autoscaling.hpa import Condition, decode_scalar
from adapter.model.objects.api_objects import Metadata
from fastpath_tools.live.api_objects import HPA
from fastpath_tools.ui import fleet
from fastpath_tools.ui.fleet import Examined, FleetFilter, FleetRow, Problem, ReactionTime
from tests.support import doctor
from tests.support.answers import answers
from tests.tools.ui import autoscaler_views

PLAIN = FleetRow(HPA_KIND, "shop", "web", "", 4, 4, 2, 20)
ENTRY = msgspec.structs.replace(autoscaler_views.ENTRY, overdue=1)


def hpa(conditions: Any = None, **status: Any) -> HPA:
    document = doctor.hpa("web", doctor.CPU)
    document["status"] |= status | ({} if conditions is None else {"conditions": conditions})
    return msgspec.convert(document, HPA, dec_hook=decode_scalar)


def changed_row(changes: dict[str, Any]) -> FleetRow:
    """Return a line with other values; a reaction time is given by its fields."""
    reaction = changes.get("reaction")
    return PLAIN._replace(**changes | {"reaction": None if reaction is None else ReactionTime(**reaction)})


# -- what is wrong with one ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "problems", "finding"), answers("ui/fleet", "problems"))
def test_problems(changes: dict[str, Any], problems: list[str], finding: str) -> None:
    row = changed_row(changes)
    assert ([each.value for each in row.problems], row.finding) == (problems, finding)


def test_a_long_fault_is_cut() -> None:
    assert PLAIN._replace(fault="x" * 600).finding == f"{'x' * 500}…"


@pytest.mark.parametrize(("changes", "text"), answers("ui/fleet", "boosts"))
def test_what_boosting_does_or_would_win(changes: dict[str, Any], text: str) -> None:
    assert changed_row(changes).boost_text == text


@pytest.mark.parametrize(("changes", "text"), answers("ui/fleet", "replicas"))
def test_replicas(changes: dict[str, Any], text: str) -> None:
    assert PLAIN._replace(**changes).replicas_text == text


def test_what_the_page_says_stands_in_the_line() -> None:
    row = PLAIN._replace(is_capped=True, last_scale=60.0)
    stuck = row.with_page(Examined(ReactionTime(5.0), "2 pods do not start", is_stuck=True, ready=3))
    assert stuck.problems == (Problem.FAULT,)
    assert (stuck.finding, stuck.replicas_text, stuck.last_scale) == ("2 pods do not start", "3 / 4", 60.0)
    assert stuck.boost_text == "-", "more pods would not help"
    well = row.with_page(Examined(ReactionTime(5.0), last_scale=90.0))
    assert (well.problems, well.last_scale, well.reaction_text) == ((Problem.MAXIMUM,), 90.0, "5 s")


# -- the order -----------------------------------------------------------------------------------------------

WORST_FIRST = [
    PLAIN._replace(name="fault and stale", fault="no", overdue=1),
    PLAIN._replace(name="fault", fault="no"),
    PLAIN._replace(name="stale and slow", overdue=1, reaction=ReactionTime(90.0)),
    PLAIN._replace(name="stale", overdue=1),
    PLAIN._replace(name="maximum", is_capped=True),
    PLAIN._replace(name="flapping", reversals=9),
    PLAIN._replace(name="slowest", reaction=ReactionTime(300.0)),
    PLAIN._replace(name="slow", reaction=ReactionTime(100.0)),
    PLAIN._replace(name="a", reaction=ReactionTime(33.0)),
    PLAIN._replace(name="b", reaction=ReactionTime(59.0)),
    PLAIN._replace(name="quick", reaction=ReactionTime(4.0)),
    PLAIN._replace(namespace="bar", name="z"),
    PLAIN._replace(name="x"),
]


@given(st.permutations(WORST_FIRST))
def test_the_worst_is_first_whatever_order_they_were_read_in(rows: list[FleetRow]) -> None:
    assert sorted(rows, key=fleet.rank) == WORST_FIRST


@given(
    st.builds(
        PLAIN._replace,
        fault=st.sampled_from(["", "no"]),
        overdue=st.integers(0, 3),
        is_capped=st.booleans(),
        reversals=st.integers(0, 9),
        reaction=st.none() | st.builds(ReactionTime, st.floats(0, 1000)),
    ),
    st.sampled_from(
        [
            PLAIN._replace(fault="no"),
            PLAIN._replace(overdue=3),
            PLAIN._replace(is_capped=True),
            PLAIN._replace(reversals=9),
        ]
    ),
)
def test_one_more_problem_never_moves_a_line_down(row: FleetRow, bad: FleetRow) -> None:
    changed = {name: value for name, value in bad._asdict().items() if value != getattr(PLAIN, name)}
    assert fleet.rank(row._replace(**changed)) <= fleet.rank(row)


def test_a_measured_chain_moves_its_line_only_by_powers_of_two() -> None:
    before, after, later = (PLAIN._replace(reaction=ReactionTime(chain)) for chain in (2.1, 3.9, 4.1))
    assert fleet.rank(before) == fleet.rank(after)
    assert fleet.rank(later) < fleet.rank(after)


# -- from what was read --------------------------------------------------------------------------------------


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(("conditions", "status", "changes"), answers("ui/fleet", "statuses"))
def test_a_line_from_the_status_of_an_hpa(
    conditions: list[list[str]] | None, status: dict[str, Any], changes: dict[str, Any]
) -> None:
    autoscaler = hpa(None if conditions is None else [condition(*each) for each in conditions], **status)
    desired = None if "fault" in changes else 0
    expected = FleetRow(HPA_KIND, "shop", "web", "", 0, desired, 2, 8)
    assert fleet.from_status(autoscaler) == expected._replace(**changes)


def test_an_hpa_without_a_status_and_with_a_mode() -> None:
    document = doctor.hpa("web", mode="advise")
    del document["status"], document["spec"]["minReplicas"]
    row = fleet.from_status(msgspec.convert(document, HPA, dec_hook=decode_scalar))
    assert (row.replicas, row.desired, row.min, row.mode) == (None, None, 1, "Advise")


def test_a_line_from_the_status_of_a_fast_path_autoscaler() -> None:
    new = FastPathAutoscaler(metadata=Metadata("web", "shop"))
    assert fleet.from_status(new).fault == "the scaler has not set conditions yet"
    assert fleet.from_status(new, "no scaler runs for it").fault == "no scaler runs for it"
    active = (Condition("ScalingActive", "True"),)
    row = fleet.from_status(msgspec.structs.replace(new, status=FastPathAutoscalerStatus(conditions=active)))
    assert (row.kind, row.fault) == (KIND, "")


def test_a_line_of_what_a_scaler_decides() -> None:
    row = fleet.from_entry(ENTRY, hpa(lastScaleTime="1970-01-01T00:01:00Z"))
    assert row == FleetRow(
        HPA_KIND,
        "shop",
        "web",
        "Boost",
        4,
        7,
        2,
        7,
        is_capped=True,
        age=0.8,
        overdue=1,
        reversals=2,
        floor=7,
        boosted=True,
        last_scale=60.0,
    )


def test_a_fault_that_the_scaler_reports_comes_before_that_of_the_object() -> None:
    failing = hpa([condition("ScalingActive", "False", "FailedGetPodsMetric", "no value")])
    assert fleet.from_entry(ENTRY, failing).fault == "FailedGetPodsMetric: no value"
    entry = msgspec.structs.replace(ENTRY, fault="ambiguous selector", chain=None, limited_by="")
    row = fleet.from_entry(entry, failing)
    assert (row.fault, row.reaction, row.is_capped) == ("ambiguous selector", None, False)
    assert fleet.from_entry(entry, None).last_scale is None


# -- what a form selects -------------------------------------------------------------------------------------

SHOP = PLAIN._replace(is_capped=True, overdue=1)
MAIL = PLAIN._replace(namespace="mail-eu", name="sender")


@pytest.mark.parametrize(("query", "selected"), answers("ui/fleet", "forms"))
def test_what_a_form_selects(query: dict[str, str], selected: list[str]) -> None:
    assert [row.name for row in FleetFilter.of_query(query).select([SHOP, MAIL])] == selected


def test_counts_of_problems() -> None:
    assert list(fleet.count_problems([SHOP, MAIL, SHOP]).items()) == [
        (Problem.STALE, 2),
        (Problem.MAXIMUM, 2),
    ]
    assert not set(itertools.chain(fleet.count_problems([MAIL])))

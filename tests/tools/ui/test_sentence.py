"""The sentence of an autoscaler from its document: the cause first, then what comes next."""

from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.autoscaling.fastpath_autoscaler import KIND, FastPathAutoscaler
from adapter.model.autoscaling.view import AutoscalerView, MetricView, TargetView, WritersView
from adapter.model.objects.api_objects import Metadata
from fastpath_tools.doctor import diagnosis
from fastpath_tools.doctor.diagnosis import Examination
from fastpath_tools.doctor.hops import Hop, Improvement, State, plain
from fastpath_tools.live.facts import AnswerFacts, Leaders
from fastpath_tools.ui import sentence
from tests.support.answers import answers
from tests.support.doctor import fast_facts
from tests.tools.doctor.test_diagnosis import boosted, facts, hpa, load
from tests.tools.ui.autoscaler_views import REQUESTS, at, explain, view

STAYS = "The count stays if the load stays."


def changed_view(restraint: str | None, changes: dict[str, Any]) -> AutoscalerView:
    """Return a document with parts that are given as JSON."""
    shown = view(None if restraint is None else Restraint(restraint))
    return msgspec.convert(msgspec.to_builtins(shown) | changes, AutoscalerView)


@pytest.mark.parametrize(("restraint", "changes", "text"), answers("ui/sentence", "limits"))
def test_what_limits_the_count(restraint: str | None, changes: dict[str, Any], text: str) -> None:
    assert explain(changed_view(restraint, changes), None) == text


def test_every_restraint_has_words() -> None:
    for restraint in Restraint:
        assert sentence.describe(view(restraint), None).cause, restraint


@pytest.mark.parametrize(("changes", "text"), answers("ui/sentence", "stops"))
def test_what_stops_it_comes_before_its_limits(changes: dict[str, Any], text: str) -> None:
    assert explain(changed_view(Restraint.HIGHEST.value, changes), None) == text


def test_an_error_of_the_last_decision_is_a_cause() -> None:
    decided = view(Restraint.FAILED)
    assert decided.last is not None
    failed = msgspec.structs.replace(decided.last, error="the scale cannot be read")
    assert explain(view(last=failed), None) == "5 replicas: the scale cannot be read."
    silent = msgspec.structs.replace(decided.last, trace=())
    assert explain(view(last=silent), None) == "5 replicas: the target cannot be scaled."


def examined(state: State) -> Examination:
    fpa = FastPathAutoscaler(metadata=Metadata("web", "shop"))
    hop = Hop("autoscaler", state, "it is so", timed=False)
    facts = fast_facts(fpa, Leaders(()))
    return Examination(facts, (hop,), diagnosis="it is so", change="change it", fpa=fpa)


def test_a_fault_that_doctor_finds_is_the_cause() -> None:
    text = explain(view(Restraint.HIGHEST), examined(State.FAULT))
    assert text == "5 replicas: it is so. Change it."
    warned = sentence.describe(view(Restraint.HIGHEST), examined(State.WARNING))
    assert warned.cause.startswith("maxReplicas is reached")
    undecided = sentence.describe(view(None), examined(State.WARNING))
    assert (undecided.state, undecided.cause, undecided.advice) == (State.WARNING, "it is so", "change it")


@pytest.mark.parametrize(("manager", "times", "text"), answers("ui/sentence", "reversals"))
def test_a_reversal_is_the_cause_for_some_minutes(manager: str, times: list[int], text: str) -> None:
    writers = WritersView(paused_until=None, paused_by="", reversals=tuple(map(at, times)))
    target = TargetView(kind="Deployment", name="web", replicas=5, ready=5, manager=manager)
    assert sentence.describe(view(writers=writers, target=target), None).cause == text


def test_a_command_has_no_capital() -> None:
    assert sentence.Sentence.written("fastpath check shows it") == "fastpath check shows it."
    assert sentence.Sentence.written("raise it") == "Raise it."


def test_what_is_wrong_at_the_target_of_a_fast_autoscaler_comes_before_its_limits() -> None:
    hop = Hop("target", State.WARNING, "2 pods wait for a node", change=Improvement("add nodes"))
    fpa = FastPathAutoscaler()
    warned = Examination(fast_facts(fpa, Leaders(())), (hop,), diagnosis=hop.text, fpa=fpa)
    why = sentence.describe(view(Restraint.HIGHEST), warned)
    assert (why.cause, why.advice) == ("2 pods wait for a node", "add nodes")


@pytest.mark.parametrize(
    ("decided", "metrics", "wanted"),
    [
        (9, (REQUESTS,), 9),
        (None, (REQUESTS,), 6),
        (None, (), None),
        (None, (msgspec.structs.replace(REQUESTS, current="120%", target="60%", ratio=2.0), REQUESTS), 10),
        (None, (msgspec.structs.replace(REQUESTS, ratio=None),), None),
    ],
)
def test_what_the_metrics_ask_for(decided: int | None, metrics: Any, wanted: int | None) -> None:
    shown = view(metrics=metrics)
    assert shown.last is not None
    last = msgspec.structs.replace(shown.last, demand=decided)
    assert sentence.demand(msgspec.structs.replace(shown, last=last)) == wanted


def test_what_only_boost_lacks_is_not_why_the_count_is_what_it_is() -> None:
    unboosted = diagnosis.examine(boosted(owner="the ScaledObject web"))
    assert unboosted.state is State.FAULT
    assert sentence.describe(view(Restraint.HIGHEST), unboosted).cause.startswith("maxReplicas is reached")
    down = load(answer=AnswerFacts(0, error="gone"))
    both = diagnosis.examine(boosted(down, owner="the ScaledObject web"))
    assert sentence.describe(view(Restraint.HIGHEST), both).cause == "Fastpath has no value of load: gone"


@pytest.mark.parametrize(("current", "target", "value", "at"), answers("ui/sentence", "units"))
def test_a_value_has_the_unit_of_its_target(current: str, target: str, value: str, at: str) -> None:
    assert sentence.values(MetricView(name="load", current=current, target=target)) == (value, at)


def undecided(restraint: Restraint | None, wanted: int | None, **changes: Any) -> AutoscalerView:
    """Return the document of an HPA that no scaler decides."""
    shown = view(restraint, decided_since=None, **changes)
    if shown.last is None:
        return shown
    return msgspec.structs.replace(shown, last=msgspec.structs.replace(shown.last, demand=wanted))


@pytest.mark.parametrize(
    ("wanted", "then"),
    [(9, "More replicas {}, if the load stays."), (3, "Fewer replicas {}, if the load stays."), (5, STAYS)],
)
def test_a_limit_of_an_hpa_ends_at_a_time_that_is_not_known(wanted: int, then: str) -> None:
    limited, held = (undecided(restraint, wanted) for restraint in (Restraint.LIMITED, Restraint.HELD))
    assert explain(limited, None).endswith(then.format("as soon as the policy allows"))
    assert explain(held, None).endswith(then.format("when the window ends"))
    fast = msgspec.structs.replace(held, kind=KIND)
    assert explain(fast, None).endswith(STAYS), "a scaler knows when, or that it does not"


@pytest.mark.parametrize(("way", "wanted"), [("Up", 9), ("Down", 3)])
def test_a_direction_that_is_disabled_is_named(way: str, wanted: int) -> None:
    behavior = {f"scale{way}": {"selectPolicy": "Disabled"}}
    field = f"spec.behavior.scale{way}.selectPolicy"
    examination = diagnosis.examine(facts(hpa=hpa(behavior=behavior)))
    assert explain(undecided(Restraint.LIMITED, wanted), examination) == (
        f"5 replicas: {field} is Disabled: it never scales {way.lower()}; http_requests asks for {wanted}. "
        f"Remove {field}. {STAYS}"
    )
    held = sentence.describe(undecided(Restraint.HELD, wanted), examination)
    assert held.cause.startswith(field), "the window may end"
    other = explain(undecided(Restraint.LIMITED, 12 - wanted), examination)
    assert other.startswith("5 replicas: a scaling policy limits the step")
    calm = sentence.describe(undecided(Restraint.TOLERATED, 5), examination)
    assert calm.cause.startswith("within tolerance"), "it is not why the count is what it is"


def test_an_hpa_without_conditions_was_not_decided() -> None:
    examination = diagnosis.examine(facts(hpa=hpa(conditions=[])))
    assert explain(undecided(None, None), examination) == (
        "5 replicas: the HPA controller has not set conditions yet."
    )


@pytest.mark.parametrize(("product", "pods"), [(0.0, 0), (0.0016, 1), (1.0, 1), (2.0001, 2), (2.1, 3)])
def test_a_value_above_zero_asks_for_a_pod(product: float, pods: int) -> None:
    assert sentence.whole_pods(product) == pods


@pytest.mark.parametrize("restraint", [Restraint.LIMITED, Restraint.HELD, Restraint.SCHEDULED])
def test_a_count_that_a_bound_holds_below_the_demand_is_a_warning(restraint: Restraint) -> None:
    assert sentence.describe(view(restraint), None).state is State.WARNING
    idle = msgspec.structs.replace(REQUESTS, ratio=0.5)
    assert sentence.describe(view(restraint, metrics=(idle,)), None).state is State.OK


@pytest.mark.parametrize(("message", "shown"), answers("ui/sentence", "messages"))
def test_a_message_of_a_controller_is_its_cause(message: str, shown: str) -> None:
    assert plain(message) == shown

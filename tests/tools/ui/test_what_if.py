"""What other settings would have made of the last hour."""

from typing import Any

import pytest
from msgspec.structs import replace

from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, FastPathAutoscalerSpec
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior, HPAScalingRules
from adapter.model.objects.api_objects import Metadata
from fastpath_forecast.simulate.policies import BOOST, FAST, NATIVE
from fastpath_tools.ui import what_if
from fastpath_tools.ui.what_if import Trial
from tests.support.answers import answers
from tests.tools.ui.autoscaler_views import history, point

AUTOSCALER = FastPathAutoscaler(
    metadata=Metadata("web", "shop"), spec=FastPathAutoscalerSpec(min_replicas=1, max_replicas=20)
)
BURSTS = history(point(-3600, 4), point(-2400, 12, 4), point(-2100, 4), point(-1200, 12, 4), point(-900, 4))
TODAY = Trial(100, 300, NATIVE)


def window(seconds: int | None) -> FastPathAutoscaler:
    behavior = HorizontalPodAutoscalerBehavior(None, HPAScalingRules(stabilization_window_seconds=seconds))
    return replace(AUTOSCALER, spec=replace(AUTOSCALER.spec, behavior=behavior))


@pytest.mark.parametrize(
    ("autoscaler", "kind", "trial"),
    [
        (AUTOSCALER, {"is_hpa": True, "is_boosted": False}, TODAY),
        (AUTOSCALER, {"is_hpa": True, "is_boosted": True}, Trial(100, 300, BOOST)),
        (AUTOSCALER, {"is_hpa": False, "is_boosted": False}, Trial(100, 300, FAST)),
        (window(60), {"is_hpa": True, "is_boosted": False}, Trial(100, 60, NATIVE)),
        (window(None), {"is_hpa": True, "is_boosted": False}, TODAY),
    ],
)
def test_the_settings_of_today(autoscaler: FastPathAutoscaler, kind: dict[str, bool], trial: Trial) -> None:
    assert what_if.settings(autoscaler, is_hpa=kind["is_hpa"], is_boosted=kind["is_boosted"]) == trial


@pytest.mark.parametrize(("today", "query", "trial"), answers("ui/what_if", "forms"))
def test_what_a_form_asks_for(today: list[Any], query: dict[str, str], trial: list[Any]) -> None:
    assert list(what_if.read_trial(query, Trial(*today))) == trial


def test_what_was_is_the_sum_over_the_history() -> None:
    was = what_if.recorded(BURSTS)
    assert was.shortage == 2 * 300 * 8
    assert was.pod_seconds == 3600 * 4
    assert was.most == 4
    unknown = history(point(-3600, None), point(-1800, 6, 5, ready=None))
    assert what_if.recorded(unknown) == (1800, 1800 * 5, 5)


def test_a_history_without_a_demand_cannot_be_replayed() -> None:
    assert what_if.is_known(BURSTS)
    assert not what_if.is_known(history(point(-3600, None)))
    assert not what_if.is_known(history())


@pytest.mark.timeout(60)
def test_each_setting_changes_the_figures_as_it_should() -> None:
    """Boost raises sooner, a shorter window keeps fewer pods, a lower target has more of them."""
    figures = {
        name: what_if.replay(BURSTS, AUTOSCALER, 10.0, trial)
        for name, trial in {
            "today": TODAY,
            "boost": TODAY._replace(policy=BOOST),
            "window": TODAY._replace(window=0),
            "target": TODAY._replace(target=50),
        }.items()
    }
    today = figures["today"]
    assert figures["boost"].shortage < today.shortage / 1.5
    assert figures["window"].pod_seconds < today.pod_seconds - 1000
    assert figures["target"].pod_seconds > 1.5 * today.pod_seconds
    assert figures["target"].shortage < today.shortage
    assert today.most >= 12


def test_a_gap_is_no_demand() -> None:
    gap = history(point(-3600, 4), point(-1800, None))
    assert what_if.replay(gap, AUTOSCALER, 10.0, TODAY).pod_seconds > 3600 * 3

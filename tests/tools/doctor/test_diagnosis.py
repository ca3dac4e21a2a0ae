"""How long each hop of `fastpath doctor` takes, and what saves most. Its sentences: tests/golden/doctor."""

from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.behavior import Policy, Rules
from adapter.config.rules_config import Access, ScrapeConfig
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.hpa import MetricSpec, decode_scalar
from adapter.model.ready_times import Percentiles, ReadyTimes
from adapter.model.timestamps import SECOND
from fastpath_tools.doctor import autoscaler_hops, report
from fastpath_tools.doctor.diagnosis import Examination, boost_gain, examine
from fastpath_tools.doctor.hops import BoostFacts, BoostOffer, Facts, Hop, State, seconds
from fastpath_tools.doctor.options import COMMAND
from fastpath_tools.live.api_objects import HPA
from fastpath_tools.live.facts import (
    AnswerFacts,
    Leader,
    Leaders,
    MetricFacts,
    MetricsPort,
    Period,
    SeriesFacts,
    Serving,
    SourceFacts,
    Starts,
    TargetFacts,
    Unread,
    UnreadyPods,
    UsageFacts,
    UsageVerdict,
)
from tests.support.answers import answers
from tests.support.doctor import CPU, HANDSHAKE

NOW = 1_000_000 * SECOND
LOAD: dict[str, Any] = {
    "type": "Pods",
    "pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
WELL = [
    {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"},
    {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"},
    {"type": "ScalingLimited", "status": "False", "reason": "DesiredWithinRange"},
]
OURS = Serving("custom.metrics.k8s.io", "Fastpath", ours=True)
GOOD = AnswerFacts(4, 0.04, 0.0)
PERIOD = Period(15.0, "the default")
SOURCE = SourceFacts("rules[0]", "sum(rate(load[1m])) by (pod)", 60.0, SeriesFacts(True, 15.0, 4.0))
LEADERS = Leaders((Leader("fastpath/fastpath-scaler", "one_1", 1.0, 15.0, slices.slice_of("shop")),))
FLOOR_SERVING = Serving("external.metrics.k8s.io", "Fastpath", ours=True)


def hpa(
    *metrics: dict[str, Any], mode: str = "", conditions: Any = WELL, behavior: Any = None, most: int = 20
) -> HPA:
    document = {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "annotations": {"fastpath.io/mode": mode} if mode else {},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": most,
            "metrics": list(metrics) or [LOAD],
            "behavior": behavior,
        },
        "status": {"conditions": conditions},
    }
    return msgspec.convert(document, HPA, dec_hook=decode_scalar)


def spec_of(metric: dict[str, Any]) -> MetricSpec:
    return msgspec.convert(metric, MetricSpec, dec_hook=decode_scalar)


def load(**changes: Any) -> MetricFacts:
    return MetricFacts("load", spec_of(LOAD), OURS, GOOD, SOURCE)._replace(**changes)


def starts(p50: float, p95: float, count: int) -> Starts:
    """Return start-up times without parts."""
    return Starts(ReadyTimes(Percentiles(p50, p95), None, None, None, None, count, 0, 0))


def facts(*metrics: MetricFacts, **changes: Any) -> Facts:
    target = TargetFacts(4, "app=web", ("a", "b", "c", "d"), starts(12.0, 20.0, 4))
    return Facts(hpa(), target, metrics or (load(),), PERIOD, 0.0, NOW)._replace(**changes)


def boosted(*metrics: MetricFacts, **changes: Any) -> Facts:
    """Return a boosted autoscaler with which all is well; `changes` are of its Boost."""
    document = hpa(LOAD, HANDSHAKE, mode="boost")
    floor = MetricFacts("fastpath_replicas", spec_of(HANDSHAKE), FLOOR_SERVING, AnswerFacts(1, 0.01))
    shaken = model.check_handshake("web", document.spec)
    boost = BoostFacts(model.read_annotations(document.metadata.annotations), shaken, floor)
    offer = BoostOffer(changes.pop("leaders", LEADERS), (), changes.pop("owner", ""))
    return facts(*metrics, hpa=document, boost=boost._replace(**changes), offer=offer)


def hop(found: Examination, name: str) -> Hop:
    [one] = [each for each in found.hops() if each.name == name]
    return one


def times(found: Examination, name: str) -> tuple[float, float]:
    took = hop(found, name).took
    assert took is not None
    return took.usual, took.most


# -- the way, hop by hop
# --------------------------------------------------------------------------------------------------


def test_the_plain_way_adds_up() -> None:
    found = examine(facts())
    assert times(found, "scrape") == (7.5, 15.0)
    assert times(found, "window") == (30.0, 60.0)
    assert times(found, "metrics API") == (0.04, 0.04)
    assert times(found, "decision") == (7.5, 15.0)
    assert times(found, "pod start") == (12.0, 20.0)
    assert found.slowest.took == pytest.approx((57.04, 110.04))
    assert found.slowest.whole
    assert found.state is State.OK
    assert found.diagnosis == "most of 57 s is window, 30 s: rules[0] looks back over 60 s"
    assert found.change == (
        "boost it: kubectl -n shop get hpa web -o yaml | fastpath boost - | kubectl apply -f - (saves 7 s)"
    )


def test_a_boosted_one_waits_for_no_period() -> None:
    found = examine(boosted())
    assert times(found, "decision") == (0.5, 1.0)
    assert hop(found, "boost").text == "the handshake works; no floor is set"
    assert found.change == "scrape the series of rules[0] every 5 s (saves 5 s)"


def test_what_boost_and_scrape_make_of_the_way() -> None:
    direct = load(source=SOURCE._replace(scraped=ScrapeConfig(Access("8080"), 5.0)))
    plain, fast = examine(facts(direct)), examine(boosted(direct))
    assert times(plain, "window") == (30.0, 60.0)
    assert (times(fast, "scrape"), times(fast, "window")) == ((0.5, 1.0), (2.5, 5.0))
    assert plain.change.endswith("(saves 42 s)"), "7 of the period, 34.5 of scrape and window"
    assert fast.change == ""


def test_what_boosting_takes_off_the_slowest_chain() -> None:
    direct = load(source=SOURCE._replace(scraped=ScrapeConfig(Access("8080"), 5.0)))
    assert boost_gain(examine(facts())) == pytest.approx(7.0), "the period"
    assert boost_gain(examine(facts(direct))) == pytest.approx(41.5), "the period, scrape and window"
    assert boost_gain(examine(facts(load(), direct))) == pytest.approx(7.0), "the other metric stays slow"
    assert boost_gain(examine(facts(usage_of_pods()))) == 0, "its server is asked as often as before"
    assert boost_gain(examine(boosted(direct))) == 0


def test_a_rule_that_pods_could_answer_themselves() -> None:
    found = examine(boosted(load(source=SOURCE._replace(scrapable=True))))
    assert (
        found.change == "let Fastpath scrape the pods itself: scrape: {port: NAME} on rules[0] (saves 34 s)"
    )


def usage_of_pods(**changes: Any) -> MetricFacts:
    """Return CPU of metrics-server; `changes` are of what the pods expose of it."""
    server = Serving("metrics.k8s.io", "metrics-server")
    usage = UsageFacts(**changes)
    answer = AnswerFacts(4, 0.02, window=15.0, age=8.0)
    return MetricFacts("cpu", spec_of(CPU), server, answer, usage=usage)


RULE: dict[str, Any] = {"rule": "resourceRules.cpu.scrape", "scraped": ScrapeConfig(Access("metrics"))}


def test_the_path_of_a_port_is_part_of_the_advice() -> None:
    port = MetricsPort("metrics", 9090, "/actuator/prometheus", "web")
    assert examine(boosted(usage_of_pods(port=port))).change == (
        "have Fastpath scrape the pods: "
        "resourceRules.cpu.scrape: {port: metrics, path: /actuator/prometheus} (saves 19 s)"
    )


def test_a_usage_that_counts_is_as_fast_as_any_scraped_value() -> None:
    found = examine(boosted(usage_of_pods(**RULE, verdict=UsageVerdict(True))))
    assert times(found, "scrape") == (0.5, 1.0)
    assert times(found, "window") == (2.5, 5.0)
    assert times(found, "decision") == (0.5, 1.0)
    assert hop(found, "scrape").text.startswith(
        "Fastpath scrapes the pods every 1 s (resourceRules.cpu.scrape)"
    )
    assert found.state is State.OK


def test_a_gauge_of_pods_has_no_window() -> None:
    memory = usage_of_pods(**RULE, verdict=UsageVerdict(True), is_rate=False)
    assert times(examine(boosted(memory)), "window") == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "series", "name", "state", "text", "advice"), answers("doctor/diagnosis", "sources")
)
def test_sources(
    changes: dict[str, Any], series: list[Any] | None, name: str, state: str, text: str, advice: str
) -> None:
    source = SOURCE._replace(**changes)
    found = examine(facts(load(source=source._replace(series=SeriesFacts(*series)) if series else source)))
    assert hop(found, name).state.value == state
    assert text in hop(found, name).text
    assert found.change == advice


def test_a_sample_of_three_and_a_half_intervals_is_no_fault_of_the_scrapes() -> None:
    found = examine(facts(load(source=SOURCE._replace(series=SeriesFacts(True, 15.0, 3.5 * 15.0)))))
    assert hop(found, "scrape").state is State.OK


def test_what_is_not_known_is_said_and_makes_the_total_a_lower_bound() -> None:
    series = Unread("give --prometheus-url")
    recorded = load(source=SOURCE._replace(lookback=None, series=series))
    found = examine(facts(recorded, target=Unread("forbidden")))
    assert [each.name for each in found.hops() if each.state is State.UNKNOWN] == [
        "scrape",
        "window",
        "pod start",
    ]
    assert not found.slowest.whole
    assert found.state is State.UNKNOWN
    assert found.diagnosis.endswith("; not known: scrape, window, pod start")
    assert "in all" in report.render(found)
    assert ">7.5 s" in report.render(found)


def test_young_series_and_an_unread_rule_are_no_guess() -> None:
    young = examine(facts(load(source=SOURCE._replace(series=SeriesFacts(True, None, 2.0)))))
    assert hop(young, "scrape").took is None
    assert times(young, "window") == (30.0, 60.0)
    unread = examine(facts(load(source=Unread("the rules cannot be read"))))
    assert hop(unread, "scrape") == Hop("scrape", State.UNKNOWN, "the rules cannot be read")
    assert hop(unread, "window").took is None


def test_an_engine_that_hides_the_newest() -> None:
    found = examine(facts(delay=30.0))
    assert times(found, "engine") == (30.0, 30.0)
    assert found.change == (
        "give --prometheus-query-param=nocache=1 to Fastpath, or a lower -search.latencyOffset (saves 30 s)"
    )
    empty = examine(facts(load(source=SOURCE._replace(series=SeriesFacts(False))), delay=30.0))
    unseen = "Prometheus has no sample now (queries do not see the last 30 s) for rules[0]: "
    assert empty.diagnosis.startswith(unseen)
    for delay in (0.0, 0.3, Unread("give --prometheus-url")):
        assert not [each for each in examine(facts(delay=delay)).hops() if each.name == "engine"]
    direct = boosted(load(source=SOURCE._replace(scraped=ScrapeConfig(Access("8080"), 5.0))))._replace(
        delay=30.0
    )
    assert not [each for each in examine(direct).hops() if each.name == "engine"]


def test_the_latest_sample_waits_for_no_window() -> None:
    found = examine(facts(load(source=SOURCE._replace(lookback=0.0))))
    assert times(found, "window") == (0.0, 0.0)
    direct = SOURCE._replace(lookback=0.0, scraped=ScrapeConfig(Access("8080"), 5.0))
    assert times(examine(boosted(load(source=direct))), "window") == (0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "state", "text"),
    [
        ({"answer": AnswerFacts(4, 2.0)}, State.WARNING, "Fastpath answered in 2 s"),
        ({"answer": Unread("why")}, State.UNKNOWN, "why"),
        (
            {"source": SOURCE._replace(reused=10.0)},
            State.OK,
            "Fastpath answered in 40 ms and caches answers for 10 s",
        ),
    ],
    ids=["slow", "not asked", "a long ttl"],
)
def test_the_api(changes: dict[str, Any], state: State, text: str) -> None:
    api = hop(examine(facts(load(**changes))), "metrics API")
    assert (api.state, api.text) == (state, text)


def test_pods_of_a_node_that_is_gone_come_before_the_server_that_ran_there() -> None:
    """Both are its pods: the metrics API fails too, and the pods are not late yet."""
    unready = UnreadyPods("3 pods are not Ready: node node-1", "restore node node-1", is_late=False)
    down = load(answer=AnswerFacts(0, 0.1, error="503"), serving=OURS._replace(fault="MissingEndpoints"))
    target = facts().target
    assert isinstance(target, TargetFacts)
    found = examine(facts(down, target=target._replace(unready=unready)))
    assert (found.diagnosis, found.change) == (unready.text, unready.change)


def test_a_growth_of_more_than_an_hour() -> None:
    slow = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1800}]}}
    found = examine(facts(hpa=hpa(behavior=slow)))
    assert hop(found, "behavior").text == "from 4 to 8 replicas takes more than an hour"
    assert times(found, "behavior") == (3600, 3600)


@pytest.mark.parametrize(("policies", "current", "goal", "took"), answers("doctor/diagnosis", "growth"))
def test_growth(policies: list[list[Any]], current: int, goal: int, took: int | None) -> None:
    rules = Rules(0, "Max", tuple(Policy(share, value, period * SECOND) for share, value, period in policies))
    assert autoscaler_hops.growth_seconds(rules, current, goal) == took


# -- how it is told
# -------------------------------------------------------------------------------------------------------


def test_nothing_known_is_no_nought() -> None:
    unread = Unread("forbidden")
    blind = boosted(MetricFacts("load", spec_of(LOAD), unread, unread, unread))._replace(target=unread)
    text = report.render(examine(blind))
    [total] = [line for line in text.splitlines() if line.startswith("in all")]
    assert total.split() == ["in", "all", "?", "?"]
    assert text.endswith("change:    none in what could be read\n")


def test_a_table_has_the_slowest_first() -> None:
    slow = examine(facts(load(source=SOURCE._replace(lookback=600.0))))
    fast = examine(boosted())
    quick = hpa(LOAD, HANDSHAKE, mode="boost")
    named = msgspec.structs.replace(quick, metadata=msgspec.structs.replace(quick.metadata, name="api"))
    lines = report.render_table([fast._replace(facts=fast.facts._replace(hpa=named)), slow]).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["shop/web", "-"], ["shop/api", "boost"]]
    assert " warning  " in lines[1]


@pytest.mark.parametrize(("value", "text"), answers("doctor/diagnosis", "seconds"))
def test_seconds(value: float, text: str) -> None:
    assert seconds(value) == text


# -- the command line
# -----------------------------------------------------------------------------------------------------


def test_the_command_line() -> None:
    options, notices = COMMAND.parse(
        ["shop/web", "--prometheus-url=http://p:9090", "--config=a.yaml", "--config", "b.yaml", "-o", "json"]
    )
    assert (options.target, options.output) == (("shop", "web"), "json")
    assert (options.config, options.prometheus_url) == (("a.yaml", "b.yaml"), "http://p:9090")
    assert notices == ()
    everything, _ = COMMAND.parse([])
    assert (everything.target, everything.config, everything.prometheus_url) == (("", ""), (), "")
    assert COMMAND.parse(["shop"])[0].target == ("shop", "")

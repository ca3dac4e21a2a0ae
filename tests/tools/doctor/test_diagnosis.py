"""`fastpath doctor`: what follows from what was read, and how it is printed. Reading: `test_cluster`."""

from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.behavior import Policy, Rules
from adapter.cli import main
from adapter.config.rules_config import Access, ScrapeConfig
from adapter.errors import InputError
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import (
    FastPathAutoscaler,
    FastPathAutoscalerStatus,
    Metadata,
)
from adapter.model.autoscaling.floor import Demotion, Floor
from adapter.model.autoscaling.hpa import Condition, MetricSpec, MetricStatus, decode_scalar
from adapter.model.ready_times import Percentiles, ReadyTimes
from adapter.model.timestamps import SECOND, FineInstant
from fastpath_tools.doctor import autoscaler_hops, report
from fastpath_tools.doctor.diagnosis import Examination, boost_gain, examine, examine_fast
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
from tests.support.doctor import CPU, HANDSHAKE, fast_facts

NOW = 1_000_000 * SECOND
BOOSTED = "kubectl -n shop get hpa web -o yaml | fastpath boost - | kubectl apply -f -"
READY = FastPathAutoscaler(
    metadata=Metadata("web", "shop"),
    status=FastPathAutoscalerStatus(conditions=(Condition("AbleToScale", "True"),)),
)
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
PORT = MetricsPort("metrics", 9090, "/metrics", "web")


def test_metrics_server_is_not_beaten_by_boost_alone() -> None:
    found = examine(boosted(usage_of_pods()))
    assert times(found, "scrape") == (7.5, 15.0)
    assert times(found, "window") == (7.5, 15.0)
    assert times(found, "decision") == (7.5, 15.0)
    assert hop(found, "scrape").text == (
        "metrics-server has a new value about every 15 s; the values are 8 s old; the pods were not seen to "
        "expose process_cpu_seconds_total"
    )
    assert found.change == ""
    alone = examine(facts(usage_of_pods()))
    assert "boost it" not in alone.change
    other = usage_of_pods()._replace(usage=None)
    assert hop(examine(facts(other)), "scrape").text.endswith("the values are 8 s old")


@pytest.mark.parametrize(
    ("changes", "state", "text", "advice"),
    [
        pytest.param(
            {"port": PORT},
            State.OK,
            "the pods expose process_cpu_seconds_total at port metrics",
            "have Fastpath scrape the pods: resourceRules.cpu.scrape: {port: metrics} (saves 19 s)",
            id="a rule is missing",
        ),
        pytest.param(
            {"port": PORT._replace(path="/actuator/prometheus")},
            State.OK,
            "at port metrics",
            "have Fastpath scrape the pods: resourceRules.cpu.scrape: {port: metrics, "
            "path: /actuator/prometheus} (saves 19 s)",
            id="with a path",
        ),
        pytest.param(
            {"port": Unread("you may not read pods")},
            State.OK,
            "whether the pods expose process_cpu_seconds_total is not known: you may not read pods",
            "",
            id="no right to see",
        ),
        pytest.param(
            RULE | {"verdict": UsageVerdict(False, "1 of 2 processes is not in it", "TooLittle")},
            State.WARNING,
            "the pods' own usage does not count: 1 of 2 processes is not in it",
            "correct port, container or query in resourceRules.cpu.scrape, or what the pods expose "
            "(saves 19 s)",
            id="it does not count",
        ),
        pytest.param(
            RULE | {"verdict": UsageVerdict(False, "no pod exposes it", "NotExposed")},
            State.OK,
            "the pods' own usage does not count: no pod exposes it",
            "correct port, container or query in resourceRules.cpu.scrape, or what the pods expose "
            "(saves 19 s)",
            id="not exposed",
        ),
        pytest.param(
            RULE | {"verdict": UsageVerdict(False, "compared 1 times", "NotCompared")},
            State.OK,
            "the pods' own usage does not count: compared 1 times",
            "",
            id="not yet",
        ),
        pytest.param(
            RULE | {"verdict": UsageVerdict(None, "kubectl is not installed")},
            State.UNKNOWN,
            "whether the pods' own usage counts (resourceRules.cpu.scrape) is not known: kubectl is not "
            "installed",
            "",
            id="not known",
        ),
    ],
)
def test_what_pods_expose_of_their_usage(
    changes: dict[str, Any], state: State, text: str, advice: str
) -> None:
    found = examine(boosted(usage_of_pods(**changes)))
    scrape = hop(found, "scrape")
    assert (scrape.state, found.change) == (state, advice)
    assert scrape.text.endswith(text)
    assert times(found, "decision") == (7.5, 15.0)


def test_a_usage_that_counts_is_as_fast_as_any_scraped_value() -> None:
    found = examine(boosted(usage_of_pods(**RULE, verdict=UsageVerdict(True))))
    assert times(found, "scrape") == (0.5, 1.0)
    assert times(found, "window") == (2.5, 5.0)
    assert times(found, "decision") == (0.5, 1.0)
    assert hop(found, "scrape").text.startswith(
        "Fastpath scrapes the pods every 1 s (resourceRules.cpu.scrape)"
    )
    assert found.state is State.OK


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        (
            {"port": PORT},
            "have Fastpath scrape the pods: resourceRules.cpu.scrape: {port: metrics}, and boost it: ",
        ),
        (RULE | {"port": PORT}, "boost it: "),
    ],
)
def test_an_hpa_needs_boost_for_the_usage_of_pods(changes: dict[str, Any], advice: str) -> None:
    found = examine(facts(usage_of_pods(**changes)))
    assert found.change == f"{advice}{BOOSTED} (saves 19 s)"
    assert found.state is State.OK


def test_a_gauge_of_pods_has_no_window() -> None:
    memory = usage_of_pods(**RULE, verdict=UsageVerdict(True), is_rate=False)
    assert times(examine(boosted(memory)), "window") == (0.0, 0.0)


def test_a_resize_that_is_not_actuated_is_a_warning() -> None:
    found = examine(facts(usage_of_pods()._replace(resize="the utilization is of the requests in the spec")))
    assert hop(found, "requests") == Hop(
        "requests", State.WARNING, "the utilization is of the requests in the spec", timed=False
    )


def test_pods_that_may_not_be_read_are_not_known() -> None:
    target = TargetFacts(4, "app=web", unread="pods is forbidden")
    start = hop(examine(facts(target=target)), "pod start")
    assert (start.state, start.text) == (State.UNKNOWN, "the pods are not known: pods is forbidden")


def test_a_fast_autoscaler_tells_of_the_usage_that_its_pods_expose() -> None:
    cpu = usage_of_pods(port=PORT)
    found = examine_fast(READY, fast_facts(READY, LEADERS, metrics=(cpu._replace(resize="requests"),)))
    assert found.diagnosis == (
        "its conditions report no problem; cpu: the pods expose process_cpu_seconds_total at port metrics; "
        "cpu: requests"
    )
    assert found.change.startswith("have Fastpath scrape the pods: resourceRules.cpu.scrape: {port: metrics}")
    assert found.state is State.WARNING
    counted = usage_of_pods(**RULE, verdict=UsageVerdict(True))
    well = examine_fast(READY, fast_facts(READY, LEADERS, metrics=(counted,)))
    assert (well.state, well.diagnosis, well.change) == (
        State.OK,
        "its conditions report no problem; cpu: the pods' own usage counts (resourceRules.cpu.scrape)",
        "",
    )


@pytest.mark.parametrize(("age", "state"), [(120.0, State.OK), (300.0, State.WARNING)])
def test_values_that_are_old_are_a_warning(age: float, state: State) -> None:
    """A server that gives their time says so, also where Prometheus is not asked."""
    api = hop(examine(facts(load(answer=GOOD._replace(age=age)))), "metrics API")
    assert (api.state, "; the values are 5 m old" in api.text) == (state, state is State.WARNING)


def test_versions_of_one_api_with_two_servers_are_a_warning() -> None:
    server = Serving("metrics.k8s.io", "metrics-server", warning="metrics.k8s.io has two servers")
    cpu = MetricFacts("cpu", spec_of(CPU), server, AnswerFacts(4, 0.02, window=15.0))
    api = hop(examine(facts(cpu)), "metrics API")
    assert api.state is State.WARNING
    assert api.text == "metrics-server answered in 20 ms; metrics.k8s.io has two servers"


def test_resource_metrics_of_our_own_do_not_say_how_often_they_are_new() -> None:
    ours = Serving("metrics.k8s.io", "Fastpath", ours=True)
    cpu = MetricFacts("cpu", spec_of(CPU), ours, AnswerFacts(4, 0.02, window=180.0))
    found = examine(boosted(cpu))
    assert (hop(found, "scrape").took, times(found, "window")) == (None, (90.0, 180.0))
    assert times(found, "decision") == (0.5, 1.0)


@pytest.mark.parametrize(
    ("changes", "name", "state", "text", "advice"),
    [
        pytest.param(
            {"lookback": 120.0},
            "window",
            State.WARNING,
            "8 samples; 4 are enough",
            "shorten the range of rules[0] to [60s] (saves 30 s)",
            id="a long window",
        ),
        pytest.param(
            {"series": SeriesFacts(True, 60.0, 4.0)},
            "window",
            State.WARNING,
            "often holds fewer than two samples",
            "set the range of rules[0] to [240s]",
            id="a window of one sample",
        ),
        pytest.param(
            {"lookback": 240.0, "series": SeriesFacts(True, 60.0, 4.0)},
            "scrape",
            State.WARNING,
            "a sample every 60 s",
            "scrape the series of rules[0] every 5 s (saves 28 s)",
            id="a slow scrape",
        ),
        pytest.param(
            {"series": SeriesFacts(True, 15.0, 95.0)},
            "scrape",
            State.WARNING,
            "the newest sample is 95 s old",
            "check why scrapes of its targets fail (saves 80 s)",
            id="stale samples",
        ),
        pytest.param(
            {"series": SeriesFacts(False)},
            "scrape",
            State.FAULT,
            "no sample now for rules[0]",
            "check that its targets are up and scraped",
            id="no series",
        ),
    ],
)
def test_sources(changes: dict[str, Any], name: str, state: State, text: str, advice: str) -> None:
    found = examine(facts(load(source=SOURCE._replace(**changes))))
    assert hop(found, name).state is state
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
        pytest.param(
            {"answer": AnswerFacts(0, 0.1, error="404: not found", status=404)},
            State.FAULT,
            "Fastpath has no value of load: 404: not found",
            id="unknown metric",
        ),
        pytest.param(
            {
                "answer": AnswerFacts(0, 0.1, error="503", status=503),
                "serving": OURS._replace(fault="MissingEndpoints"),
            },
            State.FAULT,
            "custom.metrics.k8s.io is not available: Fastpath: MissingEndpoints",
            id="unavailable",
        ),
        pytest.param(
            {
                "answer": AnswerFacts(0, 0.1, error="404", status=404),
                "serving": Serving("custom.metrics.k8s.io", ""),
            },
            State.FAULT,
            "no APIService is registered for custom.metrics.k8s.io",
            id="no autoscaler",
        ),
        pytest.param(
            {"serving": OURS._replace(fault="no condition Available yet")},
            State.OK,
            "Fastpath answered in 40 ms",
            id="an answer is proof enough",
        ),
        pytest.param(
            {"answer": AnswerFacts(0, 0.1, error="you may not", status=403)},
            State.UNKNOWN,
            "you may not read the metric: you may not",
            id="forbidden",
        ),
        pytest.param(
            {"answer": AnswerFacts(0, 0.1)},
            State.FAULT,
            "Fastpath answers without a value of load",
            id="no value",
        ),
        pytest.param(
            {"answer": AnswerFacts(3, 0.1)},
            State.WARNING,
            "Fastpath answered in 0.1 s, for 3 of 4 ready pods",
            id="a part",
        ),
        pytest.param({"answer": AnswerFacts(4, 2.0)}, State.WARNING, "Fastpath answered in 2 s", id="slow"),
        pytest.param({"answer": Unread("why")}, State.UNKNOWN, "why", id="not asked"),
        pytest.param(
            {"serving": Unread("forbidden")},
            State.OK,
            "the metrics API answered in 40 ms",
            id="unknown server",
        ),
        pytest.param(
            {"source": SOURCE._replace(reused=10.0)},
            State.OK,
            "Fastpath answered in 40 ms and caches answers for 10 s",
            id="a long ttl",
        ),
    ],
)
def test_the_api(changes: dict[str, Any], state: State, text: str) -> None:
    found = examine(facts(load(**changes)))
    assert (hop(found, "metrics API").state, hop(found, "metrics API").text) == (state, text)


def test_a_prometheus_that_does_not_answer_is_to_be_restored() -> None:
    error = "unable to fetch metrics: Prometheus does not answer since 2026-11-29T20:22:39Z"
    found = examine(facts(load(answer=AnswerFacts(0, 0.1, error=error, status=500))))
    assert found.change == "restore Prometheus, or correct --prometheus-url of Fastpath"


def test_pods_of_a_node_that_is_gone_come_before_the_server_that_ran_there() -> None:
    """Both are its pods: the metrics API fails too, and the pods are not late yet."""
    unready = UnreadyPods("3 pods are not Ready: node node-1", "restore node node-1", is_late=False)
    down = load(answer=AnswerFacts(0, 0.1, error="503"), serving=OURS._replace(fault="MissingEndpoints"))
    target = facts().target
    assert isinstance(target, TargetFacts)
    found = examine(facts(down, target=target._replace(unready=unready)))
    assert (found.diagnosis, found.change) == (unready.text, unready.change)


def test_boost_without_knowing_who_serves() -> None:
    found = examine(boosted(load(serving=Unread("forbidden"))))
    assert hop(found, "decision").took is None


# -- boosting ------------------------------------------------------------------------------------------------

REMOVE = "remove the handshake with fastpath boost --remove"
GONE = AnswerFacts(0, 1.0, error="503 ServiceUnavailable", status=503)


def test_a_stopped_fastpath_is_the_first_thing_to_say() -> None:
    floor = MetricFacts("fastpath_replicas", spec_of(HANDSHAKE), FLOOR_SERVING, GONE)
    cpu = MetricFacts("cpu", spec_of(CPU), Serving("metrics.k8s.io", "metrics-server"), GOOD)
    found = examine(boosted(load(answer=GONE), cpu, floor=floor))
    assert found.state is State.FAULT
    assert found.diagnosis == (
        "Fastpath is stopped or unreachable: the HPA scales up but not down (503 ServiceUnavailable)"
    )
    assert found.change == f"start Fastpath or make it reachable again, or {REMOVE}"
    [load_hops, _] = found.chains
    assert load_hops.hops[-1].text.startswith("the HPA decides every 15 s"), "no booster raises it"
    alone = examine(boosted(load(answer=GONE), floor=floor))
    assert "the HPA does not scale" in alone.diagnosis


def test_the_handshake_stays_when_the_annotation_goes() -> None:
    document = hpa(LOAD, HANDSHAKE)
    plain = model.read_annotations(None)
    quiet = examine(boosted(wishes=plain)._replace(hpa=document))
    assert hop(quiet, "boost").state is State.WARNING
    floor = MetricFacts("fastpath_replicas", spec_of(HANDSHAKE), FLOOR_SERVING, GONE)
    stuck = examine(boosted(wishes=plain, floor=floor)._replace(hpa=document))
    assert "not down" in stuck.diagnosis


@pytest.mark.parametrize(
    ("changes", "state", "text"),
    [
        pytest.param(
            {"handshake": model.Handshake(False, "it is wrong")},
            State.FAULT,
            "advice only, not boosted: it is wrong",
            id="handshake",
        ),
        pytest.param(
            {"wishes": model.read_annotations({"fastpath.io/mode": "bost"})},
            State.FAULT,
            'annotation fastpath.io/mode: "bost": expected advise or boost',
            id="annotation",
        ),
        pytest.param(
            {"owner": "the ScaledObject web"},
            State.FAULT,
            "advice only, not boosted: it belongs to the ScaledObject web, which writes its spec",
            id="owner",
        ),
        pytest.param(
            {"leaders": Leaders(())},
            State.FAULT,
            "no scaler runs for it: no scaler has a Lease in any namespace",
            id="lease",
        ),
        pytest.param(
            {"leaders": Leaders((), ("fastpath", "shop"), "forbidden")},
            State.UNKNOWN,
            "whether a scaler leads is not known: no scaler has a Lease in namespaces fastpath, shop, and "
            "those of other namespaces cannot be listed: forbidden",
            id="leases of other namespaces forbidden",
        ),
        pytest.param(
            {"leaders": Leaders((Leader("fastpath/s", "", None, 15.0, slices.slice_of("shop")),))},
            State.FAULT,
            "no scaler runs for it: the Lease fastpath/s has no holder",
            id="holder",
        ),
        pytest.param(
            {"leaders": Leaders((Leader("fastpath/s", "one", 600.0, 15.0, slices.slice_of("shop")),))},
            State.FAULT,
            "no scaler runs for it: one last renewed the Lease fastpath/s 10 m ago",
            id="late",
        ),
        pytest.param(
            {"leaders": Unread("forbidden")},
            State.UNKNOWN,
            "whether a scaler leads is not known: forbidden",
            id="leases forbidden",
        ),
        pytest.param(
            {"entry": Floor(demoted=Demotion(FineInstant(NOW + 60 * SECOND), "argocd"))},
            State.WARNING,
            "advice only until 1970-01-12T13:47:40Z: argocd reverted raises",
            id="demoted",
        ),
        pytest.param(
            {"entry": Floor(demoted=Demotion(FineInstant(NOW - SECOND), "argocd"))},
            State.OK,
            "the handshake works; no floor is set",
            id="demoted once",
        ),
        pytest.param(
            {"floor": MetricFacts("f", spec_of(HANDSHAKE), FLOOR_SERVING, AnswerFacts(1, 0.01, 8.0))},
            State.OK,
            "the handshake works; the floor is 8",
            id="a floor",
        ),
        pytest.param(
            {
                "floor": MetricFacts(
                    "f",
                    spec_of(HANDSHAKE),
                    FLOOR_SERVING,
                    AnswerFacts(0, 0.01, error="you may not", status=403),
                )
            },
            State.UNKNOWN,
            "the handshake is correct; you may not read the floor",
            id="floor forbidden",
        ),
    ],
)
def test_boosting(changes: dict[str, Any], state: State, text: str) -> None:
    found = examine(boosted(**changes))
    assert (hop(found, "boost").state, hop(found, "boost").text) == (state, text)
    by_fastpath = times(found, "decision") == (0.5, 1.0)
    assert by_fastpath == (state in {State.OK, State.UNKNOWN})


def test_beside_another_autoscaler_nothing_is_raised() -> None:
    """Nor where the autoscaler finds its selector ambiguous: times of a boosted one would be wrong."""
    assert times(examine(boosted()._replace(rivals=("other",))), "decision") == (7.5, 15.0)
    ambiguous = _with(
        ScalingActive=("False", "AmbiguousSelector", "pods by selector app=web are controlled by multiple")
    )
    document = hpa(LOAD, HANDSHAKE, mode="boost", conditions=ambiguous)
    assert times(examine(boosted()._replace(hpa=document)), "decision") == (7.5, 15.0)


@pytest.mark.parametrize(
    ("metric", "serving", "text", "change"),
    [
        (
            spec_of(HANDSHAKE),
            Serving("external.metrics.k8s.io", ""),
            "no APIService is registered for external.metrics.k8s.io, so fastpath_replicas has no value: ",
            f"register Fastpath for external.metrics.k8s.io, or {REMOVE}",
        ),
        (
            spec_of(HANDSHAKE),
            Serving("external.metrics.k8s.io", "KEDA"),
            "external.metrics.k8s.io is served by KEDA, not by Fastpath",
            "use the other handshake: fastpath boost --handshake object HPA.yaml",
        ),
        (
            model.handshake("web", model.OBJECT),
            Serving("custom.metrics.k8s.io", "prometheus-adapter"),
            "custom.metrics.k8s.io is served by prometheus-adapter, not by Fastpath",
            "use the other handshake: fastpath boost --handshake external HPA.yaml",
        ),
    ],
)
def test_a_floor_that_fastpath_does_not_serve(
    metric: MetricSpec, serving: Serving, text: str, change: str
) -> None:
    cpu = MetricFacts("cpu", spec_of(CPU), Serving("metrics.k8s.io", "metrics-server"), GOOD)
    found = examine(boosted(cpu, floor=MetricFacts("f", metric, serving, GONE)))
    assert found.diagnosis.startswith(text)
    assert found.diagnosis.endswith("the HPA scales up but not down")
    assert found.change == change


def floor_of(way: str, *, owner: str = "Fastpath", **answer: Any) -> MetricFacts:
    """Return the floor of a handshake as a server answers for it."""
    group = "external.metrics.k8s.io" if way == model.EXTERNAL else "custom.metrics.k8s.io"
    serving = Serving(group, owner, ours=owner == "Fastpath")
    return MetricFacts("fastpath_replicas", model.handshake("web", way), serving, AnswerFacts(0, **answer))


SERVED = AnswerFacts(1)
UNSERVED: dict[str, Any] = {"error": "the server could not find the metric", "status": 404}
NO_LEADERS = Leaders(())
BOOST_WEB = "boost it: kubectl -n shop get hpa web -o yaml | fastpath boost {}- | kubectl apply -f -"
SCALER_FIRST = "install components/scaler first (docs/guides/deploy.md#the-scaler)"


@pytest.mark.parametrize(
    ("offer", "change"),
    [
        pytest.param(
            BoostOffer(LEADERS, (floor_of(model.EXTERNAL)._replace(answer=SERVED),)),
            BOOST_WEB.format(""),
            id="a scaler and its floors",
        ),
        pytest.param(
            BoostOffer(
                LEADERS,
                (
                    floor_of(model.EXTERNAL, owner="KEDA", error="not found", status=404),
                    floor_of(model.OBJECT)._replace(answer=SERVED),
                ),
            ),
            BOOST_WEB.format("--handshake object "),
            id="another server has the external metrics",
        ),
        pytest.param(
            BoostOffer(NO_LEADERS, ()),
            f"boost it: {SCALER_FIRST}: no scaler has a Lease in any namespace",
            id="no scaler",
        ),
        pytest.param(
            BoostOffer(LEADERS, (floor_of(model.EXTERNAL, **UNSERVED), floor_of(model.OBJECT, **UNSERVED))),
            f"boost it: {SCALER_FIRST}: no Fastpath serves floors here",
            id="no floors",
        ),
        pytest.param(
            BoostOffer(Unread("forbidden"), (floor_of(model.EXTERNAL, error="you may not", status=403),)),
            BOOST_WEB.format(""),
            id="what may not be read is no reason",
        ),
        pytest.param(BoostOffer(LEADERS, (), "the ScaledObject web"), "", id="it belongs to KEDA"),
    ],
)
def test_boosting_is_advised_where_it_works(offer: BoostOffer, change: str) -> None:
    decision = hop(examine(facts(offer=offer)), "decision")
    assert ("" if decision.change is None else decision.change.text) == change


def test_a_fastpath_without_floors_is_not_called_stopped() -> None:
    found = examine(boosted(floor=floor_of(model.EXTERNAL, **UNSERVED)))
    assert found.diagnosis == "this Fastpath serves no floors: the HPA scales up but not down"
    assert found.change == f"{SCALER_FIRST}, or {REMOVE}"


def test_a_certificate_that_the_api_server_refuses_is_to_be_renewed() -> None:
    expired, renew = (
        "x509: certificate has expired",
        "renew the certificate: docs/guides/deploy.md#certificates",
    )
    refusing: dict[str, Any] = {"fault": expired, "remedy": renew}
    floor = MetricFacts("f", spec_of(HANDSHAKE), FLOOR_SERVING._replace(**refusing), GONE)
    found = examine(boosted(floor=floor))
    assert found.diagnosis == (
        f"Fastpath is stopped or unreachable: the HPA scales up but not down ({expired})"
    )
    assert found.change == f"{renew}, or {REMOVE}"
    found = examine(facts(load(serving=OURS._replace(**refusing), answer=GONE)))
    assert found.diagnosis == f"custom.metrics.k8s.io is not available: Fastpath: {expired}"
    assert found.change == renew


def test_the_other_handshake_is_not_advised_where_it_has_no_floor_either() -> None:
    mine, other = floor_of(model.EXTERNAL, owner="KEDA", **UNSERVED), floor_of(model.OBJECT, **UNSERVED)
    found = examine(boosted(floor=mine)._replace(offer=BoostOffer(LEADERS, (mine, other))))
    assert found.diagnosis.startswith("external.metrics.k8s.io is served by KEDA, not by Fastpath")
    assert found.change == REMOVE


@pytest.mark.parametrize("owner", ["", "prometheus-adapter"])
def test_a_target_that_does_not_exist_comes_before_what_its_metrics_lack(owner: str) -> None:
    change = "correct spec.scaleTargetRef, or create Deployment web"
    absent = Unread("Deployment web does not exist", change)
    lost = load(serving=Serving("custom.metrics.k8s.io", owner), answer=GONE)
    for whole in (facts(lost), boosted(lost, floor=floor_of(model.EXTERNAL, owner="", **UNSERVED))):
        found = examine(whole._replace(target=absent))
        assert (found.diagnosis, found.change) == ("Deployment web does not exist", change)


def test_a_hold_that_is_none_is_not_mended_by_a_mode() -> None:
    wishes = model.read_annotations({"fastpath.io/mode": "boost", "fastpath.io/hold": "2h"})
    found = examine(boosted(wishes=wishes))
    assert "fastpath.io/hold" in found.diagnosis
    assert found.change == "fix the annotation"


def test_advice_is_no_boost() -> None:
    advised = hpa(LOAD, mode="advise")
    wishes = model.read_annotations(advised.metadata.annotations)
    found = examine(boosted(wishes=wishes, floor=None)._replace(hpa=advised))
    assert hop(found, "boost").text == "advise mode: Fastpath reports what it would do and writes nothing"
    assert times(found, "decision") == (7.5, 15.0)


@pytest.mark.parametrize(
    ("statuses", "name", "text"),
    [
        (
            ["Pods", ""],
            "floor",
            (
                "Fastpath is stopped or unreachable: the HPA scales up but not down (the HPA has no value "
                "for it)"
            ),
        ),
        (
            ["", ""],
            "floor",
            (
                "Fastpath is stopped or unreachable: no metric has a value, so the HPA does not scale (the "
                "HPA has no value for it)"
            ),
        ),
        (["Pods", "External"], "boost", "the handshake is correct; you may not read the floor"),
        ([], "boost", "the handshake is correct; you may not read the floor"),
    ],
)
def test_without_the_right_to_read_metrics_the_controllers_message_is_shown(
    statuses: list[str], name: str, text: str
) -> None:
    forbidden = AnswerFacts(0, 0.1, error="you may not", status=403)
    floor = MetricFacts("fastpath_replicas", spec_of(HANDSHAKE), FLOOR_SERVING, forbidden)
    document = hpa(LOAD, HANDSHAKE, mode="boost")
    current = msgspec.convert([{"type": each} for each in statuses], tuple[MetricStatus, ...])
    assert document.status is not None
    status = msgspec.structs.replace(document.status, current_metrics=current)
    document = msgspec.structs.replace(document, status=status)
    found = examine(boosted(load(answer=forbidden), floor=floor)._replace(hpa=document))
    assert hop(found, name).text == text
    wanted = {"": State.FAULT, "Pods": State.UNKNOWN}[statuses[0] if statuses else "Pods"]
    assert hop(found, "metrics API").state is wanted


# -- the autoscaler itself
# ------------------------------------------------------------------------------------------------


def _with(**conditions: tuple[str, str, str]) -> list[dict[str, str]]:
    found = {each["type"]: each for each in WELL}
    for kind, (status, reason, message) in conditions.items():
        found[kind] = {"type": kind, "status": status, "reason": reason, "message": message}
    return list(found.values())


@pytest.mark.parametrize(
    ("changes", "state", "diagnosis", "change"),
    [
        pytest.param(
            {"hpa": hpa(conditions=_with(ScalingActive=("False", "ScalingDisabled", "zero")))},
            State.FAULT,
            "the target is scaled to zero, which disables the autoscaler",
            "give the target at least one replica",
            id="zero",
        ),
        pytest.param(
            {"hpa": hpa(conditions=_with(AbleToScale=("False", "FailedGetScale", "not found")))},
            State.FAULT,
            "AbleToScale is False (FailedGetScale): not found",
            "",
            id="no target",
        ),
        pytest.param(
            {"hpa": hpa(conditions=_with(ScalingLimited=("True", "TooManyReplicas", "more")))},
            State.WARNING,
            "it recommends more than maxReplicas, 20",
            "raise spec.maxReplicas, now 20",
            id="maximum",
        ),
        pytest.param(
            {
                "hpa": hpa(
                    conditions=_with(
                        ScalingActive=(
                            "False",
                            "FailedGetResourceMetric",
                            "missing request for cpu in container web",
                        )
                    )
                )
            },
            State.FAULT,
            "ScalingActive is False (FailedGetResourceMetric): missing request for cpu in container web",
            "set the resource request on the containers",
            id="no request",
        ),
        pytest.param(
            {"rivals": ("web-2",)},
            State.FAULT,
            "Deployment web is also scaled by web-2",
            "keep only one autoscaler for Deployment web",
            id="rival",
        ),
    ],
)
def test_the_autoscaler(changes: dict[str, Any], state: State, diagnosis: str, change: str) -> None:
    found = examine(facts(**changes))
    assert hop(found, "autoscaler").state is state
    assert (found.diagnosis, found.change) == (diagnosis, change)


def test_the_cause_comes_before_what_the_controller_makes_of_it() -> None:
    failing = hpa(
        conditions=_with(ScalingActive=("False", "FailedGetPodsMetric", "unable to get metric load"))
    )
    gone = load(answer=AnswerFacts(0, 0.1, error="404: not found", status=404))
    assert examine(facts(gone, hpa=failing)).diagnosis == "Fastpath has no value of load: 404: not found"


def test_autoscalers_that_are_not_yet_reconciled_or_owned_elsewhere() -> None:
    new = examine(facts(hpa=hpa(conditions=None)))
    assert hop(new, "autoscaler").text == "the HPA controller has not set conditions yet"
    owned = examine(facts(owner="KEDA's ScaledObject web"))
    assert hop(owned, "autoscaler").text.endswith("KEDA's ScaledObject web owns it and reverts edits")
    held = examine(facts(hpa=hpa(conditions=_with(ScalingLimited=("True", "ScaleUpLimit", "slow")))))
    assert hop(held, "autoscaler").state is State.WARNING


@pytest.mark.parametrize(
    ("up", "state", "took", "text"),
    [
        ({}, State.OK, 0, "may go from 4 to 8 at once, and further 15 s later"),
        (
            {"stabilizationWindowSeconds": 60},
            State.WARNING,
            60,
            "scale-up waits for 60 s of stabilization (scaleUp.stabilizationWindowSeconds)",
        ),
        (
            {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
            State.WARNING,
            180,
            "its policies allow a scale-up from 4 to 8 in 3 m",
        ),
        (
            {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1800}]},
            State.WARNING,
            3600,
            "from 4 to 8 replicas takes more than an hour",
        ),
    ],
)
def test_behavior(up: dict[str, Any], state: State, took: float, text: str) -> None:
    found = examine(facts(hpa=hpa(behavior={"scaleUp": up})))
    assert (hop(found, "behavior").state, hop(found, "behavior").text) == (state, text)
    assert times(found, "behavior") == (took, took)


def test_growth_that_is_switched_off_or_has_no_room() -> None:
    off = examine(facts(hpa=hpa(behavior={"scaleUp": {"selectPolicy": "Disabled"}})))
    assert off.diagnosis == "spec.behavior.scaleUp.selectPolicy is Disabled: it never scales up"
    slow = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    full = examine(facts(hpa=hpa(behavior=slow, most=4)))
    assert times(full, "behavior") == (0, 0)


@pytest.mark.parametrize(
    ("policies", "current", "goal", "took"),
    [
        ([Policy(True, 100, 15 * SECOND)], 4, 8, 0),
        ([Policy(True, 50, 15 * SECOND)], 4, 8, 15),
        ([Policy(True, 10, 60 * SECOND)], 10, 20, 300),
        ([Policy(False, 4, 15 * SECOND), Policy(True, 100, 15 * SECOND)], 1, 5, 0),
        ([Policy(False, 4, 15 * SECOND)], 1, 6, 15),
        ([Policy(False, 1, 15 * SECOND)], 3, 3, 0),
    ],
)
def test_growth(policies: list[Policy], current: int, goal: int, took: int) -> None:
    assert autoscaler_hops.growth_seconds(Rules(0, "Max", tuple(policies)), current, goal) == took


# -- how it is told
# -------------------------------------------------------------------------------------------------------


def test_one_autoscaler_is_shown_hop_by_hop() -> None:
    assert report.render(examine(facts())) == (
        "shop/web scales Deployment web: 4 replicas, 2 to 20; not boosted\n"
        "\n"
        "hop            usually  at most\n"
        "  autoscaler                     ok  the HPA controller reports no problem\n"
        "  scrape         7.5 s     15 s  ok  a sample every 15 s; the newest sample is 4 s old\n"
        "  window          30 s     60 s  ok  rules[0] looks back over 60 s\n"
        "  metrics API    40 ms    40 ms  ok  Fastpath answered in 40 ms\n"
        "  decision       7.5 s     15 s  ok  the HPA decides every 15 s (the default)\n"
        "  behavior         0 s      0 s  ok  may go from 4 to 8 at once, and further 15 s later\n"
        "  pod start       12 s     20 s  ok  from creation to ready, 4 pods\n"
        "in all            57 s    110 s\n"
        "\n"
        "diagnosis: most of 57 s is window, 30 s: rules[0] looks back over 60 s\n"
        "change:    boost it: kubectl -n shop get hpa web -o yaml | fastpath boost - | kubectl apply -f "
        "- (saves 7 s)\n"
    )


def test_nothing_known_is_no_nought() -> None:
    unread = Unread("forbidden")
    blind = boosted(MetricFacts("load", spec_of(LOAD), unread, unread, unread))._replace(target=unread)
    text = report.render(examine(blind))
    [total] = [line for line in text.splitlines() if line.startswith("in all")]
    assert total.split() == ["in", "all", "?", "?"]
    assert text.endswith("change:    none in what could be read\n")


def test_a_fault_without_advice_has_no_change() -> None:
    failing = hpa(conditions=_with(AbleToScale=("False", "FailedGetScale", "x" * 300)))
    text = report.render(examine(facts(hpa=failing)))
    assert "change:" not in text
    sentence = f"AbleToScale is False (FailedGetScale): {'x' * 300}"
    assert text.endswith(f"diagnosis: {sentence}\n")
    assert text.count(sentence) == 2, "the hop is whole too"


def test_many_metrics_have_a_total_each() -> None:
    cpu = MetricFacts(
        "cpu", spec_of(CPU), Serving("metrics.k8s.io", "metrics-server"), AnswerFacts(4, 0.0, window=15.0)
    )
    text = report.render(examine(facts(load(), cpu)))
    lines = text.splitlines()
    assert lines.count("load") == 1
    assert lines.count("cpu") == 1
    assert [line.split()[-1] for line in lines if line.startswith("in all")] == ["load", "cpu"]


def test_a_table_has_the_slowest_first() -> None:
    slow = examine(facts(load(source=SOURCE._replace(lookback=600.0))))
    fast = examine(boosted())
    quick = hpa(LOAD, HANDSHAKE, mode="boost")
    named = msgspec.structs.replace(quick, metadata=msgspec.structs.replace(quick.metadata, name="api"))
    lines = report.render_table([fast._replace(facts=fast.facts._replace(hpa=named)), slow]).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["shop/web", "-"], ["shop/api", "boost"]]
    assert " warning  " in lines[1]


def test_json_has_null_for_what_is_not_known() -> None:
    found = report.document(examine(facts(target=Unread("forbidden"))))
    assert found["after"][-1] == {
        "hop": "pod start",
        "state": "unknown",
        "finding": "the pods are not known: forbidden",
        "usualSeconds": None,
        "mostSeconds": None,
    }
    assert found["wholeKnown"] is False
    [metric] = found["metrics"]
    assert [each["hop"] for each in metric["hops"]] == ["scrape", "window", "metrics API", "decision"]
    assert metric["hops"][3]["savesSeconds"] == 7.0
    assert msgspec.json.encode(found)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (0.04, "40 ms"),
        (0.0996, "0.1 s"),
        (7.5, "7.5 s"),
        (9.96, "10 s"),
        (119.4, "119 s"),
        (150, "2 m 30 s"),
        (600, "10 m"),
    ],
)
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


def test_the_former_flag_for_json_is_deprecated() -> None:
    options, notices = COMMAND.parse(["--json"])
    assert options.output == "json"
    assert notices == ("Flag --json has been deprecated, use -o json",)
    assert COMMAND.parse(["--json=false"])[0].output == "text"


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        (["shop/"], "NAMESPACE/NAME"),
        (["/web"], "NAMESPACE/NAME"),
        (["a/b/c"], "NAMESPACE/NAME"),
        (["a/b", "c/d"], "NAMESPACE/NAME"),
        (["--namespace="], "--namespace"),
        (["--horizontal-pod-autoscaler-sync-period=-1s"], "--horizontal-pod-autoscaler-sync-period"),
        (["--horizontal-pod-autoscaler-sync-period=x"], "--horizontal-pod-autoscaler-sync-period"),
        (["--prometheus-url=none"], "--prometheus-url"),
        (["--scaler"], "--scaler"),
    ],
)
def test_faults_of_the_command_line(argv: list[str], place: str) -> None:
    with pytest.raises(InputError) as raised:
        COMMAND.parse(argv)
    assert [fault.path for fault in raised.value.faults] == [place]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["doctor", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Required" not in text
    assert "(default https://localhost)" not in text
    assert "Without it the rules are read from the ConfigMap of the server behind the metrics APIs" in text
    assert "Without it Prometheus is not asked, and the hops scrape and engine stay unknown" in text
    assert "A hop is unknown if its source is not given" in text

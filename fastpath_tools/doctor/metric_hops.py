"""The hops of one metric: from the load to the number of replicas that is written.

Pure: facts in, hops out. What happens at a fixed interval takes half of it usually and all of it at most.
Over a range window a step of the load is half visible after half of it.
"""

import math
from collections.abc import Iterator

from adapter.config.rules_config import ScrapeConfig
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.objects import api_selectors
from adapter.model.visible import counted
from adapter.telemetry.problems import UNLISTED
from fastpath_tools.doctor import autoscaler_hops, usage_hops
from fastpath_tools.doctor.hops import (
    NOTHING,
    Facts,
    Hop,
    Improvement,
    MetricChain,
    State,
    Took,
    evenly,
    seconds,
    total,
)
from fastpath_tools.live.facts import AnswerFacts, MetricFacts, SeriesFacts, Serving, SourceFacts, Unread
from fastpath_tools.live.preview import SCRAPES_IN_WINDOW

TICK = 1.0
"""How often Fastpath decides."""

ASKED_EVERY = 15.0
"""How often Fastpath asks other servers, by the default of --horizontal-pod-autoscaler-sync-period."""

_BRISK_SCRAPE = 5.0
_SLOW_SCRAPE = 15.0
_SLOW_ANSWER = 1.0
_STALE_SCRAPES = 3
_STALE = 120.0
"""From which age on a value is old whose usual interval is not known, in seconds."""

_FEWEST_IN_WINDOW = 2
_DIRECT = Took(3.0, 6.0)
"""What scrape and window of a rule with `scrape` take by default: each second, over five."""

_API = "metrics API"
_INSTALL = {
    "metrics.k8s.io": "install metrics-server",
    "custom.metrics.k8s.io": "install a metrics adapter: docs/guides/deploy.md does so with Fastpath",
    "external.metrics.k8s.io": "install a metrics adapter that serves external.metrics.k8s.io: "
    "docs/guides/deploy.md does so with Fastpath and manifests/components/external",
}


def chain(facts: Facts, metric: MetricFacts, *, boosted: bool) -> MetricChain:
    """Return the hops of a metric; `boosted` tells whether Fastpath raises the autoscaler at the moment."""
    hops = [*_origin(facts, metric, boosted=boosted), _api(facts, metric)]
    if metric.resize:  # which requests count
        hops.append(Hop("requests", State.WARNING, metric.resize, timed=False))
    return MetricChain(metric.label, (*hops, _decision(facts, metric, boosted=boosted)))


def _is_ours(metric: MetricFacts) -> bool:
    return not isinstance(metric.serving, Unread) and metric.serving.ours


# -- from the load to a sample -------------------------------------------------------------------------------


def _origin(facts: Facts, metric: MetricFacts, *, boosted: bool) -> Iterator[Hop]:
    source = metric.source
    if source is None:
        yield from _usage(facts, metric, boosted=boosted)
    elif isinstance(source, Unread):
        yield Hop("scrape", State.UNKNOWN, source.why)
        yield Hop("window", State.UNKNOWN, "not known without the rule")
    elif source.scraped is not None and boosted:
        direct = source.scraped
        yield _direct_scrape(source, direct)
        if source.lookback == 0:
            yield Hop("window", State.OK, "the latest sample", NOTHING)
        else:
            yield Hop("window", State.OK, f"rates over {seconds(direct.window)}", evenly(direct.window))
    else:
        hidden = 0.0 if isinstance(facts.delay, Unread) or facts.delay < 1.0 else facts.delay
        yield _scrape(source, hidden, boosted=boosted)
        yield _window(source)
        if hidden:
            text = f"queries do not see the last {seconds(hidden)} (search.latencyOffset of VictoriaMetrics)"
            advice = "give --prometheus-query-param=nocache=1 to Fastpath, or a lower -search.latencyOffset"
            yield Hop("engine", State.WARNING, text, Took(hidden, hidden), Improvement(advice, hidden))


def _direct_scrape(source: SourceFacts, direct: ScrapeConfig) -> Hop:
    """Return the hop of a rule that Fastpath scrapes itself: from the pods, or from its endpoints."""
    endpoints, took = source.endpoints, evenly(direct.access.interval)
    what = "the pods" if direct.source is None else str(direct.source)
    text = f"Fastpath scrapes {what} every {seconds(direct.access.interval)} ({source.rule})"
    if endpoints is None:
        return Hop("scrape", State.OK, text, took)
    if isinstance(endpoints, Unread):
        return Hop("scrape", State.UNKNOWN, f"{text}; its endpoints cannot be read: {endpoints.why}", took)
    if endpoints.reason:
        advice = Improvement(f"check service, pods and port in scrape of {source.rule}")
        return Hop("scrape", State.FAULT, endpoints.reason, change=advice)
    if endpoints.missing:
        return Hop("scrape", State.WARNING, f"{text}; may scale up, not down: {endpoints.missing[0]}", took)
    count = counted(len(endpoints.endpoints), "endpoint", "endpoints")
    return Hop("scrape", State.OK, f"{text}, {count}", took)


def _usage(facts: Facts, metric: MetricFacts, *, boosted: bool) -> Iterator[Hop]:
    """Yield the hops of a resource metric."""
    usage, hops = metric.usage, list(without_rule(metric))
    if usage is None:
        yield from hops
    elif boosted and usage.verdict.counts:
        yield from usage_hops.direct_hops(usage)
    else:
        decision = _decision(facts, metric, boosted=boosted).took or NOTHING
        took = decision.usual + total(hops).took.usual
        how = "" if facts.mode == BOOST else autoscaler_hops.boosting(facts)
        change = usage_hops.improvement(usage, took, TICK, how)
        (state, text), first = usage_hops.describe(usage), hops[0]
        state = max(state, first.state, key=list(State).index)
        yield first._replace(state=state, text=f"{first.text}; {text}", change=change)
        yield from hops[1:]


def without_rule(metric: MetricFacts) -> Iterator[Hop]:
    """Yield what the values say of themselves if no rule is known: resource metrics have a window."""
    owner = "the server" if isinstance(metric.serving, Unread) else metric.serving.owner or "the server"
    answer = metric.answer
    if isinstance(answer, Unread) or not answer.window:
        text = f"{owner} does not say how old its values are or what window they cover"
        yield Hop("scrape", State.UNKNOWN, text)
        return
    if _is_ours(metric):
        yield Hop("scrape", State.UNKNOWN, "how often the kubelets are scraped is not read")
    else:
        age = "" if answer.age is None else f"; the values are {seconds(max(answer.age, 0.0))} old"
        text = f"{owner} has a new value about every {seconds(answer.window)}{age}"
        yield Hop("scrape", State.OK, text, evenly(answer.window))
    yield Hop("window", State.OK, f"a value covers {seconds(answer.window)}", evenly(answer.window))


def _scrape(source: SourceFacts, hidden: float, *, boosted: bool) -> Hop:
    series = source.series
    if isinstance(series, Unread):
        return Hop("scrape", State.UNKNOWN, series.why)
    if not series.found:
        now = f"now (queries do not see the last {seconds(hidden)})" if hidden else "now"
        text = f"Prometheus has no sample {now} for {source.rule}: {source.query}"
        change = Improvement("check that its targets are up and scraped")
        if series.excluding:
            text = f"no series matches {source.rule}: {series.excluding}"
            change = Improvement(f"correct the label in the metric's selector or in {source.rule}")
        return Hop("scrape", State.FAULT, text, change=change)
    age = "" if series.age is None else f"; the newest sample is {seconds(max(series.age, 0.0))} old"
    if series.interval is None:
        text = f"the series are too young to tell how often they are scraped{age}"
        return Hop("scrape", State.UNKNOWN, text)
    text, took = f"a sample every {seconds(series.interval)}{age}", evenly(series.interval)
    if series.age is not None and is_stale(series.age, series.interval):
        missed = Improvement("check why scrapes of its targets fail", series.age - series.interval)
        return Hop("scrape", State.WARNING, text, took, missed)
    state = State.WARNING if series.interval > _SLOW_SCRAPE * 1.1 else State.OK
    return Hop("scrape", state, text, took, _scrape_change(source, series.interval, boosted=boosted))


def is_stale(age: float, interval: float | None) -> bool:
    """Tell whether a value is older than missed scrapes make it; `interval` is None if it is not known."""
    return age > (_STALE if interval is None else (_STALE_SCRAPES + 1) * interval)


def _scrape_change(source: SourceFacts, interval: float, *, boosted: bool) -> Improvement | None:
    if boosted and source.scrapable:
        now = (interval + (source.lookback or 0.0)) / 2
        text = f"let Fastpath scrape the pods itself: scrape: {{port: NAME}} on {source.rule}"
        return Improvement(text, now - (_DIRECT.usual if source.lookback else TICK / 2))
    if interval > _BRISK_SCRAPE:
        text = f"scrape the series of {source.rule} every {seconds(_BRISK_SCRAPE)}"
        return Improvement(text, (interval - _BRISK_SCRAPE) / 2)
    return None


def _window(source: SourceFacts) -> Hop:
    lookback, series = source.lookback, source.series
    if lookback is None:
        text = "made by a recording rule, which adds its own window and interval"
        return Hop("window", State.UNKNOWN, text)
    if lookback == 0:
        return Hop("window", State.OK, "the latest sample", NOTHING)
    text = f"{source.rule} looks back over {seconds(lookback)}"
    interval = None if isinstance(series, Unread) else series.interval
    if interval is None:
        return Hop("window", State.OK, text, evenly(lookback))
    enough = math.ceil(SCRAPES_IN_WINDOW * round(interval, 1))
    if lookback < _FEWEST_IN_WINDOW * interval * 0.9:
        text = f"{text}, which often holds fewer than two samples, and then there is no value"
        wide = Improvement(f"set the range of {source.rule} to [{enough}s]")
        return Hop("window", State.WARNING, text, evenly(lookback), wide)
    if lookback <= 1.2 * enough:
        return Hop("window", State.OK, text, evenly(lookback))
    text = f"{text}, {lookback / interval:.0f} samples; {SCRAPES_IN_WINDOW} are enough"
    change = Improvement(f"shorten the range of {source.rule} to [{enough}s]", (lookback - enough) / 2)
    return Hop("window", State.WARNING, text, evenly(lookback), change)


# -- from a sample to a decision -----------------------------------------------------------------------------


def _api(facts: Facts, metric: MetricFacts) -> Hop:
    serving, answer = metric.serving, metric.answer
    if isinstance(answer, Unread):
        return Hop(_API, State.UNKNOWN, answer.why)
    if answer.status == 403:
        return _forbidden(facts, metric, answer.error)
    if answer.error and not isinstance(serving, Unread):
        if not serving.owner:
            text = f"no APIService is registered for {serving.group}"
            return Hop(_API, State.FAULT, text, change=Improvement(_INSTALL[serving.group]))
        if serving.fault:
            restore = f"restore {serving.owner}: kubectl get apiservices | grep {serving.group}"
            advice = _advise(serving, restore)
            text = f"{serving.group} is not available: {serving.owner}: {serving.fault}"
            return Hop(_API, State.FAULT, text, change=Improvement(advice))
    server = "the metrics API" if isinstance(serving, Unread) else serving.owner
    if answer.error:
        advice = f"fastpath check RULES --prometheus-url URL --why {metric.label} shows where it is lost"
        if UNLISTED in answer.error:  # check reads with the user's rights, and finds nothing
            advice = f"give the account of {server} the right that its log names: it may not list the objects"
        elif "Prometheus does not answer" in answer.error:
            advice = f"restore Prometheus, or correct --prometheus-url of {server}"
        text = f"{server} has no value of {metric.label}: {answer.error}"
        return Hop(_API, State.FAULT, text, change=Improvement(_advise(serving, advice)))
    return _answered(facts, metric, answer, server)


def _advise(serving: Serving | Unread, advice: str) -> str:
    """Return the remedy of our own server; of another one what may be wrong, and the advice."""
    if isinstance(serving, Unread) or not serving.remedy:
        return advice
    return serving.remedy if serving.ours else f"{serving.remedy}; {advice}"


def _answered(facts: Facts, metric: MetricFacts, answer: AnswerFacts, server: str) -> Hop:
    """Return how fast and how completely the API answered."""
    if not answer.number:
        change = Improvement("check that the pods run and expose the metric")
        text = f"{server} answers without a value of {_selected(metric)}"
        return Hop(_API, State.FAULT, text, change=change)
    reused = metric.source.reused if isinstance(metric.source, SourceFacts) else 0.0
    took = Took(answer.seconds + reused / 2, answer.seconds + reused)
    text = f"{server} answered in {seconds(answer.seconds)}"
    if reused > TICK:
        text += f" and caches answers for {seconds(reused)}"
    ready = 0 if isinstance(facts.target, Unread) else len(facts.target.ready)
    state = State.WARNING if answer.seconds > _SLOW_ANSWER else State.OK
    if metric.spec.type in {"Pods", "Resource", "ContainerResource"} and answer.number < ready:
        text += f", for {answer.number} of {ready} ready pods"
        state = State.WARNING
    if answer.age is not None and is_stale(answer.age, None):
        missed = Improvement("check why its targets have no newer sample", answer.age)
        return Hop(_API, State.WARNING, f"{text}; the values are {seconds(answer.age)} old", took, missed)
    if not isinstance(metric.serving, Unread) and metric.serving.warning:
        text += f"; {metric.serving.warning}"
        state = State.WARNING
    return Hop(_API, state, text, took)


def _selected(metric: MetricFacts) -> str:
    """Return a metric with its selector as words: a wrong label in that matches nothing."""
    source = metric.spec.pods or metric.spec.object or metric.spec.external
    if source is None or source.metric.selector is None:
        return metric.label
    try:
        selector = api_selectors.compile_selector(source.metric.selector)
    except ValueError:
        return metric.label
    return f"{source.metric.name} with {selector}"


def _forbidden(facts: Facts, metric: MetricFacts, error: str) -> Hop:
    """Return what the HPA controller says of a metric that the user may not read."""
    has_value = facts.has_value(metric.spec)
    if has_value is False:
        change = Improvement("look at the events of the HPA: kubectl describe hpa")
        text = "the HPA has no value, and you may not read the metric"
        return Hop(_API, State.FAULT, text, change=change)
    has = "the HPA has a value, but " if has_value else ""
    return Hop(_API, State.UNKNOWN, f"{has}you may not read the metric: {error}")


def _decision(facts: Facts, metric: MetricFacts, *, boosted: bool) -> Hop:
    if boosted and (_is_ours(metric) or (metric.usage is not None and metric.usage.verdict.counts)):
        return Hop("decision", State.OK, "Fastpath decides every second and raises at once", evenly(TICK))
    if boosted and isinstance(metric.serving, Unread):
        return Hop("decision", State.UNKNOWN, f"the server of the metric is unknown: {metric.serving.why}")
    if boosted:
        text = f"Fastpath reads metrics of other servers every {seconds(ASKED_EVERY)} by default"
        return Hop("decision", State.OK, text, evenly(ASKED_EVERY))
    period = facts.period.seconds
    text = f"the HPA decides every {seconds(period)} ({facts.period.says})"
    return Hop("decision", State.OK, text, evenly(period), _boost_change(facts, metric))


def _boost_change(facts: Facts, metric: MetricFacts) -> Improvement | None:
    """Return the advice to boost an autoscaler that is not, if that makes it faster."""
    if not _is_ours(metric) or facts.mode == BOOST:
        return None
    saves = (facts.period.seconds - TICK) / 2
    source = metric.source
    if isinstance(source, SourceFacts) and source.scraped and isinstance(source.series, SeriesFacts):
        before = ((source.series.interval or 0.0) + (source.lookback or 0.0)) / 2
        direct = source.scraped.access.interval + (source.scraped.window if source.lookback else 0.0)
        saves += max(before - direct / 2, 0.0)
    how = autoscaler_hops.boosting(facts)
    return Improvement(f"boost it: {how}", saves) if saves > 0 and how else None

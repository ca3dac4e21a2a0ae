"""The hops of one metric: from the load to the count that is written.

Pure: `facts` in, `hop` values out. The times are those of what comes round at a fixed interval, half of it
usually and all of it at most; over a range window a step is halfway in after half of it.
"""

import math
from collections.abc import Iterator

from adapter.cli.check.lint_query import SCRAPES_IN_WINDOW
from adapter.cli.doctor.facts import Facts, MetricFacts, SeriesFacts, SourceFacts, Unread
from adapter.cli.doctor.stage import NOTHING, Chain, Hop, Improvement, State, Took, evenly, seconds

TICK = 1.0
"""How often Fastpath decides."""

ASKED_EVERY = 15.0
"""How often Fastpath asks for metrics that others serve.

The default of its --horizontal-pod-autoscaler-sync-period.
"""

_BRISK_SCRAPE = 5.0
_SLOW_SCRAPE = 15.0
_SLOW_ANSWER = 1.0
_STALE_SCRAPES = 3
_FEWEST_IN_WINDOW = 2
_DIRECT = Took(3.0, 6.0)
"""What scrape and window of a rule with `scrape` take by default: each second, over five."""


def chain(facts: Facts, metric: MetricFacts, *, boosted: bool) -> Chain:
    """Return the hops of a metric; `boosted` is whether Fastpath raises the autoscaler at the moment."""
    hops = [
        *_origin(facts, metric, boosted=boosted),
        *_delay(facts, metric, boosted=boosted),
        _api(facts, metric),
    ]
    return Chain(metric.label, (*hops, _decision(facts, metric, boosted=boosted)))


def is_ours(metric: MetricFacts) -> bool:
    """Tell whether Fastpath serves a metric."""
    return not isinstance(metric.serving, Unread) and metric.serving.ours


def _is_read_directly(metric: MetricFacts, *, boosted: bool) -> bool:
    return boosted and isinstance(metric.source, SourceFacts) and metric.source.scraped is not None


# -- from the load to a sample
# ------------------------------------------------------------------------------------------------


def _origin(facts: Facts, metric: MetricFacts, *, boosted: bool) -> Iterator[Hop]:
    source = metric.source
    if source is None:
        yield from _without_rule(metric)
    elif isinstance(source, Unread):
        yield Hop("scrape", State.UNKNOWN, source.why)
        yield Hop("window", State.UNKNOWN, "not known without the rule")
    elif source.scraped is not None and boosted:
        direct = source.scraped
        text = f"Fastpath reads the pods every {seconds(direct.interval)} ({source.rule})"
        yield Hop("scrape", State.OK, text, evenly(direct.interval))
        is_rate = source.lookback != 0
        window = evenly(direct.window) if is_rate else NOTHING
        yield Hop(
            "window",
            State.OK,
            f"rates over {seconds(direct.window)}" if is_rate else "the latest sample",
            window,
        )
    else:
        yield _scrape(source, _hidden(facts), boosted=boosted)
        yield _window(source)


def _without_rule(metric: MetricFacts) -> Iterator[Hop]:
    """Yield what values say of themselves where no rule is known: resource metrics have a window."""
    owner = "the server" if isinstance(metric.serving, Unread) else metric.serving.owner or "the server"
    window = None if isinstance(metric.answer, Unread) else metric.answer.window
    if not window:
        yield Hop(
            "scrape",
            State.UNKNOWN,
            f"{owner} does not say how old its values are, nor over what they are taken",
        )
        return
    if is_ours(metric):
        yield Hop("scrape", State.UNKNOWN, "how often the kubelets are scraped is not read")
    else:
        assert not isinstance(metric.answer, Unread)
        age = (
            ""
            if metric.answer.age is None
            else f"; the values are {seconds(max(metric.answer.age, 0.0))} old"
        )
        text = f"{owner} has a new value about every {seconds(window)}, which boost cannot beat{age}"
        yield Hop("scrape", State.OK, text, evenly(window))
    yield Hop("window", State.OK, f"a value is over {seconds(window)}", evenly(window))


def _hidden(facts: Facts) -> float:
    """Return how many seconds of the newest past the engine hides.

    0 if that is not known or less than a second.
    """
    return 0.0 if isinstance(facts.delay, Unread) or facts.delay < 1.0 else facts.delay


def _scrape(source: SourceFacts, hidden: float, *, boosted: bool) -> Hop:
    series = source.series
    if isinstance(series, Unread):
        return Hop("scrape", State.UNKNOWN, series.why)
    if not series.found:
        now = f"now, and queries do not see the last {seconds(hidden)}," if hidden else "now"
        text = f"Prometheus has no sample {now} of what {source.rule} reads: {source.query}"
        return Hop("scrape", State.FAULT, text, change=Improvement("see that its targets are up and scraped"))
    age = "" if series.age is None else f"; the newest sample is {seconds(max(series.age, 0.0))} old"
    if series.interval is None:
        return Hop(
            "scrape", State.UNKNOWN, f"the series are too young to tell how often they are scraped{age}"
        )
    text = f"a sample every {seconds(series.interval)}{age}"
    took, change = evenly(series.interval), _scrape_change(source, series, boosted=boosted)
    if series.age is not None and series.age > (_STALE_SCRAPES + 1) * series.interval:
        missed = Improvement("see why the scrapes of its targets fail", series.age - series.interval)
        return Hop("scrape", State.WARNING, text, took, missed)
    slow = series.interval > _SLOW_SCRAPE * 1.1
    return Hop("scrape", State.WARNING if slow else State.OK, text, took, change)


def _scrape_change(source: SourceFacts, series: SeriesFacts, *, boosted: bool) -> Improvement | None:
    assert series.interval is not None
    if boosted and source.scrapable:
        now = (series.interval + (source.lookback or 0.0)) / 2
        text = f"have Fastpath read the pods itself: scrape: {{port: NAME}} on {source.rule}"
        return Improvement(text, now - (_DIRECT.usual if source.lookback else TICK / 2))
    if series.interval > _BRISK_SCRAPE:
        text = f"scrape the series of {source.rule} every {seconds(_BRISK_SCRAPE)}"
        return Improvement(text, (series.interval - _BRISK_SCRAPE) / 2)
    return None


def _window(source: SourceFacts) -> Hop:
    lookback, series = source.lookback, source.series
    if lookback is None:
        text = "made by a recording rule, whose own window and interval come on top"
        return Hop("window", State.UNKNOWN, text)
    if lookback == 0:
        return Hop("window", State.OK, "the latest sample", NOTHING)
    text = f"{source.rule} looks back over {seconds(lookback)}"
    interval = None if isinstance(series, Unread) else series.interval
    if interval is None:
        return Hop("window", State.OK, text, evenly(lookback))
    if lookback < _FEWEST_IN_WINDOW * interval * 0.9:
        text = f"{text}, which often holds fewer than two samples, and then there is no value"
        wide = Improvement(
            f"take a range of [{math.ceil(SCRAPES_IN_WINDOW * round(interval, 1))}s] in {source.rule}"
        )
        return Hop("window", State.WARNING, text, evenly(lookback), wide)
    enough = math.ceil(SCRAPES_IN_WINDOW * round(interval, 1))
    if lookback <= 1.2 * enough:
        return Hop("window", State.OK, text, evenly(lookback))
    text = f"{text}, {lookback / interval:.0f} samples; {SCRAPES_IN_WINDOW} are enough"
    change = Improvement(f"shorten the range of {source.rule} to [{enough}s]", (lookback - enough) / 2)
    return Hop("window", State.WARNING, text, evenly(lookback), change)


def _delay(facts: Facts, metric: MetricFacts, *, boosted: bool) -> Iterator[Hop]:
    """Yield the hop of an engine that hides the newest samples; nothing where it hides none."""
    if not isinstance(metric.source, SourceFacts) or _is_read_directly(metric, boosted=boosted):
        return
    hidden = _hidden(facts)
    if not hidden:
        return
    text = f"queries do not see the last {seconds(hidden)} (search.latencyOffset of VictoriaMetrics)"
    change = Improvement(
        "give --prometheus-query-param=nocache=1 to Fastpath, or a lower -search.latencyOffset", hidden
    )
    yield Hop("engine", State.WARNING, text, Took(hidden, hidden), change)


# -- from a sample to a count
# -------------------------------------------------------------------------------------------------


def _api(facts: Facts, metric: MetricFacts) -> Hop:
    serving, answer = metric.serving, metric.answer
    if isinstance(answer, Unread):
        return Hop("metrics API", State.UNKNOWN, answer.why)
    if answer.error and answer.status != 403 and not isinstance(serving, Unread):
        if not serving.owner:
            text = f"no APIService is registered for {serving.group}"
            return Hop("metrics API", State.FAULT, text, change=Improvement(_INSTALL[serving.group]))
        if serving.fault:
            return _unavailable(serving.owner, serving.group, serving.fault)
    whose = "the metrics API" if isinstance(serving, Unread) else serving.owner
    if answer.status == 403:
        return _forbidden(facts, metric, answer.error)
    if answer.error:
        change = Improvement(
            f"fastpath check RULES --prometheus-url URL --why {_name(metric)} says where it ends"
        )
        return Hop("metrics API", State.FAULT, f"{whose} has no value: {answer.error}", change=change)
    if not answer.number:
        text = f"{whose} answers without a value"
        return Hop(
            "metrics API", State.FAULT, text, change=Improvement("see that the pods run and show the metric")
        )
    reused = metric.source.reused if isinstance(metric.source, SourceFacts) else 0.0
    took = Took(answer.seconds + reused / 2, answer.seconds + reused)
    text = f"{whose} answered in {seconds(answer.seconds)}"
    if reused > TICK:
        text += f" and uses an answer again for {seconds(reused)}"
    ready = 0 if isinstance(facts.target, Unread) else facts.target.ready
    if metric.spec.type in {"Pods", "Resource", "ContainerResource"} and answer.number < ready:
        text += f", for {answer.number} of {ready} ready pods"
        return Hop("metrics API", State.WARNING, text, took)
    slow = answer.seconds > _SLOW_ANSWER
    return Hop("metrics API", State.WARNING if slow else State.OK, text, took)


_INSTALL = {
    "metrics.k8s.io": "install metrics-server",
    "custom.metrics.k8s.io": "register Fastpath for custom.metrics.k8s.io: kubectl apply -k manifests/base",
    "external.metrics.k8s.io": "register Fastpath for external.metrics.k8s.io: manifests/components/external",
}


def _forbidden(facts: Facts, metric: MetricFacts, error: str) -> Hop:
    """Return what the HPA controller says of a metric that a person may not read."""
    has_value = facts.has_value(metric.spec)
    if has_value is False:
        change = Improvement("see the events of the HPA: kubectl describe hpa")
        return Hop(
            "metrics API", State.FAULT, "the HPA has no value, and you may not read the metric", change=change
        )
    said = "the HPA has a value, but " if has_value else ""
    return Hop("metrics API", State.UNKNOWN, f"{said}you may not read the metric: {error}")


def _unavailable(owner: str, group: str, fault: str) -> Hop:
    change = Improvement(f"have {owner} answer again: kubectl get apiservices | grep {group}")
    return Hop("metrics API", State.FAULT, f"{group} is not available: {owner}: {fault}", change=change)


def _name(metric: MetricFacts) -> str:
    spec = metric.spec
    source = spec.pods or spec.object or spec.external
    return source.metric.name if source is not None else metric.label


def _decision(facts: Facts, metric: MetricFacts, *, boosted: bool) -> Hop:
    """Return who decides and how often; what is wrong with the autoscaler itself is said once, elsewhere."""
    if boosted and is_ours(metric):
        return Hop("decision", State.OK, "Fastpath decides every second and raises at once", evenly(TICK))
    if boosted and isinstance(metric.serving, Unread):
        return Hop("decision", State.UNKNOWN, f"the server of the metric is unknown: {metric.serving.why}")
    if boosted:
        text = f"Fastpath asks others for a metric every {seconds(ASKED_EVERY)}, by default"
        return Hop("decision", State.OK, text, evenly(ASKED_EVERY))
    period = facts.period.seconds
    text = f"the HPA decides every {seconds(period)} ({facts.period.says})"
    return Hop("decision", State.OK, text, evenly(period), _boost_change(facts, metric))


def _boost_change(facts: Facts, metric: MetricFacts) -> Improvement | None:
    """Return the advice to boost an autoscaler that is not, where that makes it faster."""
    if not is_ours(metric) or facts.mode == "Boost":
        return None
    saves = (facts.period.seconds - TICK) / 2
    source = metric.source
    if (
        isinstance(source, SourceFacts)
        and source.scraped is not None
        and not isinstance(source.series, Unread)
    ):
        before = ((source.series.interval or 0.0) + (source.lookback or 0.0)) / 2
        direct = source.scraped.interval + (source.scraped.window if source.lookback else 0.0)
        saves += max(before - direct / 2, 0.0)
    meta = facts.hpa.metadata
    how = f"kubectl -n {meta.namespace} get hpa {meta.name} -o yaml | fastpath boost - | kubectl apply -f -"
    return Improvement(f"boost it: {how}", saves) if saves > 0 else None

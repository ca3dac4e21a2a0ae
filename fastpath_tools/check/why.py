"""`fastpath check --why`.

Follows a metric from its series in Prometheus to the value of an object, or to where it ends. It asks one
step after the other and reports each. The last line is the sentence of `missing` or `empty`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapter.errors import BadRequestError, Fault, InputError, PrometheusError, UnsupportedSelectorError
from adapter.model import steps
from adapter.model.objects.label_selectors import LabelSelector, parse_selector
from adapter.model.objects.resources import Catalogue
from adapter.model.visible import counted, listed
from adapter.rules import matchers, registry
from adapter.rules.compile import Ruleset
from adapter.rules.matchers import Matcher
from adapter.rules.registry import Registry
from fastpath_tools.check import empty, follow, missing, report
from fastpath_tools.check.follow import Explanation, Inquiry, NoValueError
from fastpath_tools.check.missing import RuleTrace
from fastpath_tools.check.options import CheckOptions
from fastpath_tools.check.wanted import ALL, Wanted, kinds_of, locate, parse_wanted, wrong_api

if TYPE_CHECKING:
    from fastpath_tools.live.servers import ClusterReader, PrometheusReader

# With more rules than this, those that have nothing to do with the metric are only counted.
_SHOWN_RULES = 5


@dataclass(frozen=True, slots=True)
class WhyQuestion:
    """What is to be explained: a metric and, if `wanted` is given, its value for that.

    `objects` selects objects, `labels` the series of an external metric, `metric_labels` those of a custom
    one.
    """

    metric: str
    wanted: Wanted | None
    objects: LabelSelector
    labels: tuple[Matcher, ...]
    metric_labels: tuple[Matcher, ...]
    scrape_interval: float


def parse_question(options: CheckOptions) -> WhyQuestion:
    """Return what the options ask. InputError for an object or a selector that cannot be read or answered."""
    wanted = parse_wanted(options.object) if options.object else None
    if wanted is not None and wanted.name == ALL and not options.lister_kubeconfig:
        expected = "expected --lister-kubeconfig too, to list the objects"
        raise InputError([Fault("--object", options.object, expected)])
    objects = _selector("--selector", options.selector)
    labels = _matchers("--selector", objects) if wanted is not None and not wanted.kind else ()
    metric_labels = _matchers("--metric-selector", _selector("--metric-selector", options.metric_selector))
    return WhyQuestion(options.why, wanted, objects, labels, metric_labels, options.scrape_interval)


def _selector(flag: str, text: str) -> LabelSelector:
    try:
        return parse_selector(text)
    except BadRequestError as error:
        raise InputError([Fault(flag, text, f"expected a label selector: {error}")]) from error


def _matchers(flag: str, selector: LabelSelector) -> tuple[Matcher, ...]:
    try:
        return matchers.from_selector(selector)
    except UnsupportedSelectorError as error:
        raise InputError([Fault(flag, str(selector), f"expected neither < nor >: {error}")]) from error


async def explain(
    question: WhyQuestion,
    prometheus: "PrometheusReader",
    cluster: "ClusterReader | None",
    catalogue: Catalogue,
    ruleset: Ruleset,
    left_out: Sequence[str],
) -> Explanation:
    """Explain one metric. `left_out`: the paths of rules that faults keep out of `ruleset`."""
    lists = await prometheus.lists(ruleset.selectors())
    explanation = Explanation(question.metric)
    inquiry = Inquiry(prometheus, cluster, explanation, lists, question.scrape_interval)
    traces = missing.trace_rules(ruleset, lists, question.metric)
    _explain_series(inquiry, traces, left_out)
    known = _registry(inquiry, ruleset)
    if not kinds_of(known, question.metric) and question.metric not in known.external:
        explanation.conclusion = await _explain_absence(inquiry, traces, known, left_out)
        return explanation
    try:
        explanation.conclusion = await _explain_value(inquiry, question, known, catalogue)
    except NoValueError as error:
        explanation.conclusion = str(error)
    return explanation


async def _explain_value(
    inquiry: Inquiry, question: WhyQuestion, known: Registry, catalogue: Catalogue
) -> str:
    """Return the sentence about a metric that is served, or about its value for what the question names."""
    kinds, external = kinds_of(known, question.metric), known.external.get(question.metric)
    served = inquiry.explanation.section("where it is served")
    if kinds:
        served.append(f"custom.metrics.k8s.io: {listed(kinds)}")
    if external is not None:
        served.append(f"external.metrics.k8s.io: by {external.rule.config.path}")
    wanted = question.wanted
    if wanted is None:
        return _served(inquiry.explanation, custom=bool(kinds), external=external is not None)
    if wanted.kind:
        entry = locate(known, catalogue, question.metric, wanted)
        if isinstance(entry, str):
            return entry
        return await follow.follow_objects(inquiry, entry, wanted, question.objects, question.metric_labels)
    if external is None:
        return wrong_api(known, question.metric)
    return await follow.follow_external(inquiry, external, wanted.namespace or "", question.labels)


def _registry(inquiry: Inquiry, ruleset: Ruleset) -> Registry:
    """Return what the adapter would serve of the series there are."""
    memory: dict[str, tuple[registry.KnownSeries, ...]] = {}
    for selector, answer in inquiry.lists.items():
        if not isinstance(answer, PrometheusError):
            memory = steps.run(registry.remembering(memory, selector, answer))
    return steps.run(registry.building(ruleset, memory, 1))


def _explain_series(inquiry: Inquiry, traces: Sequence[RuleTrace], left_out: Sequence[str]) -> None:
    explanation = inquiry.explanation
    lines = explanation.section(f"what each rule makes of the series of the last {inquiry.look_back}")
    shown = traces
    if len(traces) > _SHOWN_RULES:
        shown = [trace for trace in traces if trace.gives]
        shown = shown or [trace for trace in traces if trace.leads_to(explanation.metric)]
    for traced in shown:
        config = traced.rule.config
        place = report.place_of(config.source, config.line)
        lines.append(f"{config.path}  {report.one_line(config.series_query)}  ({place})")
        lines += [f"  {step}" for step in missing.steps(traced)]
    if len(shown) < len(traces):
        lines.append(f"{counted(len(traces) - len(shown), 'other rule does', 'other rules do')} not make it")
    lines += [f"{path}  left out because of a fault" for path in left_out]
    for answer in inquiry.lists.values():
        if isinstance(answer, PrometheusError) and answer.kind not in empty.OF_THE_QUERY:
            explanation.unreachable.append(f"cannot query Prometheus: {answer}")


async def _explain_absence(
    inquiry: Inquiry, traces: Sequence[RuleTrace], known: Registry, left_out: Sequence[str]
) -> str:
    metric = inquiry.explanation.metric
    names = missing.probe_names(metric, traces)
    lists = await inquiry.prometheus.lists([*map(missing.probe, names)])
    probes = dict(zip(names, lists.values(), strict=True))
    lines = inquiry.explanation.section("what Prometheus has without any rule")
    for name, answer in probes.items():
        if isinstance(answer, PrometheusError):
            lines.append(f"{name}: not read: {answer}")
            continue
        labels = listed(sorted(missing.labels_of(series for series in answer if series.name == name)))
        for other in sorted({name, *(series.name for series in answer)}):
            number = sum(series.count for series in answer if series.name == other)
            with_labels = f" with labels {labels}" if labels and other == name else ""
            lines.append(f"{other}: {counted(number, 'series', 'series')}{with_labels}")
    return missing.explain(missing.MissingCase(metric, traces, probes, known, left_out, inquiry.look_back))


def _served(explanation: Explanation, *, custom: bool, external: bool) -> str:
    metric = explanation.metric
    if external and not custom and not empty.can_be_asked_for(metric):
        return empty.served(metric, 0)
    explanation.served = True
    apis = " and ".join(name for name, there in (("a custom", custom), ("an external", external)) if there)
    also = ", or NAMESPACE for the external one," if external else ""
    hint = f"KIND/NAMESPACE/NAME{also}" if custom else "NAMESPACE"
    return f"{metric} is served as {apis} metric: add --object {hint} to follow it to a value"

"""The steps of `fastpath check --why`: a query, what it found, and the sentence at the end.

`Explanation` has what was found so far. `Inquiry` asks Prometheus and adds each step to it. `follow_external`
and `follow_objects` follow a served metric to the values that an autoscaler gets.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from adapter.errors import KubernetesError, NamingError, PrometheusError, TemplateError
from adapter.model import visible
from adapter.model.metrics import QueryResult, Sample
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.timestamps import format_go_duration
from adapter.model.visible import counted, listed
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher, join
from adapter.rules.naming import NAMESPACES
from adapter.rules.query import MetricQuery, last_samples
from adapter.rules.registry import CustomEntry, ExternalEntry
from fastpath_tools.check import empty, lint_query, missing, report
from fastpath_tools.check.empty import EmptyCase, Followups, Value
from fastpath_tools.check.wanted import ALL, Wanted, build_query
from fastpath_tools.live.preview import SeriesLists

if TYPE_CHECKING:
    from fastpath_tools.live.servers import ClusterReader, PrometheusReader

_SHOWN_VALUES = 5


class NoValueError(Exception):
    """Why no value can follow: the sentence at the end of an explanation."""


@dataclass(slots=True)
class Explanation:
    """What was found about a metric, in sections, and the sentence at the end.

    `served`: an autoscaler that asks for it gets a value. `unreachable`: the servers that could not be asked.
    `unseen`: what you may not read of them.
    """

    metric: str
    sections: list[tuple[str, list[str]]] = field(default_factory=list)
    conclusion: str = ""
    served: bool = False
    unreachable: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def section(self, title: str) -> list[str]:
        """Begin a section and return its lines, to add to."""
        lines: list[str] = []
        self.sections.append((title, lines))
        return lines

    def text(self) -> str:
        blocks = [visible.join([title, *(f"  {line}" for line in lines)]) for title, lines in self.sections]
        return "\n".join([*blocks, visible.join([self.conclusion])])

    def document(self) -> dict[str, Any]:
        steps = [
            {"title": title, "lines": [line.strip() for line in lines]} for title, lines in self.sections
        ]
        return {"metric": self.metric, "steps": steps, "served": self.served, "conclusion": self.conclusion}


@dataclass(frozen=True, slots=True)
class Inquiry:
    """One look at one metric.

    `lists` are the series of every rule's selector; `cluster` is None without one to ask.
    """

    prometheus: "PrometheusReader"
    cluster: "ClusterReader | None"
    explanation: Explanation
    lists: SeriesLists
    scrape_interval: float

    @property
    def look_back(self) -> str:
        """How far back series were looked for, as people write it."""
        return format_go_duration(self.prometheus.look_back)

    def labels(self, selector: str, series: str) -> frozenset[str]:
        """Return the labels of one series name among those of a selector."""
        known = self.lists[selector]
        if isinstance(known, PrometheusError):
            return frozenset()
        return missing.labels_of(one for one in known if one.name == series)

    async def ask(self, lines: list[str], promql: str, *, accepts_warnings: bool) -> QueryResult:
        """Return the answer to the API's own query. Raises NoValueError.

        `accepts_warnings` says that the rule takes an answer with warnings, which else counts as no answer.
        """
        lines.append(f"query {report.one_line(promql)}")
        result = await self.prometheus.ask(promql)
        if isinstance(result, PrometheusError):
            lines.append(f"refused: {result}")
            if result.kind not in empty.OF_THE_QUERY:
                self.explanation.unreachable.append(f"cannot query Prometheus: {result}")
            raise NoValueError(empty.refused(result))
        lines.append(counted(len(result.samples), "sample", "samples"))
        lines.extend(f"warning: {text}" for text in result.warnings)
        if result.warnings and not accepts_warnings:
            raise NoValueError(empty.partial(result.warnings[0]))
        return result

    async def follow(
        self, lines: list[str], promql: str, show: Callable[[Sample], str] = report.show_sample
    ) -> Sequence[Sample]:
        """Return the samples of a query that only looks for a cause; an error is noted and counts as none."""
        lines.append(f"extra query {promql}")
        result = await self.prometheus.ask(promql)
        if isinstance(result, PrometheusError):
            lines.append(f"refused: {result}")
            return ()
        lines.append(listed(map(show, result.samples)) or "no sample")
        return result.samples

    async def follow_up(
        self,
        lines: list[str],
        promql: str,
        followups: Followups,
        rule: Rule,
        series: str,
        namespace_label: str,
        namespace: str | None,
    ) -> EmptyCase:
        return EmptyCase(
            rule.config.path,
            series,
            namespace_label,
            namespace,
            await self.follow(lines, followups.named),
            await self.follow(lines, followups.around),
            self.labels(rule.config.series_query, series),
            self.look_back,
            lint_query.causes(promql, self.scrape_interval),
        )


async def follow_external(
    inquiry: Inquiry, entry: ExternalEntry, namespace: str, selector: tuple[Matcher, ...]
) -> str:
    """Return the sentence about the metric as an autoscaler in `namespace` reads it; explain every step."""
    rule, metric = entry.rule, inquiry.explanation.metric
    place = rule.config.path
    lines = inquiry.explanation.section(f"in namespace {namespace}, answered by {place} from {entry.series}")
    try:
        label = rule.converter.label_for(NAMESPACES) if rule.config.resources.namespaced else ""
        own = [Matcher(label, "=", namespace)] if label else []
        promql = rule.render(entry.series, [*selector, *own], [])
    except NamingError:
        return empty.no_namespace_label(place)
    except TemplateError as error:
        return empty.no_query(place, error)
    result = await inquiry.ask(lines, promql, accepts_warnings=rule.accepts_warnings)
    on_nan = rule.config.on_nan
    values = [empty.value_of(sample, on_nan, external=True) for sample in result.samples]
    lines += [
        f"{report.show_labels(sample)}: {value.fault or value.quantity}"
        for sample, value in list(zip(result.samples, values, strict=True))[:_SHOWN_VALUES]
    ]
    good = [value for value in values if not value.fault]
    if fault := empty.faulty(values, on_nan if good else None) or empty.negative(good):
        return f"{metric} has no usable value: {fault}"
    if good:
        inquiry.explanation.served = empty.can_be_asked_for(metric)
        return empty.served(metric, len(good))
    followups = empty.external_followups(entry.series, label, namespace, selector)
    case = await inquiry.follow_up(lines, promql, followups, rule, entry.series, label, namespace)
    return empty.no_sample_of_external(case, join(selector))


async def follow_objects(
    inquiry: Inquiry,
    entry: CustomEntry,
    wanted: Wanted,
    objects: LabelSelector,
    selector: tuple[Matcher, ...],
) -> str:
    """Return the sentence about an object, or all that match `objects`, and explain every step."""
    query = build_query(entry, wanted, selector)
    if isinstance(query, str):
        return query
    names = await _names(inquiry, entry, wanted, objects)
    lines = inquiry.explanation.section(f"{wanted}, answered by {entry.rule.config.path} from {entry.series}")
    chosen = [wanted.name] if wanted.name != ALL else list(names or ())
    try:
        promql = query.render(wanted.namespace, chosen)
    except TemplateError as error:
        return empty.no_query(entry.rule.config.path, error)
    result = await inquiry.ask(lines, promql, accepts_warnings=entry.rule.accepts_warnings)
    return await _Answer(inquiry, lines, entry, query, wanted, chosen, names, result).judge()


def note_unread(kind: str, error: KubernetesError, unreachable: list[str], unseen: list[str]) -> None:
    """Note why objects cannot be listed; a right that is missing is no failure of the API server."""
    if error.status == 403:
        unseen.append(f"{kind} of the cluster were not looked at, because you may not list them: {error}")
    else:
        unreachable.append(f"cannot query the API server for {kind}: {error}")


async def _names(
    inquiry: Inquiry, entry: CustomEntry, wanted: Wanted, objects: LabelSelector
) -> tuple[str, ...] | None:
    """Return the objects that the API server has there, None when it was not asked. Raises NoValueError."""
    if inquiry.cluster is None:
        return None
    explanation, kind = inquiry.explanation, entry.resource.group_resource
    lines = explanation.section(f"{kind} in the API server")
    try:
        namespace = wanted.namespace if entry.resource.namespaced else None
        names = await inquiry.cluster.names(entry.resource, namespace, objects)
    except KubernetesError as error:
        lines.append(f"not read: {error}")
        note_unread(str(kind), error, explanation.unreachable, explanation.unseen)
        if wanted.name == ALL:
            reason = f"{kind} cannot be listed, so every request for {wanted} fails: {error}"
            raise NoValueError(reason) from error
        return None
    chosen = f" that match {objects}" if objects.requirements else ""
    place = f" in namespace {wanted.namespace}" if wanted.namespace else ""
    shown = f": {listed(names)}" if names else ""
    lines.append(f"{counted(len(names), 'object', 'objects')}{place}{chosen}{shown}")
    if wanted.name == ALL and not names:
        raise NoValueError(
            f"the cluster has no {kind}{place}{chosen}, and without objects there is no value: compare "
            "labels and namespace"
        )
    return names


@dataclass(frozen=True, slots=True)
class _Answer:
    """Prometheus' answer about some objects.

    `names` are those the cluster has, None when it was not asked.
    """

    inquiry: Inquiry
    lines: list[str]
    entry: CustomEntry
    query: MetricQuery
    wanted: Wanted
    chosen: Sequence[str]
    names: Sequence[str] | None
    result: QueryResult

    async def judge(self) -> str:
        """Tell the values and return the sentence; where there is no value, find out why."""
        samples = last_samples(self.result.samples, self.query.object_label)
        if len(self.result.samples) > len(samples):
            self.lines.append(
                "several samples of one object, of which the last counts: group by (<<.GroupBy>>)"
            )
        on_nan, names = self.entry.rule.config.on_nan, [name for name in self.chosen if name in samples]
        values = {name: empty.value_of(samples[name], on_nan, external=False) for name in names}
        self.lines.extend(
            f"{name}: {value.fault or value.quantity}" for name, value in list(values.items())[:_SHOWN_VALUES]
        )
        if self.result.type != "vector" or (self.result.samples and not values):
            return empty.unusable(self.query, self.result, listed(self.chosen))
        if not values:
            return await self._why_nothing()
        return await self._too_old() or self._sentence(values)

    def _exists(self) -> bool | None:
        """Tell whether the cluster has the one object that was asked for, None when that is unknown."""
        return None if self.names is None or self.wanted.name == ALL else self.wanted.name in self.names

    async def _why_nothing(self) -> str:
        name, query = self.chosen[0], self.query
        case = await self.inquiry.follow_up(
            self.lines,
            query.render(self.wanted.namespace, self.chosen),
            empty.object_followups(query, self.wanted, name),
            self.entry.rule,
            query.series,
            query.namespace_label,
            self.wanted.namespace,
        )
        return empty.no_sample_of_object(
            case, self.wanted, name, query.object_label, self.entry.resource, exists=self._exists()
        )

    async def _too_old(self) -> str:
        """Return the sentence for values that `maxSampleAge` leaves out, "" without any."""
        rule, oldest = self.entry.rule, self.entry.rule.config.max_sample_age
        if oldest is None:
            return ""
        query, now = self.query, self.inquiry.prometheus.now

        def show(sample: Sample) -> str:
            return f"{report.show_labels(sample)} {_age(now - sample.value)} ago"

        promql = replace(query, rule=rule.age).render(self.wanted.namespace, self.chosen)
        times = last_samples(await self.inquiry.follow(self.lines, promql, show), query.object_label)
        old = [name for name in self.chosen if name in times and times[name].value < now - oldest]
        if not old:
            return ""
        return empty.too_old(rule.config.path, old, _age(now - times[old[0]].value), _age(oldest))

    def _sentence(self, values: Mapping[str, Value]) -> str:
        metric, wanted = self.inquiry.explanation.metric, self.wanted
        faulty = sorted((one for one in values.values() if one.fault), key=lambda value: not value.refused)
        if faulty and (faulty[0].refused or len(faulty) == len(values)):
            return empty.no_number(metric, wanted, faulty[0])
        if self._exists() is False:
            return empty.no_object(wanted)
        self.inquiry.explanation.served = True
        if wanted.name != ALL:
            return f"{metric} of {wanted} is served: {values[wanted.name].quantity}"
        lost = [name for name in self.chosen if name not in values or values[name].fault]
        every = counted(len(self.chosen), "object has", "objects have")
        number = f"{len(self.chosen) - len(lost)} of {every} a value"
        why = f", not {listed(lost)}: give one of these to --object to see why" if lost else ""
        return f"{metric} of {wanted} is served: {number}{why}"


def _age(seconds: float) -> str:
    return format_go_duration(round(seconds))

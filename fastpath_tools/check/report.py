"""The report of `fastpath check`: lines or a JSON object for each rule and each resource query."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.errors import Fault, PrometheusError
from adapter.model import visible
from adapter.model.metrics import HISTOGRAM, QueryResult, Sample
from adapter.model.timestamps import format_go_duration
from adapter.model.visible import counted, listed
from adapter.rules.compile import Rule
from fastpath_tools.live.preview import CUSTOM, EXTERNAL, RESOURCE, Example, ResourcePreview, RulePreview

_SHOWN_VALUES = 3

Answer = QueryResult | PrometheusError


class Report(NamedTuple):
    """One rule, or one query of the resource rules: its preview, its warnings, and what Prometheus answered.

    `answer` is for all objects of the main example, None if it was not asked. `unread` says why the series
    were not read.
    """

    preview: RulePreview | ResourcePreview
    warnings: Sequence[Fault]
    answer: Answer | None
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """The reports on all files, the warnings about the files together, and their faults.

    `charts` are the files that were read as values of the chart.
    """

    reports: Sequence[Report]
    warnings: Sequence[Fault]
    faults: Sequence[Fault]
    autoscaler_count: int = 0
    schedule_count: int = 0
    charts: Sequence[str] = ()
    usages: Sequence[Rule] = ()
    """What pods are scraped for their own usage by."""

    @property
    def notes(self) -> list[str]:
        remedy = "`fastpath serve` takes the rules file that --print-config makes of them"
        return [f"{source}: read as values of the Helm chart; {remedy}" for source in self.charts]

    @property
    def warning_count(self) -> int:
        return sum(len(report.warnings) for report in self.reports) + len(self.warnings)

    def text(self) -> str:
        """Return the report for people: a block for each rule and resource query, and a line that counts."""
        blocks = [visible.join([note]) for note in self.notes]
        blocks += [visible.join(_block(report)) for report in self.reports]
        for rule in self.usages:
            title = f"{rule.config.path}  ({place_of(rule.config.source, rule.config.line)})"
            blocks.append(visible.join([title, *_scrape_lines(rule)]))
        for warning in self.warnings:
            where = f"  ({place_of(warning.source, warning.line)})" if warning.source else ""
            blocks.append(visible.join([f"{warning.path}{where}", _warning(warning, "")]))
        apis = Counter(report.preview.api for report in self.reports)
        numbers = (
            (apis[CUSTOM], "rule", "rules"),
            (apis[EXTERNAL], "external rule", "external rules"),
            (apis[RESOURCE], "resource query", "resource queries"),
            (len(self.usages), "scraped resource", "scraped resources"),
            (self.autoscaler_count, "autoscaler", "autoscalers"),
            (self.schedule_count, "schedule", "schedules"),
            (self.warning_count, "warning", "warnings"),
            (len(self.faults), "fault", "faults"),
        )
        always = {"rule", "external rule", "warning"}
        counts = [counted(*number) for number in numbers if number[0] or number[1] in always]
        return "\n".join([*blocks, ", ".join(counts)]) + "\n"

    def document(self) -> dict[str, Any]:
        return {
            "rules": [_document(report) for report in self.reports if report.preview.api != RESOURCE],
            "resourceQueries": [
                _document(report) for report in self.reports if report.preview.api == RESOURCE
            ],
            "scrapedResources": [
                {"path": rule.config.path, "scrape": _scrape_lines(rule)[0].split(maxsplit=1)[1]}
                for rule in self.usages
            ],
            "warnings": [*map(_fault_document, self.warnings)],
            "faults": [*map(_fault_document, self.faults)],
            "notes": self.notes,
        }


def _block(report: Report) -> list[str]:
    preview = report.preview
    lines = [f"{preview.path}  ({place_of(preview.config.source, preview.config.line)})"]
    if isinstance(preview, RulePreview):
        lines += _rule_lines(preview, report.unread)
        if preview.main is not None:
            lines += _example(preview.main, report.answer)
        lines += _scrape_lines(preview.rule)
    else:
        if preview.main.resource:
            lines.append(_line("objects", str(preview.main.resource.group_resource)))
        if preview.main.promql:  # without a query a warning says why
            lines += _example(preview.main, report.answer)
    below = (warning.path.removeprefix(preview.path).removeprefix(".") for warning in report.warnings)
    return [*lines, *map(_warning, report.warnings, below)]


def _rule_lines(made: RulePreview, unread: str) -> list[str]:
    lines = [_line("series", one_line(made.config.series_query) or "no seriesQuery")]
    if unread:
        lines.append(_line("", f"not read: {unread}"))
    elif made.known is not None:
        count = counted(sum(series.count for series in made.known), "series", "series")
        names = counted(len(made.known), "name", "names")
        lines.append(_line("", f"{count} of {names}, {counted(len(made.series), 'name', 'names')} taken"))
    metrics = listed(metric or '""' for metric in made.metrics) or "none"
    if made.known is None and not made.metrics:
        made_of = f"names that match {made.config.name_matches or '.*'}"
        metrics = f"{one_line(made.config.name_as) or 'derived'} from {made_of}"
    lines.append(_line("metrics", metrics))
    if made.external:
        return lines
    objects = listed(str(example.resource.group_resource) for example in made.examples if example.resource)
    template = made.config.resources.template
    if made.known is None and template:
        objects = f"{objects or 'none'}, and what {template} finds among the labels"
    return [*lines, _line("objects", objects or "none")]


def _scrape_lines(rule: Rule) -> list[str]:
    if (scrape := rule.config.scrape) is None:
        return []
    access = scrape.access
    counts = rule.scraped and rule.scraped.counts
    over = f", rates over {format_go_duration(scrape.window)}" if counts else ""
    interval = format_go_duration(access.interval)
    where = f"{access.scheme}://POD:{access.port}{access.path}"
    if scrape.source is not None:
        where = f"{access.scheme}://ENDPOINT:{access.port}{access.path} of {scrape.source}"
    return [_line("scrapes", f"{where} each {interval}{over}")]


def _warning(warning: Fault, below: str) -> str:
    return _line("warning", ": ".join(part for part in (below, warning.value, warning.expected) if part))


def _line(label: str, text: str) -> str:
    return f"  {label:<9} {text}"


def place_of(source: str, line: int) -> str:
    """Return file and line.

    The line alone is left out where it is not known, as for the chart's own rules.
    """
    return f"{source}:{line}" if line else source


def one_line(text: str) -> str:
    return " ".join(text.split())


def _example(example: Example, answer: Answer | None) -> list[str]:
    if not example.promql:
        return [_line("query", f"none: {example.fault}")]
    lines = [_line("query", one_line(example.promql))]
    if (verdict := example.separability) is not None:
        joined = f"yes, within a namespace: {verdict.join_reason}" if verdict.join_reason else "yes"
        lines.append(_line("separable", joined if not verdict.reason else f"no: {verdict.reason}"))
    if isinstance(answer, PrometheusError):
        lines.append(_line("answer", f"refused: {answer}"))
    elif answer is not None:
        shown = ", ".join(show_sample(sample, example.label) for sample in answer.samples[:_SHOWN_VALUES])
        more = f": {shown}" if shown else ""
        lines.append(
            _line("answer", f"{counted(len(answer.samples), 'sample', 'samples')} for all objects{more}")
        )
    return lines


def show_number(value: float) -> str:
    """Return a sample's value as Prometheus prints it, shortened to ten digits."""
    if value is HISTOGRAM:
        return "a native histogram"
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text := f"{value:.10g}", text)


def show_sample(sample: Sample, label: str = "") -> str:
    """Return a sample's object (or all its labels, where `label` is "") and value."""
    if label:
        return f"{sample.labels.get(label, f'(no label {label})')} {show_number(sample.value)}"
    return f"{show_labels(sample)} {show_number(sample.value)}"


def show_labels(sample: Sample) -> str:
    """Return the labels of a sample but for its name."""
    labels = sorted((name, value) for name, value in sample.labels.items() if name != "__name__")
    return f"{{{','.join(f'{name}={value}' for name, value in labels)}}}"


def _document(report: Report) -> dict[str, Any]:
    preview = report.preview
    document: dict[str, Any] = {
        "path": preview.path,
        "file": preview.config.source,
        "line": preview.config.line,
        "api": preview.api,
    }
    if isinstance(preview, RulePreview):
        document |= {
            "seriesQuery": preview.config.series_query,
            "series": list(preview.series),
            "metrics": list(preview.metrics),
            "examples": [*map(_example_document, preview.examples)],
        }
    else:
        document["example"] = _example_document(preview.main)
    document["warnings"] = [*map(_fault_document, report.warnings)]
    if report.unread:
        document["unread"] = report.unread
    if isinstance(report.answer, PrometheusError):
        document["refused"] = str(report.answer)
    elif report.answer is not None:
        document["samples"] = len(report.answer.samples)
    return document


def _example_document(example: Example) -> dict[str, Any]:
    document: dict[str, Any] = {
        "resource": str(example.resource.group_resource) if example.resource else None
    }
    if not example.promql:
        return {**document, "fault": example.fault}
    document["promql"] = example.promql
    if example.separability is not None:
        document |= {"separable": not example.separability.reason, "reason": example.separability.reason}
    return document


def _fault_document(fault: Fault) -> dict[str, Any]:
    return {
        "file": fault.source,
        "line": fault.line,
        "path": fault.path,
        "value": fault.value,
        "sentence": fault.expected,
    }

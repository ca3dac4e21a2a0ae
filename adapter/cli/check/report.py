"""The report of `fastpath check`.

One value for each rule and each resource query, shown as lines or as JSON.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.cli.check import empty
from adapter.cli.check.resource_preview import ResourceSketch
from adapter.config.rules_file import ResourceRulesConfig
from adapter.config.scrape_keys import ScrapeConfig
from adapter.errors import Fault, PrometheusError
from adapter.model.metrics import QueryResult, Sample
from adapter.model.timestamps import format_go_duration
from adapter.rules.compile import Rule
from adapter.rules.preview import Example, Sketch
from adapter.rules.trace import counted, listed

_SHOWN_VALUES = 3
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

Answer = QueryResult | PrometheusError

CUSTOM, EXTERNAL, RESOURCE = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"


class Report(NamedTuple):
    """One rule, or one query of the resource rules.

    What it would do, its warnings, and what Prometheus answered. `made` is None for a query of the resource
    rules. `example` is the example that is shown and asked, None without any. `unread` says why the series
    were not read. `answer` is for all objects, None if it was not asked.
    """

    path: str
    source: str
    line: int
    api: str
    examples: tuple[Example, ...]
    example: Example | None
    warnings: tuple[Fault, ...]
    answer: Answer | None = None
    made: Sketch | None = None
    unread: str = ""


def of_rule(made: Sketch, warnings: Iterable[Fault], answer: Answer | None, unread: str) -> Report:
    """Return the report on a rule."""
    config = made.rule.config
    api = EXTERNAL if made.external else CUSTOM
    return Report(
        config.path,
        config.source,
        config.line,
        api,
        made.examples,
        made.main,
        tuple(warnings),
        answer,
        made,
        unread,
    )


def of_resource_query(
    made: ResourceSketch, config: ResourceRulesConfig, warnings: Iterable[Fault], answer: Answer | None
) -> Report:
    """Return the report on a query of the resource rules."""
    example = made.example
    return Report(
        made.path, config.source, config.line, RESOURCE, (example,), example, tuple(warnings), answer
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """The reports on all files, the warnings about the files together, and their faults."""

    reports: Sequence[Report]
    warnings: Sequence[Fault]
    faults: Sequence[Fault]

    @property
    def warning_count(self) -> int:
        """How many warnings there are."""
        return sum(len(report.warnings) for report in self.reports) + len(self.warnings)

    def text(self) -> str:
        """Return the report for people.

        A block for each rule and for each resource query, and a line that counts.
        """
        blocks = ["\n".join(_block(report)) for report in self.reports]
        blocks += ["\n".join([warning.path, _warning(warning, "")]) for warning in self.warnings]
        apis = Counter(report.api for report in self.reports)
        counts = [
            counted(apis[CUSTOM], "rule", "rules"),
            counted(apis[EXTERNAL], "external rule", "external rules"),
        ]
        if apis[RESOURCE]:
            counts.append(counted(apis[RESOURCE], "resource query", "resource queries"))
        counts.append(counted(self.warning_count, "warning", "warnings"))
        if self.faults:
            counts.append(counted(len(self.faults), "fault", "faults"))
        return "\n\n".join([*blocks, ", ".join(counts)]) + "\n"

    def document(self) -> dict[str, Any]:
        """Return the same report for programs."""
        return {
            "rules": [_document(report) for report in self.reports if report.made],
            "resourceQueries": [_document(report) for report in self.reports if not report.made],
            "warnings": [_fault_document(warning) for warning in self.warnings],
            "faults": [_fault_document(fault) for fault in self.faults],
        }


def _block(report: Report) -> list[str]:
    lines = [f"{report.path}  ({place_of(report.source, report.line)})"]
    if report.made is not None:
        lines += _rule_lines(report.made, report.unread)
    elif report.example and report.example.resource:
        lines.append(_line("objects", str(report.example.resource.group_resource)))
    # a resource query without a text has a warning that says why
    if report.example is not None and (report.made is not None or report.example.promql):
        lines += _example(report.example, report.answer)
    if report.made is not None and (scrape := report.made.rule.config.scrape) is not None:
        lines.append(_line("scrapes", _scrapes(report.made.rule, scrape)))
    below = (warning.path.removeprefix(report.path).removeprefix(".") for warning in report.warnings)
    return [*lines, *map(_warning, report.warnings, below)]


def _rule_lines(made: Sketch, unread: str) -> list[str]:
    lines = [_line("series", one_line(made.rule.config.series_query) or "none")]
    if unread:
        lines.append(_line("", f"not read: {unread}"))
    elif made.known is not None:
        found = counted(sum(each.count for each in made.known), "series", "series")
        names = counted(len(made.known), "name", "names")
        lines.append(_line("", f"{found} of {names}, {counted(len(made.series), 'name', 'names')} taken"))
    lines.append(_line("metrics", _metrics(made)))
    return lines if made.external else [*lines, _line("objects", _objects(made))]


def _warning(warning: Fault, below: str) -> str:
    return _line("warning", ": ".join(part for part in (below, warning.value, warning.expected) if part))


def _scrapes(rule: Rule, config: ScrapeConfig) -> str:
    """Return how the rule scrapes pods."""
    access = config.access
    counts = rule.pod_query and rule.pod_query.counts
    over = f", rates over {format_go_duration(config.window)}" if counts else ""
    return (
        f"{access.scheme}://POD:{access.port}{access.path} each {format_go_duration(access.interval)}{over}"
    )


def _line(label: str, text: str) -> str:
    return f"  {label:<9} {text}"


def place_of(source: str, line: int) -> str:
    """Return file and line.

    The line alone is left out where it is not known, as for the chart's own rules.
    """
    return f"{source}:{line}" if line else source


def printable(text: str) -> str:
    """Return text for a terminal.

    Labels and values of series may hold control characters, which are shown as escapes.
    """
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def one_line(text: str) -> str:
    """Return a query on one line."""
    return " ".join(text.split())


def _metrics(made: Sketch) -> str:
    if made.metrics:
        return listed(metric or '""' for metric in made.metrics)
    return (
        "none"
        if made.known is not None
        else f"what {made.rule.config.name_matches or '.*'} makes of the names found"
    )


def _objects(made: Sketch) -> str:
    kinds = listed(str(example.resource.group_resource) for example in made.examples if example.resource)
    template = made.rule.config.resources.template
    if made.known is None and template:
        return f"{kinds or 'none'}, and what {template} finds among the labels"
    return kinds or "none"


def _example(example: Example, answer: Answer | None) -> list[str]:
    if not example.promql:
        return [_line("asks", f"nothing: {example.fault}")]
    lines = [_line("asks", one_line(example.promql))]
    if example.separability is not None:
        lines.append(_line("separable", _verdict(example)))
    if isinstance(answer, PrometheusError):
        lines.append(_line("answer", f"refused: {answer}"))
    elif answer is not None:
        shown = ", ".join(show_sample(sample, example.label) for sample in answer.samples[:_SHOWN_VALUES])
        more = f": {shown}" if shown else ""
        lines.append(
            _line("answer", f"{counted(len(answer.samples), 'sample', 'samples')} for all objects{more}")
        )
    return lines


def _verdict(example: Example) -> str:
    verdict = example.separability
    assert verdict is not None
    if not verdict.separable:
        return f"no: {verdict.reason}"
    return f"yes, within a namespace: {verdict.join_reason}" if verdict.join_reason else "yes"


def show_sample(sample: Sample, label: str) -> str:
    """Return a sample's object (or all its labels, where `label` is "") and value."""
    if label:
        return f"{sample.labels.get(label, f'(no label {label})')} {empty.show_number(sample.value)}"
    return f"{show_labels(sample)} {empty.show_number(sample.value)}"


def show_labels(sample: Sample) -> str:
    """Return the labels of a sample but for its name."""
    labels = ",".join(
        f"{name}={value}" for name, value in sorted(sample.labels.items()) if name != "__name__"
    )
    return f"{{{labels}}}"


def _document(report: Report) -> dict[str, Any]:
    document: dict[str, Any] = {
        "path": report.path,
        "file": report.source,
        "line": report.line,
        "api": report.api,
    }
    if report.made is None:
        document["example"] = _example_document(report.examples[0])
    else:
        document |= {
            "seriesQuery": report.made.rule.config.series_query,
            "series": list(report.made.series),
            "metrics": list(report.made.metrics),
            "examples": [_example_document(example) for example in report.examples],
        }
    document["warnings"] = [_fault_document(warning) for warning in report.warnings]
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
        document |= {"separable": example.separability.separable, "reason": example.separability.reason}
    return document


def _fault_document(fault: Fault) -> dict[str, Any]:
    return {
        "file": fault.source,
        "line": fault.line,
        "path": fault.path,
        "value": fault.value,
        "sentence": fault.expected,
    }

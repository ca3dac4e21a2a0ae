"""What `fastpath check` prints of each rule: one value, shown as a block of lines or as JSON."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from adapter.cli.check import empty
from adapter.cli.check.resource_preview import ResourceSketch
from adapter.config.rules_file import ResourceRulesConfig
from adapter.config.scrape_keys import ScrapeConfig
from adapter.errors import Fault, PrometheusError
from adapter.model.durations import format_go_duration
from adapter.model.metrics import QueryResult, Sample
from adapter.rules.compile import Rule
from adapter.rules.preview import Example, Sketch
from adapter.rules.trace import counted, listed

_SHOWN_VALUES = 3
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

Answer = QueryResult | PrometheusError


class RuleReport(NamedTuple):
    """One rule: what it would do, its warnings, and with Prometheus what that said.

    `unread` says why the series were not read. `answer` is the answer to the main example for all objects; None where it was not asked.
    """

    made: Sketch
    warnings: tuple[Fault, ...]
    unread: str = ""
    answer: Answer | None = None


class ResourceReport(NamedTuple):
    """One query of the resource rules; `answer` is the answer for all pods or nodes, None where it was not asked."""

    made: ResourceSketch
    config: ResourceRulesConfig
    answer: Answer | None = None


def count_warnings(
    reports: Sequence[RuleReport], resource: Sequence[ResourceReport], general: Sequence[Fault]
) -> int:
    """Return how many warnings a report has."""
    of_rules = sum(len(report.warnings) for report in reports)
    return of_rules + sum(len(report.made.warnings) for report in resource) + len(general)


def render_text(
    reports: Sequence[RuleReport],
    resource: Sequence[ResourceReport],
    general: Sequence[Fault] = (),
    faults: Sequence[Fault] = (),
) -> str:
    """Return the report for people: a block for each rule and for each query of the resource rules, and a line that counts.

    `general` are the warnings about all files together; `faults` are only counted.
    """
    blocks = ["\n".join(_block(report)) for report in reports]
    blocks += ["\n".join(_resource_block(report)) for report in resource]
    blocks += ["\n".join([warning.path, _warning(warning, "")]) for warning in general]
    custom = sum(not report.made.external for report in reports)
    counts = [
        counted(custom, "rule", "rules"),
        counted(len(reports) - custom, "external rule", "external rules"),
    ]
    if resource:
        counts.append(counted(len(resource), "resource query", "resource queries"))
    warnings = count_warnings(reports, resource, general)
    counts.append(counted(warnings, "warning", "warnings"))
    if faults:
        counts.append(counted(len(faults), "fault", "faults"))
    blocks.append(", ".join(counts))
    return "\n\n".join(blocks) + "\n"


def _block(report: RuleReport) -> list[str]:
    made, config = report.made, report.made.rule.config
    lines = [
        f"{config.path}  ({place_of(config.source, config.line)})",
        _line("series", one_line(config.series_query) or "none"),
    ]
    if report.unread:
        lines.append(_line("", f"not read: {report.unread}"))
    elif made.known is not None:
        found = counted(sum(each.count for each in made.known), "series", "series")
        names = counted(len(made.known), "name", "names")
        lines.append(_line("", f"{found} of {names}, {counted(len(made.series), 'name', 'names')} taken"))
    lines.append(_line("metrics", _metrics(made)))
    if not made.external:
        lines.append(_line("objects", _objects(made)))
    if made.main is not None:
        lines += _example(made.main, report.answer)
    if config.scrape is not None:
        lines.append(_line("scrapes", _scrapes(made.rule, config.scrape)))
    return [
        *lines,
        *(_warning(warning, warning.path.removeprefix(f"{config.path}.")) for warning in report.warnings),
    ]


def _resource_block(report: ResourceReport) -> list[str]:
    made, config = report.made, report.config
    lines = [f"{made.path}  ({place_of(config.source, config.line)})"]
    if made.example.resource:
        lines.append(_line("objects", str(made.example.resource.group_resource)))
    if made.example.promql:  # else a warning says why there is none
        lines += _example(made.example, report.answer)
    return [*lines, *(_warning(warning, "") for warning in made.warnings)]


def _warning(warning: Fault, below: str) -> str:
    return _line("warning", ": ".join(part for part in (below, warning.value, warning.expected) if part))


def _scrapes(rule: Rule, config: ScrapeConfig) -> str:
    """Return how the rule has pods read themselves."""
    access = config.access
    over = (
        f", rates over {format_go_duration(config.window)}"
        if rule.pod_query and rule.pod_query.counts
        else ""
    )
    return (
        f"{access.scheme}://POD:{access.port}{access.path} each {format_go_duration(access.interval)}{over}"
    )


def _line(label: str, text: str) -> str:
    return f"  {label:<9} {text}"


def place_of(source: str, line: int) -> str:
    """Return file and line; the line alone is left out where it is not known, as for the chart's own rules."""
    return f"{source}:{line}" if line else source


def printable(text: str) -> str:
    """Return text for a terminal: labels and values of series may hold control characters, which are shown as escapes."""
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


def build_document(
    reports: Sequence[RuleReport],
    resource: Sequence[ResourceReport],
    general: Sequence[Fault],
    faults: Sequence[Fault],
) -> dict[str, Any]:
    """Return the same report for programs, and the faults with it."""
    return {
        "rules": [_rule_document(report) for report in reports],
        "resourceQueries": [_resource_document(report) for report in resource],
        "warnings": [_fault_document(warning) for warning in general],
        "faults": [_fault_document(fault) for fault in faults],
    }


def _rule_document(report: RuleReport) -> dict[str, Any]:
    made, config = report.made, report.made.rule.config
    document: dict[str, Any] = {
        "path": config.path,
        "file": config.source,
        "line": config.line,
        "api": "external.metrics.k8s.io" if made.external else "custom.metrics.k8s.io",
        "seriesQuery": config.series_query,
        "series": list(made.series),
        "metrics": list(made.metrics),
        "examples": [_example_document(example) for example in made.examples],
        "warnings": [_fault_document(warning) for warning in report.warnings],
    }
    if report.unread:
        document["unread"] = report.unread
    return document | _answer_document(report.answer)


def _resource_document(report: ResourceReport) -> dict[str, Any]:
    made, config = report.made, report.config
    document = {
        "path": made.path,
        "file": config.source,
        "line": config.line,
        "api": "metrics.k8s.io",
        "example": _example_document(made.example),
        "warnings": [_fault_document(warning) for warning in made.warnings],
    }
    return document | _answer_document(report.answer)


def _answer_document(answer: Answer | None) -> dict[str, Any]:
    if answer is None:
        return {}
    if isinstance(answer, PrometheusError):
        return {"refused": str(answer)}
    return {"samples": len(answer.samples)}


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

"""`fastpath check`: what a rules file would do, what is wrong with it, and why a metric is absent.

The report goes to standard output, faults go one a line to standard error. `servers` asks Prometheus and the
cluster.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from adapter import errors
from adapter.cli import command_line
from adapter.compose.clock import SystemClock
from adapter.config.rules_config import Parsed, fault_at
from adapter.errors import Fault, KubernetesError, PrometheusError
from adapter.model.metrics import QueryResult
from adapter.model.objects.label_selectors import EVERYTHING
from adapter.model.objects.resources import Catalogue
from adapter.model.visible import listed
from adapter.rules import compile as compiler
from adapter.rules.compile import Ruleset
from adapter.rules.resource import NODES
from adapter.telemetry import logs
from fastpath_tools.check import autoscalers, empty, follow, lint, lint_query, missing, schedules, why
from fastpath_tools.check.autoscalers import Autoscalers
from fastpath_tools.check.follow import Explanation
from fastpath_tools.check.options import COMMAND, CheckOptions
from fastpath_tools.check.report import Answer, Report, Summary
from fastpath_tools.check.why import WhyQuestion
from fastpath_tools.live import chart_values as helm_values
from fastpath_tools.live import preview, rules_files
from fastpath_tools.live.preview import EXTERNAL, ResourcePreview, RulePreview

if TYPE_CHECKING:
    from fastpath_tools.live.servers import ClusterReader, PrometheusReader

_LAST_STEP = re.compile(r"(\.[^.\[\]]*|\[[^\[\]]*\])\Z")

# A query for all objects of a metric with more series than this is not asked for the sake of an example.
_EXAMPLE_SERIES = 20_000
_NO_SAMPLE = (
    "the query has no sample now, so nothing is served: compare its series and labels with those in "
    "Prometheus"
)
_NO_CONTAINER = (
    "there are series of pods, but none with a container: all lack the label {label}, so nothing is served. "
    "A kubelet's cAdvisor names no containers where it does not find the socket of the container runtime"
)
_NO_RULE = Fault("rules", "", "the files have no rule, so nothing is served")


@command_line.verb(COMMAND)
def main(options: CheckOptions) -> int:
    """Check files; `COMMAND` has the exit statuses."""
    if options.print_config:
        command_line.show_file(rules_files.render_config(options.config))
        return 0
    question = why.parse_question(options) if options.why else None
    logs.configure_logging(options.verbosity)
    if options.verbosity < 6:
        logging.getLogger("adapter").setLevel(logging.ERROR)  # what goes wrong is in the report
    return asyncio.run(_check(options, question))


async def _check(options: CheckOptions, question: WhyQuestion | None) -> int:
    fatal: list[Fault] = []
    given = Autoscalers()
    texts = rules_files.read_texts(options.config, fatal)
    rules_texts = [(source, text) for source, text in texts if not autoscalers.read(text, source, given)]
    parsed = rules_files.combine(rules_texts, fatal)
    unreachable, unseen = list[str](), list[str]()
    absent = warned = False
    async with AsyncExitStack() as stack:
        cluster, prometheus = None, None
        if options.lister_kubeconfig or options.prometheus_url:
            from fastpath_tools.live import servers  # noqa: PLC0415 - importing it takes most of a second

            kubeconfig = options.lister_kubeconfig
            cluster, prometheus = await servers.open_servers(kubeconfig, options, options, stack)
        catalogue, notes = rules_files.assumed_catalogue(parsed.config)
        if cluster is not None:
            try:
                catalogue, notes = await cluster.catalogue(), ()
            except KubernetesError as error:
                failure = f"cannot query the API server, using the built-in kinds: {error}"
                (unseen if error.status == 403 else unreachable).append(failure)
        ruleset, _ = compiler.compile_rules(parsed.config, catalogue)
        faults = (*collect_faults(parsed, catalogue), *given.faults, *schedules.faults_of(given.schedules))
        if question is not None:
            assert prometheus is not None  # the command line refuses the one without the other
            left_out = missing.rules_of(fault.path for fault in faults)
            explanation = await why.explain(question, prometheus, cluster, catalogue, ruleset, left_out)
            _print(explanation, options.output)
            unreachable, unseen = unreachable + explanation.unreachable, unseen + explanation.unseen
            absent = not explanation.served
        else:
            asking = _Servers(prometheus, cluster, unreachable, unseen)
            reports = await _report_rules(options, ruleset, asking, notes)
            rules = [report.preview for report in reports if isinstance(report.preview, RulePreview)]
            faults += tuple(fault for one in given.given for fault in autoscalers.faults_of(one, rules))
            reports += await _report_resource_rules(options, ruleset, asking)
            has_rules = parsed.config.rules or parsed.config.external_rules or parsed.config.resource_rules
            general = [fault for source, text in rules_texts for fault in rules_files.unread(text, source)]
            needs_rules = bool(given.given) or not given.schedules
            general += [_NO_RULE] if needs_rules and not has_rules and not faults else []
            for number, one in enumerate(given.given):
                general += autoscalers.warnings_of(one, rules, given.given[:number])
            general += schedules.warnings_of(given.schedules, int(SystemClock().wall()))
            charts = [source for source, text in rules_texts if helm_values.is_chart_values(text)]
            usages = [] if ruleset.usage is None else [ruleset.usage.rule]
            counts = len(given.given), len(given.schedules)
            summary = Summary(reports, general, faults, *counts, charts, usages)
            warned = summary.warning_count > 0
            _print(summary, options.output)
    for line in (*map(str, faults), *dict.fromkeys([*unreachable, *unseen])):
        command_line.tell("check", line)
    if faults or (options.strict and warned):
        return 2
    return 1 if unreachable or absent else 0


def _print(answer: Explanation | Summary, output: str) -> None:
    if output == "json":
        command_line.show(msgspec.json.format(msgspec.json.encode(answer.document())).decode() + "\n")
    else:
        command_line.show(answer.text())


class _Servers(NamedTuple):
    """What is asked, each None if it is not; the lists grow with what could not be asked or seen."""

    prometheus: "PrometheusReader | None"
    cluster: "ClusterReader | None"
    unreachable: list[str]
    unseen: list[str]


async def _report_rules(
    options: CheckOptions, ruleset: Ruleset, servers: _Servers, notes: Sequence[Fault]
) -> list[Report]:
    prometheus = servers.prometheus
    lists = await prometheus.lists(ruleset.selectors()) if prometheus else {}
    previews = preview.preview_rules(ruleset, lists)
    warnings = [*notes, *lint.lint(previews, options.scrape_interval)]
    reports = []
    for rule in previews:
        config = rule.config
        series = lists.get(config.series_query)
        unread = str(series) if isinstance(series, PrometheusError) else ""
        answer = await _ask_example(rule, prometheus) if prometheus and not unread else None
        mine = [
            warning
            for warning in warnings
            if warning.path.startswith(f"{config.path}.") and warning.source == config.source
        ]
        mine += _problems(f"{config.path}.seriesQuery", series, rule, servers)
        mine += _problems(f"{config.path}.metricsQuery", answer, rule, servers)
        mine += await _strangers(f"{config.path}.resources", answer, rule, servers)
        reports.append(Report(rule, mine, answer, unread))
    return reports


async def _report_resource_rules(options: CheckOptions, ruleset: Ruleset, servers: _Servers) -> list[Report]:
    if ruleset.resource is None:
        return []
    reports, prometheus = [], servers.prometheus
    for query in preview.preview_resource_rules(ruleset.resource):
        answer = await prometheus.ask(query.main.everything) if prometheus and query.main.promql else None
        warnings = [*lint_query.check_resource_query(query, options.scrape_interval)]
        warnings += _problems(query.path, answer, query, servers)
        warnings += await _strangers(query.path, answer, query, servers)
        if isinstance(answer, QueryResult) and not answer.samples:
            why_none = await _explain_no_sample(query, prometheus)
            warnings.append(fault_at(query.config, query.path, "", why_none))
        reports.append(Report(query, warnings, answer))
    return reports


async def _explain_no_sample(query: ResourcePreview, prometheus: "PrometheusReader | None") -> str:
    """Return why a query has no sample: it may select containers where the series name none."""
    label, promql = query.query.part_label or "", query.main.everything
    without = re.sub(rf',?\s*\b{re.escape(label)}\s*(?:=|!=|=~|!~)\s*"(?:[^"\\]|\\.)*"', "", promql)
    if prometheus is None or not label or without == promql:
        return _NO_SAMPLE
    answer = await prometheus.ask(without.replace("{,", "{"))
    if not isinstance(answer, QueryResult) or not answer.samples:
        return _NO_SAMPLE
    return _NO_CONTAINER.format(label=label)


_Preview = RulePreview | ResourcePreview


def _problems(path: str, answer: object, rule: _Preview, servers: _Servers) -> list[Fault]:
    """Return warnings where Prometheus refuses a query, or answers with what is no value."""
    sentences: list[str] = []
    if isinstance(answer, QueryResult):
        on_nan, query = (
            (rule.config.on_nan, rule.rule) if isinstance(rule, RulePreview) else (None, rule.query)
        )
        values = [empty.value_of(one, on_nan, external=rule.api == EXTERNAL) for one in answer.samples]
        sentences = [empty.faulty(values, on_nan), empty.negative(values) if rule.api == EXTERNAL else ""]
        sentences += [] if query.accepts_warnings else map(empty.partial, answer.warnings)
    elif isinstance(answer, PrometheusError) and answer.kind in empty.OF_THE_QUERY:
        sentences = [f"Prometheus refuses the query: {answer}"]
    elif isinstance(answer, PrometheusError):
        servers.unreachable.append(f"cannot query Prometheus: {answer}")
    return [fault_at(rule.config, path, "", sentence) for sentence in sentences if sentence]


async def _strangers(path: str, answer: object, rule: _Preview, servers: _Servers) -> list[Fault]:
    """Return a warning where the cluster has no object of the names in an answer, or not each node."""
    example, cluster = rule.main, servers.cluster
    if cluster is None or not isinstance(answer, QueryResult) or example is None or example.resource is None:
        return []
    kind, label = example.resource.group_resource, example.label
    values = {sample.labels[label] for sample in answer.samples if label in sample.labels}
    try:
        names = {*await cluster.names(example.resource, None, EVERYTHING)}
    except KubernetesError as error:
        follow.note_unread(str(kind), error, servers.unreachable, servers.unseen)
        return []
    there = names & values
    if not values or len(there) == len(names) or (there and kind != NODES):
        return []
    sentence = (
        f"{len(there)} of {len(names)} {kind} of the cluster have a sample: label {label} is "
        f"{listed(sorted(values))}, and they are named {listed(sorted(names))}; map the label of their names"
    )
    return [fault_at(rule.config, path, "", sentence)]


async def _ask_example(rule: RulePreview, prometheus: "PrometheusReader") -> Answer | None:
    """Ask for all objects of the main example, if there are series to ask for, and not too many."""
    if rule.main is None or not rule.main.promql or not rule.series:
        return None
    count = sum(series.count for series in rule.known or () if series.name == rule.series[-1])
    return await prometheus.ask(rule.main.everything) if count <= _EXAMPLE_SERIES else None


# -- files ---------------------------------------------------------------------------------------------------


def collect_faults(parsed: Parsed, catalogue: Catalogue) -> tuple[Fault, ...]:
    """Return the faults that reading and compiling find, in the order of files and lines.

    A rule that reading refuses is compiled nevertheless, as far as it could be read, so that one run shows
    all of its faults. A fault that only follows from another is left out.
    """
    read = _once((*parsed.fatal, *parsed.faults))
    compiled = compiler.compile_rules(parsed.readable, catalogue)[1]
    own = [fault for fault in compiled if not any(_follows(fault, earlier) for earlier in read)]
    return errors.in_order((*read, *own))


def _once(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return the faults without those that repeat, for another key, what kind of file it is."""
    kept: dict[tuple[str, str, str], Fault] = {}
    for fault in faults:
        about_the_file = fault.path.isidentifier() and not fault.expected.startswith("unknown key")
        kept.setdefault((fault.source, fault.expected, "" if about_the_file else str(fault)), fault)
    return tuple(kept.values())


def _follows(fault: Fault, earlier: Fault) -> bool:
    """Tell whether a fault is about what was already refused.

    The same place, one around or below it, or a key that it misspells.
    """
    one, other = fault.path, earlier.path
    if fault.source != earlier.source:
        return False
    if one == other or one.startswith((f"{other}.", f"{other}[")) or other.startswith((f"{one}.", f"{one}[")):
        return True
    return not fault.value and _LAST_STEP.sub("", one) == _LAST_STEP.sub("", other)

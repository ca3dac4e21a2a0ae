"""`fastpath check`: what a rules file would do, what is wrong with it, and why a metric is absent.

The report goes to standard output, faults go one a line to standard error. `servers` asks Prometheus and the
cluster.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from adapter.cli import command_line
from adapter.cli.check import empty, faults, inputs, lint, missing, report, resource_preview, why
from adapter.cli.check.options import COMMAND, CheckOptions
from adapter.cli.check.report import Report, Summary
from adapter.config.rules_file import RulesConfig
from adapter.errors import Fault, KubernetesError, PrometheusError
from adapter.rules import compile as compiler
from adapter.rules import preview
from adapter.rules.compile import Rule, Ruleset
from adapter.rules.preview import Sketch
from adapter.rules.trace import Lists
from adapter.telemetry import logs

if TYPE_CHECKING:
    from adapter.cli.check.servers import PrometheusReader

# A query for all objects of a metric with more series than this is not asked for the sake of an example.
_EXAMPLE_SERIES = 20_000
_NO_SAMPLE = (
    "the query has no sample now, so nothing is served: compare its series and labels with those in "
    "Prometheus"
)


def main(arguments: Sequence[str]) -> int:
    """Check files; `COMMAND` has the exit statuses."""
    options = command_line.read(COMMAND, arguments)
    if options is None:
        return 0
    if options.print_config:
        print(inputs.render_config(options.config), end="")
        return 0
    question = why.parse_question(options) if options.why else None
    logs.configure_logging(options.verbosity)
    if options.verbosity < 6:
        logging.getLogger("adapter").setLevel(logging.ERROR)  # what goes wrong is in the report
    return asyncio.run(_check(options, question))


async def _check(options: CheckOptions, question: why.WhyQuestion | None) -> int:
    parsed = inputs.parse(options.config)
    unreachable: list[str] = []
    absent = warned = False
    async with AsyncExitStack() as stack:
        cluster, prometheus = None, None
        if options.lister_kubeconfig or options.prometheus_url:
            from adapter.cli.check import servers  # noqa: PLC0415 - importing it takes most of a second

            cluster, prometheus = await servers.open_servers(options, stack)
        catalogue, notes = inputs.assumed_catalogue(parsed.config)
        if cluster is not None:
            try:
                catalogue, notes = await cluster.catalogue(), ()
            except KubernetesError as error:
                unreachable.append(
                    f"the API server cannot be asked, built-in kinds are taken for its own: {error}"
                )
        ruleset, _ = compiler.compile_rules(parsed.config, catalogue)
        all_faults = faults.collect(parsed, catalogue)
        if question is not None:
            assert prometheus is not None  # the command line refuses the one without the other
            left_out = missing.rules_of(fault.path for fault in all_faults)
            story = await why.explain(question, prometheus, cluster, catalogue, ruleset, left_out)
            print(
                _encode(story.document()) if options.output == "json" else report.printable(story.text()),
                end="",
            )
            unreachable += story.unreachable
            absent = not story.served
        else:
            rules, failures = await _rule_reports(options, ruleset, prometheus, notes)
            resource, further = await _resource_reports(ruleset, prometheus)
            unreachable += [*failures, *further]
            summary = Summary([*rules, *resource], _general(parsed.config, all_faults), all_faults)
            warned = summary.warning_count > 0
            if options.output == "json":
                print(_encode(summary.document()), end="")
            else:
                print(report.printable(summary.text()), end="")
    for line in (*map(str, all_faults), *dict.fromkeys(unreachable)):
        print(f"fastpath check: {line}", file=sys.stderr)
    if all_faults or (options.strict and warned):
        return 2
    return 1 if unreachable or absent else 0


def _general(config: RulesConfig, found: Sequence[Fault]) -> list[Fault]:
    """Return the warnings about all files together."""
    if config.rules or config.external_rules or config.resource_rules or found:
        return []
    return [Fault("rules", "", "the files have no rule, so nothing is served")]


async def _rule_reports(
    options: CheckOptions, ruleset: Ruleset, prometheus: "PrometheusReader | None", notes: Sequence[Fault]
) -> tuple[list[Report], list[str]]:
    """Return the report on each rule, and what could not be asked."""
    lists = await prometheus.lists(ruleset.selectors()) if prometheus else {}
    made = [_sketch(rule, lists, external=False) for rule in ruleset.custom]
    made += [_sketch(rule, lists, external=True) for rule in ruleset.external]
    warnings = [*notes, *lint.lint(made, options.scrape_interval)]
    reports, failures = [], []
    for each in made:
        config = each.rule.config
        mine = tuple(
            warning
            for warning in warnings
            if warning.path.startswith(f"{config.path}.") and warning.source == config.source
        )
        answer = lists.get(config.series_query)
        unread = str(answer) if isinstance(answer, PrometheusError) else ""
        asked = await _ask_example(each, prometheus) if prometheus and not unread else None
        failures += _failures(answer, asked)
        refused = [
            *_refusals(f"{config.path}.seriesQuery", answer, config.source, config.line),
            *_refusals(f"{config.path}.metricsQuery", asked, config.source, config.line),
        ]
        reports.append(report.of_rule(each, (*mine, *refused), asked, unread))
    return reports, failures


async def _resource_reports(
    ruleset: Ruleset, prometheus: "PrometheusReader | None"
) -> tuple[list[Report], list[str]]:
    """Return the report on each query of the resource rules, and what could not be asked."""
    if ruleset.resource is None:
        return [], []
    reports, failures = [], []
    for made in resource_preview.sketch(ruleset.resource):
        asked = await prometheus.ask(made.example.everything) if prometheus and made.example.promql else None
        failures += _failures(asked)
        config = ruleset.resource.config
        found = [*made.warnings, *_refusals(made.path, asked, config.source, config.line)]
        if asked is not None and not isinstance(asked, PrometheusError) and not asked.samples:
            found.append(Fault(made.path, "", _NO_SAMPLE, config.source, config.line))
        reports.append(report.of_resource_query(made, config, found, asked))
    return reports, failures


def _refusals(path: str, answer: object, source: str, line: int) -> list[Fault]:
    """Return a warning where Prometheus refuses a query."""
    if isinstance(answer, PrometheusError) and answer.kind in empty.OF_THE_QUERY:
        return [Fault(path, "", f"Prometheus refuses the query: {answer}", source, line)]
    return []


def _failures(*answers: object) -> list[str]:
    """Return a sentence for each failure that is not the query's own fault."""
    return [
        f"Prometheus cannot be asked: {answer}"
        for answer in answers
        if isinstance(answer, PrometheusError) and answer.kind not in empty.OF_THE_QUERY
    ]


def _sketch(rule: Rule, lists: Lists, *, external: bool) -> Sketch:
    answer = lists.get(rule.config.series_query)
    return preview.sketch(rule, None if isinstance(answer, PrometheusError) else answer, external=external)


async def _ask_example(made: Sketch, prometheus: "PrometheusReader") -> report.Answer | None:
    """Ask for all objects of the main example, if there are series to ask for, and not too many."""
    if made.main is None or not made.main.promql or not made.series:
        return None
    count = sum(each.count for each in made.known or () if each.name == made.series[-1])
    return await prometheus.ask(made.main.everything) if count <= _EXAMPLE_SERIES else None


def _encode(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"

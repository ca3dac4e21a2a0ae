"""`fastpath check`: what a rules file would do, what is wrong with it, and why a metric is absent.

Reads files, asks Prometheus and the API server when told where they are, prints. What rules mean is `rules`' business.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from adapter import app
from adapter.cli import report
from adapter.clients import credentials, kubernetes
from adapter.clients.discovery import SeriesLister
from adapter.clients.prometheus import PrometheusClient
from adapter.config import chart, flags, rulesfile
from adapter.config.options import Options
from adapter.config.rulesfile import Parsed, RuleConfig, RulesConfig
from adapter.errors import Fault, InputError, PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.model.resources import BUILTIN, APIResource, Catalogue
from adapter.monitoring import FaultLog, Monitoring
from adapter.rules import compile as compiler
from adapter.rules import lint, sketch
from adapter.rules.compile import Ruleset

DESCRIPTION = """\
Validate rules files (or the rules in the prometheus-community chart's values) and print what each rule asks and serves.

With --prometheus-url the series are read and the queries asked for real; every connection flag of `fastpath serve` works here too.
With --lister-kubeconfig the resources are those of the cluster, else the built-in kinds of Kubernetes.
"""

_SCRAPE_INTERVAL = 15.0


def main(arguments: Sequence[str]) -> int:
    """Check files; 0 when all is well (warnings included), 2 for faults, 1 when Prometheus or the API server cannot be asked."""
    parser = argparse.ArgumentParser("fastpath check", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="rules file, chart values, or folder of rules files")
    parser.add_argument("--print-config", action="store_true", help="print the rules file that the chart would make of FILE, and nothing else")
    parser.add_argument("--why", metavar="METRIC", help="explain step by step why METRIC is served or is not (needs --prometheus-url)")
    parser.add_argument("--object", metavar="KIND/NS/NAME", help="with --why: ask for this object; KIND/NAME at the root, NS alone for an external metric")
    parser.add_argument("--scrape-interval", type=float, default=_SCRAPE_INTERVAL, metavar="SECONDS", help="how often your Prometheus scrapes (default %(default)s)")
    own, connection = _split(parser, arguments)
    if own.print_config:
        return _print_config(own.files)
    options, _ = flags.parse_flags([*connection, *(f"--config={name}" for name in own.files)])
    asks = options.prometheus_url != Options().prometheus_url
    if own.why and not asks:
        raise InputError([Fault("--why", own.why, "expected --prometheus-url too: the answer lies in Prometheus")])
    if own.object and not own.why:
        raise InputError([Fault("--object", own.object, "expected --why METRIC too")])
    return asyncio.run(_check(own, options, asks=asks))


def _split(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return check's own arguments, and the flags of `serve` among the rest, `--name value` made one word."""
    joined: list[str] = []
    pending = list(arguments)
    own_flags = {option for action in parser._actions for option in action.option_strings}  # noqa: SLF001 - argparse has no public list
    takes_value = flags.names_with_values()
    foreign: list[str] = []
    while pending:
        word = pending.pop(0)
        name = word.split("=", 1)[0]
        if not word.startswith("-") or name in own_flags:
            joined.append(word)
        elif "=" not in word and name.lstrip("-") in takes_value and pending:
            foreign.append(f"{word}={pending.pop(0)}")
        else:
            foreign.append(word)
    return parser.parse_args(joined), foreign


def _print_config(files: Sequence[str]) -> int:
    for name in files:
        text = _read(name)
        sys.stdout.write(chart.render_config(text, name) if chart.is_chart_values(text) else text)
    return 0


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError([Fault(name, "", f"expected a readable file: {reason}")]) from error


def _parse(files: Sequence[str]) -> Parsed:
    """Return what the files say together, charts converted; nothing is thrown away."""
    parsed = []
    for name in files:
        path = Path(name)
        for each in sorted(path.glob("*.y*ml")) if path.is_dir() else [path]:
            text = _read(str(each))
            parsed.append(chart.rules_from_chart(text, str(each)) if chart.is_chart_values(text) else rulesfile.parse_rules(text, str(each)))
    merged, doubled = rulesfile.merge([one.config for one in parsed])
    faults = tuple(fault for one in parsed for fault in one.faults)
    return Parsed(merged, (*faults, *doubled), tuple(fault for one in parsed for fault in one.fatal))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What Prometheus said: series by selector (or why not), and how to ask more. None where nobody was asked."""

    series: Mapping[str, tuple[SeriesInfo, ...] | PrometheusError]
    client: PrometheusClient
    now: float


async def _check(own: argparse.Namespace, options: Options, *, asks: bool) -> int:
    parsed = _parse(own.files)
    clock = app.SystemClock()
    monitoring = Monitoring()
    fault_log = FaultLog(monitoring, clock)
    async with AsyncExitStack() as stack:
        catalogue, notes = await _catalogue(options, parsed.config, clock, fault_log, stack)
        ruleset, compile_faults = compiler.compile_rules(parsed.config, catalogue)
        faults = (*parsed.fatal, *parsed.faults, *compile_faults)
        evidence = None
        if asks:
            client = await PrometheusClient.open(app.prometheus_settings(options), clock, monitoring, fault_log)
            stack.push_async_callback(client.close)
            lister = SeriesLister(client.origin, monitoring, fault_log, max_bytes=options.discovery_max_bytes)
            series = await lister.series(ruleset.selectors(), clock.wall() - options.look_back)
            evidence = Evidence(series, client, clock.wall())
        if own.why:
            assert evidence is not None
            await report.explain(ruleset, evidence.series, evidence.client, evidence.now, own.why, own.object)
        else:
            await _print_all(own, ruleset, evidence, [*notes])
    for fault in faults:
        print(f"fastpath check: {fault}", file=sys.stderr)
    if faults:
        return 2
    return 1 if evidence and any(isinstance(answer, PrometheusError) for answer in evidence.series.values()) else 0


async def _print_all(own: argparse.Namespace, ruleset: Ruleset, evidence: Evidence | None, notes: list[Fault]) -> None:
    sketches = []
    for rules, make in ((ruleset.custom, sketch.sketch_custom), (ruleset.external, sketch.sketch_external)):
        for rule in rules:
            answer = evidence.series.get(rule.config.series_query) if evidence else None
            known = None if isinstance(answer, PrometheusError) else answer
            sketches.append(make(rule, known))
    warnings = [*notes, *lint.lint(ruleset, sketches, own.scrape_interval)]
    for made in sketches:
        mine = [warning for warning in warnings if warning.path.startswith(f"{made.rule.config.path}.") and warning.source == made.rule.config.source]
        answer = evidence.series.get(made.rule.config.series_query) if evidence else None
        await report.print_rule(made, answer, evidence.client if evidence else None, evidence.now if evidence else 0.0, mine)
    print(f"{len(ruleset.custom)} rules, {len(ruleset.external)} external rules, {len(warnings)} warnings")


async def _catalogue(
    options: Options, config: RulesConfig, clock: app.SystemClock, faults: FaultLog, stack: AsyncExitStack
) -> tuple[Catalogue, list[Fault]]:
    """Return the kinds of the cluster, or the built-in ones and those that the rules name besides, with a note on each of these."""
    if options.lister_kubeconfig:
        configuration = await credentials.load_configuration(Path(options.lister_kubeconfig), clock, faults)
        client = await stack.enter_async_context(await kubernetes.connect(configuration, random=random.random))
        return await client.fetch_catalogue(), []
    unknown = [
        (rule, override)
        for rule in (*config.rules, *config.external_rules)
        for override in rule.resources.overrides
        if override.group and BUILTIN.lookup(override.resource, override.group) is None
    ]
    added = [
        APIResource(override.group, "v1", override.resource.lower(), override.resource.lower(), override.resource, True, frozenset(), True)  # noqa: FBT003
        for _, override in unknown
    ]
    return Catalogue([*BUILTIN, *dict.fromkeys(added)]), [_unverified(rule, override.label, f"{override.resource}.{override.group}") for rule, override in unknown]


def _unverified(rule: RuleConfig, label: str, resource: str) -> Fault:
    sentence = "not a built-in kind of Kubernetes: give --lister-kubeconfig to see whether your cluster has it"
    return Fault(f"{rule.path}.resources.overrides.{label}", resource, sentence, rule.source, rule.line)



"""What `fastpath check` goes by: what the files say, and what Prometheus and the API server say at one moment.

Reads and asks; prints nothing and judges nothing.
"""

import random
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from adapter.cli.command_line import STDIN
from adapter.compose import providers
from adapter.config import chart, rules_file
from adapter.config.options import ClusterOptions, PrometheusOptions, RulesOptions
from adapter.config.rules_file import Parsed, RuleConfig, RulesConfig
from adapter.errors import Fault, InputError, PrometheusError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import codec, credentials
from adapter.kubernetes.client import KubernetesClient
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult
from adapter.model.resources import BUILTIN, APIResource, Catalogue
from adapter.model.selectors.label_selectors import LabelSelector
from adapter.prometheus.client import PrometheusClient, Querier
from adapter.prometheus.series import SeriesLister
from adapter.provider.rules_files import EMPTY, RulesFiles
from adapter.rules.trace import Lists
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog


def read_texts(files: Sequence[str], fatal: list[Fault]) -> list[tuple[str, str]]:
    """Return name and text of each file, folders opened, ``-`` read from standard input; `fatal` grows with what cannot be read."""
    texts: list[tuple[str, str]] = []
    for name in files:
        if name != STDIN:
            texts += RulesFiles([name], flag="").texts(fatal)
            continue
        try:
            texts.append(("<stdin>", sys.stdin.buffer.read().decode()))
        except UnicodeDecodeError:
            fatal.append(Fault("", "<stdin>", "expected a readable file: it is not UTF-8 text"))
    return texts


def parse(files: Sequence[str]) -> Parsed:
    """Return what the files say together, the values of the chart converted."""
    fatal: list[Fault] = []
    texts = read_texts(files, fatal)
    fatal += [Fault("", source, EMPTY) for source, text in texts if not text.strip()]
    parsed = [_parse(text, source) for source, text in texts]
    merged, doubled = rules_file.merge([one.config for one in parsed])
    return Parsed(
        merged,
        (*(fault for one in parsed for fault in one.faults), *doubled),
        (*fatal, *(fault for one in parsed for fault in one.fatal)),
        rules_file.merge([one.readable for one in parsed])[0],
    )


def _parse(text: str, source: str) -> Parsed:
    return (
        chart.rules_from_chart(text, source)
        if chart.is_chart_values(text)
        else rules_file.parse_rules(text, source)
    )


def render_config(files: Sequence[str]) -> str:
    """Return the rules file that the chart makes of its values; a rules file is returned as it is. InputError."""
    fatal: list[Fault] = []
    rendered = []
    for source, text in read_texts(files, fatal):
        try:
            rendered.append(chart.render_config(text, source) if chart.is_chart_values(text) else text)
        except InputError as error:
            fatal += error.faults
    if fatal:
        raise InputError(fatal)
    return "---\n".join(rendered)


def assumed_catalogue(config: RulesConfig) -> tuple[Catalogue, tuple[Fault, ...]]:
    """Return the built-in kinds and those that the rules name with a group besides, with a note on each of these."""
    unknown = [
        (rule, override)
        for rule in (*config.rules, *config.external_rules)
        for override in rule.resources.overrides
        if override.group and BUILTIN.lookup(override.resource, override.group) is None
    ]
    added = dict.fromkeys(_assumed(override.group, override.resource.lower()) for _, override in unknown)
    notes = [
        _unverified(rule, override.label, f"{override.resource}.{override.group}")
        for rule, override in unknown
    ]
    return Catalogue([*BUILTIN, *added]), tuple(notes)


def _assumed(group: str, name: str) -> APIResource:
    return APIResource(group, "v1", name, name, name, namespaced=True, verbs=frozenset(), preferred=True)


def _unverified(rule: RuleConfig, label: str, resource: str) -> Fault:
    sentence = (
        "not a built-in kind of Kubernetes: give --lister-kubeconfig to see whether your cluster has it"
    )
    return Fault(f"{rule.path}.resources.overrides.{label}", resource, sentence, rule.source, rule.line)


class Cluster:
    """The API server, as far as `check` asks it. KubernetesError when it cannot be asked."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    async def catalogue(self) -> Catalogue:
        """Return the kinds of object that it has."""
        return await self._client.fetch_catalogue()

    async def names(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[str, ...]:
        """Return the names of the objects that match, in the order of its list."""
        names: list[str] = []

        def deliver(objects: list[codec.ObjectMeta]) -> None:
            names.extend(each.name for each in objects)

        await self._client.list_objects(resource, deliver, namespace=namespace or "", selector=selector)
        return tuple(names)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A Prometheus at one moment: `now` in epoch seconds, `look_back` how far back series are looked for."""

    client: Querier
    lister: SeriesLister
    now: float
    look_back: float

    async def lists(self, selectors: Sequence[str]) -> Lists:
        """Return the series of each selector, or why nobody knows; a selector without a character is not asked for."""
        empty = PrometheusError("query", "there is no seriesQuery")
        lists = dict(
            await self.lister.series([each for each in selectors if each], self.now - self.look_back)
        )
        return {selector: lists.get(selector, empty) for selector in selectors}

    async def ask(self, promql: str) -> QueryResult | PrometheusError:
        """Return the answer to a query, an error as a value."""
        try:
            return await self.client.query(promql, self.now)
        except PrometheusError as error:
            return error


async def open_cluster(
    options: ClusterOptions, clock: Clock, faults: ProblemLog, stack: AsyncExitStack
) -> Cluster | None:
    """Return the API server of `--lister-kubeconfig`, None without that flag. InputError for a file that cannot be used."""
    if not options.lister_kubeconfig:
        return None
    configuration = await credentials.load_configuration(Path(options.lister_kubeconfig), clock, faults)
    return Cluster(
        await stack.enter_async_context(await kubernetes.connect(configuration, random=random.random))
    )


async def open_prometheus(
    connection: PrometheusOptions,
    discovery: RulesOptions,
    clock: Clock,
    monitoring: Monitoring,
    faults: ProblemLog,
    stack: AsyncExitStack,
) -> Prometheus:
    """Return the Prometheus of a connection. InputError for files that cannot be used."""
    client = await PrometheusClient.open(providers.prometheus_settings(connection), clock, monitoring, faults)
    stack.push_async_callback(client.close)
    lister = SeriesLister(client.origin, monitoring, faults, max_bytes=discovery.discovery_max_bytes)
    return Prometheus(client, lister, clock.wall(), discovery.look_back)

"""Loads from the history in Prometheus, for an autoscaler of a file or of a live cluster.

Each metric is read with the query of its rule (`metric_queries`), in chunks of a fixed grid (`history`).
"""

import asyncio
import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from adapter.compose.clock import SystemClock
from adapter.config import rules_file
from adapter.config.rules_config import RulesConfig
from adapter.errors import Fault, InputError, PrometheusError, RunError
from adapter.forecast import metric_queries
from adapter.forecast.metric_queries import HistoryQueries
from adapter.model import steps, timestamps
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from adapter.model.objects.apiservices import ServiceReference
from adapter.model.objects.resources import Catalogue
from adapter.model.timestamps import SECOND, Instant, parse_prometheus_duration
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.connection import PrometheusConnection
from adapter.prometheus.series import SeriesLister
from adapter.rules import compile as compiler
from adapter.rules import registry
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_forecast.range_query import RangeReader
from fastpath_forecast.simulate.load import MOST_POINTS, Grid, Load, Values, build_grid, build_load
from fastpath_forecast.simulate.metrics import SimulatedMetric
from fastpath_tools.live import cluster_options, impossible, rules_files
from fastpath_tools.live.cluster import GROUPS, LiveCluster, absent
from fastpath_tools.live.facts import Unread
from fastpath_tools.live.servers import PrometheusReader
from fastpath_tools.live.sources import remember_series
from fastpath_tools.loads import sources
from fastpath_tools.loads.load_options import LoadOptions
from fastpath_tools.loads.sources import GivenAutoscaler, Recorded

_CHUNK = msgspec.json.Decoder(list[float | None])

SETTLED = 600
"""After how many seconds the history does not change any more."""

_ADVICE = ": give the rules file that does with --config"
_RULED = frozenset({"Pods", "Object", "External"})
"""The types of metrics that rules make."""


class Source(NamedTuple):
    """An autoscaler, and the rules and kinds that its metrics are looked up in."""

    given: GivenAutoscaler
    namespace: str
    rules: RulesConfig
    catalogue: Catalogue


def read(options: LoadOptions) -> Recorded:
    """Return the autoscaler and the loads of its metrics from their history.

    InputError for what cannot be used, RunError and KubernetesError for servers that do not answer.
    """
    return asyncio.run(_read(options))


async def _read(options: LoadOptions) -> Recorded:
    clock, monitoring = SystemClock(), Monitoring()
    problems = ProblemLog(monitoring, clock)
    now = clock.wall()
    until = timestamps.read_instant(options.until) / SECOND if options.until else now
    if until > now:
        raise InputError([Fault("--until", options.until, "expected a time in the past")])
    step = int(parse_prometheus_duration(options.step))
    grid = build_grid(until, parse_prometheus_duration(options.last), step)
    if grid.points > MOST_POINTS:
        expected = f"expected at most {MOST_POINTS:,} values in --last: give a longer step"
        raise InputError([Fault("--step", options.step, expected)])
    async with AsyncExitStack() as stack:
        live = None
        if options.name:
            connecting = cluster_options.connect(options)
            # the service matters only to questions that are not asked here
            service = ServiceReference(cluster_options.NAMESPACE, cluster_options.SERVICE)
            live = LiveCluster(await stack.enter_async_context(connecting), clock, service, "")
        source = await _source(options, live)
        simulated = source.given.simulated_metrics(options)
        client = await PrometheusClient.open(options, clock, monitoring, problems)
        stack.push_async_callback(client.close)
        lister = SeriesLister(client.origin, monitoring, problems)
        queries = await _queries(options, source, PrometheusReader(client, lister, now, now - grid.start))
        histories = HistoryReader(options, client, grid, settled=now - SETTLED)
        loads: dict[str, Load] = {}
        notes: list[str] = []
        with histories.progress(sum(1 + bool(query.least) for query in queries.values())):
            for metric in simulated:
                loads[metric.name] = await histories.load(
                    metric, queries[metric.name], options.capacity_ratio
                )
                notes += _notes(metric.name, queries[metric.name], grid)
    return Recorded(source.given, loads, Instant(grid.start * SECOND), notes)


async def _source(options: LoadOptions, live: LiveCluster | None) -> Source:
    given = RulesConfig()
    if options.config:
        parsed = rules_files.parse(options.config)
        if parsed.fatal or parsed.faults:
            raise InputError([*parsed.fatal, *parsed.faults])
        given = parsed.config
    if live is None:
        autoscaler = sources.read_autoscaler(options.autoscaler)
        namespace = options.namespace or autoscaler.autoscaler.metadata.namespace
        return Source(autoscaler, namespace, given, rules_files.assumed_catalogue(given)[0])
    autoscaler = await _find_autoscaler(live, options.namespace, options.name)
    if unknown := impossible.find_unknown(fastpath_autoscaler.native(autoscaler.autoscaler)):
        raise InputError([Fault("", "", unknown, autoscaler.place)])
    kinds = {spec.type for spec in autoscaler.autoscaler.spec.metrics or ()} & _RULED
    rules = given if options.config or not kinds else await _find_rules(live, kinds)
    return Source(autoscaler, options.namespace, rules, await live.catalogue())


async def _find_autoscaler(cluster: LiveCluster, namespace: str, name: str) -> GivenAutoscaler:
    """Return an autoscaler by its name. RunError if it does not exist."""
    hpas, fpas = await asyncio.gather(cluster.hpas(namespace), cluster.fpas(namespace))
    for hpa in hpas:
        if hpa.metadata.name == name:
            autoscaler = sources.prepared(fastpath_autoscaler.from_hpa(hpa), hpa.metadata.annotations)
            return GivenAutoscaler(autoscaler, HPA_KIND, f"{HPA_KIND} {namespace}/{name}")
    for fpa in () if isinstance(fpas, Unread) else fpas:
        if fpa.metadata.name == name:
            autoscaler = sources.prepared(fpa, fpa.metadata.annotations)
            return GivenAutoscaler(autoscaler, KIND, f"{KIND} {namespace}/{name}")
    await cluster.check_namespace(namespace)
    raise absent(namespace, name, fpas)


async def _find_rules(cluster: LiveCluster, kinds: set[str]) -> RulesConfig:
    """Return the rules of the servers that answer metrics of these types. RunError without rules."""
    configs = []
    for group in sorted({GROUPS[kind] for kind in kinds}):
        config = await cluster.rules(group)
        if isinstance(config, Unread):
            raise RunError(f"{group}: {config.why}")
        configs.append(config)
    return rules_file.merge(configs)[0]


async def _queries(
    options: LoadOptions, source: Source, reader: PrometheusReader
) -> dict[str, HistoryQueries]:
    """Return the queries of each metric by its name. InputError for a metric that no rule makes."""
    ruleset, faults = compiler.compile_rules(source.rules, source.catalogue)
    if faults:
        raise InputError(faults)
    lists = await reader.lists(ruleset.selectors())
    for failed in lists.values():
        if isinstance(failed, PrometheusError) and failed.kind != "query":
            raise _unanswered(failed)
    known = steps.run(registry.building(ruleset, remember_series(ruleset, lists), 1))
    places = metric_queries.build_places(
        source.given.autoscaler, source.namespace, options.pods, options.ready_query
    )
    queries: dict[str, HistoryQueries] = {}
    wrong: list[Fault] = []
    for name, spec, path in metric_queries.name_metrics(source.given.autoscaler.spec.metrics or ()):
        try:
            queries[name] = metric_queries.build_queries(
                spec, known, source.catalogue, ruleset, places, path, _ADVICE
            )
        except InputError as error:
            wrong += (replace(fault, source=source.given.place) for fault in error.faults)
    if wrong:
        raise InputError(wrong)
    return queries


class HistoryReader:
    """Reads histories of one Prometheus. `settled` is the time up to which they do not change any more."""

    def __init__(self, options: LoadOptions, client: PrometheusClient, grid: Grid, *, settled: float) -> None:
        origin = client.origin
        self._options = options
        self._client = client
        self._ranges = RangeReader(origin, options.prometheus_timeout)
        self._cache = ChunkCache(Path(options.cache) if options.cache else None, _identify(origin))
        self._grid = grid
        self._settled = settled
        self._advance: Callable[[int], object] = lambda _: None

    @contextmanager
    def progress(self, queries: int) -> Iterator[None]:
        """Show a bar on standard error while the block reads, if that is a terminal."""
        if not sys.stderr.isatty():
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("values from Prometheus", total=queries * self._grid.points)
            self._advance = lambda points: bar.advance(task, points)
            yield

    async def load(self, metric: SimulatedMetric, queries: HistoryQueries, ratio: float) -> Load:
        """Return the load of a metric; a pod serves `ratio` times its target. InputError without samples."""
        total = await self.values(queries.total)
        if not total:
            raise self._nothing(metric.name, queries)
        await self._check_begin(metric.name, min(total))
        least = await self.values(queries.least) if queries.least else {}
        return build_load(total, least, self._grid, metric.capacity * ratio)

    async def values(self, query: str) -> Values:
        """Return the values of a query over the whole grid. RunError if Prometheus does not answer."""
        values: dict[int, float] = {}
        for chunk in self._grid.chunks():
            known = self._cache.read(query, chunk)
            if known is None:
                try:
                    known = await self._ranges.read(query, chunk.start, chunk.end - chunk.step, chunk.step)
                except PrometheusError as error:
                    raise _unanswered(error, resumes=bool(self._options.cache)) from error
                if chunk.end <= self._settled:
                    self._cache.write(query, chunk, known)
            values |= known
            self._advance(chunk.points)
        return values

    def _nothing(self, name: str, queries: HistoryQueries) -> InputError:
        start, end = (timestamps.write_instant(at * SECOND) for at in (self._grid.start, self._grid.end))
        query = " ".join(queries.total.split())
        expected = f"the query {query} has no sample from {start} to {end}"
        if "kube_pod_status_ready" in queries.total and not self._options.ready_query:
            expected += "; it needs kube-state-metrics, or --ready-query"
        elif queries.rule:
            expected += f"; `fastpath check --why {name}` says where it ends"
        return InputError([Fault("--prometheus-url", name, expected)])

    async def _check_begin(self, name: str, first: int) -> None:
        """Raise InputError if the history begins after the grid: Prometheus keeps no older samples."""
        grid = self._grid
        if first - grid.start < max(2 * grid.step, (grid.end - grid.start) // 100):
            return
        try:
            answer = await self._client.query("count(up)", grid.start)
        except PrometheusError as error:
            raise _unanswered(error) from error
        if answer.samples:
            return  # the server has samples of that time, and only the metric has none: a gap
        begins = timestamps.write_instant(first * SECOND)
        expected = f"expected at most {_written(grid.end - first)}: Prometheus has {name} since {begins}"
        raise InputError([Fault("--last", self._options.last, expected)])


def _written(seconds: int) -> str:
    """Return a duration, rounded down, in the largest unit that keeps two digits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _identify(origin: PrometheusConnection) -> str:
    """Return what tells one server and tenant from others, without credentials in plain text."""
    sent = [f"{name}={value}" for name, value in (*origin.endpoint.params, *sorted(origin.headers))]
    return f"{origin.endpoint.base} {hashlib.sha256(repr(sent).encode()).hexdigest()[:16]}"


def _unanswered(error: PrometheusError, *, resumes: bool = False) -> RunError:
    advice = ""
    if error.message.startswith(("HTTP status 401", "HTTP status 403")):
        advice = ": give credentials with --prometheus-token-file or --prometheus-basic-auth-file"
    more = "; the next run with this --cache goes on from here" if resumes else ""
    return RunError(f"cannot query Prometheus: {error}{advice}{more}")


def _notes(name: str, queries: HistoryQueries, grid: Grid) -> Iterator[str]:
    """Yield what a reader has to know about where a load comes from."""
    source = queries.rule or "cAdvisor's series"
    yield f"{name} is rebuilt from {source}, one value every {grid.step} s: shorter bursts are not in it"
    if not queries.least:
        yield f"{name} is a total, which does not tell whether the pods were saturated"


class ChunkCache:
    """The chunks of one server, whose URL must hold no credentials. Without a folder nothing is kept.

    Each chunk is a file, so that an interrupted read goes on where it ended. Its name is a digest of the
    server, the query and the times.
    """

    def __init__(self, folder: Path | None, server: str) -> None:
        """Raise InputError if the folder cannot be made."""
        self._folder = folder
        self._server = server
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _unusable(folder, error) from error

    def read(self, query: str, grid: Grid) -> Values | None:
        """Return the values of a chunk, None if it is not there or cannot be used."""
        if self._folder is None:
            return None
        try:
            values = _CHUNK.decode(self._file(self._folder, query, grid).read_bytes())
        except (OSError, ValueError):  # what cannot be read is asked for again
            return None
        times = range(grid.start, grid.end, grid.step)
        if len(values) != len(times):
            return None
        return {at: value for at, value in zip(times, values, strict=True) if value is not None}

    def write(self, query: str, grid: Grid, values: Values) -> None:
        """Keep a chunk whose values will not change. InputError if it cannot be written."""
        if self._folder is None:
            return
        content = msgspec.json.encode([values.get(at) for at in range(grid.start, grid.end, grid.step)])
        file = self._file(self._folder, query, grid)
        part = file.with_suffix(".part")
        try:
            part.write_bytes(content)
            part.replace(file)
        except OSError as error:
            raise _unusable(self._folder, error) from error

    def _file(self, folder: Path, query: str, grid: Grid) -> Path:
        identity = "\n".join((self._server, query, *map(str, grid)))
        return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


def _unusable(folder: Path, error: OSError) -> InputError:
    return InputError([Fault("--cache", str(folder), f"expected a folder to write to: {error.strerror}")])

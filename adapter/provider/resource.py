"""Cpu and memory: from a question of the resource metrics API to the usage of pods and nodes.

The objects come from the object cache, their samples from one query each for cpu and memory. An object
without a whole usage is left out of the answer; absent is never zero.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from adapter import errors
from adapter.kubernetes.cache.lister import LabeledObject, ObjectLister
from adapter.model.metrics import GroupResource, ObjectUsage, ResourceAnswer, ResourceQuestion
from adapter.model.objects import field_selectors
from adapter.model.objects.field_selectors import FieldSelector
from adapter.prometheus.answers import Freshness, ObjectAnswer
from adapter.provider.reader import ValueReader
from adapter.rules import resource as usages
from adapter.rules.query_plan import Objects
from adapter.rules.resource import KINDS, PODS, ResourceQuery, ResourceRules, UsageSamples
from adapter.telemetry.problems import UNLISTED

_GROUP = "metrics.k8s.io"

# Usages, objects and queries between two points at which other work may run.
_STEP = 200
_CHOSEN_AT_ONCE = 1_000
_STARTED_AT_ONCE = 20

_UsageAnswers: TypeAlias = Sequence[ObjectAnswer]
"""Prometheus' answers about cpu, memory, and where that is asked the times of the samples of both."""


class _Terms(NamedTuple):
    """How usages are asked for; `expected` is about how many objects have one, `sampled` for the scaler."""

    expected: int
    freshness: Freshness
    sampled: bool


@dataclass(slots=True, eq=False)
class ResourceProvider:
    """Answers questions about the cpu and memory of the pods of `running`, and of nodes.

    Rules, queries and reports are those of `reader`.
    """

    reader: ValueReader
    running: ObjectLister
    nodes: ObjectLister

    @property
    def answers(self) -> bool:
        return self.reader.resolver.relister.ruleset.resource is not None

    def _objects(self, question: ResourceQuestion) -> ObjectLister:
        return self.running if question.resource == "pods" else self.nodes

    async def resource(self, question: ResourceQuestion, ttl: float | None = None) -> ResourceAnswer:
        """Return the usage of one object or of all that match; StatusError as prometheus-adapter answers.

        A query that fails leaves out the objects of its namespace, as upstream; a single one is then not
        found. An answer with warnings is such a failure. With a `ttl`, as the autoscaler asks for the pods of
        a namespace, such an answer is accepted and marked, and the times of the samples are asked for too.
        Answers are then used for so many seconds if that is longer than usual.
        """
        rules = self.reader.resolver.relister.ruleset.resource
        if rules is None:
            raise errors.UnavailableError("no resource rules are in force")
        kind = KINDS[question.resource]
        # A query for each namespace, so that one that fails leaves out its namespace alone.
        by_namespace: dict[str, list[LabeledObject]] = {}
        for described in await self._find(question):
            by_namespace.setdefault(described.namespace, []).append(described)
        resource = self.reader.resolver.resources.current().find(kind)
        expected = 0 if resource is None else self._objects(question).count(resource)
        freshness = self.reader.freshness
        if ttl is not None and ttl > freshness.ttl:
            freshness = Freshness(ttl, max(ttl, freshness.max_age), freshness.ahead, repeats=True)
        terms = _Terms(expected, freshness, ttl is not None)
        answers = await self._ask_namespaces(rules, kind, by_namespace, terms)
        items: list[ObjectUsage] = []
        given: list[ObjectAnswer] = []
        for objects, answered in zip(by_namespace.values(), answers, strict=True):
            if answered is not None:
                given += answered
                items += await self._usages(rules, kind, objects, answered)
                await asyncio.sleep(0)
        if question.name is not None and not items:  # it exists and has no usage
            metric = "podmetrics" if question.resource == "pods" else "nodemetrics"
            name = f"{question.namespace}/{question.name}" if question.namespace else question.name
            details: dict[str, object] = {"name": name, "group": _GROUP, "kind": metric}
            raise errors.NotFoundError(f'{metric}.{_GROUP} "{name}" not found', details)
        # An answer that lacks a namespace is not cached: the next request may find it.
        fresh_until = -math.inf
        if given and None not in answers:
            fresh_until = min(answer.asked for answer in given) + self.reader.freshness.refresh_after
        stands_in = any(answer.failure is not None for answer in given)
        partial = any(answer.partial is not None for answer in given)
        times = _sample_times(answers) if terms.sampled and rules.pair(kind).tells_ages else None
        return ResourceAnswer(
            tuple(items),
            rules.config.window,
            self.reader.clock.wall(),
            fresh_until,
            stands_in,
            partial,
            times,
        )

    async def _ask_namespaces(
        self,
        rules: ResourceRules,
        kind: GroupResource,
        by_namespace: Mapping[str, Sequence[LabeledObject]],
        terms: _Terms,
    ) -> list[_UsageAnswers | None]:
        asking: list[asyncio.Task[_UsageAnswers | None]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for namespace, objects in by_namespace.items():
                    names = Objects(namespace or None, tuple(described.name for described in objects))
                    work = self._ask_all(rules, kind, names, terms)
                    asking.append(group.create_task(work))
                    if len(asking) % _STARTED_AT_ONCE == 0:
                        await asyncio.sleep(0)
        except ExceptionGroup as failures:
            # Callers repeat a 429. As a failed query a lack of room would leave out objects that have values.
            if failures.subgroup(errors.TooManyRequestsError) is None:
                raise
            raise errors.TooManyRequestsError("queries") from failures
        return [task.result() for task in asking]

    async def _find(self, question: ResourceQuestion) -> Sequence[LabeledObject]:
        """Return the objects that the question is about; NotFoundError for an unknown name."""
        objects, kind = self._objects(question), str(KINDS[question.resource])
        chosen: Sequence[LabeledObject]
        try:
            resource = self.reader.resolver.resources.current().find(KINDS[question.resource])
            if resource is None:
                raise errors.InternalError(UNLISTED)
            if question.name is None:
                namespace = question.namespace
                if namespace is None and question.resource == "pods":  # the only one that can match
                    namespace = question.fields.required(field_selectors.NAMESPACE)
                chosen = await objects.select(resource, namespace, question.objects)
                if question.fields.terms:
                    chosen = await _choose(chosen, question.fields)
            else:
                one = await objects.find(resource, question.namespace or "", question.name)
                chosen = () if one is None else (one,)
        except (errors.KubernetesError, errors.NotSyncedError) as error:
            self.reader.problems.report("list", "objects cannot be listed", str(error), kind)
            raise errors.InternalError(UNLISTED) from error
        self.reader.problems.expire(
            "list", kind, after=0.0
        )  # the failure is that of the kind, not of the question
        if question.name is not None and not chosen:
            details: dict[str, object] = {"name": question.name, "kind": question.resource}
            raise errors.NotFoundError(f'{question.resource} "{question.name}" not found', details)
        return chosen

    async def _ask_all(
        self, rules: ResourceRules, kind: GroupResource, objects: Objects, terms: _Terms
    ) -> _UsageAnswers | None:
        """Return the samples of one namespace, of about one moment; None where a query failed."""
        pair = rules.pair(kind)
        queries = [pair.cpu, pair.memory]
        if terms.sampled and pair.tells_ages:
            queries += [query.age for query in (pair.cpu, pair.memory) if query.age is not None]
        answers = await asyncio.gather(*(self._ask(query, kind, objects, terms) for query in queries))
        given = [answer for answer in answers if answer is not None]
        if len(given) < len(queries):
            return None
        times = [answer.asked for answer in given]
        if terms.freshness.repeats and max(times) - min(times) > self.reader.freshness.ttl:
            return await self._ask_all(rules, kind, objects, terms._replace(freshness=self.reader.freshness))
        return given

    async def _usages(
        self,
        rules: ResourceRules,
        kind: GroupResource,
        objects: Sequence[LabeledObject],
        answers: _UsageAnswers,
    ) -> list[ObjectUsage]:
        """Return the usages of the objects that have one; other work runs in between."""
        pair, (cpus, memories) = rules.pair(kind), (answer.samples for answer in answers[:2])
        items = []
        for number, described in enumerate(objects, 1):
            namespace, name, labels = described.namespace, described.name, described.labels
            cpu = UsageSamples(cpus.get(name, ()), pair.cpu.part_label)
            memory = UsageSamples(memories.get(name, ()), pair.memory.part_label)
            if kind == PODS:
                usage = usages.pod_usage(namespace, name, labels, cpu, memory)
            else:
                usage = usages.node_usage(name, labels, cpu, memory)
            if isinstance(usage, ObjectUsage):
                items.append(usage)
            elif usage is not None:
                self.reader.monitoring.dropped.labels(reason=usage.reason).inc()
                place = f"{namespace}/{name}" if namespace else name
                self.reader.problems.report(
                    "value", "usage left out", usage.text, rules.config.path, object=place
                )
            if number % _STEP == 0:
                await asyncio.sleep(0)
        return items

    async def _ask(
        self, query: ResourceQuery, kind: GroupResource, objects: Objects, terms: _Terms
    ) -> ObjectAnswer | None:
        """Return the samples of the objects, None after a failure, which is logged. TooManyRequestsError."""
        try:
            metric = query.metric_query(kind)
            answer = await self.reader.cache.ask_objects(
                metric, objects, terms.freshness, terms.expected, takes_partial=terms.sampled
            )
        except (errors.NamingError, errors.TemplateError) as error:
            self.reader.problems.report("render", "query cannot be built", str(error), query.path)
            return None
        except errors.PrometheusError as error:
            if error.kind == "busy":
                raise self.reader.problems.unfetched(error, query.path) from error
            self.reader.problems.failed(error, query.path)
            return None
        self.reader.problems.answered(query.path, answer.asked, answer.failure or answer.partial)
        return answer


def _sample_times(answers: Sequence[_UsageAnswers | None]) -> dict[str, float]:
    """Return the time of the oldest sample of each object whose cpu and memory both have times."""
    times: dict[str, float] = {}
    for answered in answers:
        if answered is None:
            continue
        cpu, memory = (answer.samples for answer in answered[2:])
        for name in cpu.keys() & memory.keys():
            taken = [sample.value for sample in (*cpu[name], *memory[name])]
            if all(map(math.isfinite, taken)):
                times[name] = min(taken)
    return times


async def _choose(objects: Sequence[LabeledObject], selector: FieldSelector) -> Sequence[LabeledObject]:
    """Return the objects whose fields match; a node has no namespace."""
    chosen = []
    for number, described in enumerate(objects, 1):
        fields = {field_selectors.NAME: described.name}
        if described.namespace:
            fields[field_selectors.NAMESPACE] = described.namespace
        if selector.matches(fields):
            chosen.append(described)
        if number % _CHOSEN_AT_ONCE == 0:
            await asyncio.sleep(0)
    return chosen

"""Cpu and memory: from a question of the resource metrics API to the usage of pods and nodes.

The objects come from the object cache, their samples from one query each for cpu and memory. An object
without a whole usage is left out of the answer; absent is never zero.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from adapter.errors import (
    InternalError,
    KubernetesError,
    NamingError,
    NotFoundError,
    NotSyncedError,
    PrometheusError,
    TemplateError,
    TooManyRequestsError,
    UnavailableError,
)
from adapter.kubernetes.cache.lister import LabeledObject
from adapter.model import field_selectors
from adapter.model.clock import Clock
from adapter.model.field_selectors import FieldSelector
from adapter.model.label_selectors import LabelSelector
from adapter.model.metrics import GroupResource, ObjectUsage, ResourceAnswer, ResourceQuestion
from adapter.model.resources import APIResource
from adapter.prometheus.answers import Freshness, ObjectAnswer
from adapter.prometheus.query_cache import QueryCache
from adapter.provider.relist import Relister
from adapter.provider.resolver import Resources
from adapter.rules import resource as usages
from adapter.rules.query_plan import Objects
from adapter.rules.resource import (
    KINDS,
    PODS,
    Absent,
    CpuAndMemory,
    ResourceQuery,
    ResourceRules,
    UsageSamples,
)
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import UNLISTED, SourceProblems

_GROUP = "metrics.k8s.io"

# Usages, objects and queries between two points at which other work may run.
_STEP = 200
_CHOSEN_AT_ONCE = 1_000
_STARTED_AT_ONCE = 20


class DescribedObjects(Protocol):
    """The objects of the cluster with their labels, from the object cache; errors as `ObjectLister.names`."""

    async def select(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[LabeledObject, ...]:
        """Return the objects that match, by namespace, then name."""
        ...

    async def find(self, resource: APIResource, namespace: str, name: str) -> LabeledObject | None:
        """Return one object, None where it does not exist."""
        ...

    def count(self, resource: APIResource) -> int:
        """Return how many objects of a kind are known."""
        ...


class _UsageAnswers(NamedTuple):
    """Prometheus' answers about the cpu and the memory of objects, and about the times of their samples."""

    cpu: ObjectAnswer
    memory: ObjectAnswer
    ages: tuple[ObjectAnswer, ...] = ()

    @property
    def each(self) -> tuple[ObjectAnswer, ...]:
        return (self.cpu, self.memory, *self.ages)


class ResourceProvider:
    """Answers questions about the cpu and memory of pods and nodes."""

    def __init__(
        self,
        resources: Resources,
        running: DescribedObjects,
        objects: DescribedObjects,
        cache: QueryCache,
        relister: Relister,
        clock: Clock,
        monitoring: Monitoring,
        problems: SourceProblems,
        *,
        freshness: Freshness,
    ) -> None:
        """Take running pods from `running`, nodes from `objects`, and the rules in force from `relister`."""
        self._resources = resources
        self._objects = {"pods": running, "nodes": objects}
        self._cache = cache
        self._relister = relister
        self._clock = clock
        self._monitoring = monitoring
        self._problems = problems
        self._freshness = freshness

    @property
    def answers(self) -> bool:
        """Whether resource rules are in force."""
        return self._relister.ruleset.resource is not None

    async def resource(self, question: ResourceQuestion, *, sampled: bool = False) -> ResourceAnswer:
        """Return the usage of one object or of all that match; StatusError as prometheus-adapter answers.

        A query that fails leaves out the objects of its namespace, as upstream; a single one is then not
        found. An answer with warnings is such a failure. With `sampled`, as the autoscaler asks for the pods
        of a namespace, such an answer is accepted and marked, and the times of the samples are asked for too.
        """
        rules = self._relister.ruleset.resource
        if rules is None:
            raise UnavailableError("no resource rules are in force")
        found = await self._find(question)
        kind = KINDS[question.resource]
        # A query for each namespace, so that one that fails leaves out its namespace alone.
        by_namespace: dict[str, list[LabeledObject]] = {}
        for each in found:
            by_namespace.setdefault(each.namespace, []).append(each)
        expected = self._expected(kind)
        asking: list[asyncio.Task[_UsageAnswers | None]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for namespace, objects in by_namespace.items():
                    asking.append(
                        group.create_task(
                            self._ask_both(rules, kind, namespace, objects, expected, sampled=sampled)
                        )
                    )
                    if len(asking) % _STARTED_AT_ONCE == 0:
                        await asyncio.sleep(0)
        except ExceptionGroup as failures:
            # Callers repeat a 429. As a failed query a lack of room would leave out objects that have values.
            if failures.subgroup(TooManyRequestsError) is None:
                raise
            raise TooManyRequestsError("queries") from failures
        answers = [task.result() for task in asking]
        items: list[ObjectUsage] = []
        for objects, answered in zip(by_namespace.values(), answers, strict=True):
            if answered is not None:
                items += await self._usages(rules, kind, objects, answered)
                await asyncio.sleep(0)
        if question.name is not None and not items:
            raise _no_usage(question)
        given = [answer for answered in answers if answered is not None for answer in answered.each]
        # An answer that lacks a namespace is not cached: the next request may find it.
        whole = bool(answers) and None not in answers
        fresh_until = (
            min(answer.asked for answer in given) + self._freshness.refresh_after if whole else float("-inf")
        )
        stands_in = any(answer.failure is not None for answer in given)
        partial = any(answer.partial is not None for answer in given)
        times = _times_of(answers) if sampled and rules.pair(kind).tells_ages else None
        return ResourceAnswer(
            tuple(items), rules.window, self._clock.wall(), fresh_until, stands_in, partial, times
        )

    async def _find(self, question: ResourceQuestion) -> tuple[LabeledObject, ...]:
        """Return the objects that the question is about; NotFoundError for an unknown name."""
        objects, kind = self._objects[question.resource], str(KINDS[question.resource])
        try:
            resource = self._resources.current().find(KINDS[question.resource])
            if resource is None:
                raise InternalError(UNLISTED)
            if question.name is None:
                found = await objects.select(resource, _namespace_of(question), question.objects)
                chosen = await _choose(found, question.fields) if question.fields.terms else found
            else:
                one = await objects.find(resource, question.namespace or "", question.name)
                chosen = () if one is None else (one,)
        except (KubernetesError, NotSyncedError) as error:
            self._problems.report("list", "objects cannot be listed", str(error), kind)
            raise InternalError(UNLISTED) from error
        self._problems.expire("list", kind, after=0.0)  # the failure is that of the kind, not of the question
        if question.name is not None and not chosen:
            details: dict[str, object] = {"name": question.name, "kind": question.resource}
            raise NotFoundError(f'{question.resource} "{question.name}" not found', details)
        return chosen

    async def _ask_both(
        self,
        rules: ResourceRules,
        kind: GroupResource,
        namespace: str,
        objects: Sequence[LabeledObject],
        expected: int,
        *,
        sampled: bool,
    ) -> _UsageAnswers | None:
        """Return the samples of one namespace ("" for kinds without one), None where a query failed."""
        asked = Objects(namespace or None, tuple(each.name for each in objects))
        pair = rules.pair(kind)
        queries = [pair.cpu, pair.memory]
        if sampled and pair.tells_ages:
            queries += [query.age for query in (pair.cpu, pair.memory) if query.age is not None]
        found = await asyncio.gather(
            *(self._ask(query, kind, asked, expected, sampled=sampled) for query in queries)
        )
        given = [answer for answer in found if answer is not None]
        if len(given) < len(queries):
            return None
        cpu, memory, *ages = given
        return _UsageAnswers(cpu, memory, tuple(ages))

    async def _usages(
        self,
        rules: ResourceRules,
        kind: GroupResource,
        objects: Sequence[LabeledObject],
        answers: _UsageAnswers,
    ) -> list[ObjectUsage]:
        """Return the usages of the objects that have one; other work runs in between."""
        pair = rules.pair(kind)
        items = []
        for number, each in enumerate(objects, 1):
            usage = _usage_of(each, kind, pair, answers)
            if isinstance(usage, ObjectUsage):
                items.append(usage)
            elif usage is not None:
                self._leave_out(usage, each, rules)
            if number % _STEP == 0:
                await asyncio.sleep(0)
        return items

    def _expected(self, kind: GroupResource) -> int:
        """Return the number of objects that may have usages."""
        resource = self._resources.current().find(kind)
        return self._objects[kind.resource].count(resource) if resource is not None else 0

    async def _ask(
        self, query: ResourceQuery, kind: GroupResource, objects: Objects, expected: int, *, sampled: bool
    ) -> ObjectAnswer | None:
        """Return the samples of the objects, None after a failure, which is logged. TooManyRequestsError."""
        try:
            answer = await self._cache.ask_objects(
                query.metric_query(kind), objects, self._freshness, expected, takes_partial=sampled
            )
        except (NamingError, TemplateError) as error:
            self._problems.report("render", "query cannot be built", str(error), query.path)
            return None
        except PrometheusError as error:
            if error.kind == "busy":
                raise self._problems.unfetched(error, query.path) from error
            self._problems.failed(error, query.path)
            return None
        self._problems.answered(query.path, answer.asked, answer.failure or answer.partial)
        return answer

    def _leave_out(self, absent: Absent, described: LabeledObject, rules: ResourceRules) -> None:
        self._monitoring.dropped.labels(reason=absent.reason).inc()
        place = f"{described.namespace}/{described.name}" if described.namespace else described.name
        self._problems.report("value", "usage left out", absent.text, rules.config.path, object=place)


def _usage_of(
    described: LabeledObject, kind: GroupResource, pair: CpuAndMemory, answers: _UsageAnswers
) -> ObjectUsage | Absent | None:
    cpu = UsageSamples(answers.cpu.samples.get(described.name, ()), pair.cpu.part_label)
    memory = UsageSamples(answers.memory.samples.get(described.name, ()), pair.memory.part_label)
    if kind == PODS:
        return usages.pod_usage(described.namespace, described.name, described.labels, cpu, memory)
    return usages.node_usage(described.name, described.labels, cpu, memory)


def _times_of(answers: Sequence[_UsageAnswers | None]) -> dict[str, float]:
    """Return the time of the oldest sample of each object whose cpu and memory both have times."""
    times: dict[str, float] = {}
    for answered in answers:
        if answered is None or not answered.ages:
            continue
        cpu, memory = (answer.samples for answer in answered.ages)
        for name in cpu.keys() & memory.keys():
            taken = [sample.value for sample in (*cpu[name], *memory[name])]
            if all(map(math.isfinite, taken)):
                times[name] = min(taken)
    return times


def _namespace_of(question: ResourceQuestion) -> str | None:
    """Return the only namespace that can match, None for all."""
    if question.namespace is None and question.resource == "pods":
        return question.fields.required(field_selectors.NAMESPACE)
    return question.namespace


async def _choose(found: Sequence[LabeledObject], selector: FieldSelector) -> tuple[LabeledObject, ...]:
    """Return the objects whose fields match."""
    chosen = []
    for number, each in enumerate(found, 1):
        if selector.matches(_fields(each)):
            chosen.append(each)
        if number % _CHOSEN_AT_ONCE == 0:
            await asyncio.sleep(0)
    return tuple(chosen)


def _fields(described: LabeledObject) -> dict[str, str]:
    """Return the fields for field selectors; a node has no namespace."""
    fields = {field_selectors.NAME: described.name}
    return fields | {field_selectors.NAMESPACE: described.namespace} if described.namespace else fields


def _no_usage(question: ResourceQuestion) -> NotFoundError:
    """Return the error for an object that exists and has no usage."""
    kind = "podmetrics" if question.resource == "pods" else "nodemetrics"
    name = f"{question.namespace}/{question.name}" if question.namespace else str(question.name)
    return NotFoundError(f'{kind}.{_GROUP} "{name}" not found', {"name": name, "group": _GROUP, "kind": kind})

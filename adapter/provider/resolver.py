"""From a question of the API to what answers it: the rule of the metric, and the objects that it describes.

A name that is not known yet is looked up once before the question fails: the kind in the API server's
discovery, the metric in Prometheus. Both look-ups are rate-limited by their owners. While rules or discovery
are not in force the answer is "not known" (500), never "not found" (404): an autoscaler shows the difference
to its owner.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from adapter.errors import InternalError, KubernetesError, NotFoundError, NotSyncedError
from adapter.kubernetes.cache.lister import ObjectLister
from adapter.kubernetes.discovery import CatalogueSource
from adapter.model.metrics import CustomMetricInfo, CustomQuestion, ExternalQuestion
from adapter.model.objects.resources import APIResource
from adapter.provider.relist import Relister
from adapter.rules.compile import Rule
from adapter.rules.registry import CustomEntry, ExternalEntry
from adapter.telemetry.problems import UNFETCHED, UNLISTED, SourceProblems


@dataclass(slots=True, eq=False)
class Resolver:
    """Finds the rules and objects of questions. Errors are prometheus-adapter's, word for word."""

    resources: CatalogueSource
    objects: ObjectLister
    relister: Relister
    problems: SourceProblems

    def canonical_resource(self, resource: str) -> str | None:
        """Return the ``plural.group`` of a resource that is spelled as in a path, None for one not known."""
        name, _, group = resource.partition(".")
        try:
            kind = self.resources.current().lookup(name, group or None)
        except NotSyncedError:
            return None
        return str(kind.group_resource) if kind is not None else None

    async def find_custom(self, question: CustomQuestion) -> CustomEntry | None:
        """Return what answers a metric of objects; None for a kind or a metric that does not exist."""
        resource = await self._resource(question)
        return None if resource is None else await self._entry(resource, question)

    async def find_external(self, metric: str) -> ExternalEntry | None:
        """Return what answers an external metric, None where no rule does."""
        entry = self.relister.registry.external.get(metric)
        if entry is None and await self._look_up(metric, self.relister.ruleset.external):
            entry = self.relister.registry.external.get(metric)
        return entry

    async def custom(self, question: CustomQuestion) -> tuple[CustomEntry, tuple[str, ...]]:
        """Return what answers a question and the names of the objects it is about; a StatusError for neither.

        The order of the checks is upstream's, which lists the objects first. Only the list itself comes after
        the metric: a kind that no metric describes is not worth a watch.
        """
        resource = await self._resource(question)
        if question.name is None and (
            resource is None
            or "list" not in resource.verbs
            or (question.namespace is not None and not resource.namespaced)
        ):  # the API server has no such list: cluster-scoped objects have none in a namespace
            raise InternalError(UNLISTED)
        entry = None if resource is None else await self._entry(resource, question)
        if entry is None:
            raise unknown(question)
        if question.name is not None:
            return entry, (question.name,)
        try:
            names = await self.objects.names(entry.resource, question.namespace, question.objects)
        except (KubernetesError, NotSyncedError) as error:
            kind = str(entry.resource.group_resource)
            self.problems.report("list", "objects cannot be listed", str(error), kind)
            raise InternalError(UNLISTED) from error
        if self.problems.reported:  # the failure is that of the kind, not of the question
            self.problems.expire("list", str(entry.resource.group_resource), after=0.0)
        if not names:
            raise unknown(question)
        return entry, names

    async def external(self, question: ExternalQuestion) -> ExternalEntry:
        """Return what answers a question; NotFoundError where no rule does."""
        entry = await self.find_external(question.metric)
        if entry is None:
            # Upstream names the resource only for the namespace called default, and leaves a blank otherwise.
            resource = "namespaces" if question.namespace == "default" else ""
            raise NotFoundError(f"the server could not find the metric {question.metric} for {resource}")
        return entry

    async def _resource(self, question: CustomQuestion) -> APIResource | None:
        name, _, group = question.resource.partition(".")
        known = True
        try:
            if (resource := self.resources.current().lookup(name, group or None)) is not None:
                return resource
        except NotSyncedError:
            known = False
        try:
            return (await self.resources.refresh()).lookup(name, group or None)
        except (KubernetesError, NotSyncedError) as error:
            if known:
                return None  # the catalogue reports the failure; the last one read does not have the name
            raise InternalError(UNLISTED if question.name is None else UNFETCHED) from error

    async def _entry(self, resource: APIResource, question: CustomQuestion) -> CustomEntry | None:
        key = CustomMetricInfo(resource.group_resource, question.namespace is not None, question.metric)
        entry = self.relister.registry.custom.get(key)
        if entry is None and await self._look_up(question.metric, self.relister.ruleset.custom):
            entry = self.relister.registry.custom.get(key)
        return entry

    async def _look_up(self, metric: str, rules: Sequence[Rule]) -> bool:
        """Return whether the registry may know a metric now that it did not know before."""
        if rules and await self.relister.look_up(metric, rules):
            return True
        if not self.relister.attempted.is_set():
            raise InternalError(UNFETCHED)
        return False


def unknown(question: CustomQuestion) -> NotFoundError:
    """Return the answer to a question about a metric that does not exist."""
    return NotFoundError(f"the server could not find the metric {question.metric} for {question.resource}")

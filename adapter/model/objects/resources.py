"""The REST mapper as a value: which kind of object a resource name means in this cluster.

It looks up plural and singular names in the order of precedence of groups and versions, with the results of
client-go's discovery REST mapper for the same documents. A catalogue is immutable; a refresh makes a new one.
A small built-in catalogue serves work without a cluster.
"""

import functools
from collections.abc import Iterator, Sequence

import msgspec

from adapter.model.metrics import GroupResource


class APIResource(msgspec.Struct, frozen=True, dict=True):
    """One resource of one group and version, as discovery states it.

    `group` is "" for core, `plural` and `singular` are lower case, `preferred` says whether `version` is the
    preferred one of the group.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]
    preferred: bool

    @functools.cached_property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    @property
    def api_version(self) -> str:
        """Return the ``apiVersion`` of its objects: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


class Catalogue:
    """The resources of a cluster, in order of precedence.

    The precedence is that of client-go's ``NewDiscoveryRESTMapper``: core ``v1`` first, then the groups in
    discovery order, in each group the preferred version before the others. Subresources (``pods/status``) are
    left out.
    """

    __slots__ = ("_by_group_resource", "_by_text", "_resources")

    def __init__(self, resources: Sequence[APIResource]) -> None:
        """Take `resources` in discovery order."""
        order: dict[str, int] = {}
        for resource in resources:
            order.setdefault(resource.group, len(order))

        def precedence(resource: APIResource) -> tuple[bool, int, bool]:
            is_core = not resource.group and resource.version == "v1"
            return (not is_core, order[resource.group], not resource.preferred)

        whole = (resource for resource in resources if "/" not in resource.plural)
        self._resources = tuple(sorted(whole, key=precedence))
        self._by_text: dict[str, list[APIResource]] = {}
        self._by_group_resource: dict[GroupResource, APIResource] = {}
        for resource in self._resources:
            for text in {resource.plural, resource.singular} - {""}:
                self._by_text.setdefault(text, []).append(resource)
            self._by_group_resource.setdefault(resource.group_resource, resource)

    def __iter__(self) -> Iterator[APIResource]:
        return iter(self._resources)

    def __len__(self) -> int:
        return len(self._resources)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Catalogue) and self._resources == other._resources

    def __hash__(self) -> int:
        return hash(self._resources)

    def lookup(self, text: str, group: str | None = None) -> APIResource | None:
        """Return the resource that `text` means, or None.

        `text` is a plural or singular name in any case; short names are unknown. `group` is case-sensitive:
        an equal group comes first, and without one any group that starts with it (``storage`` finds
        ``storage.k8s.io``). None and "" both mean all groups, so that core alone cannot be searched.
        """
        candidates = self._by_text.get(text.lower(), ())
        if not group:
            return next(iter(candidates), None)
        equal = (resource for resource in candidates if resource.group == group)
        starting = (resource for resource in candidates if resource.group.startswith(group))
        return next(equal, None) or next(starting, None)

    def find(self, group_resource: GroupResource) -> APIResource | None:
        """Return the resource of this group and plural name in the version that takes precedence, or None."""
        return self._by_group_resource.get(group_resource)

    def singular(self, group_resource: GroupResource) -> str:
        """Return the singular name by the plural alone, as client-go's ``ResourceSingularizer``.

        The first of several groups with the plural determines it: ``pods`` of ``metrics.k8s.io`` is ``pod``,
        as in core. Raises KeyError for a resource that `find` does not find.
        """
        plural = self._by_group_resource[group_resource].plural
        return next(resource.singular for resource in self._by_text[plural] if resource.plural == plural)

    def names(self) -> list[str]:
        """Return every text that `lookup` knows without a group, sorted: for "did you mean"."""
        return sorted(self._by_text)


_VERBS = frozenset({"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"})


_CORE = """
ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota
Secret ServiceAccount Service
"""
_BUILTIN = {
    "v1": (_CORE, "Namespace Node PersistentVolume"),
    "apps/v1": ("ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet", ""),
    "autoscaling/v2": ("HorizontalPodAutoscaler", ""),
    "batch/v1": ("CronJob Job", ""),
    "networking.k8s.io/v1": ("Ingress NetworkPolicy", "IngressClass IPAddress ServiceCIDR"),
    "policy/v1": ("PodDisruptionBudget", ""),
}
"""The kinds of a current cluster that series describe, by version: those with a namespace, and the others."""


def known_kind(api_version: str, kind: str, *, namespaced: bool = True) -> APIResource:
    """Return the resource of a kind that is known without discovery.

    Its plural is that of ``UnsafeGuessKindToResource``, which is right for these kinds.
    """
    group, _, version = api_version.rpartition("/")
    singular = kind.lower()
    if singular == "endpoints":
        plural = singular
    elif singular.endswith("y"):
        plural = f"{singular[:-1]}ies"
    else:
        plural = f"{singular}es" if singular.endswith("s") else f"{singular}s"
    return APIResource(group, version, plural, singular, kind, namespaced, _VERBS, preferred=True)


BUILTIN = Catalogue(
    [
        known_kind(api_version, kind, namespaced=namespaced)
        for api_version, (within, others) in _BUILTIN.items()
        for namespaced, kinds in ((True, within), (False, others))
        for kind in kinds.split()
    ]
)
"""A catalogue for work without a cluster."""

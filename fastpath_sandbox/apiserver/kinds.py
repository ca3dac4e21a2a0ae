"""The kinds that the sandbox cluster serves: the built-in ones, and those of CustomResourceDefinitions.

A row of the table holds names, scope, verbs and the few rules of a kind that clients can observe, such as
whether it counts generations or can be created by PUT. Each of them is that of the real API server.

A CustomResourceDefinition takes effect when it is created. Its schema is ignored: nothing is pruned,
defaulted or validated.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from fastpath_sandbox.apiserver.store import JSON, KindKey

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
SUBRESOURCE_VERBS = ("get", "patch", "update")
COMMON_FIELDS = ("metadata.name", "metadata.namespace")


class ScalePaths(NamedTuple):
    """The JSON paths of the fields in a Scale; `selector` is "" if it comes from spec.selector."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ""


class Kind(NamedTuple):
    """One served kind.

    `fields` are the field selectors besides metadata.name and metadata.namespace. `generation` says whether a
    changed spec increments metadata.generation. `must_carry_version` refuses a PUT without resourceVersion;
    `create_on_update` lets a PUT create. `stored` is False for kinds that are answered and forgotten
    (reviews) or only listed. `custom` kinds are added at run time and behave as custom resources: list items
    carry kind and apiVersion, discovery names group and version. `scale` has the paths of the scale
    subresource of a custom kind.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    fields: tuple[str, ...] = ()
    generation: bool = False
    must_carry_version: bool = False
    create_on_update: bool = False
    stored: bool = True
    custom: bool = False
    scale: ScalePaths | None = None

    @property
    def key(self) -> KindKey:
        """The key of its objects in the store, which all versions of the group share."""
        return self.group, self.plural

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """The singular in discovery: the kind in lower case."""
        return self.kind.lower()

    @property
    def qualified(self) -> str:
        """The form in messages: ``pods``, ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
)
_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "type",
)
_ALL = ("all",)
_STATUS = ("status",)
_SCALE = ("scale", "status")

_core = partial(Kind, "", "v1")
_apps = partial(Kind, "apps", "v1", namespaced=True, categories=_ALL, generation=True)
_review = partial(Kind, namespaced=False, verbs=("create",), stored=False)
_autoscaler = partial(Kind, "autoscaling", namespaced=True, categories=_ALL, subresources=_STATUS)

BUILTIN: tuple[Kind, ...] = (
    _core("configmaps", "ConfigMap", True, ("cm",)),
    _core("events", "Event", True, ("ev",), fields=_EVENT_FIELDS),
    _core("namespaces", "Namespace", False, ("ns",), (), ("finalize", "status"), fields=("status.phase",)),
    _core("nodes", "Node", False, ("no",), (), _STATUS, fields=("spec.unschedulable",)),
    _core("persistentvolumes", "PersistentVolume", False, ("pv",), (), _STATUS),
    _core("pods", "Pod", True, ("po",), _ALL, _STATUS, fields=_POD_FIELDS, generation=True),
    _core("replicationcontrollers", "ReplicationController", True, ("rc",), _ALL, _SCALE, generation=True),
    _core("serviceaccounts", "ServiceAccount", True, ("sa",)),
    _core("services", "Service", True, ("svc",), _ALL, _STATUS, create_on_update=True),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=_STATUS,
        generation=True,
    ),
    Kind(
        "apiregistration.k8s.io",
        "v1",
        "apiservices",
        "APIService",
        namespaced=False,
        categories=("api-extensions",),
        subresources=_STATUS,
        must_carry_version=True,
    ),
    _apps("daemonsets", "DaemonSet", short_names=("ds",), subresources=_STATUS),
    _apps("deployments", "Deployment", short_names=("deploy",), subresources=_SCALE),
    _apps("replicasets", "ReplicaSet", short_names=("rs",), subresources=_SCALE, fields=("status.replicas",)),
    _apps("statefulsets", "StatefulSet", short_names=("sts",), subresources=_SCALE),
    _review("authentication.k8s.io", "v1", "tokenreviews", "TokenReview"),
    _review("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _review("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"),
    _autoscaler("v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short_names=("hpa",)),
    _autoscaler(
        "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short_names=("hpa",), stored=False
    ),
    Kind(
        "batch", "v1", "jobs", "Job", True, (), _ALL, _STATUS, fields=("status.successful",), generation=True
    ),
    Kind("networking.k8s.io", "v1", "ingresses", "Ingress", True, ("ing",), (), _STATUS, generation=True),
    Kind(
        "coordination.k8s.io", "v1", "leases", "Lease", True, must_carry_version=True, create_on_update=True
    ),
    Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True, generation=True),
)


class KindTable:
    """The served kinds, in the order of discovery."""

    def __init__(self, kinds: Sequence[Kind] = BUILTIN) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def add(self, kind: Kind) -> None:
        """Serve a kind, in place of one with the same group, version and plural."""
        self._kinds[kind.group, kind.version, kind.plural] = kind

    def remove(self, kind: Kind) -> None:
        del self._kinds[kind.group, kind.version, kind.plural]

    def get(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def find(self, text: str) -> Kind:
        """Return the stored kind by kind, plural, singular or short name, with or without ``.group``.

        The first one in the order of discovery wins. LookupError names the served kinds.
        """
        name, _, group = text.partition(".")
        for kind in self:
            names = (kind.kind, kind.plural, kind.singular, *kind.short_names)
            if kind.stored and name in names and (not group or group == kind.group):
                return kind
        served = ", ".join(sorted({kind.qualified for kind in self if kind.stored}))
        raise LookupError(
            f'the sandbox cluster serves no kind "{text}": add it with add_kind, or use one of {served}'
        )

    def of_objects(self, key: KindKey) -> Kind:
        """Return the stored kind whose objects have this key."""
        return next(kind for kind in self if kind.stored and kind.key == key)

    def groups(self) -> dict[str, list[str]]:
        """Return each named API group and its versions, the preferred first, in the order of discovery."""
        groups: dict[str, list[str]] = {}
        for kind in self:
            versions = groups.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        groups.pop("", None)
        return groups

    def of(self, group: str, version: str) -> list[Kind]:
        """Return the kinds of a group and version, sorted by plural as in real discovery."""
        return sorted(
            (kind for kind in self if (kind.group, kind.version) == (group, version)),
            key=lambda kind: kind.plural,
        )


DEFINITIONS: KindKey = ("apiextensions.k8s.io", "customresourcedefinitions")


def definition(
    group: str,
    version: str,
    plural: str,
    kind: str,
    *,
    short_names: tuple[str, ...] = (),
    scale: ScalePaths | None = None,
) -> JSON:
    """Return the definition of a namespaced kind with a status and, optionally, a scale subresource."""
    subresources: JSON = {"status": {}}
    if scale is not None:
        subresources["scale"] = {
            "specReplicasPath": scale.spec_replicas,
            "statusReplicasPath": scale.status_replicas,
        } | ({"labelSelectorPath": scale.selector} if scale.selector else {})
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": subresources,
    }
    return {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names | ({"shortNames": list(short_names)} if short_names else {}),
            "versions": [served],
        },
    }


FASTPATH_AUTOSCALERS = definition(
    "fastpath.io", "v1alpha1", "fastpathautoscalers", "FastPathAutoscaler", short_names=("fpa",)
)
"""The FastPathAutoscaler without its schema: ``cluster.create(FASTPATH_AUTOSCALERS)``."""

FASTPATH_SCHEDULES = definition(
    "fastpath.io", "v1alpha1", "fastpathschedules", "FastPathSchedule", short_names=("fps",)
)
"""The FastPathSchedule without its schema."""


def kinds_of_definition(document: JSON) -> list[Kind]:
    """Return the kinds of a definition: at most one, since a second served version is refused."""
    spec = document["spec"]
    names = spec["names"]
    kinds = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        kinds.append(
            Kind(
                spec["group"],
                version["name"],
                names["plural"],
                names["kind"],
                spec["scope"] == "Namespaced",
                tuple(names.get("shortNames") or ()),
                tuple(names.get("categories") or ()),
                tuple(sorted(subresources)),
                generation=True,
                must_carry_version=True,
                custom=True,
                scale=scale
                and ScalePaths(
                    scale["specReplicasPath"],
                    scale["statusReplicasPath"],
                    scale.get("labelSelectorPath") or "",
                ),
            )
        )
    return kinds


def definition_status(document: JSON) -> JSON:
    """Return the status of a definition in effect."""
    since = document["metadata"].get("creationTimestamp")
    conditions = [
        {"type": name, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}
        for name, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in document["spec"]["versions"] if version.get("storage")]
    return {"conditions": conditions, "acceptedNames": document["spec"]["names"], "storedVersions": stored}

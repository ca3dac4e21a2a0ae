"""The table of the kinds that the sandbox cluster serves.

A row holds names, scope, verbs and the few rules of a kind that clients can observe, such as whether it
counts generations or can be created by PUT. Each of them is that of the real API server.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
_REVIEW = ("create",)

BUILTIN: tuple[Kind, ...] = (
    Kind("", "v1", "configmaps", "ConfigMap", True, ("cm",)),
    Kind("", "v1", "events", "Event", True, ("ev",), fields=_EVENT_FIELDS),
    Kind(
        "",
        "v1",
        "namespaces",
        "Namespace",
        False,
        ("ns",),
        (),
        ("finalize", "status"),
        fields=("status.phase",),
    ),
    Kind("", "v1", "nodes", "Node", False, ("no",), (), _STATUS, fields=("spec.unschedulable",)),
    Kind("", "v1", "persistentvolumes", "PersistentVolume", False, ("pv",), (), _STATUS),
    Kind("", "v1", "pods", "Pod", True, ("po",), _ALL, _STATUS, fields=_POD_FIELDS, generation=True),
    Kind(
        "",
        "v1",
        "replicationcontrollers",
        "ReplicationController",
        True,
        ("rc",),
        _ALL,
        _SCALE,
        generation=True,
    ),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",)),
    Kind("", "v1", "services", "Service", True, ("svc",), _ALL, _STATUS, create_on_update=True),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        ("crd", "crds"),
        ("api-extensions",),
        _STATUS,
        generation=True,
    ),
    Kind(
        "apiregistration.k8s.io",
        "v1",
        "apiservices",
        "APIService",
        False,
        categories=("api-extensions",),
        subresources=_STATUS,
        must_carry_version=True,
    ),
    Kind("apps", "v1", "daemonsets", "DaemonSet", True, ("ds",), _ALL, _STATUS, generation=True),
    Kind("apps", "v1", "deployments", "Deployment", True, ("deploy",), _ALL, _SCALE, generation=True),
    Kind(
        "apps",
        "v1",
        "replicasets",
        "ReplicaSet",
        True,
        ("rs",),
        _ALL,
        _SCALE,
        fields=("status.replicas",),
        generation=True,
    ),
    Kind("apps", "v1", "statefulsets", "StatefulSet", True, ("sts",), _ALL, _SCALE, generation=True),
    Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, verbs=_REVIEW, stored=False),
    Kind(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        False,
        verbs=_REVIEW,
        stored=False,
    ),
    Kind(
        "authorization.k8s.io",
        "v1",
        "subjectaccessreviews",
        "SubjectAccessReview",
        False,
        verbs=_REVIEW,
        stored=False,
    ),
    Kind(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        True,
        ("hpa",),
        _ALL,
        _STATUS,
    ),
    Kind(
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        True,
        ("hpa",),
        _ALL,
        _STATUS,
        stored=False,
    ),
    Kind(
        "batch", "v1", "jobs", "Job", True, (), _ALL, _STATUS, fields=("status.successful",), generation=True
    ),
    Kind("networking.k8s.io", "v1", "ingresses", "Ingress", True, ("ing",), (), _STATUS, generation=True),
    Kind(
        "coordination.k8s.io", "v1", "leases", "Lease", True, must_carry_version=True, create_on_update=True
    ),
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

    def groups(self) -> dict[str, list[str]]:
        """Return each named API group and its versions, the preferred first, in the order of discovery."""
        found: dict[str, list[str]] = {}
        for kind in self:
            versions = found.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        found.pop("", None)
        return found

    def of(self, group: str, version: str) -> list[Kind]:
        """Return the kinds of a group and version, sorted by plural as in real discovery."""
        return sorted(
            (kind for kind in self if (kind.group, kind.version) == (group, version)),
            key=lambda kind: kind.plural,
        )

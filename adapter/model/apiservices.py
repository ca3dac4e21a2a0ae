"""Who serves the metrics APIs of a cluster: its APIServices, read and judged.

Here: which group and version has which APIService, what one says, whose it is, and whether we may take it. Not here: fetching
them (`kubernetes.apiservices`). Law: an APIService is cluster-wide, so one that is not ours is never taken by accident.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

VERSIONS: Mapping[str, tuple[str, ...]] = {
    "custom.metrics.k8s.io": ("v1beta1", "v1beta2"),
    "external.metrics.k8s.io": ("v1beta1",),
    "metrics.k8s.io": ("v1beta1",),
}
"""The versions that are registered of each group."""


def names_of(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the groups' APIServices, ``<version>.<group>``; `groups` are keys of `VERSIONS`."""
    return tuple(f"{version}.{group}" for group in groups for version in VERSIONS[group])


class ServiceReference(NamedTuple):
    """The Service that an APIService sends requests to."""

    namespace: str
    name: str
    port: int = 443

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


class Trust(enum.Enum):
    """How the API server checks the serving certificate; the value is how it is said."""

    BUNDLE = "certificate checked with caBundle"
    SYSTEM = "certificate checked with the API server's system roots (no caBundle)"
    NONE = "certificate not checked (insecureSkipTLSVerify)"


class Registration(NamedTuple):
    """What an APIService says. `service` None: kube-apiserver itself serves it, as it does custom resources.

    `available` is the condition's status ("True", "False", "Unknown" and "" where there is none), with its reason. `labels`
    are its own over those of its Service; `release` is the Helm release it came with, as namespace/name.
    """

    service: ServiceReference | None
    trust: Trust
    available: str = ""
    reason: str = ""
    labels: Mapping[str, str] = {}
    release: str = ""


class Owner(enum.Enum):
    """Whose an APIService is."""

    NOBODY = "free"
    OURS = "ours"
    FOREIGN = "foreign"


class Finding(NamedTuple):
    """One APIService: what it is now, in words, and where it is foreign why it is not ours to take and what to do."""

    name: str
    owner: Owner
    state: str
    advice: str = ""


_LABELS = ("app.kubernetes.io/part-of", "app.kubernetes.io/name", "k8s-app", "app")

_KNOWN: Mapping[str, str] = {
    "keda": "KEDA",
    "prometheus-adapter": "prometheus-adapter",
    "datadog": "Datadog's cluster agent",
    "stackdriver-adapter": "Google's custom metrics adapter",
    "kube-metrics-adapter": "kube-metrics-adapter",
    "alibaba-cloud-metrics-adapter": "Alibaba Cloud's metrics adapter",
    "signalfx-metrics-adapter": "SignalFx's metrics adapter",
    "cloudwatch-adapter": "the CloudWatch adapter",
    "azure-k8s-metrics-adapter": "Azure's metrics adapter",
    "newrelic": "New Relic's metrics adapter",
    "custom-metrics-apiserver": "an older prometheus-adapter",
    "metrics-server": "metrics-server",
}
"""Who is known by a part of the Service's name or of a label; the first that fits."""

_GONE = {"ServiceNotFound", "EndpointsNotFound", "MissingEndpoints"}
"""Reasons of the condition Available that say that nobody is there to serve."""


def judge(name: str, found: Registration | None, ours: ServiceReference) -> Finding:
    """Return whose the APIService `name` is; `found` None says that it does not exist."""
    if found is None:
        return Finding(name, Owner.NOBODY, "free")
    if found.service is None:
        state = "served by the API server itself, from a CustomResourceDefinition"
        advice = f"delete the CustomResourceDefinitions of its group, or leave it out: {_leave_out(name)}"
        return Finding(name, Owner.FOREIGN, state, advice)
    where = f"Service {found.service}:{found.service.port}"
    facts = f"{where}, {_availability(found)}, {found.trust.value}"
    if (found.service.namespace, found.service.name) == (ours.namespace, ours.name):
        return Finding(name, Owner.OURS, f"ours ({facts})")
    release = f", Helm release {found.release}" if found.release else ""
    who = _identify(found)
    return Finding(name, Owner.FOREIGN, f"{who} ({facts}{release})", _advice(name, who, found))


def _availability(found: Registration) -> str:
    if found.available == "True":
        return "available"
    return f"not available ({found.reason or 'no condition Available yet'})"


def _identify(found: Registration) -> str:
    """Return the owner's name, as far as Service and labels tell it."""
    assert found.service is not None
    for text in (found.service.name, *(found.labels[label] for label in _LABELS if label in found.labels)):
        for part, owner in _KNOWN.items():
            if part in text.lower():
                return owner
    return "an unknown server"


def _advice(name: str, who: str, found: Registration) -> str:
    if found.available != "True" and found.reason in _GONE:
        return f"nothing serves it: if nobody needs it any more, kubectl delete apiservice {name}"
    _, _, group = name.partition(".")
    move = f"move what reads external metrics off {who} first (one server only can have the group)"
    if who == _KNOWN["prometheus-adapter"]:
        move = "switch it over as docs/guides/migrate-from-prometheus-adapter.md says in step 4"
    steps = {
        "custom.metrics.k8s.io": "run both side by side and switch over as docs/guides/migrate-from-prometheus-adapter.md says",
        "external.metrics.k8s.io": move,
        "metrics.k8s.io": f"keep {who}, which is all that CPU and memory need, unless it is to be replaced",
    }
    return f"{steps[group]}; or leave it out: {_leave_out(name)}"


def _leave_out(name: str) -> str:
    return f"no {name.partition('.')[2]} in --groups and no component for it"

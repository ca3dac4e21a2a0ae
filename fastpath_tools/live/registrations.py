"""The APIServices of the metrics APIs: which server each belongs to, and what to do about it.

An APIService is cluster-wide, so one that belongs to another server is never replaced by accident.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple

from adapter.errors import KubernetesError
from adapter.kubernetes import apiservices
from adapter.kubernetes.client import KubernetesClient
from adapter.model.objects.apiservices import Registration, ServiceReference
from fastpath_tools.live import reading
from fastpath_tools.live.api_objects import NamedDocument


async def fetch(client: KubernetesClient, name: str) -> Registration | None:
    """Return the registration of the APIService `name`, None if it does not exist. KubernetesError.

    Its labels are those of its Service too; these only help to name the owner, and may be unreadable.
    """
    plain = await apiservices.fetch_registration(client, name)
    if plain is None or plain.service is None:
        return plain
    path = f"/api/v1/namespaces/{plain.service.namespace}/services/{plain.service.name}"
    try:
        service = await reading.fetch(client, path, NamedDocument)
    except KubernetesError:
        return plain
    return plain._replace(labels={**(service.metadata.labels or {}), **plain.labels})


class Owner(enum.Enum):
    FREE = "free"
    OURS = "ours"
    FOREIGN = "foreign"


class Finding(NamedTuple):
    """One APIService: its state as a sentence.

    `advice` is what to do about a foreign one, and about our own one if the API server cannot reach it.
    """

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
"""Known servers by a part of the name of the Service or of a label; the first match wins."""

_UNKNOWN = "an unknown server"
_CERTIFICATE = "x509: "
"""Begins what Go says of a certificate."""

_GONE = {"ServiceNotFound", "EndpointsNotFound", "MissingEndpoints"}
"""Reasons of the condition Available for an APIService without a running server."""


def judge(name: str, registration: Registration | None, ours: ServiceReference) -> Finding:
    """Return which server the APIService `name` belongs to; `registration` is None if it does not exist."""
    if registration is None:
        return Finding(name, Owner.FREE, "free")
    if registration.service is None:
        state = "served by the API server itself, from a CustomResourceDefinition"
        advice = f"delete the CustomResourceDefinitions of its group, or leave it out: {_leave_out(name)}"
        return Finding(name, Owner.FOREIGN, state, advice)
    where = f"Service {registration.service}:{registration.service.port}"
    available = "available"
    if registration.available != "True":
        available = f"not available ({registration.reason or 'no condition Available yet'})"
    facts = f"{where}, {available}, {registration.trust.value}"
    if (registration.service.namespace, registration.service.name) == (ours.namespace, ours.name):
        return Finding(name, Owner.OURS, f"ours ({facts})", _repair(registration))
    release = f", Helm release {registration.release}" if registration.release else ""
    server = _identify(registration)
    return Finding(name, Owner.FOREIGN, f"{server} ({facts}{release})", _advice(name, server, registration))


def describe_resource_versions(
    stable: Registration | None, beta: Registration | None, ours: ServiceReference
) -> str:
    """Return which client reads which version of metrics.k8s.io if the two have different servers.

    Also if only v1 is registered. "" in any other case: every client can read v1beta1.
    """
    if stable is None:
        return ""
    if beta is None:
        return (
            f"only v1 of metrics.k8s.io is registered, to {_owner(stable, ours)}: the HPA controller up to "
            "Kubernetes 1.37 and kubectl top up to 1.36 read v1beta1 and find no CPU and memory. "
            "Register v1beta1 too"
        )
    if stable.service == beta.service:
        return ""
    # The aggregator lists the version with the higher priority first, of equal ones the stable one.
    first = "v1" if stable.priority >= beta.priority else "v1beta1"
    return (
        f"metrics.k8s.io has two servers: v1 belongs to {_owner(stable, ours)}, v1beta1 to "
        f"{_owner(beta, ours)}. kubectl top reads {first} from 1.37 on, and v1beta1 before; the HPA "
        "controller reads v1beta1 up to Kubernetes 1.37. Register both versions to one server"
    )


def _owner(registration: Registration, ours: ServiceReference) -> str:
    service = registration.service
    if service is None:
        return "the API server itself"
    if (service.namespace, service.name) == (ours.namespace, ours.name):
        return f"Fastpath ({service})"
    return f"{_identify(registration)} ({service})"


def _identify(registration: Registration) -> str:
    """Return the name of the server, as far as Service and labels show it."""
    assert registration.service is not None
    for text in (
        registration.service.name,
        *(registration.labels[label] for label in _LABELS if label in registration.labels),
    ):
        for part, owner in _KNOWN.items():
            if part in text.lower():
                return owner
    return _UNKNOWN


def _advice(name: str, server: str, registration: Registration) -> str:
    if registration.available != "True" and registration.reason in _GONE:
        return f"nothing serves it: if it is not needed any more, kubectl delete apiservice {name}"
    _, _, group = name.partition(".")
    move = f"move what reads external metrics off {server} first (only one server can have the group)"
    if server == _KNOWN["prometheus-adapter"]:
        move = "switch it over as docs/guides/migrate-from-prometheus-adapter.md says in step 4"
    steps = {
        "custom.metrics.k8s.io": "run both side by side and switch over as "
        "docs/guides/migrate-from-prometheus-adapter.md says",
        "external.metrics.k8s.io": move,
        "metrics.k8s.io": f"to replace {server}, register v1 first as docs/guides/deploy.md says",
    }
    own = hint(registration)
    return f"{own}{'; else ' if own else ''}{steps[group]}; or leave it out: {_leave_out(name)}"


def hint(registration: Registration) -> str:
    """Return how to name Fastpath's Service if a server that is not known is Fastpath, "" for a known one."""
    service = registration.service
    if service is None or _identify(registration) != _UNKNOWN:
        return ""
    return f"if that is Fastpath, give --namespace={service.namespace} --service={service.name}"


def _repair(registration: Registration) -> str:
    """Return why the API server cannot reach us and where to look; "" if it can, or has not tried yet."""
    if registration.available != "False":
        return ""
    assert registration.service is not None
    step = f"look at the pods first, with kubectl -n {registration.service.namespace} get pods"
    return f"the API server says: {why_unavailable(registration)}: {remedy(registration) or step}"


def why_unavailable(registration: Registration) -> str:
    """Return why the API server does not reach the server of an APIService, "" if it does.

    Of a certificate that it refuses the message has the address of the version and the time, which are left
    out: the reason is the same for all versions.
    """
    if registration.service is None or registration.available == "True":
        return ""
    _, begin, refused = registration.message.partition(_CERTIFICATE)
    if begin:
        return f"{_CERTIFICATE}{refused.partition(': current time')[0]}"
    return registration.message or registration.reason or "no condition Available yet"


def remedy(registration: Registration) -> str:
    """Return what to do about a serving certificate that the API server refuses, "" if that is not why."""
    is_refused = registration.available != "True" and _CERTIFICATE in registration.message
    return "renew the certificate: docs/guides/deploy.md#certificates" if is_refused else ""


def _leave_out(name: str) -> str:
    return f"no {name.partition('.')[2]} in --groups and no component for it"

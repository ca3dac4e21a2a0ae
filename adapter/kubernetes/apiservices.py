"""Reads APIServices and permissions. Nothing in the cluster is changed.

An object or permission that we may not read is reported as unknown (None); every other failure raises.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient, ResponseBody
from adapter.kubernetes.codec import UNREADABLE
from adapter.model.apiservices import Registration, ServiceReference, Trust

_APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_REVIEWS = "/apis/authorization.k8s.io/v1"

_T = TypeVar("_T")


class _Meta(msgspec.Struct, rename="camel", frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Service(msgspec.Struct, rename="camel", frozen=True):
    namespace: str = ""
    name: str = ""
    port: int = 443


class _APIServiceSpec(msgspec.Struct, rename="camel", frozen=True):
    service: _Service | None = None
    ca_bundle: str | None = None
    insecure_skip_tls_verify: bool = msgspec.field(name="insecureSkipTLSVerify", default=False)
    version_priority: int = 0


class _APIServiceCondition(msgspec.Struct, rename="camel", frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _APIServiceStatus(msgspec.Struct, rename="camel", frozen=True):
    conditions: list[_APIServiceCondition] | None = None


class _APIService(msgspec.Struct, rename="camel", frozen=True):
    spec: _APIServiceSpec
    metadata: _Meta = _Meta()
    status: _APIServiceStatus = _APIServiceStatus()


class _LabelledService(msgspec.Struct, rename="camel", frozen=True):
    metadata: _Meta = _Meta()


class _ReviewStatus(msgspec.Struct, rename="camel", frozen=True):
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct, rename="camel", frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class ResourceAttributes(NamedTuple):
    """The resource attributes of an access review; "*" means all."""

    verb: str
    group: str
    resource: str


class Subject(NamedTuple):
    user: str
    groups: Sequence[str]


async def fetch_registration(client: KubernetesClient, name: str) -> Registration | None:
    """Return the registration of the APIService `name`, None if it does not exist."""
    plain = await fetch_plain_registration(client, name)
    if plain is None or plain.service is None:
        return plain
    return plain._replace(labels={**await _fetch_labels(client, plain.service), **plain.labels})


async def fetch_plain_registration(client: KubernetesClient, name: str) -> Registration | None:
    """Return the registration of the APIService `name` without the labels of its Service."""
    try:
        apiservice = _decode(await client.get(f"{_APISERVICES}/{name}"), _APIService)
    except KubernetesError as error:
        if error.status == 404:
            return None
        raise
    service = apiservice.spec.service
    condition = next(
        (condition for condition in apiservice.status.conditions or () if condition.type == "Available"),
        _APIServiceCondition("", ""),
    )
    annotations = apiservice.metadata.annotations or {}
    release = "/".join(
        annotations[key]
        for key in ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
        if key in annotations
    )
    return Registration(
        ServiceReference(service.namespace, service.name, service.port) if service is not None else None,
        _trust(apiservice.spec),
        condition.status,
        condition.reason,
        apiservice.metadata.labels or {},
        release,
        apiservice.spec.version_priority,
        " ".join(condition.message.split()),
    )


async def is_allowed(
    client: KubernetesClient, access: ResourceAttributes, subject: Subject | None = None
) -> bool | None:
    """Return whether `subject` (None: ourselves) has a permission cluster-wide; None if we may not ask."""
    attributes = {"verb": access.verb, "group": access.group, "resource": access.resource}
    spec: dict[str, object] = {"resourceAttributes": attributes}
    kind = "SelfSubjectAccessReview"
    if subject is not None:
        kind = "SubjectAccessReview"
        spec |= {"user": subject.user, "groups": list(subject.groups)}
    document: Mapping[str, object] = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    try:
        verdict = _decode(await client.create(f"{_REVIEWS}/{kind.lower()}s", document), _Review).status
    except KubernetesError as error:
        if error.status == 403:
            return None
        raise
    return verdict.allowed and not verdict.denied


async def _fetch_labels(client: KubernetesClient, service: ServiceReference) -> Mapping[str, str]:
    """Return the labels of a Service, none if it cannot be read: they only help to name the owner."""
    try:
        body = await client.get(f"/api/v1/namespaces/{service.namespace}/services/{service.name}")
        return _decode(body, _LabelledService).metadata.labels or {}
    except KubernetesError:
        return {}


def _trust(spec: _APIServiceSpec) -> Trust:
    if spec.insecure_skip_tls_verify:
        return Trust.NONE
    return Trust.BUNDLE if spec.ca_bundle else Trust.SYSTEM


def _decode(body: ResponseBody, form: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body.content, type=form)
    except UNREADABLE as error:
        raise KubernetesError(
            0, "Decode", f"the response of the API server cannot be decoded: {error}"
        ) from error

"""The APIServices of a cluster, and who may do what there: reads and reviews, for `fastpath preflight`.

Here: API objects to `model.apiservices` values. Not here: what follows from them. Law: nothing is changed in the cluster; what
we may not see is None, and only that.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient, ResponseBody
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


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    service: _Service | None = None
    ca_bundle: str | None = None
    insecure_skip_tls_verify: bool = msgspec.field(name="insecureSkipTLSVerify", default=False)


class _Condition(msgspec.Struct, rename="camel", frozen=True):
    type: str
    status: str
    reason: str = ""


class _Status(msgspec.Struct, rename="camel", frozen=True):
    conditions: list[_Condition] | None = None


class _APIService(msgspec.Struct, rename="camel", frozen=True):
    spec: _Spec
    metadata: _Meta = _Meta()
    status: _Status = _Status()


class _Labelled(msgspec.Struct, rename="camel", frozen=True):
    metadata: _Meta = _Meta()


class _Verdict(msgspec.Struct, rename="camel", frozen=True):
    allowed: bool = False
    denied: bool = False


class _Review(msgspec.Struct, rename="camel", frozen=True):
    status: _Verdict = _Verdict()


class Access(NamedTuple):
    """One thing that someone may want to do; "*" stands for all."""

    verb: str
    group: str
    resource: str


class Subject(NamedTuple):
    """Whose rights are asked about."""

    user: str
    groups: Sequence[str]


async def fetch_registration(client: KubernetesClient, name: str) -> Registration | None:
    """Return what the APIService `name` says, None if there is none. Raises KubernetesError when that cannot be learned."""
    try:
        found = _decode(await client.get(f"{_APISERVICES}/{name}"), _APIService)
    except KubernetesError as error:
        if error.status == 404:
            return None
        raise
    service = found.spec.service
    condition = next(
        (each for each in found.status.conditions or () if each.type == "Available"), _Condition("", "")
    )
    annotations = found.metadata.annotations or {}
    release = "/".join(
        annotations[key]
        for key in ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
        if key in annotations
    )
    labels = found.metadata.labels or {}
    if service is not None:
        labels = {**await _fetch_labels(client, service), **labels}
    return Registration(
        ServiceReference(service.namespace, service.name, service.port) if service is not None else None,
        _trust(found.spec),
        condition.status,
        condition.reason,
        labels,
        release,
    )


async def is_allowed(client: KubernetesClient, access: Access, subject: Subject | None = None) -> bool | None:
    """Return whether `subject` (None: we ourselves) may do something anywhere; None if we may not ask."""
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


async def _fetch_labels(client: KubernetesClient, service: _Service) -> Mapping[str, str]:
    """Return the labels of a Service, none where we cannot see it: they only help to name the owner."""
    try:
        body = await client.get(f"/api/v1/namespaces/{service.namespace}/services/{service.name}")
        return _decode(body, _Labelled).metadata.labels or {}
    except KubernetesError:
        return {}


def _trust(spec: _Spec) -> Trust:
    if spec.insecure_skip_tls_verify:
        return Trust.NONE
    return Trust.BUNDLE if spec.ca_bundle else Trust.SYSTEM


def _decode(body: ResponseBody, form: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body.content, type=form)
    except msgspec.MsgspecError as error:
        raise KubernetesError(
            0, "Decode", f"the API server's answer is not what was asked for: {error}"
        ) from error

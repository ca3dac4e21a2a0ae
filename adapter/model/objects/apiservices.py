"""The APIServices of the metrics APIs: what each says, and whether it leads to this process."""

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

VERSIONS: Mapping[str, tuple[str, ...]] = {
    "custom.metrics.k8s.io": ("v1beta1", "v1beta2"),
    "external.metrics.k8s.io": ("v1beta1",),
    "metrics.k8s.io": ("v1beta1", "v1"),
}
"""The versions of each group that are registered."""

HPA_READS: Mapping[str, tuple[str, ...]] = {**VERSIONS, "custom.metrics.k8s.io": ("v1beta2", "v1beta1")}
"""The versions of each group, first the one that the HPA controller reads where it is registered.

Of metrics.k8s.io the controller reads v1beta1 only, up to Kubernetes 1.37. Later ones may read v1 as well.
"""


def names_of(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the APIServices, ``<version>.<group>``; `groups` are keys of `VERSIONS`."""
    return tuple(f"{version}.{group}" for group in groups for version in VERSIONS[group])


class ServiceReference(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    port: int = 443

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Trust(enum.Enum):
    """How the API server checks the serving certificate; the values are the words of messages."""

    BUNDLE = "certificate checked with caBundle"
    SYSTEM = "certificate checked with the API server's system roots (no caBundle)"
    NONE = "certificate not checked (insecureSkipTLSVerify)"


class Registration(NamedTuple):
    """What an APIService says.

    Without `service`, kube-apiserver itself serves it, as it does custom resources.

    `available` is the status of the condition ("True", "False", "Unknown", and "" without the condition) and
    `reason` its reason. `release` is its Helm release as namespace/name.
    """

    service: ServiceReference | None
    trust: Trust
    available: str = ""
    reason: str = ""
    labels: Mapping[str, str] = {}
    release: str = ""
    priority: int = 0
    """Its versionPriority."""
    message: str = ""
    """That of the condition."""


def leads_here(registration: Registration, namespace: str, names: Iterable[str]) -> bool:
    """Tell whether an APIService leads to us: pods in `namespace`, whose certificate has the DNS `names`.

    kube-apiserver connects to ``<service>.<namespace>.svc`` and expects that name in the certificate, unless
    insecureSkipTLSVerify is set. So the name of our Service need not be configured.
    """
    service = registration.service
    if service is None or service.namespace != namespace:
        return False
    host = f"{service.name}.{namespace}.svc"
    return registration.trust is Trust.NONE or host in names or f"*.{namespace}.svc" in names

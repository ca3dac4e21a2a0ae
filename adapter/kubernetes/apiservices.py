"""Reads APIServices, and watches whether those of this process lead to it. It changes nothing."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient
from adapter.model.objects import apiservices
from adapter.model.objects.api_objects import Metadata
from adapter.model.objects.apiservices import Registration, ServiceReference, Trust
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring

_log = logging.getLogger(__name__)

PERIOD = 60.0
_FORBIDDEN_PERIOD = 600.0
"""Seconds between two updates. It is longer without the right, to keep refused requests out of audit logs."""


class _APIServiceSpec(msgspec.Struct, rename="camel", frozen=True):
    service: ServiceReference | None = None
    ca_bundle: str | None = None
    insecure_skip_tls_verify: bool = msgspec.field(name="insecureSkipTLSVerify", default=False)
    version_priority: int = 0


class _APIServiceCondition(msgspec.Struct, rename="camel", frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _APIServiceStatus(msgspec.Struct, rename="camel", frozen=True):
    conditions: list[_APIServiceCondition] | None = None


class _APIService(msgspec.Struct, rename="camel", frozen=True):
    spec: _APIServiceSpec
    metadata: Metadata = Metadata()
    status: _APIServiceStatus = _APIServiceStatus()


async def fetch_registration(client: KubernetesClient, name: str) -> Registration | None:
    """Return the registration of the APIService `name`, None if it does not exist. KubernetesError."""
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
    try:
        apiservice = (await client.get(path)).decode(_APIService, f"get {path}")
    except KubernetesError as error:
        if error.status == 404:
            return None
        raise
    spec = apiservice.spec
    condition = next(
        (condition for condition in apiservice.status.conditions or () if condition.type == "Available"),
        _APIServiceCondition(),
    )
    annotations = apiservice.metadata.annotations or {}
    release = "/".join(
        annotations[key]
        for key in ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
        if key in annotations
    )
    return Registration(
        spec.service,
        Trust.NONE if spec.insecure_skip_tls_verify else Trust.BUNDLE if spec.ca_bundle else Trust.SYSTEM,
        condition.status,
        condition.reason,
        apiservice.metadata.labels or {},
        release,
        spec.version_priority,
        " ".join(condition.message.split()),
    )


class RegistrationWatch:
    """Looks once a minute at the APIServices of `groups`, and exposes whether they lead here.

    An APIService is cluster-wide, and the last `kubectl apply` or `helm upgrade` of any adapter wins. The
    pods of the other one stay healthy and get no requests, so nothing else shows it. Without the right to get
    these APIServices by name the metric is absent. `names` returns the DNS names of the serving certificate
    in use.
    """

    def __init__(
        self,
        client: KubernetesClient,
        groups: Iterable[str],
        namespace: str,
        names: Callable[[], Iterable[str]],
        monitoring: Monitoring,
    ) -> None:
        self._client = client
        self._groups = [group for group in groups if group in apiservices.VERSIONS]
        self._namespace = namespace
        self._names = names
        self._owned = monitoring.apiservice_owned
        self._is_forbidden = False

    async def run(self) -> None:
        while True:
            await self.update()
            await asyncio.sleep(_FORBIDDEN_PERIOD if self._is_forbidden else PERIOD)

    async def update(self) -> None:
        """Update the metric. While the API server does not answer, it keeps its value."""
        for group in self._groups:
            try:
                registered = {
                    name: await fetch_registration(self._client, name)
                    for name in apiservices.names_of([group])
                }
            except KubernetesError as error:
                if error.status != 403:
                    continue
                for name in apiservices.names_of(self._groups):
                    self._owned.remove(name)
                if not self._is_forbidden:
                    self._is_forbidden = True
                    message = "APIServices may not be read; whether they lead here is unknown"
                    _log.info(message, extra=facts(error=error))
                return
            self._is_forbidden = False
            self._expose(registered)

    def _expose(self, registered: Mapping[str, Registration | None]) -> None:
        """Expose the APIServices of one group; one that does not exist counts if the group has no other."""
        names = frozenset(self._names())
        first = next(iter(registered))
        is_registered = any(registration is not None for registration in registered.values())
        for name, registration in registered.items():
            if registration is not None:
                is_owned = apiservices.leads_here(registration, self._namespace, names)
                self._owned.labels(name).set(is_owned)
            elif is_registered or name != first:
                self._owned.remove(name)
            else:
                self._owned.labels(name).set(0)

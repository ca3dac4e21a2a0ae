"""Looks once a minute at the APIServices that this process should serve, and exposes whether they lead here.

An APIService is cluster-wide, and the last `kubectl apply` or `helm upgrade` of any adapter wins. The pods of
the other one stay healthy and get no requests, so nothing else shows it. Reading needs the right to get these
APIServices by name; without it the metric is absent.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from adapter.errors import KubernetesError
from adapter.kubernetes import apiservices as registrations
from adapter.kubernetes.client import KubernetesClient
from adapter.model import apiservices
from adapter.model.apiservices import Registration
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring

_log = logging.getLogger(__name__)

PERIOD = 60.0
_FORBIDDEN_PERIOD = 600.0
"""Seconds between two updates. It is longer without the right, to keep refused requests out of audit logs."""


class RegistrationWatch:
    """The APIServices of `groups`. `names` returns the DNS names of the serving certificate in use."""

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
        """Update until cancelled."""
        while True:
            await self.update()
            await asyncio.sleep(_FORBIDDEN_PERIOD if self._is_forbidden else PERIOD)

    async def update(self) -> None:
        """Update the metric. While the API server does not answer, it keeps its value."""
        for group in self._groups:
            try:
                registered = {
                    name: await registrations.fetch_plain_registration(self._client, name)
                    for name in apiservices.names_of([group])
                }
            except KubernetesError as error:
                if error.status != 403:
                    continue
                self._forget(error)
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

    def _forget(self, error: KubernetesError) -> None:
        for name in apiservices.names_of(self._groups):
            self._owned.remove(name)
        if not self._is_forbidden:
            self._is_forbidden = True
            _log.info(
                "APIServices may not be read; whether they lead here is unknown", extra=facts(error=error)
            )
